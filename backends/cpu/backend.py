"""The CPU as a backend: LLVM IR compiled in this process, kernels called through ctypes.

Owns: launching. Does not own: the target and compiling (generator.py), the printer (backends/llvm), threads, memory (beside
this file).
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from proofgrad.backends.cpu.codegen import Host
from proofgrad.backends.cpu.generator import ENTRY, Generator, unnamed
from proofgrad.backends.cpu.memory import Adopted, Block, Part, Pool
from proofgrad.backends.cpu.replay import BRIEF_FLOPS, REPLAY_IR, Replay
from proofgrad.backends.cpu.threads import ThreadPool, thread_count
from proofgrad.backends.llvm.nontemporal import stored_in_caches
from proofgrad.core import settings
from proofgrad.core.compile.machine.target import Binary, Launch, Source
from proofgrad.core.compile.schedule.threads import instructions_worth_sharing

_KERNEL = (None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class CpuBackend(Generator):
    """`host`: a processor whose instructions this one has; None: this one."""

    def __init__(self, host: Host | None = None) -> None:
        host = Host() if host is None else host
        asked = settings.number("NUM_THREADS")
        self.threads = ThreadPool(host, thread_count(asked), self.object_code)
        super().__init__(host, self.threads.count if host.processor is None else asked)
        self.memory = Pool()
        self.parallel_instructions = instructions_worth_sharing(
            self.target
        )  # fewer instructions run in the thread that asks

    def load(self, binary: Binary) -> Launch:
        source = binary.source
        library = self.host.link(binary.data, binary.entry)
        shares = (
            source.thread_size or 0
        ) > 1 and source.cost_instructions >= self.parallel_instructions
        if shares and self.threads.count > 1:
            return _ParallelLaunch(self.threads, library, source)
        return _DirectLaunch(library, source)

    def in_caches(self, source: Source) -> Any:
        """The library of a kernel, which stores nothing past the caches."""
        return self.host.link(self.object_code(stored_in_caches(unnamed(source))), ENTRY)

    def alloc(self, nbytes: int) -> Block:
        return self.memory.take(nbytes)

    def adopt(self, address: int, nbytes: int, keep: object) -> Adopted:
        """Memory of somebody else as a buffer; `keep` is kept as long as it is used."""
        return Adopted(address, nbytes, keep)

    def part(self, handle: Block | Adopted, offset_bytes: int) -> Part:
        """The memory of a handle from `offset_bytes` on, to be read."""
        return Part(handle, offset_bytes)

    def copyin(self, handle: Block, data: memoryview) -> None:
        flat = data.cast("B") if data.nbytes else data
        handle.view[: data.nbytes] = flat

    def copyout(self, data: memoryview, handle: Block) -> None:
        data.cast("B")[:] = handle.view[: data.nbytes]

    def sequence(
        self, launches: Sequence[tuple[Any, Sequence[int], Sequence[int]]], memory: Sequence[Any]
    ) -> Replay:
        """Launches of this backend, each with the slots of its buffers and where they begin, as one native call."""
        return Replay(self, launches, memory)

    @functools.cached_property
    def replay_library(self) -> Any:
        """The native loop over launches."""
        return self.host.link(self.object_code(REPLAY_IR), "replay", "run_parts")

    def timed(self, work: Callable[[], None]) -> float:
        """The seconds of the processor's clock: there is nothing to wait for."""
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def synchronize(self) -> None:
        """Kernels have run when their launch returns."""


class _Launch:
    """A kernel of this process. `library` is unloaded with the last launch that holds it."""

    def __init__(self, library: Any, source: Source) -> None:
        self._library, self.address = library, library[ENTRY]
        self.source, self.flops = source, source.cost_flops
        is_brief = self.flops < BRIEF_FLOPS
        self._call = (ctypes.PYFUNCTYPE if is_brief else ctypes.CFUNCTYPE)(*_KERNEL)(self.address)
        self._table = ctypes.c_void_p * len(source.params)
        self.size = source.thread_size or 1

    def piece(self, buffers: Sequence[Block], first: int, end: int) -> None:
        """The items of the THREAD range from `first` on and before `end`, in the calling thread."""
        self._call(self._table(*[block.address for block in buffers]), first, end)


class _DirectLaunch(_Launch):
    """Runs a kernel in the calling thread."""

    shares = False

    def __call__(self, buffers: Sequence[Block]) -> None:
        self._call(self._table(*[block.address for block in buffers]), 0, self.size)

    def bound(self, written: Block) -> _Bound:
        """The same launch with a table of its own, in which the buffer that is written to stands."""
        table = self._table(written.address)
        start, first, end = ctypes.addressof(table), ctypes.c_int64(0), ctypes.c_int64(self.size)
        call = functools.partial(self._call, ctypes.c_void_p(start), first, end)
        return _Bound(self, table, call)


class _Bound:
    """A launch that is told what it reads alone. For one thread at a time."""

    __slots__ = ("_call", "_launch", "_table")

    def __init__(self, launch: _DirectLaunch, table: Any, call: Callable[[], None]) -> None:
        self._launch, self._table, self._call = launch, table, call

    def __call__(self, read: Sequence[Block]) -> None:
        table, k = self._table, 1
        for block in read:
            table[k] = block.address
            k += 1
        self._call()


class _ParallelLaunch(_Launch):
    """Shares the THREAD range of a kernel out over the threads."""

    shares = True

    def __init__(self, threads: ThreadPool, library: Any, source: Source) -> None:
        super().__init__(library, source)
        self._threads = threads

    def __call__(self, buffers: Sequence[Block]) -> None:
        table = self._table(*[block.address for block in buffers])
        self._threads.run(self.address, ctypes.addressof(table), self.size)
