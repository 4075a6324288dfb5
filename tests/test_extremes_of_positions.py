"""Positions and labels in memory are looked at before they choose: by numpy where it is there, with the same result without."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor
from proofgrad.core.tensor.runtime import reading

KINDS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def extremes_of(values: np.ndarray[Any, Any], left_out: int | None) -> tuple[int, ...]:
    return reading.extremes(memoryview(values), left_out)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 33, 1000])
@pytest.mark.parametrize("left_out", [None, 3, -100, 0])
def test_extremes_are_the_same_with_numpy_and_without(
    kind: str, count: int, left_out: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = np.iinfo(kind)
    values = np.random.default_rng(count).integers(limits.min, limits.max, count, kind, True)
    values[::3] = 3
    wanted = [int(value) for value in values if int(value) != left_out]
    expected = (min(wanted), max(wanted)) if wanted else ()
    assert extremes_of(values, left_out) == expected
    monkeypatch.delitem(sys.modules, "numpy")
    assert extremes_of(values, left_out) == expected


def test_many_positions_and_labels_are_looked_at_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    least = builtins.min

    def noted(*values: Any, **options: Any) -> Any:
        asked.extend([len(one) for one in values if isinstance(one, memoryview)])
        return least(*values, **options)

    monkeypatch.setattr(builtins, "min", noted)
    labels = Tensor(np.arange(500) % 7).realize()
    scores = Tensor.ones(500, 7).contiguous().realize()
    scores[labels, labels].realize()
    scores.cross_entropy(labels).realize()
    scores.nll_loss(labels, ignore_index=3).realize()
    assert not asked


@pytest.mark.parametrize("is_there", [True, False])
def test_a_position_or_label_beyond_the_end_is_refused(
    is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = Tensor.ones(60, 7).contiguous().realize()
    labels = Tensor([*[0] * 58, -100, 7]).realize()
    inside = Tensor([*[0] * 58, -100, 6]).realize()
    if not is_there:
        monkeypatch.delitem(sys.modules, "numpy")
    with pytest.raises(IndexError, match="label 7 of 7 classes"):
        scores.nll_loss(labels, ignore_index=-100)
    with pytest.raises(IndexError, match="index -100 is out of range for axis 0"):
        scores[labels]
    assert scores.nll_loss(inside, ignore_index=-100).shape == ()
