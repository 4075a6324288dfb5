"""A known run of several kernels is one native call, over memory of its own between."""

from __future__ import annotations

import gc
import threading
from typing import Any
from weakref import ref

import numpy as np
import pytest

from proofgrad import Context, GlobalCounters, Tensor
from proofgrad.core.tensor.runtime import known_runs
from proofgrad.core.tensor.runtime.kept_program import KeptProgram


@pytest.fixture
def ran(fresh_runs: None, monkeypatch: pytest.MonkeyPatch) -> list[KeptProgram]:
    """The programs that ran, one after the other; no run is known yet."""
    monkeypatch.setenv("CHECK", "0")
    found: list[KeptProgram] = []
    run = KeptProgram.run

    def noted(self: KeptProgram, given: Any, into: Any) -> None:
        found.append(self)
        run(self, given, into)

    monkeypatch.setattr(KeptProgram, "run", noted)
    return found


def data(*shape: int, seed: int = 0) -> Tensor:
    values = np.random.default_rng(seed).integers(-9, 9, shape)
    return Tensor(values.astype(np.float32)).realize()


def three(x: Tensor, y: Tensor) -> Tensor:
    """Three kernels, of which the last reads what the first wrote."""
    first = (x + y).contiguous()
    return (first * 2).contiguous() - first.sum(0)


def expected(x: Tensor, y: Tensor) -> Any:
    first = x.numpy() + y.numpy()
    return first * 2 - first.sum(0)


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (16, 16), (0, 3), (7,), (2, 3, 1)])
def test_it_gives_what_the_first_run_gave(ran: list[KeptProgram], shape: tuple[int, ...]) -> None:
    inputs = [data(*shape, seed=seed) for seed in range(3)]
    held = []
    for _ in range(3):
        for x in inputs:
            for y in inputs:
                held.append((three(x, y).realize(), expected(x, y)))
    assert all(np.array_equal(one.numpy(), right) for one, right in held)
    assert not ran or len(set(ran)) <= 3  # x + x is another graph, as is what has no elements


def test_it_is_used_and_counted(ran: list[KeptProgram]) -> None:
    x, y = data(4, 4), data(4, 4, seed=1)
    counted = []
    for _ in range(4):
        before = GlobalCounters.kernel_count, GlobalCounters.global_ops, GlobalCounters.global_mem
        three(x, y).realize()
        after = GlobalCounters.kernel_count, GlobalCounters.global_ops, GlobalCounters.global_mem
        counted.append([now - then for now, then in zip(after, before)])
    assert len(ran) == 3 and len(set(ran)) == 1
    assert counted[0][0] > 1 and counted == [counted[0]] * 4


def test_a_number_of_the_host_is_copied_first(ran: list[KeptProgram]) -> None:
    x = data(3, 3)
    for k in (2.0, 3.0, 5.0, 7.0):
        y = Tensor([k, 1.0, 0.0])
        found = three(x, y).realize()
        first = x.numpy() + np.array([k, 1.0, 0.0], np.float32)
        assert np.array_equal(found.numpy(), first * 2 - first.sum(0))


def test_it_holds_nothing_that_it_read(ran: list[KeptProgram]) -> None:
    x, y = data(4, 4), data(4, 4, seed=1)
    for _ in range(3):
        result = three(x, y).realize()
    memory = [ref(t._uop) for t in (x, y, result)]
    before = GlobalCounters.mem_used
    freed = x.nbytes() + y.nbytes() + result.nbytes()
    del x, y, result
    gc.collect()
    assert ran and [one() for one in memory[:2]] == [None, None]
    assert GlobalCounters.mem_used == before - freed


def test_threads_run_programs_of_their_own(ran: list[KeptProgram]) -> None:
    wrong: list[Any] = []
    pairs = [(data(16, 16, seed=k), data(16, 16, seed=k + 10)) for k in range(3)]
    three(*pairs[0]).realize()

    def work(x: Tensor, y: Tensor) -> None:
        right = expected(x, y)
        for _ in range(100):
            found = three(x, y).realize().numpy()
            if not np.array_equal(found, right):
                wrong.append(found)

    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ran and not wrong


def test_large_memory_between_is_not_kept(
    ran: list[KeptProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_runs, "BYTES_OF_A_KERNEL", 64)
    x = data(4, 8)
    for _ in range(3):
        found = ((x + 1).contiguous() * x.sum()).contiguous().sum().realize()
    assert not ran
    assert found.item() == float(((x.numpy() + 1) * x.numpy().sum()).sum())


def test_kernels_of_some_hundred_kilobytes_are_one_native_call(ran: list[KeptProgram]) -> None:
    x, y = data(192, 256), data(192, 256, seed=1)  # 192 KB each
    for _ in range(3):
        assert np.array_equal(three(x, y).realize().numpy(), expected(x, y))
    assert len(ran) == 2


def test_a_program_of_more_memory_between_than_is_held_runs_step_by_step_from_then_on(
    ran: list[KeptProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_runs, "HELD_BYTES", 64)
    x, y = data(4, 8), data(4, 8, seed=1)
    for _ in range(5):
        assert np.array_equal(three(x, y).realize().numpy(), expected(x, y))
    assert len(ran) == 1


@pytest.mark.parametrize("kernels", [1, 3])
def test_each_run_is_told_with_debug(kernels: int, capfd: pytest.CaptureFixture[str]) -> None:
    x, y = data(4, 4), data(4, 4, seed=1)
    with Context(DEBUG=1):
        for _ in range(4):
            capfd.readouterr()
            (x + 1 if kernels == 1 else three(x, y)).realize()
            assert "kernels," in capfd.readouterr().err


def test_data_of_the_host_that_a_later_kernel_reads_is_copied_before_one_call(
    ran: list[KeptProgram],
) -> None:
    x = data(3, 5)
    for k in range(4):
        found = (x.sum(1).contiguous() * 2).contiguous() + Tensor([1.0, float(k), 3.0])
        wanted = x.numpy().sum(1) * 2 + np.array([1, k, 3], np.float32)
        assert np.array_equal(found.numpy(), wanted)
    assert ran and all([program._launches._native is not None for program in ran])
