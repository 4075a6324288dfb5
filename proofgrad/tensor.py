"""`from proofgrad.tensor import Tensor`, as tutorials write it."""

from proofgrad import Tensor

__all__ = ["Tensor"]
