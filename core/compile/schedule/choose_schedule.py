"""What a kernel does, decided once: its tile, tables, blocks, vectors, copies, threads.

Owns: putting the heuristics' answers together as one value (kernel_schedule.py), and handing it from tactic to tactic
with the nest. Does not own: the heuristics (tiles.py, operands.py, schedule/reduction_blocks.py, vectors.py, threads.py).
"""

from __future__ import annotations

from dataclasses import replace

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import (
    AUTOMATIC,
    NO_MATRICES,
    NO_SHARED_TILE,
    NO_WARP_TILE,
    Schedule,
    Tile,
    WarpTile,
)
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.contraction import Contraction
from proofgrad.core.compile.schedule.groups import choose_group
from proofgrad.core.compile.schedule.matrices import choose_matrices
from proofgrad.core.compile.schedule.operands import (
    choose_reduction_block,
    packs_columns,
    planned_staging,
)
from proofgrad.core.compile.schedule.prefix_loops import find_along, schedule_along
from proofgrad.core.compile.schedule.reduction_blocks import find_rows, sums_without_tiles
from proofgrad.core.compile.schedule.row_products import find_kept_rows, schedule_rows
from proofgrad.core.compile.schedule.shared_tiles import choose_shared, shares_ahead
from proofgrad.core.compile.schedule.threads import (
    loop_shared_in_order,
    operations_shared,
    shares_work,
)
from proofgrad.core.compile.schedule.tiles import choose_blocks, choose_depth, find_contraction
from proofgrad.core.compile.schedule.transposes import choose_transposed
from proofgrad.core.compile.schedule.vector_loops import copies_windows, loads_in_steps
from proofgrad.core.compile.schedule.vectors import SHORT_REDUCTION, choose_vectors
from proofgrad.core.compile.schedule.warp_blocks import choose_warp_rows, rows_ahead
from proofgrad.core.compile.schedule.warp_tables import NO_TABLES, choose_tables
from proofgrad.core.compile.schedule.warp_tiles import choose_warps, warps_ahead
from proofgrad.core.compile.schedule.warp_windows import choose_window
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.ir.op_names import LOCAL_BUFFER
from proofgrad.core.ir.uop import UOp, toposort


def choose_schedule(kernel: UOp, target: Target, override: Schedule) -> Schedule:
    """The whole schedule of a kernel: the override where it fits, else what the heuristics take.

    Of a kernel that will be summed in blocks only that: for the kernel that adds them up, more is decided when it is there.
    """
    if target.has_scalar_items:
        return _of_scalar_items(kernel, target, override)
    if (along := find_along(kernel)) is not None:
        return schedule_along(kernel, along, target, override)
    if (warps := choose_warps(kernel, target, override)) is not None:
        return _of_warps(kernel, warps, target, override)
    if (warps := choose_warp_rows(kernel, target, override)) is not None:
        ahead = rows_ahead(kernel, warps, target, override) if warps.warps else None
        return Schedule(buffered=True, tiled=True, warps=warps, ahead=ahead, reduction_block=0)
    if (by_unit := choose_matrices(kernel, target, override)) is not None:
        return by_unit
    without = override.warps if override.warps == NO_WARP_TILE else None
    none = override.matrices if override.matrices == NO_MATRICES else None
    if (way := choose_shared(kernel, target, override)) is not None:
        return Schedule(
            tiled=True,
            tile=way[0],
            shared=way[1],
            warps=without,
            ahead=shares_ahead(kernel, *way, target, override),
            reduction_block=0,
        )
    if (by_rows := find_kept_rows(kernel, target, override)) is not None:
        return schedule_rows(by_rows, target, override)
    found = find_contraction(kernel, target, override)
    if found is not None and not _may_be_in_memory(kernel, found[0]):
        override = replace(override, reduction_block=0)
    if found is not None and not sums_without_tiles(found[0], kernel, target, override):
        return replace(_of_contraction(*found, target, override), warps=without, matrices=none)
    group = choose_group(kernel, target, override)
    if group is not None and group.items:
        return Schedule(tiled=False, reduction_block=0, unroll=_unroll(override), group=group)
    turned = choose_transposed(kernel, target, override)
    if turned is not None and turned.along:
        return Schedule(tiled=False, reduction_block=0, transposed=turned)
    buffered = any([n.op is LOCAL_BUFFER for n in toposort((kernel,))])
    if (rows := find_rows(kernel, target, override)) is not None:
        undecided = replace(override, vectors=None, copies=None)
        return replace(undecided, buffered=buffered, tiled=False, reduction_block=rows.steps)
    shares = shares_work(operations_shared(kernel, target), target, override)
    shared = loop_shared_in_order(kernel, target) if shares else None
    vectors, copies = choose_vectors(kernel, target, override, shared)
    in_steps = copies_windows(target, override) and bool(loads_in_steps(kernel, vectors, target))
    return Schedule(
        buffered=buffered,
        tiled=False,
        reduction_block=0,
        vectors=vectors,
        copies=copies,
        unroll=_unroll(override),
        deinterleaved=in_steps,
        group=None if override.group is None else group,
        transposed=None if override.transposed is None else turned,
        threads=shares,
    )


def _of_warps(kernel: UOp, warps: WarpTile, target: Target, override: Schedule) -> Schedule:
    """Of a kernel whose factors get tables only that: for the one that reads them, the tile is chosen when it is there."""
    staged = choose_tables(kernel, warps, target, override)
    if staged != NO_TABLES:
        return Schedule(tiled=True, warps=warps, staged=staged, reduction_block=0)
    window = choose_window(kernel, warps, target, override)
    ahead = warps_ahead(kernel, warps, target, override, window)
    return Schedule(
        tiled=True,
        warps=warps,
        windows=True if window is not None else None if override.windows is None else False,
        ahead=ahead,
        staged=None if override.staged is None else staged,
        reduction_block=0,
    )


def _of_scalar_items(kernel: UOp, target: Target, override: Schedule) -> Schedule:
    """Such items may share rows, and nothing else."""
    group = None if find_along(kernel) is not None else choose_group(kernel, target, override)
    if group is None or not group.items:
        return AUTOMATIC
    return Schedule(tiled=False, reduction_block=0, unroll=_unroll(override), group=group)


def _unroll(override: Schedule) -> int:
    return SHORT_REDUCTION if override.unroll is None else override.unroll


def _may_be_in_memory(kernel: UOp, contraction: Contraction) -> bool:
    """Whether its sums may be those of blocks: they are no results under a mask, as of rows that a variable bounds."""
    store = kernel.src[0]
    return store.src[1] is not contraction.reduction or len(store.src[0].src) == 2


def _of_contraction(
    contraction: Contraction, tile: Tile, target: Target, override: Schedule
) -> Schedule:
    if block := choose_reduction_block(contraction, target, override):
        return replace(override, tiled=True, reduction_block=block)
    return Schedule(
        tiled=True,
        rows=contraction.rows.arg[0],
        columns=contraction.columns.arg[0],
        tile=tile,
        blocks=choose_blocks(contraction, tile, target, override),
        shared=NO_SHARED_TILE if target.group_items else None,
        staged=planned_staging(contraction, tile, target, override),
        packed=packs_columns(contraction, tile, target, override),
        reduction_block=0,
        depth=choose_depth(contraction, tile, target, override),
        threads=shares_work(contraction.multiplications, target, override),
    )


def schedule_of(nest: LoopNest, context: Context) -> Schedule:
    """What was decided for the nest, or is now."""
    if nest.schedule is not None:
        return nest.schedule
    return choose_schedule(nest.graph, context.target, context.override)
