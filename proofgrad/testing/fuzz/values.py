"""What is known of a value: an estimate, and some others that rounding might have given instead.

Owns: the numpy types that hold each type, rounding and casts as the package documents them, promotion,
the noise of rounding. An exact value has one sample. The others have SAMPLES: the first is numpy's
estimate, the others are computed from operands that were each moved by a few units in the last place,
in pairs of opposite directions. What differs between samples is not decided by the program: an element
of integers is not compared there, one of floats only within a multiple of the differences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

SAMPLES = 5
NOISE = 6.0  # units in the last place that an operation's rounding may cost
LEAST_INNER = (
    64  # a factor below every normal number, as of x * sigmoid(x), is rounded to the least
)

FLOATS = ("float16", "bfloat16", "float32", "float64")
FNUZ = ("fp8e4m3fnuz", "fp8e5m2fnuz")
CODES = ("fp8e4m3", "fp8e5m2", *FNUZ)
WITHOUT_INFINITY = ("fp8e4m3", *FNUZ)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTS = SIGNED + UNSIGNED
DIGITS = {"fp8e4m3": 4, "fp8e5m2": 3, "fp8e4m3fnuz": 4, "fp8e5m2fnuz": 3, "bfloat16": 8, "float16": 11,
          "float32": 24, "float64": 53}  # fmt: skip
_LEAST_EXPONENT = {
    "fp8e4m3": -6, "fp8e5m2": -14, "fp8e4m3fnuz": -7, "fp8e5m2fnuz": -15, "bfloat16": -126,
}  # fmt: skip
_LARGEST = {"fp8e4m3": 448.0, "fp8e5m2": 57344.0, "fp8e4m3fnuz": 240.0, "fp8e5m2fnuz": 57344.0,
            "bfloat16": 3.3895313892515355e38}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    """A type, and one sample if the value is exact, else SAMPLES of them."""

    dtype: str
    samples: tuple[Array, ...]

    @property
    def estimate(self) -> Array:
        """The elements as numpy computes them: the first sample."""
        return self.samples[0]

    @property
    def is_exact(self) -> bool:
        """Whether the bits are defined, so that rounding allows no other value."""
        return len(self.samples) == 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, the same for all samples."""
        shape: tuple[int, ...] = self.samples[0].shape
        return shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.samples[0].size

    def sample(self, number: int) -> Array:
        """Sample `number`; of an exact value always the only one."""
        return self.samples[number] if len(self.samples) > 1 else self.samples[0]


def kind_of(dtype: str) -> str:
    """ "bool", "int", "float" or "code"."""
    if dtype == "bool":
        return "bool"
    if dtype in INTS:
        return "int"
    return "float" if dtype in FLOATS else "code"


@cache
def held(dtype: str) -> np.dtype[Any]:
    """numpy's type for the elements: of bfloat16 and the 8-bit floats, float32."""
    return np.dtype("float32" if dtype in ("bfloat16", *CODES) else dtype)


def bits(dtype: str) -> int:
    """The size of an element in memory, in bits."""
    if dtype in ("bool", *CODES):
        return 8
    return 16 if dtype == "bfloat16" else 8 * held(dtype).itemsize


def limits(dtype: str) -> tuple[Any, Any]:
    """The least and the largest value: infinities for floats."""
    if dtype == "bool":
        return False, True
    if dtype in INTS:
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    return -inf, inf


# -- promotion: the lattice of docs/ops.md ---------------------------------------------------------


@cache
def promote(a: str, b: str) -> str:
    """The least type that stands for both; 8-bit floats beside others count as float32 only alone."""
    if a == b:
        return a
    if kind_of(b) == "float" and kind_of(a) != "float" or a == "bool":
        a, b = b, a
    if b == "bool" or kind_of(a) == "float" and kind_of(b) == "int":
        return a
    if kind_of(a) == "code" and kind_of(b) == "code":
        return "float32"
    if kind_of(a) == "code" or kind_of(b) == "code":
        return a if kind_of(a) == "float" else b if kind_of(b) == "float" else ""
    if kind_of(a) == "float":
        if {a, b} == {"float16", "bfloat16"}:
            return "float32"
        return max(a, b, key=FLOATS.index)
    return _promote_integers(a, b)


def _promote_integers(a: str, b: str) -> str:
    if (a in UNSIGNED) == (b in UNSIGNED):
        return max(a, b, key=bits)
    signed, unsigned = (b, a) if a in UNSIGNED else (a, b)
    if bits(signed) > bits(unsigned):
        return signed
    return {8: "int16", 16: "int32", 32: "int64"}.get(bits(unsigned), "float32")


def promote_number(dtype: str, number: Any) -> str:
    """The type of a Tensor beside a Python number, which is weak."""
    if dtype in CODES:
        dtype = "float32"
    if kind_of(dtype) == "float" or isinstance(number, bool):
        return dtype
    if isinstance(number, float):
        return "float32"
    return "int32" if dtype == "bool" else dtype


def least_float(dtype: str) -> str:
    """The type itself if it is a float, else float32."""
    return dtype if kind_of(dtype) == "float" else "float32"


def sum_type(dtype: str) -> str:
    """Bools and small integers are summed in 32 bits."""
    if dtype == "bool":
        return "int32"
    if dtype in CODES:
        return "float32"
    if dtype in INTS and bits(dtype) < 32:
        return "uint32" if dtype in UNSIGNED else "int32"
    return dtype


# -- casts ----------------------------------------------------------------------------------------


def cast(x: Array, source: str, target: str) -> Array:
    """Elements of one type as another: floats saturate in integers, NaN is 0; halves go to even."""
    if source == target:
        return x
    if target == "bool":
        result: Array = x != 0
        return result
    if kind_of(source) in ("float", "code") and target in INTS:
        return _saturated(np.trunc(x.astype(np.float64)), target)
    return rounded(x, target)


def _saturated(whole: Array, target: str) -> Array:
    low, high = limits(target)
    inside = (whole > float(low)) & (whole < float(high + 1))
    result = np.where(inside, whole, 0.0).astype(target)
    result = np.where(whole >= float(high + 1), np.dtype(target).type(high), result)
    return np.where(whole <= float(low), np.dtype(target).type(low), result)


def rounded(x: Array, dtype: str) -> Array:
    """Numbers rounded once to the type; integers wrap."""
    if dtype not in ("bfloat16", *CODES):
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(held(dtype))
    exact = np.asarray(x).astype(np.float64) if np.asarray(x).dtype.kind == "f" else np.asarray(x)
    if exact.dtype.kind != "f":
        exact = exact.astype(np.longdouble)
    _, exponent = np.frexp(exact)
    least = _LEAST_EXPONENT[dtype]
    unit = np.maximum(exponent - 1, least) - (DIGITS[dtype] - 1)
    near = np.ldexp(np.rint(np.ldexp(exact, -unit)), unit)
    too_large = np.abs(near) > _LARGEST[dtype]
    beyond = np.nan if dtype in WITHOUT_INFINITY else np.copysign(np.inf, exact)
    near = np.where(too_large, beyond, near)
    near = near + 0.0 if dtype in FNUZ else near  # which have no -0.0
    kept = np.where(np.isfinite(exact), near, beyond if dtype in WITHOUT_INFINITY else exact)
    return np.where(np.isnan(exact), np.nan, kept).astype(np.float32)


# -- noise ----------------------------------------------------------------------------------------


def unit_of(x: Array, dtype: str) -> Array:
    """The distance of floats of the type around |x|, in float64."""
    size = np.abs(x.astype(np.float64))
    _, exponent = np.frexp(np.where(np.isfinite(size), size, 1.0))
    least = {"float16": -14, "float32": -126, "bfloat16": -126, "float64": -1022}.get(dtype, -14)
    result: Array = np.ldexp(1.0, np.maximum(exponent - 1, least) - (DIGITS[dtype] - 1))
    return result


def directions(seed: int, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """For each sample where each element is moved to: nowhere, up or down, in opposite pairs."""
    source = np.random.default_rng(seed)
    result: list[Array] = [np.zeros(shape)]
    while len(result) < SAMPLES:
        way = source.choice([-1.0, 1.0], shape) * source.uniform(0.6, 1.0, shape)
        result += [way, -way]
    return tuple(result[:SAMPLES])


def least_of(dtype: str) -> float:
    """The least positive number of a type."""
    return float(unit_of(np.array(0.0), dtype))


def moved(
    value: Value, dtype: str, units: float, seed: int, least: float = 0.0
) -> tuple[Array, ...]:
    """The samples, each element moved by up to `units` of the type, in float64.

    A unit is at least `least`.
    """
    ways = directions(seed, value.shape)
    result = []
    for number in range(SAMPLES):
        x = value.sample(number).astype(np.float64)
        unit = np.maximum(unit_of(x, dtype), least)
        result.append(x + ways[number] * units * unit if number else x)
    return tuple(result)


class Undecided(ValueError):
    """Rounding decides the shape of a value; such a step is not drawn."""


def merged(dtype: str, samples: list[Array]) -> Value:
    """A Value of these; exact if all are the same bits. Raises: Undecided."""
    first = np.asarray(samples[0])
    if any(sample.shape != first.shape for sample in samples):
        raise Undecided(f"shapes {[sample.shape for sample in samples]}")
    if all(sample is samples[0] or same_bits(first, np.asarray(sample)) for sample in samples[1:]):
        return Value(dtype, (first,))
    return Value(dtype, tuple([np.asarray(sample) for sample in samples]))


def same_bits(a: Array, b: Array) -> bool:
    """Equal, with the signs of zeros; NaN is NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    equal = (a == b) & (np.signbit(a) == np.signbit(b))
    return bool((equal | (np.isnan(a) & np.isnan(b))).all())


def granule(x: Array) -> float:
    """The largest power of two of which all elements are multiples; 0 if there is none."""
    finite = x.astype(np.float64)
    if not np.isfinite(finite).all():
        return 0.0
    used = finite[finite != 0]
    if not used.size:
        return 1.0
    whole, exponent = np.frexp(used)
    digits = np.ldexp(whole, 53).astype(np.int64)
    lowest = digits & -digits
    return float(np.min(lowest.astype(np.float64) * np.ldexp(1.0, exponent - 53)))


Function: TypeAlias = Callable[..., Any]
