"""Terms of z3 keep their sorts: inside `strict_sorts()` nothing is taken for something else.

z3's Python makes the number 0 or 1 of a truth where a number is wanted, a real of an integer, a truth
of a Python bool (which is what `a != b` is of two tuples), and cuts a Python integer to the width of a
bit-vector. Any of these makes a goal about something else than the rule. All of them pass through the
casts of sorts, so these are what is replaced: then no operator, function or connective of any encoder
can coerce, and none has to be written in another way. What is meant is said: `z3.If(p, 1, 0)`,
`z3.ToReal`, `z3.BoolVal`.

Owns: these casts. Does not own: where terms are made (fresh_terms.py, which is strict).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import z3


class Coerced(TypeError):
    """A term, or a Python value, stands where one of another sort is wanted."""


def _checked(sort: Any, value: Any) -> Any:
    """A term that is of the sort."""
    if not sort.eq(value.sort()):
        raise Coerced(f"{value} is of the sort {value.sort()}; {sort} is wanted here")
    return value


def _refused(sort: Any, value: Any) -> Coerced:
    return Coerced(f"{value!r}, a Python {type(value).__name__}, stands where {sort} is wanted")


def _cast_truth(sort: Any, value: Any) -> Any:
    if z3.is_expr(value):
        return _checked(sort, value)
    raise _refused(sort, value)


def _cast_number(sort: Any, value: Any) -> Any:
    if z3.is_expr(value):
        return _checked(sort, value)
    if type(value) is not int:
        raise _refused(sort, value)
    return z3.IntVal(value, sort.ctx) if sort.is_int() else z3.RealVal(value, sort.ctx)


def _cast_bits(sort: Any, value: Any) -> Any:
    if z3.is_expr(value):
        return _checked(sort, value)
    width = sort.size()
    if type(value) is not int or not -(1 << (width - 1)) <= value < 1 << width:
        raise _refused(sort, value)
    return z3.BitVecVal(value, sort)


def _python_value(value: Any, ctx: Any = None) -> Any:
    """A Python value among values none of which is a term."""
    if z3.is_expr(value):
        return value
    if type(value) is not int:
        raise Coerced(f"{value!r}, a Python {type(value).__name__}, stands where a term is wanted")
    return z3.IntVal(value, ctx)


def _without_python(original: Callable[..., Any], *types: type) -> Callable[..., Any]:
    """One of z3's own conversions of arguments, which refuses these Python values."""

    def convert(*args: Any) -> Any:
        for value in args[0] if isinstance(args[0], list | tuple) else args[:2]:
            if isinstance(value, types):
                raise _refused("a term", value)
        return original(*args)

    return convert


def _no_arithmetic(self: Any, other: Any) -> Any:
    raise Coerced(f"{self} and {other} are added or multiplied, but {self} is a truth")


_CASTS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (z3.BoolSortRef, "cast", _cast_truth),
    (z3.ArithSortRef, "cast", _cast_number),
    (z3.BitVecSortRef, "cast", _cast_bits),
    (z3.FPSortRef, "cast", _cast_truth),
    (z3.SortRef, "cast", _cast_truth),
    (z3.z3, "_py2expr", _python_value),
    (z3.z3, "_coerce_exprs", _without_python(z3.z3._coerce_exprs, float, complex, str)),
    (z3.z3, "_coerce_fp_expr_list", _without_python(z3.z3._coerce_fp_expr_list, int, float, str)),
    *[(z3.BoolRef, f"__{name}__", _no_arithmetic) for name in ("add", "radd", "mul", "rmul")],
)


@contextmanager
def strict_sorts() -> Iterator[None]:
    """Inside, a term of a sort stands only where this sort is wanted. Raises there: Coerced."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _CASTS]
    for owner, name, strict in _CASTS:
        setattr(owner, name, strict)
    try:
        yield
    finally:
        for owner, name, kept in before:
            setattr(owner, name, kept)
