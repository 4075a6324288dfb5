"""Sine and cosine of any float32 or float64, as graphs of exact and correctly rounded operations.

Owns: the reduction of the angle to a part of a half turn, and the polynomials after it. Does not
own: when SIN and COS are expanded (transcendental.py), the published error bounds (docs/numerics.md).

float32 is computed in float64: the angle in turns is x / 2pi, whose whole turns are dropped part by
part. float64 has no wider type: its bits are multiplied with the right window of the bits of 1 / 2pi
as integers (the method of M. Payne and R. Hanek, 1983). No angle is too large for either.
"""

from __future__ import annotations

import functools
import itertools
import math

from proofgrad.core.compile.math.polynomial import floats, fma, polynomial
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def sine(x: UOp) -> UOp:
    """sin(x) of a float32 or float64, scalar or vector; NaN at the infinities."""
    if x.dtype.scalar is dtypes.float32:
        return _sine_float32(x, 0.0)
    bits = x.bitcast(dtypes.uint64.vec(x.dtype.lanes))
    return _sine_float64(x, bits & _SIGN_BIT, 0, x)


def cosine(x: UOp) -> UOp:
    """cos(x), the sine of a quarter turn more, which is added to the turns where they are exact."""
    if x.dtype.scalar is dtypes.float32:
        return _sine_float32(x, 0.25)
    bits = x.bitcast(dtypes.uint64.vec(x.dtype.lanes))
    return _sine_float64(x, bits.const_like(0), 1 << 62, x.const_like(1.0))


# -- float32 ------------------------------------------------------------------------------------


def _sine_float32(x: UOp, turns: float) -> UOp:
    """sin(x + 2pi turns) by sin(2pi (h / 2 + r)) = (-1)**h sin(2pi r), h whole, r at most a quarter turn.

    Products of 24 bits of x with 26 bits of 1 / 2pi are exact, and so are their fractions. At most
    three of them are not zero or tiny, and sums from the left lose nothing that r would need: where a
    quarter turn more makes r small, x is more than 1, and the first fraction has no bits below 2**-53. Where x is less than 2**16,
    the first product has few whole turns, and all others, less than 2**-15, are one: that takes a third of the operations.
    At -0.0 all sums but that with _MAGIC_HALVES are of zeros with this sign, and h is even.
    """
    wide = x.cast(dtypes.float64.vec(x.dtype.lanes))
    *products, rest = [wide * part for part in _TURN_PARTS]
    far = _sine_of_turns(turns, *[p + -p.alu(Ops.TRUNC) for p in products], rest)
    near = _sine_of_turns(turns, products[0], wide * _REST_OF_TURN)
    return (x * x < 2.0**32).where(near, far).cast(x.dtype)


def _sine_of_turns(turns: float, first: UOp, *rest: UOp) -> UOp:
    """Of the sum of all these turns."""
    first = first + turns if turns else first
    sum_with_h = sum(rest, first) + _MAGIC_HALVES
    r = sum(rest, first - (sum_with_h + -_MAGIC_HALVES))
    integer = dtypes.uint64.vec(r.dtype.lanes)
    sign = sum_with_h.bitcast(integer) << 63
    return ((r * polynomial(r * r, _SINE_OF_TURNS)).bitcast(integer) ^ sign).bitcast(r.dtype)


# -- float64 ------------------------------------------------------------------------------------


def _sine_float64(x: UOp, sign: UOp, turns: int, near_zero: UOp) -> UOp:
    """sin(2pi (k / 4 + r)) by quarter turns of |x|: turns in units of 2**-128, r as two doubles.

    `turns`: more of them, in units of 2**-64. `sign` is changed by theirs. `near_zero`: what the
    result rounds to for |x| < 2**-27.
    """
    bits = x.bitcast(dtypes.uint64.vec(x.dtype.lanes))
    exponent = (bits >> 52) & 0x7FF
    high, low = _turns(bits, exponent)
    quarter = (high + (1 << 61)) & (3 << 62)
    angle, angle_low = _radians(*_two_doubles(high - quarter, low))
    quarter = quarter + turns if turns else quarter
    size = _sine_or_cosine(angle, angle_low, (quarter & (1 << 62)).eq(1 << 62))
    value = (size.bitcast(bits.dtype) ^ (quarter & _SIGN_BIT) ^ sign).bitcast(x.dtype)
    known = (exponent < 1023 - 27).where(near_zero, value)
    return exponent.eq(0x7FF).where(x.const_like(math.nan), known)


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
    for step in (16, 8, 4, 2, 1):
        is_set = (word_number & step).eq(step)
        moved = words[step:]
        kept = words[: 3 + step]
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
    missed = fma(turns, _TWO_PI, -angle)
    return angle, fma(turns_low, _TWO_PI, fma(turns, _TWO_PI_REST, missed))


@functools.cache
def turn_words() -> tuple[int, ...]:
    """The bits of 1 / 2pi in words of 64, after words of zeros for angles below one turn."""
    guard = 64
    bits = _WORDS * 64
    unit = 1 << (bits + guard)
    pi = 4 * (4 * _atan_inverse(5, unit) - _atan_inverse(239, unit))  # Machin 1706
    fraction = (unit * unit // (2 * pi)) >> guard
    mask = (1 << 64) - 1
    digits = [(fraction >> (bits - 64 * (k + 1))) & mask for k in range(_WORDS)]
    return (0,) * (_ZERO_BITS // 64) + tuple(digits)


def _atan_inverse(n: int, unit: int) -> int:
    """atan(1 / n) in units of 1 / unit, by its series."""
    power = unit // n
    total, divisor = 0, 1
    while power:
        total += power // divisor if divisor % 4 == 1 else -(power // divisor)
        power //= n * n
        divisor += 2
    return total


_SIGN_BIT = 1 << 63
_ZERO_BITS = 128
_WORDS = 19  # the last position is 2046 - 1075 + 192 bits after the point

_MAGIC_HALVES = 1.5 * 2.0**51  # doubles near it are half a unit apart

# Source of the numbers below: benchmarks/fit_polynomials.py, which prints them.
_TURN_PARTS = floats(
    "0x1.45f3068000000p-3 0x1.7272208000000p-29 0x1.4a7f090000000p-56 0x1.abe8fa8000000p-81 "
    "0x1.a6ee060000000p-109 0x1.b629590000000p-134 0x1.2788720840511p-159"
)
(_REST_OF_TURN,) = floats("0x1.727220a94fe14p-29")  # the sum of all but the first
_SINE_OF_TURNS = floats(
    "0x1.921fb5441e49cp+2 -0x1.4abbce4f1a260p+5 0x1.466bbfc24dca7p+6 -0x1.32d11201657f2p+6 "
    "0x1.500ff7e764a47p+5 -0x1.cc345953d59d5p+3"
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
