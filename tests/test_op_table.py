"""Every operation x type x edge value against numpy, and torch where it is installed; gradients.

The run prints how much was compared. The table is tests/op_table.py.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np
import op_table
import pytest
from op_table import COUNT, OPS, Op, as_tensor, compare, edge_values, wide

from proofgrad import Tensor, dtypes, gradcheck
from proofgrad.core.ir.dtypes import DType

ROWS = [(op, dtype) for op in OPS for dtype in op.types]
BY_NAME = {op.name: op for op in OPS}


def operands(op: Op, dtype: DType) -> list[Any]:
    """All edge values, or all pairs of them as a table."""
    values = edge_values(dtype)
    if op.arguments == 1:
        return [values]
    size = len(values)
    return [np.repeat(values, size).reshape(size, size), np.tile(values, size).reshape(size, size)]


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("arguments", [1, 2])
def test_every_operation_on_edge_values_is_what_numpy_says(dtype: DType, arguments: int) -> None:
    rows = [op for op in OPS if dtype in op.types and op.arguments == arguments]
    given = operands(rows[0], dtype)
    tensors = [as_tensor(part, dtype).realize() for part in given]
    results = [op.ours(*tensors) for op in rows]
    for op, result in zip(rows, results):
        assert result.dtype is op_table.result_type(op, dtype), op.name
    results[0].realize(*results[1:])
    with np.errstate(all="ignore"):
        references = [op.reference(*[wide(op, part, dtype) for part in given]) for op in rows]
    for op, result, reference in zip(rows, results, references):
        compare(op, dtype, result.numpy(), reference)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int16, dtypes.bool], ids=lambda d: d.name)
def test_every_operation_on_no_element_and_on_a_number(dtype: DType) -> None:
    for op in (op for op in OPS if dtype in op.types):
        kind = op_table.result_type(op, dtype)
        empty = [Tensor.zeros(2, 0, dtype=dtype)] * op.arguments
        found = op.ours(*empty)
        assert (found.shape, found.dtype, found.tolist()) == ((2, 0), kind, [[], []]), op.name
        one = [np.ones((), dtype.name)] * op.arguments
        with np.errstate(all="ignore"):
            exact = op.reference(*[wide(op, part, dtype) for part in one])
        compare(op, dtype, op.ours(*map(Tensor, one)).numpy(), np.asarray(exact))


# -- casts --------------------------------------------------------------------------------------------


def cast_reference(values: Any, source: DType, target: DType) -> Any:
    """docs of Ops.CAST: saturating, towards zero, NaN gives 0; integers wrap."""
    if target.is_bool:
        return values != 0
    if target.is_float or not source.is_float:
        return values
    low, high = dtypes.min(target), dtypes.max(target)
    number = [_saturated(v, low, high) for v in values.tolist()]
    return np.array(number, object)


def _saturated(value: float, low: int, high: int) -> int:
    if np.isnan(value):
        return 0
    return int(min(max(value, low), high)) if np.isfinite(value) else high if value > 0 else low


@pytest.mark.parametrize("source", dtypes.all, ids=lambda dtype: dtype.name)
def test_every_cast_of_edge_values(source: DType) -> None:
    values = edge_values(source)
    tensor = as_tensor(values, source).realize()
    for target in dtypes.all:
        with np.errstate(all="ignore"):
            exact = cast_reference(values, source, target)
            op = Op(f"cast to {target}", Tensor.cast, lambda x: x, dtypes.all)
            compare(op, target, tensor.cast(target).numpy(), exact)


# -- torch ----------------------------------------------------------------------------------------------

TORCH_MEANS_SOMETHING_ELSE = {
    "sign": "NaN gives 0",
    "selu": "has more digits of its constants than tinygrad",
    "where": "takes a condition",
    "add": "the same as numpy, compared above",
    "relu6": "is in torch.nn.functional",
}


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_operations_that_torch_has_by_the_same_name_agree(dtype: DType) -> None:
    torch = pytest.importorskip("torch")
    positions = (torch, torch.nn.functional)
    for op in (op for op in OPS if dtype in op.types and op.name not in TORCH_MEANS_SOMETHING_ELSE):
        theirs = next(
            (getattr(position, op.name) for position in positions if hasattr(position, op.name)),
            None,
        )
        if theirs is None:
            continue
        values = edge_values(dtype)
        values = values[np.isfinite(values) & (np.abs(values) < 50)]
        given = [values] if op.arguments == 1 else [np.repeat(values, 5), np.tile(values, 5)]
        expected = theirs(*map(torch.tensor, given)).numpy()
        found = op.ours(*map(Tensor, given)).numpy()
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-37, err_msg=op.name)
        COUNT.by_torch += found.size


# -- reductions -----------------------------------------------------------------------------------------

REDUCTIONS: dict[
    str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any], tuple[DType, ...]]
] = {
    "sum": (lambda t: t.sum(1), lambda x: x.sum(1), op_table.INTS),
    "prod": (lambda t: t.prod(1), lambda x: x.prod(1), op_table.INTS),
    "max": (lambda t: t.max(1), lambda x: x.max(1), dtypes.all),
    "min": (lambda t: t.min(1), lambda x: x.min(1), dtypes.all),
    "any": (lambda t: t.any(1), lambda x: x.astype(bool).any(1), dtypes.all),
    "all": (lambda t: t.all(1), lambda x: x.astype(bool).all(1), dtypes.all),
    "argmax": (lambda t: t.argmax(1), lambda x: x.argmax(1).astype(np.int32), dtypes.all),
    "argmin": (lambda t: t.argmin(1), lambda x: x.argmin(1).astype(np.int32), dtypes.all),
    "cummax": (lambda t: t.cummax(1)[0], lambda x: np.maximum.accumulate(x, 1), dtypes.all),
    "sort": (lambda t: t.sort(1)[0], lambda x: np.sort(x, 1), dtypes.all),
}


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_every_reduction_of_edge_values_is_what_numpy_says(dtype: DType) -> None:
    values = edge_values(dtype)
    table = np.stack([np.roll(values, k) for k in range(3)])
    table = np.concatenate([table, table[:, :2]], 1)
    tensor = as_tensor(table, dtype).realize()
    for name, (ours, reference, types) in REDUCTIONS.items():
        if dtype not in types:
            continue
        found, expected = ours(tensor).numpy(), reference(table)
        if name in ("sum", "prod"):  # small integers widen to 32 bits, and all wrap
            expected = expected.astype(found.dtype)
        np.testing.assert_array_equal(found, expected, err_msg=f"{name} of {dtype}")
        COUNT.pairs += 1
        COUNT.values += found.size


def names_in(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


# -- gradients --------------------------------------------------------------------------------------------

A, B, SQUARE = Tensor([0.3, -0.7, 1.9]), Tensor([1.3, 0.4, -2.2]), Tensor([[2.0, 0.5], [0.3, 1.5]])
INSIDE, POSITIVE = Tensor([0.3, -0.7, 0.9]), Tensor([0.3, 0.7, 1.9])
IMAGE = Tensor([[[[0.1, 0.9, -0.4], [1.2, -0.3, 0.8], [0.5, 0.7, -1.1]]]])
KERNEL = Tensor([[[[0.5, -1.0], [0.25, 2.0]]]])
ROWS_OF = Tensor([[0.1, 1.2, -0.4], [0.9, -1.5, 0.3]])
ZEROS = Tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]], dtype="float64")
LABELS = Tensor([2, 0])
POSITIONS = Tensor([[0, 2], [1, 1]])

SMOOTH = names_in(
    """
    neg abs square exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh erf softsign relu relu6
    leaky_relu elu celu selu silu swish mish gelu quick_gelu sigmoid hardsigmoid hardswish
    hardtanh logsigmoid softplus sum mean var std logsumexp softmax log_softmax softmin cumsum
    logcumsumexp max min flatten contiguous clone layernorm
    """
)

DIFFERENTIABLE: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    **{
        name: (methodcaller(name), [A])
        for name in SMOOTH
    },
    **{
        name: (methodcaller(name), [POSITIVE])
        for name in ["sqrt", "rsqrt", "reciprocal", "log", "log2", "log10", "log1p"]
    },
    **{name: (methodcaller(name), [INSIDE]) for name in ("asin", "acos", "atanh")},
    "acosh": (lambda x: (x + 1.5).acosh(), [POSITIVE]),
    "add": (lambda x, y: x + y, [A, B]),
    "sub": (lambda x, y: x - y, [A, B]),
    "mul": (lambda x, y: x * y, [A, B]),
    "div": (lambda x, y: x / y, [A, B]),
    "mod": (lambda x: x % 0.4, [A]),
    "fmod": (lambda x: x.fmod(0.4), [A]),
    "pow": (lambda x, y: x**y + x**3 + x**-2 + 2.0**y, [POSITIVE, B]),
    "maximum": (lambda x, y: x.maximum(y), [A, B]),
    "minimum": (lambda x, y: x.minimum(y), [A, B]),
    "clamp": (lambda x: x.clamp(-0.5, 1.0), [A]),
    "clip": (lambda x: x.clip(-0.5, 1.0), [A]),
    "copysign": (lambda x, y: x.copysign(y), [A, B]),
    "fma": (lambda x, y: x.fma(y, x) + y.fma(2.0, x), [A, B]),
    "logaddexp": (lambda x, y: x.logaddexp(y), [A, B]),
    "lerp": (lambda x, y: x.lerp(y, 0.3), [A, B]),
    "where": (lambda x, y: (x > 0).where(x, y), [A, B]),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 2.0), [A]),
    "usum": (lambda x, y: x.usum(y, y), [A, B]),
    "uprod": (lambda x, y: x.uprod(y, y), [A, B]),
    "cast": (lambda x: x.cast("float64"), [A]),
    "prod": (lambda x: (x * ZEROS).prod(1), [ROWS_OF]),
    "cumprod": (lambda x: (x * ZEROS).cumprod(1), [ROWS_OF]),
    "normalize": (lambda x: x.normalize(), [ROWS_OF]),
    "var_mean": (lambda x: x.var_mean(1)[0] + x.var_mean(1)[1], [ROWS_OF]),
    "std_mean": (lambda x: x.std_mean(1)[0] * x.std_mean(1)[1], [ROWS_OF]),
    "cummax": (lambda x: x.cummax(1)[0], [ROWS_OF]),
    "cummin": (lambda x: x.cummin(1)[0], [ROWS_OF]),
    "sort": (lambda x: x.sort(1)[0], [ROWS_OF]),
    "topk": (lambda x: x.topk(2)[0], [ROWS_OF]),
    "reshape": (lambda x: x.reshape(3, 2).square(), [ROWS_OF]),
    "view": (lambda x: x.view(6).square(), [ROWS_OF]),
    "permute": (lambda x: x.permute(1, 0), [ROWS_OF]),
    "transpose": (lambda x: x.transpose(), [ROWS_OF]),
    "expand": (lambda x: x.unsqueeze(0).expand(2, 2, 3), [ROWS_OF]),
    "flip": (lambda x: x.flip(0), [ROWS_OF]),
    "shrink": (lambda x: x.shrink(((0, 1), (1, 3))), [ROWS_OF]),
    "shrink_to": (lambda x: x.shrink_to(1, 2), [ROWS_OF]),
    "pad": (lambda x: x.pad((1, 1), mode="reflect"), [ROWS_OF]),
    "pad_to": (lambda x: x.pad_to(3, 4, value=2.0), [ROWS_OF]),
    "squeeze": (lambda x: x.unsqueeze(0).squeeze(), [ROWS_OF]),
    "unsqueeze": (lambda x: x.unsqueeze(1), [ROWS_OF]),
    "unflatten": (lambda x: x.unflatten(1, (3, 1)), [ROWS_OF]),
    "rearrange": (lambda x: x.rearrange("a b -> (b a)"), [ROWS_OF]),
    "split": (lambda x: x.split([1, 2], 1)[1], [ROWS_OF]),
    "chunk": (lambda x: x.chunk(2, 1)[0], [ROWS_OF]),
    "stack": (lambda x, y: x.stack(y, dim=1), [A, B]),
    "cat": (lambda x, y: x.cat(y), [A, B]),
    "repeat": (lambda x: x.repeat(2, 1), [ROWS_OF]),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), [ROWS_OF]),
    "meshgrid": (lambda x, y: x.meshgrid(y)[0] * x.meshgrid(y)[1], [A, B]),
    "diag": (lambda x: x.diag(), [A]),
    "diagonal": (lambda x: x.diagonal(1), [ROWS_OF]),
    "roll": (lambda x: x.roll(1, 1), [ROWS_OF]),
    "unfold": (lambda x: x.unfold(1, 2, 1), [ROWS_OF]),
    "gather": (lambda x: x.gather(1, POSITIONS), [ROWS_OF]),
    "getitem": (lambda x: x[:, [2, 0, 2]], [ROWS_OF]),
    "scatter": (lambda x, y: x.scatter(1, POSITIONS, y.unsqueeze(0).expand(2, 3)), [ROWS_OF, B]),
    "scatter_reduce": (lambda x: x.scatter_reduce(1, POSITIONS, x, "mean"), [ROWS_OF]),
    "masked_select": (lambda x: x.masked_select(POSITIONS.eq(1).pad((0, 1))), [ROWS_OF]),
    "triu": (lambda x: x.triu(), [ROWS_OF]),
    "tril": (lambda x: x.tril(), [ROWS_OF]),
    "dot": (lambda x, y: x.dot(y), [ROWS_OF, B]),
    "matmul": (lambda x, y: x.matmul(y), [SQUARE, ROWS_OF]),
    "einsum": (lambda x, y: Tensor.einsum("ij,jk->k", x, y), [SQUARE, ROWS_OF]),
    "linear": (lambda x, y: y.linear(x.T, x[:, 0]), [ROWS_OF, ROWS_OF * 2]),
    "conv2d": (lambda x, w: x.conv2d(w, padding=1, stride=2), [IMAGE, KERNEL]),
    "conv_transpose2d": (lambda x, w: x.conv_transpose2d(w, stride=2), [IMAGE, KERNEL]),
    "avg_pool2d": (lambda x: x.avg_pool2d(2, 1, ceil_mode=True), [IMAGE]),
    "max_pool2d": (lambda x: x.max_pool2d(2, 1), [IMAGE]),
    "max_unpool2d": (
        lambda x: x.max_pool2d(2).max_unpool2d(x.max_pool2d(2, return_indices=True)[1]), [IMAGE],
    ),
    "interpolate": (lambda x: x.interpolate((4, 5)), [IMAGE]),
    "sequential": (lambda x: x.sequential([Tensor.tanh, Tensor.exp]), [A]),
    "batchnorm": (lambda x, m: x.batchnorm(m, m, m * 0.5, m.square()), [ROWS_OF, B]),
    "scaled_dot_product_attention": (
        lambda q, k: q.scaled_dot_product_attention(k, k, is_causal=True), [ROWS_OF, ROWS_OF * 2],
    ),
    "binary_crossentropy": (lambda x: x.sigmoid().binary_crossentropy(INSIDE.abs()), [A]),
    "binary_crossentropy_logits": (lambda x: x.binary_crossentropy_logits(INSIDE.abs(), pos_weight=POSITIVE), [A]),
    "sparse_categorical_crossentropy": (lambda x: x.sparse_categorical_crossentropy(LABELS), [ROWS_OF]),
    "cross_entropy": (lambda x: x.cross_entropy(LABELS, label_smoothing=0.1), [ROWS_OF]),
    "nll_loss": (lambda x: x.log_softmax().nll_loss(LABELS), [ROWS_OF]),
    "qr": (lambda x: x.qr()[0] @ x.qr()[1].square(), [SQUARE]),
    "svd": (lambda x: x.svd()[1], [SQUARE]),
    "norm": (lambda x: x.norm(3, 1), [ROWS_OF]),
    "rfft": (lambda x: x.rfft().square(), [ROWS_OF]),
    "newton_schulz": (lambda x: x.newton_schulz(2, (2, -1.5, 0.5)), [SQUARE]),
    "half": (lambda x: x.half().double() * 0 + x, [A]),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_agrees_with_differences_in_float64(name: str) -> None:
    function, inputs = DIFFERENTIABLE[name]
    assert gradcheck(function, inputs, tolerance=3e-6)
    COUNT.gradients += 1


NOT_DIFFERENTIABLE = names_in(
    """
    logical_not bitwise_not bitwise_and bitwise_or bitwise_xor lshift rshift eq ne isnan isinf
    isfinite isclose allclose any all argmax argmin argsort nonzero one_hot multinomial threefry
    bitcast int bool short long sign trunc ceil floor round alu ufix detach float
    double bfloat16
    """
)
FACTORIES_AND_ACCESS = names_in(
    """
    shape dtype device ndim grad uop T is_param numel nbytes element_size size is_floating_point
    max_shape max_numel data item tolist numpy empty empty_like invalids full full_like zeros
    zeros_like ones ones_like arange linspace eye const const_like from_blob from_url
    manual_seed rand rand_like randn randn_like randint normal uniform scaled_uniform
    glorot_uniform kaiming_uniform kaiming_normal randperm dropout random_bits realize replace
    assign to to_ backward gradient is_param_
    """
)


def test_every_method_has_its_gradient_checked_or_has_none() -> None:
    from test_tensor_api import NAMES

    covered = {*DIFFERENTIABLE, *NOT_DIFFERENTIABLE, *FACTORIES_AND_ACCESS}
    assert sorted(set(NAMES) - covered) == []


def test_every_method_on_elements_is_in_the_table() -> None:
    from test_tensor_api import ELEMENTWISE

    names = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
    # Absolute bounds, several arguments, or no function of numpy.
    tested_elsewhere = names_in("tan clamp clip lerp gelu quick_gelu masked_fill")
    tested_elsewhere += names_in("threefry alu usum uprod ufix")
    listed = {names.get(name, name) for name in ELEMENTWISE.split()}
    assert sorted(listed - set(BY_NAME) - set(tested_elsewhere)) == []
