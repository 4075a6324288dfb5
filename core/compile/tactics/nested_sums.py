"""Tactic: nested sums of products are joined, so that they can run in tiles.

Does not own: the law (steps/join.py), tiles (tiles.py).
"""

from __future__ import annotations

from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.steps.join import is_nested, join_sums
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.ir.uop import toposort


def join_nested_sums(nest: LoopNest, context: Context) -> LoopNest:
    """Join nested sums that end in a product, on machines that run such sums in tiles."""
    if context.target.has_scalar_items:
        return nest
    total = next((n for n in reversed(toposort((nest.graph,))) if is_nested(n)), None)
    return nest if total is None else join_sums(nest, total)
