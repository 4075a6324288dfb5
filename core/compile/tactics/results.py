"""Tactic: the results of a reduction that is only a part of its kernel fill a table, which the kernel reads.

Does not own: the law (steps/stage.py).
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.stage import Digit, stage
from proofgrad.core.ir.uop import UOp


def results_in_a_table(nest: LoopNest, reduction: UOp) -> tuple[LoopNest, LoopNest]:
    """The nest that fills a table with the results, row-major, and the one that reads it."""
    loops = sorted(loops_below(nest.graph)[reduction], key=lambda loop: loop.arg[0])
    digits = tuple([Digit(loop, size_of(loop), NewLoop(*loop.arg)) for loop in loops])
    fill, read = stage(nest, reduction, digits)
    return fill, read
