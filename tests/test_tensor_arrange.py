"""Views that take several steps, joining and padding, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensors import assert_same, machine, numbers

from proofgrad import ShapeError, Tensor

__all__ = ["machine"]

X = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("formula", "sizes", "expected"),
    [
        ("a b c -> c a b", {}, X.transpose(2, 0, 1)),
        ("a b c -> (a b) c", {}, X.reshape(6, 4)),
        ("a b c -> a (c b)", {}, X.transpose(0, 2, 1).reshape(2, 12)),
        ("a b (c d) -> d a (b c)", {"c": 2}, X.reshape(2, 3, 2, 2).transpose(3, 0, 1, 2).reshape(2, 2, 6)),
        ("... c -> c ...", {}, X.transpose(2, 0, 1)),
        ("a ... -> ... 1 a", {}, X.transpose(1, 2, 0)[:, :, None]),
        ("a ... -> (a ...)", {}, X.reshape(-1)),
        ("(a d) b c->a d c () b", {"d": 1}, X.reshape(2, 1, 3, 4).transpose(0, 1, 3, 2)[:, :, :, None]),
    ],
)  # fmt: skip
def test_rearrange_does_what_the_formula_says(
    machine: str, formula: str, sizes: dict[str, int], expected: Any
) -> None:
    assert_same(Tensor(X).rearrange(formula, **sizes), expected)


@pytest.mark.parametrize(
    ("formula", "sizes", "message"),
    [
        ("a b c", {}, "needs one '->'"),
        ("a b c -> a b", {}, "the same names"),
        ("a b -> b a", {}, "describes 2 axes, and there are 3"),
        ("a b (c d) -> a b c d", {}, "sizes of all but one of c, d"),
        ("a b (c d) -> a b c d", {"c": 3}, "4 elements is no product of {'c': 3}"),
        ("a b c -> c b a", {"e": 3}, "has no axis e"),
        ("a (b c -> c b a", {}, "parentheses do not match"),
        ("a b c -> c b a !", {}, "cannot read '!'"),
        ("... b -> b", {}, "both sides must have"),
    ],
)
def test_wrong_formula_is_refused(formula: str, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tensor(X).rearrange(formula, **sizes)


def test_diagonals_agree_with_numpy(machine: str) -> None:
    for offset in (-3, -1, 0, 2, 5):
        assert_same(Tensor(X).diagonal(offset, 1, 2), X.diagonal(offset, 1, 2))
        assert_same(Tensor(X).diagonal(offset, -1, 0), X.diagonal(offset, -1, 0))
    assert_same(Tensor(X[0, 0]).diag(), np.diag(X[0, 0]))
    with pytest.raises(ShapeError, match="two axes"):
        Tensor(X).diagonal(0, 1, 1)


def test_diag_keeps_the_type_and_puts_nothing_beside_what_is_not_finite() -> None:
    for line in ([1.0, -0.0, np.nan, np.inf], [True, False], [3], np.zeros(0, np.float32)):
        x = np.array(line)
        assert_same(Tensor(x).diag(), np.diag(x) if x.size else np.zeros((0, 0), x.dtype))


def test_unfold_lays_windows_last(machine: str) -> None:
    windows = np.lib.stride_tricks.sliding_window_view(X, 2, axis=1)
    assert_same(Tensor(X).unfold(1, 2, 1), windows)
    assert_same(Tensor(X).unfold(2, 2, 2), X.reshape(2, 3, 2, 2))
    with pytest.raises(ShapeError, match="a window of 5 elements"):
        Tensor(X).unfold(1, 5, 1)


def test_meshgrid_roll_and_repeats_agree_with_numpy(machine: str) -> None:
    a, b = np.arange(3, dtype=np.int32), np.arange(2, dtype=np.int32)
    for indexing in ("ij", "xy"):
        found = Tensor(a).meshgrid(Tensor(b), indexing=indexing)
        for ours, expected in zip(found, np.meshgrid(a, b, indexing=indexing), strict=True):
            assert_same(ours, expected)
    assert_same(Tensor(X).roll(5), np.roll(X, 5))
    assert_same(Tensor(X).roll((1, -3), (0, 2)), np.roll(X, (1, -3), (0, 2)))
    assert_same(Tensor(X).roll(7, 1), np.roll(X, 7, 1))
    assert_same(Tensor(X).repeat_interleave(2, 1), X.repeat(2, 1))
    with pytest.raises(ValueError, match="one shift for each"):
        Tensor(X).roll((1, 2), 0)


MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "constant": "constant"}


@pytest.mark.parametrize("mode", MODES)
def test_pad_modes_agree_with_numpy(machine: str, mode: str) -> None:
    around = ((1, 0), (2, 2), (0, 3))
    assert_same(
        Tensor(X).pad(around, mode=mode), np.pad(X, around, mode=MODES[mode])
    ) if mode != "reflect" else None
    around = ((0, 1), (2, 1), (3, 0))
    assert_same(Tensor(X).pad(around, mode=mode), np.pad(X, around, mode=MODES[mode]))


def test_pad_with_negative_amounts_cuts() -> None:
    line = Tensor([1, 2, 3])
    assert line.pad((2, -1), mode="circular").tolist() == [1, 2, 1, 2]  # a circle of what is left
    assert line.pad((-1, 2), mode="replicate").tolist() == [2, 3, 3, 3]
    assert line.pad((-1, 1), value=9).tolist() == [2, 3, 9]
    assert line.pad_to(5, value=-1).tolist() == [1, 2, 3, -1, -1]
    assert Tensor(X).shrink_to(None, 2, 1).tolist() == X[:, :2, :1].tolist()


def test_wrong_padding_is_refused_with_the_limit() -> None:
    with pytest.raises(ShapeError, match=r"pad 'reflect' of \(3, 0\) .* at most 2"):
        Tensor([1, 2, 3]).pad((3, 0), mode="reflect")
    with pytest.raises(ShapeError, match="at most 3"):
        Tensor([1, 2, 3]).pad((4, 0), mode="circular")
    with pytest.raises(ValueError, match="mode is 'constant', 'reflect'"):
        Tensor([1]).pad((1, 0), mode="mirror")
    with pytest.raises(ShapeError, match="cannot pad"):
        Tensor([1, 2, 3]).pad_to(2)


def test_cat_and_stack_take_lists_and_name_the_part_that_differs() -> None:
    a, b = Tensor([1, 2]), Tensor([3.0, 4.0])
    assert Tensor.cat(a, b).tolist() == [1, 2, 3, 4]
    assert a.cat([b, a]).tolist() == [1, 2, 3, 4, 1, 2]
    assert Tensor.stack(a, b, dim=-1).tolist() == [[1, 3], [2, 4]]
    with pytest.raises(
        ShapeError, match=r"cannot cat \(2,\) and \(2, 1\) along axis 0, part number 2"
    ):
        a.cat(b, b.unsqueeze(1))
    with pytest.raises(ShapeError, match=r"cannot stack \(2,\) and \(1,\) .* part number 1"):
        a.stack(Tensor([1]))
    with pytest.raises(TypeError, match=r"cat takes Tensors, not 3 \(int\)"):
        a.cat(3)


def test_circular_padding_goes_around_what_the_cuts_leave(machine: str) -> None:
    """As torch.nn.functional.pad; the other modes cut last."""
    torch = pytest.importorskip("torch")
    x = numbers(1, 2, 5, 4)
    for around in [
        (1, -1, 0, 0),
        (-1, 1, 0, 0),
        (-2, 2, 1, 1),
        (2, -2, -1, 2),
        (0, -1, 3, 0),
        (-1, -1, 0, -2),
    ]:
        expected = torch.nn.functional.pad(torch.tensor(x), around, mode="circular")
        assert_same(Tensor(x).pad(around, mode="circular"), expected.numpy())
    with pytest.raises(ShapeError, match="at most 2"):
        Tensor([1, 2, 3]).pad((3, -1), mode="circular")


def test_rearrange_joins_any_axes_in_a_group() -> None:
    x = np.arange(24).reshape(2, 3, 4)
    assert Tensor(x).rearrange("... -> (...)").tolist() == x.reshape(24).tolist()
    assert Tensor(x).rearrange("a ... -> (...) a").tolist() == x.reshape(2, 12).T.tolist()
    assert Tensor(x).rearrange("a ... -> (a ...)").shape == (24,)
    assert Tensor(x).rearrange("... c -> c (...) 1").shape == (4, 6, 1)
    assert Tensor(5).rearrange("... -> (...)").shape == (1,)
    with pytest.raises(ShapeError, match="once"):
        Tensor(x).rearrange("... -> ... (...)")
