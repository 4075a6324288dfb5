"""A kernel reads a part of a memory as a memory of its own, which begins inside of the other.

    f(m[s * k : s * k + n])   =   f(p), p(i) = m(s * k + i)

    m, of shape (3, 2, 2):    0  1  2  3  4  5  6  7  8  9  10 11
    m[1:2, 1:2, 0:2]                         6  7                      p begins at element 6, and has 2

A slice is a part where its elements follow each other in row-major order: one element of the first axes, some of the next
one, all of those behind. The kernels for parts of one size are then the same, wherever the parts begin.

Another slice, as x[:, t] or x[:, i : i + 32], has gaps. It is that of the first elements of each axis in what begins where it does, as
far as it reaches, with nothing behind that up to the size of the whole. So are the kernels of all steps of a loop over time, or
over the blocks of a matrix.
Several slices of one memory, x[:, t - 1] and x[:, t], are read from what reaches over the smallest block that has them all.

    m[0:3, 1:2]    1  5  9          p:  1  2  3  4  5  6  7  8  9  (-  -  -)         p[0:3, 0:1]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import prod
from typing import Any, NamedTuple

from proofgrad.core.compile.steps.loop_nest import require
from proofgrad.core.compile.steps.tensor_program import TensorProgram, graph_step
from proofgrad.core.ir.op_names import SHRINK
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp, toposort

# -- the functions of the law ---------------------------------------------------------------------


def begin_of(before: Any, size: Any, first: Any, behind: Any) -> Any:
    """The number of the element (before, first, 0) of axes of which the second has `size`, the third `behind` elements."""
    return (before * size + first) * behind


def first_of(before: Any, size: Any, begin: Any) -> Any:
    """The number of the first element of a block on one axis more: of the axes before it has number `before`, of that one `begin`."""
    return before * size + begin


def last_of(before: Any, size: Any, end: Any) -> Any:
    """The same of the last one, behind which the block ends on that axis."""
    return before * size + end - 1


# -- the step -------------------------------------------------------------------------------------


@graph_step("f(m[s * k : s * k + n]) = f(p), p(i) = m(s * k + i)")
def read_parts(program: TensorProgram, calls: Collection[UOp]) -> UOp:
    """Each of `calls` reads the parts of memory that it takes slices of.

    The source of a CALL is then SHRINK(BUFFER) for a part, of which the PARAM has the size.
    """
    graph = program.graph
    require(graph.op is Ops.SINK and set(graph.src).issuperset(calls), "no kernel of the program")
    wanted = set(calls)
    return graph.replace(src=tuple([_over_parts(c) if c in wanted else c for c in graph.src]))


def parts_of(call: UOp) -> dict[UOp, UOp]:
    """The slices of memory that a kernel takes, each with the SHRINK of a buffer that has its elements."""
    found: dict[UOp, UOp] = {}
    if call.src[0].src[0].op is Ops.COPY:
        return found
    gaps: dict[UOp, list[UOp]] = {}  # of each memory
    nodes = toposort((call.src[0],))
    for node in nodes:
        if node.op is SHRINK:
            param = _below_shape(node.src[0])
            if param.op is Ops.PARAM and param.arg[0]:
                buffer = call.src[1 + param.arg[0]]
                if (part := _part(buffer, node)) is not None:
                    found[node] = part
                elif _is_of_buffer(buffer, node):
                    gaps.setdefault(param, []).append(node)
    if gaps and not any([node.op is Ops.PAD or node.op is Ops.SKEW for node in nodes]):
        # of a memory of which a kernel reads nothing but slices
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
    if not _is_of_buffer(buffer, taken):
        return None
    shape, ranges = taken.src[0].shape, taken.arg
    count = prod(taken.shape)
    several = [axis for axis, (begin, end) in enumerate(ranges) if end - begin > 1]
    axis = several[0] if several else len(shape) - 1
    behind = list(zip(ranges, shape))[axis + 1 :]
    if any([(begin, end) != (0, size) for (begin, end), size in behind]):
        return None
    before = 0
    for (begin, _), size in list(zip(ranges, shape))[:axis]:
        before = before * size + begin
    begin = begin_of(before, shape[axis], ranges[axis][0], prod(shape[axis + 1 :]))
    return UOp(Ops.SHRINK, buffer.dtype, (buffer,), ((begin, begin + count),))


def _is_of_buffer(buffer: UOp, taken: UOp) -> bool:
    """Whether a slice is of memory that a kernel reads as it is, and of known size, with elements."""
    is_known = is_plain(taken.src[0].shape) and is_plain(sum(taken.arg, ()))
    return buffer.op is Ops.BUFFER and is_known and prod(taken.shape) > 0


class _Axis(NamedTuple):
    """Of an axis of some size the elements from `begin` to `end`."""

    size: int
    begin: int
    end: int


def _block(taken: UOp) -> list[_Axis]:
    """A slice of the fewest axes: one of which all elements are taken is one with that before."""
    found = list[_Axis]()
    for size, ends in zip(taken.src[0].shape, taken.arg):
        if found and ends == (0, size):
            found[-1] = _Axis(*[size * n for n in found[-1]])
        else:
            found.append(_Axis(size, *ends))
    return found


def _parts_with_gaps(buffer: UOp, slices: Collection[UOp]) -> dict[UOp, UOp]:
    """What slices of the same axes reach over, from the first element of their smallest block to its last; nothing where that is all there is."""
    blocks = [_block(taken) for taken in slices]
    if len({tuple([axis.size for axis in block]) for block in blocks}) > 1:
        return {}
    first, last, is_whole = 0, 0, True
    for axes in zip(*blocks):
        size = axes[0].size
        begin, end = min([axis.begin for axis in axes]), max([axis.end for axis in axes])
        first, last = first_of(first, size, begin), last_of(last, size, end)
        is_whole = is_whole and (begin, end) == (0, size)
    if is_whole:
        return {}
    part = UOp(Ops.SHRINK, buffer.dtype, (buffer,), ((first, last + 1),))
    return dict.fromkeys(slices, part)


def _in_part(memory: UOp, part: UOp, taken: UOp) -> UOp:
    """The elements of a slice, from the PARAM of the part of memory that it is or reaches over."""
    ((begin, end),) = part.arg
    if end - begin == prod(taken.shape):
        return UOp(Ops.RESHAPE, taken.dtype, (memory,), taken.shape)
    shape = taken.src[0].shape
    whole = UOp(Ops.PAD, taken.dtype, (memory,), ((0, prod(shape) - (end - begin)),))
    shaped = UOp(Ops.RESHAPE, taken.dtype, (whole,), shape)
    firsts = _counters(begin, shape)  # where each axis counts from now
    ranges = [(b - first, e - first) for (b, e), first in zip(taken.arg, firsts)]
    return UOp(Ops.SHRINK, taken.dtype, (shaped,), tuple(ranges))


def _counters(number: int, shape: Sequence[int]) -> list[int]:
    """Of an element by its number in row-major order, where it is on each axis."""
    found = list[int]()
    for size in reversed(shape):
        number, counter = divmod(number, size)
        found.append(counter)
    return found[::-1]


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
