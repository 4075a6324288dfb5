"""`from proofgrad.jit import TinyJit`, as older programs have it."""

from proofgrad.core.tensor.errors import JitError
from proofgrad.core.tensor.jit import TinyJit
from proofgrad.wiring import connect

__all__ = ["JitError", "TinyJit"]

connect()
