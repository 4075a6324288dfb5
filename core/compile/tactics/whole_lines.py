"""Tactic: long results are written as whole lines of memory, wherever their rows begin.

Does not own: the laws (steps/align.py, steps/split_index_set.py), which stores pass the caches (backends/llvm/nontemporal.py).

    rows of 5, lines of 4:    - - 2 3 | 4 5 6 - |          the first and the last line of each row, in loops of their own
                              - 0 1 2 | 3 4 - - |

A line that is stored past the caches is neither read before it is changed nor kept, but only a whole one can be. Rows that are no
multiple of a line begin inside of one, each elsewhere: all but the ends of each row are whole lines all the same.
"""

from __future__ import annotations

from typing import NamedTuple

from proofgrad.core.compile.machine.machine import LINE_BYTES, FirstCache
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import (
    BINDERS,
    fresh_number,
    is_fixed,
    output_loops,
    size_of,
)
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.cache_sets import rows_that_stay
from proofgrad.core.compile.steps.align import align
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.split_index_set import split_index_set
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Lines of a row, of which both ends are written apart, each as often as a line in the middle and from memory that is read before.
LEAST_LINES = 8


class _Rows(NamedTuple):
    """The loop along the rows of a result, where each of them begins, and elements of a line."""

    loop: UOp
    start: UOp
    line: int


def write_whole_lines(nest: LoopNest, context: Context) -> LoopNest | tuple[LoopNest, ...]:
    """The first line of all rows, the lines between, and the last ones, where rows begin inside of lines."""
    target = context.target
    rows = _rows(nest, target)
    if rows is None:
        return nest
    size = size_of(rows.loop)
    along = _loop_that_reads_lines(nest.graph, rows.loop)
    if along is None and _nbytes(nest.graph) < target.past_caches_bytes:
        return nest
    if along is not None and not _lines_stay(nest.graph, rows, target.first_cache):
        return nest
    if along is not None:
        made = fresh_number(nest.graph)
        nest = reorder(nest, along, made)
        start = rows.start.substitute({along: along.replace(arg=(made, along.arg[1]))})
        rows = rows._replace(start=start)
    nest = align(nest, *rows)
    loop = next(x for x in output_loops(nest.graph) if x.arg == rows.loop.arg)
    return split_index_set(nest, loop, (rows.line, size // rows.line * rows.line))


def _loop_that_reads_lines(graph: UOp, rows: UOp) -> UOp | None:
    """Where what is read lies apart along the rows, the loop along which all of it is contiguous: it runs inside, so that each line is
    read once. None: there is none.
    """
    positions = [n.src[0].src[1] for n in toposort((graph,)) if n.op is Ops.LOAD]
    apart = [index for index in positions if coefficient(index, rows) not in (0, 1)]
    loops = [x for x in output_loops(graph) if all([coefficient(i, x) == 1 for i in apart])]
    return loops[-1] if apart and loops else None


def _lines_stay(graph: UOp, rows: _Rows, cache: FirstCache) -> bool:
    """Whether lines that are read of as many rows as a line of results touches stay in the first cache until all of each is used."""
    loads = [n for n in toposort((graph,)) if n.op is Ops.LOAD]
    steps = [(coefficient(n.src[0].src[1], rows.loop) or 0, n.dtype.itemsize) for n in loads]
    apart = [abs(step) * size for step, size in steps if abs(step) * size > LINE_BYTES]
    most = 2 * rows.line
    return all([rows_that_stay(nbytes, most, cache) == most for nbytes in apart])


def _nbytes(graph: UOp) -> int:
    """Of the result."""
    memory = graph.src[0].src[0].src[0]
    return int(memory.arg[1] * memory.dtype.itemsize)


def _rows(nest: LoopNest, target: Target) -> _Rows | None:
    """The rows of a long result that begin inside of lines; None if they do not, or vectors do not fill lines."""
    graph, store = nest.graph, nest.graph.src[0]
    memory, position, *masks = store.src[0].src
    if not target.past_caches_bytes or len(graph.src) > 1 or len(store.src) > 2 or masks:
        return None
    if _nbytes(graph) < target.least_past_caches_bytes or memory.dtype.is_bool:
        return None
    nodes, loops = toposort((graph,)), output_loops(graph)
    is_read = any([n.op is Ops.LOAD and n.src[0].src[0] is memory for n in nodes])
    if is_read or any([n.op in BINDERS for n in nodes]) or not all(map(is_fixed, loops)):
        return None
    line = target.first_cache.line_bytes // memory.dtype.itemsize
    widest = max([n.dtype.itemsize for n in nodes if n.op is Ops.LOAD], default=1)
    if target.vector_bytes // max(widest, memory.dtype.itemsize) % line:
        return None
    for loop in loops:
        if coefficient(position, loop) == 1 and size_of(loop) >= LEAST_LINES * line:
            start = position.substitute({loop: UOp.index(0)})
            divisor = nest.facts.divisor(start)
            is_between = divisor is None or divisor % line != 0
            return _Rows(loop, start, line) if is_between else None
    return None
