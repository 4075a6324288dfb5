"""`from proofgrad.device import Device`, as tutorials write it."""

from proofgrad import Device

__all__ = ["Device"]
