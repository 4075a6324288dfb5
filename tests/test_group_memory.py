"""Memory of a group beyond what a text may define: declared, asked for by launches and graphs, refused where there is none."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from emulated_kernels import HEAD

from proofgrad import Tensor, TinyJit, schedule
from proofgrad.backends.ptx.driver import Driver
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.ptx.emulator.module import compiled
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.compile.machine.target import Binary, DeviceError, Source, Target
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.runtime.device import Device

LARGE = (
    "tile=8x2x4 shared=16x16x32 ahead=on"  # (128 rows + 128 columns) * 32 steps * 4 bytes, twice
)
LARGE_BYTES = 64 << 10


NUMBERS = itertools.count()


class Keeping(PTXBackend):
    """An emulated GPU that keeps the sources that it printed."""

    def __init__(self) -> None:
        super().__init__(Driver(EmulatedDriver()))
        self.name = f"ROOMYGPU{next(NUMBERS)}"  # kernels are known by it, loaded
        self.printed: list[Source] = []

    def emit(self, linear: object, name: str) -> Source:
        source = super().emit(linear, name)  # type: ignore[arg-type]
        self.printed.append(source)
        return source


@pytest.fixture
def machine() -> Iterator[Keeping]:
    made = Keeping()
    Device._devices[made.name] = made
    yield made
    del Device._devices[made.name]


def operands() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    return tuple(random.integers(-4, 5, shape).astype("float32") for shape in ((70, 67), (67, 130)))  # type: ignore[return-value]


def test_a_large_tile_is_declared_and_its_launch_gives_the_memory(machine: Keeping) -> None:
    a, b = operands()
    x, y = Tensor(a, device=machine.name).realize(), Tensor(b, device=machine.name).realize()
    with schedule(LARGE):
        np.testing.assert_array_equal((x @ y).numpy(), a @ b)
    (source,) = [s for s in machine.printed if s.group_bytes]
    assert source.group_bytes == LARGE_BYTES
    assert len(re.findall(r"\.extern \.shared \.align 16 \.b8 \w+\[\];", source.text)) == 1
    assert not re.search(r"^\.shared|\t\.shared", source.text, re.M)


def test_a_small_tile_is_defined_by_the_text(machine: Keeping) -> None:
    a, b = operands()
    x, y = Tensor(a, device=machine.name).realize(), Tensor(b, device=machine.name).realize()
    with schedule(LARGE.replace("x32", "x16")):
        np.testing.assert_array_equal((x @ y).numpy(), a @ b)
    source = machine.printed[-1]
    assert source.group_bytes == 0 and ".extern" not in source.text and ".shared" in source.text


def test_a_graph_of_launches_gives_the_memory_too(machine: Keeping) -> None:
    a, b = operands()

    @TinyJit
    def twice(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        with schedule(LARGE):
            return (x @ y).realize(), (x @ z).realize()

    x, y, z = [Tensor(one, device=machine.name).realize() for one in (a, b, 2 * b)]
    for _ in range(4):
        once, more = twice(x, y, z)
        np.testing.assert_array_equal(once.numpy(), a @ b)
        np.testing.assert_array_equal(more.numpy(), 2 * (a @ b))
    assert machine.driver is not None and machine.driver.api.graph_launches > 0


def test_what_no_gpu_has_is_refused_with_its_size(machine: Keeping) -> None:
    text = f"{HEAD}.visible .entry big(.param .u64 p) {{\nret;\n}}\n"
    source = Source("ptx", "big", text, (dtypes.int32,), 32, group_size=32, group_bytes=300_000)
    with pytest.raises(DeviceError, match=r"kernel big needs 300000 bytes .* has 232448: ask for"):
        machine.load(Binary("big", text.encode(), source))


def test_the_emulated_driver_gives_no_more_than_was_allowed(machine: Keeping) -> None:
    driver = machine.driver
    assert driver is not None
    text = f"{HEAD}.visible .entry one() {{\nret;\n}}\n"
    function = driver.function(driver.load(text.encode()), "one")
    driver.launch("one", function, (1, 32, 48 << 10), 0)
    with pytest.raises(DeviceError, match="INVALID_VALUE"):
        driver.launch("one", function, (1, 32, 64 << 10), 0)
    driver.allow_shared("one", function, 64 << 10)
    driver.launch("one", function, (1, 32, 64 << 10), 0)
    with pytest.raises(DeviceError, match="INVALID_VALUE"):
        driver.launch("one", function, (1, 32, (64 << 10) + 1), 0)


def test_a_store_beyond_what_a_launch_gives_is_found(machine: Keeping) -> None:
    text = (
        f"{HEAD}.extern .shared .align 16 .b8 room[];\n.visible .entry one() {{\n.reg .b32 %x;\nmov.u32 %x, 7;\n"
        "st.shared.u32 [room+65532], %x;\nret;\n}\n"
    )
    assert compiled(text)["one"].shared_bytes == 0
    driver = machine.driver
    assert driver is not None
    function = driver.function(driver.load(text.encode()), "one")
    driver.allow_shared("one", function, 64 << 10)
    driver.launch("one", function, (1, 32, 64 << 10), 0)
    driver.synchronize()
    driver.launch("one", function, (1, 32, (64 << 10) - 4), 0)
    with pytest.raises(DeviceError, match="4 bytes at .* are no memory"):
        driver.synchronize()


@pytest.mark.parametrize(
    ("capability", "block", "unit"), [(70, 96, 96), (75, 64, 64), (80, 163, 164), (90, 227, 228)]
)
def test_the_machine_says_how_much_there_is(capability: int, block: int, unit: int) -> None:
    target = PTXBackend(Driver(EmulatedDriver(capability=capability))).target
    assert (target.local_bytes, target.unit_local_bytes) == (block << 10, unit << 10)


def test_memory_for_several_groups_of_a_unit() -> None:
    target = Target(
        "t", local_bytes=227 << 10, unit_local_bytes=228 << 10, lost_local_bytes=1 << 10
    )
    assert [target.local_bytes_of(n) >> 10 for n in (1, 2, 4)] == [227, 113, 56]
    unknown = replace(target, local_bytes=1000, unit_local_bytes=0, lost_local_bytes=0)
    assert [unknown.local_bytes_of(n) for n in (1, 2, 4)] == [1000, 1000, 500]
