"""Mistakes a user can make with Tensors. Each is also the builtin that users of numpy, torch and tinygrad catch for it.

They do not agree: for a shape numpy raises ValueError, torch RuntimeError, tinygrad one or the other. So an error here is
both, and IndexError or TypeError beside where one of them raises that.

Shapes that do not go together are core/ir/shapes.py's ShapeError.
"""

from __future__ import annotations

from proofgrad.core.compile.machine import target
from proofgrad.core.ir.shapes import ShapeError


class AxisError(ShapeError, IndexError):
    """An axis that a Tensor does not have."""


class BroadcastError(ShapeError, IndexError):
    """Shapes that do not broadcast, among them those of indices; a mask that does not fit."""


class ElementError(ShapeError, TypeError):
    """One number is asked of a Tensor that has none, or several."""


class SizeTypeError(ShapeError, TypeError):
    """A size that is no whole number."""


class PositionError(IndexError, ValueError, RuntimeError):
    """A number that names no position of an axis, or no class."""


class DtypeError(TypeError, ValueError, RuntimeError):
    """A type that an operation does not take, or that does not exist."""


class NoSuchDtypeError(DtypeError, AttributeError):
    """What names no type. (tinygrad and torch look the name up, and raise AttributeError.)"""


class IndexTypeError(DtypeError, IndexError):
    """What is no index: a text, a float, a step of 0."""


class RangeError(OverflowError, ValueError, RuntimeError):
    """A number that does not fit its type. (numpy raises OverflowError, torch RuntimeError.)"""


class ArgumentError(ValueError, RuntimeError):
    """An argument of a value that an operation does not take."""


class StepError(ArgumentError, ZeroDivisionError):
    """A step of 0."""


class ModeError(ArgumentError, NotImplementedError):
    """A name of a way of doing something that there is not."""


class DeviceError(target.DeviceError, ValueError):
    """A device that does not exist, or Tensors on different devices in one operation."""


class GradientError(RuntimeError, ValueError):
    """A gradient that is asked for where there is none, or that a write would lose."""


class JitError(RuntimeError, ValueError):
    """A function that cannot be recorded, or arguments unlike those it was recorded with."""
