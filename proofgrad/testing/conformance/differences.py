"""Two arrays compared, and every position where they differ.

Owns: how exact a result must be, how differences are told. Does not own: which results there are (programs.py, ...).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proofgrad.core.ir.dtypes import DType
from proofgrad.testing.closeness import ulp_distance
from proofgrad.testing.conformance.edges import is_kept

SHOWN = 8  # differing elements of a result, unless all are asked for


@dataclass(frozen=True, slots=True)
class Exactness:
    """How far a result may be from what is expected; unless a number is given, to the bit but for which NaN it is."""

    ulp: int = 0
    relative: float = 0.0
    absolute: float = 0.0

    @property
    def is_exact(self) -> bool:
        """No difference at all, not even in the sign of a zero."""
        return not (self.ulp or self.relative or self.absolute)


BITS = Exactness()


def differences(
    found: Any,
    expected: Any,
    dtype: DType,
    exactness: Exactness,
    shown: int = SHOWN,
    unpromised: Sequence[str] = (),
) -> str:
    """What is wrong with the array `found`; "" for nothing. Numbers of `unpromised` (target.UNPROMISED) may be anything."""
    import numpy

    expected = numpy.asarray(expected)
    if found.shape != expected.shape:
        return f"its shape is {found.shape} instead of {expected.shape}"
    wrong = _apart(found, expected, dtype, exactness)
    if unpromised:
        wrong &= numpy.vectorize(lambda x: is_kept(float(x), dtype, unpromised))(expected)
    if not wrong.any():
        return ""
    positions = numpy.argwhere(wrong)
    lines = [
        f"at {tuple(int(n) for n in position)} {_said(found, position)} instead of {_said(expected, position)}"
        for position in positions[:shown]
    ]
    more = f"; and {len(positions) - shown} more" if len(positions) > shown else ""
    return f"{len(positions)} of {found.size} elements differ: {'; '.join(lines)}{more}"


def _said(array: Any, position: Any) -> str:
    return repr(array[tuple(position)].item())


def _apart(found: Any, expected: Any, dtype: DType, exactness: Exactness) -> Any:
    """Which elements differ by more than is allowed."""
    import numpy

    if not dtype.is_float:
        return found != expected
    expected = expected.astype(found.dtype)
    both_nan = numpy.isnan(found) & numpy.isnan(expected)
    same = (found == expected) | both_nan
    if exactness.is_exact:
        return ~same | ((found == 0) & (numpy.signbit(found) != numpy.signbit(expected)))
    if exactness.ulp:
        return ~same & (ulp_distance(found, expected, dtype) > exactness.ulp)
    with numpy.errstate(all="ignore"):
        wide = [array.astype(numpy.float64) for array in (found, expected)]
        near = abs(wide[0] - wide[1]) <= exactness.absolute + exactness.relative * abs(wide[1])
    return ~(same | near)
