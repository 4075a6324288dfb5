"""`**`: its values are numpy's within the published bound, at special values exactly; its slopes are torch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from test_numerics import ULP_CHECK

from proofgrad import Tensor
from proofgrad.core.ir.dtypes import DType, dtypes

INF, NAN = math.inf, math.nan
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    0.3,
    2.0,
    -2.0,
    3.0,
    -7.5,
    -30.0,
    0.2,
    1e30,
    INF,
    -INF,
    NAN,
]
CONSTANTS = [0, 1, 2, 3, 5, -1, -2, -3, 0.0, 0.5, 0.3, 0.2, 2.5, -0.5, -1.5, 70.0, -65.0]
# Values in ULP. float32 goes through float64, float64 through a logarithm of two doubles.
BOUND = {dtypes.float16: 0.51, dtypes.bfloat16: 0.51, dtypes.float32: 0.51, dtypes.float64: 2.1}


def pairs() -> tuple[Any, Any]:
    return np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))


@pytest.mark.parametrize("dtype", BOUND, ids=lambda d: d.name)
def test_power_of_special_values_is_numpys(dtype: DType) -> None:
    x, y = [ULP_CHECK.round_to(part, dtype).astype(np.float64) for part in pairs()]
    found = (Tensor(x).cast(dtype) ** Tensor(y).cast(dtype)).double().numpy()
    with np.errstate(all="ignore"):
        wanted = np.power(x, y)
        rounded = ULP_CHECK.round_to(wanted, dtype).astype(np.float64)
        near = np.abs(found - wanted) <= 2 * 2.0 ** -dtypes.finfo(dtype)[1] * np.abs(wanted)
    same = (found == rounded) & (np.signbit(found) == np.signbit(rounded))
    same |= np.isnan(found) & np.isnan(rounded) | np.isfinite(found) & near
    assert [(a, b, f) for a, b, f, ok in zip(x, y, found, same) if not ok] == []


@pytest.mark.parametrize("exponent", CONSTANTS)
def test_power_with_a_constant_of_special_values_is_numpys(exponent: float) -> None:
    x = np.array(SPECIAL)
    found = (Tensor(x) ** exponent).numpy()
    with np.errstate(all="ignore"):
        wanted = np.power(x, exponent)
    np.testing.assert_allclose(found, wanted, rtol=2e-14)
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()


@pytest.mark.parametrize("dtype", BOUND, ids=lambda d: d.name)
def test_power_keeps_its_bound_where_it_is_neither_zero_nor_infinite(dtype: DType) -> None:
    with np.errstate(all="ignore"):
        for x, y in list(ULP_CHECK.power_pairs(dtype, 1 << 16))[-4:]:
            errors, wrong = ULP_CHECK.pow_ulp_errors(dtype, x[::4], y[::4])
            assert not wrong.any() and errors.max() <= BOUND[dtype]


def test_derivatives_by_base_and_exponent_are_torchs_everywhere() -> None:
    torch = pytest.importorskip("torch")
    x, y = pairs()
    a, b = Tensor(x), Tensor(y)
    p, q = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
    (p**q).sum().backward()
    for mine, theirs in zip((a**b).sum().gradient(a, b), (p.grad, q.grad)):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-13)


@pytest.mark.parametrize("constant", CONSTANTS)
def test_derivative_with_a_constant_is_torchs_everywhere(constant: float) -> None:
    torch = pytest.importorskip("torch")
    a, p = (
        Tensor(SPECIAL, dtype="float64"),
        torch.tensor(SPECIAL, dtype=torch.float64, requires_grad=True),
    )
    (p**constant).sum().backward()
    (found,) = (a**constant).sum().gradient(a)
    np.testing.assert_allclose(found.numpy(), p.grad.numpy(), rtol=1e-13)
    b, q = (
        Tensor(SPECIAL, dtype="float64"),
        torch.tensor(SPECIAL, dtype=torch.float64, requires_grad=True),
    )
    (constant**q).sum().backward()
    (found,) = (constant**b).sum().gradient(b)
    np.testing.assert_allclose(found.numpy(), q.grad.numpy(), rtol=1e-13)


def test_second_derivative_of_a_power_matches_its_formula() -> None:
    x = Tensor([0.5, 2.0, 3.0], dtype="float64")
    (first,) = (x**2.5).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    np.testing.assert_allclose(second.numpy(), 2.5 * 1.5 * x.numpy() ** 0.5, rtol=1e-13)
