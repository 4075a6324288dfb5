"""What every printer of Linear asks about a program: parameters, launch sizes, an estimate of work.

Owns: these few questions. Does not own: which Linear is legal (passes/forms.py), how it is printed
(backends/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.fragments import QUARTERS, square_of
from proofgrad.core.ir.op_names import (
    ADD,
    BROADCAST,
    CONST,
    END,
    FILLED,
    HREDUCE,
    INDEX,
    LOAD,
    MMA,
    PARAM,
    RANGE,
    STORE,
)
from proofgrad.core.ir.ops import ALU, CASTS
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

_HIDDEN = ALU | CASTS
_COUNTED = _HIDDEN | {LOAD, HREDUCE}


def parameters(linear: UOp) -> dict[int, UOp]:
    """The PARAM in each slot that the program uses, in the order of the slots."""
    found = {node.arg[0]: node for node in linear.src if node.op is PARAM}
    return dict(sorted(found.items()))


def parameter_types(linear: UOp) -> tuple[DType, ...]:
    """The element type of each slot; void for a slot that the program does not use."""
    found = parameters(linear)
    return tuple([found[s].dtype if s in found else dtypes.void for s in range(max(found) + 1)])


def range_of_role(linear: UOp, role: AxisRole) -> UOp | None:
    """The RANGE with this role, or None. Raises: ValueError if there are two."""
    found = [node for node in linear.src if node.op is RANGE and node.arg[1] is role]
    if len(found) > 1:
        raise ValueError(f"a program has at most one {role!r} range, not {len(found)}")
    return found[0] if found else None


def launch_size(linear: UOp, role: AxisRole) -> int | None:
    """The constant size of the THREAD or GLOBAL range; None where there is none."""
    found = range_of_role(linear, role)
    return None if found is None else int(found.src[0].arg)


# Items of a group that keeps nothing together.
PLAIN_GROUP = 64


def is_one_each(loop: UOp, group: int | None) -> bool:
    """Whether each of so many items of a group has one iteration of a loop."""
    size = loop.src[0]
    return loop.arg[1] is AxisRole.LANE and size.op is CONST and size.arg == group


def group_size(linear: UOp) -> int | None:
    """Items of a group, where items wait for each other; None: no groups.

    As many as the loop of results has that they share, where memory is filled inside of it, again and again, or warps of it
    multiply matrices; else as the longest loop that fills memory.
    """
    of_warps = [n for n in linear.src if n.op is MMA and square_of(n) is None]
    if of_warps:
        return int(of_warps[0].src[0].src[0].arg)
    shared = [n for n in linear.src if n.op is RANGE and n.arg[1] is AxisRole.LANE]
    if (around := _around_others(linear.src)) is not None:
        return int(around.src[0].arg)
    filling = [x for n in linear.src if n.op is FILLED for x in n.src[1:] if x in shared]
    sizes = [int(x.src[0].arg) for x in filling]
    return max(sizes, default=PLAIN_GROUP) if shared else None


def _around_others(nodes: Iterable[UOp]) -> UOp | None:
    """The first loop of items that is open where another one begins."""
    around: UOp | None = None
    for node in nodes:
        if node.op is RANGE and node.arg[1] is AxisRole.LANE:
            if around is not None:
                return around
            around = node
        elif node.op is END and node.src[0] is around:
            around = None
    return None


def items_to_start(linear: UOp) -> int | None:
    """How many work items a kernel has; None where it is one."""
    size = group_size(linear)
    if size is None:
        return launch_size(linear, AxisRole.GLOBAL)
    return size * (launch_size(linear, AxisRole.BLOCK) or 1)


def operation_count(linear: UOp) -> int:
    """Elementwise operations, loads and stores of one run, counted by lane."""
    return _work(linear, lambda dtype: dtype.lanes)


def instruction_count(linear: UOp, vector_bytes: int) -> int:
    """The same counted by register, of which a vector may take several; what addresses are made of is hidden behind them."""
    positions = [node.src[1] for node in linear.src if node.op is INDEX]
    hidden = frozenset(toposort(positions, lambda node: node.op in _HIDDEN))
    width = max(1, vector_bytes)

    @cache
    def registers(dtype: DType) -> int:
        return max(1, -(-dtype.lanes * dtype.scalar.itemsize // width)) if dtype.lanes > 1 else 1

    return _work(linear, registers, hidden)


def _work(
    linear: UOp, count: Callable[[DType], int], left_out: frozenset[UOp] = frozenset()
) -> int:
    total, repeats = 0, [1]
    for node in linear.src:
        op = node.op
        if op in _COUNTED:
            total += repeats[-1] * count(node.dtype) * (op not in _HIDDEN or node not in left_out)
        elif op is MMA:  # each of its results takes in as many products as the matrices are deep
            square = square_of(node)
            depth = QUARTERS * node.arg[1] if square is None else square.steps
            total += repeats[-1] * count(node.dtype) * depth
        elif op is RANGE:
            size = node.src[0].arg if node.src[0].op is CONST else 1
            repeats.append(repeats[-1] * int(size))
        elif op is END:
            repeats.pop()
        elif op is STORE:
            total += repeats[-1] * count(node.src[1].dtype)
    return total


def lanes_apart(index: UOp) -> tuple[UOp, tuple[int, ...]] | None:
    """A scalar, and how far behind it each lane is, if that is how the vector is made."""
    if index.op is not ADD:
        return None
    for first, apart in (index.src, index.src[::-1]):
        if first.op is BROADCAST and apart.op is CONST and isinstance(apart.arg, tuple):
            return first.src[0], apart.arg
    return None
