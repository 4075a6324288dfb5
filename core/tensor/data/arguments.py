"""What methods of Tensor are given: numbers, shapes and axes, checked and in one form.

Owns: the names of their types, Python's rules for axes. Does not own: Tensors, types of results (promotion.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from proofgrad.core.ir.shapes import Shape, ShapeError, at_least, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import AxisError

Scalar: TypeAlias = bool | int | float
# Tensor has methods of these names.
Flag: TypeAlias = bool
Whole: TypeAlias = int
Real: TypeAlias = float
Operand: TypeAlias = Any  # a Tensor, a Python scalar, a list or a numpy array


def as_sizes(values: tuple[Any, ...]) -> tuple[int, ...]:
    """`f(2, 3)` and `f((2, 3))` mean the same."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        return tuple(values[0])
    return values


def checked_shape(sizes: tuple[Any, ...]) -> Shape:
    """`sizes` if they can be a shape. Raises: ShapeError."""
    if any(
        not isinstance(size, UOp) and not (isinstance(size, int) and size >= 0) for size in sizes
    ):
        raise ShapeError(f"sizes of a shape are ints of 0 or more, not {sizes}")
    return sizes


def resolve_axis(axis: int, rank: int) -> int:
    """A Python axis number, which may count from the end, as 0 .. rank-1. Raises: ShapeError."""
    if not isinstance(axis, int):
        raise TypeError(f"an axis is an int, not {axis!r}")
    if not rank and axis == -1:  # a single element has the axes of a line, as in torch
        return 0
    if not -rank <= axis < max(rank, 1):
        use = f"use {-rank} to {rank - 1}" if rank else "it is a single element"
        raise AxisError(f"there is no axis {axis} in {rank} axes; {use}")
    return axis + rank if axis < 0 else axis


def resolve_axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """None for all axes, one, or several, as sorted numbers. Raises: ShapeError."""
    if axis is None:
        return tuple(range(rank))
    if isinstance(axis, int):
        return (resolve_axis(axis, rank),) if rank else ()
    axes = sorted(resolve_axis(a, rank) for a in axis)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"axis {tuple(axis)} names an axis twice")
    return tuple(axes)


def split_amount(amount: Any) -> tuple[Any, Any]:
    """What an amount around an axis adds to it, and what it cuts, one of them 0. Raises: ShapeError."""
    if isinstance(amount, int):
        return max(0, amount), max(0, -amount)
    if at_least(amount, 0):
        return normal_size(amount), 0
    if at_least(0, amount):
        return 0, normal_size(-amount)
    raise ShapeError(
        f"an amount of {sizes().show_size(amount)} around an axis may add to it or cut it, by the"
        f" values of its variables; give bounds that decide"
    )


def normal_size(size: Any) -> Any:
    """A size in its one form: equal sums of variables are one object."""
    return sizes().normal(size) if isinstance(size, UOp) else size
