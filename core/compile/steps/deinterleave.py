"""Memory that is read in steps of a few elements is copied so that neighbours are read, each row of it for itself.

    x[n * q + r + s * c]   =   T[q * s * m + (r % s) * m + r // s + c]        if 0 <= r + s * c < n, where m = ceil(n / s)
    T[q * s * m + p * m + j]   =   x[n * q + j * s + p]                       for p < s, j < m, if j * s + p < n

    x: 0 1 2 3 4 5 6         n = 7, s = 2         T: 0 2 4 6 1 3 5 -

Element i of a row goes to the position (i % s, i // s). Where i is r + s * c, the first is r % s, the second r // s + c. If all memory is
one row, of r the rows are a part: where the step does not divide them, r % s is another one in each.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.steps.bounds import lies_between
from proofgrad.core.compile.steps.loop_nest import LoopNest, fission, require, require_fixed
from proofgrad.core.compile.steps.tables import loaded, new_table, stored
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.facts import Facts


def phase_and_position(rest: Any, count: Any, step: Any) -> tuple[Any, Any]:
    """The remainder and quotient by `step` of rest + step * count."""
    return rest % step, rest // step + count


def length_of(elements: Any, step: Any) -> Any:
    """How many elements have the same remainder by `step`, at most."""
    return -(-elements // step)


def element_at(phase: Any, position: Any, step: Any) -> Any:
    """The element whose remainder and quotient by `step` these are."""
    return position * step + phase


def slot_of(phase: Any, position: Any, length: Any) -> Any:
    """Where the copy has the element."""
    return phase * length + position


def column_and_row(index: UOp, along: UOp, length: int) -> tuple[UOp, UOp]:
    """Two terms, of which an index is the first and `length` times the second: of loops but `along` that go from row to row, by linear forms, is the second."""
    column, row = index, UOp.index(0)
    for loop in sorted(loops_of(index) - {along}, key=lambda x: x.arg[0]):
        step = coefficient(index, loop)
        if step is not None and step % length == 0:
            column = column.substitute({loop: UOp.index(0)})
            row = row + loop * (step // length)
    return column, row


def reads_in_rows(index: UOp, along: UOp, length: int, facts: Facts) -> bool:
    """Whether loops that do not go from row to row stay in one of so many elements, whatever masks say."""
    column, _ = column_and_row(index, along, length)
    return lies_between(column, 0, length - 1, facts)


@fission(
    "x[n * q + r + s * c] = T[q * s * m + (r % s) * m + r // s + c]"
    " where T[q * s * m + p * m + j] = x[n * q + j * s + p]"
)
def deinterleave(
    nest: LoopNest, load: UOp, loop: UOp, row_length: int | None = None
) -> tuple[UOp, UOp]:
    """The graph that copies the memory that `load` reads in steps along `loop`, and the graph that reads the copy.

    `row_length`: elements of a row, if all memory is not one.
    """
    require(load in toposort((nest.graph,)) and load.op is Ops.LOAD, "no load of the nest", load)
    require_fixed([loop])
    memory, index, *mask = load.src[0].src
    require(memory.op is Ops.PARAM, "memory that is not a parameter", memory)
    step = coefficient(index, loop)
    require(step is not None and step > 1, "steps of no known length", step or 0)
    assert step is not None
    elements = memory.arg[1]
    column, row, rows = index, UOp.index(0), 1
    if row_length is None:
        row_length = elements
    else:
        require(row_length > 0, "rows of no elements", row_length)
        require(
            reads_in_rows(index, loop, row_length, nest.facts), "loops that leave a row", row_length
        )
        column, row = column_and_row(index, loop, row_length)
        rows = length_of(elements, row_length)
    rest = column.substitute({loop: UOp.index(0)})
    length = length_of(row_length, step)
    table = new_table(nest, memory.dtype, rows * step * length)

    def place(row: UOp, phase: UOp, position: UOp) -> UOp:
        here: UOp = slot_of(phase, position, length)
        behind: UOp = slot_of(row, here, step * length)
        return here if rows == 1 else behind

    counter = UOp.index(0) if rows == 1 else UOp.range(rows, 0)
    phase, position = UOp.range(step, 1), UOp.range(length, 2)
    there = element_at(phase, position, step)
    source = there if rows == 1 else element_at(there, counter, row_length)
    # What lies behind a row is that of the next one, and read by nobody.
    is_whole = row_length % step == 0 and elements == rows * row_length
    inside = () if is_whole else (source < elements,)
    copied = stored(table, place(counter, phase, position), loaded(memory, source, *inside))
    read = loaded(table, place(row, *phase_and_position(rest, loop, step)), *mask)
    return copied, nest.graph.substitute({load: read})
