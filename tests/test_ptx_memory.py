"""Memory of a GPU that runs out in other calls than that for memory: a second try, one error with sizes, nothing lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proofgrad import Context, Device, Tensor, TinyJit
from proofgrad.backends.ptx.driver import Driver
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.ptx.emulator.state import CUresult, Failed
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.tensor.runtime.realize import compiler

NAME = "CUDA"
SIZE = 40


class Full(EmulatedDriver):
    """A driver that has no memory for the next `times` calls of a function."""

    function, times = "", 0

    def fail(self, function: str, times: int) -> None:
        whole = getattr(EmulatedDriver, function)
        self.times = times

        def call(*arguments: Any) -> Any:
            if self.times:
                self.times -= 1
                raise Failed(CUresult.CUDA_ERROR_OUT_OF_MEMORY)
            return whole(self, *arguments)

        setattr(self, function, call)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Full:
    """The driver of CUDA, where nothing that was compiled before is known."""
    found = Full()
    monkeypatch.setitem(Device._devices, NAME, PTXBackend(Driver(found)))
    compiler().forget()
    return found


def given() -> Tensor:
    return Tensor(np.arange(SIZE, dtype=np.float32), device=NAME)


def computed(x: Tensor) -> list[Any]:
    with Context(PLANS=0):
        return (x * 3 + 1).tolist()


RIGHT = [3.0 * k + 1 for k in range(SIZE)]
TOLD = r"memory is out for {} on CUDA \(emulated GPU 0\): \d+ of its 8589934592 bytes are free"


@pytest.mark.parametrize(
    "function", ["cuModuleLoadDataEx", "cuModuleGetFunction", "cuLaunchKernel", "cuMemcpyDtoHAsync"]
)
def test_call_of_a_kernel_without_memory_is_tried_again_and_then_an_error_that_loses_nothing(
    function: str, api: Full
) -> None:
    x = given().realize()
    api.fail(function, times=1)
    assert computed(x) == RIGHT
    compiler().forget()
    api.fail(function, times=2)
    with pytest.raises(MemoryError, match=TOLD.format(function)):
        computed(x)
    assert computed(x) == RIGHT


@pytest.mark.parametrize("function", ["cuMemAllocHost", "cuEventCreate", "cuMemcpyHtoDAsync"])
def test_copy_without_memory_is_tried_again_and_then_an_error_that_loses_nothing(
    function: str, api: Full
) -> None:
    api.fail(function, times=3)
    with pytest.raises(MemoryError, match=TOLD.format(function)):
        given().realize()
    assert given().tolist() == list(range(SIZE))


@pytest.mark.parametrize(
    "function", ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate", "cuGraphLaunch"]
)
def test_replay_without_memory_for_its_graph_is_right_when_there_is_some(
    function: str, api: Full
) -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return ((x + 1).contiguous().softmax(0).contiguous() * 2 + x.sum()).realize()

    x = given().realize()
    expected = [step(x).tolist() for _ in range(2)][1]
    api.fail(function, times=2)
    with pytest.raises(MemoryError, match=TOLD.format(function)):
        step(x)
    for _ in range(3):
        assert step(x).tolist() == expected


def test_what_the_pool_keeps_is_given_back_for_a_module(api: Full) -> None:
    machine = Device[NAME]
    held = machine.alloc(1 << 20)
    del held
    machine.synchronize()
    assert api.contexts[0].pooled_bytes == 1 << 20
    x = given().realize()
    api.fail("cuModuleLoadDataEx", times=1)
    assert computed(x) == RIGHT
    assert api.contexts[0].pooled_bytes < 1 << 20


def test_gpu_without_pools_computes_and_frees(api: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    def attribute(which: int, device: int) -> int:
        return 0 if which == 115 else EmulatedDriver.cuDeviceGetAttribute(api, which, device)

    stream = api.contexts[0].streams[-1]
    api.cuDeviceGetAttribute = attribute  # type: ignore[method-assign]
    api.cuMemAlloc = lambda nbytes: EmulatedDriver.cuMemAllocAsync(api, nbytes, stream)  # type: ignore[attr-defined]
    api.cuMemFree = lambda address: EmulatedDriver.cuMemFreeAsync(api, address, stream)  # type: ignore[attr-defined]
    monkeypatch.setitem(Device._devices, NAME, PTXBackend(Driver(api)))
    x = given().realize()
    assert computed(x) == RIGHT
    assert computed(x + 1) == [value + 3 for value in RIGHT]
