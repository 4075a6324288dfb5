"""What a scalar term of a kernel is to the solver, and its values in plain integers.

Owns: z3 terms of index terms, masks and values, and the same of index terms as numpy arrays. Loops
are integers within their sizes; machine integers wrap; memory, and operations on floats, are
functions of which nothing is known. Does not own: which claims are made (kernels/match.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import z3

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.encode.semantics import ON_INTEGERS

Term = Any  # z3.ExprRef; z3 ships no types
Interval = tuple[int, int]
Points = dict[str, Any]  # the values of each loop, one array each

# The numbers of the loop that stands for the lanes of vectors, and of those over all elements of a result.
LANE, DIGITS = 1 << 30, 1 << 31
BOUND_LANE = 1 << 24  # what those of reductions over lanes lie apart

# Beyond it values are not computed with 64-bit integers.
EXACT_LIMIT = 1 << 62


def loop_name(loop: UOp) -> str:
    """The name of a RANGE in questions and counterexamples."""
    number = loop.arg[0]
    if number == LANE:
        return "lane"
    return f"digit{number - DIGITS}" if number >= DIGITS else f"r{number}"


def is_of_lanes(loop: UOp) -> bool:
    """Whether a loop is that of a reduction over lanes."""
    number: int = loop.arg[0]
    return LANE + BOUND_LANE <= number < DIGITS


def loads_below(node: UOp) -> list[UOp]:
    """The loads that a term is made of, each after those that it needs."""
    return [n for n in toposort((node,)) if n.op is Ops.LOAD]


def loop_size(loop: UOp) -> int:
    """The number of iterations of a loop whose size is a constant. Raises: ValueError for one that loops around bound."""
    size = loop.src[0]
    if size.op is not Ops.CONST:
        raise ValueError(f"{loop_name(loop)} ends where loops around say")
    count: int = size.arg
    return count


def is_counted(loop: UOp) -> bool:
    """Whether the number of iterations is a constant."""
    return loop.src[0].op is Ops.CONST


def most_iterations(loop: UOp) -> int:
    """The number of iterations; of a loop that others bound, the greatest that intervals show."""
    if is_counted(loop):
        return loop_size(loop)
    _, most = Terms().interval(loop.src[0]) or (0, EXACT_LIMIT)
    return most


def is_integer(dtype: DType) -> bool:
    """Whether the solver sees the type as an Int: an index or a machine integer."""
    return dtype.kind in (Kind.INDEX, Kind.SIGNED, Kind.UNSIGNED)


def loops_of(nodes: Iterable[UOp]) -> list[UOp]:
    """Every RANGE below `nodes`, one for each name."""
    found = {loop_name(n): n for n in toposort(nodes) if n.op is Ops.RANGE}
    return list(found.values())


def is_known(node: UOp) -> bool:
    """Whether a node says what it makes of integers and bools: loops, constants, and operations on them."""
    return node.op in _PLAIN and all(
        is_integer(n.dtype) or n.dtype.is_bool for n in (node, *node.src)
    )


def width_limits(dtype: DType) -> Interval | None:
    """The ends of a machine integer type; None for index terms, which have none."""
    if dtype.lo is None or dtype.hi is None or not is_integer(dtype):
        return None
    return dtype.lo, dtype.hi


class Terms:
    """The terms of one kernel, each made once."""

    def __init__(self) -> None:
        self._terms: dict[UOp, Term] = {}
        self._intervals: dict[UOp, Interval | None] = {}
        self._plain: dict[UOp, bool] = {}
        self._opaque: dict[UOp, str] = {}
        self._sizes: dict[UOp, int] = {}
        self._computable: dict[UOp, bool] = {}

    # -- kinds ----------------------------------------------------------------------------------

    def is_plain(self, node: UOp) -> bool:
        """Made of loops and integers only, so that it can be computed."""
        if node not in self._plain:
            for n in toposort((node,), lambda n: n not in self._plain):
                if n not in self._plain:
                    self._plain[n] = is_known(n) and all(self._plain[s] for s in n.src)
        return self._plain[node]

    def size(self, node: UOp) -> int:
        """How many nodes a term has."""
        if node not in self._sizes:
            self._sizes[node] = len(node.toposort())
        return self._sizes[node]

    # -- intervals ------------------------------------------------------------------------------

    def interval(self, node: UOp) -> Interval | None:
        """Where the integer `node` lies before it wraps, by its sources; None: unknown."""
        if node not in self._intervals:
            for n in toposort((node,), lambda n: n not in self._intervals):
                if n not in self._intervals:
                    self._intervals[n] = self._interval_of(n)
        return self._intervals[node]

    def number(self, node: UOp) -> UOp:
        """An integer without casts that keep its value, whatever it is."""
        while node.op is Ops.CAST and is_integer(node.dtype) and is_integer(node.src[0].dtype):
            self.interval(node.src[0])
            found, limits = self._wrapped(node.src[0]), width_limits(node.dtype)
            if limits is not None and (found is None or not _inside(found, limits)):
                break
            node = node.src[0]
        return node

    def _wrapped(self, node: UOp) -> Interval | None:
        """As `interval`, after wrapping to the type of the node."""
        found, limits = self._intervals[node], width_limits(node.dtype)
        if limits is None or (found is not None and _inside(found, limits)):
            return found
        return limits

    def _interval_of(self, node: UOp) -> Interval | None:
        if node.dtype.is_bool:
            return 0, 1
        if not is_integer(node.dtype):
            return None
        match node.op:
            case Ops.CONST:
                return node.arg, node.arg
            case Ops.RANGE:
                size = self._wrapped(node.src[0])
                return None if size is None else (0, max(size[1] - 1, 0))
            case Ops.CAST if is_integer(node.src[0].dtype) or node.src[0].dtype.is_bool:
                return self._wrapped(node.src[0])
        make = _INTERVALS.get(node.op)
        parts = [self._wrapped(s) for s in node.src] if make is not None else []
        known = [p for p in parts if p is not None]
        if make is None or len(known) < len(parts):
            return width_limits(node.dtype) if make is None else None
        if node.op in (Ops.SHL, Ops.SHR) and not _inside(known[1], (0, node.dtype.bits - 1)):
            return None
        return make(*known) or width_limits(node.dtype)

    # -- z3 -------------------------------------------------------------------------------------

    def term(self, node: UOp) -> Term:
        """The z3 term of a scalar node."""
        if node not in self._terms:
            self.interval(node)
            for n in toposort((node,), lambda n: n not in self._terms):
                if n not in self._terms:
                    self.interval(n)
                    self._terms[n] = self._term_of(n)
        return self._terms[node]

    def constraints(self, nodes: Iterable[UOp]) -> list[Term]:
        """Loops lie within their sizes, elements of memory within their types."""
        found: list[Term] = []
        for node in toposort(nodes):
            if node.op is Ops.RANGE:
                found += [self.term(node) >= 0, self.term(node) < self.term(node.src[0])]
            elif node.op in (Ops.LOAD, Ops.REDUCE) and is_integer(node.dtype):
                low, high = width_limits(node.dtype) or (0, 0)
                found += [self.term(node) >= low, self.term(node) <= high]
        return found

    def _term_of(self, node: UOp) -> Term:
        match node.op:
            case Ops.CONST:
                return _constant(node)
            case Ops.RANGE:
                return z3.Int(loop_name(node))
            case Ops.PARAM | Ops.INDEX | Ops.LOCAL_BUFFER:
                return None
            case Ops.LOAD if node.src[0].src[0].op is Ops.PARAM:
                return self._load(node)
            case Ops.LOAD | Ops.REDUCE:
                return self._unknown(node, self.name(node), loops_of((node,)))
            case Ops.CAST if all(
                [is_integer(n.dtype) or n.dtype.is_bool for n in (node, node.src[0])]
            ):
                return self._cast(node)
            case Ops.WHERE:
                return z3.If(*[self._terms[s] for s in node.src])
        if node.src[0].dtype.is_bool or is_integer(node.src[0].dtype):
            known = (_ON_BOOLS if node.src[0].dtype.is_bool else _ON_INTEGERS).get(node.op)
            value = None if known is None else known(*[self._terms[s] for s in node.src])
            if value is not None:
                return value if node.dtype.is_bool else self._wrap(node, value)
            shifted = self._bits(node) if is_integer(node.dtype) else None
            if shifted is not None:
                return self._wrap(node, shifted)
        return self._unknown(node, f"{node.op.name}.{node.dtype.name}.{node.arg}", node.src)

    def name(self, node: UOp) -> str:
        """What a reduction, or an element of memory that a kernel keeps, is called."""
        return self._opaque.setdefault(node, f"reduction{len(self._opaque)}")

    def _unknown(self, node: UOp, name: str, sources: Iterable[UOp]) -> Term:
        """A value of which only this is known: equal sources give equal values."""
        sources = list(sources)
        terms = [self.term(s) for s in sources]
        function = z3.Function(
            ".".join([name, *[str(t.sort()) for t in terms]]),
            *[t.sort() for t in terms],
            _sort(node.dtype),
        )
        return function(*terms)

    def _load(self, node: UOp) -> Term:
        position = node.src[0]
        memory = z3.Function(f"buffer{position.src[0].arg[0]}", z3.IntSort(), _sort(node.dtype))
        element = memory(self._terms[position.src[1]])
        if len(position.src) < 3:
            return element
        return z3.If(self._terms[position.src[2]], element, _zero(node.dtype))

    def _cast(self, node: UOp) -> Term:
        source, value = node.src[0].dtype, self._terms[node.src[0]]
        if source.is_bool:
            return value if node.dtype.is_bool else z3.If(value, z3.IntVal(1), z3.IntVal(0))
        return value != 0 if node.dtype.is_bool else self._wrap(node, value)

    def _wrap(self, node: UOp, value: Term) -> Term:
        limits, found = width_limits(node.dtype), self._intervals[node]
        if limits is None or (found is not None and _inside(found, limits)):
            return value
        low, high = limits
        return (value - low) % (high - low + 1) + low

    def _bits(self, node: UOp) -> Term | None:
        """Shifts by constants, and masks of bits that are constants and not negative."""
        if len(node.src) != 2 or node.src[1].op is not Ops.CONST:
            return None
        value, number = self._terms[node.src[0]], node.src[1].arg
        match node.op:
            case Ops.SHL if 0 <= number < node.dtype.bits:
                return value * (1 << number)
            case Ops.SHR if 0 <= number < node.dtype.bits:
                return value / (1 << number)
            case Ops.AND if number > 0:
                blocks = [value / (1 << k) % (1 << n) * (1 << k) for k, n in _blocks(number)]
                return z3.Sum(blocks) if len(blocks) > 1 else blocks[0]
            case Ops.AND if number == 0:
                return z3.IntVal(0)
        return None

    # -- numbers --------------------------------------------------------------------------------

    def is_computable(self, node: UOp) -> bool:
        """Plain, and small enough for 64-bit integers at every step."""
        if node not in self._computable:
            for n in toposort((node,), lambda n: n not in self._computable):
                if n not in self._computable:
                    below = all([self._computable[s] for s in n.src])
                    self._computable[n] = below and is_known(n) and self.is_exact(n)
        return self._computable[node]

    def is_exact(self, node: UOp) -> bool:
        """Whether 64-bit integers hold a value, and what becomes of it when it wraps."""
        found, limits = self.interval(node), width_limits(node.dtype)
        if found is None or not _inside(found, (-EXACT_LIMIT, EXACT_LIMIT)):
            return False
        return limits is None or _inside(found, limits) or limits[1] <= EXACT_LIMIT

    def values(self, node: UOp, points: Points) -> Any:
        """The value of a computable node at each point."""
        self.interval(node)
        done: dict[UOp, Any] = {}
        for n in toposort((node,)):
            done[n] = self.value_of(n, [done[s] for s in n.src], points)
        return done[node]

    def value_of(self, node: UOp, src: list[Any], points: Points) -> Any:
        """What an operation on integers and bools makes of the values `src`."""
        match node.op:
            case Ops.CONST:
                return numpy.bool_(node.arg) if node.dtype.is_bool else numpy.int64(node.arg)
            case Ops.RANGE:
                return points[loop_name(node)]
            case Ops.WHERE:
                return numpy.where(*src)
            case Ops.CAST if node.dtype.is_bool:
                return src[0] != 0
            case Ops.CAST:
                value = numpy.asarray(src[0]).astype(numpy.int64)
            case op if node.src[0].dtype.is_bool and op not in _ON_BOOLS:
                raise KeyError(op)
            case op:
                value = _VALUES[op](*src)
        limits, found = width_limits(node.dtype), self._intervals[node]
        if node.dtype.is_bool or limits is None or (found and _inside(found, limits)):
            return value
        low, high = limits
        return (value - low) % (high - low + 1) + low


def _inside(inner: Interval, outer: Interval) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _sort(dtype: DType) -> Any:
    if dtype.is_bool:
        return z3.BoolSort()
    return z3.IntSort() if is_integer(dtype) else z3.DeclareSort(f"values of {dtype.name}")


def _constant(node: UOp) -> Term:
    if node.dtype.is_bool:
        return z3.BoolVal(node.arg)
    if is_integer(node.dtype):
        return z3.IntVal(node.arg)
    return z3.Const(f"{node.dtype.name} {float(node.arg).hex()}", _sort(node.dtype))


def _zero(dtype: DType) -> Term:
    return _constant(UOp.const(dtype, False if dtype.is_bool else 0))


# A machine integer is one that wraps (see `_wrap`), so it has a complement.
_ON_INTEGERS = {**ON_INTEGERS, Ops.NOT: lambda x: -x - 1}
_ON_BOOLS: dict[Ops, Callable[..., Term]] = {
    Ops.AND: z3.And,
    Ops.OR: z3.Or,
    Ops.XOR: z3.Xor,
    Ops.NOT: z3.Not,
    Ops.CMPEQ: lambda x, y: x == y,
    Ops.CMPLT: lambda x, y: z3.And(z3.Not(x), y),
}


def _blocks(number: int) -> Iterator[tuple[int, int]]:
    """The bits that are 1, in runs: the first of each, and how many."""
    first = 0
    while number >> first:
        rest = number >> first
        first += (rest & -rest).bit_length() - 1
        count = (~(number >> first) & ((number >> first) + 1)).bit_length() - 1
        yield first, count
        first += count


def _corners(op: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    def interval(x: Interval, y: Interval) -> Interval:
        ends = [op(a, b) for a in x for b in y]
        return min(ends), max(ends)

    return interval


def _floordiv_interval(x: Interval, y: Interval) -> Interval | None:
    """Of a divisor that is a positive constant, or of anything that shrinks."""
    if y[0] == y[1] and y[0] > 0:
        return x[0] // y[0], x[1] // y[0]
    size = max(abs(x[0]), abs(x[1]))
    return -size, size


def _mod_interval(x: Interval, y: Interval) -> Interval:
    if y[0] > 0:
        return 0, y[1] - 1
    size = max(abs(y[0]), abs(y[1]))
    return -size, size


def _truncmod_interval(x: Interval, y: Interval) -> Interval:
    size = max(abs(y[0]), abs(y[1]))
    return (0 if x[0] >= 0 else -size), (0 if x[1] <= 0 else size)


def _truncdiv_interval(x: Interval, y: Interval) -> Interval:
    if y[0] == y[1] and y[0] > 0:
        low, high = [-(-end // y[0]) if end < 0 else end // y[0] for end in x]
        return low, high
    size = max(abs(x[0]), abs(x[1]))
    return -size, size


def _and_interval(x: Interval, y: Interval) -> Interval | None:
    """Below either operand that is not negative."""
    tops = [high for low, high in (x, y) if low >= 0]
    return (0, min(tops)) if tops else None


_INTERVALS: dict[Ops, Callable[..., Interval | None]] = {
    Ops.ADD: lambda x, y: (x[0] + y[0], x[1] + y[1]),
    Ops.MUL: _corners(lambda a, b: a * b),
    Ops.NEG: lambda x: (-x[1], -x[0]),
    Ops.NOT: lambda x: (-x[1] - 1, -x[0] - 1),
    Ops.FLOORDIV: _floordiv_interval,
    Ops.MOD: _mod_interval,
    Ops.TRUNCDIV: _truncdiv_interval,
    Ops.TRUNCMOD: _truncmod_interval,
    Ops.MAX: lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    Ops.MIN: lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    Ops.WHERE: lambda c, x, y: (min(x[0], y[0]), max(x[1], y[1])),
    Ops.MULACC: lambda x, y, z: (
        _corners(lambda a, b: a * b)(x, y)[0] + z[0],
        _corners(lambda a, b: a * b)(x, y)[1] + z[1],
    ),
    Ops.AND: _and_interval,
    Ops.SHL: _corners(lambda a, b: a << b),
    Ops.SHR: _corners(lambda a, b: a >> b),
}


def _by_zero_is_zero(divide: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def total(x: Any, y: Any) -> Any:
        return numpy.where(y == 0, 0, divide(x, numpy.where(y == 0, 1, y)))

    return total


def _truncated(x: Any, y: Any) -> Any:
    quotient = numpy.abs(x) // numpy.abs(y)
    return numpy.where((x < 0) == (y < 0), quotient, -quotient)


_VALUES: dict[Ops, Callable[..., Any]] = {  # of bools, too
    Ops.ADD: numpy.add,
    Ops.MUL: numpy.multiply,
    Ops.NEG: numpy.negative,
    Ops.NOT: numpy.invert,
    Ops.MULACC: lambda x, y, z: x * y + z,
    Ops.FLOORDIV: _by_zero_is_zero(numpy.floor_divide),
    Ops.MOD: _by_zero_is_zero(numpy.mod),
    Ops.TRUNCDIV: _by_zero_is_zero(_truncated),
    Ops.TRUNCMOD: _by_zero_is_zero(lambda x, y: x - _truncated(x, y) * y),
    Ops.MAX: numpy.maximum,
    Ops.MIN: numpy.minimum,
    Ops.AND: numpy.bitwise_and,
    Ops.OR: numpy.bitwise_or,
    Ops.XOR: numpy.bitwise_xor,
    Ops.CMPLT: numpy.less,
    Ops.CMPEQ: numpy.equal,
    Ops.SHL: lambda x, y: numpy.left_shift(x, y),
    Ops.SHR: lambda x, y: numpy.right_shift(x, y),
}
_PLAIN = frozenset({*_VALUES, Ops.CONST, Ops.RANGE, Ops.WHERE, Ops.CAST})
