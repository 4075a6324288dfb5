"""Elementwise methods against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensors import assert_close, assert_same, machine, numbers

from proofgrad import Context, Tensor, dtypes

__all__ = ["machine"]
Array = np.ndarray[Any, Any]

EXACT_UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "trunc": np.trunc,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "square": np.square,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "reciprocal": np.reciprocal,
    "sign": np.sign,
    "relu": lambda x: np.where(x <= 0, np.float32(0), x),
}
SPECIAL = np.array(
    [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e30, -1e30, 8388609.5, np.inf, -np.inf, np.nan, 0.3],
    np.float32,
)


@pytest.mark.parametrize("name", EXACT_UNARY)
def test_unary_on_special_values_gives_the_bits_of_numpy(machine: str, name: str) -> None:
    with np.errstate(all="ignore"):
        expected = EXACT_UNARY[name](SPECIAL)
    assert_same(getattr(Tensor(SPECIAL), name)(), expected)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


CLOSE_UNARY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "logsigmoid": lambda x: -np.log1p(np.exp(-x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "leaky_relu": lambda x: np.where(x < 0, x * 0.01, x),
    "relu6": lambda x: np.clip(x, 0, 6),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "hardsigmoid": lambda x: np.clip((x + 3) / 6, 0, 1),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "erf": erf,
}


@pytest.mark.parametrize("name", CLOSE_UNARY)
def test_function_of_one_value_agrees_with_numpy(machine: str, name: str) -> None:
    x = numbers(40, low=-4, high=4)
    wide = CLOSE_UNARY[name](x.astype(np.float64))
    assert_close(getattr(Tensor(x), name)(), wide)


@pytest.mark.parametrize("name", ["log", "log2", "log10", "rsqrt"])
def test_function_of_a_positive_value_agrees_with_numpy(machine: str, name: str) -> None:
    x = numbers(40, low=0.01, high=50)
    functions = {"log": np.log, "log2": np.log2, "log10": np.log10, "rsqrt": lambda v: v**-0.5}
    assert_close(getattr(Tensor(x), name)(), functions[name](x.astype(np.float64)))


def test_log_outside_its_domain_is_minus_infinity_or_nan(machine: str) -> None:
    assert_same(Tensor([0.0, -1.0]).log(), np.array([-np.inf, np.nan], np.float32))


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "softplus", "silu"])
def test_activation_of_huge_values_does_not_overflow(machine: str, name: str) -> None:
    found = getattr(Tensor([-1e4, 1e4]), name)().tolist()
    expected = {"sigmoid": [0, 1], "tanh": [-1, 1], "softplus": [0, 1e4], "silu": [0, 1e4]}[name]
    assert found == pytest.approx(expected, abs=1e-30)


EXACT_BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "+": (lambda a, b: a + b, np.add),
    "-": (lambda a, b: a - b, np.subtract),
    "*": (lambda a, b: a * b, np.multiply),
    "<": (lambda a, b: a < b, np.less),
    "<=": (lambda a, b: a <= b, np.less_equal),
    ">": (lambda a, b: a > b, np.greater),
    ">=": (lambda a, b: a >= b, np.greater_equal),
    "==": (lambda a, b: a == b, np.equal),
    "!=": (lambda a, b: a != b, np.not_equal),
}


@pytest.mark.parametrize("name", EXACT_BINARY)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float32", "float64"])
def test_operator_gives_the_bits_of_numpy(machine: str, name: str, dtype: str) -> None:
    ours, theirs = EXACT_BINARY[name]
    line = SPECIAL.astype(dtype) if dtype.startswith("float") else np.arange(-7, 8).astype(dtype)
    a, b = line.reshape(-1, 1), line.reshape(1, -1)
    with np.errstate(all="ignore"):
        expected = theirs(a, b)
    assert_same(ours(Tensor(a), Tensor(b)), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integer_division_floors_and_by_zero_is_zero(machine: str, dtype: str) -> None:
    line = np.array([-128 if dtype == "int8" else 0, -7, -3, -1, 0, 1, 2, 7]).astype(dtype)
    a, b = line.reshape(-1, 1), line.reshape(1, -1)
    with np.errstate(all="ignore"):
        quotient, rest = a // b, a % b
    assert_same(Tensor(a) // Tensor(b), quotient)
    assert_same(Tensor(a) % Tensor(b), rest)


def test_division_rounding_modes_differ_on_negative_numbers(machine: str) -> None:
    a, b = Tensor([-7, 7, -7, 7]), Tensor([2, 2, -2, -2])
    assert a.div(b, rounding_mode="trunc").tolist() == [-3, 3, 3, -3]
    assert a.div(b, rounding_mode="floor").tolist() == [-4, 3, 3, -4]
    assert (a / b).tolist() == [-3.5, 3.5, 3.5, -3.5]


def test_float_remainder_has_the_sign_of_the_divisor(machine: str) -> None:
    a, b = np.array([5.5, -5.5, 5.5, -5.5], "f"), np.array([2, 2, -2, -2], "f")
    assert_same(Tensor(a) % Tensor(b), a % b)
    assert_same(Tensor(a) // Tensor(b), a // b)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "bool"])
def test_bit_operators_agree_with_numpy(machine: str, dtype: str) -> None:
    line = np.arange(-4, 5).astype(dtype)
    a, b = line.reshape(-1, 1), line.reshape(1, -1)
    assert_same(Tensor(a) & Tensor(b), a & b)
    assert_same(Tensor(a) | Tensor(b), a | b)
    assert_same(Tensor(a) ^ Tensor(b), a ^ b)
    assert_same(~Tensor(line), ~line)


def test_shift_by_the_width_or_more_leaves_only_the_sign(machine: str) -> None:
    x = Tensor([1, -1, 5], dtype="int8")
    assert (x << 3).tolist() == [8, -8, 40]
    assert (x << 8).tolist() == [0, 0, 0]
    assert (x >> 1).tolist() == [0, -1, 2]
    assert (x >> 100).tolist() == [0, -1, 0]


def test_bool_arithmetic_is_logic_as_in_numpy(machine: str) -> None:
    a, b = np.array([True, True, False]), np.array([True, False, False])
    assert_same(Tensor(a) + Tensor(b), a + b)
    assert_same(Tensor(a) * Tensor(b), a * b)
    assert_same(Tensor(a).maximum(Tensor(b)), np.maximum(a, b))


def test_maximum_and_minimum_pass_nan_on_and_order_zeros(machine: str) -> None:
    a, b = Tensor([0.0, -0.0, math.nan, 1.0]), Tensor([-0.0, 0.0, 1.0, math.nan])
    assert_same(a.maximum(b), np.array([0.0, 0.0, np.nan, np.nan], "f"))
    assert_same(a.minimum(b), np.array([-0.0, -0.0, np.nan, np.nan], "f"))


def test_clip_keeps_values_between_its_bounds(machine: str) -> None:
    x = numbers(20)
    assert_same(Tensor(x).clip(-1, 1), np.clip(x, -1, 1))
    assert_same(Tensor(x).clip(max_=0.5), np.minimum(x, np.float32(0.5)))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 7])
def test_whole_power_agrees_with_numpy(machine: str, exponent: int) -> None:
    x = numbers(10)
    assert_close(Tensor(x) ** exponent, x.astype(np.float64) ** exponent)


def test_power_of_special_bases_follows_ieee(machine: str) -> None:
    base = np.array([0, -0.0, 0, 1, -8, -8, 4, np.inf, np.nan, 2, -np.inf], np.float32)
    power = np.array([2.5, 2.5, -1.5, np.nan, 3, 0.5, 0.5, 2, 0, -np.inf, 0.5], np.float32)
    with np.errstate(all="ignore"):
        expected = base**power
    np.testing.assert_allclose((Tensor(base) ** Tensor(power)).numpy(), expected, rtol=1e-5)


def test_integer_power_wraps_like_numpy(machine: str) -> None:
    base, power = np.array([2, -3, 7, 10], "int32"), np.array([10, 3, 0, 15], "int32")
    assert_same(Tensor(base) ** Tensor(power), base**power)
    assert (2 ** Tensor([0, 1, 5])).tolist() == [1, 2, 32]


def test_scalars_on_the_left_keep_their_side(machine: str) -> None:
    x = Tensor([1.0, 2.0, 4.0])
    assert (10 - x).tolist() == [9.0, 8.0, 6.0]
    assert (8 / x).tolist() == [8.0, 4.0, 2.0]
    assert (2**x).tolist() == [2.0, 4.0, 16.0]
    assert (7 // Tensor([2, 3])).tolist() == [3, 2]
    assert (7 % Tensor([2, 4])).tolist() == [1, 3]
    assert (1 << Tensor([0, 3])).tolist() == [1, 8]


def test_where_broadcasts_and_promotes(machine: str) -> None:
    x = Tensor([[1, -2], [-3, 4]])
    assert (x > 0).where(x, 0).tolist() == [[1, 0], [0, 4]]
    assert (x > 0).where(x, Tensor([0.5, 1.5])).tolist() == [[1.0, 1.5], [0.5, 4.0]]
    assert (x > 0).where(1, 0).dtype is dtypes.int32


def test_infinities_cancel_to_nan_as_ieee_says(machine: str) -> None:
    inf = Tensor([math.inf])
    assert math.isnan((inf * 0).item())
    assert math.isnan((inf - inf).item())
    assert math.isnan((Tensor([0.0]) / 0).item())
    assert math.copysign(1, (Tensor([-0.0]) + 0.0).item()) == 1


@pytest.mark.parametrize("source", dtypes.all)
@pytest.mark.parametrize("target", dtypes.all)
def test_cast_of_small_numbers_keeps_their_value(machine: str, source: Any, target: Any) -> None:
    values = [0, 1, 1] if target.is_bool or source.is_bool else [0, 1, 5]
    found = Tensor(values, dtype=source).cast(target)
    assert found.dtype is target
    assert found.tolist() == values


def test_cast_of_floats_to_integers_saturates(machine: str) -> None:
    x = Tensor([300.0, -300.0, math.nan, math.inf, 2.9, -2.9])
    assert x.cast("int8").tolist() == [127, -128, 0, 127, 2, -2]
    assert x.cast("uint8").tolist() == [255, 0, 0, 255, 2, 0]


def test_bitcast_reads_the_same_bits(machine: str) -> None:
    assert Tensor([1.0, -2.0]).bitcast("uint32").tolist() == [0x3F800000, 0xC0000000]
    assert Tensor([1.0, -2.0]).bitcast("uint8").tolist() == [0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0]
    assert Tensor([0, 0, 0x80, 0x3F], dtype="uint8").bitcast("float32").tolist() == [1.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_arithmetic_of_small_floats_rounds_after_each_operation(machine: str, dtype: str) -> None:
    x = Tensor([1.0, 256.0, 0.1], dtype=dtype)
    y = Tensor([0.0009765625, 1.0, 0.2], dtype=dtype)
    wide = [x.cast("float32"), y.cast("float32")]
    assert (x + y).tolist() == (wide[0] + wide[1]).cast(dtype).tolist()
    assert (x * y).tolist() == (wide[0] * wide[1]).cast(dtype).tolist()


def test_isclose_counts_equal_infinities_as_close(machine: str) -> None:
    a = Tensor([1.0, math.inf, math.inf, math.nan])
    b = Tensor([1.000001, math.inf, 1.0, math.nan])
    assert a.isclose(b).tolist() == [True, True, False, False]


@pytest.mark.parametrize("laws", ["", "real"])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_round_up_to_where_floats_have_no_fractions_gives_the_bits_of_numpy(
    kind: str, laws: str
) -> None:
    end = 1 / np.finfo(kind).eps
    around = np.concatenate([[end / 4 + k / 8, end + k / 2] for k in range(-8, 9)])
    values = np.concatenate([np.arange(-40, 40) / 8, around, -around, SPECIAL[-4:]]).astype(kind)
    with Context(FASTMATH=laws):
        assert_same(Tensor(values).round(), np.round(values))
