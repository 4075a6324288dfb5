"""Processors by the names that LLVM has for them, whether or not this is one: CPU_TARGET.

Owns: which names there are, what instructions each has, which of them are missing here, what is known of its memory.
Does not own: code generation (codegen.py), this machine's own caches (caches.py).
"""

from __future__ import annotations

import difflib
import functools
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import llvmlite.binding as llvm

from proofgrad.core.compile.machine.machine import PAGE_BYTES, SECOND_CACHE_BYTES, Core, FirstCache
from proofgrad.core.compile.machine.target import DeviceError

# Instructions that no program of arithmetic has: for operating systems, or for who asks for them by name.
_OF_SYSTEMS = frozenset((
    "64bit", "cldemote", "clflushopt", "clwb", "clzero", "cx16", "cx8", "enqcmd", "fsgsbase", "fxsr", "hreset", "invpcid",
    "mwaitx", "pconfig", "pku", "prfchw", "ptwrite", "rdpid", "rdpru", "rdrnd", "rdseed", "sahf", "serialize", "sgx",
    "shstk", "uintr", "waitpkg", "wbnoinvd", "xsave", "xsavec", "xsaveopt", "xsaves",
))  # fmt: skip
# What the printer of LLVM IR and the target ask for.
_ASKED = (
    "amx-bf16",
    "amx-int8",
    "amx-tile",
    "sse2",
    "avx2",
    "avx512bf16",
    "avx512bw",
    "avx512dq",
    "avx512f",
    "avx512fp16",
    "avx512vnni",
    "avxvnni",
    "avxvnniint8",
    "f16c",
    "fma",
)


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known of a processor beside its instructions. `cores`: of one chip; 0: it depends."""

    first_cache: FirstCache = FirstCache()
    cache_bytes: int = SECOND_CACHE_BYTES
    page_bytes: int = PAGE_BYTES
    cores: int = 0
    core: Core = Core()
    # Results of so many second caches go past all caches: a core's share of the last one holds no more. (What a machine says
    # of its last cache does not help: virtual ones name that of all their neighbours.)
    # Measured (2 MB of cache): from 8 MB on a copy, or a chain of kernels, gains a fifth and more, and one with a sum at the end
    # loses nothing; of 4 MB the sum loses a fifth. Zen 4 (1 MB): of 8 MB a copy loses a fifth, of 24 MB it gains 1.2 to 1.4 times
    # and one with a sum at the end loses a twentieth, of 48 and more all gain.
    caches_of_a_result: int = 4
    # The same of a result that is not written in the order of memory, as a transposed one: of each line that goes to a cache the
    # processor reads first what was there, and foresees none. Zen 4: of 8 MB it gains on one core and loses on two, with a sum
    # at the end; of 16 MB it gains 1.6 to 2 times.
    caches_of_a_crossed_result: int = 4

    def as_used(self, vector_bytes: int, vectors_that_mask: int) -> Memory:
        """The processor where vectors are so long, and so many registers of them hold masks of lanes; 0: masks have their own."""
        core = self.core
        halves = max(1, vector_bytes // core.unit_bytes)
        return replace(self, core=replace(
            core,
            multiply_adds_a_cycle=max(1, core.multiply_adds_a_cycle // halves),
            loads_a_cycle=max(1, core.loads_a_cycle // halves),
            mask_registers=vectors_that_mask or core.mask_registers,
            masked_store_cycles=core.masked_store_cycles if vectors_that_mask else 1.0,
        ))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Processor:
    """One that is asked for by name. `missing`: its instructions that this machine lacks, in words; "": none."""

    name: str
    triple: str
    features: frozenset[str]
    missing: str
    memory: Memory


_SMALL, _ARM = FirstCache(32 << 10, 8), FirstCache(64 << 10, 4)
# Of AMD's cores: AVX's store under a mask is microcode, of 12 cycles and more where it was measured (Zen 4; sources:
# https://github.com/llvm/llvm-project/pull/214187 and 217254). Under a mask of AVX-512 it is an instruction as others.
_ZEN = 12.0
# And from Zen 3 on they load three elements a cycle, so that lanes are filled in half of the time.
_ZEN3_GATHER = 0.75
# They foresee half as many pages as Intel says of its cores: measured of Zen 3 and 4, supposed of the others, of which AMD says no number either; where more
# are foreseen blocks of a product are half as long as they could be.
_ZEN_PAGES = 16
# Caches, pages, cores of a chip that is named, and what differs from Ice Lake's core. Sources: A. Fog, The
# microarchitecture of Intel, AMD and VIA CPUs, and Instruction tables; for ARM cores the Software Optimization Guides and
# Technical Reference Manuals of Arm; for Apple `sysctl hw` and https://dougallj.github.io/applecpu/firestorm.html.
KNOWN: dict[str, Memory] = {
    # Core i7-4770
    "haswell": Memory(_SMALL, 256 << 10, cores=4, core=Core(multiply_add_cycles=5)),
    # Core i7-6700
    "skylake": Memory(_SMALL, 256 << 10, cores=4),
    # Xeon Platinum 8180
    "skylake-avx512": Memory(_SMALL, 1 << 20, cores=28),
    # Xeon Platinum 8280
    "cascadelake": Memory(_SMALL, 1 << 20, cores=28),
    # Xeon Platinum 8380
    "icelake-server": Memory(FirstCache(), 1280 << 10, cores=40),
    # Xeon Platinum 8490H
    "sapphirerapids": Memory(FirstCache(), 2 << 20, cores=60),
    # Ryzen 7 1800X: instructions of 32 bytes run in two halves
    "znver1": Memory(_SMALL, 512 << 10, cores=8, core=Core(
        unit_bytes=16, multiply_add_cycles=5, masked_store_cycles=_ZEN, foreseen_pages=_ZEN_PAGES)),
    # Ryzen 7 3700X
    "znver2": Memory(_SMALL, 512 << 10, cores=8, core=Core(
        multiply_add_cycles=5, masked_store_cycles=_ZEN, foreseen_pages=_ZEN_PAGES)),
    # Ryzen 7 5800X; pages as a server of them (EPYC) was measured: columns of 8 to 40 floats of 8 and 16 rows come at 9 to 13
    # bytes a nanosecond from 48 MB, of 32 rows at 3 to 7
    "znver3": Memory(_SMALL, 512 << 10, cores=8, core=Core(
        masked_store_cycles=_ZEN, gather_cycles=_ZEN3_GATHER, foreseen_pages=_ZEN_PAGES)),
    # Ryzen 9 7950X: instructions of 64 bytes run in two halves; memory as a server of them (EPYC) was measured:
    # columns of 24 floats of 8 and 16 rows come at 14 to 19 bytes a nanosecond, of 32 at 8, of 64 at 5; one stretch of
    # 64 MB in order at 33, its eighths side by side at 27 to 30; tables of 2.4 to 20 MB take 1.07 to 1.14 cycles for 4
    # bytes, and rows along the sum, of 4 to a tile, 1.5 to 2.4 for an element
    "znver4": Memory(_SMALL, 1 << 20, cores=16, core=Core(
        unit_bytes=32, translated_pages=72, masked_store_cycles=_ZEN, gather_cycles=_ZEN3_GATHER, memory_bytes_a_cycle=12.0,
        memory_line_cycles=20.0, foreseen_pages=_ZEN_PAGES, foreseen_beyond_pages=True, copy_cycles=1.1, copy_apart_cycles=2.0),
        caches_of_a_result=24, caches_of_a_crossed_result=15),
    # Ryzen 9 9950X
    "znver5": Memory(FirstCache(), 1 << 20, cores=16, core=Core(
        translated_pages=96, masked_store_cycles=_ZEN, gather_cycles=_ZEN3_GATHER, foreseen_pages=_ZEN_PAGES)),
    # M1: its four fast cores, which share 12 MB
    "apple-m1": Memory(FirstCache(128 << 10, 8, 128), 3 << 20, 16 << 10, cores=4, core=Core(
        multiply_adds_a_cycle=4, loads_a_cycle=3, translated_pages=160)),
    # Graviton2
    "neoverse-n1": Memory(_ARM, 1 << 20, cores=64, core=Core(translated_pages=48)),
    # BCM2711: four cores, which share 1 MB
    "cortex-a72": Memory(FirstCache(32 << 10, 2), 256 << 10, cores=4, core=Core(
        loads_a_cycle=1, translated_pages=32)),
}  # fmt: skip


def processor_named(name: str) -> Processor:
    """Raises: DeviceError for a name that LLVM does not know, with near ones, or that it makes no code for."""
    here = llvm.get_process_triple()
    every: list[str] = []
    for triple in dict.fromkeys(
        (here, *[_triple(kind, name, here) for kind in ("x86_64", "aarch64")])
    ):
        names = _names(triple)
        if name in names:
            return _described(name, triple, here)
        every += names
    near = difflib.get_close_matches(name, every, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    some = ", ".join(sorted(KNOWN))
    raise DeviceError(
        f"CPU_TARGET={name!r} is no processor that LLVM knows{hint} It knows {some} and others"
    )


def _described(name: str, triple: str, here: str) -> Processor:
    is_arm = _is_arm(triple)
    of_host = llvm.get_host_cpu_features()
    asked = sorted({*_ASKED, *of_host} if _is_arm(here) == is_arm else _ASKED)
    features = frozenset() if is_arm else _features(triple, name, tuple(asked))
    return Processor(
        name, triple, features, _missing(name, triple, here, features), KNOWN.get(name, Memory())
    )


def _missing(name: str, triple: str, here: str, features: frozenset[str]) -> str:
    kind, own = triple.partition("-")[0], here.partition("-")[0]
    if _is_arm(triple) != _is_arm(here):
        return f"this machine has the instructions of {own}, not of {kind}"
    host = llvm.get_host_cpu_name()
    if _is_arm(here):  # LLVM does not say here what each has beside the others
        same = name in (host, "generic")
        return (
            ""
            if same
            else f"this machine is {host}, of which LLVM cannot say whether it has all that {name} has"
        )
    has = llvm.get_host_cpu_features()
    missing = sorted([f for f in features - _OF_SYSTEMS if not has.get(f)])
    return f"this machine lacks {', '.join(missing)}" if missing else ""


def _is_arm(triple: str) -> bool:
    return triple.startswith(("aarch64", "arm64"))


def _triple(kind: str, name: str, here: str) -> str:
    """Code for another architecture is that of Linux, but for Apple's processors."""
    if _is_arm(here) == (kind == "aarch64"):
        return here
    return "aarch64-apple-darwin" if name.startswith("apple-") else f"{kind}-unknown-linux-gnu"


@functools.cache
def _names(triple: str) -> list[str]:
    """The processors of an architecture."""
    listed = _asked(triple).stderr.partition("Available features")[0]
    return re.findall(r"^  (\S+) +- ", listed, re.MULTILINE)


@functools.cache
def _features(triple: str, name: str, features: tuple[str, ...]) -> frozenset[str]:
    answer = _asked(triple, name, *features)
    if answer.returncode:
        why = answer.stderr.strip().splitlines()[-1:]
        raise DeviceError(f"CPU_TARGET={name!r}: LLVM makes no code for it: {' '.join(why)}")
    return frozenset(answer.stdout.split())


def _asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(__file__).with_name("ask_llvm.py")
    if not sys.executable:
        raise DeviceError(
            "CPU_TARGET needs a Python program to ask LLVM in; this process names none"
        )
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
