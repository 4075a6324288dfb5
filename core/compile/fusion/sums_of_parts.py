"""Which short reductions of memory, as of what a few parts of a row gave, each kernel that reads the result takes again.

Owns: the conditions. Does not own: reductions in parts (parts_for_units.py), those that run in one kernel beside its rows (rows.py), that group,
or each item, takes such a reduction by itself (schedule/groups.py).

    m(i) = max[p < 16](b(p, i))        out(i, j) = x(i, j) - m(i)        is one kernel, not two

A kernel of a few results runs no longer than it takes to start one. Groups that read what it would read take it from a cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from proofgrad.core.compile.fusion.rows import Axes, Shape, ends_and_axes
from proofgrad.core.compile.fusion.work import computed_by
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.running_reductions import is_running
from proofgrad.core.compile.nests.sums_of_products import is_contraction
from proofgrad.core.compile.schedule.groups import BESIDE, ONE_LOAD
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp


def sums_by_readers(
    nodes: list[UOp],
    consumers: Mapping[UOp, list[UOp]],
    stored: set[UOp],
    kept: set[UOp],
    target: Target,
) -> set[UOp]:
    """Nodes of `stored` that need no buffer; `kept` are those that must have one."""
    if not target.units or target.lockstep == 1 or target.has_scalar_items:
        return set()
    left = set(stored)
    for node in nodes:
        if node in stored and node not in kept and (count := _of_so_many(node, left)):
            ends = ends_and_axes(node, consumers, left, _through_parts)
            if ends and all(
                [_reads_few(end, axes, count, left, target) for end, axes in ends.items()]
            ):
                left.remove(node)
    return stored - left


def _of_so_many(node: UOp, stored: set[UOp]) -> int:
    """How many elements of memory the reductions of a node's kernel take in for each result; 0: it has none, or others."""
    if node.op is Ops.COPY or node.op is Ops.CONTIGUOUS:
        return 0
    reductions = [n for n in computed_by(node, stored) if n.op is Ops.REDUCE_AXIS]
    if any([is_running(n) or not _is_of_memory(n, stored) for n in reductions]):
        return 0
    return sum(map(_combined, reductions))


def _is_of_memory(reduction: UOp, stored: set[UOp]) -> bool:
    """Whether it takes in what a buffer has, moved perhaps, and nothing is computed of it before."""
    (value,) = reduction.src
    while value.op in MOVEMENT and value not in stored:
        (value,) = value.src[:1]
    return value in stored or value.op is Ops.BUFFER


def _reads_few(end: UOp, axes: Axes | None, count: int, stored: set[UOp], target: Target) -> bool:
    """Whether a kernel computes much more with each result, and runs in no tiles: elements of its own rows, or results side by side.

    Of these, groups on all units, unless each item takes the reduction by itself.
    """
    inside = computed_by(end, stored)
    if axes is None or any([is_contraction(n) or is_running(n) or n.op is Ops.PAD for n in inside]):
        return False
    if any([_combined(n) >= BESIDE * count for n in inside if n.op is Ops.REDUCE_AXIS]):
        return True
    groups = target.units if count > ONE_LOAD else 1
    beside = prod(end.shape[max(axes, default=-1) + 1 :])
    return beside >= BESIDE * count and elements(end.shape) >= groups * BESIDE * count


def _through_parts(old: Shape, new: Shape, axes: Axes) -> Axes:
    """The axes of a new shape that are made of some of an old one: where axes are cut or joined, all of what they become."""
    found, old_at, new_at = set[int](), 0, 0
    while old_at < len(old) or new_at < len(new):
        first, old_size, new_size = (old_at, new_at), 1, 1
        while True:  # so many axes of both as have as many elements
            if old_at < len(old) and (old_size <= new_size or new_at == len(new)):
                old_size, old_at = old_size * old[old_at], old_at + 1
            else:
                new_size, new_at = new_size * new[new_at], new_at + 1
            if old_size == new_size:
                break
        if not axes.isdisjoint(range(first[0], old_at)):
            found.update([a for a in range(first[1], new_at) if new[a] > 1])
    return frozenset(found)


def _combined(reduction: UOp) -> int:
    """How many elements become one."""
    return prod([reduction.src[0].shape[axis] for axis in reduction.arg[1]])
