"""Whether the items of a group compute a row together, and how many they are.

Owns: the choice, a heuristic. Does not own: the steps (tactics/groups.py), what a group has (target.py).

An item that sums a row by itself reads elsewhere than its neighbours do at each step, and there are only as many items as rows.
In a group each item sums a part, neighbours read side by side, and the parts are combined in memory of the group.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule
from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.schedule.threads import runs_in_order
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Elements of a row for each item: with fewer, waiting for each other takes longer than the sum.
LEAST_ELEMENTS = 4


def choose_group(kernel: UOp, target: Target, override: Schedule) -> int | None:
    """Items of a group; 0: each item works by itself; None: the machine has no groups."""
    if not target.group_items:
        return None
    rows = [] if runs_in_order(kernel) else rows_to_share(kernel)
    if not rows:
        return 0
    longest = max([size_of(row.src[1]) for row in rows])
    if override.group is not None:
        return min(override.group, target.group_items)
    if target.lockstep == 1 or not any([_reads_along(row, kernel) for row in rows]):
        return 0
    group = min(target.group_items, _power_of_two(longest // LEAST_ELEMENTS))
    return group if group >= target.lockstep else 0


def rows_to_share(kernel: UOp) -> list[UOp]:
    """The reductions over one loop of a known size, whose results change with output loops only."""
    free, outputs = loops_of, set(output_loops(kernel))
    reductions = [n for n in toposort((kernel,)) if n.op is Ops.REDUCE]
    fitting = [n for n in reductions if len(n.src) == 2 and is_fixed(n.src[1])]
    return [n for n in fitting if size_of(n.src[1]) > 1 and free(n) <= outputs]


def _reads_along(reduction: UOp, kernel: UOp) -> bool:
    """Whether what a reduction reads lies side by side along its own loop, and not along results."""
    loop, outputs = reduction.src[1], output_loops(kernel)
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
