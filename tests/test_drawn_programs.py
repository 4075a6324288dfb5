"""Programs drawn at random beside numpy: tiny convolutions, expanded reductions, masked sums of products.

Values are small whole numbers, whose sums are exact in any order, so results are compared to the bit.
Each is compiled as it comes, without optional stages (`NOOPT=1`), and under forced vectors and tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proofgrad import Context, Tensor

Array = np.ndarray[Any, Any]
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
ASKED = st.sampled_from(
    [
        {},
        {"NOOPT": 1},
        {"CHOICES": "tiled=off vectors=*x4x2 copies=*x2"},
        {"CHOICES": "tiled=on tile=2x1x4 depth=1"},
        {"CHOICES": "tiled=off vectors=1x4x2"},
    ]
)
SEEDS = st.integers(0, 2**32 - 1)


def whole(random: np.random.Generator, *shape: int, dtype: str = "float32") -> Array:
    return random.integers(-3, 4, shape).astype(dtype)


class Convolution:
    """A convolution of two axes, tap by tap, and its gradients."""

    def __init__(self, x: Array, w: Array, stride: int, padding: int, dilation: int) -> None:
        self.stride, self.dilation = stride, dilation
        self.padding, self.w = padding, w
        self.x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        spans = [dilation * (k - 1) + 1 for k in w.shape[2:]]
        self.out = [(n - s) // stride + 1 for n, s in zip(self.x.shape[2:], spans)]

    def taps(self) -> list[tuple[int, int, tuple[slice, ...]]]:
        """Each tap of the window, and where it reads."""
        found = []
        for i, j in np.ndindex(*self.w.shape[2:]):
            first = (i * self.dilation, j * self.dilation)
            ends = [f + self.stride * (n - 1) + 1 for f, n in zip(first, self.out)]
            where = [slice(f, e, self.stride) for f, e in zip(first, ends)]
            found.append((i, j, (slice(None), slice(None), *where)))
        return found

    def values(self) -> Array:
        y = np.zeros((len(self.x), len(self.w), *self.out), self.x.dtype)
        for i, j, where in self.taps():
            y += np.einsum("ncab,oc->noab", self.x[where], self.w[:, :, i, j])
        return y

    def gradients(self, cotangent: Array) -> tuple[Array, Array]:
        gx, gw = np.zeros_like(self.x), np.zeros_like(self.w)
        for i, j, where in self.taps():
            gx[where] += np.einsum("noab,oc->ncab", cotangent, self.w[:, :, i, j])
            gw[:, :, i, j] = np.einsum("noab,ncab->oc", cotangent, self.x[where])
        p = self.padding
        return gx[:, :, p : gx.shape[2] - p, p : gx.shape[3] - p], gw


@QUICK
@given(st.data())
def test_convolutions_of_tiny_images_and_their_gradients(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(SEEDS))
    size = st.sampled_from([1, 1, 2, 3, 6, 13])
    kernel = [data.draw(st.integers(1, 4)) for _ in range(2)]
    stride, dilation = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    padding = data.draw(st.integers(0, 3))
    image = [max(data.draw(size), dilation * (k - 1) + 1 - 2 * padding) for k in kernel]
    channels, filters = (
        data.draw(st.sampled_from([1, 2, 3, 16])),
        data.draw(st.sampled_from([1, 4, 16])),
    )
    x = whole(random, data.draw(st.integers(1, 3)), channels, *image)
    w = whole(random, filters, channels, *kernel)
    expected = Convolution(x, w, stride, padding, dilation)
    cotangent = whole(random, *expected.values().shape)
    with Context(**data.draw(ASKED)):
        tx, tw = Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)
        y = tx.conv2d(tw, stride=stride, padding=padding, dilation=dilation)
        (y * Tensor(cotangent)).sum().backward()
        np.testing.assert_array_equal(y.numpy(), expected.values())
        gx, gw = expected.gradients(cotangent)
        assert tx.grad is not None and tw.grad is not None
        np.testing.assert_array_equal(tx.grad.numpy(), gx)
        np.testing.assert_array_equal(tw.grad.numpy(), gw)


TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")


@settings(QUICK, max_examples=60)
@given(st.data())
def test_reductions_of_expanded_values(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(SEEDS))
    dtype = data.draw(st.sampled_from(TYPES + FLOATS))
    sizes = st.sampled_from([1, 2, 3, 4, 8, 16, 17, 40])
    shape = tuple(data.draw(st.lists(sizes, min_size=1, max_size=3)))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    flat = tuple([1 if a in axes else n for a, n in enumerate(shape)])
    name = data.draw(st.sampled_from(["sum", "prod", "max", "min", "any", "all"]))
    if name == "prod" and dtype in FLOATS:
        x = random.choice([-1, 1], flat).astype(dtype)
    else:
        x = whole(random, *flat, dtype="int32").astype(dtype)
    reduced = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    with Context(**data.draw(ASKED)):
        got = getattr(Tensor(x).expand(shape), name)(axis=tuple(reduced)).numpy()
    expected = getattr(np.broadcast_to(x, shape), name)(axis=tuple(reduced))
    np.testing.assert_array_equal(got, expected.astype(got.dtype))


def masked(random: np.random.Generator, shape: tuple[int, ...], depth: int) -> tuple[Tensor, Array]:
    """A random sum of products under masks; each operand has some of the axes."""
    kind = random.random() if depth else 1.0
    if kind < 0.4:
        (a, x), (b, y) = masked(random, shape, depth - 1), masked(random, shape, depth - 1)
        return a + b, x + y
    if kind < 0.8:
        truth = random.random(some_axes(random, shape)) < 0.5
        a, x = masked(random, shape, depth - 1)
        return Tensor(truth).where(a, 0), np.where(truth, x, 0).astype(x.dtype)
    x, y = whole(random, *some_axes(random, shape)), whole(random, *some_axes(random, shape))
    if random.random() < 0.2:
        return Tensor(x), x
    return Tensor(x) * Tensor(y), x * y


def some_axes(random: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([n if random.random() < 0.7 else 1 for n in shape])


@settings(QUICK, max_examples=60)
@given(st.data())
def test_sums_of_products_behind_masks(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(SEEDS))
    sizes = st.sampled_from([1, 2, 3, 4, 8, 16, 24])
    shape = tuple(data.draw(st.lists(sizes, min_size=1, max_size=3)))
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    with Context(**data.draw(ASKED)):
        value, expected = masked(random, shape, 4)
        got = value.expand(shape).sum(axes).numpy()
    np.testing.assert_array_equal(got, np.broadcast_to(expected, shape).sum(axes))


PADDINGS = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.long
@QUICK
@given(st.data())
def test_gradient_of_a_convolution_of_padded_images(data: st.DataObject) -> None:
    """The gradient of the padding is a sum over the gradient of the convolution at several positions."""
    random = np.random.default_rng(data.draw(SEEDS))
    mode, stride = data.draw(st.sampled_from(sorted(PADDINGS))), data.draw(st.integers(1, 3))
    height, width = data.draw(st.integers(4, 9)), data.draw(st.integers(4, 9))
    left, right, top, bottom = [data.draw(st.integers(0, 3)) for _ in range(4)]
    x, w = whole(random, 2, 2, height, width), whole(random, 1, 2, 3, 2)
    rows = np.pad(np.arange(height), (top, bottom), mode=PADDINGS[mode])
    columns = np.pad(np.arange(width), (left, right), mode=PADDINGS[mode])
    expected = Convolution(x[:, :, rows][:, :, :, columns], w, stride, 0, 1)
    cotangent = whole(random, *expected.values().shape)
    gradient = np.zeros_like(x)
    np.add.at(gradient, np.ix_(range(2), range(2), rows, columns), expected.gradients(cotangent)[0])
    with Context(**data.draw(ASKED)):
        tx = Tensor(x, requires_grad=True)
        y = tx.pad((left, right, top, bottom), mode=mode).conv2d(Tensor(w), stride=stride)
        (y * Tensor(cotangent)).sum().backward()
        assert tx.grad is not None
        np.testing.assert_array_equal(y.numpy(), expected.values())
        np.testing.assert_array_equal(tx.grad.numpy(), gradient)


@QUICK
@given(st.data())
def test_gradient_of_a_convolution_of_an_outer_product(data: st.DataObject) -> None:
    """One sum is asked for at two positions, by the two factors of the product."""
    random = np.random.default_rng(data.draw(SEEDS))
    size, dilation = data.draw(st.integers(4, 9)), data.draw(st.integers(1, 2))
    kernel = [data.draw(st.integers(1, 2)) for _ in range(2)]
    v, w = whole(random, 1, 1, 1, size), whole(random, 4, 1, *kernel)
    expected = Convolution(v.transpose(0, 1, 3, 2) @ v, w, 1, 0, dilation)
    cotangent = whole(random, *expected.values().shape)
    outer = expected.gradients(cotangent)[0]
    with Context(**data.draw(ASKED)):
        tv = Tensor(v, requires_grad=True)
        y = (tv.transpose(-1, -2) @ tv).conv2d(Tensor(w), dilation=dilation)
        (y * Tensor(cotangent)).sum().backward()
        assert tv.grad is not None
        np.testing.assert_array_equal(y.numpy(), expected.values())
        np.testing.assert_array_equal(tv.grad.numpy(), v @ (outer + outer.transpose(0, 1, 3, 2)))


def test_a_tap_that_reads_only_padding_leaves_the_sum_alone() -> None:
    x, w = np.ones((2, 3, 1, 1), np.float32), np.ones((16, 3, 3, 3), np.float32)
    got = Tensor(x).conv2d(Tensor(w), padding=1).numpy()
    np.testing.assert_array_equal(got, np.full((2, 16, 1, 1), 3.0))


def body(
    random: np.random.Generator, shape: tuple[int, ...], depth: int, scale: float
) -> tuple[Tensor, Array]:
    """Sums of products and masks whose terms are far larger than their sum: x * 1 + -x * 1 + small."""
    one = np.ones(shape, np.float32)
    if depth == 0 or random.random() < 0.2:
        small = random.normal(size=shape).astype(np.float32)
        return Tensor(small) * Tensor(one), small
    rest, y = body(random, shape, depth - 1, scale)
    x = (random.uniform(-1, 1, shape) * scale).astype(np.float32)
    terms = [(Tensor(x) * Tensor(one), x), (Tensor(-x) * Tensor(one), -x)]
    order = random.permutation(2)
    (a, p), (b, q) = [terms[k] for k in order]
    value, expected = (a + b) + rest, (p + q) + y
    if random.random() < 0.5:
        truth = random.random(some_axes(random, shape)) < 0.8
        return Tensor(truth).where(value, 0), np.where(truth, expected, np.float32(0))
    return value, expected


@settings(QUICK, max_examples=40)
@given(st.data())
def test_a_sum_takes_its_elements_whole(data: st.DataObject) -> None:
    """Each element is rounded as written; no part of one may meet the sum before the others."""
    random = np.random.default_rng(data.draw(SEEDS))
    shape = tuple(data.draw(st.lists(st.sampled_from([2, 5, 16, 64]), min_size=1, max_size=2)))
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    with Context(**data.draw(ASKED)):
        value, elements = body(random, shape, 2, data.draw(st.sampled_from([1e6, 1e20, 3e38])))
        got = value.sum(axes).numpy()
    exact = elements.astype(np.float64).sum(axes)
    bound = np.abs(elements.astype(np.float64)).sum(axes) * elements.size * 2.0**-24
    assert np.all(np.abs(got - exact) <= bound)


@pytest.mark.long
@settings(QUICK, max_examples=60)
@given(st.data())
def test_comparisons_with_shifted_counters(data: st.DataObject) -> None:
    """Words of every width, up to their ends, beside counters that views shift, turn and stretch."""
    random = np.random.default_rng(data.draw(SEEDS))
    dtype = np.dtype(data.draw(st.sampled_from(TYPES[1:])))
    ends = np.iinfo(dtype)
    near = random.integers(0, 9, (3, 4)).astype(dtype)
    far = random.choice(np.array([ends.min, ends.min + 2, ends.max - 1, ends.max], dtype), (3, 4))
    x = np.where(random.random((3, 4)) < 0.7, near, far)[..., None]
    counter, cells = Tensor.arange(12).cast(dtype.name), np.arange(12).astype(dtype)
    for _ in range(data.draw(st.integers(0, 2))):
        view = data.draw(st.sampled_from([slice(2, None), slice(None, None, 2), slice(None, -1)]))
        turned = slice(None, None, data.draw(st.sampled_from([1, -1])))
        counter, cells = counter[view][turned], cells[view][turned]
    weights = whole(random, *cells.shape, dtype="int32")
    with Context(**data.draw(ASKED)):
        tx = Tensor(x)
        for got, expected in (
            (tx == counter, x == cells),
            (tx < counter, x < cells),
            (counter < tx, cells < x),
        ):
            chosen = (got * Tensor(weights)).sum(-1).numpy()
            np.testing.assert_array_equal(chosen, (expected * weights).sum(-1))
            np.testing.assert_array_equal(got.numpy(), expected)


@settings(QUICK, max_examples=12)
@given(st.data())
def test_long_sums_keep_their_digits(data: st.DataObject) -> None:
    """Of any length, also prime; of equal elements, whose rounding errors all have one sign."""
    count = data.draw(st.sampled_from([100003, 999983, 1 << 20, 1500000, 2097143]))
    rows = data.draw(st.sampled_from([1, 3, 7]))
    shape = data.draw(st.sampled_from([(rows, count // rows), (count // rows, rows)]))
    axes = data.draw(st.sampled_from([None, shape.index(max(shape))]))
    number = np.float32(data.draw(st.sampled_from([0.1, 1.7, 100.3, -3e-5])))
    x = np.full(shape, number)
    exact = x.astype(np.float64)
    with Context(**data.draw(st.sampled_from([{}, {"CHOICES": "threads=off"}]))):
        got = [Tensor(x).sum(axes).numpy(), (Tensor(x) * Tensor(x)).mean(axes).numpy()]
    # A short part adds its elements in few registers, each rounded to half a unit: 16,384 / 8 * 2**-24.
    np.testing.assert_allclose(got[0], exact.sum(axes), rtol=1.3e-4)
    np.testing.assert_allclose(got[1], (exact * exact).mean(axes), rtol=1.3e-4)


def test_means_of_many_small_integers_are_exact_to_the_last_digit() -> None:
    x = np.full(3_000_017, 127, np.int8)
    assert abs(Tensor(x).mean().item() - 127) <= 127 * 2.0**-22
