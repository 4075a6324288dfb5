"""Views, joining and indexing against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensors import assert_same, machine

from proofgrad import DtypeError, GlobalCounters, ShapeError, Tensor

__all__ = ["machine"]

X = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def test_views_agree_with_numpy(machine: str) -> None:
    t = Tensor(X)
    assert_same(t.reshape(4, 6), X.reshape(4, 6))
    assert_same(t.reshape(-1, 3), X.reshape(-1, 3))
    assert_same(t.view((6, 4)), X.reshape(6, 4))
    assert_same(t.permute(2, 0, 1), X.transpose(2, 0, 1))
    assert_same(t.T, X.T)
    assert_same(t.transpose(0, 2), X.swapaxes(0, 2))
    assert_same(t.flip(0, 2), np.flip(X, (0, 2)))
    assert_same(t.flip((1,)), np.flip(X, 1))
    assert_same(t.shrink(((0, 1), None, (1, 3))), X[0:1, :, 1:3])
    assert_same(t.flatten(), X.ravel())
    assert_same(t.flatten(1), X.reshape(2, 12))
    assert_same(t.unflatten(2, (2, -1)), X.reshape(2, 3, 2, 2))
    assert_same(t.unsqueeze(1), X[:, None])
    assert_same(t.unsqueeze(-1), X[..., None])
    assert_same(t.unsqueeze(0).squeeze(0), X)
    assert_same(t.unsqueeze(0).squeeze(), X)


def test_squeeze_of_an_axis_that_is_not_one_changes_nothing() -> None:
    t = Tensor(X)
    assert t.squeeze(0).uop is t.uop


def test_expand_adds_leading_axes(machine: str) -> None:
    t = Tensor([[1], [2]])
    assert_same(t.expand(3, 2, 4), np.broadcast_to(np.array([[1], [2]], "int32"), (3, 2, 4)))
    assert_same(t.expand(-1, 2), np.array([[1, 1], [2, 2]], "int32"))


def test_repeat_agrees_with_numpy(machine: str) -> None:
    assert_same(Tensor(X).repeat(2, 1, 1, 3), np.tile(X, (2, 1, 1, 3)))
    assert_same(Tensor(X).repeat_interleave(2, 1), np.repeat(X, 2, 1))
    assert_same(Tensor(X).repeat_interleave(2), np.repeat(X, 2))


def test_pad_takes_pairs_and_the_flat_form(machine: str) -> None:
    t = Tensor(X)
    assert_same(t.pad(((0, 1), (2, 0), None)), np.pad(X, ((0, 1), (2, 0), (0, 0))))
    assert_same(t.pad((1, 2)), np.pad(X, ((0, 0), (0, 0), (1, 2))))
    assert_same(t.pad((1, 0, 0, 2), value=7), np.pad(X, ((0, 0), (0, 2), (1, 0)),
                                                   constant_values=7))  # fmt: skip
    assert_same(t.pad((-1, 1)), np.pad(X[..., 1:], ((0, 0), (0, 0), (0, 1))))


def test_pad_with_a_value_keeps_nan_inside(machine: str) -> None:
    x = np.array([np.nan, np.inf], "f")
    assert_same(Tensor(x).pad((1, 1), value=-np.inf), np.pad(x, 1, constant_values=-np.inf))


def test_split_and_chunk_agree_with_numpy(machine: str) -> None:
    for ours, theirs in zip(Tensor(X).split(3, 2), np.split(X, [3], 2), strict=True):
        assert_same(ours, theirs)
    for ours, theirs in zip(Tensor(X).split([1, 2], 1), np.split(X, [1], 1), strict=True):
        assert_same(ours, theirs)
    assert [part.shape for part in Tensor(X).chunk(3, 2)] == [(2, 3, 2), (2, 3, 2)]


def test_cat_and_stack_agree_with_numpy(machine: str) -> None:
    y = X[:, :1] + 100
    assert_same(Tensor(X).cat(Tensor(y), Tensor(X), dim=1), np.concatenate([X, y, X], 1))
    assert_same(Tensor.cat(Tensor(X), Tensor(X)), np.concatenate([X, X]))
    assert_same(Tensor.stack(Tensor(X), Tensor(X), dim=-1), np.stack([X, X], -1))


def test_cat_keeps_negative_zero_and_nan(machine: str) -> None:
    a, b = np.array([-0.0, np.nan], "f"), np.array([np.inf, -0.0], "f")
    assert_same(Tensor(a).cat(Tensor(b)), np.concatenate([a, b]))


INDICES: list[Any] = [
    0, -1, (1, 2), (slice(None), 1), slice(0, 1), (Ellipsis, 0), (0, Ellipsis, 1), None,
    (slice(None), None, 1), (slice(None), slice(None), slice(None, None, 2)),
    (slice(None), slice(None, None, -1)), (Ellipsis, slice(3, None, -2)), (1, slice(1, 3), -1),
    (slice(5, 9),), (Ellipsis, slice(1, None, 3)), (slice(None), slice(-2, None)),
    (0, 0, 0), np.int64(1), Ellipsis,
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_index_agrees_with_numpy(machine: str, index: Any) -> None:
    assert_same(Tensor(X)[index], np.asarray(X[index]))


@pytest.mark.parametrize(
    "index",
    [([2, 0],), (slice(None), [0, 2, 2, -1]), (Ellipsis, np.array([[0, 1], [3, -4]])), (0, [1, 1])],
    ids=str,
)
def test_index_by_positions_agrees_with_numpy(machine: str, index: Any) -> None:
    source = np.concatenate([X, X + 50])
    assert_same(Tensor(source)[index], source[index])


def test_index_by_a_tensor_reads_rows_without_touching_others(machine: str) -> None:
    table = np.array([[1.0, np.nan], [2.0, np.inf], [3.0, -1.0]], "f")
    assert_same(Tensor(table)[Tensor([2, 1])], table[[2, 1]])
    assert Tensor([True, False])[Tensor([1, 0])].tolist() == [False, True]


def test_gather_agrees_with_numpy(machine: str) -> None:
    index = np.array([[[0, 1, 1, 0], [2, 2, 0, 1]], [[1, 0, 2, 2], [0, 0, 0, 1]]])
    for axis in (1, -2):
        found = Tensor(X).gather(axis, Tensor(index, dtype="int32"))
        assert_same(found, np.take_along_axis(X, index, 1))


def test_wrong_indices_are_refused() -> None:
    t = Tensor(X)
    with pytest.raises(IndexError, match=r"index 2 is out of range for axis 0 of \(2, 3, 4\)"):
        t[2]
    with pytest.raises(IndexError, match="4 indices for 3 axes"):
        t[0, 0, 0, 0]
    with pytest.raises(IndexError, match="one '...'"):
        t[..., ...]
    with pytest.raises(ShapeError, match=r"a mask of shape \(2,\) for axes of \(3,\)"):
        t[0, Tensor([True, False])]
    with pytest.raises(IndexError, match="a bool is no index"):
        t[True]
    with pytest.raises(DtypeError, match="indices are integers or bools"):
        t[Tensor([1.0])]


def test_broadcast_mismatch_is_refused_at_the_operator_with_both_shapes() -> None:
    with pytest.raises(ShapeError, match=r"cannot broadcast \(3,\) and \(2,\) in \+"):
        Tensor([1, 2, 3]) + Tensor([1, 2])
    with pytest.raises(ShapeError, match=r"cannot cat \(2, 3\) and \(3, 4\) along axis 0"):
        Tensor.ones(2, 3).cat(Tensor.ones(3, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: t.reshape(5, 5),
        lambda t: t.reshape(-1, 7),
        lambda t: t.reshape(-1, -1),
        lambda t: t.permute(0, 1),
        lambda t: t.permute(0, 1, 1),
        lambda t: t.expand(3, 3, 4),
        lambda t: t.expand(3),
        lambda t: t.shrink(((0, 3), None, None)),
        lambda t: t.flip(3),
        lambda t: t.split([1, 1], 1),
        lambda t: t.sum(3),
        lambda t: t.sum((0, 0)),
        lambda t: t.unflatten(2, (3, 2)),
        lambda t: t.stack(Tensor([1])),
        lambda t: t.pad(((1, 1),)),
        lambda t: Tensor.zeros(0).max(),
    ],
)
def test_wrong_shapes_are_refused_with_a_shape_error(wrong: Any) -> None:
    with pytest.raises(ShapeError):
        wrong(Tensor(X))


def test_views_of_a_realised_tensor_run_no_kernel() -> None:
    t = Tensor(X).realize()
    before = GlobalCounters.kernel_count
    t.reshape(6, 4).T[1:3].flip(0).unsqueeze(0).expand(5, 2, 6).realize()
    assert GlobalCounters.kernel_count == before


def test_pad_lays_minus_zero_around_if_asked(machine: str) -> None:
    padded = Tensor([1.0]).pad(((1, 1),), value=-0.0)
    assert np.signbit(padded.numpy()).tolist() == [True, False, True]
    assert not np.signbit(Tensor([1.0]).pad(((1, 1),)).numpy()).any()


@pytest.mark.parametrize(
    "padding", [((1,), (1, 2)), (((1, 2),) * 3), ((1, 2, 3), (1, 2)), ("ab", 1)]
)
def test_what_is_no_pair_for_each_axis_is_named(padding: object) -> None:
    with pytest.raises(ShapeError, match="needs a pair for each axis"):
        Tensor.ones(2, 3).pad(padding)  # type: ignore[arg-type]
