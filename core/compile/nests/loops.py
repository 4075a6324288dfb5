"""The loops of a kernel: which there are, how long they are, whose they are.

A RANGE is a loop. One that a REDUCE or LOCAL_BUFFER names runs inside of it; one that nothing names runs over the elements
that the kernel stores: an output loop. Does not own: which loops a term depends on (nests/strides.py).
"""

from __future__ import annotations

from itertools import product
from math import prod

from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.op_names import CONST, RANGE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Nodes that have loops of their own.
BINDERS = frozenset({Ops.REDUCE, Ops.LOCAL_BUFFER})


def size_of(loop: UOp) -> int:
    """The number of iterations of a RANGE; of one that a variable, or a loop around, bounds, at most."""
    bound = loop.src[0]
    if bound.op is CONST:
        size: int = bound.arg
        return size
    return _ends_of(bound)[1] if loops_of(bound) else bound.vmax


def _ends_of(term: UOp) -> tuple[int, int]:
    """The least and the greatest value of an end that other loops give a loop (steps/hidden_blocks.py)."""
    if term.op is Ops.RANGE:
        return 0, size_of(term) - 1
    values = list(product(*map(_ends_of, term.src)))
    if term.op is Ops.MOD and values[0][1] > 0:
        return 0, values[0][1] - 1
    types = [s.dtype for s in term.src]
    found = [term.arg] if term.op is CONST else []
    found += [int(evaluate(term.op, term.dtype, list(x), types)) for x in values if term.src]
    return min(found), max(found)


def is_fixed(loop: UOp) -> bool:
    """Is the number of iterations known to the compiler, so that the loop can be cut in parts?"""
    return loop.src[0].op is CONST


def runs_alike(loop: UOp) -> bool:
    """Whether each item of a group runs a loop, all of it, as often as the others do."""
    is_in_turn = loop.arg[1] in (AxisRole.LOOP, AxisRole.REDUCE, AxisRole.AHEAD)
    return is_in_turn and (is_fixed(loop) or is_bounded_by_groups(loop))


def is_bounded_by_groups(loop: UOp) -> bool:
    """Whether the loops of groups alone say how often a loop runs, so that it is as often for all items of one."""
    around = loops_of(loop.src[0])
    return bool(around) and all([x.arg[1] is AxisRole.BLOCK for x in around])


def output_loops(kernel: UOp) -> list[UOp]:
    """The loops of known size that run over the output's elements, in order of their numbers."""
    free = [loop for loop in loops_of(kernel) if is_fixed(loop)]
    return sorted(free, key=lambda loop: loop.arg[0])


def unshared_reductions(kernel: UOp) -> list[list[UOp]]:
    """Loop groups of reductions, and of what is kept, that share no loop with another one."""
    groups = {n.src[1:] for n in toposort((kernel,)) if n.op in BINDERS}
    groups = {group for group in groups if all(is_fixed(loop) for loop in group)}
    uses: dict[UOp, int] = {}
    for group in groups:
        for loop in group:
            uses[loop] = uses.get(loop, 0) + 1
    unshared = [g for g in groups if all(uses[loop] == 1 for loop in g)]
    return [list(g) for g in sorted(unshared, key=lambda g: [loop.arg[0] for loop in g])]


def fresh_number(*graphs: UOp) -> int:
    """A number that no loop of the graphs has; loops of larger numbers run inside of others."""
    return 1 + max([n.arg[0] for n in toposort(graphs) if n.op is RANGE], default=-1)


def elements_of(memory: UOp) -> int:
    """How many elements a parameter has, or what is kept."""
    if memory.op is Ops.LOCAL_BUFFER:
        return prod([size_of(loop) for loop in memory.src[1:]])
    count: int = memory.arg[1]
    return count
