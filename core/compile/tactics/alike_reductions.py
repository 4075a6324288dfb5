"""Tactic: a reduction that is computed in two places is computed once.

What is read through several views is lowered once for each. Where their index terms are the same in the end, as behind a reshape and its
opposite, the reductions differ in the numbers of their loops alone: two sums of products, of which neither would run in tiles.
Does not own: the law (steps/own_loops.py), which values several views compute (fusion/views.py).
"""

from __future__ import annotations

from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.own_loops import is_alike, one_reduction
from proofgrad.core.ir.op_names import REDUCE
from proofgrad.core.ir.uop import UOp, toposort


def join_alike(nest: LoopNest, _: Context) -> LoopNest:
    """Of reductions that are alike one, those first that others are made of."""
    while (found := _alike(nest.graph)) is not None:
        nest = one_reduction(nest, *found)
    return nest


def _alike(kernel: UOp) -> tuple[UOp, UOp] | None:
    """A reduction, and one before it that combines the same."""
    before: list[UOp] = []
    for node in toposort((kernel,)):
        if node.op is REDUCE:
            same = next((other for other in before if is_alike(node, other)), None)
            if same is not None:
                return node, same
            before.append(node)
    return None
