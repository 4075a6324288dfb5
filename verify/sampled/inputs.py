"""Values for the memory that a kernel reads: drawn by number, so that memory of any size takes no room.

Owns: which values, and where each lies. Does not own: what is computed of them.

Each sampled element sees memory of one of several kinds: small whole numbers, whose products and sums
are exact, so that one term too many shows among a million; numbers of some sizes; numbers among which are
infinities, NaN, -0.0, denormals and the ends of a type, or these alone, for work on single elements; and numbers that are all below 0, or all above, of which a 0 too
many is the largest or the smallest; they are near 0, so that exp2 of a sum of their products stays in its range; and numbers of all
sizes of which products stay in range, for functions that take large ones, or small ones, in another way. Integers, which may be indices, are small and
sometimes below 0 or far too large.

And there are rows of corners, numbered from KINDS on: in each, all of a memory holds one corner of its type. The corner of memory s in row
a + b p + c p**2 is the one of number a + b s + c s**2 modulo the prime p. So p rows give a memory every corner, p**2 rows give two memories
every pair, and p**3 rows give three every triple: a line, or a parabola, has one course through so many points. As many rows follow in which s is drawn
for each element of a memory, where one memory is read at several positions.
Source: Bush, "Orthogonal arrays of index unity", 1952.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import from_bits
from proofgrad.verify.sampled.arithmetic import Values, cast, kept_as
from proofgrad.verify.sampled.freedom import largest

KINDS = 7
WHOLE, MIXED, CORNERS, BELOW, ABOVE, SIZES, ENDS = range(KINDS)
_NEAR = 0.125  # what is near 0 is a multiple of this; products and sums of such are exact, too
_BITS = 12
_COUNT = 1 << _BITS  # values of each kind
_MULTIPLIER = numpy.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio
PRIME = 17  # corners of a type
# Digits behind the first one of floats: what is rounded to them lies in the middle of two but seldom.
_FRACTIONS = tuple(sorted({dtypes.finfo(dtype)[1] for dtype in (*dtypes.floats, *dtypes.fp8s)}))
_SELDOM = 8  # one number in so many
_TOGETHER = 3  # reads whose corners meet in every way, if there are as many rows
_HALF, _SHIFT = numpy.uint64(29), numpy.uint64(64 - _BITS)


def element(slot: int, dtype: DType, index: Values, kind: Values, seed: int) -> Values:
    """The element at each index of the memory `slot`, of the kind that the sample sees."""
    mixed = numpy.asarray(index).astype(numpy.uint64)
    mixed += numpy.uint64((slot * 0x51ED27 + seed * 0x2545F491) & 0xFFFFFFFF)
    mixed *= _MULTIPLIER
    mixed ^= mixed >> _HALF
    mixed *= _MULTIPLIER
    mixed >>= _SHIFT
    drawn = mixed.view(numpy.int64)
    where = (kind << _BITS) + drawn
    if (row := kind - KINDS).max(initial=-1) >= 0:
        corner = (KINDS << _BITS) + _corner_of(slot, row, drawn)
        where = numpy.where(row < 0, where, corner)
    return _table(dtype).take(where)


def rows_of_corners(memories: int, reads: int, most: int) -> Values:
    """The kinds of memory in which the corners that are read meet in every way: of as many reads as `most` rows allow."""
    together = sum([k <= reads and PRIME**k <= most for k in range(1, _TOGETHER)])
    rows = PRIME**together if together else 0
    if reads > together == _TOGETHER - 1:  # some of the triples
        rows *= min(PRIME, most // rows)
    apart = reads > memories  # some memory is read at several positions
    return KINDS + apart * PRIME**_TOGETHER + numpy.arange(rows)


def _corner_of(slot: int, row: Values, drawn: Values) -> Values:
    """The number of the corner that an element holds in a row, of whose memory and index `drawn` was drawn."""
    by_memory = PRIME**_TOGETHER
    s = numpy.where(row < by_memory, slot % PRIME, drawn % PRIME)
    squares, rest = numpy.divmod(row % by_memory, PRIME * PRIME)
    return (rest + rest // PRIME * s + squares * (s * s)) % PRIME


@functools.lru_cache(maxsize=64)
def _table(dtype: DType) -> Any:
    """`_COUNT` values of each kind, one kind after the other, and the corners behind them."""
    draw = numpy.random.default_rng(dtype.bits * 31 + dtype.priority)
    rows = [_row(dtype, kind, draw) for kind in range(KINDS)]
    return numpy.concatenate([*rows, _corners(dtype)])


def _corners(dtype: DType) -> Values:
    """`PRIME` values of a type, no two alike where it has so many."""
    if dtype.is_bool:
        return numpy.arange(PRIME) % 2 > 0
    if not (dtype.is_float or dtype.is_code):
        return numpy.array(_integer_corners(dtype), kept_as(dtype))
    with numpy.errstate(all="ignore"):
        return cast(numpy.array(_float_corners(dtype)), dtypes.float64, dtype)


def _row(dtype: DType, kind: int, draw: Any) -> Values:
    if dtype.is_bool:
        return draw.integers(0, 2, _COUNT) > 0
    is_float = dtype.is_float or dtype.is_code
    row = draw.integers(-4 if is_float or dtype.lo else 0, 5, _COUNT)
    row = row.astype(numpy.float64 if is_float else kept_as(dtype))
    if kind == MIXED and is_float:
        row = draw.normal(size=_COUNT) * numpy.exp2(draw.integers(-3, 4, _COUNT))
        if halves := _halves(dtype):
            row[::_SELDOM] = numpy.resize(halves, _COUNT // _SELDOM)
    elif kind == MIXED:
        row = draw.integers(0, min(64, (dtype.hi or 64) + 1), _COUNT).astype(kept_as(dtype))
    elif kind in (CORNERS, ENDS):
        corners = _float_ends(dtype) if is_float else _integer_corners(dtype)
        share = 8 if kind == CORNERS else 1
        positions = draw.choice(_COUNT, _COUNT // share, replace=False)
        row[positions] = numpy.array(corners, row.dtype)[
            draw.integers(0, len(corners), len(positions))
        ]
    elif kind in (BELOW, ABOVE):
        below = kind == BELOW and (is_float or bool(dtype.lo))
        row = numpy.where(row == 0, 1, abs(row)) * (-1 if below else 1) * (_NEAR if is_float else 1)
        row = row.astype(numpy.float64 if is_float else kept_as(dtype))
    elif kind == SIZES:
        # Of floats to the root of the largest; of integers all bits but the sign.
        most = 1 << dtypes.finfo(dtype)[0] - 2 if is_float else dtype.bits - 1
        sizes = numpy.exp2(draw.uniform(-most if is_float else 0, most, _COUNT))
        row = (numpy.where(row < 0, -1, 1) * sizes).astype(row.dtype)
    with numpy.errstate(all="ignore"):
        return cast(row, dtypes.float64, dtype) if is_float else row


def _float_corners(dtype: DType) -> list[float]:
    """Numbers that are their own inverse, whole and odd, whole and even, between, of more digits than there are, and those where
    the range ends."""
    most, least = largest(dtype), 2.0 ** (2 - (1 << dtypes.finfo(dtype)[0] - 1))  # least normal
    long = min(5.0 * 2.0 ** (dtypes.finfo(dtype)[1] + 3), most / 2)
    tiny = float(from_bits(1, dtype))
    special = [0.0, -0.0, math.inf, -math.inf, math.nan]
    return [*special, 1.0, -1.0, 3.0, -long, 2.0, 0.5, -1.5, tiny, -tiny, least, most, -most]


def _float_ends(dtype: DType) -> list[float]:
    """And others that are rare: denormal numbers of several bits, an argument of sines that is far out."""
    fraction = dtypes.finfo(dtype)[1]
    small = [float(from_bits(bits, dtype)) for bits in (2, (1 << fraction) - 1)]
    return [*_float_corners(dtype), *small, 1e4]


def _halves(dtype: DType) -> list[float]:
    """What lies in the middle of two floats of fewer digits, next to an even one and to an odd one, and what lies beside it.

    Where a cast rounds such a number otherwise than it should, nearly all others are rounded right.
    """
    fraction = dtypes.finfo(dtype)[1]
    shorter = [bits for bits in _FRACTIONS if bits < fraction]
    middles = [1 + times * 2.0 ** -(bits + 1) for bits in shorter for times in (1, 3)]
    beside = [x + sign * 2.0**-fraction for x in middles[::2] for sign in (-1, 1)]
    return [*middles, *[-x for x in middles], *beside]


def _integer_corners(dtype: DType) -> list[int]:
    """The ends of a type, what is near 0, the ends of shifts, and numbers between; so many, no two alike."""
    assert dtype.lo is not None and dtype.hi is not None
    ends = [dtype.lo, dtype.lo + 1, dtype.hi - 1, dtype.hi]
    near = [0, 1, 2, 3, 7, 100, 1 << dtype.bits // 2, dtype.bits - 1, dtype.bits]
    others = [-1, -2, -3, -100] if dtype.lo else [dtype.hi // 2, dtype.hi // 2 + 1]
    return list(dict.fromkeys([*ends, *near, *others, *range(PRIME)]))[:PRIME]
