"""Tactics from Kernel to Program: index terms get a width, reductions registers, loops of lanes vectors.

Owns: which width, and that every reduction and every loop of lanes is changed. Does not own: the laws (steps/narrow.py,
steps/accumulate.py, steps/lanes.py).
"""

from __future__ import annotations

from contextlib import suppress

from proofgrad.core.compile.nests.weighted_sums import loops_of_blocks
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.steps.accumulate import accumulate
from proofgrad.core.compile.steps.carry_maximum import carry_maximum
from proofgrad.core.compile.steps.lanes import lanes
from proofgrad.core.compile.steps.loop_nest import LoopNest, StepRefused
from proofgrad.core.compile.steps.narrow import narrow, terms_beyond
from proofgrad.core.compile.steps.narrow_lanes import fitting_operations, narrow_lanes
from proofgrad.core.compile.tactics.prefix_loops import carry_registers
from proofgrad.core.compile.text.show import brief
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import RANGE
from proofgrad.core.ir.uop import AxisRole, toposort


def choose_index_width(nest: LoopNest, context: Context) -> LoopNest:
    """Every `index` becomes the type that the target prefers if all terms fit it, else int64.

    Raises: OverflowError, naming the term, if int64 is not enough.
    """
    facts, preferred = nest.facts, context.target.index_dtype
    with suppress(StepRefused):
        return narrow(nest, preferred)
    terms = [n for n in toposort((nest.graph,)) if n.dtype is dtypes.index]
    for node in terms_beyond(terms, dtypes.int64, facts):
        raise OverflowError(
            f"an index term runs from {facts.lo(node)} to {facts.hi(node)}, which int64 does"
            f" not hold: {brief(node)}"
        )
    return narrow(nest, dtypes.int64)


def reductions_to_accumulators(nest: LoopNest, context: Context) -> LoopNest:
    """Each reduction becomes a register that its loops update, what is kept a store to scratch memory."""
    if loops_of_blocks(nest.graph):
        nest = carry_maximum(nest)
    return accumulate(carry_registers(nest))


def vectorize(nest: LoopNest, context: Context) -> LoopNest:
    """Each VECTOR loop becomes the lanes of vector values; what these compare or divide is of 32 bits where it fits."""
    loops = [n for n in toposort((nest.graph,)) if n.op is RANGE]
    of_lanes = [x for x in loops if x.arg[1] is AxisRole.VECTOR]
    if of_lanes and fitting_operations(nest, dtypes.int32):
        nest = narrow_lanes(nest, dtypes.int32)
    for loop in of_lanes:
        nest = lanes(nest, loop)
    return nest
