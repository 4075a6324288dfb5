"""Is what a program gave what it means?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from proofgrad.testing.fuzz.oracle import expected
from proofgrad.testing.fuzz.program import Program
from proofgrad.testing.fuzz.values import Array, Value, kind_of, unit_of

SAFETY = 4.0  # how much further than the samples a right result may be
UNITS = 8.0  # in the last place, for what no sample has shown
AGAIN = 6  # more sets of samples before a difference counts

Seen: TypeAlias = dict[str, tuple[str, Array]]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first of the values that are wrong."""

    name: str
    position: tuple[int, ...]
    got: str
    expected: str
    count: int

    def __str__(self) -> str:
        return f"{self.name} at {self.position}: got {self.got}, expected {self.expected} ({self.count} wrong)"


def difference(program: Program, seen: Seen) -> Difference | None:
    """Where `seen` is wrong whatever rounding did."""
    wanted = expected(program)
    for name, value in wanted.items():
        if name not in seen:
            return Difference(name, (), "nothing", "a value", 1)
        if _wrong(value, *seen[name], program.kind == "special") is None:
            continue
        sets = [wanted] + [expected(program, 1000 * turn) for turn in range(1, AGAIN)]
        if value.is_exact:
            sets = sets[:1]
        found = _wrong(_joined([one[name] for one in sets]), *seen[name], program.kind == "special")
        if found is not None:
            return Difference(name, *found)
    return None


def _joined(values: list[Value]) -> Value:
    if len(values) == 1:
        return values[0]
    samples = [sample for value in values for sample in value.samples]
    return Value(values[0].dtype, tuple(samples))


def _wrong(value: Value, dtype: str, got: Array, is_strict: bool) -> Any:
    """Position, both values and the count, or None."""
    if dtype != value.dtype:
        return (), f"type {dtype}", f"type {value.dtype}", 1
    if got.shape != value.shape:
        return (), f"shape {got.shape}", f"shape {value.shape}", 1
    with np.errstate(all="ignore"):
        bad = wrong_elements(value, got, is_strict)
    if not bad.any():
        return None
    position = tuple(int(k) for k in np.argwhere(bad)[0])
    return (
        position,
        repr(got[position].item()),
        repr(value.estimate[position].item()),
        int(bad.sum()),
    )


def wrong_elements(value: Value, got: Array, is_strict: bool) -> Array:
    """Where `got` is none of what rounding allows, a bool for each element; `is_strict`: the signs of zeros count."""
    first = value.estimate
    if kind_of(value.dtype) not in ("float", "code"):
        unknown = np.zeros(first.shape, bool)
        for sample in value.samples[1:]:
            unknown |= sample != first
        return np.asarray((got != first) & ~unknown)
    if value.is_exact:
        equal = (got == first) | (np.isnan(got) & np.isnan(first))
        if is_strict:
            equal &= (np.signbit(got) == np.signbit(first)) | np.isnan(first)
        return ~np.asarray(equal)
    wide, found = first.astype(np.float64), got.astype(np.float64)
    unknown, spread = np.zeros(first.shape, bool), np.zeros(first.shape)
    for sample in value.samples[1:]:
        other = sample.astype(np.float64)
        both = np.isfinite(other) & np.isfinite(wide)
        same = (other == wide) | (np.isnan(other) & np.isnan(wide))
        unknown |= ~both & ~same
        spread = np.maximum(spread, np.where(both, np.abs(other - wide), 0))
    allowed = SAFETY * spread + UNITS * unit_of(wide, value.dtype)
    near = np.abs(found - wide) <= allowed
    equal = (found == wide) | (np.isnan(found) & np.isnan(wide))
    return np.asarray(~(near | equal | unknown))
