"""Gradients that come to the result of a recorded function: what it was made of gets none without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, TinyJit, dtypes
from proofgrad.core.tensor.data.errors import GradientError
from proofgrad.nn import BatchNorm
from proofgrad.nn.optim import SGD

Function = Callable[[Tensor], Tensor]


def weights() -> Tensor:
    return Tensor([2.0, 3.0], requires_grad=True)


def recorded(function: Function, calls: int) -> Tensor:
    """What the last call gives: the second is recorded, those that follow are replays."""
    jitted = TinyJit(function)
    return [jitted(Tensor([1.0, 1.0])) for _ in range(calls)][-1]


@pytest.mark.parametrize("kind", [*dtypes.floats, *dtypes.fp8s], ids=str)
def test_the_way_is_known_to_be_lost_behind_casts_to_any_float(kind: Any) -> None:
    w = weights()
    z = recorded(lambda x: (x * w).realize(), 3)
    loss = (z.cast(kind).cast(dtypes.float32) * w).sum()
    with pytest.raises(GradientError, match="would be a part of it"):
        loss.gradient(w)


@pytest.mark.parametrize("calls", [2, 3, 5])
@pytest.mark.parametrize("after", [lambda z: z, lambda z: (z * 2).realize().reshape(2)])
def test_partial_gradient_beside_a_recorded_function_is_refused(
    calls: int, after: Function
) -> None:
    w = weights()
    loss = (after(recorded(lambda x: (x * w).relu().realize(), calls)) * w).sum()
    with pytest.raises(GradientError, match=r"would be a part of it.* TinyJit"):
        loss.gradient(w)
    assert len(loss.gradient(w, materialize_grads=True)) == 1
    loss.backward()
    with pytest.raises(GradientError, match=r"\(2,\) .* is not known.* TinyJit recorded"):
        w.grad  # noqa: B018
    with pytest.raises(GradientError, match="is not known"):
        SGD([w]).step()
    w.zero_grad()
    assert w.grad is None


WAYS_TO_AN_ARGUMENT: dict[str, Callable[[Function, Tensor], Tensor]] = {
    "itself": lambda jitted, p: jitted(p),
    "a view": lambda jitted, p: jitted(p[:2])[:2],
    "a value": lambda jitted, p: jitted(p * 2),
    "results": lambda jitted, p: TinyJit(lambda x: x * 2)(jitted(p)),
    "realised": lambda jitted, p: (jitted(p) + 1).realize(),
    "a tuple": lambda jitted, p: jitted(p).reshape(2, 1).squeeze(),
}


@pytest.mark.parametrize("asks", [None, True])
@pytest.mark.parametrize("way", WAYS_TO_AN_ARGUMENT)
def test_partial_gradient_to_an_argument_of_a_recorded_function_is_refused(
    way: str, asks: bool | None
) -> None:
    jitted = TinyJit(lambda x: (x * x).realize())
    p, q = [Tensor([2.0, 3.0], requires_grad=asks).realize() for _ in range(2)]
    WAYS_TO_AN_ARGUMENT[way](jitted, q)
    for _ in range(4):  # the recording, and replays
        z = WAYS_TO_AN_ARGUMENT[way](jitted, p)
        with pytest.raises(GradientError, match=r"would be a part of it.* TinyJit"):
            (z * p).sum().gradient(p)
        loss = (z * p * q).sum()
        assert loss.gradient(q)[0].tolist() == (z * p).tolist()
        loss.backward()
        with pytest.raises(GradientError, match="is not known"):
            p.grad  # noqa: B018
        p.zero_grad()
        del z, loss


def test_gradient_to_an_argument_of_another_call_is_whole() -> None:
    """A result of an earlier call lends its memory to later ones, but not what it was made of."""
    jitted = TinyJit(lambda x: x * x)
    p, state = Tensor([2.0, 3.0]).realize(), Tensor([0.5, 0.5]).realize()
    for _ in range(8):
        jitted(p)
        state = jitted(state)
        z = jitted(Tensor([1.0, 1.0]))
        assert (z * p).sum().gradient(p)[0].tolist() == [1.0, 1.0]
        assert (state * state).sum().gradient(state)[0].tolist() == (state * 2).tolist()
        del z


def test_gradient_of_the_call_before_the_recording_is_whole() -> None:
    w = weights()
    (recorded(lambda x: (x * w).realize(), 1) * w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [4.0, 6.0]


def without_gradients(w: Tensor) -> Function:
    def function(x: Tensor) -> Tensor:
        with Tensor.no_grad():
            return (x * w).realize()

    return function


NOTHING_LOST: dict[str, Callable[[Tensor], Function]] = {
    "detached": lambda w: lambda x: (x * w.detach()).realize(),
    "no_grad": without_gradients,
    "compared": lambda w: lambda x: (w > x).where(x, x * 2).realize(),
    "frozen": lambda w: lambda x: (x * w.detach().requires_grad_(False)).realize(),
    "without it": lambda w: lambda x: (x * 2).realize(),
}


@pytest.mark.parametrize("name", NOTHING_LOST)
def test_gradient_that_a_recorded_function_passes_on_to_nothing_is_whole(name: str) -> None:
    w = weights()
    z = recorded(NOTHING_LOST[name](w), 4)
    (z * w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == z.tolist()
    assert (z * w).sum().gradient(w)[0].tolist() == z.tolist()


def test_gradient_of_others_beside_a_lost_one_is_given() -> None:
    """As that of a critic, of what a recorded generator made."""
    w, v = weights(), weights()
    z = recorded(lambda x: (x * w).realize(), 4)
    (z * v).sum().backward()
    assert v.grad is not None and v.grad.tolist() == [2.0, 3.0]
    w.zero_grad()
    (w * v.detach()).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [2.0, 3.0]


def test_gradient_of_a_recorded_result_that_was_made_a_leaf_ends_there() -> None:
    w = weights()
    z = recorded(lambda x: (x * w).realize(), 4).requires_grad_()
    (z * w).sum().backward()
    assert z.grad is not None and z.grad.tolist() == [2.0, 3.0]
    assert w.grad is not None and w.grad.tolist() == [2.0, 3.0]


def test_gradient_ends_at_a_tensor_that_was_assigned_a_recorded_result() -> None:
    """As at an average of weights, of which a recorded function makes the next."""
    w, average = weights(), Tensor([0.0, 0.0]).realize()
    mixed = TinyJit(lambda: (average * 0.5 + w * 0.5).realize())
    for _ in range(4):
        average.assign(mixed()).realize()
        assert (w * average).sum().gradient(w)[0].tolist() == average.tolist()


def test_parameters_of_a_recorded_step_take_gradients_after_it() -> None:
    w = weights()
    optimizer = SGD([w], lr=0.5)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (x * w).sum()
        loss.backward()
        optimizer.step()
        return loss

    @TinyJit
    def slope(x: Tensor) -> Tensor:
        w.grad = None
        (x * w).sum().backward()
        assert w.grad is not None
        return w.grad.realize()

    with Tensor.train():
        losses = [step(Tensor([1.0, 1.0])) for _ in range(4)]
    w.grad = None
    (losses[-1] * w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [losses[-1].item()] * 2
    for _ in range(4):
        slope(Tensor([1.0, 1.0]))
    with Tensor.train():
        optimizer.step()
    w.zero_grad()
    (w * w).sum().backward()
    assert w.grad.tolist() == (w.detach() * 2).tolist()


@pytest.mark.parametrize("first", [False, True])
def test_a_function_is_recorded_for_itself_within_no_grad(first: bool) -> None:
    w, x = weights(), Tensor([1.0, 1.0])
    scaled = TinyJit(lambda x: (x * w).realize())
    for off in (first, not first, first, not first):
        for _ in range(2):
            w.zero_grad()
            with Tensor.inference_mode(off):
                z = scaled(x)
            (z * w).sum().backward()
        if off:
            assert w.grad is not None and w.grad.tolist() == [2.0, 3.0]
    w.zero_grad()
    (scaled(x) * w).sum().backward()
    with pytest.raises(GradientError, match="TinyJit recorded"):
        w.grad  # noqa: B018


@pytest.mark.parametrize("first", [False, True])
def test_a_function_is_recorded_for_each_mode_of_training_that_it_looks_at(first: bool) -> None:
    norms, x = [BatchNorm(2), BatchNorm(2)], Tensor([[1.0, 5.0], [3.0, 9.0]])
    recorded_norm, plain = TinyJit(lambda x: norms[0](x).realize()), norms[1]
    twice = TinyJit(lambda x: (x * 2).realize())
    for mode in (first, first, first, not first, not first, first):
        with Tensor.train(mode):
            np.testing.assert_allclose(recorded_norm(x).numpy(), plain(x).numpy(), rtol=1e-6)
            twice(x)
        assert norms[0].running_mean.tolist() == plain.running_mean.tolist()
    assert len(recorded_norm._kept) == 2 and len(twice._kept) == 1


def test_weights_that_are_frozen_after_the_recording_stay_and_learn_again() -> None:
    def trained(jit: bool) -> list[object]:
        w, v, found = weights(), weights(), list[object]()
        optimizer = SGD([w, v], lr=0.25, momentum=0.5)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (x * w * v).sum()
            loss.backward()
            optimizer.step()
            return loss

        called = TinyJit(step) if jit else step
        with Tensor.train():
            for asks in (True, True, True, False, False, False, True, True, True):
                w.requires_grad_(asks)
                found += [called(Tensor([1.0, 0.5])).item(), w.tolist(), v.tolist()]
        return found

    assert trained(True) == trained(False)
