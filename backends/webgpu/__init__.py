"""WebGPU: kernels as WGSL, run through wgpu on what Vulkan, Metal or Direct3D have, lavapipe on any processor among them.

types.py: types and constants.  functions.py: each op in WGSL.  floats.py: float32 as IEEE asks, where WGSL promises less.
emit.py: Linear -> text.  adapters.py: which device.  runtime.py: building and running.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Backend


def backend(number: int = 0) -> Backend:
    """A WebGPU device by its number. Raises: DeviceError, with what to install."""
    from proofgrad.backends.webgpu.runtime import WebGPUBackend

    return WebGPUBackend(number)
