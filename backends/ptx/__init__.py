"""PTX for NVIDIA GPUs: printed anywhere, run where there is a driver, or by the emulator.

dialect.py: how a kernel begins.  emit.py: Linear -> LLVM IR -> PTX.  driver.py: the calls of the CUDA driver.  memory.py:
buffers, copies.  graph.py: many launches as one.  runtime.py: the backend.  emulator/: a GPU that is none.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Backend


def backend(number: int = 0) -> Backend:
    """An NVIDIA GPU by its number; without any, a machine that prints kernels and computes nothing."""
    from proofgrad.backends.ptx.runtime import open_backend

    return open_backend(number)
