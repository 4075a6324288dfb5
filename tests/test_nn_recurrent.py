"""Recurrent layers beside torch: outputs, states and gradients, with its weights; what does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import ShapeError, Tensor, TinyJit, nn

KINDS = ("RNN", "LSTM", "GRU")
OPTIONS: list[dict[str, Any]] = [
    {},
    {"bias": False},
    {"num_layers": 2},
    {"batch_first": True},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def with_weights_of(layer: Any, theirs: Any) -> Any:
    state = {name: Tensor(value.detach().numpy()) for name, value in theirs.state_dict().items()}
    nn.state.load_state_dict(layer, state, verbose=False)
    return layer


def flat(states: Any) -> list[Any]:
    return list(states) if isinstance(states, tuple) else [states]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 2, 4), (1, 1, 4), (2, 4)])
def test_a_layer_has_the_values_and_gradients_of_torch(
    kind: str, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn, kind)(4, 6, **options)
    ours = with_weights_of(getattr(nn, kind)(4, 6, **options), theirs)
    x = Tensor(numbers(*shape), requires_grad=True)
    for weight in nn.state.get_parameters(ours):
        weight.requires_grad_()
    y = torch.tensor(numbers(*shape), requires_grad=True)
    wanted, ends = theirs(y)
    found, states = ours(x)
    loss = wanted.square().sum() + sum([end.sum() for end in flat(ends)])
    loss.backward()
    total = found.square().sum()
    for state in flat(states):
        total = total + state.sum()
    total.backward()
    assert x.grad is not None
    pairs = [(found, wanted), (x.grad, y.grad), *zip(flat(states), flat(ends), strict=True)]
    weights = dict(theirs.named_parameters())
    pairs += [(getattr(ours, name).grad, weight.grad) for name, weight in weights.items()]
    Tensor.realize(
        *[one for one, _ in pairs]
    )  # in one go: each alone would compute all steps again
    for one, other in pairs:
        assert one.shape == tuple(other.shape)
        np.testing.assert_allclose(one.numpy(), other.detach().numpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_a_sequence_in_two_parts_is_the_whole(kind: str) -> None:
    layer, x = getattr(nn, kind)(4, 6, 2), Tensor(numbers(6, 2, 4))
    whole, ends = layer(x)
    first, middle = layer(x[:2])
    second, last = layer(x[2:], middle)
    np.testing.assert_allclose(whole.numpy(), first.cat(second).numpy(), rtol=1e-5, atol=1e-6)
    for one, other in zip(flat(ends), flat(last), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)


def test_cells_are_the_steps_of_layers() -> None:
    for kind, cell in (("RNN", "RNNCell"), ("LSTM", "LSTMCell"), ("GRU", "GRUCell")):
        layer, step = getattr(nn, kind)(4, 6), getattr(nn, cell)(4, 6)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(step, name).assign(getattr(layer, f"{name}_l0").detach())
        x, state, seen = Tensor(numbers(4, 2, 4)), None, []
        for time in range(4):
            state = step(x[time], state)
            seen.append(flat(state)[0])
        np.testing.assert_allclose(
            layer(x)[0].numpy(), Tensor.stack(*seen).numpy(), rtol=1e-5, atol=1e-6
        )


@pytest.mark.long
def test_a_recorded_step_trains_as_one_that_is_not() -> None:
    def losses(wrapped: Callable[[Any], Any]) -> list[float]:
        Tensor.manual_seed(3)
        layer = nn.GRU(3, 5)
        optimizer, x = (
            nn.optim.SGD(nn.state.get_parameters(layer), lr=0.5),
            Tensor(numbers(7, 2, 3)),
        )

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = layer(x)[0].square().mean().backward()
            optimizer.step()
            return loss.realize()

        run = wrapped(step)
        with Tensor.train():
            return [run(x).item() for _ in range(5)]

    plain, recorded = losses(lambda f: f), losses(TinyJit)
    np.testing.assert_allclose(plain, recorded, rtol=1e-5)
    assert plain[-1] < plain[0]


def test_no_steps_give_no_outputs_and_the_state_as_it_was() -> None:
    outputs, (h, c) = nn.LSTM(4, 6)(Tensor.zeros(0, 2, 4))
    assert outputs.shape == (0, 2, 6) and h.tolist() == c.tolist() == [[[0.0] * 6] * 2]


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no hidden values": (lambda: nn.LSTM(4, 0), ShapeError, "0 hidden values"),
    "a nonlinearity": (lambda: nn.RNN(4, 6, nonlinearity="sine"), ValueError, "'sine'"),
    "dropout": (lambda: nn.GRU(4, 6, dropout=2.0), ValueError, "probability, not 2.0"),
    "a projection": (lambda: nn.LSTM(4, 6, proj_size=2), ValueError, "LSTM has no projection of its state"),
    "axes": (lambda: nn.GRU(4, 6)(Tensor.zeros(4)), ShapeError, r"takes \(time, n, 4\), not \(4,\)"),
    "features": (lambda: nn.GRU(4, 6)(Tensor.zeros(2, 3)), ShapeError, r"takes \(.., 4\)"),
    "a state": (lambda: nn.GRU(4, 6)(Tensor.zeros(2, 3, 4), Tensor.zeros(1, 2, 6)), ShapeError, r"is \(1, 3, 6\) here"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str) -> None:
    ask, error, said = REFUSED[case]
    with pytest.raises(error, match=said):
        ask()


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("before", [(), (1,), (3,), (5, 2)])
def test_first_state_of_a_cell_has_the_axes_of_the_input(
    kind: str, before: tuple[int, ...]
) -> None:
    """One example without an axis of examples gives one state, and not as many as it has values."""
    cell = getattr(nn, kind)(3, 2)
    x = Tensor(numbers(*before, 3))
    zeros = Tensor.zeros(*before, 2)
    found, want = cell(x), cell(x, (zeros, zeros) if kind == "LSTMCell" else zeros)
    if kind == "LSTMCell":
        found, want = found[1], want[1]
    assert found.shape == (*before, 2)
    assert found.tolist() == want.tolist()
