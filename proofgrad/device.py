"""`from proofgrad.device import Device, Compiled, Allocator, Compiler, Runner`, as tutorials write it."""

from proofgrad import Device
from proofgrad.custom_backend import Allocator, Compiled, Compiler, Runner

__all__ = ["Allocator", "Compiled", "Compiler", "Device", "Runner"]
