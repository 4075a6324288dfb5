"""A loop that asks for what is made of a value, and never for the value, is told so once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from proofgrad import Tensor
from proofgrad.core.tensor.runtime import computed_again

TOLD = "computed again what the one before had computed"


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """8 nodes are a long run, and 3 such runs a loop."""
    monkeypatch.setattr(computed_again, "LEAST_NODES", 8)
    monkeypatch.setattr(computed_again, "MOST_RUNS", 3)
    monkeypatch.setattr(computed_again, "_LAST", computed_again._Runs())
    yield


def told(steps: int, keeps: bool) -> list[warnings.WarningMessage]:
    x = Tensor.ones(3).contiguous().realize()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for k in range(steps):
            x = (x * (2.5 + k)).sin() + 1.0
            if keeps:
                x.realize()
            assert x.sum().item() == x.sum().item()
    return [w for w in found if TOLD in str(w.message)]


def test_what_a_loop_carries_and_never_keeps_is_named_at_its_line() -> None:
    (warning,) = told(40, keeps=False)
    assert warning.filename == __file__ and ".realize()" in str(warning.message)


def test_what_is_kept_and_a_short_loop_are_no_matter() -> None:
    assert not told(40, keeps=True)
    assert not told(3, keeps=False)


def test_other_runs_are_not_counted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(6):
            x = Tensor.ones(2 + k).contiguous().realize()
            for _ in range(5):
                x = (x * 1.5).exp2() + 0.5
            x.realize()
