"""Machines that are not there, too old, lost or too small: one clear error where the user asks, and other devices go on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from devices import opened

from proofgrad import Device, Tensor, TinyJit, dtypes
from proofgrad.backends.opencl.runtime import OpenCLBackend
from proofgrad.backends.opencl.sequence import KernelLaunch, QueuedSequence
from proofgrad.backends.ptx.driver import DRIVERS, Driver
from proofgrad.backends.ptx.emit import PTX_VERSIONS
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.ptx.runtime import PTXBackend, open_backend
from proofgrad.backends.webgpu.runtime import WebGPUBackend
from proofgrad.core.compile.machine.target import CompileError, DeviceError, Source
from proofgrad.core.compile.plan.known_kernels import KnownKernels
from proofgrad.core.tensor.runtime.realize import compiler


class Other(EmulatedDriver):
    """A driver that differs in some calls."""

    def __init__(self, **calls: Any) -> None:
        super().__init__(devices=1)
        for name, function in calls.items():
            setattr(self, name, function)


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test opens is forgotten, with the kernels that are loaded there."""
    for name, empty in (("_kernels", KnownKernels(99)), ("_plans", {})):
        monkeypatch.setattr(compiler(), name, empty)
    tables = (Device._devices, Device._opened)
    before = [dict(table) for table in tables]
    for name in ("CUDA", "CUDA:1"):
        for table in tables:
            table.pop(name, None)
    yield
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)


def others_go_on() -> None:
    assert (Tensor([1.0, 2.0]) + 1).tolist() == [2.0, 3.0]
    assert (Tensor([1.0], "REFERENCE") * 3).tolist() == [3.0]


# -- no driver ----------------------------------------------------------------------------------


def test_gpu_without_a_driver_is_an_error_where_a_value_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MOCKGPU", raising=False)
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.warns(UserWarning, match=r"pip install .proofgrad\[cuda\]"):
        x = Tensor([1.0], "CUDA") + 1
        with pytest.raises(
            DeviceError, match=r"no value was computed: .*pip install .proofgrad\[cuda\]"
        ):
            x.tolist()
    others_go_on()


def test_opencl_without_a_driver_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match=r'run: pip install "proofgrad\[opencl\]"'):
        OpenCLBackend()
    others_go_on()


# -- a driver that is too old ---------------------------------------------------------------------


def test_driver_that_cannot_read_the_text_is_too_old() -> None:
    api = Other(cuDriverGetVersion=lambda: 11040)
    with pytest.raises(
        DeviceError,
        match=r"driver of CUDA \(.*\) is too old: it is of CUDA 11.4, and kernels for sm_90 need CUDA 11.8: update it",
    ):
        Driver(api)
    others_go_on()


def test_driver_of_exactly_the_version_is_taken() -> None:
    assert Driver(Other(cuDriverGetVersion=lambda: 11080)).version == 11080


def test_driver_without_a_function_is_too_old() -> None:
    def missing(*_: Any) -> Any:
        raise RuntimeError('Function "cuStreamCreate" not found')

    with pytest.raises(DeviceError, match="CUDA has no cuStreamCreate .* it is too old, update it"):
        Driver(Other(cuStreamCreate=missing))


def test_each_version_of_the_text_has_a_driver() -> None:
    assert set(DRIVERS) == set(PTX_VERSIONS.values())


def test_driver_that_does_not_fit_its_kernel_module_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MOCKGPU", raising=False)
    driver = SimpleNamespace(cuInit=lambda _: (803,))
    monkeypatch.setitem(
        sys.modules, "cuda", SimpleNamespace(bindings=SimpleNamespace(driver=driver))
    )
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
    with pytest.warns(UserWarning, match="the NVIDIA driver has no GPU to use .803, 0 GPUs"):
        assert not open_backend().target.runs


# -- a number that no device has ------------------------------------------------------------------


def test_numbers_that_no_device_has_are_refused_where_a_tensor_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MOCKGPU", "2")
    with pytest.raises(
        DeviceError, match=r"no CUDA:7: the NVIDIA driver lists 2 GPUs \(CUDA, CUDA:1\)"
    ):
        Tensor([1.0], "CUDA:7").realize()
    for name in ("CL", "WEBGPU"):
        if name == opened("CPU"):
            continue
        try:
            Device[name]
        except DeviceError:
            continue
        with pytest.raises(DeviceError, match=f"there is no {name}:99"):
            Tensor([1.0], f"{name}:99").realize()
    others_go_on()


# -- lost in the middle ---------------------------------------------------------------------------

WILD = """.version 7.8
.target sm_90
.address_size 64
.visible .entry wild(.param .u64 out) {
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [out];
  st.global.u32 [%rd1+1048576], 7;
  ret;
}
"""


def test_gpu_that_is_lost_in_the_middle_of_a_program_is_told_once_more_each_time() -> None:
    api = EmulatedDriver(devices=2)
    for number in (0, 1):
        machine = PTXBackend(Driver(api, number))
        Device._devices[machine.name] = machine
    gpu = Device["CUDA"]
    x = Tensor([1.0, 2.0], "CUDA").realize()
    gpu.load(gpu.compile(Source("ptx", "wild", WILD, (dtypes.int32,))))([gpu.alloc(4)])
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"CUDA .* was lost .*other devices go on"):
            (x + 1).tolist()
    assert (Tensor([1.0], "CUDA:1") + 1).tolist() == [2.0]
    others_go_on()


def test_webgpu_that_is_lost_says_so_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    opened("WEBGPU")
    machine = WebGPUBackend()
    monkeypatch.setitem(Device._devices, "WEBGPU", machine)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return ((x + 1).contiguous().softmax(0) * 2).realize()

    x = Tensor([1.0, 2.0, 3.0], "WEBGPU").realize()
    for _ in range(3):
        step(x)
    machine._device.destroy()
    for call in (
        lambda: step(x).tolist(),
        lambda: (x * 7 - 3).tolist(),
        x.tolist,
        machine.synchronize,
        Tensor([4.0], "WEBGPU").realize,
        lambda: machine.alloc(64),
        lambda: x.to("CPU").tolist(),
    ):
        with pytest.raises(DeviceError, match=r"WEBGPU .* was lost.*other devices go on"):
            call()
    others_go_on()


class LostQueue:
    """A queue of a device that is gone: what is asked of it fails, as drivers say it."""

    def __init__(self, error: type[Exception], said: str) -> None:
        self._error, self._said = error, said

    def __getattr__(self, name: str) -> Any:
        return self.fail

    def fail(self, *arguments: Any, **named: Any) -> Any:
        raise self._error(self._said)


@pytest.mark.parametrize("said", ["OUT_OF_RESOURCES", "INVALID_COMMAND_QUEUE", "DEVICE_LOST"])
@pytest.mark.parametrize("first", range(7))
def test_opencl_device_that_is_lost_says_so_at_every_call(
    first: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened("CL")
    machine = OpenCLBackend()
    monkeypatch.setitem(Device._devices, "CL", machine)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return ((x + 1).contiguous().softmax(0) * 2).realize()

    x = Tensor([1.0, 2.0, 3.0], "CL").realize()
    for _ in range(3):
        step(x)
    calls = (
        lambda: step(x).tolist(),
        lambda: (x * 7 - 3).tolist(),
        x.tolist,
        machine.synchronize,
        Tensor([4.0], "CL").realize,
        lambda: x.to("CPU").tolist(),
        lambda: Tensor([4.0, 5.0], "CL").softmax().tolist(),
    )
    queue = LostQueue(machine._cl.RuntimeError, said)
    machine._queue = queue
    for name in ("enqueue_nd_range_kernel", "enqueue_copy", "enqueue_marker"):
        monkeypatch.setattr(machine._cl, name, queue.fail)
    for call in (*calls[first:], *calls, lambda: machine.alloc(64)):
        with pytest.raises(
            DeviceError, match=rf"CL \(.*\) was lost: .*{said}.*other devices go on"
        ):
            call()
    others_go_on()


def test_opencl_launch_that_fails_on_a_device_that_answers_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Device[opened("CL")]
    assert isinstance(machine, OpenCLBackend)
    x = Tensor([1.0, 2.0], "CL").realize()
    with monkeypatch.context() as patch:
        fail = LostQueue(machine._cl.RuntimeError, "OUT_OF_RESOURCES").fail
        patch.setattr(machine._cl, "enqueue_nd_range_kernel", fail)
        with pytest.raises(DeviceError, match=r"launching .* failed on CL .*OUT_OF_RESOURCES"):
            (x + 1).tolist()
    assert (x + 1).tolist() == [2.0, 3.0]


# -- memory that is out ---------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["enqueue_nd_range_kernel", "enqueue_copy"])
def test_memory_that_is_out_for_a_launch_or_copy_is_tried_again_and_then_told(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Device[opened("CL")]
    assert isinstance(machine, OpenCLBackend)
    pyopencl = machine._cl
    whole, left = getattr(pyopencl, function), [0]

    def call(*arguments: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise pyopencl.MemoryError("MEM_OBJECT_ALLOCATION_FAILURE")
        return whole(*arguments, **named)

    monkeypatch.setattr(pyopencl, function, call)
    x = Tensor([1.0, 2.0], machine.name).realize()
    left[0] = 1
    assert (x + 1).tolist() == [2.0, 3.0]
    left[0] = 2
    with pytest.raises(MemoryError, match=r"failed on CL .*; it has \d+ bytes of memory"):
        (x + 1).tolist()
    assert left == [0]
    assert (x + 1).tolist() == [2.0, 3.0]


def test_opencl_buffer_that_the_pool_has_no_room_for_is_tried_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pool rounds up: what is as large as a buffer may be, it asks too much for."""
    machine = Device[opened("CL")]
    assert isinstance(machine, OpenCLBackend)

    def refuse(nbytes: int) -> None:
        raise machine._cl.LogicError("create_buffer failed: INVALID_BUFFER_SIZE")

    monkeypatch.setattr(machine, "_pool", SimpleNamespace(allocate=refuse, free_held=lambda: None))
    x = Tensor([1.0, 2.0, 3.0], machine.name).realize()
    assert (x.contiguous() * 2).softmax().sum().item() == pytest.approx(1.0)
    assert machine.alloc(0).size == 1


def test_opencl_buffer_that_is_too_large_is_refused_with_how_large_one_may_be() -> None:
    machine = Device[opened("CL")]
    assert isinstance(machine, OpenCLBackend)
    most = machine.device.max_mem_alloc_size
    said = rf"cannot allocate {64 * most} bytes on CL \(.*\), which has \d+ and gives a buffer {most} at most"
    with pytest.raises(MemoryError, match=said):
        machine.alloc(64 * most)
    assert (Tensor([1.0], "CL") + 1).tolist() == [2.0]


def test_arguments_that_get_no_memory_are_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the kernel would have those of its last launch."""
    opened("CL")
    machine = OpenCLBackend()
    pyopencl, fails, given = machine._cl, [1], list[Any]()

    def set_args(*arguments: Any) -> None:
        if fails.pop() if fails else 0:
            raise pyopencl.MemoryError("clSetKernelArg failed: OUT_OF_HOST_MEMORY")
        given.append(arguments)

    launch = KernelLaunch(machine, None, lambda: None, "kernel", [0, 1], (1, 1))
    launched: list[Any] = []
    monkeypatch.setattr(pyopencl, "enqueue_nd_range_kernel", lambda *_: launched.append(given[-1:]))
    machine.enqueue(launch, SimpleNamespace(set_args=set_args), ["out", "in"])
    assert launched == [[("out", "in")]]


# -- more local memory than there is --------------------------------------------------------------


def test_opencl_kernel_of_too_much_local_memory_is_an_error_with_its_device() -> None:
    machine = Device[opened("CL")]
    items = 1 << 26
    text = f"""kernel void big(global float *data0) {{
  local float kept[{items}];
  kept[get_local_id(0)] = 1.0f;
  barrier(CLK_LOCAL_MEM_FENCE);
  data0[get_global_id(0)] = kept[0];
}}"""
    out = machine.alloc(256)
    said = r"the kernel big needs 268435456 bytes of local memory a group, and CL \(.*\) has \d+: ask for"
    with pytest.raises(DeviceError, match=said):
        machine.load(
            machine.compile(Source("opencl", "big", text, (dtypes.float32,), 64, group_size=64))
        )([out])
        machine.synchronize()
    assert (Tensor([1.0], "CL") + 1).tolist() == [2.0]
    others_go_on()


def test_opencl_groups_are_as_large_as_registers_of_the_kernel_let_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Device[opened("CL")]
    assert isinstance(machine, OpenCLBackend)
    which, usual = machine._cl.kernel_work_group_info, machine._cl.Kernel.get_work_group_info

    def told(self: Any, info: Any, device: Any) -> Any:
        return 4 if info == which.WORK_GROUP_SIZE else usual(self, info, device)

    monkeypatch.setattr(machine._cl.Kernel, "get_work_group_info", told)
    text = "kernel void few(global float *data0) { data0[get_global_id(0)] = get_local_size(0); }"
    monkeypatch.setattr(machine, "_group_size", lambda items: 16)
    out, read = machine.alloc(256), bytearray(256)
    source = Source("opencl", "few", text, (dtypes.float32,), 64)
    machine.load(machine.compile(source))([out])
    machine.copyout(memoryview(read), out)
    assert memoryview(read).cast("f").tolist() == [4.0] * 64
    said = r"the kernel few has groups of 16 items that wait for each other, and CL \(.*\) has registers for 4"
    with pytest.raises(DeviceError, match=said):
        machine.load(machine.compile(replace(source, group_size=16)))


def test_opencl_in_a_forked_child_asks_for_no_lock_that_another_thread_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened("CL")
    machine = OpenCLBackend()
    launch = KernelLaunch(machine, None, lambda: None, "kernel", [], (1, 1))
    told: list[str] = []

    def use(work: Callable[[], object]) -> None:
        try:
            work()
        except DeviceError as error:
            told.append(str(error))

    sequence = QueuedSequence([(launch, []), (launch, [])], [])
    monkeypatch.setattr(machine, "_process", -1)
    for lock, work in ((launch._lock, lambda: launch([])), (sequence._lock, sequence.run)):
        with lock:
            thread = threading.Thread(target=use, args=(work,), daemon=True)
            thread.start()
            thread.join(10)
            assert not thread.is_alive()
    assert [x for x in told if "before this process was forked" not in x] == []
    assert len(told) == 2


def test_ptx_kernel_of_too_much_shared_memory_is_refused_with_its_size() -> None:
    machine = PTXBackend(Driver(EmulatedDriver(devices=1)))
    text = """.version 7.8
.target sm_90
.address_size 64
.visible .entry big(.param .u64 out) {
  .shared .align 4 .b8 kept[1048576];
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [out];
  st.global.u32 [%rd1], 7;
  ret;
}
"""
    said = r"'big' uses too much shared data \(0x100000 bytes, 0xc000 max\)"
    with pytest.raises(CompileError, match=said):
        machine.load(machine.compile(Source("ptx", "big", text, (dtypes.int32,))))(
            [machine.alloc(4)]
        )
    others_go_on()


# -- several devices in one expression ------------------------------------------------------------


@pytest.mark.parametrize("other", ["REFERENCE", "CL", "WEBGPU"])
def test_devices_in_one_expression_are_refused_with_both_names(other: str) -> None:
    name = opened(other)
    x, y = Tensor([1.0], "CPU"), Tensor([2.0], name)
    for mix in (
        lambda: x + y,
        lambda: x.cat(y),
        lambda: x.reshape(1, 1) @ y.reshape(1, 1),
        lambda: (x > 0).where(x, y),
    ):
        with pytest.raises(DeviceError, match=f"CPU and {name}"):
            mix()
    assert (x + y.to("CPU")).tolist() == [3.0]
