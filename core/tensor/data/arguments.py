"""What methods of Tensor are given: numbers, shapes and axes, checked and in one form.

Owns: the names of their types, Python's rules for axes. Does not own: Tensors, types of results (promotion.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from numbers import Integral
from numbers import Real as NumbersReal
from typing import Any, TypeAlias, TypeVar

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.shapes import Shape, ShapeError, at_least, is_plain, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import AxisError, SizeTypeError

Scalar: TypeAlias = bool | int | float
# Tensor has methods of these names.
Flag: TypeAlias = bool
Whole: TypeAlias = int
Real: TypeAlias = float
_F = TypeVar("_F", bound=Callable[..., Any])
_KEPT = frozenset({int, float, bool, str, type(None), UOp, DType})  # asked of each argument
Operand: TypeAlias = Any  # a Tensor, a Python scalar, a list or a numpy array


def plain_number(value: Any) -> Any:
    """A number of numpy as Python's, within tuples and lists, too; anything else as it is."""
    kind = type(value)
    if kind in _KEPT:
        return value
    if kind is tuple or kind is list:
        return value if is_plain(value) else kind([plain_number(part) for part in value])
    if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"):  # no number to `numbers`
        return bool(value)
    if isinstance(value, (int, float)) or not isinstance(value, NumbersReal):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def takes_numbers(function: _F) -> _F:
    """The method; numbers of numpy, as `y.max() + 1` of an array is one, come to it as Python's."""

    @functools.wraps(function)
    def method(*args: Any, **options: Any) -> Any:
        given = [value if type(value) in _KEPT else plain_number(value) for value in args]
        for name, value in options.items():
            if type(value) not in _KEPT:
                options[name] = plain_number(value)
        return function(*given, **options)

    return method  # type: ignore[return-value]


def passes_on(names: frozenset[str]) -> Callable[[_F], _F]:
    """For a function that passes options of these names on to another one: any other is refused in its own name."""

    def refusing(function: _F) -> _F:
        known = names | set(function.__kwdefaults__ or ())

        @functools.wraps(function)
        def method(*args: Any, **options: Any) -> Any:
            if not options.keys() <= known:
                wrong = next(name for name in options if name not in known)
                raise TypeError(
                    f"{function.__name__}() takes no {wrong!r}; by name it takes {', '.join(sorted(known))}"
                )
            return function(*args, **options)

        return method  # type: ignore[return-value]

    return refusing


def several(name: str, value: Any) -> tuple[Any, ...]:
    """A number, or several of them, as a tuple. Raises: TypeError for what is neither; `name` is the argument's."""
    if isinstance(value, (int, UOp)):
        return (value,)
    if not isinstance(value, (tuple, list, range)):
        raise TypeError(f"{name} is a number or several of them, not {value!r}")
    return tuple(value)


def as_sizes(values: tuple[Any, ...]) -> tuple[int, ...]:
    """`f(2, 3)` and `f((2, 3))` mean the same."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    if is_plain(values):
        return values
    for value in values:
        if isinstance(value, (tuple, list)):
            raise SizeTypeError(f"sizes and axes are numbers, not {value!r} of {values}")
    found: tuple[int, ...] = plain_number(values)
    return found


def whole_quotient(size: Any, by: Any) -> Any:
    """size / by, if that is a whole number for all values of the variables, and one form; else None."""
    if isinstance(size, int) and isinstance(by, int):
        return None if not by or size % by else size // by
    return sizes().quotient(size, by)


def smaller(a: Any, b: Any) -> Any:
    """The one that is never the larger. Raises: ShapeError if that depends on the values of variables."""
    if at_least(b, a):
        return normal_size(a)
    if at_least(a, b):
        return normal_size(b)
    shown = [sizes().show_size(size) for size in (a, b)]
    raise ShapeError(
        f"which of {shown[0]} and {shown[1]} is smaller depends on the values of the variables; cut to one size first"
    )


def shape_with_rest(given: Sequence[Any], total: Any) -> tuple[Any, ...] | None:
    """Sizes whose product is `total`, with what is missing in place of a -1; None if there are no such."""
    if is_plain((*given, total)):
        return _numbers_with_rest(list(given), total)
    is_rest = [isinstance(size, int) and size == -1 for size in given]
    known = sizes().product([size for size, rest in zip(given, is_rest) if not rest])
    missing = whole_quotient(total, known) if any(is_rest) else 1
    if (
        missing is None
        or sum(is_rest) > 1
        or sizes().product((known, missing)) != normal_size(total)
    ):
        return None
    return tuple([missing if rest else normal_size(n) for n, rest in zip(given, is_rest)])


def _numbers_with_rest(given: list[int], total: int) -> tuple[int, ...] | None:
    if -1 in given:
        known = -prod(given)
        given[given.index(-1)] = total // known if known else 0
    return tuple(given) if prod(given) == total and -1 not in given else None


def checked_shape(sizes: tuple[Any, ...]) -> Shape:
    """`sizes`, in their one form, if they can be a shape. Raises: ShapeError."""
    sizes = sizes if is_plain(sizes) else plain_number(sizes)
    if not all(isinstance(size, (int, UOp)) for size in sizes):
        raise SizeTypeError(f"sizes of a shape are ints of 0 or more, not {sizes}")
    if any(not isinstance(size, UOp) and size < 0 for size in sizes):
        raise ShapeError(f"sizes of a shape are ints of 0 or more, not {sizes}")
    return sizes if is_plain(sizes) else tuple([normal_size(size) for size in sizes])


def resolve_axis(axis: int, rank: int) -> int:
    """A Python axis number, which may count from the end, as 0 .. rank-1. Raises: ShapeError."""
    if type(axis) is int and 0 <= axis < rank:
        return axis
    if type(axis) is not int:
        axis = plain_number(axis)
    if not isinstance(axis, int):
        raise TypeError(f"an axis is an int, not {axis!r}")
    if not rank and axis == -1:  # a single element has the axes of a line, as in torch
        return 0
    if not -rank <= axis < max(rank, 1):
        use = f"use {-rank} to {rank - 1}" if rank else "it is a single element"
        raise AxisError(f"there is no axis {axis} in {rank} axes; {use}")
    return axis + rank if axis < 0 else axis


def resolve_axis_of_several(axis: int, rank: int) -> int:
    """As resolve_axis, for who asks for the size of that axis. Raises: AxisError of a single element, too."""
    found = resolve_axis(axis, rank)
    if not rank:
        raise AxisError(f"there is no axis {axis} in 0 axes; it is a single element")
    return found


def resolve_axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """None for all axes, one, or several, as sorted numbers. Raises: ShapeError."""
    if axis is None:
        return tuple(range(rank))
    if type(axis) is not int:
        axis = plain_number(axis)
    if isinstance(axis, int):
        found = resolve_axis(axis, rank)
        return (found,) if rank else ()
    if not isinstance(axis, (tuple, list, range, set, frozenset)):
        raise TypeError(f"axis is an int, several of them, or None for all, not {axis!r}")
    axes = sorted(resolve_axis(a, rank) for a in axis)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"axis {tuple(axis)} names an axis twice")
    return tuple(axes) if rank else ()


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
    if type(size) is int:
        return size
    return sizes().normal(size) if isinstance(size, UOp) else plain_number(size)


_AXIS = {
    "dim": "axis",
    "dims": "axis",
    "axes": "axis",
    "keepdims": "keepdim",
    "ddof": "correction",
    "unbiased": "correction",
}
_DIM = {"axis": "dim", "axes": "dim"}
_BOUNDS = {"min": "min_", "max": "max_", "a_min": "min_", "a_max": "max_"}


def takes_axis(function: _F) -> _F:
    """The method; who calls it with the names of another package is told the names here."""
    return _tells(function, _AXIS)


def takes_dim(function: _F) -> _F:
    """The same for a method whose axis is called `dim`, as torch and tinygrad do."""
    return _tells(function, _DIM)


def takes_bounds(function: _F) -> _F:
    """The same for a method whose bounds are called `min_` and `max_`, as tinygrad does."""
    return _tells(function, _BOUNDS)


def refuses(**instead: str) -> Callable[[_F], _F]:
    """For a method that has not all options of torch's: who names one of these is told what does the same."""

    def refusing(function: _F) -> _F:
        @functools.wraps(function)
        def method(*args: Any, **options: Any) -> Any:
            for name in () if instead.keys().isdisjoint(options) else options.keys() & instead:
                raise TypeError(f"{function.__name__}() takes no {name}=; {instead[name]}")
            return function(*args, **options)

        return method  # type: ignore[return-value]

    return refusing


def _tells(function: _F, names: Mapping[str, str]) -> _F:
    takes_keepdim = function.__code__.co_varnames[2:3] == ("keepdim",)

    @functools.wraps(function)
    def method(*args: Any, **options: Any) -> Any:
        if takes_keepdim and len(args) > 2 and type(args[2]) is int:  # it would be taken for True
            raise TypeError(
                f"the second argument of {function.__name__}({args[1]}, {args[2]}) is keepdim, True or False;"
                f" several axes are one argument: {function.__name__}(({args[1]}, {args[2]}))"
            )
        for name in () if names.keys().isdisjoint(options) else options.keys() & names.keys():
            alone = "; it gives the values alone, see argmax" if function.__name__ == "max" else ""
            raise TypeError(f"{function.__name__}() takes {names[name]}=, not {name}={alone}")
        return function(*args, **options)

    return method  # type: ignore[return-value]
