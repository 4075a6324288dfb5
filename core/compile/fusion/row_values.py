"""Values that several loops over the same elements read: a maximum, a sum and the result of a softmax.

Owns: which of them get a buffer. Does not own: which reductions run inside of the kernel that uses them (rows.py), costly values of a row, which
such a kernel keeps for itself (tactics/local_buffers.py, tactics/columns.py), what views beyond these compute again (views.py).

Each loop computes the value again, and gathers it again where neighbours of its operands lie apart in memory, as those of a transposed matrix do.
A kernel of its own takes it once, and its loops are those of nothing else: it fills vectors, and turns what it gathers around in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from proofgrad.core.compile.fusion.work import (
    SHORT_REDUCTION,
    axis_below,
    cycles_of_work,
    last_axis,
    length_of,
    pays_a_buffer,
)
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.sums_of_products import is_contraction
from proofgrad.core.ir.op_names import BUFFER, DETACH, EXPAND, REDUCE_AXIS, RESHAPE
from proofgrad.core.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp

# So many loops and values are looked at.
MOST_LOOPS = 16
MOST_VALUES = 256
_NONE: frozenset[UOp] = frozenset()


def read_by_several_loops(
    nodes: Sequence[UOp], consumers: Mapping[UOp, list[UOp]], stored: set[UOp], target: Target
) -> set[UOp]:
    """Values that loops take longer to compute again than to read from a buffer."""
    if target.work_items or target.vector_bytes == 0:
        return set()
    loops: dict[UOp, frozenset[UOp]] = {}
    kernels: dict[UOp, frozenset[UOp]] = {}  # that compute a node, by their ends
    reduced, shared = _behind_reductions(nodes, stored), list[UOp]()
    for node in reversed(nodes):
        users = consumers[node]
        parts = [_loops_by(user, node, loops, stored) for user in users]
        if len(users) == 1 and node not in stored:  # none of these sets is too large
            loops[node], kernels[node] = parts[0], kernels[users[0]]
            continue
        loops[node] = every = _some(parts)
        kernels[node] = frozenset({node}) if node in stored else _some([kernels[u] for u in users])
        if (
            len(parts) > 1
            and len(every) > max(map(len, parts))
            and not (node in stored or node in reduced)
        ):
            shared.append(node)
    ends = set(stored)
    for node in reversed(shared):  # what is made of a value that gets a buffer reads that
        value, every = _before_copies(node), loops[node]
        is_one = len(_some([kernels[loop] for loop in every])) == 1
        if value not in ends and _is_worth_a_buffer(value, every, is_one, ends, target):
            ends.add(value)
    return ends - stored


def _some(sets: Sequence[frozenset[UOp]]) -> frozenset[UOp]:
    """All together, unless they are too many to look at."""
    return _NONE.union(*sets) if sum(map(len, sets)) <= MOST_LOOPS else _NONE


def _behind_reductions(nodes: Sequence[UOp], stored: set[UOp]) -> set[UOp]:
    """Nodes that need the result of a reduction of their kernel."""
    found: set[UOp] = set()
    for node in nodes:
        if node.op is REDUCE_AXIS or any([s in found and s not in stored for s in node.src]):
            found.add(node)
    return found


def _loops_by(
    user: UOp, node: UOp, loops: Mapping[UOp, frozenset[UOp]], stored: set[UOp]
) -> frozenset[UOp]:
    """The loops that read a node through one of its users: of a reduction that runs in no tiles, or of what is stored; a slice stands for its own."""
    if user.op is REDUCE_AXIS:
        return _NONE if is_contraction(user) else frozenset({user})
    is_slice = user.op in MOVEMENT and elements(user.shape) < elements(node.shape)
    return frozenset({user}) if user in stored or (is_slice and loops[user]) else loops[user]


def _share(loop: UOp, value: UOp) -> float:
    """How much of a value a loop reads."""
    read = loop.src[0] if loop.op is REDUCE_AXIS else loop
    return min(1.0, elements(read.shape) / max(1, elements(value.shape)))


def _before_copies(node: UOp) -> UOp:
    """What is stored of a value: not the same elements many times."""
    while node.op in (EXPAND, RESHAPE, DETACH):
        node = node.src[0]
    return node


def _is_worth_a_buffer(
    value: UOp, loops: frozenset[UOp], is_one: bool, stored: set[UOp], target: Target
) -> bool:
    """Whether a value is. `is_one`: one kernel has all of the loops, and may keep what it computed of a row."""
    if value.op not in ELEMENTWISE and value.op not in MOVEMENT:
        return False
    reductions = [loop for loop in loops if loop.op is REDUCE_AXIS]
    short = sum([length_of(r) <= SHORT_REDUCTION for r in reductions])
    reads = sum([_share(loop, value) for loop in loops])
    again = reads - max(1, short if is_one else 1)  # one kernel writes short ones out as one
    are_alike = len({(r.src[0].shape, r.arg[1]) for r in reductions}) <= 1
    is_kept = is_one and are_alike and all([_is_kept(r, target) for r in reductions])
    work = 0.0 if is_kept else again * cycles_of_work(value, stored)
    lanes = target.lanes(value.dtype)
    vectors = elements(value.shape) / lanes
    if is_kept and _repeats_neighbours(value, stored, lanes):  # along a row it fills no lanes
        work = (lanes - 1) * cycles_of_work(value, stored)
    if pays_a_buffer(value, work * vectors, len(loops), target):
        return True
    is_shown = is_one and any([n in stored and n.op is not Ops.REDUCE_AXIS for n in loops])
    filled = _cycles_to_fill(value, reads, is_shown, stored, target) * elements(value.shape)
    return pays_a_buffer(value, work * vectors + filled, len(loops), target)


def _repeats_neighbours(value: UOp, stored: set[UOp], lanes: int) -> bool:
    """Whether a vector has a few copies each of several elements, as what windows of a pool gave is for each of their elements, along an axis
    that is made of windows."""
    waiting, seen = [(value, value)], set[tuple[UOp, UOp]]()
    while waiting and len(seen) < MOST_VALUES:
        node, shown = waiting.pop()
        if node in stored or (node, shown) in seen:
            continue
        seen.add((node, shown))
        if node.op is Ops.EXPAND and 1 < _copies_beside(node) < lanes:
            if shown.shape[last_axis(shown)] > _copies_beside(node):
                return True
        stays = node.op in ELEMENTWISE or node.op is Ops.RESHAPE
        waiting += [(source, shown if stays else source) for source in node.src]
    return False


def _copies_beside(expand: UOp) -> int:
    """So many copies of an element lie side by side."""
    count, (source,) = 1, expand.src
    for size, before in zip(reversed(expand.shape), reversed(source.shape)):
        if size != 1 and before != 1:
            break
        count *= size
    return count


def _cycles_to_fill(
    value: UOp, reads: float, is_shown: bool, stored: set[UOp], target: Target
) -> float:
    """Cycles an element that it takes loops longer to fill vectors with what lies apart than a kernel of its own, which turns it around in registers.

    A reduction by itself runs along that of the last two axes for which less lies apart; with what is stored by the same kernel, along the last.
    """
    axes, core = [axis for axis, size in enumerate(value.shape) if size != 1], target.core
    if not axes or not (apart := _apart_along(axes[-1], value, stored)):
        return 0.0
    least = (
        apart if is_shown or len(axes) < 2 else min(apart, _apart_along(axes[-2], value, stored))
    )
    return max(0.0, least * reads * core.gather_cycles - apart * core.transposed_cycles)


def _is_kept(reduction: UOp, target: Target) -> bool:
    """Whether a kernel keeps what it computed of a row: one that lies along memory, or across it, of which it keeps a vector of rows at least."""
    value, axes = reduction.src[0], reduction.arg[1]
    last = max([axis for axis, size in enumerate(value.shape) if size != 1], default=0)
    nbytes, lanes = length_of(reduction) * value.dtype.itemsize, target.lanes(value.dtype)
    if last in axes:
        return nbytes <= target.scratch_bytes
    room = min(target.scratch_bytes, target.room_bytes)
    return len(axes) == 1 and value.shape[last] >= lanes and lanes * nbytes <= room


def _apart_along(axis: int, value: UOp, stored: set[UOp]) -> int:
    """Operands of a value whose neighbours along an axis are no neighbours in memory; as many as are looked at."""
    waiting, found = [(value, axis)], set[tuple[UOp, int]]()
    seen = set(waiting)
    while waiting and len(seen) < MOST_VALUES:
        node, along = waiting.pop()
        if node.op is BUFFER or (node in stored and node is not value):
            if prod(node.shape[along + 1 :]) > 1:
                found.add((node, along))
            continue
        stays = node.op in ELEMENTWISE
        for source in node.src:
            below = along if stays else axis_below(node, source, along)
            if below is None and node.op is RESHAPE and prod(node.shape[along + 1 :]) > 1:
                found.add((node, along))
            elif below is not None and (source, below) not in seen:
                seen.add((source, below))
                waiting.append((source, below))
    return len(found)
