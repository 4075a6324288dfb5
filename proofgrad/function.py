"""`from proofgrad.function import function`, as programs for tinygrad write it."""

from proofgrad.core.tensor.methods.calls import function

__all__ = ["function"]
