"""Integers in a Tensor that name no position of an axis: an error where the integers are there already.

Owns: which indices are looked at. Does not own: what an index means (selection.py), lists of numbers, which are always looked at.

To compute an index only to look at it would cost more than the choice of elements: one that is still to be computed is looked at
with CHECK=1, and is 0 beyond the axis else.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core import settings
from proofgrad.core.ir.shapes import Shape, show, sizes
from proofgrad.core.tensor.data.errors import PositionError
from proofgrad.core.tensor.data.variables import has_values
from proofgrad.core.tensor.methods.base import TensorBase, own_copy
from proofgrad.core.tensor.runtime import reading
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.computed_again import unnoted
from proofgrad.core.tensor.runtime.counters import uncounted
from proofgrad.core.tensor.runtime.device import Device

MOST = 1 << 14  # indices that are looked at: 0.3 ms at most, where numpy is not there


def check_inside(positions: TensorBase, axis: int, shape: Shape, from_end: bool) -> None:
    """Raises: IndexError for the first position that is none on this axis of a Tensor of `shape`.

    `from_end`: negative ones count from the end.
    """
    if not has_values(shape[axis]):
        return
    size = shape[axis] if isinstance(shape[axis], int) else sizes().value_of(shape[axis])
    for position in _values_at_hand(positions):
        if not (-size if from_end else 0) <= position < size:
            raise PositionError(
                f"index {position} is out of range for axis {axis} of {show(shape)}: one of the indices"
                f" {show(positions.shape)} in a Tensor"
            )


def _values_at_hand(positions: TensorBase) -> tuple[int, ...]:
    """The least and the greatest of some integers; none if they are many, or still to be computed."""
    if positions.max_numel() > MOST:
        return ()
    data: Any = reading.at_hand(positions._uop)
    gives = machine.gives_values() and Device[positions.device].target.runs
    if data is None and settings.checks_values() and gives:
        with (
            uncounted(),
            unnoted(),
        ):  # a node of its own, so that the program's kernels are what they were
            data = memoryview(reading.read(own_copy(positions._uop), positions.device))
    if not data:
        return ()
    return reading.extremes(data.cast("B").cast(positions.dtype.fmt))
