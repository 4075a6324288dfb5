"""In which parts a reduction is taken so that every unit of a machine of groups has some of them.

Owns: the choice, a heuristic. Does not own: what a reduction in parts is (steps/reduce_in_parts.py), reductions that are taken in
parts for their rounding, or for caches (split_reductions.py).

Elements that lie side by side are a group's, which reads them together: a part is as long as keeps its items busy. Of rows that lie
apart, neighbours in a row are neighbouring items': a part has so few rows that there are items for all units, and an item has all that
it reads under way at once. What the parts gave, a row each, is few rows again: of these a group takes some results (schedule/groups.py),
and they are taken in parts once more only where that saves more than what another launch takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.groups import GROUPS_A_UNIT, ROWS_ACROSS, SECTOR_BYTES
from proofgrad.core.compile.schedule.vectors import SHORT_REDUCTION
from proofgrad.core.compile.steps.reduce_in_parts import Blocks, Ends, Parts, with_blocks_first
from proofgrad.core.ir.ops import CONVERSIONS, MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp

# Elements of a part for each item of its group, and rows of one, at least: fewer are read while their sum is stored.
LEAST_ELEMENTS, LEAST_ROWS = 16, SHORT_REDUCTION
# Elements side by side, between others of the same sum, from which on they are a part.
LEAST_RUN = 16
# A reduction that keeps this share of the units busy stays whole: parts would be stored and read once more.
ENOUGH = 1 / 4


def parts_for_units(node: UOp, order: Sequence[int], target: Target) -> Parts | None:
    """The parts of a reduction whose operand has its axes in this order in memory; None: it stays whole."""
    shape, axes = node.src[0].shape, node.arg[1]
    moving = [a for a in order if shape[a] > 1]
    reduced = [a for a in moving if a in axes]
    if not reduced:
        return None
    if moving[-1] not in axes:
        return _of_rows(node, reduced, target)
    run = moving[len(moving) - _length_of_run(moving, axes) :]
    return _side_by_side(node, [a for a in reduced if a not in run], run, target)


def _side_by_side(
    node: UOp, apart: Sequence[int], run: Sequence[int], target: Target
) -> Parts | None:
    """Axes of elements that lie side by side in blocks for groups; those apart are reduced with the blocks."""
    shape, axes, results = node.src[0].shape, node.arg[1], prod(node.shape)
    together, wanted = prod([shape[a] for a in run]), GROUPS_A_UNIT * target.units
    if not apart and results >= ENOUGH * target.units:
        return None
    groups = -(-wanted // (results * prod([shape[a] for a in apart])))
    longest = max(LEAST_ELEMENTS * target.group_items, together // groups)
    if together > longest:
        return in_blocks_of(shape, axes, longest, target.group_items)
    if apart and together >= LEAST_RUN:
        return Blocks(max(apart), 1, tuple(sorted(run)))
    return None


def _of_rows(node: UOp, reduced: Sequence[int], target: Target) -> Parts | None:
    """Rows that lie apart in blocks, of which every item of every unit has one; what a block gives lies as its rows do."""
    whole = prod([node.src[0].shape[a] for a in reduced])
    items = -(-prod(node.shape) // target.lanes(node.dtype))
    wanted = GROUPS_A_UNIT * target.units * target.group_items
    rows = max(LEAST_ROWS * _times_read(node.src[0]), whole * items // wanted)
    if 2 * rows > whole or whole <= ROWS_ACROSS:
        return None
    core, across = target.core, _rows_of_a_launch(target)
    in_one_launch = -(-whole // across)  # what such parts give, one more kernel takes, and not two
    if (in_one_launch - rows) * core.memory_line_cycles <= core.launch_cycles:
        rows = max(rows, in_one_launch)
    return in_blocks_of(node.src[0].shape, node.arg[1], rows, 1, across)


def _rows_of_a_launch(target: Target) -> int:
    """So many rows of what parts gave, which is in a cache, a group takes a sector of each while another kernel would begin."""
    core = target.core
    return max(ROWS_ACROSS, core.launch_cycles * core.cache_bytes_a_cycle // SECTOR_BYTES)


def _times_read(value: UOp) -> int:
    """How often an element of the longest factor of a product is read, as keys are that heads share; of other values once."""
    lengths = []
    for factor in value.src if value.op is Ops.MUL else (value,):
        while factor.op in MOVEMENT or factor.op in CONVERSIONS:
            factor = factor.src[0]
        lengths.append(elements(factor.shape))
    return max(1, elements(value.shape) // max(1, *lengths))


def _length_of_run(moving: Sequence[int], axes: Sequence[int]) -> int:
    """How many axes at the end are reduced."""
    return next((k for k, a in enumerate(reversed(moving)) if a not in axes), len(moving))


def in_blocks_of(
    shape: tuple[int, ...], axes: tuple[int, ...], longest: int, unit: int, across: int = 0
) -> Parts | None:
    """Blocks of at most `longest` elements that lie together, a multiple of `unit`, then of these; None where the whole is no longer.

    `across`: what blocks give lies block by block, and so many of these are no further blocks; 0: it lies as the axes do.
    """
    longest = max(longest, 2 * unit)  # a part is shorter than the whole
    inner: list[int] = []  # the last axes, which are reduced whole
    together = 1
    for axis in sorted(axes, reverse=True):
        if together * shape[axis] > longest:
            break
        inner.append(axis)
        together *= shape[axis]
    else:
        return None
    step = unit if together == 1 else 1
    room, whole = max(1, longest // together // step), shape[axis]
    size = largest_divisor(whole // step, at_most=room) if whole % step == 0 else 1
    size = step * (room if 4 * size < room else size)
    left = whole % size
    if left:
        head, rest = [
            in_blocks_of((*shape[:axis], length, *shape[axis + 1 :]), axes, longest, unit, across)
            for length in (whole - left, left)
        ]
        return Ends(axis, whole - left, head, rest)
    kept = [1 if a in inner else n for a, n in enumerate(shape)]
    parts = (*kept[:axis], whole // size, 1, *kept[axis + 1 :])
    left_axes = tuple([a for a in axes if a <= axis])
    if across:
        order = with_blocks_first(axis, len(parts))
        parts, left_axes = (
            tuple([parts[a] for a in order]),
            tuple([order.index(a) for a in left_axes]),
        )
    further = in_blocks_of(parts, left_axes, max(longest, across), unit, across)
    return Blocks(axis, size, tuple(inner), across > 0, further)
