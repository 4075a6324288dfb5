"""A reduction is taken in parts, and then of what the parts gave.

    reduce[i < n](v(i))   =   reduce[s < n / k](b(s)), b(s) = reduce[j < k](v(s * k + j))        n is a multiple of k
    reduce[i < n](v(i))   =   reduce[i < m](v(i)) + reduce[i < n - m](v(m + i))                  for any m < n

    i: 0 1 2 3 4 5 6         m = 6, and blocks of k = 3 of these:      s: 0     1
                                                                      j: 0 1 2 0 1 2
                             ((v0 + v1 + v2) + (v3 + v4 + v5)) + v6

for any operation `+` of a reduction, whose order is not specified. `b` is stored. Of a reduction over several axes one is
cut into blocks, some others are reduced within each block, and the rest with the blocks:

    reduce[i, a, c](v)   =   reduce[s, c](reduce[j, a](v))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from proofgrad.core.compile.steps.loop_nest import require
from proofgrad.core.compile.steps.tensor_program import TensorProgram, graph_step
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp, toposort


@dataclass(frozen=True, slots=True)
class Blocks:
    """`axis` in blocks of `size`; the axes `within` are reduced in each of them, the other ones with the blocks.

    `blocks_first`: what the blocks give lies block by block in memory; else as the axes are.
    """

    axis: int
    size: int
    within: tuple[int, ...]
    blocks_first: bool = False
    across: Parts | None = None  # the parts of the reduction of the blocks


@dataclass(frozen=True, slots=True)
class Ends:
    """The first `length` elements of `axis`, then the others."""

    axis: int
    length: int
    head: Parts | None = None  # the parts of the reduction of the first ones
    rest: Parts | None = None


Parts: TypeAlias = Blocks | Ends


# -- the functions of the law ---------------------------------------------------------------------


def in_blocks(sizes: Sequence[Any], axis: int, size: Any) -> tuple[Any, ...]:
    """The sizes of the axes where one of them is two: the blocks, and the elements of a block."""
    return (*sizes[:axis], sizes[axis] // size, size, *sizes[axis + 1 :])


def with_blocks_first(axis: int, rank: int) -> tuple[int, ...]:
    """The order of axes in which one comes before all others."""
    return (axis, *[a for a in range(rank) if a != axis])


def ends_of(whole: Any, length: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """From where to where an axis goes in both parts."""
    return (0, length), (length, whole)


# -- the step -------------------------------------------------------------------------------------


@graph_step("reduce[i < n](v(i)) = reduce[s < n / k](reduce[j < k](v(s * k + j)))")
def reduce_in_parts(program: TensorProgram, parts: Mapping[UOp, Parts]) -> UOp:
    """The graph in which these reductions are taken in parts."""
    if not parts:
        return program.graph
    done: dict[UOp, UOp] = {}
    for node in toposort((program.graph,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        done[node] = _in_parts(new, parts[node]) if node in parts else new
    missing = [node for node in parts if node not in done]
    require(not missing, "not in the graph", *missing)
    return done[program.graph]


def _in_parts(node: UOp, parts: Parts | None) -> UOp:
    """A reduction in its parts, and these in theirs."""
    if parts is None:
        return node
    require(node.op is Ops.REDUCE_AXIS, "no reduction", node)
    require(is_plain(node.src[0].shape), "axes of unknown size", node)
    require(parts.axis in node.arg[1], "an axis that is not reduced", parts.axis, node.arg[1])
    match parts:
        case Blocks():
            return _of_blocks(node, parts)
        case Ends():
            return _of_ends(node, parts)


def _of_blocks(node: UOp, parts: Blocks) -> UOp:
    (value,), (op, axes) = node.src, node.arg
    shape, axis, size, dtype = value.shape, parts.axis, parts.size, node.dtype
    require(size > 0 and shape[axis] % size == 0, "blocks of unequal length", shape[axis], size)
    others = set(axes) - {axis}
    require(others.issuperset(parts.within), "an axis that is not reduced", parts.within, axes)
    blocks = UOp(Ops.RESHAPE, value.dtype, (value,), in_blocks(shape, axis, size))
    within = _placed({axis, *parts.within}, axis + 1, axis)
    stored = partial = UOp(Ops.REDUCE_AXIS, dtype, (blocks,), (op, within))
    across = _placed({axis, *others.difference(parts.within)}, axis, axis)
    if parts.blocks_first and axis:
        order = with_blocks_first(axis, len(partial.shape))
        stored = UOp(Ops.PERMUTE, dtype, (partial,), order)
        across = tuple(sorted([order.index(a) for a in across]))
    stored = UOp(Ops.CONTIGUOUS, dtype, (stored,))
    total = UOp(Ops.REDUCE_AXIS, dtype, (stored,), (op, across))
    return UOp(Ops.RESHAPE, dtype, (_in_parts(total, parts.across),), node.shape)


def _placed(axes: set[int], own: int, axis: int) -> tuple[int, ...]:
    """Where axes are after `axis` has become two, of which it is `own`."""
    return tuple(sorted([own if a == axis else a + (a > axis) for a in axes]))


def _of_ends(node: UOp, parts: Ends) -> UOp:
    (value,), op = node.src, node.arg[0]
    whole = value.shape[parts.axis]
    require(0 < parts.length < whole, "a part that is none", parts.length, whole)
    pieces = []
    for begin, end in ends_of(whole, parts.length):
        kept = tuple(
            [(begin, end) if a == parts.axis else (0, n) for a, n in enumerate(value.shape)]
        )
        pieces.append(node.with_src((UOp(Ops.SHRINK, value.dtype, (value,), kept),)))
    head, rest = pieces
    return _in_parts(head, parts.head).alu(op, _in_parts(rest, parts.rest))
