"""Checks of whole programs: movement, reductions, products, selection, order, random numbers, layers, a step of training.

Owns: these programs. What they must give is numpy's answer, or REFERENCE's; sums of floats, whose order is open, are compared
with a tolerance.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from proofgrad import Context, Tensor, dtypes
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.ir.dtypes import DType
from proofgrad.nn.optim import Adam
from proofgrad.testing.conformance.check import Check, Item, Options, Result, Skip
from proofgrad.testing.conformance.differences import Exactness
from proofgrad.testing.conformance.edges import FLOATS, INTEGERS

SUMS = Exactness(relative=1e-4, absolute=1e-4)  # of some hundred float32 in another order
ROUNDED = Exactness(
    relative=1e-5, absolute=1e-5
)  # of few: factors that are not rounded are off by more
_TOLERANCES = {
    dtypes.float16: Exactness(relative=2e-2, absolute=2e-2),
    dtypes.bfloat16: Exactness(relative=8e-2, absolute=8e-2),
    dtypes.float32: SUMS,
    dtypes.float64: Exactness(relative=1e-12, absolute=1e-12),
}


def _wave(count: int, *shape: int) -> Any:
    """Numbers between -1 and 1 without a pattern that a mistake might keep."""
    import numpy

    values = numpy.sin(numpy.arange(count) * 12.9898) * 43758.5453
    return ((values - numpy.floor(values)) * 2 - 1).reshape(shape or (count,)).astype(numpy.float32)


def _has(target: Target, *kinds: DType) -> bool:
    return all(kind in target.storage for kind in kinds)


def _in_tf32(values: Any) -> Any:
    """Finite float32 with 11 binary digits, the half away from 0."""
    import numpy

    return ((values.view(numpy.uint32) + 0x1000) & 0xFFFFE000).view(numpy.float32)


def movement(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Movement operations in a row, each computed, for elements of each size."""
    import numpy

    for kind in (dtypes.uint8, dtypes.float16, dtypes.int32, dtypes.float64):
        if not _has(target, kind):
            yield Skip(kind.name, f"the device has no {kind.name}")
            continue
        a = numpy.arange(24).reshape(2, 3, 4)
        x = Tensor(a.ravel().tolist(), device, kind).reshape(2, 3, 4)
        padded = numpy.pad(a, ((1, 0), (0, 2), (1, 1)))
        found = {
            "permute": (x.permute((2, 0, 1)), a.transpose(2, 0, 1)),
            "flip": (x.flip((0, 2)), a[::-1, :, ::-1]),
            "pad": (x.pad(((1, 0), (0, 2), (1, 1))), padded),
            "shrink": (x.shrink(((0, 1), (1, 3), (2, 4))), a[0:1, 1:3, 2:4]),
            "expand": (x.reshape((4, 1, 6)).expand((4, 3, 6)), a.reshape(4, 1, 6).repeat(3, 1)),
            "stride": (x[:, ::2, ::-1], a[:, ::2, ::-1]),
            "cat": (x.cat(x.flip(1), dim=1), numpy.concatenate([a, a[:, ::-1]], 1)),
        }
        for name, (tensor, expected) in found.items():
            yield Result(f"{name} {kind.name}", tensor.contiguous(), expected)


def reductions(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Sums, products, extremes and where they are, over each choice of axes, for each type."""
    import numpy

    every: list[Any] = [None, 0, 1, 2, (0, 2)]
    summed = (dtypes.int32, dtypes.float32, dtypes.float64)
    whole = numpy.array([k * 37 % 101 - 50 for k in range(210)]).reshape(5, 6, 7)
    for kind in (*INTEGERS, *FLOATS):
        if not _has(target, kind):
            yield Skip(kind.name, f"the device has no {kind.name}")
            continue
        is_signed = kind.is_float or (kind.lo or 0) < 0
        a = whole if is_signed else abs(whole)
        x = Tensor(a.ravel().tolist(), device, kind).reshape(5, 6, 7)
        for axis in every if kind in summed else every[::2]:
            label = f"{kind.name} axis {axis}"
            yield Result(f"max {label}", x.max(axis), a.max(axis))
            yield Result(f"min {label}", x.min(axis), a.min(axis))
            if kind in summed:
                yield Result(f"sum {label}", x.sum(axis), a.sum(axis))
        yield Result(f"argmax {kind.name}", x.argmax(1), a.argmax(1))
    ones = Tensor([[1.0, float("nan"), 3.0], [float("-inf"), 2.0, -0.0]], device)
    nan = float("nan")
    yield Result("max of NaN", ones.max(1), numpy.array([nan, 2.0]))
    yield Result("sum of nothing", Tensor.zeros(0, 4, device=device).sum(0), numpy.zeros(4))
    yield Result("any, all", ones.isnan().any(1), numpy.array([True, False]))


def products(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Matrix products of odd sizes in each type, batched and transposed; convolutions; rows."""
    import numpy

    a, b = _wave(13 * 17, 13, 17), _wave(17 * 11, 17, 11)
    for kind in FLOATS:
        if not _has(target, kind):
            yield Skip(kind.name, f"the device has no {kind.name}")
            continue
        x, y = Tensor(a, device).cast(kind), Tensor(b, device).cast(kind)
        yield Result(f"product {kind.name}", x @ y, a.astype(float) @ b, _TOLERANCES[kind])
    with Context(ALLOW_TF32=1):
        rounded = Tensor(a, device) @ Tensor(b, device)
    expected = _in_tf32(a).astype(float) @ _in_tf32(b)
    yield Result("product float32 in TF32", rounded, expected, ROUNDED)
    for kind in (dtypes.int32, dtypes.int64, dtypes.uint8):
        left, right = (a * 9).astype("int64"), (b * 9).astype("int64")
        left, right = (abs(left), abs(right)) if kind is dtypes.uint8 else (left, right)
        found = Tensor(left, device).cast(kind) @ Tensor(right, device).cast(kind)
        expected = left @ right
        yield Result(
            f"product {kind.name}", found, expected % 256 if kind is dtypes.uint8 else expected
        )
    batch, other = _wave(3 * 5 * 7, 3, 5, 7), _wave(3 * 7 * 4, 3, 7, 4)
    yield Result("batched", Tensor(batch, device) @ Tensor(other, device), batch @ other, SUMS)
    yield Result("transposed", Tensor(b, device).T @ Tensor(a, device).T, b.T @ a.T, SUMS)
    yield Result("row by column", Tensor(a[:1], device) @ Tensor(b, device), a[:1] @ b, SUMS)
    x = Tensor(a, device)
    for name, tensor in (
        ("convolution", x.reshape(1, 1, 13, 17).conv2d(x[:3, :3].reshape(1, 1, 3, 3), padding=1)),
        ("strided, grouped", x[:12, :16].reshape(1, 4, 6, 8).conv2d(x.reshape(221)[:36].reshape(4, 1, 3, 3), stride=2, groups=4)),
        ("pooled", x[:12, :16].reshape(1, 1, 12, 16).max_pool2d((2, 2))),
        ("softmax", x.softmax()),
        ("log_softmax", x.log_softmax()),
        ("layernorm", x.layernorm()),
        ("mean", x.mean(0)),
        ("var", x.var(1)),
    ):  # fmt: skip
        yield Result(name, tensor, None, SUMS)
    yield Result("einsum", Tensor.einsum("ij,jk->ki", x, Tensor(b, device)), numpy.einsum("ij,jk->ki", a, b), SUMS)  # fmt: skip


def selection(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Rows and elements by index: gather, scatter, masks, an embedding and its gradient."""
    import numpy

    a = _wave(7 * 9, 7, 9)
    x = Tensor(a, device)
    rows = numpy.array([6, 0, 3, 3, -1])
    yield Result("rows by index", x[Tensor(rows, device)], a[rows])
    position = (numpy.arange(7 * 4) * 5 % 9).reshape(7, 4)
    index = Tensor(position, device)
    yield Result("gather", x.gather(1, index), numpy.take_along_axis(a, position, 1))
    source = _wave(7 * 4, 7, 4) * 3
    added = a.copy()
    numpy.add.at(added, (numpy.arange(7)[:, None], position), source)
    found = x.scatter_reduce(1, index, Tensor(source, device), reduce="sum")
    yield Result("scatter, added", found, added, SUMS)
    unique = numpy.array([[(k + j) % 9 for j in range(4)] for k in range(7)])
    put = a.copy()
    numpy.put_along_axis(put, unique, source, 1)
    yield Result("scatter", x.scatter(1, Tensor(unique, device), Tensor(source, device)), put)
    most = a.copy()
    numpy.maximum.at(most, (numpy.arange(7)[:, None], position), source)
    found = x.scatter_reduce(1, index, Tensor(source, device), reduce="amax")
    yield Result("scatter, largest", found, most)
    yield Result("masked", x.masked_fill(x > 0, -2.0), numpy.where(a > 0, numpy.float32(-2), a))
    yield Result("triangle", x.triu(2), numpy.triu(a, 2))
    words = numpy.array([[1, 5, 1], [0, 6, 5]])
    weight = Tensor(a, device, requires_grad=True)
    looked_up = weight[Tensor(words, device)]
    upstream = _wave(2 * 3 * 9, 2, 3, 9)
    (looked_up * Tensor(upstream, device)).sum().backward()
    gradient = numpy.zeros_like(a)
    numpy.add.at(gradient, words, upstream)
    yield Result("embedding", looked_up, a[words])
    assert weight.grad is not None
    yield Result("gradient of an embedding", weight.grad, gradient, SUMS)


def order(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Sorted values and where they were, the largest few, sums of what comes before."""
    import numpy

    a = numpy.round(_wave(3 * 21, 3, 21) * 5) + 0  # + 0: zeros of one sign, which have one position
    for kind in (dtypes.float32, dtypes.int32, dtypes.int64):
        x = Tensor(a, device).cast(kind)
        values, positions = x.sort(1)
        yield Result(f"sort {kind.name}", values, numpy.sort(a, 1))
        yield Result(f"positions {kind.name}", positions, numpy.argsort(a, 1, kind="stable"))
    x = Tensor(a, device)
    yield Result("downwards", x.sort(1, descending=True)[0], -numpy.sort(-a, 1))
    yield Result("largest four", x.topk(4)[0], -numpy.sort(-a, 1)[:, :4])
    yield Result("cumsum", x.cumsum(1), a.cumsum(1))
    yield Result("cumprod", (x / 4)[:, :9].cumprod(1), (a / 4)[:, :9].cumprod(1), SUMS)
    yield Result("cummax", x.cummax(1)[0], numpy.maximum.accumulate(a, 1))
    long = Tensor.arange(3001, device=device, dtype=dtypes.int32)
    yield Result("long cumsum", long.cumsum(0), numpy.arange(3001).cumsum())


def random_numbers(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Random bits are the same on every machine."""
    Tensor.manual_seed(7)
    yield Result("rand", Tensor.rand(301, device=device))
    yield Result("randint", Tensor.randint(100, low=-5, high=77, device=device))
    yield Result("randn", Tensor.randn(100, device=device), None, SUMS)
    yield Result("permutation", Tensor.randperm(33, device=device))


def attention(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Attention with and without a mask, for a sequence of odd length; gradients through it."""
    import numpy

    shape, count = (2, 3, 11, 8), 2 * 3 * 11 * 8
    arrays = [numpy.roll(_wave(count), 7 * k).reshape(shape) for k in range(3)]
    for is_causal in (False, True):
        q, k, v = [Tensor(array, device, requires_grad=True) for array in arrays]
        found = q.scaled_dot_product_attention(k, v, is_causal=is_causal)
        word = "causal" if is_causal else "full"
        yield Result(word, found, _attention(arrays, is_causal), SUMS)
        found.square().sum().backward()
        for name, tensor in zip("qkv", (q, k, v), strict=True):
            assert tensor.grad is not None
            yield Result(f"{word}, gradient of {name}", tensor.grad, None, SUMS)


def _attention(arrays: list[Any], is_causal: bool) -> Any:
    import numpy

    q, k, v = [array.astype(float) for array in arrays]
    scores = q @ k.swapaxes(-1, -2) / numpy.sqrt(q.shape[-1])
    if is_causal:
        scores = numpy.where(numpy.tri(q.shape[-2]) > 0, scores, -numpy.inf)
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def many(device: str, target: Target, options: Options) -> Iterator[Item]:
    """More elements than a machine has lanes, threads or positions in a tile, in numbers that nothing divides."""
    import numpy

    count = 20011
    x, a = Tensor.arange(count, device=device), numpy.arange(count)
    yield Result("elements", x * x + 3, a * a + 3)
    yield Result("sum", (x % 7).sum(), (a % 7).sum())
    yield Result("max", (x.reshape((count, 1)) * 2).reshape((count,)).max(), 2 * count - 2)
    for rows, columns, depth in ((35, 67, 41), (129, 33, 17)):
        left, right = _wave(rows * depth, rows, depth), _wave(depth * columns, depth, columns)
        found = Tensor(left, device) @ Tensor(right, device)
        yield Result(f"product {rows}x{depth}x{columns}", found, left @ right, SUMS)
    wide = _wave(3 * 4099, 3, 4099)
    y = Tensor(wide, device)
    yield Result("sum of long rows", y.sum(1), wide.sum(1, dtype=float), SUMS)
    yield Result("sum of long columns", y.T.sum(0), wide.sum(1, dtype=float), SUMS)
    yield Result("transpose", y.T.contiguous(), wide.T)
    label = "2**31 bytes and more"
    if not options.is_long:
        yield Skip(label, "it takes gigabytes: --long")
        return
    size = (1 << 31) + 5003
    large = Tensor.full((size,), 1, dtype=dtypes.uint8, device=device).contiguous().realize()
    yield Result(label, (large + 1).contiguous()[-3:], [2, 2, 2])


def training(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Two steps of Adam through a product, a normalisation and a loss."""
    weight = Tensor([[0.5, -0.25], [0.125, 1.0]], device)
    optimizer = Adam([weight], lr=0.1)
    x = Tensor([[1.0, 2.0], [3.0, -1.0]], device, requires_grad=False)
    for _ in range(2):
        optimizer.zero_grad()
        ((x @ weight).tanh() - 1).square().mean().backward()
        optimizer.step()
    yield Result("weights", weight, None, SUMS)


def edges_of_shapes(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Sizes of zero and one, alone and together with others."""
    import numpy

    for shape in itertools.product((0, 1, 3), repeat=2):
        a = numpy.arange(shape[0] * shape[1], dtype=numpy.float32).reshape(shape)
        x = Tensor(a, device)
        yield Result(f"{shape} + 1", x + 1, a + 1)
        yield Result(f"{shape} summed", x.sum(0), a.sum(0))
        yield Result(f"{shape} product", x @ x.T, a @ a.T, SUMS)
    yield Result("a number", Tensor(3.0, device) * 2, 6.0)


CHECKS = (
    Check("movement", movement, has_many_alike=True),
    Check("shapes", edges_of_shapes, has_many_alike=True),
    Check("reductions", reductions, has_many_alike=True),
    Check("many", many),
    Check("products", products),
    Check("selection", selection),
    Check("order", order),
    Check("random", random_numbers),
    Check("attention", attention),
    Check("training", training),
)
