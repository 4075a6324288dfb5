"""In which parts a reduction is taken so that every unit of a machine of groups has some of them.

Owns: the choice, a heuristic. Does not own: what a reduction in parts is (steps/reduce_in_parts.py), reductions that are taken in
parts for their rounding, or for caches (split_reductions.py).

Elements that lie side by side are a group's, which reads them together: a part is as long as keeps its items busy. Of rows that lie
apart, neighbours in a row are neighbouring items': a part has so few rows that there are items for all units, and an item has all that
it reads under way at once. What the parts gave, a row each, is few rows again: of these a group takes some results (schedule/groups.py),
and they are taken in parts once more only where that saves more than what another launch takes. Rows of so many results that groups of some of
them are enough for all units stay whole.

A sum of products with few results keeps units busy by small tiles, whose operands are read more often than they are multiplied; in parts of
its steps as many large ones as there is room for run at once. The parts are as long as what they give takes little beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.sums_of_products import is_contraction, operands
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.groups import (
    GROUPS_A_UNIT,
    ROWS_ACROSS,
    SECTOR_BYTES,
    are_shared_across,
)
from proofgrad.core.compile.schedule.shared_tiles import ITEMS_AT_ONCE
from proofgrad.core.compile.schedule.vectors import SHORT_REDUCTION
from proofgrad.core.compile.schedule.warp_tiles import FAR_BYTES, MULTIPLY_ADDS
from proofgrad.core.compile.steps.reduce_in_parts import Blocks, Ends, Parts, with_blocks_first
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import CONVERSIONS, ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp

# Elements of a part for each item of its group, and rows of one, at least: fewer are read while their sum is stored.
LEAST_ELEMENTS, LEAST_ROWS = 16, SHORT_REDUCTION
# Elements side by side, between others of the same sum, from which on they are a part.
LEAST_RUN = 16
# Groups of a unit that sum whole rows, at least: half of those that all units run, of which every item has several loads under way.
GROUPS_OF_ROWS = GROUPS_A_UNIT // 2
# A reduction that keeps this share of the units busy stays whole: parts would be stored and read once more.
ENOUGH = 1 / 4
# Results of an item in a tile that multiplies at full speed, and in a small one, and how many times longer small tiles take (an estimate:
# benchmarks/ptx_kernels.py). Multiply-adds of a unit in a cycle that are no matrix unit's.
RESULTS_OF_AN_ITEM, OF_A_SMALL_TILE, OF_SMALL_TILES, OF_ITEMS = 64, 4, 3.0, 128.0
# Cycles of a part for each that storing and reading what it gives takes.
BESIDE_A_PART = 5


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
    if 2 * rows > whole or whole <= ROWS_ACROSS or _are_of_groups(node, target):
        return None
    core, across = target.core, _rows_of_a_launch(target)
    in_one_launch = -(-whole // across)  # what such parts give, one more kernel takes, and not two
    if (in_one_launch - rows) * core.memory_line_cycles <= core.launch_cycles:
        rows = max(rows, in_one_launch)
    return in_blocks_of(node.src[0].shape, node.arg[1], rows, 1, across)


def _are_of_groups(node: UOp, target: Target) -> bool:
    """Whether groups that each sum whole rows, a sector of memory wide, are enough for all units (schedule/groups.py)."""
    value, results = node.src[0], prod(node.shape)
    while value.op in MOVEMENT or value.op in CONVERSIONS:
        value = value.src[0]
    groups = results * value.dtype.itemsize // SECTOR_BYTES
    return groups >= GROUPS_OF_ROWS * target.units and are_shared_across(results, target)


def parts_of_products(node: UOp, target: Target) -> Parts | None:
    """The parts of a sum of products that has few results for all units, where they save more than one more launch takes; None: it stays whole.

    One of weights, which rows of results go through, stays: it is part of a kernel that never stores them (row_products.py).
    """
    if not target.units or target.lockstep == 1 or not target.group_items or not _stays_apart(node):
        return None
    shape, axes, results = node.src[0].shape, node.arg[1], prod(node.shape)
    depth, rate, nbytes = prod([shape[a] for a in axes]), _rate(node, target), node.dtype.itemsize
    share = results / (RESULTS_OF_AN_ITEM * ITEMS_AT_ONCE * target.units)
    of_a_result = 2 * nbytes / FAR_BYTES  # cycles of a unit
    longest = max(int(depth * share), int(BESIDE_A_PART * of_a_result * rate))
    parts = depth // max(1, longest)
    if share >= ENOUGH or parts < 2:
        return None
    longer = _times_longer(share) - _times_longer(share * parts)
    saved = results * depth / rate * longer - parts * results * of_a_result
    launches = 2 * target.core.launch_cycles  # of the sum of the parts, and of a rest
    if saved / target.units <= launches:
        return None
    if shape[axes[-1]] == depth:
        longest = min(range(longest, longest // 2, -1), key=lambda size: depth % size)
    return in_blocks_of(shape, axes, longest, 1, depth)


def _times_longer(share: float) -> float:
    """Than at full speed a product takes whose results are this share of what all units compute at once: in small tiles, as far as these go."""
    of_tiles = min(OF_SMALL_TILES, max(1.0, 1 / share))
    return max(of_tiles, OF_A_SMALL_TILE / (RESULTS_OF_AN_ITEM * share))


def _stays_apart(product: UOp) -> bool:
    """Whether nothing that its factors are computed from, before memory or another product, was reduced."""
    waiting, seen = operands(product), set[UOp]()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is Ops.REDUCE_AXIS and not is_contraction(node):
            return False
        if node.op in MOVEMENT or node.op in ELEMENTWISE:
            waiting.extend(node.src)
    return True


def _rate(product: UOp, target: Target) -> float:
    """Multiply-adds of a unit in a cycle: of a matrix unit that takes the factors as they are, or of items."""
    factors = set[DType]()
    for factor in operands(product):
        while factor.op in MOVEMENT or factor.op in CONVERSIONS:
            factor = factor.src[0]
        factors.add(factor.dtype)
    units = [x.factor for x in target.matrix_units if isinstance(x, MatrixUnit) and not x.rounds]
    is_of_unit = len(factors) == 1 and factors.issubset(units)
    return MULTIPLY_ADDS[factors.pop().itemsize] if is_of_unit else OF_ITEMS


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
