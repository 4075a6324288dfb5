"""OpenCL C for any OpenCL device; PoCL runs it on every CPU.

functions.py: each op in OpenCL C.  emit.py: Linear -> text.  dialect.py: what other languages have otherwise.
in_place.py: values without names.  devices.py: which device.  wheels.py: drivers that
pip installed.  runtime.py: building and running.
sequence.py: launches, and many as one call.
cache.py: where PoCL keeps what it built.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Backend


def backend(number: int = 0) -> Backend:
    """A usable OpenCL device by its number. Raises: DeviceError, with what to install."""
    from proofgrad.backends.opencl.runtime import OpenCLBackend

    return OpenCLBackend(number)
