"""How far every function of floats may be off, as one table: what docs/numerics.md publishes, and tests measure.

Owns: for each function the exact value and slope, and the largest error in units in the last place (ULP). Does
not own: the samples and the measure (benchmarks/ulp_check.py).

References are the 64-bit significands of x87, from numpy and the C library. An error near a zero that the function
does not have at 0, as of the slope of silu, is in ULP of `near` instead: an absolute bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from proofgrad import Tensor

Array = Any
Exact = Callable[[Array], Array]
LD = np.longdouble
PI = LD("3.14159265358979323846264338327950288")
LN2, LN10 = np.log(LD(2)), np.log(LD(10))
ROOT_2_OVER_PI = np.sqrt(2 / PI)


FADES = -1.0  # as `near`: see below
WITHOUT_FMA = (
    1.5  # times the bounds of float32 and float64, where steps of polynomials are rounded twice
)


@dataclass(frozen=True, slots=True)
class Bounded:
    """A method, its exact value and slope, and bounds in ULP of float32 and float64.

    Of float16 and bfloat16, which are computed in float32 and rounded once, a value is within 0.51, a slope
    within 2.
    """

    method: Callable[[Tensor], Tensor]
    exact: Exact
    slope: Exact
    value_float32: float
    value_float64: float
    slope_float32: float
    slope_float64: float
    near: float = (
        0.0  # errors of values smaller than this are in ULP of this; FADES: 2**10 smallest normals
    )
    slope_near: float = 0.0


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def erfc(x: Array) -> Array:
    from test_numerics import ULP_CHECK

    return ULP_CHECK.c_function("erfc", x.astype(LD))


def erf(x: Array) -> Array:
    from test_numerics import ULP_CHECK

    return ULP_CHECK.c_function("erf", x.astype(LD))


def normal_density(x: Array) -> Array:
    return np.exp(-x * x / 2) / np.sqrt(2 * PI)


def sigmoid_slope(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return small / (1 + small) ** 2


def _tanh_gelu(x: Array) -> tuple[Array, Array]:
    """The argument of the sigmoid of gelu's formula, and its slope."""
    scale = np.sqrt(LD(8) / PI)
    return scale * (x + LD("0.044715") * x**3), scale * (1 + 3 * LD("0.044715") * x * x)


def tanh_gelu(x: Array) -> Array:
    return x * sigmoid(_tanh_gelu(x)[0])


def tanh_gelu_slope(x: Array) -> Array:
    inner, slope = _tanh_gelu(x)
    tail = x * slope
    rest = np.where(np.abs(x) > 1e3, 0, tail) * sigmoid_slope(inner)
    return sigmoid(inner) + rest


def silu_slope(x: Array) -> Array:
    return sigmoid(x) + x * sigmoid_slope(x)


def mish_slope(x: Array) -> Array:
    t = np.tanh(softplus(x))
    # 1 - t**2 without cancelling: 4 e (1 + e) ... of u = 1 + exp(x): 4 u**2 / (u**2 + 1)**2
    small = np.exp(-np.abs(x))
    up = (
        4 * (1 + small) ** 2 * small**2 / ((1 + small) ** 2 + small**2) ** 2
    )  # x > 0: u = (1 + s) / s
    down = 4 * (1 + small) ** 2 / ((1 + small) ** 2 + 1) ** 2  # x <= 0: u = 1 + s
    return t + x * np.where(x > 0, up, down) * sigmoid(x)


def elu(alpha: float, scale: float) -> Exact:
    a, b = LD(alpha), LD(scale)
    return lambda x: b * np.where(x > 0, x, a * np.expm1(np.minimum(x, 0)))


def elu_slope(alpha: float, scale: float) -> Exact:
    a, b = LD(alpha), LD(scale)
    return lambda x: b * np.where(x > 0, 1, a * np.exp(np.minimum(x, 0)))


def inside(function: Exact, low: float, high: float) -> Exact:
    """NaN outside of an interval, where the function has no value though its slope's formula has."""
    return lambda x: np.where((x >= low) & (x <= high), function(x), np.nan)


def _sech_squared(x: Array) -> Array:
    small = np.exp(-2 * np.abs(x))
    return 4 * small / (1 + small) ** 2


def _inverse_root_of_square_minus_one(x: Array) -> Array:
    return 1 / (np.sqrt(np.abs(x - 1)) * np.sqrt(np.abs(x + 1)))


B = Bounded
FUNCTIONS: dict[str, Bounded] = {
    "exp2": B(lambda x: x.exp2(), np.exp2, lambda x: np.exp2(x) * LN2, 0.9, 0.9, 1.6, 1.8),
    "exp": B(lambda x: x.exp(), np.exp, np.exp, 1.7, 1.6, 1.7, 1.6),
    "expm1": B(lambda x: x.expm1(), np.expm1, np.exp, 1.6, 2, 2, 2.1),
    "log2": B(lambda x: x.log2(), np.log2, lambda x: 1 / (x * LN2), 1, 0.9, 0.9, 0.8),
    "log": B(lambda x: x.log(), np.log, lambda x: 1 / x, 1.6, 1.7, 0.51, 0.51),
    "log10": B(lambda x: x.log10(), np.log10, lambda x: 1 / (x * LN10), 2.2, 1.4, 1, 0.9),
    "log1p": B(lambda x: x.log1p(), np.log1p, lambda x: 1 / (1 + x), 2.4, 2.6, 1.7, 1.7),
    "sqrt": B(lambda x: x.sqrt(), np.sqrt, lambda x: 0.5 / np.sqrt(x), 0.51, 0.51, 1.7, 1.7),
    "rsqrt": B(lambda x: x.rsqrt(), lambda x: 1 / np.sqrt(x), lambda x: -0.5 / np.sqrt(x) / x, 1.7, 1.7, 4.9, 5.1),
    "reciprocal": B(lambda x: x.reciprocal(), lambda x: 1 / x, lambda x: -1 / x / x, 0.51, 0.51, 2.1, 2.1),
    "square": B(lambda x: x.square(), lambda x: x * x, lambda x: 2 * x, 0.51, 0.51, 0.51, 0.51),
    "x ** 2.5": B(lambda x: x**2.5, lambda x: np.power(x, LD(2.5)), lambda x: LD(2.5) * np.power(x, LD(1.5)), 0.51, 2.1, 2, 3),
    "x ** -0.25": B(lambda x: x**-0.25, lambda x: np.power(x, LD(-0.25)), lambda x: LD(-0.25) * np.power(x, LD(-1.25)), 0.51, 2.2, 0.9, 2.1),
    "x ** 3": B(lambda x: x**3, lambda x: x**3, lambda x: 3 * x * x, 1.5, 1.5, 1.7, 1.7),
    "x ** 7": B(lambda x: x**7, lambda x: x**7, lambda x: 7 * x**6, 4.4, 4.5, 5, 4.7),
    "x ** -2": B(lambda x: x**-2, lambda x: 1 / x**2, lambda x: -2 / x**3, 2.1, 2.1, 3, 2.8),
    "3 ** x": B(lambda x: 3**x, lambda x: np.power(LD(3), x), lambda x: np.power(LD(3), x) * np.log(LD(3)), 0.51, 2.1, 1.5, 3.8),
    "sin": B(lambda x: x.sin(), np.sin, np.cos, 0.51, 1.5, 0.51, 1.6),
    "cos": B(lambda x: x.cos(), np.cos, lambda x: -np.sin(x), 0.51, 1.6, 0.51, 1.5),
    "tan": B(lambda x: x.tan(), np.tan, lambda x: 1 / np.cos(x) ** 2, 2.1, 3.1, 3.8, 4.7),
    "asin": B(lambda x: x.asin(), np.arcsin, lambda x: 1 / np.sqrt((1 - x) * (1 + x)), 2.3, 2.2, 4.2, 4),
    "acos": B(lambda x: x.acos(), np.arccos, lambda x: -1 / np.sqrt((1 - x) * (1 + x)), 2.7, 2.4, 4.3, 4.1),
    "atan": B(lambda x: x.atan(), np.arctan, lambda x: 1 / (1 + x * x), 1.9, 1.7, 3.7, 3.7),
    "sinh": B(lambda x: x.sinh(), np.sinh, np.cosh, 5.4, 5.7, 5.9, 6.2),
    "cosh": B(lambda x: x.cosh(), np.cosh, np.sinh, 5.4, 5.5, 5.9, 6),
    "tanh": B(lambda x: x.tanh(), np.tanh, _sech_squared, 2.7, 2.7, 4.5, 4.4),
    "asinh": B(lambda x: x.asinh(), np.arcsinh, lambda x: 1 / np.sqrt(1 + x * x), 2.6, 2.8, 4.6, 4.5),
    "acosh": B(lambda x: x.acosh(), np.arccosh, _inverse_root_of_square_minus_one, 2.8, 2.7, 3.7, 3.4),
    "atanh": B(lambda x: x.atanh(), np.arctanh, lambda x: 1 / ((1 - x) * (1 + x)), 2.3, 2.5, 1.4, 1.4),
    "erf": B(lambda x: x.erf(), erf, lambda x: 2 / np.sqrt(PI) * np.exp(-x * x), 1.7, 1.8, 1.4, 1.1, slope_near=1),
    "sigmoid": B(lambda x: x.sigmoid(), sigmoid, sigmoid_slope, 3.5, 2.9, 5.8, 5.9),
    "logsigmoid": B(lambda x: x.logsigmoid(), lambda x: -softplus(-x), lambda x: sigmoid(-x), 3.3, 3.3, 3.9, 4.2),
    "softplus": B(lambda x: x.softplus(), softplus, sigmoid, 3, 3.4, 3.7, 3.9),
    "silu": B(lambda x: x.silu(), lambda x: x * sigmoid(x), silu_slope, 3.6, 4, 1.7, 1.6, FADES, slope_near=1),
    "gelu": B(lambda x: x.gelu(), tanh_gelu, tanh_gelu_slope, 150, 1150, 1.8, 1.7, FADES, slope_near=1),
    "gelu by erf": B(
        lambda x: x.gelu("none"),
        lambda x: x * erfc(-x / np.sqrt(LD(2))) / 2,
        lambda x: erfc(-x / np.sqrt(LD(2))) / 2 + np.where(np.abs(x) > 200, 0, x) * normal_density(x),
        1.4, 1.5, 1.4, 1.4, near=1, slope_near=1,
    ),
    "quick_gelu": B(
        lambda x: x.quick_gelu(),
        lambda x: x * sigmoid(LD(1.702) * x),
        lambda x: silu_slope(LD(1.702) * x),
        88, 550, 1.7, 1.6, FADES, slope_near=1,
    ),
    "mish": B(lambda x: x.mish(), lambda x: x * np.tanh(softplus(x)), mish_slope, 4.3, 5.7, 1.6, 1.6, FADES, slope_near=1),
    "elu": B(lambda x: x.elu(), elu(1, 1), elu_slope(1, 1), 1.1, 1.2, 1.9, 2.1),
    "celu": B(
        lambda x: x.celu(2.0),
        lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0) / 2)),
        lambda x: np.where(x > 0, 1, np.exp(np.minimum(x, 0) / 2)),
        1.2, 1.2, 2, 2.1,
    ),
    "selu": B(lambda x: x.selu(), elu(1.67326, 1.0507), elu_slope(1.67326, 1.0507), 3.6, 2.5, 4.4, 4.3),
    "softsign": B(lambda x: x.softsign(), lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2, 1.6, 1.6, 3.9, 4),
    "hardsigmoid": B(
        lambda x: x.hardsigmoid(),
        lambda x: np.clip(x / 6 + LD(0.5), 0, 1),
        lambda x: np.where(np.abs(x) < 3, 1 / LD(6), 0),
        0.51, 0.51, 0.51, 0.51, near=1,
    ),
    "hardswish": B(
        lambda x: x.hardswish(),
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
        lambda x: np.where(x >= 3, 1, np.where(x > -3, (2 * x + 3) / 6, 0)),
        1.8, 1.8, 0.8, 0.8, near=1, slope_near=1,
    ),
}  # fmt: skip


# -- along rows: means, norms, losses ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoundedRow:
    """A method along the last axis of (ROWS, COLUMNS), its exact value, and bounds in ULP of the result or of `near`."""

    method: Callable[[Tensor], Tensor]
    exact: Exact
    value_float32: float
    value_float64: float
    near: Exact = lambda x: LD(0)


ROWS, COLUMNS = 48, 96
LABELS = np.arange(ROWS) * 7 % COLUMNS
TARGETS = np.linspace(0, 1, ROWS * COLUMNS).reshape(ROWS, COLUMNS)


def _labels() -> Tensor:
    return Tensor(LABELS.astype(np.int32))


def _targets(x: Tensor) -> Tensor:
    """In a type that holds the same numbers as `targets_of` makes."""
    return Tensor((np.round(TARGETS * 16) / 16).astype(np.float32)).cast(x.dtype)


def targets_of() -> Array:
    return (np.round(TARGETS * 16) / 16).astype(LD)


def chances_of() -> Array:
    return (np.round(TARGETS[::-1] * 14) + 1).astype(LD) / 16


def _chances(x: Tensor) -> Tensor:
    return Tensor(chances_of().astype(np.float32)).cast(x.dtype)


def _log_sum_exp(x: Array) -> Array:
    largest = x.max(-1, keepdims=True)
    return np.log(np.exp(x - largest).sum(-1, keepdims=True)) + largest


def _log_softmax(x: Array) -> Array:
    return x - _log_sum_exp(x)


def _centered(x: Array) -> Array:
    return x - x.mean(-1, keepdims=True)


def _variance(x: Array, correction: int) -> Array:
    return (_centered(x) ** 2).sum(-1, keepdims=True) / (x.shape[-1] - correction)


def _one(x: Array) -> Array:
    return LD(1)


def _picked(x: Array) -> Array:
    return np.take_along_axis(x, LABELS[:, None], -1)[:, 0]


def _smoothed(x: Array) -> Array:
    scores = _log_softmax(x)
    return -_picked(scores) * LD(0.75) - scores.mean(-1) * LD(0.25)


R = BoundedRow
ALONG_ROWS: dict[str, BoundedRow] = {
    "sum": R(lambda x: x.sum(-1), lambda x: x.sum(-1), 0.51, 0.51, lambda x: np.abs(x).sum(-1)),
    "mean": R(lambda x: x.mean(-1), lambda x: x.mean(-1), 0.51, 0.51, lambda x: np.abs(x).mean(-1)),
    "cumsum": R(lambda x: x.cumsum(-1), lambda x: x.cumsum(-1), 2.1, 1.8, lambda x: np.abs(x).cumsum(-1)),
    "var": R(lambda x: x.var(-1), lambda x: _variance(x, 1)[:, 0], 2.5, 2.5),
    "std": R(lambda x: x.std(-1), lambda x: np.sqrt(_variance(x, 1))[:, 0], 2, 2),
    "layernorm": R(
        lambda x: x.layernorm(), lambda x: _centered(x) / np.sqrt(_variance(x, 0) + LD(1e-5)), 3.1, 3.3, _one
    ),
    "normalize": R(
        lambda x: x.normalize(dim=-1), lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)), 2.5, 2.5
    ),
    "softmax": R(lambda x: x.softmax(), lambda x: np.exp(_log_softmax(x)), 74, 73),
    "log_softmax": R(lambda x: x.log_softmax(), _log_softmax, 1.5, 1.9, _one),
    "logsumexp": R(lambda x: x.logsumexp(-1), lambda x: _log_sum_exp(x)[:, 0], 1, 1.4, _one),
    "logcumsumexp": R(
        lambda x: x.logcumsumexp(-1), lambda x: np.logaddexp.accumulate(x, axis=-1), 2.3, 2.4, _one
    ),
    "cross_entropy": R(
        lambda x: x.cross_entropy(_labels(), "none"), lambda x: -_picked(_log_softmax(x)), 1.4, 1.4, _one
    ),
    "smoothed cross_entropy": R(
        lambda x: x.cross_entropy(_labels(), "none", 0.25), _smoothed, 2.5, 2.5, _one
    ),
    "sparse_categorical_crossentropy": R(
        lambda x: x.sparse_categorical_crossentropy(_labels(), reduction="none"),
        lambda x: -_picked(_log_softmax(x)), 1.4, 1.4, _one,
    ),
    "binary_crossentropy_logits": R(
        lambda x: x.binary_crossentropy_logits(_targets(x), "none"),
        lambda x: targets_of() * softplus(-x) + (1 - targets_of()) * softplus(x), 2.1, 2.4,
    ),
    "binary_crossentropy": R(
        lambda x: _chances(x).binary_crossentropy(_targets(x), "none"),
        lambda x: -targets_of() * np.log(chances_of()) - (1 - targets_of()) * np.log1p(-chances_of()),
        1.9, 2.1,
    ),
    "mse_loss": R(
        lambda x: x.mse_loss(_targets(x), "none"), lambda x: (x - targets_of()) ** 2, 2.2, 2.1
    ),
    "slope of cross_entropy": R(
        lambda x: x.cross_entropy(_labels(), "sum").gradient(x)[0],
        lambda x: np.exp(_log_softmax(x)) - (np.arange(COLUMNS) == LABELS[:, None]), 1.8, 2.4, _one,
    ),
}  # fmt: skip


def published() -> list[str]:
    """The lines of the tables in docs/numerics.md."""
    lines = []
    for name, row in FUNCTIONS.items():
        bounds = [row.value_float32, row.value_float64, row.slope_float32, row.slope_float64]
        near = [
            "tiny" if part == FADES else f"{part:g}" if part else ""
            for part in (row.near, row.slope_near)
        ]
        lines.append(
            f"| {name} | "
            + " | ".join([f"{bound:g}" for bound in bounds])
            + f" | {near[0]} | {near[1]} |"
        )
    for name, along in ALONG_ROWS.items():
        lines.append(f"| {name} | {along.value_float32:g} | {along.value_float64:g} |")
    return lines
