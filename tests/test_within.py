"""Blocks as decorators: of functions, and of generators, whose steps run within; entered again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from proofgrad import Context, Tensor


@Tensor.train()
def modes() -> Any:
    seen = [Tensor.training, (yield Tensor.training)]
    try:
        yield seen
    except ValueError:
        yield Tensor.training
    return Tensor.training


def test_each_step_of_a_decorated_generator_runs_within() -> None:
    steps = modes()
    found = [next(steps), Tensor.training, steps.send(4), steps.throw(ValueError), Tensor.training]
    assert found == [True, False, [True, 4], True, False]
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value is True


def test_values_of_a_generator_without_gradients_have_none() -> None:
    @Tensor.no_grad()
    def doubled(x: Tensor) -> Iterator[Tensor]:
        yield x * 2

    x = Tensor([1.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="within no_grad"):
        next(doubled(x)).sum().backward()
    (x * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0]


def test_settings_of_a_generator_are_those_of_its_steps() -> None:
    @Context(NOOPT=1)
    def asked() -> Iterator[str | None]:
        yield os.environ.get("NOOPT")

    before = os.environ.get("NOOPT")
    steps = asked()
    assert (os.environ.get("NOOPT"), next(steps), os.environ.get("NOOPT")) == (before, "1", before)


def test_a_block_is_entered_again_within_itself_and_ends_with_an_exception() -> None:
    block = Tensor.train()
    with pytest.raises(KeyError), block:
        with block:
            assert Tensor.training
        assert Tensor.training
        raise KeyError
    assert not Tensor.training
