"""Which operand of a contraction has rows that evict each other from the first cache, and how far apart they should lie.

Owns: the choice, a heuristic. Does not own: the copy (steps/pad_rows.py), tables (operands.py).

Images of 64 x 64 float32 lie 16 KB apart: of all of them an element lies in one set of the cache. A sum over the channels of
a window reads each line anew, once for each element of the window; in a copy with one line between images, once for all.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.schedule.cache_sets import collide, columns_collide
from proofgrad.core.compile.schedule.contraction import Contraction
from proofgrad.core.compile.schedule.tiles import find_contraction
from proofgrad.core.compile.steps.bounds import lies_between
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.ir.op_names import LOAD, REDUCE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def conflicting_rows(nest: LoopNest, override: Schedule) -> tuple[UOp, UOp, int] | None:
    """A load, the loop along which it reads rows, and how many elements to put between them; None: there is none."""
    target = nest.target
    if target.work_items or not _may_conflict(nest.graph, target):
        return None
    found = find_contraction(nest.graph, target, override)
    if found is None or not _pays(contraction := found[0], target):
        return None
    loop, cache = contraction.reduction.src[-1], target.first_cache
    loads = [n for n in toposort((contraction.column_factor,)) if n.op is Ops.LOAD]
    if len(loads) != 1 or loads[0].src[0].src[0].op is not Ops.PARAM:
        return None
    length = coefficient(loads[0].src[0].src[1], loop)
    line = cache.line_bytes // loads[0].dtype.itemsize
    if length is None or length < line or not _stays_in_a_row(loads[0], length, nest):
        return None
    return loads[0], loop, line


def _may_conflict(kernel: UOp, target: Target) -> bool:
    """Whether a load and a loop of a reduction are there for which it could be so: far sooner found than a contraction."""
    nodes = toposort((kernel,))
    loops = {n.src[-1] for n in nodes if n.op is REDUCE}
    loads = [n for n in nodes if n.op is LOAD] if loops else []
    return any(collide(n, loop, target.first_cache) for n in loads for loop in loops)


def _pays(contraction: Contraction, target: Target) -> bool:
    """Whether windows of the operand overlap, so that its lines are read again, and often enough."""
    return (
        contraction.growth_of_columns > 1
        and contraction.pays_tables(target)
        and columns_collide(contraction, target.first_cache)
    )


def _stays_in_a_row(load: UOp, length: int, nest: LoopNest) -> bool:
    """Whether loops that do not go from row to row stay in one, so that their index needs no quotient in the copy.

    Under a mask they may reach beyond its ends: what is read is inside.
    """
    _, index, *mask = load.src[0].src
    from_row_to_row = [
        loop for loop in loops_of(index)
        if (step := coefficient(index, loop)) is not None and step % length == 0
    ]  # fmt: skip
    column = index.substitute(dict.fromkeys(from_row_to_row, UOp.index(0)))
    beyond = length if mask else 0
    return lies_between(column, -beyond, length - 1 + beyond, nest.facts)
