"""Seed lines D01 to D16: the operations that the documents name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from seed_lines import Count, differs, page, run_snippet

from proofgrad import Ops, ShapeError, Tensor, dtypes
from proofgrad.core.ir.ops import BINARY, CASTS, MOVEMENT, TERNARY, UNARY

CLOSE = 2e-6  # a few float32 roundings


def close(found: Tensor, expected: Any, tolerance: float = CLOSE) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


def test_D01_arithmetic_with_scalars_on_both_sides() -> None:
    """`+ - * / @ **`, scalars on both sides, types as they should be"""
    ran = run_snippet(
        """\
t = Tensor([1, 2, 3, 4])
# More complex operations
result = t + 3 + 4
print(result.tolist())   # [8, 10, 12, 14]
""",
        Tensor=Tensor,
    )
    assert ran.printed == ["[8, 9, 10, 11]"]  # 1 + 3 + 4 is 8, 2 + 3 + 4 is 9
    a = np.array([-3, 1, 2], np.int32)
    t = Tensor(a)
    for ours, theirs in [(3 * t, 3 * a), (t - 5, a - 5), (5 - t, 5 - a), (t**2, a**2), (-t, -a)]:
        assert ours.dtype is dtypes.int and ours.tolist() == theirs.tolist()
    assert (t / 2).dtype is dtypes.float and (t / 2).tolist() == [-1.5, 0.5, 1.0]
    assert (1.5 * t).dtype is dtypes.float and (2 / Tensor([4.0])).item() == 0.5
    close(Tensor([[1.0, 2.0]]) @ Tensor([[3.0], [4.0]]), [[11.0]])


UNARY_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0), "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "sin": np.sin, "neg": np.negative, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "log2": np.log2, "exp2": np.exp2, "reciprocal": lambda x: 1 / x,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_D02_functions_of_one_tensor(dtype: Any) -> None:
    """relu exp log sqrt sin neg sigmoid pow erf log2 exp2 recip cast"""
    from math import erf

    values = np.array([0.1, 0.5, 1.0, 2.0, 3.0, np.inf, np.nan], dtype)
    unit = float(np.finfo(dtype).eps)
    x = Tensor(values)
    with np.errstate(all="ignore"):
        found = {name: getattr(x, name)() for name in UNARY_FUNCTIONS}
        found["pow"], found["erf"] = x.pow(2), x.erf()
        Tensor.realize(*found.values())
        expected = {name: f(values.astype(np.float64)) for name, f in UNARY_FUNCTIONS.items()}
    expected["pow"] = values.astype(np.float64) ** 2
    expected["erf"] = np.array([erf(v) for v in values.astype(np.float64)])
    tolerance = 8 * unit if dtype is not np.float64 else 1e-6  # erf is made for float32
    for name, result in found.items():
        np.testing.assert_allclose(
            result.numpy(),
            expected[name].astype(dtype),
            rtol=tolerance,
            atol=tolerance,
            err_msg=name,
        )
    assert x.cast(dtypes.int)[:5].tolist() == [0, 0, 1, 2, 3]


def test_D03_functions_of_two_tensors() -> None:
    """add mul sub div pow cmpeq max mod cmplt, with the signs of Python's // and %"""
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([3, 3, -3, -3], np.int32)
    x, y = Tensor(a), Tensor(b)
    assert x.add(y).tolist() == (a + b).tolist()
    assert x.mul(y).tolist() == (a * b).tolist()
    assert x.sub(y).tolist() == (a - b).tolist()
    assert (x // y).tolist() == [2, -3, -3, 2]
    assert (x % y).tolist() == [1, 2, -2, -1]
    assert x.maximum(y).tolist() == [7, 3, 7, -3]
    assert (x < y).tolist() == [False, True, False, True]
    assert (x == Tensor([7, 7, -7, -7])).tolist() == [True, False, False, True]
    close(x.div(y), a / b)
    close(Tensor([2.0, 9.0]).pow(Tensor([3.0, 0.5])), [8.0, 3.0])


@differs("D-5", "`x.where(x > 0, y)` is refused, with `(x > 0).where(y, x)` as the hint")
def test_D04_where_takes_the_condition_first() -> None:
    """where (if/else), mulacc; one document has the operands of where in another order"""
    x = Tensor([-2.0, 3.0])
    assert (x > 0).where(x**3, x).tolist() == [-2.0, 27.0]
    with pytest.raises(TypeError, match=r"where"):
        run_snippet(
            """\
def custom_activation(x):
    # Forward: f(x) = x^3 if x > 0 else x
    return x.where(x > 0, x**3)

# Use in model
y = custom_activation(x)
""",
            x=x,
        )
    assert Ops.MULACC in TERNARY


def test_D05_reductions() -> None:
    """sum, sum(axis=0), max(axis=1, keepdim=True), mean"""
    ran = run_snippet(
        """\
x = Tensor([[1, 2], [3, 4]])
y = x.sum(axis=0)  # [4, 6]
z = x.sum()        # 10
m = x.max(axis=1, keepdim=True)
""",
        Tensor=Tensor,
    )
    assert ran["y"].tolist() == [4, 6] and ran["z"].item() == 10
    assert ran["m"].tolist() == [[2], [4]]
    assert ran["x"].max(axis=0).tolist() == [3, 4] and ran["x"].mean().item() == 2.5


def test_D06_matmul_in_three_ways() -> None:
    """`@`, `.dot`, and expand, multiply, sum: the same values in as many kernels"""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 5)).astype("f"), rng.normal(size=(5, 7)).astype("f")
    x, y = Tensor(a).realize(), Tensor(b).realize()
    found = [x @ y, x.dot(y), (x.reshape(6, 5, 1).expand(6, 5, 7) * y.reshape(1, 5, 7)).sum(axis=1)]
    counts = []
    for result in found:
        with Count() as kernels:
            close(result, a @ b, 1e-5)
        counts.append(kernels.count)
    assert counts[0] == counts[2] == 1 and counts[1] in (0, 1)  # `dot` is the same graph


def test_D07_shapes_change_without_kernels() -> None:
    """reshape permute expand unsqueeze squeeze T transpose, slices with steps, qkv[:, :, 0]"""
    a = np.arange(24.0).reshape(2, 3, 4)
    x = Tensor(a).realize()
    pairs = [
        (x.reshape(4, 6), a.reshape(4, 6)), (x.permute(2, 0, 1), a.transpose(2, 0, 1)),
        (x.unsqueeze(0), a[None]), (x[:1].squeeze(0), a[0]), (x[0].T, a[0].T),
        (x.transpose(0, 2), a.swapaxes(0, 2)), (x[1:3, :, ::2], a[1:3, :, ::2]),
        (x[:, :, 0], a[:, :, 0]), (x[:, ::-1], a[:, ::-1]),
    ]  # fmt: skip
    with Count() as kernels:
        Tensor.realize(*[view for view, _ in pairs])
    assert kernels.count == 0
    for view, expected in pairs:
        assert np.array_equal(view.numpy(), expected)


def test_D08_pad_shrink_flip() -> None:
    """pad, shrink, stride/flip"""
    a = np.arange(6).reshape(2, 3)
    x = Tensor(a)
    assert np.array_equal(x.pad(((1, 0), (0, 2))).numpy(), np.pad(a, ((1, 0), (0, 2))))
    assert np.array_equal(x.shrink(((0, 1), (1, 3))).numpy(), a[:1, 1:])
    assert np.array_equal(x.flip(1).numpy(), a[:, ::-1])
    assert np.array_equal(x[:, ::2].numpy(), a[:, ::2])


def test_D09_expand_adds_leading_axes() -> None:
    """`expand(2, 4, 4)` of (4, 4); `(10, 4, 8, 16)` of (4, 8, 16)"""
    a = np.arange(16).reshape(4, 4)
    assert np.array_equal(Tensor(a).expand(2, 4, 4).numpy(), np.broadcast_to(a, (2, 4, 4)))
    assert Tensor.randn(4, 8, 16).expand(10, 4, 8, 16).shape == (10, 4, 8, 16)


def test_D10_squeeze_of_a_long_axis_does_nothing() -> None:
    """`squeeze(0)` where axis 0 has more than one element"""
    assert Tensor.zeros(4, 4).squeeze(0).shape == (4, 4)
    assert Tensor.zeros(1, 4).squeeze(0).shape == (4,)


def test_D11_broadcasting_of_scalars_shows() -> None:
    """a scalar is CONST, RESHAPE, EXPAND in the graph"""
    t = Tensor([1, 2, 3, 4]).realize()
    ran = run_snippet("t_times_2 = t * 2\nprint(t_times_2.uop)", t=t)
    node = ran["t_times_2"].uop
    assert node.op is Ops.MUL and node.src[0] is t.uop
    expand = node.src[1]
    assert (expand.op, expand.shape) == (Ops.EXPAND, (4,))
    assert (expand.src[0].op, expand.src[0].shape) == (Ops.RESHAPE, (1,))
    constant = expand.src[0].src[0]
    assert (constant.op, constant.arg, constant.src) == (Ops.CONST, 2, ())
    run_snippet("assert t_times_2.tolist() == [2, 4, 6, 8]", t_times_2=ran["t_times_2"])


def test_D12_convolution_has_no_primitive() -> None:
    """`conv2d(weight, stride=)` without a primitive for convolution or matrix product"""
    assert not {name for name in Ops.__members__ if "CONV" in name or "MATMUL" in name}
    rng = np.random.default_rng(0)
    a, w = rng.normal(size=(1, 4, 7, 7)).astype("f"), rng.normal(size=(6, 2, 3, 3)).astype("f")
    found = Tensor(a).conv2d(Tensor(w), groups=2, stride=2, dilation=2, padding=1).numpy()
    padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for group in range(2):
        part = padded[0, 2 * group : 2 * group + 2]
        for o in range(3):
            for i in range(found.shape[2]):
                for j in range(found.shape[3]):
                    window = part[:, 2 * i : 2 * i + 5 : 2, 2 * j : 2 * j + 5 : 2]
                    expected = (window * w[3 * group + o]).sum()
                    assert abs(found[0, 3 * group + o, i, j] - expected) < 1e-5


def test_D13_functions_of_networks() -> None:
    """linear, sparse_categorical_crossentropy, max_pool2d, dropout, argmax"""
    x, w, b = Tensor([[1.0, 2.0]]), Tensor([[1.0, 0.0], [0.0, 3.0]]), Tensor([0.5, -0.5])
    assert x.linear(w, b).tolist() == [[1.5, 5.5]]
    logits = np.array([[2.0, 0.5, -1.0], [0.0, 1.0, 3.0]])
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    expected = -np.log((shifted / shifted.sum(1, keepdims=True))[[0, 1], [0, 2]]).mean()
    close(Tensor(logits).sparse_categorical_crossentropy(Tensor([0, 2])), expected)
    image = np.arange(16.0).reshape(1, 1, 4, 4)
    assert Tensor(image).max_pool2d().tolist() == [[[[5.0, 7.0], [13.0, 15.0]]]]
    assert Tensor([[1, 9, 2], [8, 3, 4]]).argmax(axis=1).tolist() == [1, 0]
    with Tensor.train():
        dropped = Tensor.ones(1000).dropout(0.25).numpy()
    assert (
        np.unique(dropped).tolist() == pytest.approx([0.0, 4 / 3])
        and 650 < (dropped > 0).sum() < 850
    )


def test_D14_assign_keeps_what_readers_saw() -> None:
    """`x.assign(x + 1)` after `realize()`; a reader built before keeps the old value"""
    x = Tensor([1.0, 2.0])
    reader = x * 10
    run_snippet(
        """\
# Creates new tensor
x = x + 1

# Modifies in-place (when safe)
x.realize()
x.assign(x + 1)
print(x.tolist())
""",
        x=x,
    )
    owned = x.realize()
    owned.assign(owned + 1)
    assert owned.tolist() == [2.0, 3.0] and reader.tolist() == [10.0, 20.0]
    with pytest.raises(ShapeError):
        owned.assign(Tensor([1.0, 2.0, 3.0]))


def test_D15_activation_of_ones_own_has_a_gradient() -> None:
    """f(x) = x³ if x > 0 else x: values and gradient"""
    x = Tensor([-2.0, 3.0], requires_grad=True)
    y = (x > 0).where(x**3, x)
    y.sum().backward()
    assert y.tolist() == [-2.0, 27.0]
    assert x.grad is not None
    close(x.grad, [1.0, 27.0])


@differs("D-14", "the table of primitives is made from the code; ours are not 16")
def test_D16_primitives_are_counted_from_the_code() -> None:
    """7 + 7 + 2 = 16 primitive operations"""
    text = page("ops.md")
    for name, ops in (("one source", UNARY), ("two sources", BINARY), ("three sources", TERNARY),
                      ("conversions", CASTS), ("movement", MOVEMENT)):  # fmt: skip
        assert f"| {name} | {len(ops)} |" in text
