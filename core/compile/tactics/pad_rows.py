"""Tactic: an operand whose rows share too few sets of the first cache is copied so that they lie a line further apart.

Owns: where the copy comes. Does not own: which operands, and by how much (schedule/conflicts.py), the law (steps/pad_rows.py).

    out[r, i] = sum[c](w[r, c] * x[4096 * c + i]): the elements of all c lie in one set of the cache, which holds eight lines
"""

from __future__ import annotations

from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.conflicts import conflicting_rows
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.pad_rows import pad_rows


def pad_conflicting_rows(nest: LoopNest, context: Context) -> LoopNest | tuple[LoopNest, ...]:
    """Copy an operand of a contraction that a tile would read from the second cache in each step; the kernels, in order."""
    found = conflicting_rows(nest, context.override)
    if found is None:
        return nest
    return pad_rows(nest, *found)
