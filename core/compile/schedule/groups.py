"""Whether the items of a group compute rows together, and how many they are.

Owns: the choice, a heuristic. Does not own: the steps (tactics/groups.py), what a group has (target.py).

An item that sums a row by itself reads elsewhere than its neighbours do at each step, and there are only as many items as rows.
In a group each item sums a part, neighbours read side by side, and the parts are combined in memory of the group. Of short rows a
group has several. Of a long row that is read again it has as many as can hold it in registers. Where results are many more than elements
of their row, several groups share them: each takes the row in again.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import NO_GROUP, Group, Schedule
from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.schedule.threads import runs_in_order
from proofgrad.core.compile.schedule.vector_lanes import lanes_along
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Elements of a row for each item: with fewer, waiting for each other takes longer than the sum.
LEAST_ELEMENTS = 4
# Items of a row that has a result only: with fewer, each item reads rows of its own about as well.
LEAST_ITEMS = 4
# On a processor neighbouring items are lanes of its vectors: of more rows each item takes its own, and none waits (measured on lavapipe:
# 8 rows of 4261 in groups take 0.4 times as long, 36 of 6188 1.5 times).
FEW_ROWS = 16
# Of rows that lie across memory a group has so many results as are a sector of it, side by side, of each of its items' elements;
# and so many elements of a row are soon added up so.
# Source: CUDA C++ programming guide, device memory accesses: memory comes in 32 bytes at least.
SECTOR_BYTES = 32
ROWS_ACROSS = 256
# What is computed beside each result of a reduction is much where it is so many times what that takes in. Then each item takes one of so
# few elements by itself: items that run in step read the same, at once. Of a longer one a group stores so many results.
BESIDE, ONE_LOAD = 16, 4
# Groups for each unit: one computes while others wait for memory, and the last to end is short.
GROUPS_A_UNIT = 4
# A group that took a row in stores results for each of its items so often, where other groups are enough for all units.
MOST_TURNS = 4
# Short rows make up groups of so many times the items that run in step.
IN_STEP_AT_ONCE = 4


def choose_group(kernel: UOp, target: Target, override: Schedule) -> Group | None:
    """Rows of a group, and the items of each; NO_GROUP: each item works by itself; None: the machine has no groups."""
    if not target.group_items:
        return None
    rows = [] if runs_in_order(kernel) else rows_to_share(kernel, target.lockstep > 1)
    if not rows:
        return NO_GROUP
    if override.group is not None:
        return _fitting(override.group, max(target.group_items, target.row_items))
    # Else each item would take the whole row again for the results that it stores.
    is_stored = all([set(output_loops(kernel)) != loops_of(row) for row in rows])
    if not (is_stored or any([_reads_along(x, kernel) for x in rows])):
        return _across(rows, kernel, target)
    if target.lockstep == 1 and not _are_few(rows, target):
        return NO_GROUP
    longest = max([size_of(row.src[-1]) for row in rows])
    if target.lockstep > 1 and (shared := _sharing_results(rows, longest, kernel, target)):
        return shared
    items = min(target.group_items, _power_of_two(longest // LEAST_ELEMENTS))
    whole = _items_at_once(rows, target)
    items = items if whole is None else whole
    items = max(items, 2) if is_stored else items
    if is_stored or len(rows) > 1:
        items = _items_that_hold(rows, items, target)
    return _with_rows(items, rows, target) if is_stored or items >= LEAST_ITEMS else NO_GROUP


def _sharing_results(rows: list[UOp], longest: int, kernel: UOp, target: Target) -> Group | None:
    """A group for some results of a row that has many more of them than elements; None where it has not."""
    around = frozenset().union(*map(loops_of, rows))
    count = prod([size_of(x) for x in output_loops(kernel) if x not in around])
    if count < BESIDE * longest:
        return None
    lanes = target.lanes(kernel.src[0].src[1].dtype)
    items = min(target.group_items, _power_of_two(count // lanes))
    turn, units = items * lanes, max(1, target.units)
    every = count * prod([size_of(x) for x in around])
    turns = min(MOST_TURNS, max(1, every // (turn * GROUPS_A_UNIT * units)))
    least = max(turns * turn, min(BESIDE * longest, every // units))
    results = 2 * _power_of_two(least - 1)
    return Group(1, items, results if results < count else 0)


def _across(rows: list[UOp], kernel: UOp, target: Target) -> Group:
    """A group for rows across memory, where results are fewer than items that the units of a machine run at once."""
    loads = [n for row in rows for n in toposort((row.src[0],)) if n.op is Ops.LOAD]
    longest, count = max([size_of(row.src[-1]) for row in rows]), max([_count(row) for row in rows])
    if not loads or not are_shared_across(count, target):
        return NO_GROUP
    side_by_side = SECTOR_BYTES // min([load.dtype.itemsize for load in loads])
    lanes = lanes_of_results(kernel, target)
    # Whole vectors stay whole: a group that reaches beyond the last results reads each by itself.
    side_by_side = (
        gcd(side_by_side, count) if lanes > 1 else min(side_by_side, _power_of_two(count))
    )
    own = max(1, side_by_side // lanes)
    items = min(target.group_items // own, _power_of_two(longest // LEAST_ELEMENTS))
    return Group(side_by_side, items) if items >= LEAST_ITEMS else NO_GROUP


def are_shared_across(count: int, target: Target) -> bool:
    """Whether so few results of rows across memory are those of groups: items of their own would leave units idle."""
    return count < target.units * IN_STEP_AT_ONCE * target.lockstep


def lanes_of_results(kernel: UOp, target: Target) -> int:
    """How many results side by side an item of a group sums at once, where rows lie across memory; 1: one."""
    outputs = output_loops(kernel)
    return lanes_along(kernel, outputs[-1], target) if outputs and is_fixed(outputs[-1]) else 1


def _fitting(wanted: Group, most: int) -> Group:
    """As many of the rows and items as a group has."""
    items = min(wanted.items, most)
    return replace(wanted, rows=min(wanted.rows, most // items), items=items) if items else NO_GROUP


def _items_that_hold(rows: list[UOp], items: int, target: Target) -> int:
    """As many items as have registers for a row, which is then read once; the given number where no group has so many."""
    nbytes = max([size_of(row.src[-1]) * _bytes_each(row) for row in rows])
    most = items
    while most < target.row_items and nbytes > most * target.row_part_bytes:
        most *= 2
    return most if nbytes <= most * target.row_part_bytes else items


def _items_at_once(rows: list[UOp], target: Target) -> int | None:
    """As many of the items that run in step as take a row in one wide load each; None where no power of two does."""
    loads = [n for row in rows for n in toposort((row.src[0],)) if n.op is Ops.LOAD]
    lanes = min([target.lanes(load.dtype) for load in loads], default=1)
    sizes = {size_of(row.src[-1]) for row in rows}
    items = max(sizes) // lanes
    is_whole = len(sizes) == 1 and items * lanes == max(sizes) and _power_of_two(items) == items
    return items if is_whole and 1 < items <= min(target.lockstep, target.group_items) else None


def _bytes_each(row: UOp) -> int:
    """Of an element of a row: what is loaded of all memories that change from row to row, or what is computed of it."""
    loop, around = row.src[-1], loops_of(row)
    loads = [n for n in toposort((row.src[0],)) if n.op is Ops.LOAD]
    of_row = {n.src[0] for n in loads if loops_of(n) == around | {loop}}
    return max(row.dtype.itemsize, sum([position.dtype.itemsize for position in of_row]))


def _with_rows(items: int, rows: list[UOp], target: Target) -> Group:
    """So many items a row, and as many rows as make a group worth its while."""
    count = max([_count(row) for row in rows])
    wanted = min(target.group_items, IN_STEP_AT_ONCE * target.lockstep)
    return Group(min(max(1, wanted // items), _power_of_two(count)), items)


def _are_few(rows: list[UOp], target: Target) -> bool:
    """Whether a processor whose items have no vectors of their own has fewer rows than items that it would run side by side."""
    return target.has_scalar_items and max([_count(row) for row in rows]) <= FEW_ROWS


def _count(row: UOp) -> int:
    """How many rows there are."""
    return prod([size_of(x) for x in loops_of(row)])


def rows_to_share(kernel: UOp, several: bool = False) -> list[UOp]:
    """The reductions over one loop of a known size that a group computes together: of each position of the loops of one of them.

    Others change with fewer loops, and are computed again; those that change with more are each item's own. `several`: those over
    more loops, too, of which items share the last one.
    """
    free, outputs = loops_of, set(output_loops(kernel))
    reductions = [n for n in toposort((kernel,)) if n.op is Ops.REDUCE]
    fitting = [n for n in reductions if several or len(n.src) == 2]
    fitting = [n for n in fitting if all(map(is_fixed, n.src[1:]))]
    rows = [n for n in fitting if size_of(n.src[-1]) > 1 and free(n) <= outputs]
    rows = [n for n in rows if not _is_each_item_s(n, rows, outputs)]
    around = min([free(n) for n in rows], key=lambda x: _reads_of(rows, x), default=frozenset())
    return [n for n in rows if free(n) <= around]


def _is_each_item_s(row: UOp, rows: list[UOp], outputs: set[UOp]) -> bool:
    """Whether a reduction is short beside what is computed with each of its results: the kernel's own, or elements of other rows."""
    count, own = prod([size_of(x) for x in row.src[1:]]), loops_of(row)
    others = [{*loops_of(n), n.src[-1]} for n in rows if loops_of(n) >= own and n is not row]
    beside = max([prod([size_of(x) for x in loops - own]) for loops in (outputs, *others)])
    return count <= ONE_LOAD and beside >= BESIDE * count


def _reads_of(rows: list[UOp], around: frozenset[UOp]) -> int:
    """Bytes that are read where a group has a position of these loops: of a row that an item takes alone a sector for each element."""
    groups, nbytes = prod([size_of(x) for x in around]), 0
    for row in rows:
        is_shared = loops_of(row) <= around
        each = groups * row.dtype.itemsize if is_shared else _count(row) * SECTOR_BYTES
        nbytes += size_of(row.src[-1]) * each
    return nbytes


def _reads_along(reduction: UOp, kernel: UOp) -> bool:
    """Whether what a reduction reads lies side by side along its own loop, and not along results."""
    loop, outputs = reduction.src[-1], output_loops(kernel)
    positions = [n.src[0].src[1] for n in toposort((reduction.src[0],)) if n.op is Ops.LOAD]
    moving = [position for position in positions if loop in loops_of(position)]
    along = [coefficient(position, loop) == 1 for position in moving]
    across = [
        coefficient(position, x) == 1 for position in moving for x in outputs if size_of(x) > 1
    ]
    return bool(along) and all(along) and not any(across)


def _power_of_two(most: int) -> int:
    """The largest power of two that is not above a number, from 1 on."""
    return 1 << max(0, most.bit_length() - 1)
