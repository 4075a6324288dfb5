"""The OpenCL backend computes every op as core/ir/evaluate.py says, bit for bit."""

from __future__ import annotations

import gc
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from linear_kernels import (
    constants_kernel,
    differences,
    edge_values,
    fibonacci_kernel,
    linear,
    map_kernel,
    negates_in_threads,
    operand_rows,
    ops_by_operands,
    pack,
    product_and_sum_kernel,
    row_sum_kernel,
    run,
    same,
    unpack,
    vector_map_kernel,
)

from proofgrad import Tensor
from proofgrad.backends.opencl import backend
from proofgrad.backends.opencl.cache import give_pocl_a_cache
from proofgrad.backends.opencl.devices import choose_device, context_of
from proofgrad.backends.opencl.emit import emit
from proofgrad.backends.opencl.runtime import OpenCLBackend, explain_log
from proofgrad.backends.opencl.wheels import name_drivers_of_wheels
from proofgrad.core.compile.machine.target import Backend, CompileError, DeviceError, Source
from proofgrad.core.ir.dtypes import DType, dtypes, round_float
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

GOLDEN = Path(__file__).parent / "golden"
SMALL_FLOATS = [dtypes.float16, dtypes.bfloat16]
ARITHMETIC = [d for d in dtypes.all if d not in SMALL_FLOATS]
Kernel = Callable[[Sequence[tuple[Ops, DType]], Sequence[DType], int], UOp]
KERNELS = [map_kernel, vector_map_kernel]

SIZE = UOp(Ops.CONST, dtypes.int32, (), 4)


def store_kernel(value: UOp, loops: Sequence[UOp]) -> UOp:
    """out[0] = value, in the loops `loops`."""
    out = UOp(Ops.PARAM, value.dtype, (), (0, 1))
    zero = UOp(Ops.CONST, dtypes.int32, (), 0)
    position = UOp(Ops.INDEX, value.dtype, (out, zero))
    nodes = [node for node in value.toposort() if node not in (SIZE, *loops)]
    ends = [UOp(Ops.END, dtypes.void, (loop,)) for loop in reversed(loops)]
    store = UOp(Ops.STORE, dtypes.void, (position, value))
    return linear([out, zero, SIZE, *loops, *nodes, position, store, *ends])


@pytest.fixture(scope="module")
def device() -> Backend:
    try:
        return backend()
    except DeviceError as error:
        pytest.skip(f"no OpenCL here: {error}")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ARITHMETIC, ids=lambda d: d.name)
def test_every_op_on_edge_values_is_bitwise_the_reference(
    device: Backend, dtype: DType, kernel: Kernel
) -> None:
    wrong = []
    for sources, results in ops_by_operands(dtype).items():
        wrong += differences(device, results, sources, operand_rows(sources), kernel)
    assert wrong[:5] == []


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_cast_of_edge_values_is_bitwise_the_reference(
    device: Backend, dtype: DType, kernel: Kernel
) -> None:
    rows = [(value,) for value in edge_values(dtype)]
    casts = [(Ops.CAST, target) for target in dtypes.all]
    assert differences(device, casts, (dtype,), rows, kernel)[:5] == []


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=lambda d: d.name)
def test_cast_of_every_small_float_is_bitwise_the_reference(device: Backend, dtype: DType) -> None:
    every = unpack(b"".join([n.to_bytes(2, "little") for n in range(2**16)]), dtype)
    rows = [(value,) for value in every]
    assert differences(device, [(Ops.CAST, dtypes.float32)], (dtype,), rows)[:5] == []


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_bitcast_keeps_the_bits(device: Backend, dtype: DType) -> None:
    rows = [(value,) for value in edge_values(dtype) if not math.isnan(value)]
    targets = [(Ops.BITCAST, d) for d in dtypes.all if d.bits == dtype.bits and d is not dtype]
    assert differences(device, targets, (dtype,), rows) == []


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=lambda d: d.name)
def test_where_of_small_floats_selects(device: Backend, dtype: DType, kernel: Kernel) -> None:
    sources = (dtypes.bool, dtype, dtype)
    rows = operand_rows(sources)
    assert differences(device, [(Ops.WHERE, dtype)], sources, rows, kernel) == []


def test_vector_of_a_width_that_there_is_not_is_refused() -> None:
    value = UOp(Ops.CONST, dtypes.float32.vec(32), (), 1.0)
    with pytest.raises(CompileError, match="2, 4, 8 or 16 elements"):
        emit(linear([value]), "wide")


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=lambda d: d.name)
def test_every_pair_of_8_bit_ints_is_bitwise_the_reference(device: Backend, dtype: DType) -> None:
    values = range(dtype.lo, dtype.hi + 1)
    rows = [(x, y) for x in values for y in values]
    ops = [
        (op, dtype) for op in (Ops.FLOORDIV, Ops.MOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.SHL, Ops.SHR)
    ]
    assert differences(device, ops, (dtype, dtype), rows)[:5] == []


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_every_constant_keeps_its_value(device: Backend, dtype: DType) -> None:
    values = edge_values(dtype)
    (output,) = run(device, constants_kernel(values, dtype), [], [len(values) * dtype.itemsize])
    got = unpack(output, dtype)
    assert [(x, y) for x, y in zip(values, got) if not same(x, y)] == []


def test_product_and_sum_are_rounded_twice(device: Backend) -> None:
    rows = [(1.0 + k * 2.0**-23, 1.0 - k * 2.0**-23) for k in range(1, 1000)]
    inputs = [pack(column, dtypes.float32) for column in zip(*rows)]
    (output,) = run(device, product_and_sum_kernel(len(rows)), inputs, [4 * len(rows)])
    products = [round_float(x * y, dtypes.float32) for x, y in rows]
    wanted = [round_float(p + x, dtypes.float32) for p, (x, _) in zip(products, rows)]
    assert unpack(output, dtypes.float32) == wanted
    assert wanted != [round_float(x * y + x, dtypes.float32) for x, y in rows]


def test_multiply_and_accumulate_without_fma_may_be_contracted_and_nothing_else() -> None:
    text = emit(row_sum_kernel(70, 9), "row_sum", has_fma=False).text
    function, kernel = text.split("kernel void")
    assert "FP_CONTRACT ON\n  return x * y + z;" in function
    assert "total0 = mulacc_float(v2, v2, total0);" in kernel
    assert function.startswith("// row_sum: 70 work items\n#pragma OPENCL FP_CONTRACT OFF")


def test_sum_of_sums_that_may_wrap_is_cast_once() -> None:
    row, column, depth = [
        UOp(Ops.RANGE, dtypes.int32, (SIZE,), (k, AxisRole.LOOP)) for k in range(3)
    ]
    text = emit(store_kernel(row * SIZE + column + depth, (row, column, depth)), "sums").text
    assert "data0[0] = (int)((((uint)i0 * 4u) + (uint)i1) + (uint)i2);" in text


def test_loop_with_accumulator_and_mask_sums_the_open_elements(device: Backend) -> None:
    values = [float(k % 7) for k in range(70 * 9)]
    data = pack(values, dtypes.float32)
    (output,) = run(device, row_sum_kernel(70, 9), [data], [70 * 4])
    got = unpack(output, dtypes.float32)
    assert got == [sum(v * v for v in values[9 * r : 9 * r + 5]) for r in range(70)]


def test_kernel_text_is_the_golden_file() -> None:
    text = emit(row_sum_kernel(70, 9), "row_sum").text
    assert text == (GOLDEN / "row_sum.cl").read_text()


def test_value_read_before_an_update_keeps_what_it_read(device: Backend) -> None:
    (output,) = run(device, fibonacci_kernel(10), [], [4])
    assert unpack(output, dtypes.int32) == [55]


def test_transcendental_that_was_not_decomposed_is_refused() -> None:
    with pytest.raises(CompileError, match="EXP2 on dtypes.float has no OpenCL C"):
        emit(map_kernel([(Ops.EXP2, dtypes.float32)], (dtypes.float32,), 4), "bad")


def test_text_that_the_driver_refuses_is_shown_with_its_line(device: Backend) -> None:
    source = Source("opencl", "broken", "kernel void broken() {\n  nonsense;\n}\n", ())
    with pytest.raises(CompileError, match="refused line 2 of the kernel:\n  +nonsense;"):
        device.compile(source)


def test_log_without_a_position_is_shown_whole() -> None:
    assert (
        explain_log("out of memory", "x")
        == "the OpenCL compiler refused the kernel:\nout of memory"
    )


def test_missing_pyopencl_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match=r'pip install "proofgrad\[opencl\]"'):
        OpenCLBackend()


def test_more_memory_than_there_is_is_a_memory_error_with_the_size(device: Backend) -> None:
    with pytest.raises(MemoryError, match=f"cannot allocate {2**45} bytes"):
        device.alloc(2**45)


BITS = SimpleNamespace(DENORM=1, INF_NAN=2, ROUND_TO_NEAREST=4, CORRECTLY_ROUNDED_DIVIDE_SQRT=8)


class Drivers:
    """pyopencl with made-up devices: what each says of itself, and what the trial gives on it."""

    Error, device_fp_config = OSError, BITS
    mem_flags = SimpleNamespace(READ_WRITE=0)

    def __init__(self, *devices: SimpleNamespace) -> None:
        self.platforms = [SimpleNamespace(get_devices=lambda one=one: [one]) for one in devices]

    def get_platforms(self) -> list[SimpleNamespace]:
        return self.platforms

    def Context(self, devices: list[SimpleNamespace]) -> SimpleNamespace:
        return devices[0]

    def CommandQueue(self, context: SimpleNamespace) -> SimpleNamespace:
        return context

    def Program(self, context: SimpleNamespace, text: str) -> SimpleNamespace:
        def build(options: list[str], cache_dir: bool) -> None:
            if context.refusal:
                raise OSError(context.refusal)

        return SimpleNamespace(build=build)

    def Buffer(self, *_: object) -> str:
        return "buffer"

    def Kernel(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(set_args=lambda *_: None)

    def enqueue_nd_range_kernel(self, *_: object) -> None:
        """The result is what the device says."""

    def enqueue_copy(
        self, queue: SimpleNamespace, target: object, source: object, **_: object
    ) -> None:
        if isinstance(source, str):
            right = [(k * (k + 1)) ** 0.5 + k / 3 for k in range(64)]
            target[:] = [*[x + queue.error for x in right], queue.widest]  # type: ignore[index]


def toy(
    name: str,
    config: int = 15,
    refusal: str = "",
    error: float = 0.0,
    more: str = "",
    widest: int = 0,
) -> SimpleNamespace:
    return SimpleNamespace(
        name=f" {name} ", single_fp_config=config, refusal=refusal, error=error, extensions=more,
        widest=widest,
    )  # fmt: skip


def test_device_that_is_not_ieee_is_refused_with_what_it_lacks() -> None:
    cl = Drivers(toy("Toy", 1 + 2))
    with pytest.raises(
        DeviceError, match="Toy lacks rounding to nearest, correctly rounded division"
    ):
        choose_device(cl)


def test_device_without_exact_quotients_is_used_if_it_has_float64() -> None:
    chosen = choose_device(Drivers(toy("Loose", 7, more="cl_khr_fp64")))
    assert (chosen.device.name, chosen.refused) == (" Loose ", [])


def test_device_that_compiles_nothing_is_passed_over_for_the_next() -> None:
    cl = Drivers(toy("Newest", refusal="unknown target CPU 'newest'"), toy("Other"))
    chosen = choose_device(cl)
    assert chosen.device.name == " Other "
    assert chosen.refused == [
        "Newest lacks a driver that compiles and runs kernels for it (unknown target CPU 'newest')"
    ]


def test_device_that_computes_something_else_is_passed_over() -> None:
    chosen = choose_device(Drivers(toy("Wrong", error=0.5), toy("Right")))
    assert chosen.device.name == " Right "
    assert chosen.refused[0].startswith(
        "Wrong lacks a driver that computes rightly (it gives 0.5 instead of 0)"
    )


def test_context_of_a_refused_device_is_never_released() -> None:
    """PoCL ends the process with a context in which a program failed."""
    toys = [toy("Newest", refusal="no"), toy("Wrong", error=0.5)]
    before = [sys.getrefcount(one) for one in toys]
    choose_device(Drivers(*toys, toy("Other")))
    gc.collect()  # what the made-up drivers hold is the same for all
    after = [sys.getrefcount(one) for one in toys]
    assert [b - a for a, b in zip(before, after)] == [1, 1]


def test_functions_of_the_longest_vectors_are_right(device: Backend) -> None:
    """A driver that calls them with other registers than they read is passed over."""
    drawn = np.random.default_rng(3).normal(size=(4, 16)).astype(np.float32)
    found = Tensor(drawn, device="CL").exp2().numpy()
    assert np.allclose(found, np.exp2(drawn), rtol=1e-5)


def test_devices_are_numbered_by_those_that_can_be_used() -> None:
    cl = Drivers(toy("First"), toy("Bad", refusal="no"), toy("Second"))
    assert choose_device(cl, 1).device.name == " Second "
    with pytest.raises(
        DeviceError, match=r"there is no CL:2: the usable OpenCL devices are CL, CL:1; Bad lacks"
    ):
        choose_device(cl, 2)


def test_no_usable_device_says_why_and_what_to_install() -> None:
    with pytest.raises(DeviceError, match=r"Toy lacks a driver .* pip install intel-opencl-rt"):
        choose_device(Drivers(toy("Toy", refusal="no such CPU")))


@pytest.mark.parametrize("op", [Ops.FDIV, Ops.SQRT], ids=lambda op: op.name)
def test_quotients_by_float64_are_bitwise_those_of_float32(
    device: Backend, op: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is printed for devices that do not promise to round quotients correctly."""
    monkeypatch.setattr(device, "rounds_quotients", False)
    sources = (dtypes.float32,) * (2 if op is Ops.FDIV else 1)
    assert (
        "convert_double"
        in emit(map_kernel([(op, dtypes.float32)], sources, 4), "k", divides_in_double=True).text
    )
    assert differences(device, [(op, dtypes.float32)], sources, operand_rows(sources))[:5] == []


def test_threads_that_launch_one_kernel_do_not_share_its_arguments(device: Backend) -> None:
    assert negates_in_threads(device)


def test_times_are_those_of_the_device(device: Backend) -> None:
    out = device.alloc(4)
    launch = device.load(device.compile(device.emit(fibonacci_kernel(10), "fibonacci")))
    assert 0 <= device.timed(lambda: launch([out])) < 5


def test_driver_that_pip_installed_is_made_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libintelocl.so").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OCL_ICD_VENDORS", "")  # and put back after the test
    name_drivers_of_wheels()
    folder = Path(os.environ["OCL_ICD_VENDORS"])
    assert (folder / "intel.icd").read_text() == f"{tmp_path}/lib/libintelocl.so\n"


def test_driver_of_a_wheel_that_does_not_load_is_told_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libintelocl.so").write_text("no library")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OCL_ICD_VENDORS", "")  # and put back after the test
    name_drivers_of_wheels()
    (refused,) = choose_device(Drivers(toy("Other"))).refused
    assert re.fullmatch(
        r"Intel's driver does not load \(.*\): pip install intel-cmplr-lib-rt", refused
    )
    with pytest.raises(DeviceError, match="Intel's driver does not load"):
        choose_device(Drivers())
    monkeypatch.setenv("OCL_ICD_VENDORS", "/elsewhere")
    assert choose_device(Drivers(toy("Other"))).refused == []


def test_drivers_that_the_user_named_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", "/elsewhere")
    name_drivers_of_wheels()
    assert os.environ["OCL_ICD_VENDORS"] == "/elsewhere"


def test_cache_that_cannot_be_written_is_one_warning_and_a_folder_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POCL_CACHE_DIR", "/proc/nowhere")
    with pytest.warns(UserWarning, match="cannot write to /proc/nowhere"):
        folder = give_pocl_a_cache()
    assert folder.is_dir()


def test_cache_is_kept_in_the_folder_of_the_project(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("POCL_CACHE_DIR", raising=False)
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path))
    assert give_pocl_a_cache() == tmp_path / "pocl"


FORKED = """
import os, sys
from proofgrad import Tensor
print((Tensor([1.0, 2.0], device="CL") * 3).sum().item(), flush=True)
kept = Tensor([1.0, 2.0], device="CL").realize()
child = os.fork()
if not child:
    for use in (lambda: kept.tolist(), lambda: (kept + 1).realize(), lambda: Tensor([5.0], device="CL").realize()):
        try:
            use()
        except RuntimeError as error:
            print("spawn" in str(error), flush=True)
    print(Tensor([1.0, 2.0]).sum().item(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print((kept * 2).sum().item())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.usefixtures("device")
def test_a_forked_child_is_told_to_spawn_and_does_not_hang() -> None:
    """Of a driver's threads a child has none: it would wait for ever."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["9.0", "True", "True", "True", "3.0", "6.0"], done.stderr


def test_context_of_the_trial_is_the_one_that_is_used(device: Backend) -> None:
    """PoCL forgets its library of functions with its last context, and loads it again for the next one."""
    import pyopencl

    made, usual = [], pyopencl.Context

    class Counted:
        def __getattr__(self, name: str) -> object:
            return getattr(pyopencl, name)

        @staticmethod
        def Context(devices: list[object]) -> object:
            made.append(devices)
            return usual(devices)

    chosen = choose_device(Counted()).device
    tried = len(made)
    context_of(Counted(), chosen)
    assert len(made) == tried
    context_of(Counted(), chosen)  # the first has it
    assert len(made) == tried + 1


RACE = """
import os
import numpy as np
from proofgrad import Context, Device, Tensor

x = Tensor(np.arange(64, dtype=np.float32), device="CL").realize()
with Context(PLANS=0):
    for size in range(30, 40):
        Tensor.realize(x[:size] * 3.5 + x[:size].sqrt())
        for k in range(3000):
            os.environ[f"NAME{size}_{k % 200}"] = "x" * (k % 97)
        Device["CL"].synchronize()
print("done")
"""


@pytest.mark.usefixtures("device")
def test_program_may_change_its_environment_after_a_first_launch(tmp_path: Path) -> None:
    """PoCL spawns a linker with the environment of the process, in a thread of its own."""
    variables = os.environ | {"PROOFGRAD_CACHE": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", RACE]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
