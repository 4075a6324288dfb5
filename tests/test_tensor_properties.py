"""Laws of Tensor methods on random shapes and arguments: numpy is the judge."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import assert_same

from proofgrad import Tensor

SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)
FEW = settings(max_examples=60, deadline=None, derandomize=True)


def numbered(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


@st.composite
def indices(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape and a legal index of ints, slices, None and one Ellipsis."""
    shape = draw(SHAPES)
    parts: list[Any] = []
    bound = st.none() | st.integers(-5, 5)
    for size in shape[: draw(st.integers(0, len(shape)))]:
        step = draw(st.none() | st.integers(-3, 3).filter(bool))
        choices: list[Any] = [st.just(slice(draw(bound), draw(bound), step))]
        if size:
            choices.append(st.integers(-size, size - 1))
        parts.append(draw(st.one_of(choices)))
        if draw(st.booleans()) and draw(st.booleans()):
            parts.append(None)
    if draw(st.booleans()):
        parts.append(Ellipsis)
    return shape, tuple(parts)


@FEW
@given(indices())
def test_any_index_reads_what_numpy_reads(case: tuple[tuple[int, ...], tuple[Any, ...]]) -> None:
    shape, index = case
    x = numbered(shape)
    assert_same(Tensor(x)[index], np.asarray(x[index]))


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that go together."""
    full = draw(SHAPES)
    pair = []
    for _ in range(2):
        kept = [n if draw(st.booleans()) else 1 for n in full]
        pair.append(tuple(kept[draw(st.integers(0, len(kept))) :]))
    return pair[0], pair[1]


@FEW
@given(broadcastable())
def test_any_two_shapes_that_broadcast_add_like_numpy(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    a, b = numbered(shapes[0]), numbered(shapes[1]) + 7
    assert_same(Tensor(a) + Tensor(b), a + b)


@FEW
@given(SHAPES.filter(bool), st.data())
def test_any_reduction_of_integers_equals_numpy(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1))))
    keepdim = data.draw(st.booleans())
    x = numbered(shape)
    assert_same(Tensor(x).sum(axes, keepdim), x.sum(axes, keepdims=keepdim, dtype=np.int32))


@FEW
@given(SHAPES, st.data())
def test_any_pad_then_shrink_gives_the_tensor_back(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    amount = st.integers(0, 3)
    around = [(data.draw(amount), data.draw(amount)) for _ in shape]
    x = numbered(shape)
    padded = Tensor(x).pad(around, value=-1)
    assert_same(padded, np.pad(x, around, constant_values=-1) if shape else x)
    back = padded.shrink([(b, b + n) for (b, _), n in zip(around, shape)])
    assert_same(back, x)


@FEW
@given(SHAPES, st.data())
def test_any_chain_of_views_is_the_chain_of_numpy(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    x = numbered(shape)
    t = Tensor(x)
    for _ in range(data.draw(st.integers(1, 4))):
        order = data.draw(st.permutations(range(x.ndim)))
        x, t = x.transpose(order), t.permute(order)
        flips = [k for k in range(x.ndim) if data.draw(st.booleans())]
        if flips:
            x, t = np.flip(x, flips), t.flip(flips)
        x, t = x.reshape(-1), t.flatten()
        x, t = x.reshape(shape), t.reshape(shape)
    assert_same(t, x)
