"""What a machine of one's own needs: the contract that it meets, or three parts that `Compiled` puts together.

Tutorials write `from proofgrad.device import Device, Compiled, Allocator, Compiler, Runner`.
"""

from proofgrad import Device
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
from proofgrad.custom_backend import Allocator, Compiled, Compiler, Runner

__all__ = [
    "Allocator",
    "Backend",
    "Binary",
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
]
