"""Which methods show the elements of a Tensor, so that a write goes through, and which give new values.

A method is one or the other by its name, never by the values of its arguments: a roll by 0 is as new as
a roll by 1. The tables below have every public method; a new one has to be put into one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proofgrad import Tensor, UOp, dtypes

Call = Callable[[Tensor], Any]
LINE, TABLE = (4,), (3, 4)


def at_zero(x: Tensor) -> Tensor:
    return Tensor.zeros(x.shape, dtype=dtypes.int32)


def copied(x: Any) -> Any:
    """A kernel that writes to each element what it holds."""
    loops = [UOp.range(size, axis) for axis, size in enumerate(x.shape)]
    return x[tuple(loops)].store(x[tuple(loops)]).end(*loops).sink()


def nothing(x: Any) -> Any:
    """A kernel that writes nothing."""
    return UOp.sink()


# Calls that could give the Tensor itself, or elements of it, and others beside them.
VIEWS: dict[str, list[Call]] = {
    "T": [lambda x: x.T],
    "__getitem__": [
        lambda x: x[:], lambda x: x[...], lambda x: x[()], lambda x: x[1:], lambda x: x[None],
        lambda x: x[0], lambda x: x[::-1], lambda x: x[::2],
    ],
    "__iter__": [lambda x: next(iter(x))],
    "bitcast": [lambda x: x.bitcast(x.dtype), lambda x: x.bitcast(f"uint{x.dtype.bits}")],
    "chunk": [lambda x: x.chunk(1), lambda x: x.chunk(2)],
    "detach": [lambda x: x.detach()],
    "diagonal": [lambda x: x.reshape(1, -1).diagonal(), lambda x: x[None].diagonal(1)],
    "expand": [lambda x: x.expand(x.shape), lambda x: x.expand(2, *x.shape)],
    "expand_as": [lambda x: x.expand_as(x)],
    "flatten": [lambda x: x.flatten(), lambda x: x[None].flatten(0, 1)],
    "flip": [lambda x: x.flip(()), lambda x: x.flip(0)],
    "meshgrid": [lambda x: x.flatten().meshgrid(), lambda x: x.flatten().meshgrid(Tensor([1, 2]))[0]],
    "permute": [lambda x: x.permute(tuple(range(x.ndim)))],
    "rearrange": [lambda x: x.rearrange("... -> ...")],
    "reshape": [lambda x: x.reshape(x.shape), lambda x: x.reshape(-1)],
    "shrink": [lambda x: x.shrink([None] * x.ndim), lambda x: x.shrink([(0, 1)] * x.ndim)],
    "shrink_to": [lambda x: x.shrink_to(x.shape)],
    "split": [lambda x: x.split(x.shape[0]), lambda x: x.split(1)],
    "squeeze": [lambda x: x.squeeze(), lambda x: x.squeeze(0), lambda x: x[None].squeeze(0)],
    "transpose": [lambda x: x.transpose(0, 0)],
    "unflatten": [lambda x: x.unflatten(0, (-1,)), lambda x: x.unflatten(0, (1, -1))],
    "unfold": [lambda x: x.unfold(0, x.shape[0], 1), lambda x: x.unfold(0, 1, 1)],
    "unsqueeze": [lambda x: x.unsqueeze(0)],
    "view": [lambda x: x.view(x.shape)],
}  # fmt: skip
VALUES: dict[str, list[Call]] = {
    "__abs__": [abs],
    "__add__": [lambda x: x + 0],
    "__mul__": [lambda x: x * 1],
    "__pos__": [lambda x: +x],
    "__pow__": [lambda x: x**1],
    "abs": [lambda x: x.abs()],
    "add": [lambda x: x.add(0)],
    "avg_pool2d": [lambda x: x.avg_pool2d((1,)), lambda x: x.avg_pool2d(())],
    "bitwise_and": [lambda x: x.int().bitwise_and(-1)],
    "bitwise_or": [lambda x: x.int().bitwise_or(0)],
    "bitwise_xor": [lambda x: x.int().bitwise_xor(0)],
    "bool": [lambda x: x.bool()],
    "cast": [lambda x: x.cast(x.dtype)],
    "cat": [lambda x: x.cat(), lambda x: Tensor.cat(x), lambda x: x.cat(x[:0])],
    "ceil": [lambda x: x.ceil()],
    "clamp": [lambda x: x.clamp(0)],
    "clip": [lambda x: x.clip(0)],
    "clone": [lambda x: x.clone()],
    "contiguous": [lambda x: x.contiguous()],
    "contiguous_backward": [lambda x: x.contiguous_backward()],
    "cummax": [lambda x: x.cummax(), lambda x: x.sum().cast(x.dtype).cummax()],
    "cummin": [lambda x: x.cummin(), lambda x: x[:0].cummin()],
    "cumprod": [lambda x: x[:1].cumprod(0), lambda x: x[:0].cumprod(0)],
    "custom_kernel": [lambda x: x.custom_kernel(fxn=copied), lambda x: x.custom_kernel(fxn=nothing)],
    "cumsum": [lambda x: x[:1].cumsum(), lambda x: x[:0].cumsum()],
    "diag": [lambda x: x.flatten()[:1].diag()],
    "div": [lambda x: x.div(1)],
    "double": [lambda x: x.double()],
    "dropout": [lambda x: x.dropout(0), lambda x: x.dropout(0.5)],
    "einsum": [lambda x: Tensor.einsum("...->...", x)],
    "float": [lambda x: x.float()],
    "floor": [lambda x: x.floor()],
    "floordiv": [lambda x: x.floordiv(1)],
    "gather": [lambda x: x.gather(0, at_zero(x))],
    "half": [lambda x: x.half()],
    "int": [lambda x: x.int()],
    "interpolate": [
        lambda x: x.interpolate((x.shape[-1],)), lambda x: x.interpolate((x.shape[-1],), "nearest"),
        lambda x: x.interpolate((1,), "nearest"),
    ],
    "lerp": [lambda x: x.float().lerp(x.float(), 0.0)],
    "logcumsumexp": [lambda x: x[:1].logcumsumexp(), lambda x: x[:0].logcumsumexp()],
    "long": [lambda x: x.long()],
    "lshift": [lambda x: x.int().lshift(0)],
    "masked_fill": [lambda x: x.masked_fill(x.ne(x), 0)],
    "masked_select": [lambda x: x.masked_select(x.eq(x))],
    "max": [lambda x: x.max(()), lambda x: x[:1].max(0, keepdim=True)],
    "max_pool2d": [lambda x: x.max_pool2d((1,)), lambda x: x.max_pool2d(())],
    "maximum": [lambda x: x.maximum(x)],
    "mean": [lambda x: x.mean(())],
    "min": [lambda x: x.min(()), lambda x: x[:1].min(0, keepdim=True)],
    "minimum": [lambda x: x.minimum(x)],
    "mul": [lambda x: x.mul(1)],
    "pad": [
        lambda x: x.pad((0, 0)), lambda x: x.pad((0, 1)), lambda x: x.pad((0, -1)),
        lambda x: x.pad((0, 0), mode="reflect"), lambda x: x.pad((0, 0), mode="circular"),
        lambda x: x.pad((0, 0), mode="replicate"), lambda x: x.pad((0, -1), mode="replicate"),
    ],
    "pad_to": [lambda x: x.pad_to(x.shape)],
    "pow": [lambda x: x.pow(1), lambda x: x.pow(2)],
    "prod": [lambda x: x.prod(())],
    "repeat": [lambda x: x.repeat([1] * x.ndim), lambda x: x.repeat([2] * x.ndim)],
    "repeat_interleave": [
        lambda x: x.repeat_interleave(1), lambda x: x.repeat_interleave(1, 0),
        lambda x: x.repeat_interleave(2, 0),
    ],
    "roll": [lambda x: x.roll(0), lambda x: x.roll(0, 0), lambda x: x.roll((), ()),
             lambda x: x.roll(x.shape[0], 0), lambda x: x.roll(1, 0)],
    "round": [lambda x: x.round()],
    "rshift": [lambda x: x.int().rshift(0)],
    "scatter": [lambda x: x.scatter(0, at_zero(x)[:0], x[:0])],
    "scatter_reduce": [lambda x: x.float().scatter_reduce(0, at_zero(x)[:0], x.float()[:0], "sum")],
    "sequential": [lambda x: x.sequential([lambda y: y + 0])],
    "short": [lambda x: x.short()],
    "bfloat16": [lambda x: x.bfloat16()],
    "sign": [lambda x: x.sign()],
    "sort": [lambda x: x[:1].sort(0), lambda x: x.flatten()[0].sort()],
    "square": [lambda x: x.square()],
    "stack": [lambda x: x.stack(), lambda x: Tensor.stack(x, x)],
    "sub": [lambda x: x.sub(0)],
    "sum": [lambda x: x.sum(()), lambda x: x.sum((), dtype=x.dtype)],
    "to": [lambda x: x.to(x.device), lambda x: x.to(None)],
    "topk": [lambda x: x[:1].topk(1, 0)],
    "tril": [lambda x: x.reshape(1, -1).tril(9)],
    "triu": [lambda x: x.reshape(1, -1).triu(-9)],
    "trunc": [lambda x: x.trunc()],
    "ufix": [lambda x: Tensor([1.0]).ufix(x)],
    "uprod": [lambda x: x.uprod()],
    "usum": [lambda x: x.usum()],
    "where": [lambda x: x.eq(x).where(x, x)],
}  # fmt: skip
# These compute: no value of an argument makes them the identity by a shortcut.
COMPUTED = """
acos acosh all allclose alu any argmax argmin argsort asin asinh atan atanh batchnorm
binary_crossentropy binary_crossentropy_logits bitwise_not celu cholesky conv2d conv_transpose2d copysign cos
cosh cross_entropy det dot eigh elu eq erf exp exp2 expm1 fft fma fmod ge gelu gt hardsigmoid hardswish hardtanh hash
huber_loss ifft inverse invalids irfft isclose isfinite isinf isnan keccak kl_div l1_loss layernorm le leaky_relu linear log log10 log1p log2 log_softmax
logaddexp logical_not logsigmoid logsumexp lstsq lt matmul max_unpool2d mish mod mse_loss multinomial ne neg
newton_schulz nll_loss nonzero norm normalize one_hot pinv qr quick_gelu reciprocal relu relu6 rfft rsqrt
scaled_dot_product_attention selu sigmoid silu sin sinh slogdet smooth_l1_loss softmax softmin softplus softsign solve
sparse_categorical_crossentropy sqrt std std_mean svd swish tan tanh threefry var var_mean
"""
# These make Tensors of no other's elements, give something else, or change the Tensor itself.
OTHERS = """
arange as_param assign backward call callify const const_like data device dtype element_size empty empty_like
eye from_blob from_dlpack from_url full full_like get_rng_state glorot_uniform grad gradient inference_mode
is_floating_point is_param is_param_ item kaiming_normal kaiming_uniform kernelize lazydata linspace
manual_seed max_numel max_shape nbytes ndim no_grad normal numel numpy ones ones_like rand rand_like
randint randn randn_like random_bits randperm realize replace requires_grad requires_grad_
scaled_uniform schedule set_rng_state shape size st test to_ tolist train training uniform uop view_info zero_grad
zeros zeros_like
"""


def shows(result: Any, x: Tensor) -> set[bool]:
    """Whether each of the Tensors that a call gives shows elements of `x`."""
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return {part is x or part._shows_elements_of(x) for part in parts if isinstance(part, Tensor)}


def operand(shape: tuple[int, ...], dtype: str) -> Tensor:
    return (
        Tensor.arange(1, 13)[: shape[0] * (shape[1] if shape[1:] else 1)].reshape(shape).cast(dtype)
    )


def test_every_public_method_is_in_one_table() -> None:
    listed = [*VIEWS, *VALUES, *COMPUTED.split(), *OTHERS.split()]
    public = {name for name in dir(Tensor) if not name.startswith("_")}
    assert len(listed) == len(set(listed))
    assert public <= set(listed), sorted(public - set(listed))
    assert {name for name in listed if not name.startswith("__")} <= public


@pytest.mark.parametrize("shape", [LINE, TABLE, (1, 4), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_shows_the_elements_whatever_its_arguments(
    name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    for call in VIEWS[name]:
        x = operand(shape, dtype)
        assert shows(call(x), x) == {True}
        result = call(x)
        assert all(
            part is not x for part in (result if isinstance(result, (tuple, list)) else [result])
        )


@pytest.mark.parametrize("shape", [LINE, TABLE, (1, 4), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "uint8"])
@pytest.mark.parametrize("name", VALUES)
def test_a_new_value_shows_no_elements_whatever_its_arguments(
    name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    for call in VALUES[name]:
        x = operand(shape, dtype)
        try:
            result = call(x)
        except (TypeError, ValueError) as error:
            assert dtype == "bool", error  # what takes no bools says so
            continue
        assert shows(result, x) == {False}


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(
    "name", ["roll", "pad", "pad_to", "repeat", "pow", "cat", "cast", "to", "round"]
)
def test_writing_to_a_new_value_leaves_its_operand_alone(name: str, dtype: str) -> None:
    for call in VALUES[name]:
        x = operand(LINE, dtype).realize()
        y = call(x)
        wanted = [element + 1 for element in y.tolist()]
        y += 1
        assert (x.tolist(), y.tolist()) == ([1, 2, 3, 4], wanted)


def test_a_cast_to_the_type_it_has_keeps_a_leaf_a_leaf() -> None:
    x = Tensor([1.0, 2.0]).float()
    (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4]


def test_writing_through_a_bitcast_writes_the_bits() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    x.bitcast(dtypes.uint32).assign(Tensor([0, 0, 0], dtype=dtypes.uint32)).realize()
    assert x.tolist() == [0, 0, 0]
    x[1:].bitcast(dtypes.int32)[1:] = 0x40000000
    assert x.tolist() == [0, 0, 2]
    x[::2].bitcast(dtypes.int32)[:] = Tensor([0x3F800000, 0x40400000], dtype=dtypes.int32)
    assert x.tolist() == [1, 0, 3]
