"""Graphs that are like one that was numbered before, found node by node: nothing is made and nothing is hashed.

Owns: what such a graph has to be like. Does not own: numbers (canonical.py), what is kept for a graph (known_runs.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import ref

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import (
    BUFFER,
    CONST,
    CONTIGUOUS,
    DETACH,
    PAD,
    RESHAPE,
    SHRINK,
    VARIABLE,
)
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, elements, names_variables
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.canonical import line_of_memory
from proofgrad.core.tensor.runtime.owners import owners_of_item
from proofgrad.core.tensor.runtime.table import number_buffer, number_memory

# What a node has to be: its op, type, argument, the number of its sources, and of a buffer where it is. Without an op it is to be the
# node in place of the argument, or the one that was found in that position before, or a slice of memory.
_Part = tuple[Any, Any, Any, int, Any]
# A line: any slice of memory on that device whose elements follow each other, of this shape; where another one was, the same.
# A number: any constant, which that device has memory for.
_ITSELF, _LINE, _NUMBER = -1, -2, -3
_FIRST = object()  # in the last place: its argument and its other sources are for gradients alone
_AT = object()  # in the last place: some pairs of its argument are positions
FEW = 4  # sources: of as many they are compared in one go, most of which others have too, as gradients have those of a whole graph


class _Many(NamedTuple):
    """In the last place: so many sources that the new ones alone are looked at, and all of them are those in these positions."""

    new: tuple[int, ...]
    positions: Callable[[Sequence[UOp]], tuple[UOp, ...]]

    def are(self, sources: tuple[UOp, ...], nodes: list[UOp], computed: Mapping[Any, UOp]) -> bool:
        """Whether sources are those, of which the new ones get their positions now."""
        for k in self.new:
            nodes.append(sources[k])
        wanted = self.positions(nodes)
        return wanted == sources or all(
            [one is w or computed.get(ref(one)) is w for one, w in zip(sources, wanted)]
        )


class _Position(NamedTuple):
    """Any pair of numbers of which the first, times `sign`, and the second are `total`: the first is the value of a variable."""

    name: str
    sign: int
    total: int

    def holds(self, pair: tuple[Any, Any], values: dict[str, int]) -> bool:
        begin, end = pair
        if type(begin) is not int or type(end) is not int:
            return False
        return (
            self.sign * begin + end == self.total and values.setdefault(self.name, begin) == begin
        )


def _is_at(node: UOp) -> bool:
    """Whether a node cuts or fills at positions."""
    return (node.op is SHRINK or node.op is PAD) and names_variables(node.arg)


def _positions(node: UOp) -> tuple[Any, ...]:
    """The argument of a SHRINK or a PAD of a numbered graph, with positions for its variables."""
    found: list[Any] = []
    for pair, size, below in zip(node.arg, node.shape, node.src[0].shape):
        is_variable = isinstance(pair[0], UOp) and pair[0].op is VARIABLE
        cut = (-1, size) if node.op is Ops.SHRINK else (1, size - below)
        found.append(_Position(pair[0].arg[0], *cut) if is_variable else pair)
    return tuple(found)


def _are_at(pairs: Any, wanted: tuple[Any, ...], values: dict[str, int]) -> bool:
    """Whether an argument is like one with positions, whose values go into `values`."""
    return all([w.holds(p, values) if type(w) is _Position else p == w for p, w in zip(pairs, wanted)])  # fmt: skip


# Graphs that are like known ones: each node where the other has it, slices and numbers that are memory there, the values of positions.
# A plain tuple: each eager call makes one.
Alike = tuple[list[UOp], dict[int, UOp], dict[str, int]]


def _line(node: UOp) -> UOp | None:
    """The BUFFER that a numbered node is, in some shape; None: it is more."""
    while node.op is RESHAPE or node.op is DETACH:
        node = node.src[0]
    return node if node.op is BUFFER else None


def _number_like(node: UOp, dtype: DType, _: Shape, __: UOp) -> UOp | None:
    """The node, if it is a constant of this type, which its device has memory for."""
    return node if node.op is CONST and node.dtype is dtype else None


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

    __slots__ = (
        "_above",
        "_buffers",
        "_has_numbers",
        "_nodes",
        "_parts",
        "_read",
        "devices",
        "names",
        "others",
    )

    def __init__(
        self,
        roots: Sequence[UOp],
        parts_of_buffers: frozenset[int] = frozenset(),
        numbers: frozenset[int] = frozenset(),
        others: Sequence[UOp] = (),
    ) -> None:
        """`parts_of_buffers`: the numbers of those that stand for slices of memory whose elements follow each other; `numbers`: for constants.

        `others`: nodes below the roots, of which `others_of` tells what is in their place.
        """
        reading: set[UOp] = set()
        for node in toposort(roots):
            if node.op is BUFFER or _is_at(node) or not reading.isdisjoint(node.src):
                reading.add(node)
        parts: list[_Part] = []
        positions: dict[UOp, int] = {}
        buffers: dict[int, int] = {}
        places: dict[int, UOp] = {}
        self.names: set[str] = set()  # of the variables in place of positions
        nodes = [*roots]
        placed: dict[UOp, int] = {}  # where each is first, looked at or not
        self._read: Counter[UOp] = Counter()  # how often each is a source
        for k, node in enumerate(nodes):  # which become more
            placed.setdefault(node, k)
            if node in positions:
                parts.append((None, None, None, positions[node], None))
                continue
            positions[node] = k
            marks = node.op is DETACH or node.op is CONTIGUOUS
            line = _line(node) if node in reading else None
            number = None if line is None else line.src[0].arg
            if node not in reading and not marks:
                parts.append((None, None, node, _ITSELF, None))
            elif number in parts_of_buffers or (number in numbers and node.src[0] is line):
                assert line is not None
                where = places[number] = line.src[1]
                # Where the same slice was in another shape.
                before = buffers.setdefault(number, k)
                kind = _NUMBER if number in numbers else _LINE
                parts.append((None, node.dtype, node.shape, kind, (where, before)))
            elif node.op is BUFFER:
                buffers[node.src[0].arg], places[node.src[0].arg] = k, node.src[1]
                parts.append((BUFFER, node.dtype, node.arg, 0, node.src[1]))
            elif marks:
                parts.append((node.op, node.dtype, None, 1, _FIRST))
                nodes += node.src
                self._read.update(node.src)
            else:
                is_at = _is_at(node)
                arg, how = (_positions(node), _AT) if is_at else (node.arg, None)
                self.names.update([p.name for p in arg if type(p) is _Position] if is_at else ())
                self._read.update(node.src)
                if is_at or len(node.src) < FEW:
                    nodes += node.src
                else:
                    how = _placed(node.src, nodes, placed)
                parts.append((node.op, node.dtype, arg, len(node.src), how))
        self._parts = parts
        self._buffers = [position for _, position in sorted(buffers.items())]
        self._nodes = nodes
        self._above: list[list[tuple[int, int]]] | None = None
        self.others = [positions[node] for node in others if node in positions]
        self._has_numbers = bool(numbers)
        self.devices: list[str] = [where.arg for _, where in sorted(places.items())]

    def found(self, roots: Sequence[UOp], computed: Mapping[Any, UOp]) -> Alike | None:
        """What graphs like these are made of; None if they are not like them.

        `computed`: weak references to nodes, and the buffers that stand for them.
        """
        nodes = [*roots]
        lines: dict[int, UOp] = {}
        values: dict[str, int] = {}
        for k, (op, dtype, arg, count, where) in enumerate(self._parts):
            node = nodes[k]
            if computed and (known := computed.get(ref(node))) is not None:
                nodes[k] = node = known
            if where is None:  # most often, and asked first
                if op is None:
                    if node is not (arg if count == _ITSELF else nodes[count]):
                        return None
                    continue
                if node.op is not op or node.dtype is not dtype:
                    return None
                if (own := node.arg) is not arg and own != arg:
                    return None
                sources = node.src
                if len(sources) != count:
                    return None
                nodes += sources
            elif op is None:
                part = _part_like if count == _LINE else _number_like
                line = part(node, dtype, arg, where[0])
                if line is None or lines.setdefault(where[1], line) is not line:
                    return None
            elif node.op is not op or node.dtype is not dtype:
                return None
            elif where is _FIRST:
                nodes.append(node.src[0])
            elif where is _AT:
                if not _are_at(node.arg, arg, values):
                    return None
                nodes += node.src
            elif type(where) is _Many:
                if (own := node.arg) is not arg and own != arg:
                    return None
                if len(node.src) != count or not where.are(node.src, nodes, computed):
                    return None
            elif node.arg != arg or node.src[1] is not where:  # a BUFFER
                return None
        return nodes, lines, values

    def buffers_of(self, alike: Alike) -> list[UOp] | None:
        """The buffers of graphs like these, in the order of their numbers, and constants that are memory; None where one is in place of two,
        which makes another graph.
        """
        nodes, lines, _ = alike
        found: list[UOp] = []
        # For one or two of them in half of the time of a comprehension.
        for position in self._buffers:
            found.append(nodes[position])
        if lines:
            found = [lines.get(k, node) for k, node in zip(self._buffers, found)]
        return found if len(found) < 2 or len(set(found)) == len(found) else None

    def others_of(self, alike: Alike) -> list[UOp]:
        """What is in place of the nodes below the roots that were to be told of."""
        nodes, _, _ = alike
        return [nodes[position] for position in self.others]

    def memory(self, inputs: Sequence[UOp], memory_of: Callable[[UOp], Any]) -> list[Any]:
        """The memory of what `buffers_of` gives."""
        if not self._has_numbers:
            found: list[Any] = []
            for buffer in inputs:
                found.append(memory_of(buffer))
            return found
        return [
            number_memory(node, device) if node.op is CONST else memory_of(node)
            for node, device in zip(inputs, self.devices)
        ]

    def with_buffers(self, inputs: Sequence[UOp]) -> list[UOp]:
        """What `buffers_of` gives, with a BUFFER for each constant."""
        places = zip(inputs, self.devices)
        return [number_buffer(n, device) if n.op is CONST else n for n, device in places]

    def is_sole_holder(self, alike: Alike, number: int) -> bool:
        """Whether nobody has the buffer of this number, or what is made of it, but the graphs, and the caller their one root."""
        if self._above is None:
            self._above = _places_above(self._nodes, self._buffers, self._read)
        nodes, _, _ = alike
        return all([owners_of_item(nodes, k) == count for k, count in self._above[number]])


def _placed(sources: tuple[UOp, ...], nodes: list[UOp], placed: dict[UOp, int]) -> _Many:
    """Positions for many sources; those that have none get one."""
    new = []
    for k, source in enumerate(sources):
        if source not in placed:
            placed[source] = len(nodes)
            nodes.append(source)
            new.append(k)
    return _Many(tuple(new), itemgetter(*[placed[source] for source in sources]))


def _places_above(
    nodes: Sequence[UOp], buffers: Sequence[int], read: Counter[UOp]
) -> list[list[tuple[int, int]]]:
    """Of each buffer, said by its position: where it and the nodes that are made of it are first, but for the root, and how many hold each in
    such a list of nodes: the list, and who has it in its sources.
    """
    count = Counter(nodes)
    first = {node: k for k, node in reversed([*enumerate(nodes)])}
    found: list[list[tuple[int, int]]] = []
    order = toposort(nodes[:1])
    for position in buffers:
        above = {nodes[position]}
        for node in order:
            if not above.isdisjoint(node.src):
                above.add(node)
        above &= first.keys() - {nodes[0]}
        found.append([(first[node], count[node] + read[node]) for node in above])
    return found
