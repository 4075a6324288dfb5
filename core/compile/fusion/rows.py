"""Which reductions run inside the kernel that uses them, row by row, instead of filling a buffer.

Owns: the conditions. Does not own: how long loops over a row wait for each other (waiting.py), the rest of the choice of buffers (kernels.py).

A softmax takes the maximum of a row, then a sum, then writes the row: one kernel does all three while
the row is in the cache. That is so where the results of a reduction change with the outer loops of the
kernel that uses them only: then each is computed once, before the loops over the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TypeAlias

from proofgrad.core.compile.fusion.parts_for_units import ENOUGH
from proofgrad.core.compile.fusion.waiting import waits_longer
from proofgrad.core.compile.fusion.work import computed_by, flips_last
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.running_reductions import is_running
from proofgrad.core.compile.nests.sums_of_products import is_contraction
from proofgrad.core.compile.schedule.cache_sets import lines_that_stay
from proofgrad.core.compile.schedule.threads import operations_worth_sharing
from proofgrad.core.ir.op_names import CONTIGUOUS, DETACH, EXPAND, REDUCE_AXIS
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp

# Elements of rows take about so many operations each: without rows to share out, few of them run in one thread.
OPERATIONS_AN_ELEMENT = 4
# Elements of its rows that a group on each unit is through with before another kernel would have begun.
SHORT_WORK = 1 << 16
# Rows that lie across memory run as lanes where so many lie side by side.
LEAST_BESIDE = 16
# Nodes between a reduction and the end of the kernel that uses it, at most: in a chain of sums that has
# one reduction a link, each would walk to the end.
MOST_USERS = 256

Axes: TypeAlias = frozenset[int]
Shape: TypeAlias = tuple[int, ...]
Through: TypeAlias = Callable[[Shape, Shape, Axes], Axes | None]


def reductions_by_row(
    nodes: list[UOp],
    consumers: Mapping[UOp, list[UOp]],
    stored: set[UOp],
    kept: set[UOp],
    target: Target,
) -> set[UOp]:
    """Nodes of `stored` that need no buffer, for they can be computed row by row where they are used.

    `kept` are those that must have one. Users come before what they use.
    """
    is_alone = target.lockstep > 1 and not target.group_items
    if target.has_scalar_items or is_alone:  # each item would compute its row again
        return set()
    left = set(stored)  # changed in place: a copy for each node would take square time
    longest_of = _longest_reductions(nodes, stored)  # what is below a node is not decided before it
    for node in reversed(nodes):
        if node not in stored or node in kept or node.op in (Ops.COPY, Ops.CONTIGUOUS):
            continue
        longest = longest_of[node]
        stays = longest * node.dtype.itemsize <= target.room_bytes  # between the loops over a row
        if 1 < longest and stays and _runs_in_one_user(node, longest, consumers, left, target):
            if not any([is_contraction(n) for n in computed_by(node, left)]):  # it runs in tiles
                left.remove(node)
    return stored - left


def _longest_reductions(nodes: list[UOp], stored: set[UOp]) -> dict[UOp, int]:
    """For each node how many elements a reduction that it ends combines; 0: there is none."""
    longest: dict[UOp, int] = {}
    for node in nodes:
        inside = [longest[s] for s in node.src if s not in stored]
        if node.op is REDUCE_AXIS:
            inside.append(prod([node.src[0].shape[axis] for axis in node.arg[1]]))
        longest[node] = max(inside, default=0)
    return longest


def _runs_in_one_user(
    node: UOp, longest: int, consumers: Mapping[UOp, list[UOp]], stored: set[UOp], target: Target
) -> bool:
    """Whether one kernel uses `node`, and in its outer loops only."""
    if (found := _end_and_axes(node, consumers, stored)) is None:
        return False
    end, axes = found
    inside = computed_by(end, stored)
    # A kernel has a sum of products, which runs in tiles, or a running sum, only if it is the one reduction.
    if any([is_contraction(n) or is_running(n) for n in inside]):
        return False
    if axes is None or not _is_worth(end, axes, longest, target):
        return False
    others = [_end_and_axes(n, consumers, stored) for n in inside if n.op is Ops.REDUCE_AXIS]
    if _are_outer(end, axes):  # and no columns, whose loops would run inside of those of such rows
        are_rows = all([x is None or x[1] is None or _are_outer(end, x[1]) for x in others])
        return are_rows and not waits_longer(node, end, longest, inside, stored, target)
    are_alike = all([other is None or other == found for other in others])
    # What is padded is written in parts by a kernel of its own; here each of the loops would ask for each element. What lies backwards fills no lanes.
    both = (*inside, *computed_by(node, stored))
    is_moved = any([n.op is Ops.PAD or flips_last(n) for n in both])
    return are_alike and not is_moved and _are_columns(end, axes, longest, target)


def _end_and_axes(
    node: UOp, consumers: Mapping[UOp, list[UOp]], stored: set[UOp]
) -> tuple[UOp, Axes | None] | None:
    """The one kernel that uses `node`, and the axes of its result along which what it uses changes; None: nothing is known."""
    ends = ends_and_axes(node, consumers, stored, _through_reshape)
    return ends.popitem() if ends is not None and len(ends) == 1 else None


def ends_and_axes(
    node: UOp, consumers: Mapping[UOp, list[UOp]], stored: set[UOp], through: Through
) -> dict[UOp, Axes | None] | None:
    """The same of all kernels that use it. `through`: what a reshape makes of axes."""
    moving: dict[UOp, Axes | None] = {node: _moving_axes(node)}
    stack, ends = [node], dict[UOp, Axes | None]()
    while stack:
        if len(moving) > MOST_USERS:
            return None
        below = stack.pop()
        for user in consumers[below]:
            axes = _carried(user, below, moving[below], through)
            if axes is None or moving.get(user, axes) != axes:
                return None
            if user in moving:
                continue
            moving[user] = axes
            if user in stored or not consumers[user]:
                ends[user] = axes
            else:
                stack.append(user)
    return ends


def _moving_axes(node: UOp) -> Axes:
    return frozenset(axis for axis, size in enumerate(node.shape) if size > 1)


def _carried(user: UOp, below: UOp, axes: Axes | None, through: Through) -> Axes | None:
    """The axes of `user` along which what it reads of `below` changes; None: not along its own."""
    if axes is None:
        return None
    if user.op in ELEMENTWISE or user.op in (EXPAND, DETACH, CONTIGUOUS):
        return axes
    if user.op is Ops.REDUCE_AXIS:
        return None if axes.intersection(user.arg[1]) else axes
    if user.op is Ops.RESHAPE:
        return through(below.shape, user.shape, axes)
    return None


def _through_reshape(old: Shape, new: Shape, axes: Axes) -> Axes | None:
    """Axes of size 1 may come and go."""
    old_axes = [a for a, size in enumerate(old) if size > 1]
    new_axes = [a for a, size in enumerate(new) if size > 1]
    if [old[a] for a in old_axes] != [new[a] for a in new_axes]:
        return None
    return frozenset(b for a, b in zip(old_axes, new_axes) if a in axes)


def _are_outer(end: UOp, axes: Axes) -> bool:
    inner = [a for a, size in enumerate(end.shape) if size > 1 and a not in axes]
    return not axes or not inner or max(axes) < min(inner)


def _are_columns(end: UOp, axes: Axes, longest: int, target: Target) -> bool:
    """Whether a row lies across memory, and rows side by side fill vectors: loops over a row can run inside of those along these.

    Each of the loops over a row reads the same lines, so these have to stay in the second cache. What is longer than the rows that are reduced, as
    behind a sum in parts, reads no lines again, and is slower across memory than along it (measured: a softmax over columns takes 1.3 to 1.8 times as long).
    """
    beside = 1
    for axis in reversed(range(len(end.shape))):
        if end.shape[axis] > 1 and axis not in axes:
            break
        beside *= end.shape[axis]
    if target.work_items or beside < LEAST_BESIDE:
        return False
    across = prod(end.shape) // prod([end.shape[axis] for axis in axes])
    return across <= longest <= lines_that_stay(beside * end.dtype.itemsize, target)


def _is_worth(end: UOp, axes: Axes, longest: int, target: Target) -> bool:
    rows = prod(end.shape[a] for a in axes)
    work = rows * longest + prod(end.shape)
    if target.units:  # a row is a group's, or a part of one
        of_a_unit = work // min(rows, target.units)
        return rows >= ENOUGH * target.units or of_a_unit <= SHORT_WORK
    return rows >= 2 * target.threads or OPERATIONS_AN_ELEMENT * work <= operations_worth_sharing(
        target
    )
