"""Values at the edges of each type, alone and in pairs.

Owns: these. Does not own: what is computed of them.
"""

from __future__ import annotations

import itertools
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


def line(device: str, kind: DType) -> Tensor:
    """The edges of a type, in a row."""
    if kind in dtypes.fp8s:
        small = [0.0, -0.0, 1.0, -1.5, 2.0, 0.25, 448.0, -448.0, 0.0019, float("nan")]
        return Tensor(small, device).cast(kind)
    return Tensor(edges(kind), device, kind)


def pairs(device: str, kind: DType) -> tuple[Tensor, Tensor]:
    """Every edge of a type with every other."""
    first, second = zip(*itertools.product(edges(kind), repeat=2), strict=True)
    return Tensor(list(first), device, kind), Tensor(list(second), device, kind)
