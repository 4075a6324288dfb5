"""The CPU as a backend: LLVM IR compiled in this process, kernels called through ctypes.

Owns: the target of this host, compiling through the cache, launching. Does not own: the printer
(backends/llvm), threads, memory, the cache (beside this file).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Sequence
from typing import Any

from proofgrad.backends.cpu.caches import first_cache, second_cache_bytes
from proofgrad.backends.cpu.codegen import Host
from proofgrad.backends.cpu.memory import Adopted, Block, Pool
from proofgrad.backends.cpu.replay import REPLAY_IR, Replay
from proofgrad.backends.cpu.threads import ThreadPool, thread_count
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.core import settings
from proofgrad.core.compile.machine import SECOND_CACHE_BYTES, FirstCache
from proofgrad.core.compile.target import Binary, Launch, Source, Target
from proofgrad.core.compile.threads import flops_worth_sharing
from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp

# Below this a kernel keeps Python's lock: to give it up and take it again takes a microsecond, whatever the machine.
BRIEF_FLOPS = 50_000
# Results of so many second caches go past all caches: a core's share of the last one holds no more. (What a machine says
# of its last cache does not help: virtual ones name that of all their neighbours.)
# Measured: a chain of kernels gains from 16 MB on, one with a sum at the end from 32 MB (2 MB of cache).
STREAMED_CACHES = 16

_KERNEL = (None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class CpuBackend:
    """See core/compile/target.py: Backend."""

    name = "CPU"
    compiles_aside = True  # `compile` may run in a thread of its own

    def __init__(self, host: Host | None = None) -> None:
        self.host = Host() if host is None else host
        self.cache = DiskCache(settings.cache_folder() / "cpu")
        count = thread_count(settings.number("NUM_THREADS"))
        self.threads = ThreadPool(self.host, count, self.object_code)
        self.memory = Pool()
        self.dialect = Dialect()
        is_arm = self.host.triple.startswith(("aarch64", "arm64"))
        self.dialect.has_fma = is_arm or self.host.has("fma")
        self.dialect.has_range = self.host.has("avx512f") and self.host.has("avx512dq")
        self.dialect.has_half = is_arm or self.host.has("f16c")
        self.target = self._target()
        self.dialect.stream_bytes = STREAMED_CACHES * self.target.cache_bytes
        self.dialect.target = self.target
        self.parallel_flops = flops_worth_sharing(self.target)  # fewer run in the thread that asks

    def _target(self) -> Target:
        wide = self.host.has("avx512f")
        cache_bytes = second_cache_bytes() or SECOND_CACHE_BYTES
        return Target(
            name=self.name,
            vector_bytes=64 if wide else 32 if self.host.has("avx2") else 16,
            vector_registers=16 if self.host.has("sse2") and not wide else 32,
            first_cache=first_cache() or FirstCache(),
            cache_bytes=cache_bytes,
            scratch_bytes=cache_bytes // 2,
            threads=self.threads.count,
            index_dtype=dtypes.int64,
            has_fma=self.dialect.has_fma,
        )

    @property
    def identity(self) -> str:
        """Which processor and which compiler: what times of kernels depend on."""
        return self.host.identity

    def emit(self, linear: UOp, name: str) -> Source:
        return emit(linear, name, self.dialect)

    def compile(self, source: Source) -> Binary:
        return Binary(source.entry, self.object_code(source.text), source)

    def object_code(self, ir: str) -> bytes:
        key = hashlib.sha256(f"{self.host.identity}\n{ir}".encode()).hexdigest()
        code = self.cache.get(key)
        if code is None:
            code = self.host.object_code(ir)
            self.cache.put(key, code)
        return code

    def load(self, binary: Binary) -> Launch:
        source = binary.source
        library = self.host.link(binary.data, binary.entry)
        shares = (source.thread_size or 0) > 1 and source.cost_flops >= self.parallel_flops
        if shares and self.threads.count > 1:
            return _ParallelLaunch(self.threads, library, source)
        return _DirectLaunch(library, source)

    def alloc(self, nbytes: int) -> Block:
        return self.memory.take(nbytes)

    def adopt(self, address: int, nbytes: int, keep: object) -> Adopted:
        """Memory of somebody else as a buffer; `keep` is kept as long as it is used."""
        return Adopted(address, nbytes, keep)

    def copyin(self, handle: Block, data: memoryview) -> None:
        flat = data.cast("B") if data.nbytes else data
        handle.view[: data.nbytes] = flat

    def copyout(self, data: memoryview, handle: Block) -> None:
        data.cast("B")[:] = handle.view[: data.nbytes]

    def sequence(self, launches: Sequence[tuple[Any, Sequence[int]]], memory: list[Any]) -> Replay:
        """Launches of this backend, each with the slots of its buffers, as one native call."""
        return Replay(self, launches, memory)

    @functools.cached_property
    def replay_library(self) -> Any:
        """The native loop over launches."""
        return self.host.link(self.object_code(REPLAY_IR), "replay")

    def assembly(self, source: Source) -> str:
        """The machine's instructions of a kernel, for people."""
        return self.host.assembly(source.text)

    def synchronize(self) -> None:
        """Kernels have run when their launch returns."""


class _DirectLaunch:
    """Runs a kernel in the calling thread. `library` is unloaded with the last launch that holds it."""

    shares = False

    def __init__(self, library: Any, source: Source) -> None:
        self._library, address = library, library[source.entry]
        is_brief = source.cost_flops < BRIEF_FLOPS
        self._call = (ctypes.PYFUNCTYPE if is_brief else ctypes.CFUNCTYPE)(*_KERNEL)(address)
        self._table = ctypes.c_void_p * len(source.params)
        self.address, self.size = address, source.thread_size or 1

    def __call__(self, buffers: Sequence[Block]) -> None:
        self._call(self._table(*[block.address for block in buffers]), 0, self.size)


class _ParallelLaunch:
    """Shares the THREAD range of a kernel out over the threads."""

    shares = True

    def __init__(self, threads: ThreadPool, library: Any, source: Source) -> None:
        self._threads, self._library, self.address = threads, library, library[source.entry]
        self._table = ctypes.c_void_p * len(source.params)
        self.size = source.thread_size or 1

    def __call__(self, buffers: Sequence[Block]) -> None:
        table = self._table(*[block.address for block in buffers])
        self._threads.run(self.address, ctypes.addressof(table), self.size)
