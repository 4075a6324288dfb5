"""Sizes of axes that are known only when a plan runs: sums of products of variables.

Owns: arithmetic and comparison of such sizes, by which shapes are checked. A size is an int or an
index node over VARIABLE and BIND in one normal form, so that equal sizes are one object. Does not
own: index terms of kernels, which proven rules rewrite.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, TypeAlias

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

Size: TypeAlias = "int | UOp"
_Monomials: TypeAlias = "dict[tuple[UOp, ...], int]"  # products of variables, and how often


def variable(name: str, smallest: int, largest: int) -> UOp:
    """An index that is the same everywhere in a run. Raises: ValueError for empty bounds."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"the name of a variable is an identifier, not {name!r}")
    if not 0 <= smallest <= largest:
        raise ValueError(
            f"variable {name}: bounds {smallest} to {largest} must be 0 or more, in order"
        )
    return UOp(Ops.VARIABLE, dtypes.index, (), (name, smallest, largest))


Variable = variable  # the name that users know


def bind(node: UOp, value: int) -> UOp:
    """The variable with its value. Raises: ValueError if that is out of its bounds."""
    if node.op is not Ops.VARIABLE:
        raise ValueError("only a variable that has no value yet can be bound")
    name, smallest, largest = node.arg
    if not smallest <= value <= largest:
        raise ValueError(f"variable {name} is from {smallest} to {largest}, not {value}")
    return UOp(Ops.BIND, dtypes.index, (node, UOp.index(int(value))))


def normal(size: Any) -> Size:
    """A size in its one form: an int where it is one. Raises: TypeError for what is no size."""
    if isinstance(size, int):
        return size
    return _size(_monomials(size))


def product(sizes: Iterable[Any]) -> Size:
    """The number of elements of a shape."""
    total: _Monomials = {(): 1}
    for size in sizes:
        total = _times(total, _monomials(size))
    return _size(total)


def total(*sizes: Any) -> Size:
    """The sum of sizes, some of which may be negative."""
    found: _Monomials = {}
    for size in sizes:
        for key, count in _monomials(size).items():
            found[key] = found.get(key, 0) + count
    return _size(found)


def difference(a: Any, b: Any) -> Size:
    """a - b."""
    return total(a, _size({key: -count for key, count in _monomials(b).items()}))


def quotient(a: Any, b: Any) -> Size | None:
    """a / b if b is one product that divides every part of a; else None."""
    (key, count), *more = _monomials(b).items() or [((), 0)]
    if more or not count:
        return None
    found: _Monomials = {}
    for parts, times in _monomials(a).items():
        left = list(parts)
        for part in key:
            if part not in left:
                return None
            left.remove(part)
        if times % count:
            return None
        found[tuple(left)] = times // count
    return _size(found)


def smallest(size: Any) -> int:
    """The least value that a size can have."""
    return _bounds(size)[0]


def largest(size: Any) -> int:
    """The greatest value that a size can have: what memory is made for."""
    return _bounds(size)[1]


def value_of(size: Any) -> int:
    """The number that a size is. Raises: ValueError if a variable has no value."""
    if isinstance(size, int):
        return size
    found = 0
    for parts, count in _monomials(size).items():
        for part in parts:
            if part.op is not Ops.BIND:
                raise ValueError(
                    f"variable {part.arg[0]} has no value here; use {part.arg[0]}.bind(n)"
                )
        found += count * prod([part.src[1].arg for part in parts])
    return found


def show_size(size: Any) -> str:
    """A size for people: 3, n, 2*n+1; a bound variable with its value, n=4."""
    if not isinstance(size, UOp):
        return repr(size)
    parts = []
    for key, count in _monomials(size).items():
        names = [_name(part) for part in key]
        parts.append("*".join([*([str(count)] if count != 1 or not key else []), *names]))
    return "+".join(parts).replace("+-", "-") or "0"


def _name(part: UOp) -> str:
    return f"{part.src[0].arg[0]}={part.src[1].arg}" if part.op is Ops.BIND else str(part.arg[0])


def _order(part: UOp) -> tuple[Any, ...]:
    return (part.src[0].arg, part.src[1].arg) if part.op is Ops.BIND else (part.arg, -1)


def _monomials(size: Any) -> _Monomials:
    if isinstance(size, int):
        return {(): size} if size else {}
    if not isinstance(size, UOp) or size.dtype is not dtypes.index:
        raise TypeError(f"a size is an int or made of variables, not {size!r}")
    match size.op:
        case Ops.CONST:
            return {(): size.arg} if size.arg else {}
        case Ops.VARIABLE | Ops.BIND:
            return {(size,): 1}
        case Ops.NEG:
            return {key: -count for key, count in _monomials(size.src[0]).items()}
        case Ops.ADD:
            found = dict(_monomials(size.src[0]))
            for key, count in _monomials(size.src[1]).items():
                found[key] = found.get(key, 0) + count
            return {key: count for key, count in found.items() if count}
        case Ops.MUL:
            return _times(_monomials(size.src[0]), _monomials(size.src[1]))
        case _:
            raise TypeError(
                f"a size is a sum of products of variables; {size.op.name.lower()} is not supported"
            )


def _times(a: _Monomials, b: _Monomials) -> _Monomials:
    found: _Monomials = {}
    for left, m in a.items():
        for right, n in b.items():
            key = tuple(sorted((*left, *right), key=_order))
            found[key] = found.get(key, 0) + m * n
    return {key: count for key, count in found.items() if count}


def _size(monomials: _Monomials) -> Size:
    """The node of a sum of products: longest products first, then by name."""
    keys = sorted(
        [key for key, count in monomials.items() if count],
        key=lambda key: (-len(key), [_order(part) for part in key]),
    )
    if not keys:
        return 0
    if keys == [()]:
        return monomials[()]
    result: UOp | None = None
    for key in keys:
        term: UOp | None = None
        for part in key:
            term = part if term is None else term * part
        count = monomials[key]
        whole = UOp.index(count) if term is None else term if count == 1 else term * count
        result = whole if result is None else result + whole
    assert result is not None
    return result


def _bounds(size: Any) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    low = high = 0
    for key, count in _monomials(size).items():
        variables = [part.src[0] if part.op is Ops.BIND else part for part in key]
        least = prod([v.arg[1] for v in variables])  # variables are 0 or more
        most = prod([v.arg[2] for v in variables])
        low += count * (least if count > 0 else most)
        high += count * (most if count > 0 else least)
    return low, high


def unbound(arg: Any, values: dict[str, int]) -> Any:
    """`arg` of a node with variables in place of their values, which go into `values`.

    Raises: ValueError if a variable has two values in one graph.
    """
    if isinstance(arg, UOp):
        bound = [node for node in arg.toposort() if node.op is Ops.BIND]
        for node in bound:
            name, value = node.src[0].arg[0], node.src[1].arg
            if values.setdefault(name, value) != value:
                raise ValueError(
                    f"variable {name} is {values[name]} and {value} in one computation"
                )
        return normal(arg.substitute({node: node.src[0] for node in bound})) if bound else arg
    if type(arg) is tuple:
        return tuple([unbound(part, values) for part in arg])
    return arg


def bound(shape: Sequence[Any], values: dict[str, int]) -> list[Any]:
    """Sizes with the variables of these names bound to other values."""
    found = []
    for size in shape:
        if isinstance(size, UOp):
            old = [node for node in size.toposort() if node.op is Ops.BIND]
            changes = {node: bind(node.src[0], values[node.src[0].arg[0]]) for node in old}
            size = normal(size.substitute(changes))
        found.append(size)
    return found


def value_of_shape(shape: Sequence[Any]) -> tuple[int, ...]:
    """The numbers that the sizes of a shape are."""
    return tuple([value_of(size) for size in shape])
