"""Tactic: blocks of keys that a mask hides from all rows of an item, or of a group, are left out.

Owns: which loop decides where the keys end. Does not own: where that is, and why it is right (steps/hidden_blocks.py).
"""

from __future__ import annotations

from proofgrad.core.compile.nests.weighted_sums import loops_of_blocks
from proofgrad.core.compile.steps.hidden_blocks import end_before_hidden, end_by_hiding
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import toposort


def without_hidden_blocks(nest: LoopNest, number: int) -> LoopNest:
    """Each loop over blocks of keys to where a mask hides the rest from all rows of an iteration of the loop of this number."""
    loops = [n for n in toposort((nest.graph,)) if n.op is Ops.RANGE]
    around = tuple([x for x in loops if x.arg[0] == number])
    found = sorted(loops_of_blocks(nest.graph), key=lambda loop: loop.arg[0]) if around else []
    for blocks in found:
        if end_by_hiding(nest.graph, blocks, around, nest.facts) is not None:
            nest = end_before_hidden(nest, blocks, around)
    return nest
