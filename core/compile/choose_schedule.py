"""What a kernel does, decided once: which loops are a tile, its sizes, tables, slabs, threads.

Owns: putting the heuristics' answers together as one value (kernel_schedule.py), and handing it from tactic to tactic with the
nest. Does not own: the heuristics (tiles.py, operands.py, long_rows.py, axes.py).
"""

from __future__ import annotations

from dataclasses import replace

from proofgrad.core.compile.context import Context
from proofgrad.core.compile.kernel_schedule import Schedule
from proofgrad.core.compile.long_rows import find_rows
from proofgrad.core.compile.operands import choose_slab, packs_columns, planned_staging
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.target import Target
from proofgrad.core.compile.threads import operations, shares_work
from proofgrad.core.compile.tiles import choose_blocks, choose_depth, find_contraction
from proofgrad.core.ir.uop import UOp


def choose_schedule(kernel: UOp, target: Target, asked: Schedule) -> Schedule:
    """`asked` with what the heuristics take where nothing is asked, as far as it is one number."""
    found = find_contraction(kernel, target, asked)
    if found is None:
        rows, is_shared = (
            find_rows(kernel, target, asked),
            shares_work(operations(kernel), target, asked),
        )
        return replace(asked, tiled=False, slab=rows.steps if rows else 0, threads=is_shared)
    contraction, tile = found
    return replace(
        asked,
        tiled=True,
        rows=contraction.rows.arg[0],
        columns=contraction.columns.arg[0],
        tile=tile,
        blocks=choose_blocks(contraction, tile, target, asked),
        staged=planned_staging(contraction, tile, target, asked),
        packed=packs_columns(contraction, tile, target, asked),
        slab=choose_slab(contraction, target, asked),
        depth=choose_depth(contraction.reduction.src[-1], tile, asked),
        threads=shares_work(contraction.multiplications, target, asked),
    )


def schedule_of(nest: LoopNest, context: Context) -> Schedule:
    """What was decided for the nest, or is now."""
    if nest.schedule is not None:
        return nest.schedule
    return choose_schedule(nest.graph, context.target, context.asked)
