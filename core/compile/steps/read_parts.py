"""A kernel reads a part of a memory as a memory of its own, which begins inside of the other.

    f(m[s * k : s * k + n])   =   f(p), p(i) = m(s * k + i)

    m, of shape (3, 2, 2):    0  1  2  3  4  5  6  7  8  9  10 11
    m[1:2, 1:2, 0:2]                         6  7                      p begins at element 6, and has 2

A slice is a part where its elements follow each other in row-major order: one element of the first axes, some of the next
one, all of those behind. The kernels for parts of one size are then the same, wherever the parts begin.

A slice of one element of an inner axis, x[:, t], has gaps. It is that of the first element in what begins where it does, as
far as it reaches, with nothing behind that up to the size of the whole. So are the kernels of all steps of a loop over time.
Several slices of one memory, x[:, t - 1] and x[:, t], are those of the first few elements in what begins where the first one does.

    m[0:3, 1:2]    1  5  9          p:  1  2  3  4  5  6  7  8  9  (-  -  -)         p[0:3, 0:1]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import prod
from typing import Any, NamedTuple

from proofgrad.core.compile.steps.loop_nest import require
from proofgrad.core.compile.steps.tensor_program import TensorProgram, graph_step
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp, toposort

# -- the functions of the law ---------------------------------------------------------------------


def begin_of(before: Any, size: Any, first: Any, behind: Any) -> Any:
    """The number of the element (before, first, 0) of axes of which the second has `size`, the third `behind` elements."""
    return (before * size + first) * behind


def reach_of(count: Any, size: Any, width: Any, behind: Any) -> Any:
    """How far `count` elements of a first axis reach, of each of which all `behind` elements of a third one, and `width` of `size` on the second."""
    return (count - 1) * size * behind + width * behind


# -- the step -------------------------------------------------------------------------------------


@graph_step("f(m[s * k : s * k + n]) = f(p), p(i) = m(s * k + i)")
def read_parts(program: TensorProgram, calls: Collection[UOp]) -> UOp:
    """Each of `calls` reads the parts of memory that it takes slices of.

    The source of a CALL is then SHRINK(BUFFER) for a part, of which the PARAM has the size.
    """
    graph = program.graph
    require(graph.op is Ops.SINK and set(graph.src).issuperset(calls), "no kernel of the program")
    return graph.replace(src=tuple([_over_parts(c) if c in calls else c for c in graph.src]))


def parts_of(call: UOp) -> dict[UOp, UOp]:
    """The slices of memory that a kernel takes, each with the SHRINK of a buffer that has its elements."""
    found: dict[UOp, UOp] = {}
    if call.src[0].src[0].op is Ops.COPY:
        return found
    gaps: dict[UOp, list[_Gap]] = {}  # of each memory
    nodes = toposort((call.src[0],))
    for node in nodes:
        if node.op is Ops.SHRINK:
            param = _below_shape(node.src[0])
            if param.op is Ops.PARAM and param.arg[0]:
                part = _part(call.src[1 + param.arg[0]], node)
                found |= {} if part is None else {node: part}
                gap = _gap(call.src[1 + param.arg[0]], node)
                if gap is not None and part is None:
                    gaps.setdefault(param, []).append(gap)
    if gaps and not any([node.op is Ops.PAD or node.op is Ops.SKEW for node in nodes]):
        # of a memory of which a kernel reads nothing but slices of one axis
        readers = _readers(nodes)
        for memory, of_memory in gaps.items():
            if readers[memory] == len(of_memory):
                found |= _parts_with_gaps(call.src[1 + memory.arg[0]], of_memory)
    return found


def _below_shape(node: UOp) -> UOp:
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node


def _readers(nodes: Collection[UOp]) -> Counter[UOp]:
    """Of each memory, how many nodes read it, in some shape."""
    return Counter(
        [
            memory
            for node in nodes
            if node.op is not Ops.RESHAPE
            for memory in set(map(_below_shape, node.src))
        ]
    )


def _part(buffer: UOp, taken: UOp) -> UOp | None:
    """The part of a buffer that a slice of all of it is; None for one whose elements do not follow each other."""
    shape, ranges = taken.src[0].shape, taken.arg
    if buffer.op is not Ops.BUFFER or not is_plain(shape) or not is_plain(sum(ranges, ())):
        return None
    count = prod([end - begin for begin, end in ranges])
    several = [axis for axis, (begin, end) in enumerate(ranges) if end - begin > 1]
    axis = several[0] if several else len(shape) - 1
    behind = list(zip(ranges, shape))[axis + 1 :]
    if not count or any([(begin, end) != (0, size) for (begin, end), size in behind]):
        return None
    before = 0
    for (begin, _), size in list(zip(ranges, shape))[:axis]:
        before = before * size + begin
    begin = begin_of(before, shape[axis], ranges[axis][0], prod(shape[axis + 1 :]))
    return UOp(Ops.SHRINK, buffer.dtype, (buffer,), ((begin, begin + count),))


class _Gap(NamedTuple):
    """A slice of one element of one axis, of number `at`, and all of the axes before and behind."""

    taken: UOp
    axes: tuple[int, int, int]  # elements of the axes before, of that axis, of those behind
    at: int


def _gap(buffer: UOp, taken: UOp) -> _Gap | None:
    """A slice of a buffer of one element of one axis; None for another."""
    shape, ranges = taken.src[0].shape, taken.arg
    if buffer.op is not Ops.BUFFER or not is_plain(shape) or not is_plain(sum(ranges, ())):
        return None
    cut = [k for k, (b, e) in enumerate(ranges) if (b, e) != (0, shape[k])]
    if len(cut) != 1 or ranges[cut[0]][1] - ranges[cut[0]][0] != 1 or not prod(taken.shape):
        return None
    (axis,) = cut
    return _Gap(taken, (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])), ranges[axis][0])


def _parts_with_gaps(buffer: UOp, gaps: Collection[_Gap]) -> dict[UOp, UOp]:
    """What slices of one axis reach over, from the first element of the first one to the last of the last; nothing where that is all there is."""
    if len({gap.axes for gap in gaps}) > 1:
        return {}
    ((before, size, behind),) = {gap.axes for gap in gaps}
    first, last = min([gap.at for gap in gaps]), max([gap.at for gap in gaps])
    width = last + 1 - first
    if width == size:
        return {}
    begin = begin_of(0, size, first, behind)
    reach = reach_of(before, size, width, behind)
    part = UOp(Ops.SHRINK, buffer.dtype, (buffer,), ((begin, begin + reach),))
    return {gap.taken: part for gap in gaps}


def _in_part(memory: UOp, part: UOp, taken: UOp) -> UOp:
    """The elements of a slice, from the PARAM of the part of memory that it is or reaches over."""
    ((begin, end),) = part.arg
    if end - begin == prod(taken.shape):
        return UOp(Ops.RESHAPE, taken.dtype, (memory,), taken.shape)
    shape = taken.src[0].shape
    whole = UOp(Ops.PAD, taken.dtype, (memory,), ((0, prod(shape) - (end - begin)),))
    shaped = UOp(Ops.RESHAPE, taken.dtype, (whole,), shape)
    ranges = list(taken.arg)
    (axis,) = [k for k, size in enumerate(shape) if ranges[k] != (0, size)]
    first = begin // prod(shape[axis + 1 :])  # where it counts from now
    ranges[axis] = (ranges[axis][0] - first, ranges[axis][1] - first)
    return UOp(Ops.SHRINK, taken.dtype, (shaped,), tuple(ranges))


def _over_parts(call: UOp) -> UOp:
    """The call with a parameter for each part, and for each memory that it still reads whole."""
    parts = parts_of(call)
    require(bool(parts), "no slice of memory whose elements follow each other")
    read: list[UOp] = []  # of parameter 1, 2, ...

    def parameter(memory: UOp, count: int) -> UOp:
        if memory not in read:
            read.append(memory)
        return UOp(Ops.PARAM, memory.dtype, (), (1 + read.index(memory), count))

    done: dict[UOp, UOp] = {}
    for node in toposort((call.src[0],), lambda node: node not in parts):
        if node in parts:
            part = parts[node]
            done[node] = _in_part(parameter(part, part.shape[0]), part, node)
        elif node.op is Ops.PARAM and node.arg[0]:
            done[node] = parameter(call.src[1 + node.arg[0]], node.arg[1])
        else:
            done[node] = node.with_src(tuple([done[s] for s in node.src]))
    return call.replace(src=(done[call.src[0]], call.src[1], *read))
