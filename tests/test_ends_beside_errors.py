"""What is NaN or infinite is so, however far the values beside it are off: CHECK=1 and CHECK=2 know it."""

from __future__ import annotations

from math import inf, nan

import numpy
import pytest

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.verify.sampled.freedom import Estimate, estimate, estimate_reduction, largest

OFF = 1e-3
FLOAT = dtypes.float32


def values(*given: float) -> numpy.ndarray:
    return numpy.array(given, numpy.float32)


def error_of(op: Ops, exact: float, near: float, off: float = OFF) -> float:
    """Of an operation on a value that is exact and one that is off."""
    one, other = Estimate(values(exact)), Estimate(values(near), values(off).astype(numpy.float64))
    with numpy.errstate(all="ignore"):
        found = estimate(op, FLOAT, (one, other), (FLOAT, FLOAT))
    return 0.0 if found.error is None else float(found.error[0])


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX, Ops.FDIV], ids=str)
def test_nan_beside_what_is_off_is_nan(op: Ops) -> None:
    assert error_of(op, nan, 2.0) == 0


def test_nan_beside_what_is_unknown_is_nan() -> None:
    assert error_of(Ops.ADD, nan, 2.0, inf) == 0


@pytest.mark.parametrize("end", [inf, -inf])
def test_end_with_something_added_stays(end: float) -> None:
    assert error_of(Ops.ADD, end, 2.0) == 0
    assert error_of(Ops.ADD, end, 2.0, inf) == inf  # which may be the other end


def test_power_of_nan_is_not_known_to_be_nan() -> None:
    """It is 1 where the exponent is 0, which may be all that it is off."""
    assert error_of(Ops.POW, nan, 1e-4) == inf


def error_of_sum(*terms: float) -> float:
    off = numpy.array([[OFF]] * (len(terms) - 1) + [[0.0]])
    with numpy.errstate(all="ignore"):
        each = Estimate(values(*terms).reshape(-1, 1), off)
        found = estimate_reduction(Ops.ADD, FLOAT, each, len(terms))
    return 0.0 if found.error is None else float(found.error[0])


def test_sum_with_nan_or_an_end_beside_what_is_off_is_known() -> None:
    assert error_of_sum(1.0, 2.0, nan) == 0
    assert error_of_sum(1.0, 2.0, inf) == 0
    assert error_of_sum(1.0, 2.0, 3.0) > 0


def test_sum_of_an_end_and_of_what_may_reach_the_other_is_unknown() -> None:
    half = largest(FLOAT) / 1.5
    assert error_of_sum(-half, -half, inf) == inf


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int32, dtypes.bool], ids=str)
@pytest.mark.parametrize("value", [nan, inf, 3.0])
def test_cast_of_what_is_unknown_is_unknown(value: float, dtype: DType) -> None:
    """As a sum whose parts leave the range of float32 in one order and not in another: NaN, or an end."""
    unknown = Estimate(values(value), numpy.array([inf]))
    with numpy.errstate(all="ignore"):
        found = estimate(Ops.CAST, dtype, (unknown,), (FLOAT,))
    assert found.error is not None and found.error[0] == inf
