"""Values at the edges of each type, alone and in pairs.

Owns: these. Does not own: what is computed of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from proofgrad import Tensor, dtypes
from proofgrad.core.ir.dtypes import DType

FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
INTEGERS = tuple([kind for kind in dtypes.all if kind.is_int])
_SPECIAL = (0.0, -0.0, 1.0, -1.5, 0.1, 255.5, float("inf"), -float("inf"), float("nan"))
# The largest finite number, the smallest normal one, and one below that.
_ENDS: dict[DType, tuple[float, float, float]] = {
    dtypes.float16: (65504.0, 2.0**-14, 2.0**-23),
    dtypes.bfloat16: (3.3895313892515355e38, 2.0**-126, 2.0**-130),
    dtypes.float32: (3.4028234663852886e38, 2.0**-126, 1e-40),
    dtypes.float64: (1.7976931348623157e308, 2.0**-1022, 5e-324),
}


def edges(kind: DType) -> list[Any]:
    """Ends, zeros, ones, numbers around a width, what is no number."""
    if kind.is_bool:
        return [False, True]
    if kind.is_float:
        most, normal, denormal = _ENDS[kind]
        return [*_SPECIAL, most, -most, normal, denormal, -denormal]
    assert kind.lo is not None and kind.hi is not None
    near = (0, 1, -1, 2, 3, 7, kind.bits - 1, kind.bits, 100, -100, 2**32, 2**32 + 1)
    inside = [n for n in near if kind.lo <= n <= kind.hi]
    return list(dict.fromkeys([*inside, kind.lo, kind.hi, kind.hi - 1]))


def is_kept(value: float, kind: DType, unpromised: Sequence[str]) -> bool:
    """Whether a machine keeps a float, of which `unpromised` says what it does not keep (target.UNPROMISED)."""
    if not unpromised or not isinstance(value, float):
        return True
    if value == 0:
        return math.copysign(1, value) > 0 or "the sign of zero" not in unpromised
    if math.isnan(value):
        return "NaN" not in unpromised
    if math.isinf(value):
        return "infinities" not in unpromised
    smallest = _ENDS[dtypes.float64 if kind is dtypes.float64 else dtypes.float32][1]
    return abs(value) >= smallest or "denormal numbers" not in unpromised


def kept_edges(kind: DType, unpromised: Sequence[str] = ()) -> list[Any]:
    """The edges that a machine keeps."""
    return [value for value in edges(kind) if is_kept(value, kind, unpromised)]


def line(device: str, kind: DType, unpromised: Sequence[str] = ()) -> Tensor:
    """The edges of a type that a machine keeps, in a row."""
    if kind in dtypes.fp8s:
        small = [0.0, -0.0, 1.0, -1.5, 2.0, 0.25, 448.0, -448.0, 0.0019, float("nan")]
        kept = [value for value in small if is_kept(value, kind, unpromised)]
        return Tensor(kept, device).cast(kind)
    return Tensor(kept_edges(kind, unpromised), device, kind)


def pairs(device: str, kind: DType, unpromised: Sequence[str] = ()) -> tuple[Tensor, Tensor]:
    """Every edge of a type that a machine keeps with every other."""
    first, second = zip(*itertools.product(kept_edges(kind, unpromised), repeat=2), strict=True)
    return Tensor(list(first), device, kind), Tensor(list(second), device, kind)
