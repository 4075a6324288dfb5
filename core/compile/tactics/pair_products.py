"""Tactic: products of small integers are multiplied and added in pairs, where an instruction does that.

Owns: which sums, and along which of their loops. Does not own: the law (steps/pair.py), the tables that the words of
operands are kept in (pack_operands.py), which loops run as vectors (schedule/vectors.py).
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import fresh_number, size_of
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.contraction import Contraction
from proofgrad.core.compile.schedule.matrices import choose_matrices
from proofgrad.core.compile.schedule.tiles import find_contraction
from proofgrad.core.compile.schedule.words import sums_words
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.pair import pair, sums_small_products
from proofgrad.core.compile.steps.split import split
from proofgrad.core.compile.steps.unmask import unmask
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# A product of vectors of int32 and its sum take so many instructions more than their half of a dot.
INSTRUCTIONS_SAVED = 3


def pair_products(nest: LoopNest, context: Context) -> LoopNest:
    """Take the products of a contraction of small integers two at a time; an odd loop ends with a product of zeros."""
    target = context.target
    if choose_matrices(nest.graph, target, context.override) is not None:
        return nest
    found = find_contraction(nest.graph, target, context.override) if target.has_dot else None
    if found is None or not sums_small_products(found[0].reduction):
        return nest
    if found[1].lanes == 1 and found[0].sums_words:
        return nest  # vectors run along the sum, and read words from memory
    loop = _loop_to_pair(found[0].reduction)
    if loop is None or not _pays(found[0], target):
        return nest
    inner = NewLoop(fresh_number(nest.graph))
    nest = split(nest, loop, (2,), (NewLoop(*loop.arg), inner))
    (reduction,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    if is_masked(reduction.src[0]):
        nest = unmask(nest, reduction)
        (reduction,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    return pair(nest, reduction, UOp.range(2, inner.number, inner.role))


def _pays(contraction: Contraction, target: Target) -> bool:
    """Whether words are read often enough that making them, an element a time where they lie apart, counts little."""
    rows, columns = size_of(contraction.rows), size_of(contraction.columns)
    saved = INSTRUCTIONS_SAVED / target.multiply_adds(contraction.reduction.dtype)
    least = target.core.copy_cycles / saved
    is_columns_worth = rows >= least or not contraction.columns_lie_apart
    return columns >= least and is_columns_worth and contraction.pays_tables(target)


def _loop_to_pair(reduction: UOp) -> UOp | None:
    """The longest loop of the sum, an even one where there is one; None where none runs more than twice."""
    loops = [x for x in reduction.src[1:] if size_of(x) > 2]
    even = [x for x in loops if size_of(x) % 2 == 0]
    return max(even or loops, key=size_of, default=None)


def is_of_words(kernel: UOp, loop: UOp, target: Target) -> bool:
    """Whether a loop is that of one sum alone, whose products vectors take in pairs, as their factors lie along it in memory."""
    if not target.has_dot:
        return False
    sums = [n for n in toposort((kernel,)) if n.op is Ops.REDUCE and loop in n.src[1:]]
    return len(sums) == 1 and sums_words(sums[0], loop)


def pair_lanes(nest: LoopNest, lanes: UOp) -> LoopNest:
    """Two neighbours of a sum's loop of lanes are a word of one lane. Raises: StepRefused where a mask stays."""
    made = NewLoop(lanes.arg[0], AxisRole.VECTOR), NewLoop(fresh_number(nest.graph))
    nest = split(nest, lanes, (2,), made)
    inner = UOp.range(2, made[1].number, made[1].role)
    (reduction,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE and inner in n.src]
    if is_masked(reduction.src[0]):
        nest = unmask(nest, reduction)
        (reduction,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE and inner in n.src]
    return pair(nest, reduction, inner)
