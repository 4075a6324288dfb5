"""Graphs with their buffers numbered, so that equal graphs are one object; what graphs came to.

Owns: the numbers, what nodes have been computed to. Does not own: memory (memory.py), running (realize.py).
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from proofgrad.core.compile.passes.memory import changed_in_part
from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import (
    APPLY,
    BUFFER,
    CONST,
    CONTIGUOUS,
    DETACH,
    DEVICE,
    IOTA,
    PARAM,
    RESHAPE,
    SINK,
    UNIQUE,
)
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import Shape, elements, is_plain, names_variables, sizes
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.data.bodies import without_bodies
from proofgrad.core.tensor.runtime.changing import changing_places, constants
from proofgrad.core.tensor.runtime.device import HOST, Device, is_on_disk
from proofgrad.core.tensor.runtime.known_graphs import form_of, keep_graph, known_graph
from proofgrad.core.tensor.runtime.positions import (
    cuts_and_places,
    numbers_written,
    positions_as_variables,
    with_values,
)
from proofgrad.core.tensor.runtime.table import number_buffer

SHRINK = Ops.SHRINK
_LEAVES = frozenset({UNIQUE, DEVICE})
# Numbered graphs, and the same without APPLYs, of which each may have hundreds of nodes.
_WITHOUT_BODIES: Newest[UOp, UOp] = Newest(256)
COMPUTED: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()  # a node: a buffer, in its shape
SHOWN: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()  # see scheduling.py


def computed(uop: UOp) -> UOp:
    """What `uop` has been computed to, if it has; else `uop`."""
    return COMPUTED.get(uop, uop) if COMPUTED.data else uop  # type: ignore[attr-defined]


def note_computed(node: UOp, value: UOp) -> None:
    """From now on graphs with this node read the buffer. A constant stays one: it is the same node on each device, wherever it is written."""
    below = node
    while below.op in MOVEMENT:
        below = below.src[0]
    if below.op is not CONST:
        COMPUTED[node] = value


def remember_graph(shown: UOp, graph: UOp) -> None:
    """`shown`, made of ASSIGNs of kernels, stands for the value of `graph`."""
    SHOWN[shown] = graph


def buffers_of(graph: UOp) -> list[UOp]:
    """The numbered buffers of a graph, in order."""
    return sorted(
        [node for node in graph.toposort() if node.op is BUFFER], key=lambda b: b.src[0].arg
    )


def with_buffers(graph: UOp, buffers: list[UOp], values: dict[str, int]) -> list[UOp]:
    """The roots of a numbered graph, over real buffers, with the values of its variables."""
    done = dict(zip(buffers_of(graph), buffers))
    for node in graph.toposort():
        if node not in done:
            arg = with_values(node.arg, values) if values and _may_name(node) else node.arg
            done[node] = UOp(node.op, node.dtype, tuple([done[s] for s in node.src]), arg)
    return list(done[graph].src)


def _may_name(node: UOp) -> bool:
    """Whether the argument of a node may name variables."""
    return node.op in MOVEMENT or node.op is IOTA


def numbered(
    roots: list[UOp], device: str, values: dict[str, int] | None = None, with_parts: bool = False
) -> tuple[UOp, list[UOp]]:
    """The graph with its buffers numbered 0, 1, ... in order: equal graphs become one object.

    Variables lose their values, which go into `values`. `with_parts`: a slice of a buffer whose elements follow each other is a
    buffer too, SHRINK(BUFFER) among the inputs, so that the graph does not tell where it begins; other positions are variables. So is
    a number that is written to a part of memory.
    APPLYs stay: see `as_compiled`.
    """
    is_shown = bool(SHOWN.data)  # type: ignore[attr-defined]
    found = None if is_shown or not with_parts else form_of(roots, device, COMPUTED, _part)
    graph = None if found is None else known_graph(found[0])
    if found is not None and graph is not None:
        return graph, found[1]
    values = {} if values is None else values
    graph, inputs = _numbered(roots, device, values, with_parts)
    if found is not None and not values and found[1] == inputs:
        keep_graph(found[0], graph)
    return graph, inputs


def as_compiled(graph: UOp) -> UOp:
    """A numbered graph with what they stand for in place of all APPLYs."""
    known = _WITHOUT_BODIES.get(graph)
    if known is None:
        if not any([node.op is APPLY for node in graph.toposort()]):
            return graph
        done: dict[UOp, UOp] = {}
        shown = without_bodies(graph)
        for node in shown.toposort():
            done[node] = _without_gradient(node, tuple([done[source] for source in node.src]))
        known = _WITHOUT_BODIES[graph] = done[shown]
    return known


def _without_gradient(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """The node over these sources. What only gradients look at is left out."""
    if node.op is DETACH or node.op is CONTIGUOUS:
        return UOp(node.op, node.dtype, src[:1])
    return node.with_src(src)


def _numbered(
    roots: list[UOp], device: str, values: dict[str, int], with_parts: bool
) -> tuple[UOp, list[UOp]]:
    done: dict[UOp, UOp] = {}
    inputs: list[UOp] = []
    if SHOWN:
        roots = _without_kernels(roots)
    some = len(COMPUTED) > 0  # most often not: then no node is looked up
    order, parts = toposort(roots, is_not_computed if some else None), dict[UOp, UOp]()
    if with_parts and any([node.op is SHRINK for node in order]):
        parts = _parts(order, roots)
        order = toposort(roots, lambda n: n not in COMPUTED and n not in parts) if parts else order
    numbers: dict[UOp, int] = {}  # of parts
    named: dict[UOp, Any] = {}
    if with_parts:
        positions = cuts_and_places([n for n in order if n not in parts], roots, COMPUTED)
        places = {(n, p.axis): p.begin for n, found in positions.items() for p in found}
        changing = changing_places(order, {**constants(order, roots), **places})
        named = positions_as_variables(positions, changing, COMPUTED, values)
        constant = [node for node, _ in changing if node.op is CONST]
        for number in dict.fromkeys([*numbers_written(roots, order, COMPUTED), *constant]):
            done[number] = _number_constant(number, device, inputs)
    for node in order:
        known = COMPUTED.get(node) if some else None
        if known is not None:
            for part in known.toposort():
                if part not in done:
                    done[part] = _renumber(part, done, inputs, values)
            done[node] = done[known]
        elif node not in done:
            if parts and node in parts:
                done[node] = _number_part(parts[node], node.shape, inputs, numbers)
            elif named and node in named:
                done[node] = UOp(node.op, node.dtype, (done[node.src[0]],), named[node])
            else:
                done[node] = _renumber(node, done, inputs, values)
    return UOp(SINK, dtypes.void, tuple([done[root] for root in roots]), device), inputs


def is_not_computed(node: UOp) -> bool:
    """Whether no buffer holds the value of `node`: a walk for what is still to compute goes on below it."""
    return node not in COMPUTED


def _without_kernels(roots: list[UOp]) -> list[UOp]:
    """The graphs with the values that kernels were shown for in their place."""
    nodes = toposort(roots, lambda n: n not in COMPUTED and n not in SHOWN)
    if not any(node in SHOWN for node in nodes):
        return roots
    done: dict[UOp, UOp] = {}
    for node in nodes:
        stands_for = SHOWN.get(node)
        if stands_for is not None:
            done[node] = computed(stands_for)
        elif all(source in done for source in node.src):
            done[node] = node.with_src(tuple([done[source] for source in node.src]))
        else:
            done[node] = node
    return [done[root] for root in roots]


def _parts(nodes: list[UOp], roots: list[UOp]) -> dict[UOp, UOp]:
    """The slices among nodes that are parts of buffers, but for roots, which get memory of their own."""
    wanted = {_below_reshape(root) for root in roots}
    changed = {changed_in_part(root) for root in roots}  # perhaps in place: each is one memory
    found: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is SHRINK and node not in COMPUTED and node not in wanted:
            part = _part(node)
            if part is not None and part.src[0] not in changed:
                found[node] = part
    return found


def _below_reshape(node: UOp) -> UOp:
    while node.op is RESHAPE or node.op is DETACH:
        node = node.src[0]
    return node


def _part(taken: UOp) -> UOp | None:
    """The flat slice of a buffer that a SHRINK shows, where a kernel may be given such; None: it is none."""
    line, count = line_of_memory(taken), elements(taken.shape)
    if line is None or not Device[line[0].src[1].arg].target.has_parts or count == line[0].arg:
        return None
    return UOp(SHRINK, taken.dtype, (line[0],), ((line[1], line[1] + count),))


def line_of_memory(node: UOp) -> tuple[UOp, int] | None:
    """The BUFFER of a machine in which the elements of `node` follow each other, and where the first one is; None: there is none."""
    first, node = 0, computed(node)
    while node.op is RESHAPE or node.op is SHRINK or node.op is DETACH:
        if node.op is SHRINK:
            begin = _begin_of_line(node)
            if begin is None:
                return None
            first += begin
        node = computed(node.src[0])
    if node.op is not BUFFER or node.src[1].arg == HOST or is_on_disk(node.src[1].arg):
        return None
    return node, first


def _begin_of_line(cut: UOp) -> int | None:
    """Where in its source a SHRINK begins, if its elements follow each other there."""
    shape = cut.src[0].shape
    if not is_plain(shape) or not is_plain(cut.shape) or names_variables(cut.arg):
        return None
    return _begin_of_elements(shape, cut.arg)


@functools.lru_cache(maxsize=4096)
def _begin_of_elements(shape: Shape, cuts: tuple[tuple[int, int], ...]) -> int | None:
    """Where in an array the elements of a part of it begin, if they follow each other."""
    first = last = 0
    for (begin, end), size in zip(cuts, shape):
        if begin == end:
            return None
        first, last = first * size + begin, last * size + end - 1
    count = prod([end - begin for begin, end in cuts])
    return first if last - first + 1 == count else None  # else others lie between


def _number_constant(number: UOp, device: str, inputs: list[UOp]) -> UOp:
    inputs.append(number_buffer(number, device))
    unique = UOp(UNIQUE, dtypes.void, (), len(inputs) - 1)
    flat = UOp(BUFFER, number.dtype, (unique, UOp(DEVICE, dtypes.void, (), device)), 1)
    return UOp(RESHAPE, number.dtype, (flat,), ())


def _number_part(part: UOp, shape: Shape, inputs: list[UOp], numbers: dict[UOp, int]) -> UOp:
    if part not in numbers:
        numbers[part] = len(inputs)
        inputs.append(part)
    unique = UOp(UNIQUE, dtypes.void, (), numbers[part])
    flat = UOp(BUFFER, part.dtype, (unique, part.src[0].src[1]), elements(part.shape))
    return flat if shape == flat.shape else UOp(RESHAPE, part.dtype, (flat,), shape)


def _renumber(node: UOp, done: dict[UOp, UOp], inputs: list[UOp], values: dict[str, int]) -> UOp:
    op = node.op
    if op in _LEAVES:
        return node
    if op is BUFFER:
        inputs.append(node)
        unique = UOp(UNIQUE, dtypes.void, (), len(inputs) - 1)
        return UOp(BUFFER, node.dtype, (unique, node.src[1]), node.arg)
    if op is PARAM:
        raise ValueError(
            f"parameter {node.arg[0]} of a body has no value; give it one with Tensor.call"
        )
    src = tuple([done[s] for s in node.src])
    if (op in MOVEMENT and names_variables(node.arg)) or (op is IOTA and type(node.arg) is UOp):
        return UOp(op, node.dtype, src, sizes().unbound(node.arg, values))
    return _without_gradient(node, src)
