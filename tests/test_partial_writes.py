"""Writes to some elements of a memory: they cost what is written, and nobody who may read the old values sees the new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensors import machine

from proofgrad import GlobalCounters, Tensor, TinyJit, Variable
from proofgrad.core.tensor.runtime.memory import buffer_of, memory_of

__all__ = ["machine"]

LENGTH = 1024
MOST = 16  # operations of an element, positions included
P = Variable("p", 0, LENGTH - 4)


def address(tensor: Tensor) -> int:
    return memory_of(buffer_of(tensor.uop)).address


def operations(work: Callable[[], Any]) -> int:
    before = GlobalCounters.global_ops
    work()
    return GlobalCounters.global_ops - before


def filled(*shape: int) -> tuple[Tensor, np.ndarray]:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return Tensor(values).realize(), values.copy()


# -- what they cost -------------------------------------------------------------------------------


def change(x: Any, index: Any) -> None:
    x[index] = x[index] * 3 + 1


def add(x: Any, index: Any) -> None:
    x[index] += 2


@pytest.mark.parametrize("write", [change, add])
@pytest.mark.parametrize(
    "index",
    [
        (slice(None), slice(5, 8)),
        (1, slice(1000, 1007)),
        (slice(None), -1),
        (slice(0, 1), slice(0, 1), slice(2, 3)),
        (1, slice(None), slice(1, 2)),
    ],
)
def test_a_slice_changed_in_place_costs_what_it_has(write: Any, index: Any) -> None:
    x, expected = filled(2, LENGTH, 3)
    place = address(x)
    write(expected, index)
    write(x, index)
    done = operations(x.realize)
    assert address(x) == place
    assert 0 < done <= MOST * expected[index].size
    assert np.array_equal(x.numpy(), expected)


def test_one_element_is_assigned() -> None:
    x, expected = filled(2, LENGTH, 3)
    place = address(x)
    for index in ((1, LENGTH - 1, 2), (0, 0, 0), (-1, 5, 1)):
        x[index] = Tensor(7.0) * 2
        expected[index] = 14
        assert operations(x.realize) <= MOST
        assert np.array_equal(x.numpy(), expected)
    assert address(x) == place


def test_a_slice_that_variables_begin_costs_what_it_has() -> None:
    x, expected = filled(2, LENGTH, 3)
    place, given = address(x), np.full((2, 4, 3), 9, np.float32)
    for at in (0, 7, LENGTH - 4):
        begin = P.bind(at)
        x[:, begin : begin + 4].assign(Tensor(given) * 2)
        assert operations(x.realize) <= MOST * given.size
        expected[:, at : at + 4] = given * 2
        assert np.array_equal(x.numpy(), expected)
    assert address(x) == place


def test_a_recorded_function_writes_what_changes() -> None:
    cache, expected = filled(2, LENGTH, 3)

    @TinyJit
    def put(token: Tensor, begin: Any) -> Tensor:
        cache[:, begin : begin + 1].assign(token * 2)
        cache[1:, begin : begin + 1] += 1
        return token.sum()

    costs, places = [], []
    for k in range(6):
        token = Tensor(np.full((2, 1, 3), k, np.float32)).realize()
        costs.append(operations(lambda: put(token, P.bind(k * 100))))  # noqa: B023
        places.append(address(cache))
        expected[:, k * 100] = 2 * k
        expected[1, k * 100] += 1
    assert max(costs[2:]) < 6 * MOST + 3
    assert len(set(places[2:])) == 1
    assert np.array_equal(cache.numpy(), expected)


# -- who else reads them --------------------------------------------------------------------------


def test_values_read_before_keep_what_they_were(machine: str) -> None:
    x, before = filled(3, 8, 2)
    reader, view, copy = x + 1, x[1], Tensor(x.uop)
    x[:, 2:5] = -1
    x.realize()
    assert np.array_equal(reader.numpy(), before + 1)
    assert np.array_equal(copy.numpy(), before)
    assert np.array_equal(view.numpy(), before[1])
    before[:, 2:5] = -1
    assert np.array_equal(x.numpy(), before)


def test_a_recorded_write_leaves_what_others_hold() -> None:
    cache, expected = filled(3, 8, 2)
    p = Variable("q", 0, 6)

    @TinyJit
    def put(token: Tensor, begin: Any) -> Tensor:
        cache[:, begin : begin + 2].assign(token)
        return cache.sum(0)

    for k in range(6):
        token = Tensor(np.full((3, 2, 2), -k, np.float32)).realize()
        node, doubled, old = cache.uop, cache * 2, expected.copy()
        sums = put(token, p.bind(k))
        expected[:, k : k + 2] = -k
        assert np.array_equal(sums.numpy(), expected.sum(0))
        assert np.array_equal(doubled.numpy(), old * 2)
        assert np.array_equal(Tensor(node).numpy(), old)
    assert np.array_equal(cache.numpy(), expected)


def test_memory_that_an_array_shares_keeps_its_elements() -> None:
    x, before = filled(4, 4)
    array = np.from_dlpack(x)
    x[1:3] = 0
    x.realize()
    assert np.array_equal(array, before)
    assert x.numpy()[1:3].sum() == 0


def test_a_slice_that_is_moved_within_its_memory_is_read_before_it_is_written() -> None:
    x, expected = filled(6, 2)
    x[1:4] = x[0:3]
    expected[1:4] = expected[0:3].copy()
    x.realize()
    assert np.array_equal(x.numpy(), expected)
    x[2] = x[1] + x[2]
    expected[2] += expected[1]
    assert np.array_equal(x.numpy(), expected)


def test_sums_of_the_memory_are_taken_before_it_changes() -> None:
    x, expected = filled(6, 3)
    x[2] = x.sum(0)
    expected[2] = expected.sum(0)
    assert np.array_equal(x.realize().numpy(), expected)
    x[1:3] = x[1:3].sum(1, keepdim=True) + x[1:3]
    expected[1:3] += expected[1:3].sum(1, keepdims=True)
    assert np.array_equal(x.realize().numpy(), expected)


# -- as numpy writes ------------------------------------------------------------------------------


def drawn_index(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    index: list[Any] = []
    for size in shape:
        match rng.integers(0, 4):
            case 0 if size:
                index.append(int(rng.integers(-size, size)))
            case 1:
                begin, end = sorted(int(n) for n in rng.integers(0, size + 1, 2))
                index.append(slice(begin, end))
            case 2:
                index.append(
                    slice(int(rng.integers(0, size + 1)), None, int(rng.choice([-1, 2, 3])))
                )
            case _:
                index.append(slice(None))
    return tuple(index)


@pytest.mark.parametrize("check", ["", "CHECK", "PROVE"])
def test_writes_to_drawn_slices_are_those_of_numpy(
    check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if check:
        monkeypatch.setenv(check, "1")
    rng = np.random.default_rng(len(check))
    for k in range(24 if not check else 8):
        shape = tuple(int(n) for n in rng.integers(0 if k % 5 == 0 else 1, 6, rng.integers(1, 4)))
        expected = rng.integers(0, 9, shape).astype([np.float32, np.int32, np.float16, bool][k % 4])
        x = Tensor(expected).realize()
        for _ in range(int(rng.integers(1, 4))):
            index = drawn_index(rng, shape)
            if expected.dtype == bool or rng.integers(2):
                value = rng.integers(0, 2, np.shape(expected[index])).astype(expected.dtype)
                x[index] = Tensor(value)
                expected[index] = value
            else:
                x[index] *= 2
                expected[index] *= 2
            if rng.integers(2):
                x.realize()
        assert np.array_equal(x.numpy(), expected), (shape, index)
