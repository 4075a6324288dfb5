"""TinyJit where somebody holds what an earlier call made, of weights that are written to later.

A result that leads to a Tensor with requires_grad=True keeps its graph, so the function's graph, made again of weights that are as they
were, has that value already. A replay gives it only as long as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import GlobalCounters, Tensor, TinyJit

Function = Callable[[Tensor, Tensor], list[Tensor]]


def _of_a_product(w: Tensor, v: Tensor) -> list[Tensor]:
    return [(w * v).sum().realize()]


def _of_a_part(w: Tensor, v: Tensor) -> list[Tensor]:
    doubled = w * 2
    more = doubled + v
    Tensor.realize(doubled, more)
    return [doubled, more]


def _of_a_choice(w: Tensor, v: Tensor) -> list[Tensor]:
    nearest = (w - v).square().argmin()
    chosen = v[nearest]
    gradients = (chosen * w).sum().gradient(w)
    Tensor.realize(nearest, chosen, *gradients)
    return [nearest, chosen, *gradients]


def _of_an_order(w: Tensor, v: Tensor) -> list[Tensor]:
    values, positions = w.sort()
    return [values.realize(), (v[positions] + values).realize()]


FUNCTIONS: list[Function] = [_of_a_product, _of_a_part, _of_a_choice, _of_an_order]
W, V, LATER = [1.0, -2.0, 3.0], [0.5, 4.0, -1.0], [-3.0, 0.25, 2.0]


def values(results: list[Tensor]) -> list[Any]:
    return [result.tolist() for result in results]


@pytest.mark.parametrize("calls", [1, 2, 3, 4])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_held_result_is_not_given_for_weights_that_were_written_since(
    function: Function, calls: int
) -> None:
    w, v = Tensor(W, requires_grad=True).realize(), Tensor(V, requires_grad=True).realize()
    recorded = TinyJit(lambda: function(w, v))
    held = [recorded() for _ in range(calls)]
    first = values(held[0])
    w.assign(Tensor(LATER)).realize()
    for _ in range(3):
        assert values(recorded()) == values(function(Tensor(LATER, requires_grad=True), v))
    assert [values(one) for one in held] == [first] * calls


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_result_of_the_last_call_alone_is_not_given_either(calls: int) -> None:
    """The call before the last one is forgotten: the value then belongs to a graph that no Tensor shows."""
    w = Tensor(W, requires_grad=True).realize()
    recorded = TinyJit(lambda: (w * 2).realize())
    result = recorded()
    for _ in range(calls):
        result = recorded()
    del result
    w.assign(w + 1).realize()
    assert recorded().tolist() == [4.0, -2.0, 8.0]


def test_a_value_that_was_made_outside_is_not_given_for_weights_that_were_written_since() -> None:
    w = Tensor(W, requires_grad=True).realize()
    outside = (w * 2).realize()
    recorded = TinyJit(lambda: (w * 2 + 1).realize())
    before = [recorded().tolist() for _ in range(3)]
    w.assign(Tensor(LATER)).realize()
    assert before == [[3.0, -3.0, 7.0]] * 3
    assert recorded().tolist() == [-5.0, 1.5, 5.0]
    assert outside.tolist() == [2.0, -4.0, 6.0]


def test_a_result_that_a_function_reads_by_name_stays_as_it_was() -> None:
    """It is a value of its own: what it was made of may be written to. The function is recorded anew once."""
    w = Tensor(W, requires_grad=True).realize()
    made = (w * 2).realize()
    recorded = TinyJit(lambda: (made + 1).realize())
    for _ in range(3):
        assert recorded().tolist() == [3.0, -3.0, 7.0]
    for _ in range(2):
        w.assign(Tensor(LATER)).realize()
        assert recorded().tolist() == [3.0, -3.0, 7.0]
    assert w.tolist() == LATER


def test_random_weights_are_no_reason_to_record_anew() -> None:
    w = Tensor.randn(3, requires_grad=True).realize()
    recorded = TinyJit(lambda: (w * 2).realize())
    for _ in range(3):
        recorded()
    replay = recorded.captured
    Tensor.randn(3).realize()
    before = GlobalCounters.kernel_count
    assert np.allclose(recorded().numpy(), w.numpy() * 2)
    assert recorded.captured is replay
    assert GlobalCounters.kernel_count - before == 1


@pytest.mark.parametrize("seed", range(40))
def test_calls_and_writes_in_any_order_give_what_the_function_gives(seed: int) -> None:
    random = np.random.default_rng(seed)
    function = FUNCTIONS[seed % len(FUNCTIONS)]
    marks = [True, bool(random.integers(2)) or None]
    pairs = [[Tensor(x, requires_grad=m).realize() for x, m in zip((W, V), marks)] for _ in "ab"]
    recorded, held = TinyJit(lambda: function(*pairs[0])), list[tuple[list[Tensor], list[Any]]]()
    for event in random.choice(["call", "write", "add", "same", "forget"], 14, p=[0.5, 0.15, 0.1, 0.15, 0.1]):  # fmt: skip
        k, data = int(random.integers(2)), random.integers(-4, 4, 3).astype(np.float32)
        if event == "call":
            got, wanted = recorded(), function(*pairs[1])
            assert values(got) == values(wanted)
            if random.integers(2):
                held.append((got, values(wanted)))
            del got, wanted
        elif event == "same":
            made = function(*pairs[0])
            held.append((made, values(made)))
        elif event == "forget":
            held.clear()
        else:
            for pair in pairs:
                now = pair[k].detach() + 1 if event == "add" else Tensor(data)
                pair[k].assign(now).realize()
        assert all(values(one) == was for one, was in held)
