"""Numbers as hardware and index terms have them: powers, bits, strides.

Owns: these functions of Python numbers. Does not own: what the compiler computes with (core/ir).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

_WORD = 0xFFFFFFFF


def round_down(num: int, amt: int) -> int:
    """The greatest multiple of `amt` that is not above `num`."""
    return num // amt * amt


def next_power2(x: int) -> int:
    """The least power of two that is not below `x`; 1 for 0. Raises: ValueError for a number below 0."""
    if x < 0:
        raise ValueError(f"there is no power of two for {x}")
    return 1 << max(0, x - 1).bit_length()


def cdiv(x: int, y: int) -> int:
    """The quotient cut off towards 0, as in C; 0 for a divisor of 0."""
    if y == 0:
        return 0
    quotient = abs(x) // abs(y)
    return -quotient if (x < 0) != (y < 0) else quotient


def cmod(x: int, y: int) -> int:
    """The remainder of `cdiv`, with the sign of `x`; `x` for a divisor of 0."""
    return x - cdiv(x, y) * y


def floordiv(x: int, y: int) -> int:
    """The quotient rounded down, as in Python; 0 for a divisor of 0."""
    return x // y if y != 0 else 0


def floormod(x: int, y: int) -> int:
    """The remainder of `floordiv`, with the sign of `y`; `x` for a divisor of 0."""
    return x - floordiv(x, y) * y


def lo32(x: Any) -> Any:
    """The low 32 bits."""
    return x & _WORD


def hi32(x: Any) -> Any:
    """What is above the low 32 bits."""
    return x >> 32


def data64(data: Any) -> tuple[Any, Any]:
    """The high and the low 32 bits."""
    return hi32(data), lo32(data)


def data64_le(data: Any) -> tuple[Any, Any]:
    """The low and the high 32 bits."""
    return lo32(data), hi32(data)


def getbits(value: int, start: int, end: int) -> int:
    """The bits from `start` to `end`, both included."""
    return (value >> start) & ((1 << (end - start + 1)) - 1)


def i2u(bits: int, value: int) -> int:
    """The number without a sign that has the bits of a number in two's complement."""
    return value & ((1 << bits) - 1)


def polyN(x: Any, p: Iterable[float]) -> Any:  # noqa: N802  (the name that scripts import)
    """The polynomial with these coefficients, that of the highest power first."""
    return reduce(lambda sum_, coefficient: sum_ * x + coefficient, p, 0.0)


def strides_for_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """How far from one element to the next on each axis of row-major memory; 0 for an axis of size 1."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(0 if size == 1 else step)
        step = step * size
    return tuple(reversed(strides))
