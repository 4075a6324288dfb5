"""The CUDA runtime on emulated GPUs: contexts, streams, memory, modules, launches, graphs, errors."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from linear_kernels import fibonacci_kernel, negates_in_threads, pack, row_sum_kernel, run, unpack

from proofgrad import Device, Tensor, TinyJit, Variable, dtypes
from proofgrad.backends.ptx import runtime
from proofgrad.backends.ptx.driver import RETIRED_MODULES, Driver
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.ptx.emulator.grid import Launch
from proofgrad.backends.ptx.emulator.grid import run as run_grid
from proofgrad.backends.ptx.emulator.module import compiled
from proofgrad.backends.ptx.emulator.state import CUresult
from proofgrad.backends.ptx.graph import GraphSequence
from proofgrad.backends.ptx.memory import STAGE_BYTES
from proofgrad.backends.ptx.runtime import BLOCK_SIZE, KernelLaunch, PTXBackend, open_backend
from proofgrad.core.compile.machine.target import CompileError, DeviceError, Source
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.profile import profile
from proofgrad.testing import backend as conformance
from proofgrad.testing.conformance.check import Options


@pytest.fixture
def api() -> EmulatedDriver:
    return EmulatedDriver(devices=2)


@pytest.fixture
def machine(api: EmulatedDriver) -> PTXBackend:
    return PTXBackend(Driver(api))


@pytest.fixture(scope="module")
def cuda() -> Iterator[EmulatedDriver]:
    """CUDA and CUDA:1 as Tensors know them are emulated GPUs while these tests run."""
    api, before = EmulatedDriver(devices=2), dict(Device._devices)
    for number in (0, 1):
        backend = PTXBackend(Driver(api, number))
        Device._devices[backend.name] = backend
    yield api
    gc.collect()
    Device._devices.clear()
    Device._devices.update(before)


def used_bytes(number: int) -> int:
    """Of an emulated GPU, when all that was asked for has been done."""
    gc.collect()
    backend = Device[f"CUDA:{number}"]
    assert isinstance(backend, PTXBackend) and backend.driver is not None
    backend.synchronize()
    found: int = backend.driver.api.contexts[number].used_bytes
    return found


def loaded(machine: PTXBackend, kernel: UOp, name: str) -> KernelLaunch:
    launch = machine.load(machine.compile(machine.emit(kernel, name)))
    assert isinstance(launch, KernelLaunch)
    return launch


# -- launches ---------------------------------------------------------------------------------------


def test_launch_starts_whole_blocks_and_passes_each_address(machine: PTXBackend) -> None:
    launch = loaded(machine, row_sum_kernel(1000, 9), "row_sum")
    assert (launch.blocks, launch.threads) == (8, BLOCK_SIZE)
    values = [float(k % 5) for k in range(9000)]
    (out,) = run(machine, row_sum_kernel(1000, 9), [pack(values, dtypes.float32)], [4000])
    expected = [sum(v * v for v in values[9 * r : 9 * r + 5]) for r in range(1000)]
    assert unpack(out, dtypes.float32) == expected


def test_kernel_without_work_items_starts_one_thread(machine: PTXBackend) -> None:
    launch = loaded(machine, fibonacci_kernel(10), "fibonacci")
    assert (launch.blocks, launch.threads) == (1, 1)
    (out,) = run(machine, fibonacci_kernel(10), [], [4])
    assert unpack(out, dtypes.int32) == [55]


def test_text_is_printed_for_the_gpu_that_is_there() -> None:
    for capability, target in ((90, "sm_90"), (87, "sm_86"), (75, "sm_75")):
        machine = PTXBackend(Driver(EmulatedDriver(capability=capability)))
        assert f".target {target}\n" in machine.emit(fibonacci_kernel(3), "fibonacci").text


def test_nothing_runs_before_it_is_waited_for(machine: PTXBackend, api: EmulatedDriver) -> None:
    launch = loaded(machine, fibonacci_kernel(10), "fibonacci")
    out = machine.alloc(4)
    launch([out])
    assert api.launches == 0
    machine.synchronize()
    assert api.launches == 1


def test_threads_that_launch_one_kernel_do_not_share_its_arguments(machine: PTXBackend) -> None:
    assert negates_in_threads(machine)


def test_work_item_beyond_two_to_the_32_has_its_own_number() -> None:
    """The last blocks of 2**32 + 300 items, over memory of which only their pages are touched."""
    size = 2**32 + 300
    bound = UOp(Ops.CONST, dtypes.int64, (), size)
    item = UOp(Ops.RANGE, dtypes.int64, (bound,), (0, AxisRole.GLOBAL))
    out = UOp(Ops.PARAM, dtypes.uint8, (), (0, size))
    value = UOp(Ops.CAST, dtypes.uint8, (item,))
    position = UOp(Ops.INDEX, dtypes.uint8, (out, item))
    store = UOp(Ops.STORE, dtypes.void, (position, value))
    end = UOp(Ops.END, dtypes.void, (item,))
    linear = UOp(Ops.LINEAR, dtypes.void, (out, bound, item, value, position, store, end))
    source = PTXBackend(None, "none here").emit(linear, "k")
    blocks = -(-size // BLOCK_SIZE)
    memory = np.zeros(size, np.uint8)
    first = memory.ctypes.data
    launch = Launch(compiled(source.text)["k"], (blocks, 1, 1), (BLOCK_SIZE, 1, 1), first.to_bytes(8, "little"))  # fmt: skip
    run_grid(launch, lambda address: (first, first + size), only=range(blocks - 4, blocks))
    begin = (blocks - 4) * BLOCK_SIZE
    expected = (np.arange(begin, size) % 256).astype(np.uint8)
    assert (memory[begin:] == expected).all()
    assert not memory[:1000].any()


def test_more_work_items_than_a_gpu_takes_is_refused_with_their_number(machine: PTXBackend) -> None:
    binary = machine.compile(machine.emit(fibonacci_kernel(3), "fibonacci"))
    source = Source("ptx", "fibonacci", binary.source.text, binary.source.params, 2**40)
    with pytest.raises(DeviceError, match=r"fibonacci has 1099511627776 work items, 8589934592 blocks"):  # fmt: skip
        machine.load(machine.compile(source))


# -- threads and contexts ----------------------------------------------------------------------------


def test_another_thread_computes_and_frees_on_the_same_gpu(cuda: EmulatedDriver) -> None:
    before = used_bytes(0)
    held = [(Tensor(np.ones(8, np.float32), device="CUDA") + 1).realize()]
    found: list[object] = []

    def work() -> None:
        found.append((held[0] * 3).tolist())
        held.clear()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[6.0] * 8]
    assert used_bytes(0) == before


def test_gpu_by_number_has_its_own_memory(cuda: EmulatedDriver) -> None:
    first, second = used_bytes(0), used_bytes(1)
    x = (Tensor([1.0, 2.0], device="CUDA:1") + 1).realize()
    assert x.device == "CUDA:1"
    assert x.tolist() == [2.0, 3.0]
    assert (used_bytes(0), used_bytes(1) > second) == (first, True)
    assert x.to("CUDA").device == x.to("cuda:0").device == "CUDA"


def test_values_move_from_gpu_to_gpu(cuda: EmulatedDriver) -> None:
    x = (Tensor([1.0, 2.0], device="CUDA") + 1).realize()
    assert (x.to("CUDA:1") * 2).tolist() == [4.0, 6.0]


def test_gpus_in_one_expression_are_an_error_that_names_both(cuda: EmulatedDriver) -> None:
    with pytest.raises(ValueError, match=r"Tensors on CUDA and CUDA:1; move one of them"):
        Tensor([1.0], device="CUDA") + Tensor([1.0], device="CUDA:1")


def test_number_that_no_gpu_has_is_an_error_with_those_there_are(api: EmulatedDriver) -> None:
    with pytest.raises(DeviceError, match=r"there is no CUDA:2: .* lists 2 GPUs \(CUDA, CUDA:1\)"):
        Driver(api, 2)


@pytest.mark.parametrize("name", ["CUDA:x", "CUDA:-1", "CUDA:1.5", "CPU:", "CUDA:١"])
def test_what_is_no_number_behind_a_colon_is_an_error(name: str) -> None:
    with pytest.raises(DeviceError, match="behind the colon stands its number"):
        Device.canonical(name)


def test_numbers_of_devices_that_there_is_one_of_name_that_one() -> None:
    assert (Device.canonical("CPU:3"), Device.canonical("cuda:00")) == ("CPU", "CUDA")
    assert (Device.canonical("NV:1"), Device.canonical("gpu:2")) == ("CUDA:1", "CL:2")


FORKED = """
import os
from proofgrad import Tensor
kept = (Tensor([1.0, 2.0], device="CUDA") * 3).realize()
child = os.fork()
if not child:
    try:
        kept.tolist()
    except RuntimeError as error:
        print("spawn" in str(error), flush=True)
    del kept
    print(Tensor([1.0, 2.0]).sum().item(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(kept.sum().item())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_to_spawn() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120,
        env={**os.environ, "MOCKGPU": "1"},
    )  # fmt: skip
    assert done.stdout.split() == ["True", "3.0", "9.0"], done.stderr
    assert done.stderr == ""


# -- memory -----------------------------------------------------------------------------------------


def test_memory_is_copied_both_ways_and_freed_with_its_handle(
    machine: PTXBackend, api: EmulatedDriver
) -> None:
    handle = machine.alloc(4)
    machine.copyin(handle, memoryview(b"abcd"))
    result = bytearray(4)
    machine.copyout(memoryview(result), handle)
    assert (bytes(result), api.contexts[0].used_bytes) == (b"abcd", 4)
    del handle
    machine.synchronize()
    assert api.contexts[0].used_bytes == 0


def test_large_data_is_given_to_the_driver_where_it_lies(
    machine: PTXBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    copy = EmulatedDriver.cuMemcpyHtoDAsync

    def noting(self: EmulatedDriver, target: int, source: memoryview, *rest: object) -> None:
        given.append(source.obj)
        copy(self, target, source, *rest)

    monkeypatch.setattr(EmulatedDriver, "cuMemcpyHtoDAsync", noting)
    data = bytearray(STAGE_BYTES + 1)
    machine.copyin(machine.alloc(len(data)), memoryview(data))
    assert given[0] is data


@pytest.mark.parametrize("nbytes", [1, STAGE_BYTES, STAGE_BYTES + 1, 5 * STAGE_BYTES + 3])
def test_what_was_copied_may_be_changed_at_once(machine: PTXBackend, nbytes: int) -> None:
    data = bytearray(range(256)) * (nbytes // 256 + 1)
    expected = bytes(data[:nbytes])
    handle = machine.alloc(nbytes)
    machine.copyin(handle, memoryview(data)[:nbytes])
    data[:] = bytes(len(data))
    result = bytearray(nbytes)
    machine.copyout(memoryview(result), handle)
    assert bytes(result) == expected


def test_small_copies_wait_for_nothing(machine: PTXBackend, api: EmulatedDriver) -> None:
    launch = loaded(machine, fibonacci_kernel(10), "fibonacci")
    launch([machine.alloc(4)])
    for k in range(3):
        machine.copyin(machine.alloc(4), memoryview(bytes([k] * 4)))
    assert api.launches == 0


def test_many_small_copies_keep_their_own_values(machine: PTXBackend) -> None:
    handles = [machine.alloc(8) for _ in range(50)]
    for k, handle in enumerate(handles):
        machine.copyin(handle, memoryview(k.to_bytes(8, "little")))
    for k, handle in enumerate(handles):
        result = bytearray(8)
        machine.copyout(memoryview(result), handle)
        assert int.from_bytes(result, "little") == k


def test_strided_and_typed_memory_is_copied_by_its_elements(machine: PTXBackend) -> None:
    data = np.arange(10, dtype=np.int32)[::2]
    handle = machine.alloc(20)
    machine.copyin(handle, memoryview(data))
    result = bytearray(20)
    machine.copyout(memoryview(result), handle)
    assert unpack(bytes(result), dtypes.int32) == [0, 2, 4, 6, 8]


def test_more_memory_than_there_is_is_a_memory_error_with_sizes() -> None:
    machine = PTXBackend(Driver(EmulatedDriver(memory_bytes=1 << 20)))
    held = machine.alloc(1 << 19)
    message = (
        r"cannot allocate 1048576 bytes on CUDA \(emulated GPU 0\): 524288 of its 1048576 bytes"
    )
    with pytest.raises(MemoryError, match=message):
        machine.alloc(1 << 20)
    machine.copyin(held, memoryview(b"still"))
    result = bytearray(5)
    machine.copyout(memoryview(result), held)
    assert result == b"still"


def test_what_the_pool_keeps_is_given_back_before_memory_is_out() -> None:
    api = EmulatedDriver(memory_bytes=1 << 20)
    machine = PTXBackend(Driver(api))
    held = machine.alloc(3 << 18)
    del held
    machine.synchronize()
    assert (api.contexts[0].used_bytes, api.contexts[0].pooled_bytes) == (0, 3 << 18)
    again = machine.alloc(1 << 19)  # of another size, which does not fit beside what is kept
    assert (again.nbytes, api.contexts[0].pooled_bytes) == (1 << 19, 0)


def test_out_of_memory_loses_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = PTXBackend(Driver(EmulatedDriver(memory_bytes=1 << 20)))
    monkeypatch.setitem(Device._devices, "SMALLGPU", backend)
    x = Tensor(np.arange(1000, dtype=np.float32), device="SMALLGPU").realize()
    y = x.reshape(1000, 1) + x
    with pytest.raises(MemoryError, match="cannot allocate 4000000 bytes"):
        y.realize()
    assert (x + 1)[999].item() == 1000
    assert y[3, 4].item() == 7
    del x, y
    gc.collect()


# -- modules ------------------------------------------------------------------------------------------


def test_modules_of_kernels_that_are_gone_are_unloaded(
    machine: PTXBackend, api: EmulatedDriver
) -> None:
    for k in range(2 * RETIRED_MODULES):
        launch = loaded(machine, fibonacci_kernel(k + 2), "fibonacci")
        launch([machine.alloc(4)])
        del launch
    machine.synchronize()
    assert api.modules == 0


def test_a_kernel_that_is_dropped_before_it_has_run_runs(machine: PTXBackend) -> None:
    out = machine.alloc(4)
    loaded(machine, fibonacci_kernel(10), "fibonacci")([out])
    gc.collect()
    result = bytearray(4)
    machine.copyout(memoryview(result), out)
    assert unpack(bytes(result), dtypes.int32) == [55]


class Interrupted(EmulatedDriver):
    """What runs in the middle of a call of the driver, once: another thread, or a handle that Python drops."""

    def __init__(self, name: str, between: Callable[[], object]) -> None:
        super().__init__(devices=2)
        self.name, self.between = name, [between]

    def meet(self, name: str) -> None:
        """Behind a call of this name."""
        if name == self.name and self.between:
            self.between.pop()()

    def cuCtxSetCurrent(self, context: Any) -> None:
        super().cuCtxSetCurrent(context)
        self.meet("cuCtxSetCurrent")

    def cuStreamSynchronize(self, stream: Any) -> None:
        super().cuStreamSynchronize(stream)
        self.meet("cuStreamSynchronize")


def test_module_that_is_dropped_while_others_are_waited_for_stays_until_the_next_wait() -> None:
    """Another thread has launched it behind what is waited for."""
    late: list[KernelLaunch] = []
    api = Interrupted("cuStreamSynchronize", lambda: late.pop()([out]))
    machine = PTXBackend(Driver(api))
    late.append(loaded(machine, fibonacci_kernel(9), "fibonacci"))
    out = machine.alloc(4)
    machine.synchronize()
    assert (late, api.between, api.modules) == ([], [], 1)
    machine.synchronize()
    assert api.modules == 0


# -- handles that Python drops at any line ------------------------------------------------------------


def test_handle_of_another_gpu_that_is_dropped_during_a_call_leaves_it_its_context() -> None:
    handles: list[object] = []
    api = Interrupted("", handles.clear)
    one, other = [PTXBackend(Driver(api, number)) for number in (0, 1)]
    kept = one.alloc(4)
    handles.append(other.alloc(64))
    one.copyin(kept, memoryview(bytes(range(4))))
    read = bytearray(4)
    api.name = "cuCtxSetCurrent"
    one.copyout(memoryview(read), kept)
    assert (list(read), handles, api.between) == ([0, 1, 2, 3], [], [])
    other.synchronize()
    assert api.contexts[1].used_bytes == 0


def ends(work: Callable[[], object]) -> bool:
    """Whether work in a thread of its own ends."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def test_kernel_that_is_dropped_while_launches_are_noted_waits_for_nobody(
    machine: PTXBackend, api: EmulatedDriver
) -> None:
    assert machine.driver is not None
    driver, made = machine.driver, [loaded(machine, fibonacci_kernel(9), "fibonacci")]

    class Names(list[str]):
        def __iter__(self) -> Iterator[str]:
            made.clear()
            return super().__iter__()

    assert ends(lambda: driver.note(Names(["fibonacci"])))
    assert made == []
    machine.synchronize()
    assert api.modules == 0


def test_gpu_that_is_lost_while_launches_are_noted_says_so(machine: PTXBackend) -> None:
    """A handle that is dropped there meets the fault."""
    assert machine.driver is not None
    driver = machine.driver

    class Names(list[str]):
        def __iter__(self) -> Iterator[str]:
            driver._words_of_loss(700)
            return super().__iter__()

    assert ends(lambda: driver.note(Names(["fibonacci"])))


@pytest.mark.parametrize("what", ["launch", "graph", "copy"])
def test_forked_child_asks_for_no_lock_that_another_thread_held(
    machine: PTXBackend, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    assert machine.driver is not None and machine.copies is not None
    copies = machine.copies
    launch, out = loaded(machine, fibonacci_kernel(9), "fibonacci"), machine.alloc(4)
    graph = machine.sequence([(launch, [0], [0])] * 2, [out])
    assert isinstance(graph, GraphSequence)
    lock, work = {
        "launch": (machine.driver._lock, lambda: launch([out])),
        "graph": (graph._lock, graph.run),
        "copy": (copies._lock, lambda: copies.write(out.address, memoryview(bytes(4)))),
    }[what]
    told: list[str] = []

    def use() -> None:
        try:
            work()
        except DeviceError as error:
            told.append(str(error))

    with monkeypatch.context() as patch, lock:
        patch.setattr(machine.driver, "_process", -1)
        assert ends(use)
    assert len(told) == 1 and "before this process was forked" in told[0]


class Full(EmulatedDriver):
    """Has no memory for events, or of the host; counts events."""

    events, full = 0, ""

    def cuEventCreate(self, flags: int) -> Any:
        self.require(self.full != "events", CUresult.CUDA_ERROR_OUT_OF_MEMORY)
        self.events += 1
        return super().cuEventCreate(flags)

    def cuEventDestroy(self, event: Any) -> None:
        self.events -= 1
        super().cuEventDestroy(event)

    def cuMemAllocHost(self, nbytes: int) -> int:
        self.require(self.full != "host", CUresult.CUDA_ERROR_OUT_OF_MEMORY)
        return super().cuMemAllocHost(nbytes)


@pytest.mark.parametrize("full", ["events", "host"])
def test_copy_that_gets_no_memory_keeps_none_and_the_next_one_is_right(full: str) -> None:
    api = Full()
    machine = PTXBackend(Driver(api))
    out, read = machine.alloc(4), bytearray(4)
    api.full = full
    with pytest.raises(MemoryError, match="memory is out for cu.* on CUDA"):
        machine.copyin(out, memoryview(bytes(4)))
    assert (api.events, api.pinned) == (0, {})
    api.full = ""
    machine.copyin(out, memoryview(bytes(range(4))))
    machine.copyout(memoryview(read), out)
    assert (list(read), api.events) == ([0, 1, 2, 3], 1)


def test_ptx_that_is_refused_is_shown_with_what_the_compiler_says(machine: PTXBackend) -> None:
    text = ".version 7.8\n.target sm_90\n.address_size 64\n.entry k() { bogus.f32 %f1; ret; }\n"
    with pytest.raises(CompileError, match=r"INVALID_PTX(?s:.)*ptxas error   : line 4: 'bogus.f32 %f1' is not emulated(?s:.)*\.entry k"):  # fmt: skip
        machine.compile(Source("ptx", "k", text, ()))


def test_kernel_that_the_text_does_not_have_is_named(machine: PTXBackend) -> None:
    text = machine.emit(fibonacci_kernel(3), "fibonacci").text
    with pytest.raises(CompileError, match="the PTX has no kernel other"):
        machine.load(machine.compile(Source("ptx", "other", text, ())))


# -- faults -------------------------------------------------------------------------------------------

WILD = """.version 7.8
.target sm_90
.address_size 64
.visible .entry wild(.param .u64 p) {
.reg .b64 %a;
ld.param.u64 %a, [p];
st.global.u32 [%a+4096], 1;
ret;
}
"""


def wild(machine: PTXBackend) -> KernelLaunch:
    source = Source("ptx", "wild", WILD, (dtypes.int32,))
    launch = machine.load(machine.compile(source))
    assert isinstance(launch, KernelLaunch)
    return launch


def test_fault_of_a_kernel_names_it_at_the_next_wait(machine: PTXBackend) -> None:
    launch, out = wild(machine), machine.alloc(4)
    launch([out])
    message = r"CUDA \(emulated GPU 0\) was lost in the kernel wild: CUDA_ERROR_ILLEGAL_ADDRESS: .*Its values are gone"
    with pytest.raises(DeviceError, match=message):
        machine.synchronize()


def test_fault_among_several_kernels_names_them(machine: PTXBackend) -> None:
    first = loaded(machine, fibonacci_kernel(10), "fibonacci")
    out = machine.alloc(4)
    for launch in (first, wild(machine), first):
        launch([out])
    with pytest.raises(DeviceError, match="one of the 3 kernels launched .* are fibonacci, wild"):
        machine.copyout(memoryview(bytearray(4)), out)


def test_lost_gpu_says_so_at_every_call_and_the_others_go_on(
    cuda: EmulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = PTXBackend(Driver(EmulatedDriver()))
    monkeypatch.setitem(Device._devices, "LOSTGPU", backend)
    x = Tensor([1.0, 2.0], device="LOSTGPU").realize()
    out = backend.alloc(4)
    wild(backend)([out])
    for use in (backend.synchronize, x.tolist, (x + 1).realize, lambda: backend.alloc(4)):
        with pytest.raises(DeviceError, match="was lost in the kernel wild"):
            use()
    del out, x
    gc.collect()  # and nothing is printed about memory that is gone
    assert (Tensor([1.0], device="CUDA:1") + 1).tolist() == [2.0]
    assert (Tensor([1.0], device="CPU") + 1).tolist() == [2.0]


def test_fault_that_is_met_while_memory_is_freed_is_told_by_the_next_call(
    machine: PTXBackend, api: EmulatedDriver, recwarn: pytest.WarningsRecorder
) -> None:
    out = machine.alloc(4)
    wild(machine)([out])
    api.cuStreamSynchronize(machine.driver.stream)  # as another library of the process might
    del out
    gc.collect()
    with pytest.raises(DeviceError, match="was lost"):
        machine.alloc(4)
    assert not [w for w in recwarn if "unraisable" in str(w.category).lower()]


def test_kernel_that_needs_more_than_there_is_says_what_it_needs(
    machine: PTXBackend, api: EmulatedDriver
) -> None:
    api.max_threads = 64
    launch = loaded(machine, row_sum_kernel(1000, 9), "row_sum")
    buffers = [machine.alloc(4000), machine.alloc(36000)]
    with pytest.raises(DeviceError, match=r"the kernel row_sum needs \d+ registers for each of 128 threads and 0 bytes"):  # fmt: skip
        launch(buffers)
    api.max_threads = 1024
    launch(buffers)
    machine.synchronize()


# -- replay -------------------------------------------------------------------------------------------


def test_replay_is_one_graph_and_right(cuda: EmulatedDriver) -> None:
    weights = Tensor(np.arange(64, dtype=np.float32).reshape(8, 8), device="CUDA").realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        hidden = (x @ weights).relu().contiguous()
        return (hidden - hidden.mean(axis=1, keepdim=True)).contiguous().softmax().realize()

    for seed in range(6):
        x = np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32)
        before = cuda.graph_launches
        found = step(Tensor(x, device="CUDA").realize()).numpy()
        hidden = np.maximum(x @ weights.numpy(), 0)
        hidden = hidden - hidden.mean(1, keepdims=True)
        expected = np.exp(hidden - hidden.max(1, keepdims=True))
        expected /= expected.sum(1, keepdims=True)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        assert cuda.graph_launches - before == (1 if seed >= 2 else 0)


def test_replay_that_writes_in_place_goes_on_from_what_it_wrote(cuda: EmulatedDriver) -> None:
    state = Tensor([1.0, 2.0], device="CUDA").contiguous().realize()

    @TinyJit
    def step() -> Tensor:
        state.assign((state * 2).contiguous() + 1)
        return (state.sum() + 0).realize()

    totals = [step().item() for _ in range(5)]
    assert totals == [8.0, 18.0, 38.0, 78.0, 158.0]


# -- times ----------------------------------------------------------------------------------------------


def test_times_are_those_between_two_events(
    cuda: EmulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(cuda), "cuEventElapsedTime", lambda self, first, last: 2500.0)
    x = Tensor([1.0, 2.0], device="CUDA").realize()
    with profile() as report:
        (x + 1).realize()
    assert [row.seconds for row in report.rows] == [2.5]


# -- conformance ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("cuda")
def test_emulated_gpu_passes_checks_of_a_machine() -> None:
    """What the runtime does; `python -m proofgrad.testing.backend CUDA` has all groups."""
    groups = ["memory", "copies", "handles", "threads", "replay", "assign"]
    found = list(conformance.run("CUDA", Options(), groups))
    assert [(report.name, report.failed) for report in found if report.failed] == []
    assert all(report.passed for report in found)


# -- opening ----------------------------------------------------------------------------------------------


def test_emulated_gpus_are_asked_for_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCKGPU", "3")
    runtime._emulated.cache_clear()
    assert open_backend(2).driver.name == "emulated GPU 2"
    with pytest.raises(DeviceError, match="there is no CUDA:3"):
        open_backend(3)


def test_second_gpu_without_a_driver_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DeviceError, match=r'pip install "proofgrad\[cuda\]"'):
        open_backend(1)


class NoDriver:
    """cuda.bindings.driver where there is no libcuda, or no GPU."""

    def __init__(self, code: int, count: int) -> None:
        self.code, self.count = code, count

    def cuInit(self, flags: int) -> tuple[int]:
        if self.code < 0:
            raise RuntimeError("libcuda.so.1 cannot be opened")
        return (self.code,)

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return (0, self.count)


@pytest.mark.parametrize(
    ("code", "count", "message"),
    [
        (-1, 0, r"no NVIDIA driver was found \(libcuda.so.1 cannot be opened\)"),
        (100, 0, "the NVIDIA driver has no GPU to use"),
        (0, 0, "the NVIDIA driver has no GPU to use"),
    ],
)
def test_driver_without_a_gpu_is_a_warning_and_a_machine_that_prints(
    monkeypatch: pytest.MonkeyPatch, code: int, count: int, message: str
) -> None:
    package = type(sys)("cuda.bindings")
    package.driver = NoDriver(code, count)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.delenv("MOCKGPU", raising=False)
    with pytest.warns(UserWarning, match=message):
        assert not open_backend().target.runs


# -- compiling beside, memory of others --------------------------------------------------------------


def test_text_is_compiled_once_and_what_came_of_it_loaded(
    api: EmulatedDriver, machine: PTXBackend
) -> None:
    binary = machine.compile(machine.emit(row_sum_kernel(4, 5), "row_sum"))
    assert api.modules == 1
    machine.compile(binary.source)
    launch = machine.load(binary)
    assert api.modules == 1
    other = machine.load(binary)  # the first has it
    assert api.modules == 2
    assert launch is not other


def test_text_is_compiled_by_a_thread_of_its_own(machine: PTXBackend) -> None:
    source, found = machine.emit(row_sum_kernel(4, 5), "row_sum"), []
    thread = threading.Thread(target=lambda: found.append(machine.compile(source)))
    thread.start()
    thread.join()
    assert machine.compiles_in_background
    out, given = machine.alloc(16), machine.alloc(80)
    machine.copyin(given, memoryview(pack([2.0] * 20, dtypes.float32)))
    machine.load(found[0])([out, given])
    data = bytearray(16)
    machine.copyout(memoryview(data), out)
    assert unpack(bytes(data), dtypes.float32) == [20.0] * 4


def test_text_that_the_driver_refuses_is_an_error_when_it_is_compiled(machine: PTXBackend) -> None:
    with pytest.raises(CompileError, match="the driver refused the PTX"):
        machine.compile(Source("ptx", "bad", "nonsense", ()))


def test_memory_of_another_library_is_read_in_place_and_held(machine: PTXBackend) -> None:
    assert machine.driver is not None
    other = machine.alloc(80)
    machine.copyin(other, memoryview(pack([3.0] * 20, dtypes.float32)))
    address = other.address
    adopted = machine.adopt(address, 80, keep=other)
    del other
    gc.collect()
    out = machine.alloc(16)
    loaded(machine, row_sum_kernel(4, 5), "row_sum")([out, adopted])
    data = bytearray(16)
    machine.copyout(memoryview(data), out)
    assert unpack(bytes(data), dtypes.float32) == [45.0] * 4


def test_nothing_of_a_device_is_kept_for_another_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setitem(Device._devices, "CUDA", PTXBackend(Driver(EmulatedDriver(devices=1))))
            x = Tensor([1.0, 2.0, 4.0], device="CUDA").realize()
            assert x[: Variable("n", 1, 3).bind(2)].sum().item() == 3
            for _ in range(3):  # soon it is known how
                assert (x + 1).tolist() == [2, 3, 5]
            y = Tensor.zeros(3, device="CUDA").contiguous().realize()
            y[1] = 7.0
            assert y.realize().tolist() == [0, 7, 0]


def test_many_threads_compile_at_once_and_few_modules_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "LoadedModule", lambda driver, text: text)
    monkeypatch.setattr(runtime, "COMPILED_AHEAD", 1)
    backend, failed = PTXBackend(None), list[Exception]()
    monkeypatch.setattr(backend, "driver", object())

    def compile_many(number: int) -> None:
        try:
            for k in range(5000):
                backend.compile(Source("ptx", "entry", f"{number} {k}", (), 1))
        except Exception as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=compile_many, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed and len(backend._compiled) == 1
