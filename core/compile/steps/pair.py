"""Products of small integers are multiplied and added two at a time.

    sum[j, i < 2](x(j, i) * y(j, i))   =   sum[j](dot(word(x(j, 0), x(j, 1)), word(y(j, 0), y(j, 1))))

    x: 3 -1 2 0          words:  3|-1  2|0
    y: 5  4 7 9                  5|4   7|9          dot: 3*5 + -1*4, 2*7 + 0*9

A word is an int32 of two numbers of 16 bits, which both factors, converted from smaller types, fit. Sums of machine integers are the
same in every order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    require,
    require_fixed,
    require_in,
    step,
)
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

HALF = 1 << 16  # numbers of half a word


@step("sum[i < 2](x(i) * y(i)) = dot(word(x(0), x(1)), word(y(0), y(1)))", makes_loops=False)
def pair(nest: LoopNest, reduction: UOp, loop: UOp) -> UOp:
    """The sum of products over a loop of two, and others, as one of their dots over the others."""
    require_in(nest.graph, reduction)
    require(sums_small_products(reduction), "no sum of products of small integers", reduction)
    product, *loops = reduction.src
    require_fixed((loop,))
    require(loop in loops, "no loop of the sum", loop)
    require(size_of(loop) == 2, "no loop of two", loop)
    require(len(loops) > 1, "the only loop of the sum", loop)
    x0, x1, y0, y1 = [
        factor.substitute({loop: UOp.index(k)}) for factor in product.src for k in range(2)
    ]
    paired = dot_of_words(x0, x1, y0, y1, lambda x, y: x.alu(Ops.DOT, y))
    rest = [x for x in loops if x is not loop]
    return nest.graph.substitute({reduction: reduction.with_src((paired, *rest))})


def sums_small_products(node: UOp) -> bool:
    """Whether this is a sum of int32 products, whose factors are converted from types of at most 16 bits with sign."""
    if node.op is not Ops.REDUCE or node.arg is not Ops.ADD or node.dtype is not dtypes.int32:
        return False
    product = node.src[0]
    return product.op is Ops.MUL and all([_is_small(factor) for factor in product.src])


def _is_small(factor: UOp) -> bool:
    return fits_a_half(factor.src[0].dtype if factor.op is Ops.CAST else factor.dtype)


def fits_a_half(kind: DType) -> bool:
    """Whether all numbers of a type are among those of 16 bits with sign."""
    if not kind.is_int or kind.lo is None or kind.hi is None:
        return False
    return bool(-HALF // 2 <= kind.lo and kind.hi < HALF // 2)


def dot_of_words(x0: Any, x1: Any, y0: Any, y1: Any, dot: Callable[[Any, Any], Any]) -> Any:
    """x0 * y0 + x1 * y1, of words."""
    return dot(word_of(x0, x1), word_of(y0, y1))


def word_of(lower: Any, upper: Any) -> Any:
    """The int32 whose lower and upper halves are two numbers of 16 bits."""
    return upper * HALF + lower % HALF
