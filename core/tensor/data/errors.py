"""Mistakes a user can make with Tensors. Each is also a ValueError or TypeError.

Shapes that do not go together are core/ir/shapes.py's ShapeError; a constant that does not fit its
type is Python's OverflowError.
"""

from __future__ import annotations

from proofgrad.core.compile.machine import target
from proofgrad.core.ir.shapes import ShapeError


class AxisError(ShapeError, IndexError):
    """An axis that a Tensor does not have."""


class DtypeError(TypeError, ValueError):
    """A type that an operation does not take, or that does not exist."""


class DeviceError(target.DeviceError, ValueError):
    """A device that does not exist, or Tensors on different devices in one operation."""


class GradientError(RuntimeError, ValueError):
    """A gradient that is asked for where there is none, or that a write would lose."""


class JitError(RuntimeError, ValueError):
    """A function that cannot be recorded, or arguments unlike those it was recorded with."""
