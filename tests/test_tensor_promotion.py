"""Types of results: the lattice, weak scalars, accumulation."""

from __future__ import annotations

import numpy as np
import pytest
from tensors import machine

from proofgrad import DtypeError, Tensor, dtypes
from proofgrad.core.tensor.data.promotion import promote

__all__ = ["machine"]


def test_promotion_of_every_pair_is_symmetric_and_idempotent() -> None:
    for a in dtypes.all:
        for b in dtypes.all:
            assert promote(a, b) is promote(b, a)
            assert promote(promote(a, b), a) is promote(a, b) or {a, b} == {
                dtypes.int64,
                dtypes.uint64,
            }


def test_the_default_float_is_that_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = Tensor([1], dtype="int64"), Tensor([1], dtype="uint64")
    assert (x + y).dtype is dtypes.float32
    monkeypatch.setattr(dtypes, "default_float", dtypes.float64)
    assert (x + y).dtype is promote(dtypes.uint64, dtypes.int64) is dtypes.float64


FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "round", "floor", "ceil", "trunc", "sigmoid", "softplus", "gelu", "silu", "elu", "mish", "softsign",
    "softmax", "log_softmax", "logsumexp", "logcumsumexp", "std", "mean", "normalize", "layernorm", "hardtanh", "sign", "square",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("default", ["float16", "bfloat16", "float64"])
def test_a_function_of_named_floats_does_not_depend_on_the_default_float(
    name: str, default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`x.round()` added 2**23 of the default type, which is infinite in float16, and Adam rounds a number of steps."""
    values = {
        kind: np.array([[0.001, -0.3, 1.5], [0.7, 2.5, -7.25]], kind)
        for kind in ("float32", "float64")
    }
    expected = {kind: getattr(Tensor(value), name)() for kind, value in values.items()}
    numbers = {kind: result.numpy() for kind, result in expected.items()}
    monkeypatch.setattr(dtypes, "default_float", getattr(dtypes, default))
    for kind, value in values.items():
        found = getattr(Tensor(value), name)()
        assert found.dtype is expected[kind].dtype
        np.testing.assert_array_equal(found.numpy(), numbers[kind])


def test_promotion_of_integers_agrees_with_numpy_where_an_integer_holds_both() -> None:
    for a in dtypes.ints:
        for b in dtypes.ints:
            theirs = np.promote_types(a.name, b.name)
            if theirs.kind in "iu":
                assert promote(a, b).name == theirs.name


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (dtypes.int8, dtypes.uint8, dtypes.int16),
        (dtypes.int64, dtypes.float16, dtypes.float16),
        (dtypes.float16, dtypes.bfloat16, dtypes.float32),
        (dtypes.int64, dtypes.uint64, dtypes.float32),
        (dtypes.bool, dtypes.int8, dtypes.int8),
    ],
)
def test_promotion_of_a_pair_is_the_least_type_above(left, right, expected) -> None:
    assert promote(left, right) is expected


@pytest.mark.parametrize(
    ("dtype", "scalar", "expected"),
    [
        ("int8", 1, "int8"),
        ("uint8", True, "uint8"),
        ("int8", 1.5, "float32"),
        ("float16", 1.5, "float16"),
        ("float64", 1, "float64"),
        ("bool", 1, "int32"),
        ("bool", True, "bool"),
        ("bool", 1.0, "float32"),
    ],
)
def test_scalar_takes_the_type_of_the_tensor_where_it_can(dtype, scalar, expected) -> None:
    assert (Tensor([1], dtype=dtype) * scalar).dtype.name == expected


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("bool", "int32"), ("int8", "int32"), ("uint8", "uint32"), ("int64", "int64"),
     ("float16", "float16")],
)  # fmt: skip
def test_sum_widens_small_integers(dtype: str, expected: str) -> None:
    assert Tensor([1], dtype=dtype).sum().dtype.name == expected


def test_division_and_functions_of_integers_give_floats() -> None:
    x = Tensor([1, 2])
    assert {(x / 2).dtype, x.sqrt().dtype, x.exp().dtype, x.mean().dtype} == {dtypes.float32}


def test_sum_of_small_floats_accumulates_wider(machine: str) -> None:
    ones = Tensor.ones(4096, dtype="float16")
    assert ones.sum().item() == 4096.0  # float16 alone would stop at 2048


def test_scalar_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OverflowError, match="1000 does not fit int8"):
        Tensor([1], dtype="int8") + 1000


def test_bitwise_on_floats_is_refused() -> None:
    with pytest.raises(DtypeError, match="& takes bools and integers"):
        Tensor([1.0]) & 1
    with pytest.raises(DtypeError, match="cannot negate bools"):
        -Tensor([True])


def test_a_number_in_where_takes_the_type_of_the_other() -> None:
    chosen = Tensor([True, False]).where(Tensor(1), Tensor([5, 6], dtype="int8"))
    assert chosen.dtype is dtypes.int8 and chosen.tolist() == [1, 6]


def test_const_of_several_numbers_is_a_line() -> None:
    assert Tensor.const((1, 2)).tolist() == [1, 2] and Tensor.const(3.5).shape == ()
    assert Tensor.const((1, 2), dtype="half").dtype is dtypes.half
