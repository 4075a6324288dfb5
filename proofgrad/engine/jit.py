"""`from proofgrad.engine.jit import TinyJit`, as programs for tinygrad write it."""

from proofgrad import TinyJit
from proofgrad.core.tensor.data.errors import JitError

__all__ = ["JitError", "TinyJit"]
