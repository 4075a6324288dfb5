"""Kernels that users write, as Tensor programs: loops become axes, accumulations become reductions.

Owns: that translation, and what it refuses. Does not own: positions and writes (core/ir/positions.py), the compiler, which takes the
program as any other: nothing that a user writes becomes a kernel unproven.

A value within loops is a node with an axis for each loop of the kernel, of size 1 where the value does not depend on the loop. A write to
an element for every turn of the loops that index it is a whole Tensor. `position = position[i].set(position.after(k)[i] + term, end=k)` is what
the position held, plus the sum of `term` over the axis k; so for products and greatest values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, Ops
from proofgrad.core.ir.positions import Element, Position, Program, Write
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.data.nodes import broadcast_node, broadcast_shapes, reshape_node

_REDUCTIONS = (Ops.ADD, Ops.MUL, Ops.MAX)


def positions_of(nodes: Sequence[UOp]) -> list[Position]:
    """What the function that writes a kernel is given for its arguments."""
    return [Position(("argument", k), node.dtype, node.shape) for k, node in enumerate(nodes)]


def written_nodes(program: Any, nodes: Sequence[UOp]) -> list[UOp]:
    """Each argument as the kernel leaves it.

    Raises: ValueError for a kernel that is more than loops over whole Tensors with reductions in them.
    """
    if isinstance(program, UOp) and program.op is Ops.SINK and not program.src:
        return list(nodes)
    if not isinstance(program, Program):
        _refuse(f"the function must give what .sink(...) gives, not {type(program).__name__}")
    results = list(nodes)
    written: dict[int, Write] = {}
    for write in program.writes:
        kind, number = write.position.name
        if kind == "argument" and written.setdefault(number, write) is not write:
            _refuse(f"argument {number} is written twice")
    for number, write in written.items():
        whole = _Reading(nodes, write, written).whole()
        results[number] = reshape_node(whole, nodes[number].shape)
    return results


def _refuse(why: str) -> Never:
    raise ValueError(
        f"this custom kernel is not taken: {why}. Taken are loops over all elements of the arguments they write, and sums,"
        f" products and greatest values accumulated over inner loops; say the rest as a Tensor program"
    )


class _Reading:
    """One write of a kernel, read as a Tensor program."""

    def __init__(self, nodes: Sequence[UOp], write: Write, written: dict[int, Write]) -> None:
        self.nodes, self.write, self.written = nodes, write, written
        self.loops = _loops_in(write)
        self.axis = {loop: k for k, loop in enumerate(self.loops)}
        self.sizes = tuple([_size_of(loop) for loop in self.loops])
        self.done: dict[UOp, UOp] = {}

    def whole(self) -> UOp:
        """The argument with every element written."""
        write, position = self.write, self.write.position
        order = []
        for index, size in zip(write.index, position.whole, strict=True):
            if index in self.axis and self.sizes[self.axis[index]] == size:
                order.append(self.axis[index])
            elif not (index.op is Ops.CONST and index.arg == 0 and size == 1):
                _refuse(
                    f"it writes to an axis of size {size} at {_shown(index)}, which is no loop over that axis"
                )
        if len(set(order)) < len(order):
            _refuse("it writes to two axes by one loop, so that some elements are left out")
        value = _cast(self.content(write), position)
        for axis, size in enumerate(value.shape):
            if axis not in order and size != 1:
                _refuse(
                    f"it writes one element in each of {size} turns of a loop that does not index it"
                )
        full = tuple([size if k in order else 1 for k, size in enumerate(self.sizes)])
        spread = broadcast_node(value, full)
        rest = [k for k in range(len(full)) if k not in order]
        turned = UOp(Ops.PERMUTE, spread.dtype, (spread,), (*order, *rest))
        return turned

    def content(self, write: Write) -> UOp:
        """What an element holds behind a write: its value, or what was accumulated."""
        folds = [loop for loop in dict.fromkeys(write.ended) if loop not in write.index]
        carried = [n for n in write.value.toposort() if _is_carried(n, write)]
        if not carried or not folds:
            value = self.value(write.value)
            for loop in folds:
                if value.shape[self.axis[loop]] != 1:
                    _refuse(f"of a loop of {_size_of(loop)} turns only the last is kept")
            return value
        root = write.value
        if len(carried) > 1 or root.op not in _REDUCTIONS or carried[0] not in root.src:
            _refuse(
                "a position is accumulated by +, * or maximum of itself and a term, over loops that end"
            )
        term = root.src[1 - root.src.index(carried[0])]
        if any(_is_carried(n, write) for n in term.toposort()):
            _refuse("the term that is accumulated reads the position that it is accumulated in")
        axes = tuple(sorted([self.axis[loop] for loop in folds]))
        shape = tuple([n if k in axes else 1 for k, n in enumerate(self.sizes)])
        terms = _cast(self.value(term), write.position)
        before = self._start_of(write, folds, terms.shape)
        terms = broadcast_node(terms, broadcast_shapes("a custom kernel", terms.shape, shape))
        reduced = UOp(Ops.REDUCE_AXIS, terms.dtype, (terms,), (root.op, axes))
        kept = tuple([1 if k in axes else n for k, n in enumerate(terms.shape)])
        start = _cast(self.content(before), write.position)
        return _combined(root.op, [start, reshape_node(reduced, kept)])

    def _start_of(self, write: Write, folds: Sequence[UOp], terms: Shape) -> Write:
        """The write that an accumulation starts from: within every loop around it, and before those that it is over."""
        before = write.position.last
        if before is None:
            _refuse("a position is accumulated in that nothing was written to before")
        if set(folds) & {*before.position.loops, *_loops_in(before)}:
            _refuse("a position is set within the loop that it is accumulated over")
        around = {*write.index, *before.position.loops}
        for loop, size in zip(self.loops, terms, strict=True):
            if size != 1 and loop not in folds and loop not in around:
                _refuse(
                    "a position is accumulated within a loop that it was not set in: say position.after(loop)[...].set(...)"
                )
        return before

    def value(self, node: UOp) -> UOp:
        """A node of the kernel as one with an axis for each loop."""
        for part in toposort([node], lambda n: n.op is not Ops.INDEX):
            if part not in self.done:
                self.done[part] = self._value_of(part)
        return self.done[node]

    def _value_of(self, node: UOp) -> UOp:
        if node.op is Ops.RANGE and node in self.axis:
            line = UOp(Ops.IOTA, dtypes.int64, (), _size_of(node))
            shape = tuple([n if loop is node else 1 for loop, n in zip(self.loops, self.sizes)])
            return reshape_node(line, shape)
        if node.op is Ops.INDEX and isinstance(node.arg, Element):
            return self._read(node.arg)
        parts = [self.done[source] for source in node.src]
        if node.op is Ops.CONST:
            kind = dtypes.int64 if node.dtype is dtypes.index else node.dtype
            return reshape_node(UOp.const(kind, node.arg), (1,) * len(self.loops))
        if node.op in (Ops.CAST, Ops.BITCAST):
            return UOp(node.op, node.dtype, (parts[0],), node.arg)
        if node.op in ELEMENTWISE:
            return _combined(node.op, parts)
        _refuse(f"it computes with {node.op.name}")

    def _read(self, element: Element) -> UOp:
        position, last = element.position, element.position.last
        if last is not None:
            if last.index != element.index:
                _refuse("it reads an element of a position in which another one was written")
            return self.content(last)
        if position.name[0] != "argument":
            _refuse("it reads a position of its own before it was written")
        write = self.written.get(position.name[1])
        if write is not None and (write.index, write.position.whole) != (
            element.index,
            position.whole,
        ):
            _refuse(
                "it reads other elements of an argument that it writes, which may be written by then"
            )
        node = reshape_node(self.nodes[position.name[1]], position.whole)
        used: list[int] = []
        cuts = []
        for index, size in zip(element.index, position.whole, strict=True):
            if index.op is Ops.CONST and 0 <= index.arg < size:
                cuts.append((index.arg, index.arg + 1))
            elif index in self.axis and self.sizes[self.axis[index]] <= size:
                cuts.append((0, self.sizes[self.axis[index]]))
                used.append(self.axis[index])
            else:
                _refuse(
                    f"it reads an axis of size {size} at {_shown(index)}, which is neither a number nor a loop within it"
                )
        if len(set(used)) < len(used):
            _refuse("it reads two axes by one loop")
        if any(cut != (0, size) for cut, size in zip(cuts, position.whole, strict=True)):
            node = UOp(Ops.SHRINK, node.dtype, (node,), tuple(cuts))
        node = reshape_node(node, tuple([self.sizes[k] for k in used]))
        turned = sorted(range(len(used)), key=used.__getitem__)
        if turned != list(range(len(used))):
            node = UOp(Ops.PERMUTE, node.dtype, (node,), tuple(turned))
        shape = tuple([n if k in used else 1 for k, n in enumerate(self.sizes)])
        return reshape_node(node, shape)


def _loops_in(write: Write) -> list[UOp]:
    """Every loop that a write depends on, in the order of their numbers."""
    found: dict[UOp, None] = {}
    pending: list[Write | None] = [write]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        pending.append(one.position.last)
        for node in toposort([one.value, *one.index, *one.ended]):
            if node.op is Ops.RANGE:
                found[node] = None
            elif node.op is Ops.INDEX and isinstance(node.arg, Element):
                pending.append(node.arg.position.last)
    return sorted(found, key=lambda loop: loop.arg[0])


def _shown(index: UOp) -> str:
    """An index for messages."""
    if index.op is Ops.CONST:
        return str(index.arg)
    return f"a loop of {_size_of(index)}" if index.op is Ops.RANGE else f"a term of {index.op.name}"


def _size_of(loop: UOp) -> int:
    size = loop.src[0]
    if size.op is not Ops.CONST:
        _refuse("the size of a loop is no number")
    return int(size.arg)


def _is_carried(node: UOp, write: Write) -> bool:
    """Is this the element that is written, as it was before this write?"""
    if node.op is not Ops.INDEX or not isinstance(node.arg, Element):
        return False
    element = node.arg
    same = element.position.name == write.position.name and element.index == write.index
    return same and element.position.last is write.position.last


def _cast(node: UOp, position: Position) -> UOp:
    return node.cast(position.dtype)


def _combined(op: Ops, parts: Sequence[UOp]) -> UOp:
    """An operation of values that depend on different loops."""
    values = parts[1:] if op is Ops.WHERE else parts
    if len({value.dtype for value in values}) > 1:
        kinds = " and ".join([str(value.dtype) for value in values])
        _refuse(f"it computes {op.name} of {kinds}; cast one of them")
    shape = broadcast_shapes("a custom kernel", *[part.shape for part in parts])
    spread = tuple([broadcast_node(part, shape) for part in parts])
    return UOp(op, dtypes.bool if op in COMPARE else values[0].dtype, spread)
