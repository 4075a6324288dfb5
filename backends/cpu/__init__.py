"""The CPU: see backend.py."""

from __future__ import annotations

from proofgrad.backends.cpu.absent import AbsentCpu
from proofgrad.backends.cpu.backend import CpuBackend
from proofgrad.backends.cpu.codegen import Host
from proofgrad.backends.cpu.processors import processor_named
from proofgrad.core import settings


def backend() -> CpuBackend | AbsentCpu:
    """The CPU of this host, or the processor that CPU_TARGET names. Raises: DeviceError for a name that is none."""
    name = settings.text("CPU_TARGET")
    if name in ("", "native"):  # as compilers call it
        return CpuBackend()
    processor = processor_named(name)
    host = Host(processor=processor)
    return AbsentCpu(host, name, processor.missing) if processor.missing else CpuBackend(host)
