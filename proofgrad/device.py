"""What a machine of one's own needs: the contract that it meets, or three parts that `Compiled` puts together.

Tutorials write `from proofgrad.device import Device, Compiled, Allocator, Compiler, Runner`.
"""

from __future__ import annotations

from proofgrad import Device
from proofgrad.buffer import Buffer
from proofgrad.core.compile.machine.target import (
    Backend,
    Binary,
    CompileError,
    DeviceError,
    Launch,
    LaunchSequence,
    Source,
    Target,
)
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.tensor.runtime.device import canonical_device as canonicalize_device
from proofgrad.custom_backend import Allocator, Compiled, Compiler, Runner

__all__ = [
    "Allocator",
    "Backend",
    "Binary",
    "Buffer",
    "CompileError",
    "Compiled",
    "Compiler",
    "Device",
    "DeviceError",
    "Launch",
    "LaunchSequence",
    "Runner",
    "Source",
    "Target",
    "canonicalize_device",
    "is_dtype_supported",
]


def is_dtype_supported(dtype: DType, device: str | None = None) -> bool:
    """Can Tensors of this type be on the device? Raises: DeviceError for one that is not there."""
    target = Device[Device.DEFAULT if device is None else device].target
    return dtype in target.storage or dtype in target.arithmetic
