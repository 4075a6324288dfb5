"""The remainder of C's fmod, as a graph of exact and correctly rounded operations.

Owns: the steps of the division. Does not own: when FMOD is expanded (transcendental.py), the remainders
of Python, which have the sign of the divisor (core/tensor/methods/elementwise/operators.py).

Long division in base 2**STEP. A step takes whole multiples of m = |y| * 2**k off: the quotient by m has
fewer bits than a fraction, so that its rounding makes it one too large at most, and the rest r - q * m, of size m at
most and a multiple of the last digits of m, is a float again, which fma gives exactly. A rest that the rounding has made negative
is mended by the next step, or in the end.
"""

from __future__ import annotations

from proofgrad.core.compile.math.polynomial import fma, magnitude
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

STEP = 52
# 2**n is more than the quotient of any two numbers, the smallest in size included.
_QUOTIENT_BITS = {dtypes.float32: 128 + 149, dtypes.float64: 1024 + 1074}
_STEP_OF_ITS_OWN = {dtypes.float32: 22, dtypes.float64: STEP}
_LARGEST_FACTOR = 1000  # exponents of a factor that is a float, whatever it is multiplied with


def remainder(x: UOp, y: UOp) -> UOp:
    """fmod(x, y) of float32 or float64, scalars or vectors.

    One step is enough where the quotient is small. Else, behind a branch on machines that have one (backends/llvm/two_ways.py), float32 is
    computed in float64.
    """
    dividend, divisor = magnitude(x), magnitude(y)
    is_near = dividend < divisor * 2.0 ** _STEP_OF_ITS_OWN[x.dtype.scalar]
    rest = is_near.where(_step(dividend, divisor), _rest_of_far(dividend, divisor))
    rest = (rest < 0.0).where(rest + divisor, rest)
    return _with_sign(rest, x)


def _rest_of_far(dividend: UOp, divisor: UOp) -> UOp:
    """What all steps leave, which the last one may make negative; NaN where there is no remainder."""
    wide = dtypes.float64.vec(dividend.dtype.lanes)
    rest, multiple = dividend.cast(wide), divisor.cast(wide)
    for k in reversed(range(0, _QUOTIENT_BITS[dividend.dtype.scalar], STEP)):
        rest = _step(rest, _scaled(multiple, k))
    return rest.cast(dividend.dtype)


def _step(rest: UOp, multiple: UOp) -> UOp:
    """`rest` less whole multiples. What is smaller stays: an infinite multiple times 0 is NaN."""
    quotient = (rest / multiple).alu(Ops.TRUNC)
    return quotient.eq(0.0).where(rest, fma(-quotient, multiple, rest))


def _scaled(x: UOp, exponent: int) -> UOp:
    """x * 2**exponent; infinite if that is too large."""
    while exponent > _LARGEST_FACTOR:
        x, exponent = x * 2.0**_LARGEST_FACTOR, exponent - _LARGEST_FACTOR
    return x * 2.0**exponent if exponent else x


def _with_sign(size: UOp, x: UOp) -> UOp:
    """A number of 0 or more with the sign of x, that of -0.0 too."""
    unsigned = dtypes.uint32 if x.dtype.bits == 32 else dtypes.uint64
    integer = unsigned.vec(x.dtype.lanes)
    sign = x.bitcast(integer) & (1 << (x.dtype.bits - 1))
    return (size.bitcast(integer) | sign).bitcast(x.dtype)
