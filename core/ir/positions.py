"""Kernels that users write: positions to read and write, by the loops around them.

Owns: what a function for `Tensor.custom_kernel` is given and gives back: positions, elements of them, writes, programs. Does not own:
what it means, which is a Tensor program (core/tensor/methods/custom_kernel.py). Values and counters are nodes as everywhere.

A position is a value: a write gives a new one, which knows the write and so the one before it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, ShapeError, show
from proofgrad.core.ir.uop import UOp


class AddrSpace(enum.Enum):
    """Where a position is: in memory, or a value of the kernel's own."""

    GLOBAL = enum.auto()
    LOCAL = enum.auto()
    REG = enum.auto()


class AxisType(enum.Enum):
    """How the writer of a kernel thinks of a loop. The compiler chooses how it runs; only what it computes is taken."""

    GLOBAL = enum.auto()
    LOOP = enum.auto()
    LOCAL = enum.auto()
    REDUCE = enum.auto()
    GROUP_REDUCE = enum.auto()
    UPCAST = enum.auto()
    UNROLL = enum.auto()
    THREAD = enum.auto()
    WARP = enum.auto()


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What a kernel is called. `opts_to_apply` is taken and not obeyed: schedules are the compiler's."""

    name: str = "custom"
    opts_to_apply: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """`value` written to one element for each turn of the loops around; `ended` are the loops that end behind it."""

    position: Position
    index: tuple[UOp, ...]
    value: UOp
    ended: tuple[UOp, ...] = ()

    def end(self, *loops: UOp) -> Write:
        """The write behind the end of these loops."""
        return replace(self, ended=(*self.ended, *loops))

    def sink(self, *others: Any, arg: KernelInfo | None = None) -> Program:
        """The kernel that does this."""
        return Program((self,)).sink(*others, arg=arg)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A kernel: its last writes to each position."""

    writes: tuple[Write, ...]
    info: KernelInfo | None = None

    def end(self, *loops: UOp) -> Program:
        """All writes behind the end of these loops."""
        return replace(self, writes=tuple([write.end(*loops) for write in self.writes]))

    def sink(self, *others: Any, arg: KernelInfo | None = None) -> Program:
        """The kernel that does this and the others."""
        return Program((*self.writes, *writes_of(others)), arg)

    def simplify(self) -> Program:
        """Itself: the compiler does that."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """Elements of an argument, or of the kernel's own: read as `position[i, j]`, written as `position[i, j].store(v)`."""

    name: tuple[str, int]  # ("argument", its number), or ("own", its number)
    dtype: DType
    whole: Shape
    lead: tuple[UOp, ...] = ()  # the index of the first axes, where that is chosen
    last: Write | None = None
    loops: tuple[UOp, ...] = ()  # what is written next is written within these

    @property
    def shape(self) -> Shape:
        """The sizes of the axes that are to be indexed."""
        return self.whole[len(self.lead) :]

    @property
    def size(self) -> int:
        """How many elements."""
        return prod(self.shape)

    def numel(self) -> int:
        """How many elements."""
        return self.size

    def flatten(self) -> Position:
        """The same elements in one axis."""
        return self.reshape(self.size)

    def reshape(self, *shape: Any) -> Position:
        """The same elements in other axes."""
        sizes: Shape = tuple(shape[0]) if isinstance(shape[0], (tuple, list)) else shape
        if self.lead or self.last is not None or prod(sizes) != self.size:
            raise ShapeError(
                f"a position of {show(self.shape)} cannot become {show(sizes)}: the same number of elements is"
                f" needed, and a position that is neither indexed nor written yet"
            )
        return replace(self, whole=sizes)

    def __getitem__(self, index: Any) -> Any:
        """An element, or the position behind an index for the first axes."""
        parts = [*index] if isinstance(index, tuple) else [index]
        while parts and parts[-1] == slice(None):
            parts.pop()
        if len(parts) > len(self.shape) or any(isinstance(part, slice) for part in parts):
            raise ShapeError(
                f"a position of {show(self.shape)} is indexed by a number or a counter for each of its"
                f" first axes, not by {index!r}"
            )
        lead = (*self.lead, *[p if isinstance(p, UOp) else _number(p) for p in parts])
        if len(lead) < len(self.whole):
            return replace(self, lead=lead)
        return Element(replace(self, lead=()), lead)

    def after(self, *others: Any) -> Position:
        """This position as it is in these loops, or behind these writes."""
        found = [write for write in writes_of(others) if write.position.name == self.name]
        loops = [node for node in others if isinstance(node, UOp) and node.op is Ops.RANGE]
        return replace(self, last=found[-1] if found else self.last, loops=(*self.loops, *loops))

    def end(self, *loops: UOp) -> Program:
        """What was written to it, behind the end of these loops."""
        return Program(writes_of((self,))).end(*loops)

    def sink(self, *others: Any, arg: KernelInfo | None = None) -> Program:
        """The kernel that writes this."""
        return Program(writes_of((self, *others)), arg)


def _number(value: Any) -> UOp:
    return value.node if isinstance(value, Element) else UOp.index(int(value))


@dataclass(frozen=True, slots=True, eq=False)
class Element:
    """One element of a position for each turn of the loops in its index. Arithmetic with it gives nodes."""

    position: Position
    index: tuple[UOp, ...]

    @property
    def dtype(self) -> DType:
        """The type of the position."""
        return self.position.dtype

    @property
    def node(self) -> UOp:
        """The element as a node."""
        return UOp(Ops.INDEX, self.dtype, self.index, self)

    def store(self, value: Any) -> Write:
        """This element becomes `value`."""
        return Write(self.position, self.index, self._value(value))

    def set(self, value: Any, end: UOp | tuple[UOp, ...] = ()) -> Position:
        """The position after this element became `value`, behind the end of loops."""
        loops = end if isinstance(end, tuple) else (end,)
        return replace(self.position, last=self.store(value).end(*loops), loops=())

    def _value(self, value: Any) -> UOp:
        if isinstance(value, (Element, UOp)):
            return value.node if isinstance(value, Element) else value
        exact = int(value) if self.dtype.is_int and value == int(value) else value
        return UOp.const(self.dtype, exact)

    def __getattr__(self, name: str) -> Any:
        """Methods of nodes: `cast`, `eq`, `maximum`, ..."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self.node, name)
        return _unwrapping(found) if callable(found) else found


def _unwrapping(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **named: method(*[_plain(g) for g in given], **named)


def _plain(value: Any) -> Any:
    return value.node if isinstance(value, Element) else value


def _forward(name: str) -> Callable[[Element, Any], Any]:
    return lambda self, other: getattr(self.node, name)(_plain(other))


for _name in (
    "add",
    "sub",
    "mul",
    "radd",
    "rsub",
    "rmul",
    "truediv",
    "floordiv",
    "mod",
    "and",
    "or",
    "xor",
    "lt",
    "gt",
):
    setattr(Element, f"__{_name}__", _forward(f"__{_name}__"))
setattr(Element, "__neg__", lambda self: -self.node)


def writes_of(parts: Any) -> tuple[Write, ...]:
    """The last writes of positions, writes and programs."""
    found: list[Write] = []
    for part in parts:
        if isinstance(part, Position) and part.last is not None:
            found.append(part.last)
        elif isinstance(part, Write):
            found.append(part)
        elif isinstance(part, Program):
            found += part.writes
    return tuple(found)
