"""Tactic: blocks of keys that a mask hides from all rows of an item, or of a group, are left out.

Owns: which loop decides where the keys begin and end. Does not own: where that is, and why it is right (steps/hidden_blocks.py).
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import at_start
from proofgrad.core.compile.nests.weighted_sums import loops_of_blocks
from proofgrad.core.compile.steps.hidden_blocks import (
    begin_after_hidden,
    begin_by_hiding,
    end_before_hidden,
    end_by_hiding,
)
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def without_hidden_blocks(nest: LoopNest, number: int) -> LoopNest:
    """Each loop over blocks of keys without those that a mask hides from all rows of an iteration of the loop of this number.

    These are blocks at its end, and before its beginning.
    """
    loops = [n for n in toposort((nest.graph,)) if n.op is Ops.RANGE]
    around = tuple([x for x in loops if x.arg[0] == number])
    for number_of_blocks in sorted([loop.arg[0] for loop in loops_of_blocks(nest.graph)]):
        if not around:
            return nest
        blocks = _blocks(nest, number_of_blocks)
        if end_by_hiding(nest.graph, blocks, around, nest.facts) is not None:
            nest = end_before_hidden(nest, blocks, around)
            blocks = _blocks(nest, number_of_blocks)
        if begin_by_hiding(nest.graph, blocks, around, nest.facts) is not None:
            nest = begin_after_hidden(nest, blocks, around)
    return nest


def sees_more_at_the_end(nest: LoopNest, rows: UOp) -> bool:
    """Whether masks leave more blocks of keys to the last blocks of rows than to the first."""
    for blocks in loops_of_blocks(nest.graph):
        end = end_by_hiding(nest.graph, blocks, (rows,), nest.facts)
        first = begin_by_hiding(nest.graph, blocks, (rows,), nest.facts)
        if end is not None and first is None:
            return at_start(end, {rows: size_of(rows) - 1}) > at_start(end, {rows: 0})
    return False


def _blocks(nest: LoopNest, number: int) -> UOp:
    (found,) = [loop for loop in loops_of_blocks(nest.graph) if loop.arg[0] == number]
    return found
