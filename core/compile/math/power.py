"""Powers of floats, as a graph of exact and correctly rounded operations.

Owns: 2 ** (y log2 |x|), in a precision that makes its error small, and the special values of IEEE 754 pow.
Does not own: powers with whole constants, which are products (core/tensor/methods/elementwise/functions.py).

The relative error of the logarithm is multiplied by y log2 x, which is up to 1074. So float32 is computed in
float64, and float64 with a logarithm of two doubles, whose sum is good to 2**-64 of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from proofgrad.core.compile.math.polynomial import floats, fma, magnitude, polynomial, step
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

Function = Callable[[UOp], UOp]
Split = Callable[[UOp], tuple[UOp, UOp]]


def power(x: UOp, y: UOp, exp2: Function, log2: Function, split: Split) -> UOp:
    """x ** y of float32 or float64, scalars or vectors. `split(x)`: e and r with x = 2**e * (1 + r)."""
    wide = dtypes.float64.vec(x.dtype.lanes)
    base, exponent = x.cast(wide), y.cast(wide)
    if x.dtype.scalar is dtypes.float32:
        size = exp2(exponent * log2(magnitude(base)))
    else:
        size = _accurate(magnitude(base), exponent, exp2, split)
    return _special(base, exponent, size).cast(x.dtype)


def _accurate(x: UOp, y: UOp, exp2: Function, split: Split) -> UOp:
    """x ** y = 2**p * (1 + q ln 2), where p + q is y log2(x), of x that is not negative."""
    high, low = _log2_of_two_doubles(*split(x))
    high = (x < math.inf).where(high, x)
    high = x.eq(0.0).where(x.const_like(-math.inf), high)
    p = y * high
    q = step(y, low, fma(y, high, -p))
    is_usual = (p < 2048.0) & (p > -2048.0)  # beyond, 2**p is 0 or infinite
    return exp2(p) * step(is_usual.where(q, q.const_like(0.0)), math.log(2), 1.0)


def _log2_of_two_doubles(e: UOp, r: UOp) -> tuple[UOp, UOp]:
    """e + log2(1 + r) as a double and what it misses: log(1 + r) = 2 (s + s z T(z)), z = s * s.

    s = r / (2 + r), and T(z) = 1/3 + z/5 + z**2/7 + ... Of a product or sum that the result needs beyond a
    double the error is kept: of sums by Fast2Sum (Dekker 1971), of products by fma.
    """
    divisor, divisor_low = _sum(r.const_like(2.0), r)
    s = r / divisor
    s_low = (fma(-s, divisor, r) - s * divisor_low) / divisor
    z, z_low = _product(s, s)
    z_low = step(s * 2.0, s_low, z_low)
    tail, tail_low = _sum(z.const_like(_THIRD), z * polynomial(z, _ATANH_TAIL))
    w, w_low = _product(z, tail)
    w_low = step(z, tail_low + _THIRD_REST, step(z_low, tail, w_low))
    m, m_low = _product(s, w)
    m_low = step(s, w_low, step(s_low, w, m_low))
    half, half_low = _sum(s, m)
    log, log_low = _product(half, half.const_like(_TWO_OVER_LN_2))
    half_low = half_low + (s_low + m_low)
    log_low = step(half, _TWO_OVER_LN_2_REST, step(half_low, _TWO_OVER_LN_2, log_low))
    total, total_low = _sum(e, log)
    return total, total_low + log_low


def _sum(larger: UOp, smaller: UOp) -> tuple[UOp, UOp]:
    total = larger + smaller
    return total, smaller - (total - larger)


def _product(x: UOp, y: UOp) -> tuple[UOp, UOp]:
    product = x * y
    return product, fma(x, y, -product)


def _special(x: UOp, y: UOp, size: UOp) -> UOp:
    """x ** y from |x| ** y, which is right at zeros and infinities too."""
    is_one = y.eq(0.0) | x.eq(1.0) | (magnitude(x).eq(1.0) & magnitude(y).eq(math.inf))
    half = y * 0.5
    is_whole, is_even = y.alu(Ops.TRUNC).eq(y), half.alu(Ops.TRUNC).eq(half)
    is_negative = x.bitcast(dtypes.int64.vec(x.dtype.lanes)) < 0  # -0.0 too
    signed = (is_negative & is_whole & is_even.alu(Ops.NOT)).where(-size, size)
    has_none = (x < 0.0) & (x > -math.inf) & is_whole.alu(Ops.NOT)
    return is_one.where(x.const_like(1.0), has_none.where(x.const_like(math.nan), signed))


_THIRD = 1 / 3
_THIRD_REST = float(Fraction(1, 3) - Fraction(_THIRD))
_ATANH_TAIL = tuple([1 / (2 * k + 5) for k in range(13)])
# 2 / ln 2 and what the double misses.
_TWO_OVER_LN_2, _TWO_OVER_LN_2_REST = floats("0x1.71547652b82fep+1 0x1.777d0ffda0d24p-55")
