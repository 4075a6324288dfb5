"""A backend in three parts: what is refused, and that memory goes back."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from proofgrad import Device, Tensor
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.device import Allocator, Compiled, Compiler, Runner
from proofgrad.renderer.cstyle import CStyleLanguage


class Counting(Allocator):
    """Memory of Python, counted."""

    def __init__(self) -> None:
        self.held = 0

    def _alloc(self, size: int, options: Any = None) -> Any:
        self.held += 1
        return bytearray(size)

    def _free(self, buf: Any, options: Any = None) -> None:
        self.held -= 1

    def copyin(self, dst: Any, src: memoryview) -> None:
        dst[: src.nbytes] = src

    def copyout(self, dst: memoryview, src: Any) -> None:
        dst[:] = src[: dst.nbytes]


class Text(Compiler):
    """The source is the binary."""

    def compile(self, src: str) -> bytes:
        return src.encode()


class Doubles(Runner):
    """Whatever the kernel: twice the ints of the second buffer into the first."""

    def __init__(self, name: str, lib: bytes) -> None:
        self.name, self.lib = name, lib

    def __call__(self, *bufs: Any, global_size: Any, local_size: Any, wait: bool = False) -> None:
        out, source = memoryview(bufs[0]).cast("i"), memoryview(bufs[1]).cast("i")
        for k in range(len(out)):
            out[k] = 2 * source[k]


class Doubling(Compiled):
    """The parts together."""

    def __init__(self, device: str) -> None:
        super().__init__(device, Counting(), CStyleLanguage(), Text(), Doubles)


def test_runner_gets_the_buffers_in_order_and_memory_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(Device._devices, "DOUBLING", Doubling)
    x = Tensor([1, 2, 3], device="DOUBLING").realize()
    assert (x * 2).tolist() == [2, 4, 6]
    allocator = Device["DOUBLING"].allocator  # type: ignore[attr-defined]
    assert allocator.held > 0
    del x
    gc.collect()
    assert allocator.held == 0


def test_a_part_that_lacks_a_method_cannot_be_made() -> None:
    class Half(Allocator):
        def _alloc(self, size: int, options: Any = None) -> Any:
            return bytearray(size)

    with pytest.raises(TypeError, match="copyin"):
        Half()  # type: ignore[abstract]


def test_memory_that_an_allocator_does_not_have_is_an_error_with_the_size() -> None:
    class Full(Counting):
        def _alloc(self, size: int, options: Any = None) -> Any:
            raise MemoryError

    class FullDevice(Compiled):
        def __init__(self, device: str) -> None:
            super().__init__(device, Full(), CStyleLanguage(), Text(), Doubles)

    with pytest.raises(MemoryError, match="cannot allocate 4096 bytes on FULL"):
        FullDevice("FULL").alloc(4096)


def test_reference_says_how_much_memory_it_does_not_have() -> None:
    with pytest.raises(MemoryError, match=f"cannot allocate {1 << 55} bytes on REFERENCE"):
        ReferenceBackend().alloc(1 << 55)
