"""Memory is copied so that its rows lie further apart, with room between them that nobody reads.

    x[r + s * c]   =   T[r + m * c + (m - s) * (r // s)],   T[q * m + p] = x[q * s + p] for q < ceil(n / s), p < s < m; 0 for other p < m

    x: 0 1 2 3 4 5 6         s = 3, m = 4         T: 0 1 2 - 3 4 5 - 6 - - -

Element i of x goes to column i % s of row i // s: for each row before it, there is room of m - s elements. Where i is r + s * c, there
are r // s + c of them. Rows that lie a power of two apart share few sets of a cache; a little further apart they spread over
all (array padding: Rivera and Tseng, Data Transformations for Eliminating Conflict Misses, 1998).
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.steps.loop_nest import LoopNest, fission, require, require_fixed
from proofgrad.core.compile.steps.tables import loaded, new_table, stored
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def position_in_copy(rest: Any, count: Any, length: Any, padding: Any) -> Any:
    """Where the copy has the element rest + length * count."""
    return rest + (length + padding) * count + padding * (rest // length)


def rows_of(elements: Any, length: Any) -> Any:
    """How many rows of `length` there are, the last of which may be shorter."""
    return -(-elements // length)


def element_of(row: Any, column: Any, distance: Any) -> Any:
    """The element of a row in memory whose rows begin so far from each other."""
    return row * distance + column


@fission("x[r + s * c] = T[r + m * c + (m - s) * (r // s)] where T[q * m + p] = x[q * s + p]")
def pad_rows(nest: LoopNest, load: UOp, loop: UOp, padding: int) -> tuple[UOp, UOp]:
    """The graph that copies the memory of `load`, and the graph that reads the copy.

    Rows are as long as one iteration of `loop` moves on; `padding`: elements between two of them.
    """
    require(load in toposort((nest.graph,)) and load.op is Ops.LOAD, "no load of the nest", load)
    require_fixed([loop])
    require(padding > 0, "no room between rows", padding)
    memory, index, *mask = load.src[0].src
    require(memory.op is Ops.PARAM, "memory that is not a parameter", memory)
    length = coefficient(index, loop)
    require(length is not None and length > 1, "rows of no known length", length or 0)
    assert length is not None
    elements = memory.arg[1]
    rows, distance = rows_of(elements, length), length + padding
    table = new_table(nest, memory.dtype, rows * distance)
    row, column = UOp.range(rows, 0), UOp.range(distance, 1)
    source, inside = element_of(row, column, length), column < length
    if elements % length:
        inside = inside & (source < elements)
    copied = stored(table, element_of(row, column, distance), loaded(memory, source, inside))
    rest = index.substitute({loop: UOp.index(0)})
    read = loaded(table, position_in_copy(rest, loop, length, padding), *mask)
    return copied, nest.graph.substitute({load: read})
