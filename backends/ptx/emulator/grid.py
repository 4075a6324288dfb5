"""Running the blocks of a launch: threads from meeting to meeting, faults, barriers that not all reach.

Owns: the order of blocks, warps and lanes. Does not own: what a thread does (module.py), the memory of a GPU (driver.py).

Between two meetings the warps of a block run one after the other, in every other block and phase from the last to the
first: who counts on an order that no barrier makes, and reads what another warp writes, finds it missing in one of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proofgrad.backends.ptx.emulator.access import ILLEGAL, MISALIGNED, TOO_MANY
from proofgrad.backends.ptx.emulator.function import DONE, FAULT, RANGES, WARP
from proofgrad.backends.ptx.emulator.module import DIFFER, ENDED, Compiled

_POISON = 0xA5  # what memory holds that nobody has written
_CHUNK = 1 << 16  # blocks of one native call, between which an interrupt is seen
Bounds = Callable[[int], tuple[int, int]]


class KernelFault(RuntimeError):
    """A kernel did what ends a launch. `code`: as the CUDA driver reports it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel to be run: blocks and threads along x, y and z, the bytes of its parameters, dynamic shared memory."""

    kernel: Compiled
    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]
    parameters: bytes
    dynamic_bytes: int = 0


def run(launch: Launch, bounds: Bounds, backwards: bool = False, only: range | None = None) -> None:
    """All blocks, or `only` some. `bounds` gives the memory that an address lies in: its first byte, one behind its last.

    Raises: KernelFault.
    """
    kernel = launch.kernel
    count = launch.threads[0] * launch.threads[1] * launch.threads[2]
    blocks = range(launch.blocks[0] * launch.blocks[1] * launch.blocks[2]) if only is None else only
    fault = (ctypes.c_int64 * 4)()
    words = [
        *launch.threads,
        *launch.blocks,
        0,
        0,
        0,
        ctypes.addressof(fault),
        launch.dynamic_bytes,
    ]
    for offset, nbytes in kernel.parameters:
        value = int.from_bytes(launch.parameters[offset : offset + nbytes], "little")
        words += bounds(value) if nbytes == 8 else (0, 0)
    assert len(words) == RANGES + 2 * len(kernel.parameters)
    table = (ctypes.c_int64 * len(words))(*words)
    parameters = ctypes.create_string_buffer(launch.parameters, max(1, len(launch.parameters)))
    lanes = -(-count // WARP) * WARP if kernel.meetings else 1
    shared_bytes = kernel.shared_bytes + launch.dynamic_bytes
    frames, shared = _aligned(lanes * kernel.frame_bytes), _aligned(shared_bytes)
    memory = (ctypes.addressof(table), ctypes.addressof(parameters), shared[1], frames[1])
    ctypes.memset(shared[1], _POISON, shared_bytes)
    if kernel.meetings:
        block = _Block(kernel, table, memory, count, frames, shared)
        ended = any(not block.run(b, launch.blocks, backwards) for b in blocks)
    else:
        starts = range(blocks.start, blocks.stop, _CHUNK)
        ended = any(
            kernel.run(*memory, first, min(first + _CHUNK, blocks.stop)) == FAULT
            for first in starts
        )
    if ended:
        raise _explained(kernel, list(fault))


def _aligned(nbytes: int) -> tuple[ctypes.Array[ctypes.c_char], int]:
    """Memory, and where it begins at a multiple of 256."""
    memory = ctypes.create_string_buffer(nbytes + 512)
    return memory, -(-ctypes.addressof(memory) // 256) * 256


def _explained(kernel: Compiled, fault: Sequence[int]) -> KernelFault:
    kind, address, nbytes, line = fault
    where = f"kernel {kernel.name}, line {line} of its PTX"
    if kind == ILLEGAL:
        text = f"{nbytes} bytes at {address:#x} are no memory of what it was given"
        return KernelFault("CUDA_ERROR_ILLEGAL_ADDRESS", f"{where}: {text}")
    if kind == MISALIGNED:
        text = f"{nbytes} bytes at {address:#x}, which is no multiple of {nbytes}"
        return KernelFault("CUDA_ERROR_MISALIGNED_ADDRESS", f"{where}: {text}")
    if kind == TOO_MANY:
        return KernelFault("CUDA_ERROR_LAUNCH_FAILED", f"{where}: more copies under way than are emulated")  # fmt: skip
    return KernelFault("CUDA_ERROR_LAUNCH_FAILED", f"{where}: a trap")


class _Block:
    """The threads of one block after the other, in memory that they share."""

    def __init__(
        self,
        kernel: Compiled,
        table: ctypes.Array[ctypes.c_int64],
        memory: tuple[int, int, int, int],
        count: int,
        frames: tuple[ctypes.Array[ctypes.c_char], int],
        shared: tuple[ctypes.Array[ctypes.c_char], int],
    ) -> None:
        self.kernel, self.table, self.memory, self.count = kernel, table, memory, count
        self.frames, self.shared = frames, shared
        self.states = (ctypes.c_int32 * count)()
        self.warps = [(first, min(first + WARP, count)) for first in range(0, count, WARP)]

    def run(self, number: int, blocks: tuple[int, int, int], backwards: bool) -> bool:
        """Run a block to its end; False: a fault."""
        self.table[6] = number % blocks[0]
        self.table[7] = number // blocks[0] % blocks[1]
        self.table[8] = number // (blocks[0] * blocks[1])
        ctypes.memset(self.frames[1], 0, len(self.frames[0]) - 512)
        ctypes.memset(self.shared[1], _POISON, len(self.shared[0]) - 512)
        ctypes.memset(self.states, 0, ctypes.sizeof(self.states))
        turned = bool(number % 2) != backwards
        while True:
            warps = self.warps[::-1] if turned else self.warps
            told = [self._warp(first, last, turned) for first, last in warps]
            if FAULT in told:
                return False
            waits = {state for state in told if state != DONE}
            if not waits:
                return True
            if len(waits) > 1:
                raise self._stuck(f"warps wait at barriers in {self._lines(waits)}")
            turned = not turned

    def _warp(self, first: int, last: int, turned: bool) -> int:
        """Run a warp until it waits for the block, or is done; what its threads wait for."""
        states = ctypes.addressof(self.states)
        while True:
            told: int = self.kernel.run(*self.memory, first, last, states, turned)
            if told in (FAULT, DONE):
                return told
            if told == DIFFER:
                apart = {state for state in self.states[first:last] if state > 0}
                raise self._stuck(f"threads of one warp wait in {self._lines(apart)}")
            some_have_ended, state = bool(told & ENDED), told & ~ENDED
            if state % 2 == 0:
                return state
            if some_have_ended:
                raise self._stuck(f"threads of a warp wait in {self._lines({state})} for others that have ended")  # fmt: skip

    def _lines(self, states: set[int]) -> str:
        lines = sorted({self.kernel.meetings[state] for state in states})
        return f"line{'s' if len(lines) > 1 else ''} {' and '.join(map(str, lines))}"

    def _stuck(self, what: str) -> KernelFault:
        message = f"kernel {self.kernel.name} would never end: {what} of its PTX"
        return KernelFault("CUDA_ERROR_LAUNCH_TIMEOUT", message)
