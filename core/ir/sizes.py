"""Sizes of axes that are known only when a plan runs: sums of products of variables and of their quotients by numbers.

Owns: arithmetic and comparison of such sizes, by which shapes are checked. A size is an int or an
index node over VARIABLE, BIND and FLOORDIV in one normal form, so that equal sizes are one object. Does not
own: index terms of kernels, which proven rules rewrite.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, TypeAlias

from proofgrad.core.ir.dtypes import DType, dtype_named, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

Size: TypeAlias = "int | UOp"
# Products of atoms, and how often; an atom is a variable, bound or not, or a quotient by a number.
MOST_TRIED = 4096
_NAMED = (Ops.VARIABLE, Ops.BIND)
_PARTS = (*_NAMED, Ops.CONST, Ops.NEG, Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.MOD)
_Monomials: TypeAlias = "dict[tuple[UOp, ...], int]"


def variable(
    name: str, min_val: int, max_val: int, dtype: DType | str = dtypes.index, multiple_of: int = 1
) -> UOp:
    """An index that is the same everywhere in a run. Raises: ValueError for empty bounds, TypeError for others than whole numbers.

    `dtype`: any type of integers; a size or an index has no number of bits. `multiple_of`: 1, for a multiple is a product.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"the name of a variable is an identifier, not {name!r}")
    min_val, max_val = _whole(name, min_val), _whole(name, max_val)
    kind = dtype_named(dtype) if isinstance(dtype, str) else dtype
    if not kind.is_int:
        raise TypeError(f"variable {name} stands for whole numbers, not for {kind}")
    if multiple_of != 1:
        raise ValueError(
            f"a variable is every whole number within its bounds; for multiples of {multiple_of} write"
            f" {multiple_of} * Variable({name!r}, {-(-min_val // multiple_of)}, {max_val // multiple_of})"
        )
    if not 0 <= min_val <= max_val:
        raise ValueError(
            f"variable {name}: bounds {min_val} to {max_val} must be 0 or more, in order"
        )
    return UOp(Ops.VARIABLE, dtypes.index, (), (name, min_val, max_val))


Variable = variable  # the name that users know


def bind(node: UOp, value: int) -> UOp:
    """The variable with its value. Raises: ValueError if that is out of its bounds, TypeError if it is no whole number."""
    if node.op is not Ops.VARIABLE:
        raise ValueError("only a variable that has no value yet can be bound")
    name, smallest, largest = node.arg
    value = _whole(name, value)
    if not smallest <= value <= largest:
        raise ValueError(f"variable {name} is from {smallest} to {largest}, not {value}")
    return UOp(Ops.BIND, dtypes.index, (node, UOp.index(value)))


def _whole(name: str, value: Any) -> int:
    """The value or bound of a variable as an int: what indexes a list, as ints of numpy do."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"variable {name} stands for whole numbers, not {value!r} ({type(value).__name__})"
        ) from None


def unbind(node: UOp) -> tuple[UOp, int]:
    """A bound variable, and its value. Raises: ValueError for anything else."""
    if node.op is not Ops.BIND:
        raise ValueError(f"{show_size(node)} is no bound variable; see bind")
    return node.src[0], node.src[1].arg


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


def positive_parts(size: Any) -> tuple[Size, Size]:
    """What a size adds and what it takes away, both 0 or more."""
    parts = _monomials(size)
    more = {key: count for key, count in parts.items() if count > 0}
    return _size(more), _size({key: -count for key, count in parts.items() if count < 0})


def quotient(a: Any, b: Any) -> Size | None:
    """a / b if b divides a, as polynomials; else None."""
    left, by = dict(_monomials(a)), _monomials(b)
    if not by:
        return None
    lead = max(by, key=_degree)
    found: _Monomials = {}
    while left:  # the greatest product of atoms goes each time, so there is an end
        top = max(left, key=_degree)
        rest = _without(top, lead)
        times, over = divmod(left[top], by[lead])
        if rest is None or over:
            return None
        found[rest] = times
        for key, count in _times({rest: times}, by).items():
            left[key] = left.get(key, 0) - count
        left = {key: count for key, count in left.items() if count}
    return _size(found)


def _degree(parts: tuple[UOp, ...]) -> tuple[Any, ...]:
    """An order of products that multiplication keeps: by how many atoms, then by the greatest of them."""
    return len(parts), sorted(map(_order, parts), reverse=True)


def _without(parts: tuple[UOp, ...], taken: tuple[UOp, ...]) -> tuple[UOp, ...] | None:
    left = list(parts)
    for part in taken:
        if part not in left:
            return None
        left.remove(part)
    return tuple(left)


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
    return sum([n * prod(map(_value_of_atom, parts)) for parts, n in _monomials(size).items()])


def _value_of_atom(part: UOp) -> int:
    match part.op:
        case Ops.BIND:
            value: int = part.src[1].arg
            return value
        case Ops.FLOORDIV:
            return value_of(part.src[0]) // int(part.src[1].arg)
    raise ValueError(f"variable {part.arg[0]} has no value here; use {part.arg[0]}.bind(n)")


def is_size(node: UOp) -> bool:
    """Is this index node made of variables, and of nothing but what sizes are made of?"""
    below = node.toposort()
    return all(part.op in _PARTS for part in below) and any(part.op in _NAMED for part in below)


def truth(comparison: UOp) -> bool:
    """Whether a comparison of sizes holds for all values of the variables. Raises: TypeError if for some only.

    Of what is no comparison of sizes: True, as for any node.
    """
    if not all(map(is_size_or_number, comparison.src)):
        return True
    low, high = _bounds(difference(*comparison.src))
    match comparison.op:
        case Ops.CMPLT:
            always, never = high < 0, low >= 0
        case Ops.CMPEQ:
            always, never = low == high == 0, low > 0 or high < 0
        case _:
            always, never = low > 0 or high < 0, low == high == 0
    if always is never:
        a, b = map(show_size, comparison.src)
        sign = {Ops.CMPLT: "<", Ops.CMPEQ: "=="}.get(comparison.op, "!=")
        raise TypeError(
            f"whether {a} {sign} {b} depends on the value of a variable, and what runs is made for all of"
            f" them; ask .val for the value that is bound now, or use where"
        )
    return always


def is_size_or_number(node: UOp) -> bool:
    """Is this index node made of variables and numbers alone?"""
    return all(part.op in _PARTS for part in node.toposort())


def show_size(size: Any) -> str:
    """A size for people: 3, n, 2*n+1, (n+1)//2; a bound variable with its value, n=4, 2*(n=4)+1."""
    if not isinstance(size, UOp):
        return repr(size)
    try:
        monomials = _monomials(size)
    except TypeError:  # a size over a size is no size, but it has a name
        a, b = [f"({show_size(part)})" for part in size.src]
        return f"{a}{'//' if size.op is Ops.FLOORDIV else '%'}{b}"
    return _shown_sum(monomials) or "0"


def _shown_sum(monomials: _Monomials) -> str:
    parts = []
    for key, count in monomials.items():
        names = [_name(part) for part in key]
        alone = len(monomials) == 1 and len(key) == 1 and count == 1
        if not alone:
            names = [f"({name})" if "=" in name and name[0] != "(" else name for name in names]
        signed = ["-"] if count == -1 and key else []
        number = [str(count)] if count not in (1, -1) or not key else []
        parts.append("".join(signed) + "*".join([*number, *names]))
    return "+".join(parts).replace("+-", "-")


def _name(part: UOp) -> str:
    match part.op:
        case Ops.BIND:
            return f"{part.src[0].arg[0]}={part.src[1].arg}"
        case Ops.FLOORDIV:
            return f"({show_size(part.src[0])})//{part.src[1].arg}"
    return str(part.arg[0])


def _order(part: UOp) -> tuple[Any, ...]:
    match part.op:
        case Ops.BIND:
            return part.src[0].arg, part.src[1].arg
        case Ops.FLOORDIV:
            return (_name(part), 0, 0), -1
    return part.arg, -1


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
        case Ops.FLOORDIV:
            return _quotient(_monomials(size.src[0]), _divisor(size))
        case Ops.MOD:
            a, by = _monomials(size.src[0]), _divisor(size)
            whole = {key: by * count for key, count in _quotient(a, by).items()}
            return {key: n for key in a | whole if (n := a.get(key, 0) - whole.get(key, 0))}
        case _:
            raise TypeError(
                f"a size is made of variables by +, -, *, and // and % with a number;"
                f" {size.op.name.lower()} is not supported"
            )


def _divisor(size: UOp) -> int:
    by = normal(size.src[1])
    if isinstance(by, int) and by > 0:
        return by
    raise TypeError(
        f"a size is divided by a number of 1 or more, not by {show_size(by)};"
        f" give the size that is meant"
    )


def _quotient(a: _Monomials, by: int) -> _Monomials:
    """floor(a / by), which is q + floor(r / by) for a = q * by + r."""
    found = {key: count // by for key, count in a.items() if count // by}
    rest = _size({key: count % by for key, count in a.items() if count % by})
    if isinstance(rest, UOp):
        found[UOp(Ops.FLOORDIV, dtypes.index, (rest, UOp.index(by))),] = 1
    return found


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
    return (size, size) if isinstance(size, int) else _bounds_of_sum(_monomials(size))


def _bounds_of_sum(monomials: _Monomials) -> tuple[int, int]:
    low = high = 0
    for key, count in monomials.items():
        ends = [_bounds_of_atom(part) for part in key]
        least = prod([end[0] for end in ends])  # atoms are 0 or more
        most = prod([end[1] for end in ends])
        low += count * (least if count > 0 else most)
        high += count * (most if count > 0 else least)
    if any(len(key) > 1 for key in monomials) and any(count < 0 for count in monomials.values()):
        return _exact_bounds(_size(monomials)) or (low, high)
    for key in monomials:
        if len(key) == 1 and key[0].op is Ops.FLOORDIV:
            low_too, high_too = _bounds_without(key[0], monomials)
            return max(low, low_too), min(high, high_too)
    return low, high


@functools.lru_cache(maxsize=1024)
def _exact_bounds(size: UOp) -> tuple[int, int] | None:
    """Bounds by trying all values of the variables, if they are not too many: 9*n - n*n is 0 or more for n up to 9."""
    names = {n.arg[0]: n for n in size.toposort() if n.op is Ops.VARIABLE}
    if prod([n.arg[2] - n.arg[1] + 1 for n in names.values()]) > MOST_TRIED:
        return None
    free = size.substitute({n: n.src[0] for n in size.toposort() if n.op is Ops.BIND})
    spans = [range(n.arg[1], n.arg[2] + 1) for n in names.values()]
    parts = list(_monomials(free).items())
    found = []
    for chosen in itertools.product(*spans):
        values = dict(zip(names, chosen))
        found.append(sum([c * prod([_value_at(p, values) for p in key]) for key, c in parts]))
    return min(found), max(found)


def _value_at(part: UOp, values: dict[str, int]) -> int:
    if part.op is Ops.FLOORDIV:
        inner = _monomials(part.src[0]).items()
        whole = sum([c * prod([_value_at(p, values) for p in key]) for key, c in inner])
        return whole // int(part.src[1].arg)
    return values[part.arg[0]]


def _bounds_without(quotient: UOp, monomials: _Monomials) -> tuple[int, int]:
    """Bounds of a sum by the bounds of `by` times it, in which by * floor(r / by) is r less 0 .. by - 1."""
    by = quotient.src[1].arg
    count = monomials[quotient,]
    scaled = {key: by * n for key, n in monomials.items() if key != (quotient,)}
    for key, n in _monomials(quotient.src[0]).items():
        scaled[key] = scaled.get(key, 0) + count * n
    low, high = _bounds_of_sum({key: n for key, n in scaled.items() if n})
    slack = count * (by - 1)
    return -((max(0, slack) - low) // by), (high + max(0, -slack)) // by


def _bounds_of_atom(part: UOp) -> tuple[int, int]:
    match part.op:
        case Ops.BIND:
            return _bounds_of_atom(part.src[0])
        case Ops.FLOORDIV:
            least, most = _bounds(part.src[0])
            by = part.src[1].arg
            return least // by, most // by
    return part.arg[1], part.arg[2]


def unbound(arg: Any, values: dict[str, int]) -> Any:
    """`arg` of a node with variables in place of their values, which go into `values`.

    A variable that has other values in one graph is a variable of its own for each: n, n@2, n@3.
    """
    if isinstance(arg, UOp):
        changes = {
            node: _variable_of(*unbind(node), values)
            for node in arg.toposort()
            if node.op is Ops.BIND
        }
        return normal(arg.substitute(changes)) if changes else arg
    if type(arg) is tuple:
        return tuple([unbound(part, values) for part in arg])
    return arg


def _variable_of(variable: UOp, value: int, values: dict[str, int]) -> UOp:
    """The variable, or its namesake, that has this value."""
    name, least, most = variable.arg
    found = name
    for number in itertools.count(2):
        if values.setdefault(found, value) == value:
            break
        found = f"{name}@{number}"
    return UOp(Ops.VARIABLE, dtypes.index, (), (found, least, most))


def are_bound_to(arg: Any, variables: Any, values: dict[str, int]) -> bool:
    """Is `variables`, an argument of a node, `arg` with variables in place of these values? So is what `unbound` makes."""
    if type(arg) is tuple and type(variables) is tuple and len(arg) == len(variables):
        return all([are_bound_to(a, v, values) for a, v in zip(arg, variables)])
    if not isinstance(arg, UOp) and not isinstance(variables, UOp):
        return bool(arg == variables)
    changes = {}
    below = variables.toposort() if isinstance(variables, UOp) else ()
    for node in below:
        if node.op is Ops.VARIABLE and node.arg[0] in values:
            name, least, most = node.arg
            own = UOp(Ops.VARIABLE, dtypes.index, (), (name.split("@")[0], least, most))
            changes[node] = bind(own, values[name])
    return bool(normal(arg) == normal(variables.substitute(changes) if below else variables))


def has_other_value(name: str) -> bool:
    """Is this the name of a variable that has another value beside: see `unbound`."""
    return "@" in name


def bound(shape: tuple[Any, ...], values: dict[str, int]) -> tuple[Any, ...]:
    """Sizes with the variables of these names bound to other values."""
    return _bound(shape, tuple(values.items()))


@functools.lru_cache(maxsize=1024)
def _bound(shape: tuple[Any, ...], named: tuple[tuple[str, int], ...]) -> tuple[Any, ...]:
    found, values = [], dict(named)
    for size in shape:
        if isinstance(size, UOp):
            old = [node for node in size.toposort() if node.op is Ops.BIND]
            changes = {node: bind(node.src[0], values[node.src[0].arg[0]]) for node in old}
            size = normal(size.substitute(changes))
        found.append(size)
    return tuple(found)


def value_of_shape(shape: Sequence[Any]) -> tuple[int, ...]:
    """The numbers that the sizes of a shape are."""
    return tuple([value_of(size) for size in shape])
