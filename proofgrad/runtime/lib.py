"""`from proofgrad.runtime.lib import Device`, as an early tutorial writes it."""

from proofgrad import Device

__all__ = ["Device"]
