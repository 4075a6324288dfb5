"""A factor of a sum of products of bytes becomes one with a sign, or one without: what that adds is taken off at the end.

    sum[k](a(k) * b(k))   =   sum[k]((a(k) + d) * b(k)) - d * sum[j](b(j))

    a: 3 -1 2      d = 128      a + d: 131 127 130      b: 5 4 7      25 = 2073 - 128 * 16

An int8 is a uint8 with 128 added, and a uint8 an int8 with 128 taken off. Sums and products of machine integers wrap, and are the same in
every order, so that this holds of all of them.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.loops import fresh_number
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_in, step
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

# The type with a sign, or without, and how far its numbers are from those of the other.
OTHER: dict[DType, tuple[DType, int]] = {
    dtypes.int8: (dtypes.uint8, 128),
    dtypes.uint8: (dtypes.int8, -128),
}


@step("sum[k](a(k) * b(k)) = sum[k]((a(k) + d) * b(k)) - d * sum[j](b(j)), of bytes a and a + d")
def offset_factor(nest: LoopNest, reduction: UOp, place: int) -> UOp:
    """The sum with its first factor (`place` 0), or the second one, in the other type of bytes, and the sum of the other factor."""
    require_in(nest.graph, reduction)
    is_sum = reduction.op is Ops.REDUCE and reduction.arg is Ops.ADD
    require(is_sum and reduction.dtype is dtypes.int32, "no sum of int32", reduction)
    product, *loops = reduction.src
    require(product.op is Ops.MUL and place in (0, 1), "no factor of a product", product)
    factor, other = product.src[place], product.src[1 - place]
    is_byte = factor.op is Ops.CAST and factor.src[0].dtype in OTHER
    require(is_byte, "no factor of bytes", factor)
    roles = {loop.arg[1] for loop in loops}
    require(roles == {AxisRole.REDUCE}, "loops that do not run in order", *loops)
    kind, distance = OTHER[factor.src[0].dtype]
    byte = moved(factor.src[0].cast(kind), distance)
    total = reduction.with_src((byte.cast(factor.dtype) * other, *loops))
    first = fresh_number(nest.graph)
    own = {loop: loop.replace(arg=(first + k, loop.arg[1])) for k, loop in enumerate(loops)}
    beside = reduction.with_src((other.substitute(own), *own.values()))
    return nest.graph.substitute({reduction: restored(total, beside, distance)})


def moved(byte: Any, distance: int) -> Any:
    """The number of the other type, of the one whose bits it has."""
    return byte + distance


def restored(total: Any, beside: Any, distance: int) -> Any:
    """The sum, of that with the other factor and the sum of what is beside it."""
    return total + beside * -distance
