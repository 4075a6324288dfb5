"""Tactic: loops that no index tells apart become one.

Does not own: the law (steps/merge.py), how loops run (axes.py).
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import output_loops, unshared_reductions
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.merge import merge, reads_as_one
from proofgrad.core.ir.uop import UOp


def merge_loops(nest: LoopNest, context: Context) -> LoopNest:
    """Two loops a, b become one where every index needs only a * size(b) + b."""
    while (pair := _mergeable_pair(nest.graph)) is not None:
        nest = merge(nest, *pair)
    return nest


def _mergeable_pair(kernel: UOp) -> tuple[UOp, UOp] | None:
    for group in (output_loops(kernel), *unshared_reductions(kernel)):
        for outer in group:
            for inner in group:
                if outer is not inner and reads_as_one(kernel, outer, inner):
                    return outer, inner
    return None
