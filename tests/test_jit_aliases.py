"""TinyJit where Tensors are related: one of them twice, views of each other, known by two names.

A replay gives what the function gives without TinyJit: values, what is written to, what results show.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proofgrad import Tensor, TinyJit

# -- all of it: random functions of related Tensors -------------------------------------------------

SIZE = 2  # of every Tensor that the functions know; those below some views are larger


class World:
    """Tensors of one shape, some of which are views of others; made twice, once for each way to run."""

    def __init__(self) -> None:
        self.base = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
        self.square = Tensor([[5.0, 6.0], [7.0, 8.0]]).realize()
        alone, other = Tensor([9.0, 10.0]).realize(), Tensor([11.0, 12.0]).realize()
        column = self.square.T
        self.pool = [
            alone, other, self.base[0:2], self.base[1:3], self.base.flip(0)[1:3], self.square[0],
            column[1], alone.flip(0), alone.detach(), Tensor.zeros(SIZE), Tensor([0.5, 1.5]),
        ]  # fmt: skip
        self.whole = [self.base, self.square, column]

    def values(self) -> list[Any]:
        return [tensor.tolist() for tensor in [*self.pool, *self.whole]]


@dataclass(frozen=True)
class Statement:
    """One line of a function; `target` and the others are numbers of what it knows."""

    kind: str
    target: int
    first: int
    second: int


def run(statements: list[Statement], known: list[Tensor], given_back: list[int]) -> list[Tensor]:
    """The statements on what is known: arguments, names of the world, what they make."""
    known = list(known)

    def at(number: int) -> Tensor:
        return known[number % len(known)]

    for line in statements:
        target, first, second = at(line.target), at(line.first), at(line.second)
        match line.kind:
            case "make":
                known.append(first * 2 + second)
            case "view":
                known.append(first.flip(0))
            case "assign":
                target.assign(first + second)
            case "copy":
                target.assign(first)
            case "add":
                target += first
            case "part":
                target[0:1] = first[1:2] * 3
            case "number":
                target[1] = 7
            case "through":
                target.flip(0).assign(first - second)
    return [at(number) for number in given_back] + [known[0] + 1]


def test_a_copy_of_what_was_computed_under_a_name_follows_the_name() -> None:
    state, copies = line(1.0, 2.0), [line(0.0, 0.0) for _ in range(6)]

    @TinyJit
    def copied(copy: Tensor) -> Tensor:
        copy.assign(state)
        return copy + 1

    for number, copy in enumerate(copies):
        assert copied(copy).tolist() == [number * 100 + 2.0, number * 100 + 3.0]
        assert copy.tolist() == state.tolist()
        state += 100
        state.tolist()  # the node of the sum, in memory by now, is that of the Tensor


def test_result_by_name_is_no_argument_that_it_once_was() -> None:
    by_name, other = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()

    @TinyJit
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return by_name, x + 1

    for x in (by_name, other, by_name, by_name, other, Tensor([5.0, 6.0]).realize()):
        named, more = function(x)
        assert named is by_name
        assert more.tolist() == [value + 1 for value in x.tolist()]


numbers = st.integers(0, 15)
kinds = st.sampled_from(["make", "view", "assign", "copy", "add", "part", "number", "through"])
lines = st.lists(st.builds(Statement, kinds, numbers, numbers, numbers), min_size=1, max_size=6)
positions = st.integers(0, 12)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Any, ...]:
    count = draw(st.integers(1, 3))
    names = draw(st.lists(st.integers(0, 10), max_size=3))
    calls = draw(st.lists(st.tuples(*[positions] * count), min_size=5, max_size=5))
    if draw(st.booleans()):
        calls = [calls[0], calls[0], *calls[2:]]
    between = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10)), max_size=2))
    back = draw(st.lists(numbers, max_size=3))
    return draw(lines), names, calls, between, back, draw(st.booleans())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_replays_of_functions_of_related_tensors_give_what_the_functions_give(program: Any) -> None:
    statements, names, calls, between, back, writes_to_results = program
    worlds = (World(), World())

    def function_of(world: World) -> Callable[..., list[Tensor]]:
        def function(*arguments: Tensor) -> list[Tensor]:
            by_name = [world.pool[name] for name in names]
            return run(statements, [*arguments, *by_name], back)

        return function

    functions = (function_of(worlds[0]), TinyJit(function_of(worlds[1])))
    for number, call in enumerate(calls):
        seen = []
        for world, function in zip(worlds, functions):
            # What is not in the pool is a Tensor that only this call has.
            arguments = [
                world.pool[k] if k < len(world.pool) else Tensor([float(k), number + 0.5]).realize()
                for k in call
            ]
            results = function(*arguments)
            values = [result.tolist() for result in results]
            if writes_to_results:
                results[0] += 100
            for _, position in [one for one in between if one[0] == number]:
                world.pool[position].assign(world.pool[position] * -1)
            seen.append([values, [one.tolist() for one in arguments], world.values()])
        assert seen[0] == seen[1], f"call {number} of {call}"


# -- one by one -------------------------------------------------------------------------------------


def line(*values: float) -> Tensor:
    return Tensor([float(value) for value in values]).realize()


def both(make: Callable[[Callable[[Any], Any]], list[Any]]) -> None:
    """`make` is given a decorator, which does nothing or is TinyJit, and has to give the same."""
    assert make(TinyJit) == make(lambda function: function)


def test_a_tensor_that_gets_the_value_another_had_before_the_step() -> None:
    def steps(jit: Any) -> list[Any]:
        now, before = line(0, 10), line(0, 0)

        @jit
        def step() -> None:
            before.assign(now)
            now.assign(now + 1)

        return [(step(), before.tolist(), now.tolist()) for _ in range(5)]

    both(steps)


def test_a_view_as_an_argument_is_written_through() -> None:
    def steps(jit: Any) -> list[Any]:
        base = line(1, 2, 3, 4)

        @jit
        def double(x: Tensor) -> Tensor:
            x.assign(x * 2)
            return x + 1

        return [(double(base[1:3]).tolist(), base.tolist()) for _ in range(4)]

    both(steps)


def test_rows_of_one_tensor_as_arguments_are_written_through() -> None:
    def steps(jit: Any) -> list[Any]:
        base = Tensor([[0.0, 1.0]] * 12).realize()
        rows = [base[k] for k in range(12)]

        @jit
        def double(x: Tensor) -> Tensor:
            x += 1
            return x * 1

        return [(double(row).tolist(), base.tolist()) for row in rows]

    both(steps)


@pytest.mark.parametrize("order", [(0, 0), (0, 1)])
def test_one_tensor_as_two_arguments(order: tuple[int, int]) -> None:
    def steps(jit: Any) -> list[Any]:
        @jit
        def double(x: Tensor, y: Tensor) -> Tensor:
            x.assign(x * 2)
            return y + 0

        found = []
        for k in range(8):
            x, y = line(k, 1), line(k, 2)
            given = (x, x) if k % 2 == order[k % 2] else (x, y)
            found.append((double(*given).tolist(), x.tolist(), y.tolist()))
        return found

    both(steps)


def test_an_argument_that_the_function_writes_to_by_name() -> None:
    def steps(jit: Any) -> list[Any]:
        state = line(1, 2)

        @jit
        def double(x: Tensor) -> Tensor:
            state.assign(state * 2)
            return x + 0

        others = [line(k, k) for k in range(6)]
        return [double(state if k % 3 == 2 else others[k]).tolist() for k in range(6)]

    both(steps)


def test_an_argument_that_the_function_reads_by_name_and_is_another_one_later() -> None:
    def steps(jit: Any) -> list[Any]:
        state = line(1, 2)

        @jit
        def add(x: Tensor) -> Tensor:
            return x + state

        others = [line(k, k) for k in range(6)]
        return [add(state if k < 3 else others[k]).tolist() for k in range(6)]

    both(steps)


def test_two_tensors_of_one_value_that_part_later() -> None:
    def steps(jit: Any) -> list[Any]:
        state, other = line(1, 2), line(0, 0)
        other.assign(state)

        @jit
        def add(x: Tensor) -> Tensor:
            return x + state

        found = []
        for k in range(6):
            found.append(add(line(k, k)).tolist())
            (state if k == 2 else other).assign(line(k, -k))
        return found

    both(steps)


def test_a_constant_that_is_written_to_later() -> None:
    def steps(jit: Any) -> list[Any]:
        state = Tensor.zeros(2)

        @jit
        def add(x: Tensor) -> Tensor:
            return x + state

        found = []
        for k in range(6):
            found.append(add(line(k, k)).tolist())
            if k == 3:
                state.assign(line(5, 6))
        return found

    both(steps)


def test_a_view_that_the_function_reads_is_recorded_once() -> None:
    base = line(1, 2, 3)
    view, calls = base[1:], []

    @TinyJit
    def add(x: Tensor) -> Tensor:
        calls.append(1)
        return x + view

    assert [add(line(k, k)).tolist() for k in range(4)] == [[2 + k, 3 + k] for k in range(4)]
    assert (len(calls), add.kernel_count) == (2, 1)
    base += 1  # the view goes on to show the old value
    assert add(line(0, 0)).tolist() == [2, 3]
    view += 10
    assert add(line(0, 0)).tolist() == [13, 14]


def test_a_name_that_stands_for_another_tensor_later() -> None:
    class Model:
        weight = line(1, 2)

    @TinyJit
    def add(x: Tensor) -> Tensor:
        return x + Model.weight

    assert [add(line(0, 0)).tolist() for _ in range(3)] == [[1, 2]] * 3
    Model.weight = line(5, 6)
    assert [add(line(0, 0)).tolist() for _ in range(3)] == [[5, 6]] * 3


def test_a_result_that_is_a_view_of_an_argument_is_written_through() -> None:
    def steps(jit: Any) -> list[Any]:
        base = line(1, 2, 3)

        @jit
        def last(x: Tensor) -> tuple[Tensor, Tensor]:
            return x[1:], x + 1

        found = []
        for _ in range(4):
            view, more = last(base)
            view += 1
            found.append((view.tolist(), more.tolist(), base.tolist()))
        return found

    both(steps)


def test_a_recording_in_one_thread_is_nothing_to_another() -> None:
    found: list[Any] = []

    @TinyJit
    def add(x: Tensor) -> Tensor:
        thread = threading.Thread(target=lambda: found.append((line(1) * 2).tolist()))
        thread.start()
        thread.join()
        return x + 1

    assert [add(line(k)).tolist() for k in range(3)] == [[1], [2], [3]]
    assert found == [[2], [2]]


def test_what_is_written_again_as_it_is_follows_what_it_is_written_from() -> None:
    """As a target network that takes the weights of another: when this is recorded, it has them already."""
    online, target = line(9, 10), Tensor.zeros(SIZE)

    @TinyJit
    def function(x: Tensor) -> Tensor:
        target.assign(online)
        return x + 1

    for number in range(5):
        if number == 3:
            online.assign(line(1, 2)).realize()
        function(line(number, 0))
        assert target.tolist() == online.tolist()
    for x in (online, line(5, 6), online, online, line(7, 8)):  # an argument in some calls
        function(x)
        assert target.tolist() == online.tolist() == [1.0, 2.0]


def test_results_that_rules_find_to_be_an_argument_are_copies() -> None:
    last, total = Tensor([5.0]).realize(), Tensor.zeros(7).contiguous().realize()

    @TinyJit
    def step(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        total.assign(total + x)
        longer = x.cat(last).shrink(((0, 7),))
        return {"a": longer, "b": x.pad((0, 2)).shrink(((0, 7),)), "sum": x + y, "again": longer}

    seen = np.zeros(7, np.float32)
    for k in range(6):
        data = np.arange(7, dtype=np.float32) + k
        x, y = Tensor(data).realize(), Tensor(data * 3).realize()
        found = step(x, y if k % 2 else x)
        x.assign(x * 0 - 1).realize()
        seen += data
        for name in ("a", "b", "again"):
            np.testing.assert_array_equal(found[name].numpy(), data)
        np.testing.assert_array_equal(found["sum"].numpy(), data * (4 if k % 2 else 2))
        np.testing.assert_array_equal(total.numpy(), seen)
    assert step.kernel_count > 0
