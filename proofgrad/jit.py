"""`from proofgrad.jit import TinyJit`, as older programs have it."""

from proofgrad.core.tensor.data.errors import JitError
from proofgrad.core.tensor.jit.jit import TinyJit
from proofgrad.wiring import connect

__all__ = ["JitError", "TinyJit"]

connect()
