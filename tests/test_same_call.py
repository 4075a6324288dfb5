"""A call like the one before takes the short way, and gives what the function gives; all others take the long one."""

from __future__ import annotations

from typing import Any

import pytest

from proofgrad import Context, JitError, Tensor, TinyJit
from proofgrad.core.tensor.jit.replay import Replay
from proofgrad.core.tensor.jit.same_call import SameCall
from proofgrad.verify.sampled.kernels import CheckError


def line(*values: float) -> Tensor:
    return Tensor([float(value) for value in values]).realize()


def warm(function: Any, *arguments: Any) -> TinyJit[Any]:
    """A recording of the function that knows where its results go."""
    jitted = TinyJit(function)
    for _ in range(5):
        held = [jitted(*arguments)]
        held.append(jitted(*arguments))
    return jitted


@pytest.fixture
def only_the_short_way(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Called: from now on the long way is an error."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("the long way")

    return lambda: monkeypatch.setattr(Replay, "_run", refuse)


def test_other_values_in_memory_take_the_short_way(only_the_short_way: Any) -> None:
    f = warm(lambda x, y: (x * 2 - y).realize(), line(1, 2), line(5, 5))
    inputs = [line(k, k + 1) for k in range(4)]
    square = Tensor([[1.0, 2.0]]).realize()
    g = warm(lambda x: x + 1, square)
    other = Tensor([[4.0, 5.0]]).realize()
    (
        g(other),
        g(other),
    )  # the first was there still, and might have been known to the function by name
    only_the_short_way()
    for j, k in [(j, k) for j in range(4) for k in range(4)]:  # one Tensor twice, too
        assert f(inputs[j], inputs[k]).tolist() == [2 * j - k, 2 * (j + 1) - (k + 1)]
    assert [g(one).tolist() for one in (square, other, square)] == [[[2, 3]], [[5, 6]], [[2, 3]]]


def test_a_result_that_is_the_next_argument(only_the_short_way: Any) -> None:
    f = warm(lambda x: x * 2, line(1, 3))
    x = line(1, 3)
    only_the_short_way()
    for k in range(1, 12):
        x = f(x)
        assert x.tolist() == [2.0**k, 3 * 2.0**k]


def test_results_in_lists_and_arguments_among_them(only_the_short_way: Any) -> None:
    def several(x: Tensor) -> Any:
        return {"sum": x.sum(), "both": (x + 1, x), "name": "three"}

    f = warm(several, line(1, 2))
    only_the_short_way()
    y = line(3, 4)
    found = f(y)
    assert (found["sum"].item(), found["name"]) == (7.0, "three")
    assert found["both"][0].tolist() == [4, 5] and found["both"][1] is y


def test_arguments_in_dicts_by_name_and_beside_numbers(only_the_short_way: Any) -> None:
    jitted = TinyJit(lambda d, times, more: (d["x"] + d["y"][0]) * times + more)
    given = [line(k, k + 1) for k in range(4)]

    def call(j: int, k: int) -> Any:
        return jitted({"x": given[j], "y": (given[k],)}, 2, more=given[3])

    for _ in range(5):
        held = [call(0, 1)]
        held.append(call(0, 1))
    only_the_short_way()
    for j, k in ((0, 1), (1, 0), (2, 1), (0, 2)):
        assert call(j, k).tolist() == [2 * (j + k) + 3, 2 * (j + k + 2) + 4]
    with pytest.raises(JitError):
        jitted({"x": given[0], "y": (given[1],)}, 3, more=given[3])


def test_an_argument_that_nothing_is_computed_from(only_the_short_way: Any) -> None:
    f = warm(lambda x, unused: x + 1, line(1, 2), line(0))
    only_the_short_way()
    assert f(line(5, 6), line(7)).tolist() == [6, 7]


def test_arguments_unlike_the_recorded_ones_are_refused() -> None:
    f = warm(lambda x: x * 2, line(1, 2))
    for other in (
        line(1, 2, 3),
        Tensor([1, 2]).realize(),
        Tensor([[1.0, 2.0]]).realize(),
        3,
        None,
        [1.0],
    ):
        with pytest.raises(JitError):
            f(other)
    with pytest.raises(JitError):
        f()
    assert f(line(3, 4)).tolist() == [6, 8]


def test_values_that_are_not_computed_yet_and_views_take_the_long_way() -> None:
    f = warm(lambda x: x * 2, line(1, 2))
    whole = line(5, 6, 7, 8)
    for make in (lambda: line(1, 2) + 1, lambda: whole[1:3], lambda: Tensor([9.0, 8.0])):
        x = make()
        assert f(x).tolist() == (make() * 2).tolist()
        assert f(x).tolist() == (make() * 2).tolist()


def test_a_tensor_that_the_function_reads_by_name_as_its_argument() -> None:
    weight = line(10, 20)
    f = TinyJit(lambda x: x * weight)
    first = line(1, 2)
    for x, expected in (
        [(first, [10, 40])] * 4 + [(weight, [100, 400])] * 3 + [(line(2, 2), [20, 40])] * 2
    ):
        assert f(x).tolist() == expected
    weight.assign(line(1, 1)).realize()
    assert f(first).tolist() == [1, 2] and f(weight).tolist() == [1, 1]


def test_one_tensor_twice_was_recorded_so() -> None:
    x, y = line(1, 2), line(5, 5)
    f = warm(lambda a, b: a + 10 * b, x, x)
    assert f(x, y).tolist() == [51, 52]
    assert f(y, x).tolist() == [15, 25]
    assert f(y, y).tolist() == [55, 55]


def test_what_is_written_to_an_argument_between_calls_counts() -> None:
    f = warm(lambda x: x + 1, line(0, 0))
    x = line(1, 2)
    for k in range(3):
        assert f(x).tolist() == [2 + k, 3 + k]
        x += 1
        x.realize()
    x.assign(x * 0)
    assert f(x).tolist() == [1, 1]


def test_names_and_the_environment_are_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    f = warm(lambda x: x + 1, line(1, 2))
    with pytest.raises(JitError):
        f(x=line(1, 2))
    with Context(DEBUG=1):
        assert f(line(3, 4)).tolist() == [4, 5]
    monkeypatch.setenv("JIT", "0")
    assert f(line(3, 4, 5)).tolist() == [4, 5, 6]


def test_within_another_recording_it_is_part_of_that() -> None:
    inner = warm(lambda x: x + 1, line(1, 2))
    outer = warm(lambda x: inner(x) * 3, line(1, 2))
    assert outer(line(5, 6)).tolist() == [18, 21]
    assert inner(line(5, 6)).tolist() == [6, 7]


def test_a_program_that_was_not_told_of_another_argument_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Context(CHECK=1):
        f = warm(lambda x: x * 2, line(1, 2))
        right = SameCall._is_taken

        def deaf(self: SameCall, k: int, one: Any) -> bool:
            slots, self._slots = self._slots, {}
            try:
                return right(self, k, one)
            finally:
                self._slots = slots

        x, y = line(3, 4), line(5, 6)
        assert f(x).tolist() == [6, 8]
        monkeypatch.setattr(SameCall, "_is_taken", deaf)
        with pytest.raises(CheckError, match="table of the replay"):
            f(y)
