"""Many launches as one call, and kernels built by another thread, on OpenCL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from devices import opened
from linear_kernels import pack, row_sum_kernel, unpack

from proofgrad import Device, Tensor, TinyJit, dtypes
from proofgrad.backends.opencl.runtime import OpenCLBackend
from proofgrad.backends.opencl.sequence import KernelLaunch, QueuedSequence
from proofgrad.core.compile.machine.target import left_out


@pytest.fixture
def machine() -> OpenCLBackend:
    found = Device[opened("CL")]
    assert isinstance(found, OpenCLBackend)
    return found


def row_sums(machine: OpenCLBackend) -> KernelLaunch:
    """Of rows of 5, 4 of them: out in slot 0, in in slot 1."""
    launch = machine.load(machine.compile(machine.emit(row_sum_kernel(4, 5), "row_sum")))
    assert isinstance(launch, KernelLaunch)
    return launch


def filled(machine: OpenCLBackend, values: list[float]) -> Any:
    handle = machine.alloc(4 * len(values))
    machine.copyin(handle, memoryview(pack(values, dtypes.float32)))
    return handle


def read(machine: OpenCLBackend, handle: Any, count: int) -> list[float]:
    data = bytearray(4 * count)
    machine.copyout(memoryview(data), handle)
    return unpack(bytes(data), dtypes.float32)


def test_sequence_runs_all_launches_each_on_its_own_buffers(machine: OpenCLBackend) -> None:
    launch = row_sums(machine)
    ones, twos = filled(machine, [1.0] * 20), filled(machine, [2.0] * 20)
    memory = [filled(machine, [0.0] * 4), ones, filled(machine, [0.0] * 4), twos]
    both = machine.sequence([(launch, [0, 1], [0, 0]), (launch, [2, 3], [0, 0])], memory)
    assert isinstance(both, QueuedSequence)
    both.run()
    assert (read(machine, memory[0], 4), read(machine, memory[2], 4)) == ([5.0] * 4, [20.0] * 4)


def test_buffer_that_is_pointed_elsewhere_is_used_from_then_on(machine: OpenCLBackend) -> None:
    launch, out = row_sums(machine), filled(machine, [0.0] * 4)
    memory = [out, filled(machine, [1.0] * 20), filled(machine, [0.0] * 4)]
    both = machine.sequence([(launch, [0, 1], [0, 0]), (launch, [2, 1], [0, 0])], memory)
    assert both is not None
    both.run()
    threes = filled(machine, [3.0] * 20)
    both.point(1, threes)
    both.run()
    both.run()
    assert read(machine, out, 4) == [45.0] * 4
    assert [(launch, [out, threes]), (launch, [memory[2], threes])] == both.listed()


def test_sequence_holds_its_buffers(machine: OpenCLBackend) -> None:
    launch, out = row_sums(machine), filled(machine, [0.0] * 4)
    memory: list[Any] = [out, filled(machine, [1.0] * 20)]
    both = machine.sequence([(launch, [0, 1], [0, 0])] * 2, memory)
    assert both is not None
    memory.clear()
    noise = [filled(machine, [9.0] * 20) for _ in range(8)]
    both.run()
    assert read(machine, out, 4) == [5.0] * 4
    del noise


@pytest.mark.parametrize("offsets, count", [([0, 4], 2), ([0, 0], 1)])
def test_one_launch_and_memory_inside_of_memory_make_no_sequence(
    machine: OpenCLBackend, offsets: list[int], count: int
) -> None:
    memory = [filled(machine, [0.0] * 4), filled(machine, [1.0] * 21)]
    assert machine.sequence([(row_sums(machine), [0, 1], offsets)] * count, memory) is None


def two_kernels(x: Tensor) -> Tensor:
    return ((x * 2).contiguous().sum() + x.contiguous()).realize()


def test_recorded_function_is_replayed_by_a_sequence(
    machine: OpenCLBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[QueuedSequence] = []
    usual = QueuedSequence.run
    monkeypatch.setattr(QueuedSequence, "run", lambda self: made.append(self) or usual(self))
    step = TinyJit(two_kernels)
    for k in range(5):
        assert step(Tensor([float(k), 1.0], "CL").realize()).tolist() == [3.0 * k + 2, 2.0 * k + 3]
    assert len(made) >= 3


def test_sequence_and_building_beside_are_no_longer_left_out(machine: OpenCLBackend) -> None:
    assert left_out(machine) == ["compiles_in_copies", "part", "assembly", "adopt"]


def test_kernels_are_built_by_another_thread(
    machine: OpenCLBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    usual: Callable[..., Any] = OpenCLBackend.compile

    def compile_(self: Any, source: Any) -> Any:
        threads.append(threading.current_thread().name.rpartition("_")[0])
        return usual(self, source)

    monkeypatch.setattr(OpenCLBackend, "compile", compile_)
    x = Tensor([[1.5, 2.0], [3.0, 4.25]], "CL").realize()
    assert (((x @ x) * 7.125).contiguous().sum(0).contiguous() + 0.375).tolist() == [
        *[(1.5 * 1.5 + 2 * 3 + 3 * 1.5 + 4.25 * 3) * 7.125 + 0.375],
        *[(1.5 * 2 + 2 * 4.25 + 3 * 2 + 4.25 * 4.25) * 7.125 + 0.375],
    ]
    assert set(threads) <= {"proofgrad-compile"}
