"""Tactic: slices of what was put together are read from what it was put together of.

Owns: which slices, and which operations they are taken before. Does not own: the step (steps/read_through.py).

A loop that writes y[k] = f(y[k - 1]), or stacks its states, would otherwise have a kernel for each k, which looks for the one
element that it reads in all that was written; and a loss of all states another one for each state's gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.operation_cycles import COSTLY
from proofgrad.core.compile.steps.read_through import (
    is_put_together,
    read_through,
    reads_what_is_written,
)
from proofgrad.core.compile.steps.tensor_program import TensorProgram
from proofgrad.core.ir.op_names import SHRINK
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import elements, is_plain
from proofgrad.core.ir.uop import UOp, toposort

# Operations that are written out for each slice of what they compute.
MOST_OPERATIONS = 64


def read_what_was_written(program: TensorProgram, context: Context) -> TensorProgram:
    """Slices of what was put together are read from what it is of, again and again: a loop's steps from each other."""
    while wanted := _read_past(toposort((program.graph,))):
        before, program = program, read_through(program, wanted)
        if program is before:
            break
    return program


def _read_past(nodes: Sequence[UOp]) -> set[UOp]:
    """Slices that show what is below, and the operations that lead to values of which nothing but slices is read."""
    slices = [node for node in nodes if node.op is SHRINK]
    found = {node for node in slices if reads_what_is_written(node)}
    computed: dict[UOp, list[UOp]] = {}
    for taken in slices:
        value = taken.src[0]
        if value.op in ELEMENTWISE and not is_put_together(value) and is_plain(taken.shape):
            computed.setdefault(value, []).append(taken)
    users = _users(nodes) if computed else {}
    for value, those in computed.items():
        if len(users[value]) == len(those) and _shows_once(value, those):
            operations, operands = _operations_for(value, users)
            if len(operations) <= MOST_OPERATIONS and all(map(_is_there, operands)):
                found |= {*operations, *those}
    return found


def _users(nodes: Sequence[UOp]) -> dict[UOp, set[UOp]]:
    users: dict[UOp, set[UOp]] = {node: set() for node in nodes}
    for node in nodes:
        for source in node.src:
            users[source].add(node)
    return users


def _shows_once(value: UOp, slices: Sequence[UOp]) -> bool:
    """Whether slices show no more elements than there are."""
    shown = [elements(taken.shape) for taken in slices]
    return is_plain(value.shape) and sum(shown) <= elements(value.shape)


def _operations_for(value: UOp, users: Mapping[UOp, set[UOp]]) -> tuple[set[UOp], set[UOp]]:
    """A value and the operations before it, but for costly ones that others read too; and their operands."""
    found, stack, operands = {value}, [value], set[UOp]()
    while stack and len(found) <= MOST_OPERATIONS:
        for source in stack.pop().src:
            operands.add(source)
            is_cheap = source.op not in COSTLY or users[source] <= found
            if source.op in ELEMENTWISE and not is_put_together(source) and is_cheap:
                stack += [] if source in found else [source]
                found.add(source)
    return found, operands - found


def _is_there(operand: UOp) -> bool:
    """Whether it is memory, the same everywhere, or put together: no loop is taken apart from its last operations."""
    while operand.op is Ops.RESHAPE or operand.op is Ops.DETACH:
        if operand.op is Ops.DETACH and is_put_together(operand.src[0]):
            return True
        operand = operand.src[0]
    kept = operand.op in (Ops.BUFFER, Ops.COPY, Ops.CONTIGUOUS, Ops.CONST, Ops.EXPAND)
    return kept or is_put_together(operand)
