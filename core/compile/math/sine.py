"""Sine and cosine of any float32 or float64, as graphs of exact and correctly rounded operations.

Owns: the reduction of the angle to a part of a half turn, and the polynomials after it. Does not
own: when SIN and COS are expanded (transcendental.py), the published error bounds (docs/numerics.md).

Half or quarter turns are taken off a small angle by the digits of pi (W. Cody and W. Waite, 1980). Of a larger one, which is rare and behind
a branch on machines that have one (backends/llvm/two_ways.py): float32 is computed in float64, the angle in turns is x / 2pi, whose whole
turns are dropped part by part. float64 has no wider type: its bits are multiplied with the right window of the bits of 1 / 2pi
as integers (the method of M. Payne and R. Hanek, 1983). No angle is too large for either.
"""

from __future__ import annotations

import functools
import itertools
import math

from proofgrad.core.compile.math.polynomial import floats, fma, polynomial, step
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def sine(x: UOp) -> UOp:
    """sin(x) of a float32 or float64, scalar or vector; NaN at the infinities."""
    if x.dtype.scalar is dtypes.float32:
        return _sine_float32(x, 0.0)
    bits = x.bitcast(dtypes.uint64.vec(x.dtype.lanes))
    return _sine_float64(x, bits & _SIGN_BIT, 0)


def cosine(x: UOp) -> UOp:
    """cos(x), the sine of a quarter turn more, which is added to the turns where they are exact."""
    if x.dtype.scalar is dtypes.float32:
        return _sine_float32(x, 0.5)
    bits = x.bitcast(dtypes.uint64.vec(x.dtype.lanes))
    return _sine_float64(x, bits.const_like(0), 1 << 62)


# -- float32 ------------------------------------------------------------------------------------


def _sine_float32(x: UOp, halves: float) -> UOp:
    """sin(x + pi halves) by sin(pi h + r) = (-1)**h sin(r), h whole, r at most a quarter turn, in float64."""
    wide = x.cast(dtypes.float64.vec(x.dtype.lanes))
    is_near = x * x < 2.0**32
    both = zip(_rest_of_near(wide, halves), _rest_of_far(wide, halves / 2))
    sum_with_h, r = [is_near.where(near, far) for near, far in both]
    integer = dtypes.uint64.vec(r.dtype.lanes)
    sign = sum_with_h.bitcast(integer) << 63
    value = r * polynomial(r * r, _SINE_OF_RADIANS)
    return (value.bitcast(integer) ^ sign).bitcast(r.dtype).cast(x.dtype)


def _rest_of_near(x: UOp, halves: float) -> tuple[UOp, UOp]:
    """A number whose last bit is that of h, and r, where |x| is less than 2**16.

    x less h times the double that is nearest to pi is exact: a multiple of 2**-52, and less than 2. At -0.0 all is zeros with this sign.
    """
    turns = step(x, 1 / math.pi, halves or _MAGIC_WHOLE)
    sum_with_h = turns + _MAGIC_WHOLE if halves else turns
    h = sum_with_h + -_MAGIC_WHOLE
    h = h + -halves if halves else h
    return sum_with_h, step(h, -_PI_REST, fma(h, -math.pi, x))


def _rest_of_far(x: UOp, turns: float) -> tuple[UOp, UOp]:
    """The same of any x, by sin(2pi (h / 2 + t)) with r = 2pi t.

    Products of 24 bits of x with 26 bits of 1 / 2pi are exact, and so are their fractions. At most
    three of them are not zero or tiny, and sums from the left lose nothing that t would need: where a
    quarter turn more makes t small, x is more than 1, and the first fraction has no bits below 2**-53.
    """
    *products, rest = [x * part for part in _TURN_PARTS]
    first, *others = [p + -p.alu(Ops.TRUNC) for p in products]
    first = first + turns if turns else first
    sum_with_h = sum((*others, rest), first) + _MAGIC_HALVES
    t = sum((*others, rest), first - (sum_with_h + -_MAGIC_HALVES))
    return sum_with_h, t * _TWO_PI


# -- float64 ------------------------------------------------------------------------------------


def _sine_float64(x: UOp, sign: UOp, turns: int) -> UOp:
    """sin(2pi k / 4 + r) by quarter turns of |x|; `turns`: more of them, in units of 2**-64. `sign` is changed by theirs."""
    bits = x.bitcast(dtypes.uint64.vec(x.dtype.lanes)) & (_SIGN_BIT - 1)
    size = bits.bitcast(x.dtype)
    both = zip(_angle_of_near(size), _angle_of_far(bits))
    is_near = size < _NEAR
    quarter, angle, angle_low = [is_near.where(near, far) for near, far in both]
    quarter = quarter + turns if turns else quarter
    value = _sine_or_cosine(angle, angle_low, (quarter & (1 << 62)).eq(1 << 62))
    return (value.bitcast(bits.dtype) ^ (quarter & _SIGN_BIT) ^ sign).bitcast(x.dtype)


def _angle_of_near(x: UOp) -> tuple[UOp, UOp, UOp]:
    """k in units of 2**-64 turns, modulo a turn, and r as two doubles, where 0 <= x < _NEAR.

    x less k times the first double of pi / 2 is exact: a multiple of 2**-52, and less than 1. Of the second one the product has two
    doubles, and the sum too (O. Moller 1965), whichever is larger; the third is less than what these leave.
    """
    sum_with_k = step(x, 2 / math.pi, _MAGIC_WHOLE)
    k = sum_with_k + -_MAGIC_WHOLE
    quarter = sum_with_k.bitcast(dtypes.uint64.vec(x.dtype.lanes)) << 62
    main = fma(k, -math.pi / 2, x)
    product = k * (_PI_REST / 2)
    angle = main - product
    part = angle - main
    lost = (main - (angle - part)) - (product + part)
    missed = step(k, _PI_THIRD / 2, fma(k, _PI_REST / 2, -product))
    return quarter, angle, lost - missed


def _angle_of_far(bits: UOp) -> tuple[UOp, UOp, UOp]:
    """The same of the bits of any number that is not negative; NaN at infinity."""
    exponent = bits >> 52
    high, low = _turns(bits, exponent)
    quarter = (high + (1 << 61)) & (3 << 62)
    angle, angle_low = _radians(*_two_doubles(high - quarter, low))
    return quarter, exponent.eq(0x7FF).where(angle.const_like(math.nan), angle), angle_low


def _sine_or_cosine(angle: UOp, angle_low: UOp, is_cosine: UOp) -> UOp:
    """Of an angle of at most an eighth of a turn: first + first * z * tail(z), z = angle**2."""
    z = angle * angle
    both = [
        is_cosine.where(z.const_like(cosine), z.const_like(sine))
        for sine, cosine in zip(_SINE_TAIL, _COSINE_TAIL)
    ]
    first = is_cosine.where(z.const_like(1.0), angle)
    slope = is_cosine.where(-angle, z * -0.5 + 1.0)
    return first + (first * z * polynomial(z, both) + angle_low * slope)


def _turns(bits: UOp, exponent: UOp) -> tuple[UOp, UOp]:
    """The fraction of |x| / 2pi, in units of 2**-128, as two words.

    |x| is a whole number m times 2**(exponent - 1075), so that the bits of 1 / 2pi before the position
    exponent - 1075 make whole turns, and 192 bits from there on are enough.
    """
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    position = exponent + (_ZERO_BITS - 1075) % (1 << 64)
    first, second, third = _window(position)
    low = m * second
    carry = low + _high_word(m, third)
    high = m * first + _high_word(m, second) + (carry < low).cast(bits.dtype)
    return high, carry


def _window(position: UOp) -> list[UOp]:
    """Three words of the bits of 1 / 2pi, from the bit `position` on, by a barrel shifter."""
    words = [position.const_like(w) for w in turn_words()]
    word_number = position >> 6
    for shift in (16, 8, 4, 2, 1):
        is_set = (word_number & shift).eq(shift)
        moved = words[shift:]
        kept = words[: 3 + shift]
        words = [
            is_set.where(moved[k], word) if k < len(moved) else word for k, word in enumerate(kept)
        ]
    inside = position & 63
    back = position.const_like(64) - inside
    return [(a << inside) | (b >> back) for a, b in itertools.pairwise(words)]


def _high_word(x: UOp, y: UOp) -> UOp:
    """The upper 64 bits of the product of two words, by halves."""
    mask = (1 << 32) - 1
    x_low, x_high, y_low, y_high = x & mask, x >> 32, y & mask, y >> 32
    cross, other = x_low * y_high, x_high * y_low
    middle = ((x_low * y_low) >> 32) + (cross & mask) + (other & mask)
    return x_high * y_high + (cross >> 32) + (other >> 32) + (middle >> 32)


def _two_doubles(high: UOp, low: UOp) -> tuple[UOp, UOp]:
    """The signed number high * 2**-64 + low * 2**-128 as a double and what it misses.

    Each half word is a double exactly. The sums are Fast2Sum (Dekker 1971): nothing is lost.
    """
    double = dtypes.float64.vec(high.dtype.lanes)
    signed = high.bitcast(dtypes.int64.vec(high.dtype.lanes))
    mask = (1 << 32) - 1
    first = (signed >> 32).cast(double) * 2.0**-32
    second = (high & mask).cast(double) * 2.0**-64
    third = (low >> 32).cast(double) * 2.0**-96 + (low & mask).cast(double) * 2.0**-128
    total = first + second
    rest = (second - (total - first)) + third
    result = total + rest
    return result, rest - (result - total)


def _radians(turns: UOp, turns_low: UOp) -> tuple[UOp, UOp]:
    """The product with 2pi as a double and what it misses."""
    angle = turns * _TWO_PI
    return angle, step(turns_low, _TWO_PI, step(turns, _TWO_PI_REST, fma(turns, _TWO_PI, -angle)))


@functools.cache
def turn_words() -> tuple[int, ...]:
    """The bits of 1 / 2pi in words of 64, after words of zeros for angles below one turn."""
    starts = range(0, len(_TURN_DIGITS), 16)
    return (0,) * (_ZERO_BITS // 64) + tuple([int(_TURN_DIGITS[k : k + 16], 16) for k in starts])


_SIGN_BIT = 1 << 63
_ZERO_BITS = 128
_MAGIC_HALVES = 1.5 * 2.0**51  # doubles near it are half a unit apart

_MAGIC_WHOLE = 1.5 * 2.0**52  # and near it one unit
_NEAR = 2.0**20  # so that products of pi's digits leave what is known of a quarter turn

# Source of the numbers below: benchmarks/fit_polynomials.py, which prints them.
_TURN_DIGITS = (  # of 16 bits each four; the last position that is asked for is 2046 - 1075 + 192 bits after the point
    "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef1586dc91b8e909374b801924bba827464873f877ac72c4a69cfba208d7d4baed1213a671c09ad17df904e64758e"
    "60d4ce7d272117e2ef7e4a0ec7fe25fff7816603fbcbc462d6829b47db4d9fb3c9f2c26dd3d18fd9a797fa8b5d49eeb1faf97c5ecf41ce7de294a4ba9afed7ec47e357421580cc11bf1edaea"
)
_TURN_PARTS = floats(
    "0x1.45f3068000000p-3 0x1.7272208000000p-29 0x1.4a7f090000000p-56 0x1.abe8fa8000000p-81 "
    "0x1.a6ee060000000p-109 0x1.b629590000000p-134 0x1.2788720840511p-159"
)
# What the double of pi misses.
_PI_REST, _PI_THIRD = floats("0x1.1a62633145c07p-53 -0x1.f1976b7ed8fbcp-109")
_SINE_OF_RADIANS = floats(
    "0x1.ffffffffd17cfp-1 -0x1.5555554175970p-3 0x1.11110b74ac103p-7 -0x1.a017a8fda3f72p-13 "
    "0x1.716ba4f1ac518p-19 -0x1.9a0e1829fd0cdp-26"
)
_SINE_TAIL = floats(
    "-0x1.5555555555555p-3 0x1.1111111111069p-7 -0x1.a01a019ffe489p-13 0x1.71de3a338944ap-19 "
    "-0x1.ae642c17da0d1p-26 0x1.61098ba6c9e37p-33 -0x1.9fdeb599fa3d7p-41"
)
_COSINE_TAIL = floats(
    "-0x1.0000000000000p-1 0x1.555555555554bp-5 -0x1.6c16c16c15016p-10 0x1.a01a019c8f4adp-16 "
    "-0x1.27e4f7f1b1424p-22 0x1.1ee9dbe683709p-29 -0x1.8fa69136a7f5fp-37"
)
_TWO_PI, _TWO_PI_REST = floats("0x1.921fb54442d18p+2 0x1.1a62633145c07p-52")
