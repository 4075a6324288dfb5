"""Text and object code of kernels for a CPU, this one or another.

Owns: the target and the dialect of a processor, compiling through the cache. Does not own: the printer (backends/llvm), running
(backend.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from proofgrad.backends.cpu import calibration
from proofgrad.backends.cpu.caches import first_cache, second_cache_bytes
from proofgrad.backends.cpu.codegen import Host
from proofgrad.backends.cpu.permission import may_use_tiles
from proofgrad.backends.cpu.processors import KNOWN, Memory
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.tiles import units_of_bfloat16, units_of_bytes
from proofgrad.backends.llvm.vector_tiles import units_of_dots, word_dots
from proofgrad.core import settings
from proofgrad.core.compile.machine.target import Backend, Binary, Source, Target
from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp

# Who has these instructions gathers as fast as it reads: older processors of Intel since a remedy of 2023 do not, AMD's do not.
_GATHERS = "avx512fp16"
# What every kernel is called in object code, so that those which differ by nothing but their names, as updates of parameters of
# other sizes do, are compiled once.
ENTRY = "kernel"
# The instructions that have the DOT of a vector of int32, by its bits.
_HAVE_DOT = {128: "sse2", 256: "avx2", 512: "avx512bw"}


class Generator(Backend):
    """Makes code for `host`, with `threads` threads (0: as many as it has cores); `runs`: whether here."""

    name = "CPU"
    compiles_in_background = True
    compiles_in_copies = True

    def __init__(self, host: Host, threads: int, runs: bool = True) -> None:
        self.host = host
        self.identity = host.identity
        self.cache = DiskCache(settings.cache_folder() / "cpu")
        memory = memory_of(host)
        if host.processor is None and (measured := calibration.kept(host, memory)) is not None:
            memory = measured.applied(memory)
        dialect = self.dialect = Dialect()
        dialect.has_fma = host.is_arm or host.has("fma")
        dialect.has_avx512 = host.has("avx512vl") and host.has("avx512dq")
        dialect.has_vector_masks = host.has("avx") and not host.has("avx512f")
        dialect.has_modifiers = dialect.has_fma
        dialect.gathers = host.has(_GATHERS)
        dialect.has_half = host.is_arm or host.has("f16c")
        dialect.dot_bits = frozenset([bits for bits, name in _HAVE_DOT.items() if host.has(name)])
        has_tiles = host.has("amx-tile") and (not runs or may_use_tiles())
        dialect.has_tiles = has_tiles
        dialect.word_dots = {} if has_tiles else word_dots(host.has)
        units = units_of_dots(dialect.word_dots, memory.core.multiply_adds_a_cycle)
        if has_tiles and host.has("amx-int8"):
            units += units_of_bytes()
        if has_tiles and host.has("amx-bf16"):
            units += units_of_bfloat16()
        self.target = dialect.target = Target(
            name=self.name,
            vector_bytes=_vector_bytes(host),
            vector_registers=_vector_registers(host),
            first_cache=memory.first_cache,
            cache_bytes=memory.cache_bytes,
            page_bytes=memory.page_bytes,
            core=memory.core,
            past_caches_bytes=memory.caches_of_a_result * memory.cache_bytes,
            past_caches_crossed_bytes=memory.caches_of_a_crossed_result * memory.cache_bytes,
            scratch_bytes=memory.cache_bytes // 2,
            threads=threads or memory.cores or 1,
            index_dtype=dtypes.int64,
            has_fma=dialect.has_fma,
            calls_fma=not dialect.has_fma,
            has_dot=bool(dialect.dot_bits),
            has_parts=True,
            matrix_units=units,
            runs=runs,
        )

    def emit(self, linear: UOp, name: str) -> Source:
        from proofgrad.backends.llvm.emit import emit  # the printer, which a kept plan needs not

        return emit(linear, name, self.dialect)

    def compile(self, source: Source) -> Binary:
        return Binary(ENTRY, self.object_code(unnamed(source)), source)

    def object_code(self, ir: str) -> bytes:
        """LLVM IR compiled for the host, from the cache on disk if it is there."""
        key = hashlib.sha256(f"{self.host.identity}\n{ir}".encode()).hexdigest()
        code = self.cache.get(key)
        if code is None:
            code = self.host.object_code(ir)
            self.cache.put(key, code)
        return code

    def assembly(self, source: Source) -> str:
        """The machine's instructions of a kernel, for people."""
        return self.host.assembly(source.text)


def unnamed(source: Source) -> str:
    """The text of a kernel that is called `ENTRY`."""
    name = f"@{source.entry}"
    return source.text.replace(f"{name}(", f"@{ENTRY}(").replace(f"{name}.body(", f"@{ENTRY}.body(")


def memory_of(host: Host) -> Memory:
    """The processor that code is made for, without a probe: this machine's caches by Linux, else by the name."""
    if host.processor is not None:
        known = host.processor.memory
    else:
        known = KNOWN.get(host.cpu, Memory())
        known = replace(
            known,
            first_cache=first_cache() or known.first_cache,
            cache_bytes=second_cache_bytes() or known.cache_bytes,
        )
    masks = 0 if host.has("avx512f") else _vector_registers(host)
    return known.as_used(_vector_bytes(host), masks)


def _vector_bytes(host: Host) -> int:
    return 64 if host.has("avx512f") else 32 if host.has("avx2") else 16


def _vector_registers(host: Host) -> int:
    return 16 if host.has("sse2") and not host.has("avx512f") else 32
