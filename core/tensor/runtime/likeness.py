"""Graphs that are like one that was numbered before, found node by node: nothing is made and nothing is hashed.

Owns: what such a graph has to be like. Does not own: numbers (canonical.py), what is kept for a graph (known_runs.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import ref

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import BUFFER, CONTIGUOUS, DETACH, RESHAPE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, elements
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.canonical import line_of_memory

# What a node has to be: its op, type, argument, the number of its sources, and of a buffer where it is. Without an op it is to be the
# node in place of the argument, or the one that was found in that position before, or a slice of memory.
_Part = tuple[Any, Any, Any, int, Any]
# A line: any slice of memory on that device whose elements follow each other, of this shape; where another one was, the same.
_ITSELF, _LINE = -1, -2
_FIRST = object()  # in the last place: its argument and its other sources are for gradients alone


def _line(node: UOp) -> UOp | None:
    """The BUFFER that a numbered node is, in some shape; None: it is more."""
    while node.op is RESHAPE or node.op is DETACH:
        node = node.src[0]
    return node if node.op is BUFFER else None


def _part_like(node: UOp, dtype: DType, shape: Shape, where: UOp) -> UOp | None:
    """The part of a buffer of the device `where` that a node shows, if it has this type and shape."""
    if node.dtype is not dtype or node.shape != shape:
        return None
    line = line_of_memory(node)
    if line is None or line[0].src[1] is not where:
        return None
    buffer, first = line
    return UOp(Ops.SHRINK, dtype, (buffer,), ((first, first + elements(shape)),))


class Likeness:
    """The nodes of numbered graphs, each before its sources, and where their buffers are among them."""

    __slots__ = ("_buffers", "_parts", "devices")

    def __init__(
        self, roots: Sequence[UOp], parts_of_buffers: frozenset[int] = frozenset()
    ) -> None:
        """`parts_of_buffers`: the numbers of those that stand for slices of memory whose elements follow each other."""
        reading: set[UOp] = set()
        for node in toposort(roots):
            if node.op is BUFFER or not reading.isdisjoint(node.src):
                reading.add(node)
        parts: list[_Part] = []
        positions: dict[UOp, int] = {}
        buffers: dict[int, int] = {}
        places: dict[int, UOp] = {}
        nodes = [*roots]
        for k, node in enumerate(nodes):  # which become more
            if node in positions:
                parts.append((None, None, None, positions[node], None))
                continue
            positions[node] = k
            marks = node.op is DETACH or node.op is CONTIGUOUS
            if node not in reading and not marks:
                parts.append((None, None, node, _ITSELF, None))
            elif (line := _line(node)) is not None and line.src[0].arg in parts_of_buffers:
                number, where = line.src
                places[number.arg] = where
                before = buffers.setdefault(
                    number.arg, k
                )  # where the same slice was in another shape
                parts.append((None, node.dtype, node.shape, _LINE, (where, before)))
            elif node.op is BUFFER:
                number, where = node.src
                buffers[number.arg], places[number.arg] = k, where
                parts.append((BUFFER, node.dtype, node.arg, 0, where))
            elif marks:
                parts.append((node.op, node.dtype, None, 1, _FIRST))
                nodes += node.src
            else:
                parts.append((node.op, node.dtype, node.arg, len(node.src), None))
                nodes += node.src
        self._parts = parts
        self._buffers = [position for _, position in sorted(buffers.items())]
        self.devices: list[str] = [where.arg for _, where in sorted(places.items())]

    def buffers_of(self, roots: Sequence[UOp], computed: Mapping[Any, UOp]) -> list[UOp] | None:
        """The buffers of graphs like these, in the order of their numbers; None if they are not like them.

        `computed`: weak references to nodes, and the buffers that stand for them.
        """
        nodes = [*roots]
        lines: dict[int, UOp] = {}
        for k, (op, dtype, arg, count, where) in enumerate(self._parts):
            node = nodes[k]
            if computed and (known := computed.get(ref(node))) is not None:
                nodes[k] = node = known
            if op is None:
                if count == _LINE:
                    line = _part_like(node, dtype, arg, where[0])
                    if line is None or lines.setdefault(where[1], line) is not line:
                        return None
                elif node is not (arg if count == _ITSELF else nodes[count]):
                    return None
            elif node.op is not op or node.dtype is not dtype:
                return None
            elif where is _FIRST:
                nodes.append(node.src[0])
            elif node.arg != arg:
                return None
            elif op is BUFFER:
                if node.src[1] is not where:
                    return None
            else:
                sources = node.src
                if len(sources) != count:
                    return None
                nodes += sources
        found = [nodes[position] for position in self._buffers]
        if lines:
            found = [lines.get(k, node) for k, node in zip(self._buffers, found)]
        # One buffer in place of two makes another graph.
        return found if len(found) < 2 or len(set(found)) == len(found) else None
