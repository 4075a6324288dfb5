"""OpenCL C for any OpenCL device; PoCL runs it on every CPU.

functions.py: each op in OpenCL C.  emit.py: Linear -> text.  runtime.py: building and running.
cache.py: where PoCL keeps what it built.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Backend


def backend() -> Backend:
    """The first usable OpenCL device. Raises: DeviceError, with what to install."""
    from proofgrad.backends.opencl.runtime import OpenCLBackend

    return OpenCLBackend()
