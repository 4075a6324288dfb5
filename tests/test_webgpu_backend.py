"""WebGPU: WGSL computes every op as core/ir/evaluate.py says, bit for bit, on a device that keeps denormal numbers."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from devices import opened
from linear_kernels import (
    constants_kernel,
    differences,
    edge_values,
    fibonacci_kernel,
    global_index,
    linear,
    map_kernel,
    operand_rows,
    ops_by_operands,
    pack,
    product_and_sum_kernel,
    row_sum_kernel,
    run,
    unpack,
)

from proofgrad import Device, Tensor, dtypes
from proofgrad.backends.webgpu import backend
from proofgrad.backends.webgpu.adapters import cases, choose_adapter, not_kept
from proofgrad.backends.webgpu.emit import emit
from proofgrad.backends.webgpu.runtime import WebGPUBackend
from proofgrad.core.compile.machine.target import Backend, CompileError, DeviceError, Source
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.testing import ulp_distance

STORED = [d for d in dtypes.all if d is not dtypes.float64]
COMPUTED = [d for d in STORED if d not in (dtypes.float16, dtypes.bfloat16)]
LIMITS = {"max-storage-buffers-per-shader-stage": 8}


@pytest.fixture(scope="module")
def device() -> Backend:
    return Device[opened("WEBGPU")]


def needs(machine: Backend, *kinds: DType) -> None:
    """Skip what this device has no types for."""
    missing = [kind.name for kind in kinds if kind not in machine.target.storage]
    if missing:
        pytest.skip(f"the device has no {', '.join(missing)}")


@pytest.mark.parametrize("dtype", COMPUTED, ids=lambda d: d.name)
def test_every_op_on_edge_values_is_bitwise_the_reference(device: Backend, dtype: DType) -> None:
    needs(device, dtype)
    wrong = []
    for sources, results in ops_by_operands(dtype).items():
        wrong += differences(device, results, sources, operand_rows(sources), map_kernel)
    assert wrong[:5] == []


@pytest.mark.parametrize("dtype", STORED, ids=lambda d: d.name)
def test_every_cast_is_bitwise_the_reference(device: Backend, dtype: DType) -> None:
    kinds = [kind for kind in STORED if kind in device.target.storage]
    needs(device, dtype)
    results = [(Ops.CAST, kind) for kind in kinds]
    assert differences(device, results, (dtype,), operand_rows((dtype,)), map_kernel)[:5] == []


def same_widths() -> list[tuple[DType, DType]]:
    kinds = [kind for kind in STORED if not kind.is_bool]
    return [(x, y) for x in kinds for y in kinds if x is not y and x.bits == y.bits]


@pytest.mark.parametrize("source, dtype", same_widths(), ids=lambda d: d.name)
def test_bits_of_another_type_are_the_same_bits(
    device: Backend, source: DType, dtype: DType
) -> None:
    needs(device, source, dtype)
    rows = [row for row in operand_rows((source,)) if row[0] == row[0]]
    assert differences(device, [(Ops.BITCAST, dtype)], (source,), rows, map_kernel)[:5] == []


@pytest.mark.parametrize(
    "kernel", [row_sum_kernel(70, 9), fibonacci_kernel(10), product_and_sum_kernel(100)]
)
def test_loops_accumulators_and_masks_are_accepted(device: Backend, kernel: UOp) -> None:
    binary = device.compile(device.emit(kernel, "kernel_0"))
    device.load(binary)


@pytest.mark.parametrize("dtype", STORED, ids=lambda d: d.name)
def test_every_edge_constant_is_accepted(device: Backend, dtype: DType) -> None:
    needs(device, dtype)
    device.compile(device.emit(constants_kernel(edge_values(dtype), dtype), "kernel_0"))


def test_random_quotients_roots_and_fused_sums_are_rounded_once(device: Backend) -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, (3, 20000), dtype=np.uint32)
    x, y, z = bits.view(np.float32)
    made = [Tensor(row, "WEBGPU") for row in (x, y)]
    with np.errstate(all="ignore"):
        expected = (x / y, np.sqrt(np.abs(x)))
    found = ((made[0] / made[1]).numpy(), made[0].abs().sqrt().numpy())
    for ours, theirs in zip(found, expected, strict=True):
        assert ((ours == theirs) | (np.isnan(ours) & np.isnan(theirs))).all()
    near = np.random.default_rng(2).integers(0, 1 << 23, (3, 3000), dtype=np.uint32)
    rows = [tuple(map(float, row)) for row in ((near + (120 << 23)).view(np.float32)).T]
    kinds = (dtypes.float32,) * 3
    assert differences(device, [(Ops.FMA, dtypes.float32)], kinds, rows, map_kernel)[:3] == []


def test_what_a_compiler_may_take_for_finite_is_not_folded(device: Backend) -> None:
    x = Tensor([float("inf"), float("nan"), -0.0, 1.0], "WEBGPU")
    assert np.isnan((x * 3 - x * 3).numpy()).tolist() == [True, True, False, False]
    assert x.isnan().tolist() == [False, True, False, False]
    assert np.signbit((x * 1.0 + -0.0).numpy()).tolist()[2]
    assert (x >= x).tolist() == [True, False, True, True]


FUNCTIONS: dict[str, Any] = {"sin": np.sin, "cos": np.cos}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_waves_of_any_angle_are_within_one_and_a_tenth(device: Backend, name: str) -> None:
    bits = np.random.default_rng(3).integers(0, 2**32, 50000, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), (np.arange(1, 5000) * np.pi / 2).astype("f")])
    x = x[np.isfinite(x)]
    exact = FUNCTIONS[name](x.astype(np.float64))
    found = getattr(Tensor(x, "WEBGPU"), name)().numpy()
    apart = np.abs(found - exact) / np.spacing(np.abs(exact.astype(np.float32)))
    assert apart.max() < 1.1


def test_powers_are_within_a_unit_and_squares_exact(device: Backend) -> None:
    x = np.concatenate([np.random.default_rng(4).uniform(0, 20, 20000), np.arange(1, 300)]).astype(
        "f"
    )
    y = np.concatenate([np.random.default_rng(5).uniform(-20, 20, 20000), np.full(299, 2)]).astype(
        "f"
    )
    found = (Tensor(x, "WEBGPU") ** Tensor(y, "WEBGPU")).numpy()
    exact = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    assert ulp_distance(found, exact, dtypes.float32).max() <= 1
    assert (found[-299:] == x[-299:] ** 2).all()


EDGES = [0.0, 1.0, 2.0, 0.5, 3.0, float("inf"), 16777215.0, 1e30, 8388609.0]


def test_powers_of_edges_are_those_of_ieee(device: Backend) -> None:
    edges = [sign * x for x in EDGES for sign in (1, -1)] + [float("nan")]
    x, y = [grid.ravel() for grid in np.meshgrid(*[np.array(edges, np.float32)] * 2)]
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    found = (Tensor(x, "WEBGPU") ** Tensor(y, "WEBGPU")).numpy()
    same = (found == exact) & (np.signbit(found) == np.signbit(exact))
    assert (same | (np.isnan(found) & np.isnan(exact))).all()


def test_bytes_of_a_word_are_stored_by_items_of_their_own(device: Backend) -> None:
    values = [(k * 37) % 256 - 128 for k in range(1003)]
    x = Tensor(values, "WEBGPU", dtypes.int8)
    assert (x + 1).tolist() == [(v + 129) % 256 - 128 for v in values]
    assert (x.reshape(17, 59).T.contiguous()).reshape(-1).tolist() == [
        values[17 * 0 + 59 * row + column] for column in range(59) for row in range(17)
    ]


def test_writing_fewer_bytes_than_a_word_leaves_the_rest(device: Backend) -> None:
    handle = device.alloc(8)
    device.copyin(handle, memoryview(bytes(range(1, 9))))
    device.copyin(handle, memoryview(b"\xff"))
    found = bytearray(8)
    device.copyout(memoryview(found), handle)
    assert list(found) == [255, 2, 3, 4, 5, 6, 7, 8]


def test_more_items_than_groups_along_an_axis_are_all_run(device: Backend) -> None:
    count = 64 * 65535 + 1000
    x = (Tensor.arange(count, device="WEBGPU") % 7).cast(dtypes.uint8).contiguous().realize()
    assert x[-5:].tolist() == [(count - 5 + k) % 7 for k in range(5)]
    rows = x[:4195000].cast(dtypes.int32).reshape(1000, 4195).sum(1).contiguous()
    assert rows.sum().item() == sum(k % 7 for k in range(4195000))


def test_loops_that_the_device_would_end_early_are_refused(
    device: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(device, WebGPUBackend)
    monkeypatch.setattr(device, "most_turns", 30)
    with pytest.raises(
        DeviceError, match=r"loops of an item of the kernel r_20_32 run 32 times, and WEB"
    ):
        Tensor.ones(20, 1000, device="WEBGPU").contiguous().sum(1).realize()


def test_long_loops_are_whole_or_refused(device: Backend) -> None:
    total = Tensor.ones(1 << 20, device="WEBGPU").contiguous().sum()
    try:
        assert total.item() == 1 << 20
    except DeviceError as error:
        assert "ends them after some 65000" in str(error)


def test_memory_beyond_the_largest_buffer_is_an_error_with_sizes(device: Backend) -> None:
    with pytest.raises(
        MemoryError, match=r"cannot allocate \d+ bytes on WEBGPU \(.*\): its largest"
    ):
        device.alloc(1 << 40)
    assert (Tensor([1.0], "WEBGPU") + 1).tolist() == [2.0]


def test_kernel_of_too_many_buffers_is_refused(
    device: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(device, WebGPUBackend)
    monkeypatch.setitem(device._limits, "max-storage-buffers-per-shader-stage", 1)
    with pytest.raises(
        DeviceError, match="the kernel kernel_0 has 2 buffers, and WEBGPU .* takes 1"
    ):
        device.load(device.compile(device.emit(row_sum_kernel(70, 9), "kernel_0")))


def test_a_constant_position_of_64_bits_is_accepted(device: Backend) -> None:
    """Sums of so many steps are counted in 64 bits, and what they read of one element is at the constant 0 of these."""
    at = Tensor([3], dtype="int64", device=device.name).realize()
    picked = Tensor.arange(99000, device=device.name)[at,]
    assert picked.tolist() == [3]


@pytest.mark.parametrize("narrow", [dtypes.int32, dtypes.uint32, dtypes.bool], ids=str)
def test_what_was_widened_is_compared_with_constants_in_64_bits(
    device: Backend, narrow: DType
) -> None:
    """Lavapipe of Mesa 22.3 finds each i64(x) < 2 false."""
    size, item = global_index(4)
    out, x = UOp(Ops.PARAM, dtypes.bool, (), (0, 4)), UOp(Ops.PARAM, narrow, (), (1, 4))
    positions = [UOp(Ops.INDEX, param.dtype, (param, item)) for param in (out, x)]
    loaded, two = UOp(Ops.LOAD, narrow, (positions[1],)), UOp(Ops.CONST, dtypes.int64, (), 2)
    wide = UOp(Ops.CAST, dtypes.int64, (loaded,))
    store = UOp(Ops.STORE, dtypes.void, (positions[0], smaller := wide < two))
    end = UOp(Ops.END, dtypes.void, (item,))
    kernel = linear([out, x, size, item, *positions, loaded, two, wide, smaller, store, end])
    values = [0, 1, 0, 1] if narrow.is_bool else [0, 1, 2, 3]
    (found,) = run(device, kernel, [pack(values, narrow)], [4])
    assert list(found) == [value < 2 for value in values]


def test_items_that_are_counted_in_64_bits_are_as_many(device: Backend) -> None:
    size, item = global_index(3, dtypes.int64)
    out = UOp(Ops.PARAM, dtypes.int32, (), (0, 4))
    position = UOp(Ops.INDEX, dtypes.int32, (out, item))
    seven = UOp(Ops.CONST, dtypes.int32, (), 7)
    store = UOp(Ops.STORE, dtypes.void, (position, seven))
    end = UOp(Ops.END, dtypes.void, (item,))
    (found,) = run(device, linear([out, seven, size, item, position, store, end]), [], [16])
    assert unpack(found, dtypes.int32)[:3] == [7, 7, 7]


def test_text_that_wgpu_refuses_is_shown_with_its_line(device: Backend) -> None:
    with pytest.raises(CompileError, match="wgpu refused the kernel(?s:.)*nonsense"):
        device.compile(Source("wgsl", "bad", "fn nonsense", ()))


def test_float64_is_refused_with_its_name(device: Backend) -> None:
    with pytest.raises(Exception, match="WGSL has no values of dtypes.float64") as refused:
        (Tensor([1.0], "WEBGPU", dtypes.float64) + 1).realize()
    (note,) = refused.value.__notes__
    assert note.startswith("in the kernel E for WEBGPU, which DEBUG=4 prints")


def test_node_that_wgsl_has_not_is_a_compile_error() -> None:
    size = UOp(Ops.CONST, dtypes.int32, (), 4)
    loop = UOp(Ops.RANGE, dtypes.int32, (size,), (0, AxisRole.THREAD))
    with pytest.raises(CompileError, match="role thread cannot be printed as WGSL"):
        emit(UOp(Ops.LINEAR, dtypes.void, (size, loop)), "kernel_0")


# -- which device -----------------------------------------------------------------------------------


def adapter(kind: str, backend_type: str = "Vulkan") -> Any:
    return SimpleNamespace(
        info={"adapter_type": kind, "backend_type": backend_type, "device": kind}
    )


def gpus(*adapters: Any) -> Any:
    return SimpleNamespace(gpu=SimpleNamespace(enumerate_adapters_sync=lambda: list(adapters)))


def test_graphics_cards_come_before_processors() -> None:
    found = gpus(adapter("CPU"), adapter("IntegratedGPU"), adapter("DiscreteGPU"))
    kinds = [choose_adapter(found, k).info["adapter_type"] for k in range(3)]
    assert kinds == ["DiscreteGPU", "IntegratedGPU", "CPU"]


def test_number_that_no_device_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(DeviceError, match="there is no WEBGPU:2: the devices are WEBGPU:0 CPU"):
        choose_adapter(gpus(adapter("CPU")), 2)


def test_machine_without_a_driver_is_told_what_to_install() -> None:
    with pytest.raises(DeviceError, match=r"no WebGPU device was found; install: .*mesa-vulkan"):
        choose_adapter(gpus(adapter("CPU", "OpenGL")), 0)


def test_missing_wgpu_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(DeviceError, match=r'pip install "proofgrad\[webgpu\]"'):
        backend()


def answers(flushes: bool) -> list[tuple[float, float, int]]:
    def kept(x: np.float32) -> np.float32:
        return np.float32(0) * x if flushes and 0 < abs(x) < 2.0**-126 else x

    made = []
    with np.errstate(all="ignore"):
        for pair in cases():
            x, y = [kept(np.float32(value)) for value in pair]
            made.append((float(kept(x + y)), float(kept(x * y)), int(x < y)))
    return made


def test_device_that_keeps_all_of_ieee_lacks_nothing() -> None:
    assert not_kept(answers(flushes=False)) == ()


def test_device_that_flushes_denormals_says_so() -> None:
    assert not_kept(answers(flushes=True)) == ("denormal numbers",)
