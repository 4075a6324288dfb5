"""The CPU: see backend.py."""

from __future__ import annotations

from proofgrad.backends.cpu.backend import CpuBackend


def backend() -> CpuBackend:
    """The CPU of this host."""
    return CpuBackend()
