"""Graphs that are like one that was numbered before, found node by node: nothing is made and nothing is hashed.

Owns: what such a graph has to be like. Does not own: numbers (canonical.py), what is kept for a graph (known_runs.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

from proofgrad.core.ir.op_names import BUFFER, CONTIGUOUS, DETACH
from proofgrad.core.ir.uop import UOp

# What a node has to be: its op, type, argument, the number of its sources, and of a buffer where it is. Without an op it is to be the
# node in place of the argument, or the one that was found in that position before.
_Part = tuple[Any, Any, Any, int, Any]
_ITSELF = -1
_FIRST = object()  # in the last place: its argument and its other sources are for gradients alone


class Likeness:
    """The nodes of a numbered graph, each before its sources, and where its buffers are among them."""

    __slots__ = ("_buffers", "_parts", "devices", "is_constant")

    def __init__(self, root: UOp) -> None:
        reading: set[UOp] = set()
        for node in root.toposort():
            if node.op is BUFFER or not reading.isdisjoint(node.src):
                reading.add(node)
        parts: list[_Part] = []
        positions: dict[UOp, int] = {}
        buffers: dict[int, int] = {}
        nodes = [root]
        for k, node in enumerate(nodes):  # which become more
            if node in positions:
                parts.append((None, None, None, positions[node], None))
                continue
            positions[node] = k
            if node not in reading:
                parts.append((None, None, node, _ITSELF, None))
            elif node.op is BUFFER:
                number, where = node.src
                buffers[number.arg] = k
                parts.append((BUFFER, node.dtype, node.arg, 0, where))
            elif node.op is DETACH or node.op is CONTIGUOUS:
                parts.append((node.op, node.dtype, None, 1, _FIRST))
                nodes += node.src
            else:
                parts.append((node.op, node.dtype, node.arg, len(node.src), None))
                nodes += node.src
        self._parts = parts
        self._buffers = [position for _, position in sorted(buffers.items())]
        self.devices: list[str] = [parts[position][-1].arg for position in self._buffers]
        self.is_constant = not buffers

    def buffers_of(self, root: UOp, computed: Mapping[Any, UOp]) -> list[UOp] | None:
        """The buffers of a graph like this one, in the order of their numbers; None if it is not like it.

        `computed`: weak references to nodes, and the buffers that stand for them.
        """
        nodes = [root]
        for k, (op, dtype, arg, count, where) in enumerate(self._parts):
            node = nodes[k]
            if computed and (known := computed.get(ref(node))) is not None:
                nodes[k] = node = known
            if op is None:
                if node is not (arg if count == _ITSELF else nodes[count]):
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
        # One buffer in place of two makes another graph.
        return found if len(found) < 2 or len(set(found)) == len(found) else None
