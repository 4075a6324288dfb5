"""UOp, the one node type of every graph: immutable, hash-consed, with one meaning for each op.

Owns: construction, shapes of tensor nodes, walks, substitution, operator sugar. Does not own:
which graphs are legal (core/compile/passes/forms.py), values (evaluate.py), text (text.py), rewriting (core/rewrite).
"""

from __future__ import annotations

import enum
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Number
from operator import attrgetter
from typing import Any, TypeVar
from weakref import ref

from proofgrad.core.ir.dtypes import DType, as_constant, dtypes
from proofgrad.core.ir.op_names import ADD, CONST, MUL, RANGE, SINK
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import TENSOR_SHAPES, Shape, ShapeError, show, tensor_shape

_T = TypeVar("_T")


class AxisRole(enum.Enum):
    """How a loop runs. Chosen by a heuristic; every choice computes the same values."""

    LOOP = "loop"  # one after the other
    REDUCE = "reduce"  # one after the other, feeding an accumulator, or memory that a STORE adds to
    THREAD = "thread"  # shared out over CPU threads: the kernel gets its first and last value
    GLOBAL = "global"  # one GPU work item a value
    BLOCK = "block"  # one group of work items a value
    LANE = "lane"  # shared out among the items of a group, which wait for each other where they read what it keeps
    AHEAD = "ahead"  # over parts of memory of a group: in the first iteration of the loop around both are filled, then the next one
    VECTOR = "vector"  # the lanes of vector registers
    UPCAST = "upcast"  # unrolled into separate registers

    def __repr__(self) -> str:
        return f"AxisRole.{self.name}"


class _Parts:
    """A node while it is made: its fields can be set. Then it becomes a UOp."""

    __slots__ = (
        *("__weakref__", "arg", "below", "coefficients", "counters", "dtype", "loops", "op"),
        *("shape", "src"),
    )
    op: Ops
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    shape: Shape
    below: list[UOp]  # of a SINK that was walked: the nodes below it, sources first
    # Of a node that was asked, but for a RANGE, which would hold itself:
    counters: frozenset[UOp]  # the RANGEs below it
    loops: frozenset[UOp]  # those that its value depends on
    coefficients: dict[Any, int | None]  # how it changes with them (core/compile/nests/strides.py)


class UOp(_Parts):
    """A node. `UOp(op, dtype, src, arg)` twice with the same parts is the same object.

    `shape` is the shape of a tensor node; scalars and kernel-level nodes have the shape ().
    """

    __slots__ = ()

    def __new__(
        cls, op: Ops, dtype: DType = dtypes.void, src: tuple[UOp, ...] = (), arg: Any = None
    ) -> UOp:
        key = (op, dtype, src, _key(arg) if op is CONST else arg)
        known = _NODES.get(key)
        if known is not None:
            node = known()
            if node is not None:
                return node
        shape: Shape = ()
        if op in ELEMENTWISE:
            shape = src[0].shape
            for other in src:
                if other.shape != shape:
                    raise _different_shapes(op, src)
        elif op in TENSOR_SHAPES:
            shapes = (src[0].shape,) if len(src) == 1 else tuple([s.shape for s in src])
            shape = tensor_shape(op, shapes, arg)
        return fresh_node(op, dtype, src, arg, shape, key)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a UOp is immutable; cannot set {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (UOp, (self.op, self.dtype, self.src, self.arg))

    def __repr__(self) -> str:
        """The graph as text that reads as Python; of a size as people write it: n, n=3, 2*n+1."""
        if self.dtype is dtypes.index and self.op is not CONST:
            from proofgrad.core.ir.sizes import is_size, show_size

            if is_size(self):
                return show_size(self)
        from proofgrad.core.ir.text import show_uop

        return show_uop(self)

    def __bool__(self) -> bool:
        """True, but of a comparison of sizes, as in `if n > 2:`, what holds for all values of the variables.

        Raises: TypeError if it depends on the value; `n.val > 2` asks for the one that n is bound to.
        """
        if self.op in COMPARE and self.src[0].dtype is dtypes.index:
            from proofgrad.core.ir.sizes import truth

            return truth(self)
        return True

    # -- construction ---------------------------------------------------------------------------

    @staticmethod
    def const(dtype: DType, value: Any) -> UOp:
        """The constant `value` of the scalar type `dtype`. Raises: OverflowError."""
        return UOp(CONST, dtype, (), as_constant(value, dtype))

    @staticmethod
    def index(value: int) -> UOp:
        """A constant of type `index`, a mathematical integer."""
        return UOp(CONST, dtypes.index, (), value)

    @staticmethod
    def range(
        size: int | UOp, number: int, role: Any = AxisRole.LOOP, *, axis_type: Any = None
    ) -> UOp:
        """The counter of a loop over 0 .. size-1; `number` tells loops of a kernel apart.

        `axis_type`, or another `role` than an AxisRole, is what users write; it says nothing here.
        """
        role = role if isinstance(role, AxisRole) else AxisRole.LOOP
        bound = UOp.index(size) if isinstance(size, int) else size
        return UOp(Ops.RANGE, dtypes.index, (bound,), (number, role))

    @staticmethod
    def sink(*roots: UOp, arg: Any = None) -> UOp:
        """One node over all `roots`, so that they are one graph."""
        return UOp(Ops.SINK, dtypes.void, roots, arg)

    @staticmethod
    def group(*writes: Any) -> Any:
        """Several writes of a kernel that a user writes, as one: see `Tensor.custom_kernel`."""
        from proofgrad.core.ir.positions import Program, writes_of

        return Program(writes_of(writes))

    @staticmethod
    def placeholder(shape: Shape, dtype: DType, slot: int, addrspace: Any = None) -> Any:
        """A place of its own for a kernel that a user writes: see `Tensor.custom_kernel`."""
        from proofgrad.core.ir.positions import Position

        return Position(("own", slot), dtype, tuple(shape))

    def alu(self, op: Ops, *others: UOp) -> UOp:
        """`op` applied to this node and `others`; comparisons give bools of the same lanes."""
        src = (self, *others)
        dtype = dtypes.bool.vec(self.dtype.lanes) if op in COMPARE else src[-1].dtype
        return UOp(op, dtype, src)

    def cast(self, dtype: DType) -> UOp:
        """The value converted to `dtype`; the node itself if it has that type."""
        return self if self.dtype is dtype else UOp(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        """The same bits read as `dtype`; the node itself if it has that type."""
        return self if self.dtype is dtype else UOp(Ops.BITCAST, dtype, (self,))

    def const_like(self, value: Any) -> UOp:
        """The constant `value` with the type of this node, in every lane."""
        constant = UOp.const(self.dtype.scalar, value)
        return constant if self.dtype.lanes == 1 else UOp(Ops.BROADCAST, self.dtype, (constant,))

    def replace(self, **parts: Any) -> UOp:
        """This node with some of op, dtype, src, arg exchanged."""
        return UOp(
            parts.get("op", self.op),
            parts.get("dtype", self.dtype),
            parts.get("src", self.src),
            parts.get("arg", self.arg),
        )

    def with_src(self, src: tuple[UOp, ...]) -> UOp:
        """The same operation on other sources; the node itself if they are its own."""
        return self if src == self.src else UOp(self.op, self.dtype, src, self.arg)

    # -- operators (scalars and index terms; Tensor has its own) ----------------------------------

    def _operand(self, other: Any) -> UOp:
        return other if isinstance(other, UOp) else self.const_like(other)

    def __neg__(self) -> UOp:
        return self.alu(Ops.NEG)

    def __invert__(self) -> UOp:
        return self.alu(Ops.NOT)

    def __add__(self, other: Any) -> UOp:
        return self.alu(ADD, self._operand(other)) if _is_operand(other) else NotImplemented

    def __radd__(self, other: Any) -> UOp:
        return self._operand(other).alu(Ops.ADD, self)

    def __sub__(self, other: Any) -> UOp:
        if not _is_operand(other):
            return NotImplemented
        return self.alu(Ops.ADD, self._operand(other).alu(Ops.NEG))

    def __rsub__(self, other: Any) -> UOp:
        return self._operand(other) - self

    def __mul__(self, other: Any) -> UOp:
        return self.alu(MUL, self._operand(other)) if _is_operand(other) else NotImplemented

    def __rmul__(self, other: Any) -> UOp:
        return self._operand(other).alu(Ops.MUL, self)

    def __truediv__(self, other: Any) -> UOp:
        return self.alu(Ops.FDIV, self._operand(other)) if _is_operand(other) else NotImplemented

    def __floordiv__(self, other: Any) -> UOp:
        return (
            self.alu(Ops.FLOORDIV, self._operand(other)) if _is_operand(other) else NotImplemented
        )

    def __rfloordiv__(self, other: Any) -> UOp:
        return self._operand(other).alu(Ops.FLOORDIV, self)

    def __rmod__(self, other: Any) -> UOp:
        return self._operand(other).alu(Ops.MOD, self)

    def __mod__(self, other: Any) -> UOp:
        return self.alu(Ops.MOD, self._operand(other)) if _is_operand(other) else NotImplemented

    def __and__(self, other: Any) -> UOp:
        return self.alu(Ops.AND, self._operand(other))

    def __or__(self, other: Any) -> UOp:
        return self.alu(Ops.OR, self._operand(other))

    def __xor__(self, other: Any) -> UOp:
        return self.alu(Ops.XOR, self._operand(other))

    def __lshift__(self, other: Any) -> UOp:
        return self.alu(Ops.SHL, self._operand(other))

    def __rshift__(self, other: Any) -> UOp:
        return self.alu(Ops.SHR, self._operand(other))

    def __lt__(self, other: Any) -> UOp:
        return self.alu(Ops.CMPLT, self._operand(other)) if _is_operand(other) else NotImplemented

    def __gt__(self, other: Any) -> UOp:
        return self._operand(other).alu(Ops.CMPLT, self) if _is_operand(other) else NotImplemented

    def __ge__(self, other: Any) -> UOp:
        """Of sizes and other whole numbers."""
        return self._operand(other) < self + 1 if _is_operand(other) else NotImplemented

    def __le__(self, other: Any) -> UOp:
        """Of sizes and other whole numbers."""
        return self < self._operand(other) + 1 if _is_operand(other) else NotImplemented

    def eq(self, other: Any) -> UOp:
        """self == other, as a node (`==` itself asks whether two nodes are the same object)."""
        return self.alu(Ops.CMPEQ, self._operand(other))

    def maximum(self, other: Any) -> UOp:
        """The larger of two values, element by element."""
        return self.alu(Ops.MAX, self._operand(other))

    def minimum(self, other: Any) -> UOp:
        """The smaller of two values, element by element."""
        return self.alu(Ops.MIN, self._operand(other))

    @staticmethod
    def variable(
        name: str,
        min_val: int,
        max_val: int,
        dtype: DType | str = dtypes.index,
        multiple_of: int = 1,
    ) -> UOp:
        """`Variable(name, min_val, max_val)`."""
        from proofgrad.core.ir.sizes import variable

        return variable(name, min_val, max_val, dtype, multiple_of)

    def bind(self, value: int) -> UOp:
        """This variable with a value, for shapes. Raises: ValueError if it is out of bounds."""
        from proofgrad.core.ir.sizes import bind

        return bind(self, value)

    def unbind(self) -> tuple[UOp, int]:
        """The variable that is bound here, and its value. Raises: ValueError for anything else."""
        from proofgrad.core.ir.sizes import unbind

        return unbind(self)

    @property
    def val(self) -> int:
        """The value of a bound variable, or of a size made of such. Raises: ValueError if one has none."""
        from proofgrad.core.ir.sizes import value_of

        return value_of(self)

    def __int__(self) -> int:
        """Raises: TypeError, for what is made of a number of Python is made for that alone."""
        raise TypeError(
            f"{self!r} is a value that is known when a plan runs; ask .val for what is bound now"
        )

    __float__ = __int__

    @property
    def vmin(self) -> int:
        """The least value of a size made of variables."""
        from proofgrad.core.ir.sizes import smallest

        return smallest(self)

    @property
    def vmax(self) -> int:
        """The greatest value of a size made of variables."""
        from proofgrad.core.ir.sizes import largest

        return largest(self)

    def where(self, if_true: UOp, if_false: UOp) -> UOp:
        """`if_true` where this bool is true, else `if_false`."""
        return self.alu(Ops.WHERE, if_true, if_false)

    # -- walks ----------------------------------------------------------------------------------

    def toposort(self, enter: Callable[[UOp], bool] | None = None) -> list[UOp]:
        """Every node below and including this one, sources first; `enter(node)` false stops."""
        return toposort((self,), enter)

    def substitute(self, changes: Mapping[UOp, UOp]) -> UOp:
        """This graph with each key of `changes` exchanged for its value (not repeated)."""
        done: dict[UOp, UOp] = dict(changes)
        for node in self.toposort(lambda n: n not in changes):
            if node not in done:
                src = tuple([done[s] for s in node.src])
                done[node] = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        return done[self]


class _Reference(ref[UOp]):
    """To a live node, with its key. What WeakValueDictionary does in Python, C does here."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_NODES: dict[tuple[Any, ...], _Reference] = {}


def fresh_node(
    op: Ops,
    dtype: DType,
    src: tuple[UOp, ...],
    arg: Any,
    shape: Shape,
    key: tuple[Any, ...] | None = None,
) -> UOp:
    """A node that is not there yet, for its number or a source of it was just made.

    The caller says the shape, and has checked what the constructor checks. Another thread may be
    faster: then it is its node.
    """
    parts = _Parts()
    parts.op, parts.dtype, parts.src, parts.arg, parts.shape = op, dtype, src, arg, shape
    parts.__class__ = UOp
    node: UOp = parts  # type: ignore[assignment]
    if key is None:
        key = (op, dtype, src, arg)
    reference = _Reference(node, _forget)
    reference.key = key
    while True:
        known = _NODES.setdefault(key, reference)
        if known is reference:
            return node
        other = known()
        if other is not None:
            return other
        _remove_dead_weakref(_NODES, key)


def _forget(reference: _Reference) -> None:
    _remove_dead_weakref(_NODES, reference.key)  # unless the key has a live node again


def _is_operand(other: Any) -> bool:
    """Whether a node is combined with it; a Tensor has operators of its own."""
    return isinstance(other, (UOp, Number))


def toposort(roots: Iterable[UOp], enter: Callable[[UOp], bool] | None = None) -> list[UOp]:
    """Every node below and including `roots`, sources first, without recursion."""
    if enter is None and type(roots) is tuple and len(roots) == 1 and roots[0].op is SINK:
        return [*_below(roots[0]), roots[0]]
    return _in_order(roots, enter)


def _below(root: UOp) -> list[UOp]:
    """What is below a whole graph, found once: dozens of tactics walk through the same one."""
    try:
        return root.below
    except AttributeError:
        found = _in_order(root.src, None)
        _set_below(root, found)
        return found


def _in_order(roots: Iterable[UOp], enter: Callable[[UOp], bool] | None) -> list[UOp]:
    order: dict[UOp, None] = {}
    stack: list[tuple[UOp, Iterator[UOp]]] = []  # nodes that wait for a source, and those left
    top = iter(roots)
    while True:
        for node in top:
            if node in order:
                continue
            src = node.src
            if src and (enter is None or enter(node)):
                stack.append((node, top))
                top = iter(src)
                break
            order[node] = None
        else:
            if not stack:
                return list(order)
            node, top = stack.pop()
            order[node] = None


_set_below = _Parts.below.__set__  # type: ignore[attr-defined]
_set_coefficients = _Parts.coefficients.__set__  # type: ignore[attr-defined]
_Found = Callable[["UOp"], frozenset["UOp"]]


def found_once(slot: str, find: _Found) -> _Found:
    """A function of nodes, kept on each: `find` of a node may ask it of the sources. Of a RANGE it is that RANGE.

    Schedules ask the same terms thousands of times.
    """
    keep = getattr(_Parts, slot).__set__  # a UOp itself cannot be changed

    def of(root: UOp) -> frozenset[UOp]:
        if root.op is RANGE:
            return frozenset((root,))
        known: frozenset[UOp] | None = getattr(root, slot, None)
        return find_below(root) if known is None else known

    def find_below(root: UOp) -> frozenset[UOp]:
        stack = [root]
        while True:
            node = stack[-1]
            new = [s for s in node.src if s.op is not RANGE and not hasattr(s, slot)]
            if new:
                stack += new
                continue
            found = find(node)
            keep(node, found)
            stack.pop()
            if not stack:
                return found

    return of


def coefficients_of(node: UOp) -> dict[Any, int | None]:
    """What was found of how a node changes with its loops, kept on it as what is `found_once`."""
    try:
        return node.coefficients
    except AttributeError:
        _set_coefficients(node, {})
        return node.coefficients


def _counters_of_sources(node: UOp) -> frozenset[UOp]:
    found: frozenset[UOp] = frozenset()
    for source in node.src:
        more = counters_in(source)
        if not more <= found:
            found = found | more if found else more
    return found


counters_in = found_once("counters", _counters_of_sources)


def known_below(
    root: UOp,
    known: dict[UOp, _T],
    find: Callable[[UOp], _T],
    sources: Callable[[UOp], Iterable[UOp]] = attrgetter("src"),
) -> _T:
    """What is known of `root`: found once for each node, for its `sources` first, without recursion."""
    if root in known:
        return known[root]
    node, left = root, iter(sources(root))
    stack: list[tuple[UOp, Iterator[UOp]]] = []  # nodes that wait for a source, and those left
    while True:
        for source in left:
            if source not in known:
                stack.append((node, left))
                node, left = source, iter(sources(source))
                break
        else:
            if node not in known:  # what `find` asks meanwhile
                known[node] = find(node)
            if not stack:
                return known[root]
            node, left = stack.pop()


def _key(arg: Any) -> Any:
    """Constants by value and sign and type: 0.0, -0.0, 0 and False are four; NaN is one."""
    if isinstance(arg, tuple):
        return tuple([_key(a) for a in arg])
    return (type(arg), arg.hex()) if type(arg) is float else (type(arg), arg)


def _different_shapes(op: Ops, src: tuple[UOp, ...]) -> ShapeError:
    shapes = ", ".join(show(s.shape) for s in src)
    return ShapeError(f"{op.name.lower()} of different shapes: {shapes}")


def is_of_group(loops: Iterable[UOp]) -> bool:
    """Whether what is kept along these loops is memory of a group: its items share one of them out."""
    return any([loop.arg[1] is AxisRole.LANE for loop in loops])
