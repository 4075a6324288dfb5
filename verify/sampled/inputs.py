"""Values for the memory that a kernel reads: drawn by number, so that memory of any size takes no room.

Owns: which values, and where each lies. Does not own: what is computed of them.

Each sampled element sees memory of one of several kinds: small whole numbers, whose products and sums
are exact, so that one term too many shows among a million; numbers of some sizes; numbers among which are
infinities, NaN, -0.0, denormals and the ends of a type, or these alone, for work on single elements; and numbers that are all below 0, or all above, of which a 0 too
many is the largest or the smallest; they are near 0, so that exp2 of a sum of their products stays in its range; and numbers of all
sizes of which products stay in range, for functions that take large ones, or small ones, in another way. Integers, which may be indices, are small and
sometimes below 0 or far too large.
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
_HALF, _SHIFT = numpy.uint64(29), numpy.uint64(64 - _BITS)


def element(slot: int, dtype: DType, index: Values, kind: Values, seed: int) -> Values:
    """The element at each index of the memory `slot`, of the kind that the sample sees."""
    mixed = numpy.asarray(index).astype(numpy.uint64)
    mixed += numpy.uint64((slot * 0x51ED27 + seed * 0x2545F491) & 0xFFFFFFFF)
    mixed *= _MULTIPLIER
    mixed ^= mixed >> _HALF
    mixed *= _MULTIPLIER
    mixed >>= _SHIFT
    return _table(dtype).take((kind << _BITS) + mixed.view(numpy.int64))


@functools.lru_cache(maxsize=64)
def _table(dtype: DType) -> Any:
    """`_COUNT` values of each kind, one kind after the other."""
    draw = numpy.random.default_rng(dtype.bits * 31 + dtype.priority)
    rows = [_row(dtype, kind, draw) for kind in range(KINDS)]
    return numpy.concatenate(rows)


def _row(dtype: DType, kind: int, draw: Any) -> Values:
    if dtype.is_bool:
        return draw.integers(0, 2, _COUNT) > 0
    is_float = dtype.is_float or dtype.is_code
    row = draw.integers(-4 if is_float or dtype.lo else 0, 5, _COUNT)
    row = row.astype(numpy.float64 if is_float else kept_as(dtype))
    if kind == MIXED and is_float:
        row = draw.normal(size=_COUNT) * numpy.exp2(draw.integers(-3, 4, _COUNT))
    elif kind == MIXED:
        row = draw.integers(0, min(64, (dtype.hi or 64) + 1), _COUNT).astype(kept_as(dtype))
    elif kind in (CORNERS, ENDS):
        corners = _float_corners(dtype) if is_float else _integer_corners(dtype)
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
    most, least = largest(dtype), 2.0 ** (2 - (1 << dtypes.finfo(dtype)[0] - 1))  # least normal
    fraction = dtypes.finfo(dtype)[1]
    small = [float(from_bits(bits, dtype)) for bits in (1, 2, (1 << fraction) - 1)]
    special = [0.0, -0.0, math.inf, -math.inf, math.nan]
    return [*special, *small, -small[0], least, -least, 0.5, -1.0, most, -most, 1e4]


def _integer_corners(dtype: DType) -> list[int]:
    assert dtype.lo is not None and dtype.hi is not None
    return [dtype.lo, dtype.lo + 1, -1 if dtype.lo else 0, dtype.hi, dtype.hi - 1, 100, 127]
