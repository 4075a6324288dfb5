"""PTX for NVIDIA GPUs: printed anywhere, run where there is a driver.

dialect.py: how a kernel begins.  emit.py: Linear -> LLVM IR -> PTX.  runtime.py: the CUDA driver.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Backend


def backend() -> Backend:
    """The first NVIDIA GPU; without one, a machine that prints kernels and computes nothing."""
    from proofgrad.backends.ptx.runtime import open_backend

    return open_backend()
