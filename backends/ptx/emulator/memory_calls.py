"""Memory of emulated GPUs: allocations, a pool that keeps what is freed, copies from and to the host.

Owns: these functions of the driver. Does not own: kernels (kernel_calls.py).
"""

from __future__ import annotations

import bisect
import ctypes
from typing import Any

from proofgrad.backends.ptx.emulator.state import (
    LARGE,
    Block,
    Calls,
    Context,
    CUresult,
    Stream,
    fresh_memory,
)


class MemoryCalls(Calls):
    """See the head of this file."""

    def __init__(self, devices: int, memory_bytes: int) -> None:
        super().__init__(devices, memory_bytes)
        self.pinned: dict[int, tuple[int, object]] = {}

    def cuDeviceGetDefaultMemPool(self, device: int) -> Context:
        """The pool of a GPU: its context stands for it."""
        return self.contexts[device]

    def cuMemPoolSetAttribute(self, pool: Context, attribute: int, value: int) -> None:
        """How much of what is freed the pool keeps: here, all."""
        self.require(attribute == 4)

    def cuMemPoolTrimTo(self, pool: Context, least: int) -> None:
        """Give back what the pool keeps."""
        pool.pool.clear()
        pool.pooled_bytes = 0

    def cuMemGetInfo(self) -> tuple[int, int]:
        """Bytes that are free, and all that there are."""
        context = self.context()
        return self.memory_bytes - context.used_bytes - context.pooled_bytes, self.memory_bytes

    def cuMemAllocAsync(self, nbytes: int, stream: Stream) -> int:
        """Fresh memory, or some of the same size that the pool keeps."""
        context = self.own(stream)
        self.require(nbytes > 0)
        spare = context.pool.get(nbytes)
        if spare:
            block = spare.pop()
            context.pooled_bytes -= nbytes
        else:
            taken = context.used_bytes + context.pooled_bytes + nbytes
            self.require(taken <= self.memory_bytes, CUresult.CUDA_ERROR_OUT_OF_MEMORY)
            block = Block(*fresh_memory(nbytes))
        context.used_bytes += nbytes
        context.blocks[block.address] = block
        bisect.insort(context.addresses, block.address)
        return block.address

    def cuMemFreeAsync(self, address: int, stream: Stream) -> None:
        """Give memory to the pool when the work before has been done."""
        context = self.own(stream)
        self.require(address in context.blocks)

        def free() -> None:
            block = context.blocks.pop(address)
            context.addresses.remove(address)
            context.used_bytes -= block.nbytes
            context.pooled_bytes += block.nbytes
            context.pool.setdefault(block.nbytes, []).append(block)
            if block.nbytes < LARGE:
                ctypes.memset(address, 0xA5, block.nbytes)  # who still reads it shall see that

        stream.waiting.append(free)

    def cuMemAllocHost(self, nbytes: int) -> int:
        """Pinned memory of the host."""
        self.context()
        address, _, holder = fresh_memory(nbytes)
        self.pinned[address] = (nbytes, holder)
        return address

    def cuMemcpyHtoDAsync(self, target: int, source: Any, nbytes: int, stream: Stream) -> None:
        """Copy to a GPU. What is not pinned has been read when this returns."""
        context = self.own(stream)
        self._require_inside(context, target, nbytes)
        if isinstance(source, int) and self._is_pinned(source, nbytes):
            stream.waiting.append(lambda: _move(target, source, nbytes))
            return
        data = ctypes.string_at(source, nbytes) if isinstance(source, int) else bytes(source)
        self.require(len(data) >= nbytes)
        stream.waiting.append(lambda: _move(target, data, nbytes))

    def cuMemcpyDtoHAsync(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        """Copy from a GPU. To what is not pinned this waits."""
        context = self.own(stream)
        self._require_inside(context, source, nbytes)
        stream.waiting.append(lambda: _move(target, source, nbytes))
        if not self._is_pinned(target, nbytes):  # then it has been done when the call returns
            self.drain(context, stream)

    def _require_inside(self, context: Context, address: int, nbytes: int) -> None:
        _, end = context.bounds(address)
        self.require(address + nbytes <= end)

    def _is_pinned(self, address: int, nbytes: int) -> bool:
        return any(a <= address and address + nbytes <= a + n for a, (n, _) in self.pinned.items())


def _move(target: int, source: int | bytes, nbytes: int) -> None:
    ctypes.memmove(target, source, nbytes)
