"""Every function of floats keeps the bounds of tests/function_bounds.py over the whole range of its type.

All values of float16 and bfloat16; of float32 and float64 about 100,000: random bits, numbers of usual size, powers of
two, integers and multiples of a quarter of pi with their neighbours. Run as a program it prints what it finds.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
import pytest
from function_bounds import ALONG_ROWS, COLUMNS, FADES, FUNCTIONS, LD, ROWS, WITHOUT_FMA, published
from test_cpu_target import cpu
from test_gathers import text_of
from test_numerics import ROOT, ULP_CHECK

from proofgrad import Device, Tensor
from proofgrad.core.ir.dtypes import DType, dtypes

Array = Any
TYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
NARROW = (0.51, 2.0)  # ULP of a value and of a slope
# At minus infinity these are x * 0, NaN as in torch, where the limit is 0.
LIMITS = {
    (name, -np.inf) for name in ("silu", "gelu", "gelu by erf", "quick_gelu", "mish", "hardswish")
}


@functools.cache
def samples(dtype: DType) -> Array:
    patterns = list(ULP_CHECK.bit_patterns(dtype, False, 1 << 16))
    if dtype.bits > 16:
        patterns = [
            part[::16] if k < len(patterns) - 2 else part for k, part in enumerate(patterns)
        ]
    return np.concatenate([ULP_CHECK.from_bits(part, dtype) for part in patterns])


def tensor_of(x: Array, dtype: DType) -> Tensor:
    return Tensor(x).cast(dtype).contiguous().realize()


def numbers_of(x: Tensor) -> Array:
    return (x.float() if x.dtype is dtypes.bfloat16 else x).numpy()


def measured(name: str, dtype: DType) -> tuple[tuple[float, Array], tuple[float, Array]]:
    """Of the value and of the slope: the largest error in ULP, and where special values are wrong."""
    row, x = FUNCTIONS[name], samples(dtype)
    argument = tensor_of(x, dtype)
    found = row.method(argument)
    (slope,) = row.method(argument).sum().gradient(argument)
    wide = x.astype(LD)
    with np.errstate(all="ignore"):
        exact = row.exact(wide)
        has_value = np.isfinite(ULP_CHECK.round_to(exact, dtype)) | np.isinf(exact)
        return (
            _worst(found, exact, x, dtype, near_of(row.near, dtype)),
            _worst(slope, row.slope(wide), x, dtype, near_of(row.slope_near, dtype), has_value),
        )


def near_of(near: float, dtype: DType) -> float:
    """FADES: results below 2**10 times the smallest normal number are made of some that are not normal."""
    return 2.0 ** (ULP_CHECK.STORAGES[dtype].smallest_exponent + 10) if near == FADES else near


def rows_of(dtype: DType, name: str) -> tuple[Tensor, Array]:
    random = np.random.default_rng(9)
    scale = random.choice([1e-3, 0.3, 1.0, 4.0, 20.0], (ROWS, 1))
    x = ULP_CHECK.round_to(random.standard_normal((ROWS, COLUMNS)) * scale, dtype)
    return tensor_of(x, dtype), x.astype(LD)


def measured_along_rows(name: str, dtype: DType) -> float:
    row = ALONG_ROWS[name]
    argument, wide = rows_of(dtype, name)
    found = numbers_of(row.method(argument))
    exact = row.exact(wide)
    near = np.broadcast_to(row.near(wide), exact.shape)
    with np.errstate(all="ignore"):
        errors, wrong = ULP_CHECK.compare(found, exact, dtype, near)
    assert not wrong.any()
    return float(errors.max())


def _worst(
    found: Tensor, exact: Array, x: Array, dtype: DType, near: float, has_value: Array | None = None
) -> tuple[float, Array]:
    is_slope = has_value is not None
    errors, wrong = ULP_CHECK.compare(numbers_of(found), exact, dtype, near)
    usual = np.isfinite(x)
    if is_slope:
        # A slope next to infinity may overflow on the way; a function that is not a number here has none.
        ends = (
            float(np.finfo(ULP_CHECK.STORAGES[dtype].values).max)
            if dtype is not dtypes.bfloat16
            else 3.3e38
        )
        usual &= (np.abs(exact) < ends / 8) & has_value & ~((x == 0) & np.signbit(x))
    position = int(np.where(usual, errors, 0).argmax())
    return float(errors[position]), np.concatenate([x[position : position + 1], x[wrong & usual]])


def room() -> float:
    """The part of a bound that the machine of this process keeps to."""
    return WITHOUT_FMA if Device[Device.DEFAULT].target.calls_fma else 1.0


@pytest.mark.parametrize("name", ["exp2", "log2", "atan", "erf"])
def test_function_without_fma_calls_nothing_and_keeps_its_bound(name: str) -> None:
    with cpu("x86-64-v2") as machine:
        if not machine.target.runs:
            pytest.skip("no kernels for it run here")
        argument = tensor_of(np.ones(8), dtypes.float32)
        assert "@llvm.fma" not in text_of(FUNCTIONS[name].method(argument))
        test_function_and_its_slope_keep_their_bounds_everywhere(name, dtypes.float32)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_and_its_slope_keep_their_bounds_everywhere(name: str, dtype: DType) -> None:
    row = FUNCTIONS[name]
    limits = {
        dtypes.float32: (row.value_float32 * room(), row.slope_float32 * room()),
        dtypes.float64: (row.value_float64 * room(), row.slope_float64 * room()),
    }
    for (found, worst), limit in zip(measured(name, dtype), limits.get(dtype, NARROW), strict=True):
        assert found <= limit, f"{found} ULP at {worst[0]!r}"
        assert len(worst) == 1, f"wrong special values at {worst[1:]}"


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", ALONG_ROWS)
def test_function_along_rows_keeps_its_bound(name: str, dtype: DType) -> None:
    row = ALONG_ROWS[name]
    limits = {
        dtypes.float32: row.value_float32 * room(),
        dtypes.float64: row.value_float64 * room(),
    }
    assert measured_along_rows(name, dtype) <= limits.get(dtype, NARROW[0])


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_infinities_zeros_and_nan_is_the_exact_one(name: str, dtype: DType) -> None:
    """But where the exact one is a limit that the formula, also that of torch, does not see."""
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    row = FUNCTIONS[name]
    found = numbers_of(row.method(tensor_of(x, dtype))).astype(float)
    with np.errstate(all="ignore"):
        exact = ULP_CHECK.round_to(row.exact(x.astype(LD)), dtype).astype(float)
    np.testing.assert_array_equal(found[np.isfinite(x)], exact[np.isfinite(x)])
    assert np.isnan(found[4])
    for k in (2, 3):
        is_exact = np.isclose(found[k], exact[k], rtol=2.0**-20, atol=0)
        assert is_exact or np.isnan(exact[k]) or (name, x[k]) in LIMITS, (x[k], found[k], exact[k])


def test_bounds_are_published() -> None:
    page = (ROOT / "docs/numerics.md").read_text()
    assert [line for line in published() if line + "\n" not in page] == []


def test_derivative_of_acosh_below_one_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    numbers = [-1e30, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 1e30]
    a, p = (
        Tensor(numbers, dtype="float64"),
        torch.tensor(numbers, dtype=torch.float64, requires_grad=True),
    )
    p.acosh().sum().backward()
    (found,) = a.acosh().sum().gradient(a)
    np.testing.assert_allclose(found.numpy(), p.grad.numpy(), rtol=1e-13)
    assert a.acosh().isnan().tolist() == p.acosh().isnan().tolist()


ENDS = {
    "relu6": [0.0, 6.0], "hardtanh": [-1.0, 1.0], "hardsigmoid": [-3.0, 3.0], "hardswish": [-3.0, 3.0],
    "asin": [-1.0, 1.0], "acos": [-1.0, 1.0], "atanh": [-1.0, 1.0], "acosh": [1.0], "log1p": [-1.0],
    "log": [0.0], "sqrt": [0.0], "rsqrt": [0.0], "tanh": [0.0], "abs": [0.0], "relu": [0.0],
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_derivative_at_the_ends_of_a_function_is_torchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    numbers = [*ENDS[name], 0.5, 2.0, -0.5]
    a, p = Tensor(numbers), torch.tensor(numbers, requires_grad=True)
    theirs = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    theirs(p).sum().backward()
    (found,) = getattr(a, name)().sum().gradient(a)
    np.testing.assert_allclose(found.numpy(), p.grad.numpy(), rtol=1e-6)


def main() -> None:
    names = [name for name in sys.argv[1:] or FUNCTIONS if name in FUNCTIONS]
    for name in [name for name in sys.argv[1:] or ALONG_ROWS if name in ALONG_ROWS]:
        print(
            f"{name:30}",
            [round(measured_along_rows(name, dtype), 3) for dtype in TYPES],
            flush=True,
        )
    for name in names:
        line = []
        for dtype in TYPES:
            for ulps, wrong in measured(name, dtype):
                line.append(
                    f"{ulps:9.3g} at {float(wrong[0]):9.3g} {len(wrong) - 1:5d}w"
                    + (f" {wrong[1]:.3g}..{wrong[-1]:.3g}" if len(wrong) > 1 else "")
                )
        print(f"{name:12}", " | ".join(line), flush=True)


if __name__ == "__main__":
    main()
