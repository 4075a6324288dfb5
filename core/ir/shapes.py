"""Shapes of tensor nodes: one function an op, from source shapes and arg to the result's shape.

Owns: the legality of movement arguments. Does not own: broadcasting of user input (core/tensor).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any

from proofgrad.core.ir.ops import MOVEMENT, Ops

if TYPE_CHECKING:
    from proofgrad.core.ir.uop import UOp

Shape = tuple[int, ...]


class ShapeError(ValueError, RuntimeError):
    """Shapes that do not go together: says which, and what was expected. (torch raises RuntimeError.)"""


def show(shape: Sequence[Any]) -> str:
    """A shape for people."""
    if all(type(size) is int for size in shape):
        return str(tuple(shape))
    shown = ", ".join([sizes().show_size(size) for size in shape])
    return f"({shown},)" if len(shape) == 1 else f"({shown})"


def sizes() -> ModuleType:
    """core/ir/sizes.py: needed, and loaded, only where a size is a variable."""
    return import_module("proofgrad.core.ir.sizes")


def _plain(*shapes: Sequence[Any]) -> bool:
    """Are all sizes ints?"""
    for shape in shapes:  # `all` of a generator takes three times as long, and each node asks
        if not is_plain(shape):
            return False
    return True


def elements(shape: Sequence[Any]) -> int:
    """The number of elements, at most: what memory is made for."""
    count = 1
    for size in shape:  # most are numbers
        if type(size) is not int:
            product = sizes().product(shape)
            return product if type(product) is int else int(sizes().largest(product))
        count *= size
    return count


def is_plain(shape: Sequence[Any]) -> bool:
    """Are all sizes numbers, none a variable?"""
    for size in shape:
        if type(size) is not int:
            return False
    return True


def names_variables(arg: Sequence[Any]) -> bool:
    """Is one of the sizes that a movement operation carries made of variables?"""
    for part in arg:
        if type(part) is tuple:
            if type(part[0]) is not int or type(part[1]) is not int:
                return True
        elif type(part) is not int and type(part) is not bool:
            return True
    return False


def has_variables(nodes: Iterable[UOp]) -> bool:
    """Is a size of a shape, or an end of what a movement operation keeps, made of variables?"""
    return any(
        not is_plain(node.shape) or (node.op in MOVEMENT and names_variables(node.arg))
        for node in nodes
    )


def at_least(size: Any, least: Any) -> bool:
    """Whether size >= least, for all values of the variables in them."""
    if type(size) is int and type(least) is int:
        return size >= least
    found: bool = sizes().smallest(sizes().difference(size, least)) >= 0
    return found


def _count(shape: Sequence[Any]) -> Any:
    return prod(shape) if _plain(shape) else sizes().product(shape)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours along each axis of a row-major layout."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _buffer(_: tuple[Shape, ...], arg: int) -> Shape:
    return (arg,)


def _param(_: tuple[Shape, ...], arg: tuple[int, int]) -> Shape:
    return (arg[1],)


def _same(shapes: tuple[Shape, ...], _: Any) -> Shape:
    return shapes[0]


def _reshape(shapes: tuple[Shape, ...], arg: Shape) -> Shape:
    old = shapes[0]
    if _plain(old, arg):
        fits = not any(size < 0 for size in arg) and prod(old) == prod(arg)
    else:
        fits = _count(old) is _count(arg) or _count(old) == _count(arg)
    if not fits:
        counts = [show((_count(shape),))[1:-2] for shape in (old, arg)]
        raise ShapeError(
            f"cannot reshape {show(old)} ({counts[0]} elements) to {show(arg)} ({counts[1]});"
            f" sizes must multiply to the same count"
        )
    return arg


def _permute(shapes: tuple[Shape, ...], arg: tuple[int, ...]) -> Shape:
    old = shapes[0]
    if sorted(arg) != list(range(len(old))):
        raise ShapeError(f"permute {arg} must name each axis of {show(old)} once")
    return tuple([old[axis] for axis in arg])


def _expand(shapes: tuple[Shape, ...], arg: Shape) -> Shape:
    old = shapes[0]
    _same_rank("expand", old, arg)
    for axis, (size, target) in enumerate(zip(old, arg)):
        if size != target and size != 1:
            raise ShapeError(
                f"cannot expand {show(old)} to {show(arg)}: axis {axis} has size {size}, not 1"
            )
    return arg


def _pad(shapes: tuple[Shape, ...], arg: tuple[tuple[int, int], ...]) -> Shape:
    old = shapes[0]
    _same_rank("pad", old, arg)
    if any(not (at_least(before, 0) and at_least(after, 0)) for before, after in arg):
        shown = ", ".join([show(amounts) for amounts in arg])
        raise ShapeError(f"pad ({shown}) of {show(old)} must not be negative; use shrink to cut")
    if not _plain(old, *arg):
        return tuple([sizes().total(b, size, a) for size, (b, a) in zip(old, arg)])
    return tuple([before + size + after for size, (before, after) in zip(old, arg)])


def _shrink(shapes: tuple[Shape, ...], arg: tuple[tuple[int, int], ...]) -> Shape:
    old = shapes[0]
    _same_rank("shrink", old, arg)
    if not _plain(old, *arg):
        return tuple([_cut(old, size, begin, end) for size, (begin, end) in zip(old, arg)])
    if any(not 0 <= begin <= end <= size for size, (begin, end) in zip(old, arg)):
        raise ShapeError(f"shrink {arg} of {show(old)} must keep 0 <= begin <= end <= size")
    return tuple([end - begin for begin, end in arg])


def _cut(old: Sequence[Any], size: Any, begin: Any, end: Any) -> Any:
    """The size of begin .. end of an axis, for all values of the variables in them."""
    of = sizes()
    if not (at_least(begin, 0) and at_least(end, begin) and at_least(size, end)):
        raise ShapeError(
            f"shrink to {of.show_size(begin)} .. {of.show_size(end)} of an axis of {show(old)} must"
            f" keep 0 <= begin <= end <= size for all values of the variables"
        )
    return of.difference(end, begin)


def _flip(shapes: tuple[Shape, ...], arg: tuple[bool, ...]) -> Shape:
    _same_rank("flip", shapes[0], arg)
    return shapes[0]


def _skew(shapes: tuple[Shape, ...], arg: tuple[int, int, int, int]) -> Shape:
    old = shapes[0]
    axis, by, _, size = arg
    if not (0 <= axis < len(old) and 0 <= by < len(old)) or axis == by or not at_least(size, 0):
        raise ShapeError(
            f"skew {arg} needs two different axes of {show(old)} and a size of 0 or more"
        )
    return old[:axis] + (size,) + old[axis + 1 :]


def _reduce_axis(shapes: tuple[Shape, ...], arg: tuple[Ops, tuple[int, ...]]) -> Shape:
    old, axes = shapes[0], arg[1]
    if any(not 0 <= axis < len(old) for axis in axes):
        raise ShapeError(f"reduce over axes {axes} of {show(old)}: no such axis")
    return tuple([1 if axis in axes else size for axis, size in enumerate(old)])


def _apply(shapes: tuple[Shape, ...], arg: Any) -> Shape:
    shape: Shape = arg.shape
    return shape


def _same_rank(name: str, old: Shape, arg: Sequence[Any]) -> None:
    if len(old) != len(arg):
        raise ShapeError(
            f"{name} {tuple(arg)} has {len(arg)} entries for {len(old)} axes {show(old)}"
        )


TENSOR_SHAPES: dict[Ops, Callable[[tuple[Shape, ...], Any], Shape]] = {
    Ops.BUFFER: _buffer,
    Ops.PARAM: _param,
    Ops.IOTA: _buffer,
    Ops.ASSIGN: _same,
    Ops.CONTIGUOUS: _same,
    Ops.DETACH: _same,
    Ops.COPY: _same,
    Ops.RESHAPE: _reshape,
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.SKEW: _skew,
    Ops.REDUCE_AXIS: _reduce_axis,
    Ops.APPLY: _apply,
}


@functools.lru_cache(maxsize=4096)
def tensor_shape(op: Ops, shapes: tuple[Shape, ...], arg: Any) -> Shape:
    """The shape of a node, by those of its sources. A program makes the same few again and again. Raises: ShapeError."""
    return TENSOR_SHAPES[op](shapes, arg)
