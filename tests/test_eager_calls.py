"""What an eager call of a known graph asks of Python: as many calls of functions as a kernel of a few elements takes time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counted_calls import calls

from proofgrad import Tensor, nn
from proofgrad.core import settings
from proofgrad.core.ir.dtypes import dtypes

X = Tensor([[float(k * 5 + j) for j in range(5)] for k in range(4)]).realize()
W = Tensor([[float(k - j) for j in range(5)] for k in range(4)]).realize()


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that asks for nothing, as that of a program."""
    for name in (*settings.READ_BY_STAGES, "DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("plain", "fresh_runs")
@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda: (X + 1).realize(), 40),
        (lambda: (X + W).realize(), 42),
        (lambda: X.exp().realize(), 43),
        (lambda: X.sum().realize(), 56),
        (lambda: X.sum().item(), 79),
        (lambda: (X @ W.T).realize(), 67),
    ],
)
def test_a_known_call_takes_few_calls_of_functions(call: Callable[[], object], most: int) -> None:
    for _ in range(4):  # the first run, runs into memory that is kept, and caches
        call()
    assert calls(call, ("call",)) <= most


@pytest.mark.usefixtures("plain", "fresh_runs")
def test_a_step_of_sgd_takes_few_calls_of_functions() -> None:
    layer = nn.Linear(5, 3)
    optimizer = nn.optim.SGD(nn.state.get_parameters(layer), lr=0.01)

    def step() -> None:
        with Tensor.train():
            optimizer.zero_grad()
            layer(X).square().mean().backward()
            optimizer.step()

    for _ in range(4):
        step()
    assert calls(step, ("call",)) <= 610


@pytest.mark.parametrize("dtype", [*dtypes.all, *dtypes.fp8s])
def test_operands_in_their_own_type_give_what_others_give(dtype: object) -> None:
    """A result that needs no rounding takes a shorter way than one of a type that is not computed with."""
    one = Tensor([1, 0], dtype=dtype)  # type: ignore[arg-type]
    beside = Tensor([[0, 1], [1, 1]], dtype=dtype)  # type: ignore[arg-type]
    assert (one + beside).dtype is (beside + one).dtype is (one | beside if one.dtype is dtypes.bool else one * beside).dtype is one.dtype  # fmt: skip
    assert [[bool(v) for v in row] for row in (one + beside).tolist()] == [[True, True], [True, True]]  # fmt: skip
    wide = Tensor([1.0, 2.0], dtype=dtypes.float64)
    assert (wide + one).dtype is (one + wide).dtype is dtypes.float64
