"""Functions and activations: digits near 0, gradients where a branch is not taken, special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tensors import assert_close, assert_same, machine, numbers

from proofgrad import DtypeError, Ops, Tensor, dtypes

__all__ = ["machine"]
Array = np.ndarray[Any, Any]
EVERYWHERE = np.array([0.0, 1e-30, 0.3, 1.7, 20.0, 1e3, 1e20, np.inf])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_is_within_3_ulp_of_the_c_library(dtype: Any) -> None:
    x = np.concatenate([np.linspace(-6.5, 6.5, 4001), np.geomspace(1e-30, 1, 500)]).astype(dtype)
    exact = np.vectorize(math.erf)(x.astype(np.float64))
    errors = np.abs(Tensor(x).erf().numpy() - exact) / np.spacing(np.abs(exact).astype(dtype))
    assert np.nanmax(errors) <= 3


@pytest.mark.parametrize(("dtype", "largest"), [(np.float32, 6000), (np.float64, 1e8)])
def test_cosine_and_tangent_have_their_digits_near_zeros(dtype: Any, largest: float) -> None:
    """By the distance to the zero: pi / 2 in three doubles, to 160 bits."""
    turns = np.random.default_rng(0).integers(0, int(largest / 4), 500) * 2 + 1
    x = (turns * (math.pi / 2)).astype(dtype)
    parts = (math.pi / 2, 6.123233995736766e-17, -1.4973849048591833e-33)
    quarter = sum(map(Fraction, parts))
    rest = [float(Fraction(float(v)) - int(n) * quarter) for v, n in zip(x, turns)]
    exact = -np.where(turns % 4 == 1, 1, -1) * np.sin(rest)
    np.testing.assert_allclose(Tensor(x).cos().numpy(), exact, rtol=3 * np.finfo(dtype).eps)
    tangent = -1 / np.tan(rest)
    np.testing.assert_allclose(Tensor(x).tan().numpy(), tangent, rtol=4 * np.finfo(dtype).eps)


SLOPES: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "expm1": np.exp,
    "log1p": lambda x: 1 / (1 + x),
    "tanh": lambda x: 1 / np.cosh(x) ** 2,
    "sinh": np.cosh,
    "cosh": np.sinh,
    "asinh": lambda x: 1 / np.hypot(1, x),
    "atan": lambda x: 1 / (1 + x * x),
    "erf": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "softplus": lambda x: 1 / (1 + np.exp(-x)),
    "sigmoid": lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2,
    "elu": lambda x: np.where(x > 0, 1, np.exp(x)),
}


@pytest.mark.parametrize("name", SLOPES)
def test_gradient_is_the_slope_at_small_and_at_huge_values(name: str) -> None:
    x = EVERYWHERE[:-1] if name in ("sinh", "cosh", "exp", "expm1") else EVERYWHERE
    t = Tensor(x.astype(np.float64), requires_grad=True)
    getattr(t, name)().sum().backward()
    assert t.grad is not None
    with np.errstate(all="ignore"):
        expected = SLOPES[name](x)
    seen = t.grad.numpy()
    finite = np.isfinite(expected) & (np.abs(x) < 1e4)
    np.testing.assert_allclose(seen[finite], expected[finite], rtol=1e-11, atol=1e-15)
    assert name in ("sinh", "cosh", "exp", "expm1") or not np.isnan(seen).any()


def test_angles_at_the_ends_of_their_domain(machine: str) -> None:
    x = Tensor([-1.0, 1.0, -0.0, 2.0])
    assert_close(x.asin(), np.array([-math.pi / 2, math.pi / 2, -0.0, np.nan], np.float32))
    assert_close(x.acos(), np.array([math.pi, 0, math.pi / 2, np.nan], np.float32))
    assert_close(x.atanh(), np.array([-np.inf, np.inf, -0.0, np.nan], np.float32))
    far = Tensor([np.inf, -np.inf, 3e38]).atan()
    assert_close(far, np.array([math.pi / 2, -math.pi / 2, math.pi / 2], np.float32))


ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "celu": (lambda t: t.celu(0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x / 0.5))),
    "selu": (Tensor.selu, lambda x: 1.0507 * np.where(x > 0, x, 1.67326 * np.expm1(x))),
    "gelu": (
        lambda t: t.gelu(approximate="none"),
        lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    ),
    "softplus": (lambda t: t.softplus(beta=3), lambda x: np.log1p(np.exp(3 * x)) / 3),
    "hardsigmoid": (lambda t: t.hardsigmoid(0.2, 0.4), lambda x: np.clip(x * 0.2 + 0.4, 0, 1)),
    "hardtanh": (lambda t: t.hardtanh(-0.5, 2), lambda x: np.clip(x, -0.5, 2)),
    "asinh": (Tensor.asinh, np.arcsinh),
    "atan": (Tensor.atan, np.arctan),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_agrees_with_its_formula(machine: str, name: str) -> None:
    ours, formula = ACTIVATIONS[name]
    x = numbers(40, low=-4, high=4)
    assert_close(ours(Tensor(x)), formula(x.astype(np.float64)))


def test_gelu_of_an_unknown_approximation_is_refused() -> None:
    with pytest.raises(ValueError, match="approximate is 'tanh' or 'none', not 'erf'"):
        Tensor([1.0]).gelu("erf")


def test_half_precision_functions_are_rounded_once() -> None:
    x = numbers(200, low=-4, high=4).astype(np.float16)
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert_same(Tensor(x).sigmoid(), exact.astype(np.float16))


PAIRS = np.array(
    [[5.5, 3], [-5.5, 3], [5.5, -3], [0.0, 2], [-0.0, 2], [1, np.inf], [-1, np.inf], [np.inf, 2],
     [1, 0], [np.nan, 1], [1, np.nan], [3, 3], [-3, 3], [1e-3, 7]],
    np.float32,
)  # fmt: skip


def test_remainders_of_floats_are_those_of_numpy(machine: str) -> None:
    a, b = PAIRS.T
    with np.errstate(all="ignore"):
        assert_close(Tensor(a) % Tensor(b), np.mod(a, b))
        assert_close(Tensor(a).fmod(Tensor(b)), np.fmod(a, b))


def test_remainders_of_integers_take_the_sign_of_divisor_or_dividend(machine: str) -> None:
    a, b = Tensor([7, -7, 7, -7]), Tensor([3, 3, -3, -3])
    assert (a % b).tolist() == [1, 2, -2, -1]
    assert a.fmod(b).tolist() == [1, -1, 1, -1]


def test_copysign_takes_the_sign_of_zero_and_nan(machine: str) -> None:
    a = np.array([1.0, -2.0, 0.0, np.inf], np.float32)
    b = np.array([-0.0, 0.0, -1.0, np.copysign(np.nan, -1)], np.float32)
    assert_same(Tensor(a).copysign(Tensor(b)), np.copysign(a, b))
    assert Tensor([1, 2]).copysign(-1).tolist() == [-1.0, -2.0]


def test_logaddexp_of_huge_and_infinite_values(machine: str) -> None:
    a = np.array([1000.0, -np.inf, np.inf, 0.0, -1000.0], np.float32)
    b = np.array([1000.0, -np.inf, np.inf, -np.inf, 3.0], np.float32)
    assert_close(Tensor(a).logaddexp(Tensor(b)), np.logaddexp(a, b))


def test_isclose_with_infinities_and_nan(machine: str) -> None:
    a = np.array([1.0, np.inf, np.inf, np.nan, np.nan, 1.0], np.float32)
    b = np.array([1.0 + 1e-6, np.inf, -np.inf, np.nan, 1.0, np.inf], np.float32)
    for equal_nan in (False, True):
        expected = np.isclose(a, b, equal_nan=equal_nan)
        assert_same(Tensor(a).isclose(Tensor(b), equal_nan=equal_nan), expected)


def test_isinf_of_one_sign(machine: str) -> None:
    x = Tensor([math.inf, -math.inf, 1.0])
    assert x.isinf(detect_negative=False).tolist() == [True, False, False]
    assert x.isinf(detect_positive=False).tolist() == [False, True, False]


def test_ops_by_name_take_tensors_of_one_type() -> None:
    x, y = Tensor([1, 2]), Tensor([3, 4])
    assert x.alu(Ops.ADD, y).tolist() == [4, 6]
    assert (x > 1).alu(Ops.WHERE, x, y).tolist() == [3, 2]
    assert x.usum(y, 1).tolist() == [5, 7]
    assert x.uprod(y, y).tolist() == [9, 32]
    assert x.ufix(1.5).dtype is dtypes.float32
    with pytest.raises(DtypeError, match="cast one first"):
        x.alu(Ops.ADD, y.float())
    with pytest.raises(ValueError, match="alu takes an op of elements"):
        x.alu(Ops.RESHAPE)


def test_gelu_keeps_its_digits_far_below_zero() -> None:
    """x (1 + tanh(y)) / 2 would lose all of them: there tanh(y) is -1 but for its last digits."""
    x = np.linspace(-9, -2, 1001).astype(np.float32)
    wide = x.astype(np.float64)
    y = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    np.testing.assert_allclose(Tensor(x).gelu().numpy(), wide / (1 + np.exp(-2 * y)), rtol=3e-5)
