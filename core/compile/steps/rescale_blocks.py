"""A sum weighted by powers of the distance from a row's maximum is taken block by block, each beside its own maximum.

    sum[o, t](e(x(o, t), m) * v(o, t)) / sum[o, t](e(x(o, t), m))
        =   sum[o](e(b(o), m) * p(o)) / sum[o](e(b(o), m) * q(o)),   m = max[o](b(o)),   b(o) = max[t](x(o, t)),
            p(o) = sum[t](e(x(o, t), b(o)) * v(o, t)),   q(o) = sum[t](e(x(o, t), b(o)))

    e(x, m) = exp2((x - m) * c), c > 0        o: 0     1        b: 3   5        m = 5
                                              x: 1  3  5  2

This is a law of the reals, e(x, b) * e(b, m) = e(x, m), so the step is taken where FASTMATH names `real`. What is subtracted
is never below the least finite number, so a block of -inf alone adds 0, as its elements did. Of a row of them both sums are 0, where
they were NaN, and their quotient is NaN on both sides; that it is the quotient alone that is used is part of what the step asks.
NaN and +inf make every maximum, and so every sum, NaN.

`m` is a maximum over the loop of the sum that it stands in: that loop may carry both (steps/carry_maximum.py).
"""

from __future__ import annotations

from math import inf
from typing import Any

from proofgrad.core import settings
from proofgrad.core.compile.nests.loops import is_fixed
from proofgrad.core.compile.nests.weighted_sums import Power, Weighted, divisor_of, weighted_sum
from proofgrad.core.compile.steps.local_buffer import same_function
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_in, step
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# The least finite number of each type.
_LEAST = {
    dtypes.float16: -65504.0,
    dtypes.bfloat16: -float.fromhex("0x1.fep127"),
    dtypes.float32: -float.fromhex("0x1.fffffep127"),
    dtypes.float64: -float.fromhex("0x1.fffffffffffffp1023"),
}


def is_asked_for() -> bool:
    """Whether laws of the reals may be used."""
    return "real" in settings.fastmath()


def required_weights(nest: LoopNest, total: UOp) -> Weighted:
    """A sum that powers of a distance from a maximum weigh. Raises: StepRefused, also where laws of the reals may not be used."""
    require(is_asked_for(), "a law of the reals, which FASTMATH does not name")
    require_in(nest.graph, total)
    found = weighted_sum(total)
    require(found is not None, "no sum that powers of a distance from a maximum weigh", total)
    assert found is not None
    return found


def finite(reference: Any, least: Any) -> Any:
    """What is subtracted: the maximum, or the least finite number where that is -inf."""
    return reference.maximum(least)


def of_block(e: Any, x: Any, block: Any, least: Any) -> Any:
    """The weight of an element beside the maximum of its block."""
    return e(x, finite(block, least))


def of_row(e: Any, block: Any, row: Any, least: Any) -> Any:
    """The weight of a block beside the maximum of the row."""
    return e(block, finite(row, least))


def least_of(dtype: DType) -> float:
    """The least finite number of a type."""
    return _LEAST[dtype]


@step(
    "sum[o, t](e(x, m) * v) / sum[o, t](e(x, m)) = sum[o](e(b(o), m) * sum[t](e(x, b(o)) * v)) / sum[o](e(b(o), m) *"
    " sum[t](e(x, b(o)))), of reals, where b(o) = max[t](x), m = max[o](b(o))"
)
def rescale_blocks(nest: LoopNest, total: UOp) -> UOp:
    """The sum `total`, over blocks and elements of a block, whose weights are divided by their own sum."""
    above = required_weights(nest, total)
    below = _sum_of_weights(above)
    require(below is not None, "weights that are not divided by their sum", total)
    assert below is not None
    readers = [n for n in toposort((nest.graph,)) if below.total in n.src]
    require(len(readers) == 1, "a sum of weights that something else reads", *readers)
    blocks, element = total.src[1:]
    block = _block_maximum(above.power, blocks, element)
    row = UOp(Ops.REDUCE, block.dtype, (block, blocks), Ops.MAX)
    changes = {below.total: _rescaled(below, block, row, blocks)}
    changed = above.whole(_rescaled(above, block, row, blocks)).substitute(changes)
    return nest.graph.substitute({total: changed})


def _sum_of_weights(above: Weighted) -> Weighted | None:
    """The sum by which the weights are divided: of the same powers, over as many blocks and elements."""
    below = divisor_of(above)
    if below is None:
        return None
    own, its = below.total.src[1:], above.total.src[1:]
    if len(own) != 2 or len(its) != 2 or not all(map(is_fixed, (*own, *its))):
        return None
    weight = below.term(below.power.node).substitute({own[0]: its[0]})
    same = above.power.node
    if above.mask is not None:
        same = above.mask.where(same, same.const_like(0))
    is_same = own[0].src == its[0].src and same_function((same, its[1:]), (weight, own[1:]))
    return below if is_same else None


def _block_maximum(power: Power, blocks: UOp, element: UOp) -> UOp:
    """The maximum of a block of what a power is of."""
    value, *own = power.reference.src
    require(len(own) == 2 and all(map(is_fixed, own)), "a maximum of other loops", *own)
    require(own[0].src == blocks.src, "a maximum of other blocks", own[0], blocks)
    mine = value.substitute({own[0]: blocks})
    terms = [mine, *([mine.src[1]] if _is_masked_maximum(mine) else [])]
    is_of_power = [same_function((x, (own[1],)), (power.value, (element,))) for x in terms]
    require(any(is_of_power), "a maximum of something else", power.reference)
    return UOp(Ops.REDUCE, value.dtype, (mine, own[1]), Ops.MAX)


def _is_masked_maximum(term: UOp) -> bool:
    """Whether a term of a maximum is a choice between a value and -inf, which changes no maximum."""
    return term.op is Ops.WHERE and term.src[2].op is Ops.CONST and term.src[2].arg == -inf


def _rescaled(sums: Weighted, block: UOp, row: UOp, blocks: UOp) -> UOp:
    """A sum block by block."""
    own, element = sums.total.src[1:]
    power: Power = sums.power
    least = block.const_like(least_of(block.dtype))
    value = power.value.substitute({own: blocks})
    mine = of_block(power.of, value, block, least)
    term = sums.term(power.node).substitute({own: blocks})
    term = term.substitute({power.node.substitute({own: blocks}): mine})
    part = UOp(Ops.REDUCE, sums.total.dtype, (term, element), Ops.ADD)
    scale = of_row(power.of, block, row, least)
    return UOp(Ops.REDUCE, sums.total.dtype, (scale * part, blocks), Ops.ADD)
