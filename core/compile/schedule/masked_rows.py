"""Which rows of a tile a masked sum has to ask about: those at the edges of an image, and no others.

Owns: counting them. Does not own: what asking takes (cost_model.py), masks that are one truth for a whole tile (backends/llvm).

The gradient of a convolution sums where 0 <= y - k < n. Of the rows y of a tile only those that are so near to an end that some k is outside
ask; what a tile's other rows would ask is true whatever the loops are, and is left out when its rows are written out.
"""

from __future__ import annotations

from functools import lru_cache

from proofgrad.core.compile.nests.kernel_schedule import Tile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import at_start, coefficient, loops_of
from proofgrad.core.compile.schedule.contraction import Contraction
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def masked_rows(contraction: Contraction, tile: Tile) -> int:
    """How many rows of a tile have a mask of their own."""
    if not contraction.has_masked_rows:
        return 0
    count = contraction.row_count
    first, last = _asking(contraction.reduction.src[0].src[0], contraction.rows)
    beyond = (
        -(-count // tile.rows) * tile.rows
    )  # what the last tile has there is masked as the last rows are
    asking = (*range(first), *range(count - last, beyond if last else count))
    return len({row % tile.rows for row in asking})


@lru_cache(maxsize=16)
def _asking(mask: UOp, rows: UOp) -> tuple[int, int]:
    """So many of the first and of the last iterations of a loop may be masked."""
    first = last = 0
    for part in toposort((mask,), lambda node: node.op is Ops.AND):
        if part.op is Ops.AND or rows not in loops_of(part):
            continue
        step, room = _step_of_room(part, rows), _least_room(part, rows)
        if not step or room is None:
            return size_of(rows), 0
        if step > 0:
            first = max(first, -(-(1 - room) // step))
        else:
            last = max(last, size_of(rows) - 1 - (room - 1) // -step)
    return max(0, min(first, size_of(rows))), max(0, min(last, size_of(rows)))


def _step_of_room(part: UOp, loop: UOp) -> int | None:
    """How far the right side of a comparison goes beyond the left with each iteration of a loop; None: not by the same each time."""
    if part.op is not Ops.CMPLT:
        return None
    below, above = [coefficient(side, loop) for side in part.src]
    return None if below is None or above is None else above - below


def _least_room(part: UOp, rows: UOp) -> int | None:
    """The least, over all other loops, by which the right side of a comparison is beyond the left in the first row: it holds from 1 on."""
    room = at_start(part.src[1]) - at_start(part.src[0])
    for loop in loops_of(part) - {rows}:
        step = _step_of_room(part, loop)
        if step is None:
            return None
        room += min(0, step) * (size_of(loop) - 1)
    return room
