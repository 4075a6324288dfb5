"""What is computed in the loop of a reduction's results, before they are stored: its epilogue.

Owns: where an epilogue ends. Does not own: the rest of the choice of buffers (kernels.py), what it costs to compute a value
where it is (work.py).
"""

from __future__ import annotations

from proofgrad.core.compile.fusion.work import (
    below_movement,
    flips_last,
    last_axis,
    pays_a_buffer,
    vectors_of_rows,
)
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.running_reductions import is_running
from proofgrad.core.compile.nests.sums_of_products import is_contraction, is_product
from proofgrad.core.compile.schedule.contraction import pays_a_kernel, pays_tiles
from proofgrad.core.compile.schedule.operation_cycles import SHORT_CYCLES
from proofgrad.core.ir.op_names import FLIP, REDUCE_AXIS
from proofgrad.core.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements, is_plain
from proofgrad.core.ir.uop import UOp

# Movement that uses every element at most once, so that fusing over it computes nothing twice.
_AT_MOST_ONCE = MOVEMENT - {Ops.EXPAND}
# A reduction runs inside another one that combines at most so many of its results, as the sum over
# a window does; a longer one would leave too few output elements to share out.
LARGEST_OUTER_REDUCTION = 16
_SAME = frozenset({Ops.DETACH, Ops.CONTIGUOUS})
_VIEWS = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.DETACH})
_SEEN_THROUGH = frozenset({Ops.PERMUTE, Ops.EXPAND, Ops.RESHAPE, Ops.SHRINK, Ops.DETACH})


def end_of_epilogue(
    reduction: UOp,
    consumers: dict[UOp, list[UOp]],
    meets: dict[UOp, UOp | None],
    stored: set[UOp],
    target: Target,
    selects: bool = False,
) -> UOp:
    """The last node that can be computed in the loop of the reduction's results.

    Of a sum of products neither padding is, whose masks would keep the sum from its tiles, nor a flip, behind which lanes lie backwards, nor what
    takes different parts of it, each with a sum of its own. Nor, of a long one, is a reduction of what is computed from
    it, as over the windows of a pool: only sums of sums become one sum, which runs in tiles. No long reduction is padded, or,
    if it runs in no tiles, stored along other axes than it reads. One that `selects` a term is not long.
    """
    end, is_tiled = reduction, is_contraction(reduction)
    if is_running(
        reduction
    ):  # it runs along with a loop of the results, which those do not take apart
        return _end_of_running(reduction, consumers, meets, stored)
    steps = 0 if selects else elements(reduction.src[0].shape)
    is_long = pays_a_kernel(steps, reduction.dtype, target)
    fitting = _AT_MOST_ONCE - {Ops.PAD} if is_tiled or is_long else _AT_MOST_ONCE
    pays_turning = is_long or _pays_turning(reduction, steps, target)
    is_turned = pays_turning and not _has_rows_and_columns(reduction)
    is_turned = is_turned and _lies_as_it_is_read(reduction)
    is_masked = _pays_masks(reduction, steps, target)
    needs_tiles = is_tiled and not selects and pays_tiles(steps, reduction.dtype, target)
    sums = _sums_of(reduction, consumers) if needs_tiles else None
    while end not in stored:
        meeting, users = meets[end], consumers[end]
        if is_tiled and len(users) > 1 and any([user.op in MOVEMENT for user in users]):
            break
        if meeting is None or not _none_twice(end, meeting, consumers, stored, fitting, sums):
            break
        if (is_turned and _turns_last(meeting)) or (is_masked and _pads_last(meeting)):
            break
        if is_tiled and is_long and meeting.op is FLIP:
            break
        end = meeting
    # What is picked is stored in the order in which it is read: readers see it turned.
    if selects and _lies_as_it_is_read(reduction):
        while end not in stored and end.op in _VIEWS:
            end = end.src[0]
    return end


def _pays_turning(reduction: UOp, steps: int, target: Target) -> bool:
    """Whether it takes longer to turn around in registers all that is reduced than to store the results."""
    if target.work_items or target.lanes(reduction.dtype) < 2:
        return False
    return pays_a_buffer(reduction, steps * target.core.transposed_cycles, 1, target)


def _pays_masks(reduction: UOp, steps: int, target: Target) -> bool:
    """The same of a mask for each vector of what is reduced, of which rows of results make lanes."""
    lanes = target.lanes(reduction.dtype)
    if target.work_items or lanes < 2:
        return False
    results = max(1, elements(reduction.shape))
    vectors = vectors_of_rows(reduction.shape, lanes) * steps / results
    return pays_a_buffer(reduction, vectors * SHORT_CYCLES, 1, target)


def _turns_last(move: UOp) -> bool:
    """Whether another axis is the last one, of more than one element, behind a move, or that lies backwards."""
    if move.op is Ops.PERMUTE:
        return bool(move.arg) and move.arg[last_axis(move)] != last_axis(move.src[0])
    return flips_last(move)


def _pads_last(move: UOp) -> bool:
    return move.op is Ops.PAD and move.arg[last_axis(move)] != (0, 0)


def _lies_as_it_is_read(reduction: UOp) -> bool:
    """Whether results that are side by side come from neighbours in memory, or each from a row of it."""
    shape = reduction.src[0].shape
    node, axes = reduction.src[0], [[axis] for axis in range(len(shape))]
    while node.op in ELEMENTWISE or node.op in _SEEN_THROUGH:
        values = node.src[1:] if node.op is Ops.WHERE else node.src  # sooner than what chooses
        read = [one for one in values if elements(below_movement(one).shape) > 1]
        source = max(read or node.src, key=lambda one: elements(below_movement(one).shape))
        if node.op is Ops.PERMUTE:
            axes = [axes[node.arg.index(axis)] for axis in range(len(axes))]
        elif node.op is Ops.RESHAPE:
            is_fixed = is_plain((*node.shape, *source.shape))
            joined = _joined(axes, node.shape, source.shape) if is_fixed else None
            if joined is None:
                break
            axes = joined
        node = source
    side_by_side = [axis for each, n in zip(axes, node.shape) if n != 1 for axis in each]
    side_by_side = [axis for axis in side_by_side if shape[axis] != 1]
    return not side_by_side or side_by_side[-1] in (last_axis(reduction), *reduction.arg[1])


def _joined(
    axes: list[list[int]], parts: tuple[int, ...], whole: tuple[int, ...]
) -> list[list[int]] | None:
    """What the axes of a shape are made of, where its axes are made of those of another one; None where they are not."""
    found, k = [], 0
    for size in whole:
        own, total = list[int](), 1
        while total < size and k < len(parts):
            own, total, k = own + axes[k], total * parts[k], k + 1
        if total != size:
            return None
        found.append(own)
    return found


def _has_rows_and_columns(reduction: UOp) -> bool:
    """Whether it sums products, in parts perhaps, each factor of which is used for results that differ in the other alone.

    Not so where each channel has a weight.
    """
    term, reduced = reduction.src[0], set(reduction.arg[1])
    if term.op is Ops.RESHAPE and is_plain((*term.shape, *term.src[0].shape)):
        parts, (term,) = term.shape, term.src
        joined = _joined([[a] for a in range(len(parts))], parts, term.shape) or []
        reduced = {a for a, own in enumerate(joined) if not reduced.isdisjoint(own)}
    if term.op is Ops.SHRINK:  # as what no whole parts make up
        (term,) = term.src[:1]
    if not is_product(term):
        return False
    one, other = [_expanded_axes(factor) - reduced for factor in term.src]
    return bool(one - other) and bool(other - one)


def _expanded_axes(node: UOp) -> set[int]:
    """Axes along which a value is a copy, as far as its last views say."""
    if node.op is Ops.EXPAND:
        (source,) = node.src
        own = {a for a, (n, before) in enumerate(zip(node.shape, source.shape)) if n != before}
        return own | _expanded_axes(source)
    if node.op is Ops.PERMUTE:
        below = _expanded_axes(node.src[0])
        return {a for a, before in enumerate(node.arg) if before in below}
    return set()


def _end_of_running(
    reduction: UOp, consumers: dict[UOp, list[UOp]], meets: dict[UOp, UOp | None], stored: set[UOp]
) -> UOp:
    """The same of a running sum: elementwise work joins it, seen through axes in another order, or more of size 1."""
    end = reduction
    while end not in stored:
        meeting = meets[end]
        if meeting is None or not _joins_running(end, meeting, consumers, stored):
            break
        end = meeting
    return end


def _joins_running(start: UOp, end: UOp, consumers: dict[UOp, list[UOp]], stored: set[UOp]) -> bool:
    """Whether all nodes on the paths from `start` to `end` are such work."""
    seen, stack = set[UOp](), [start]
    while stack:
        for user in consumers[stack.pop()]:
            fits = user.op in ELEMENTWISE or user.op in _SAME or user.op is Ops.PERMUTE
            if not (fits or _is_same_axes(user)) or (user is not end and user in stored):
                return False
            if user is not end and user not in seen:
                seen.add(user)
                stack.append(user)
    return True


def _is_same_axes(user: UOp) -> bool:
    """Whether a node is a reshape that adds axes of size 1, or leaves them out."""
    if user.op is not Ops.RESHAPE:
        return False
    before, after = [[n for n in shape if n != 1] for shape in (user.src[0].shape, user.shape)]
    return before == after


def _sums_of(total: UOp, consumers: dict[UOp, list[UOp]]) -> set[UOp]:
    """The sums of the elements of a sum, seen through movement alone, and their sums."""
    found, stack = set[UOp](), [total]
    while stack:
        for user in consumers[stack.pop()]:
            is_sum = user.op is Ops.REDUCE_AXIS and user.arg[0] is Ops.ADD
            if is_sum and user not in found:
                found.add(user)
            if is_sum or user.op in MOVEMENT:
                stack.append(user)
    return found


def _none_twice(
    start: UOp,
    end: UOp,
    consumers: dict[UOp, list[UOp]],
    stored: set[UOp],
    movement: frozenset[Ops],
    reductions: set[UOp] | None,
) -> bool:
    """Whether no node on a path from `start` to `end` needs an element of `start` twice.

    And no movement is on it but of these kinds, and no reduction but of these; None: of any.
    """
    seen: set[UOp] = set()
    stack = [start]
    while stack:
        for user in consumers[stack.pop()]:
            if user in seen:
                continue
            seen.add(user)
            if not _uses_once(user, movement) or (user is not end and user in stored):
                return False
            if reductions is not None and user.op is REDUCE_AXIS and user not in reductions:
                return False
            if user is not end:
                stack.append(user)
    return True


def _uses_once(user: UOp, movement: frozenset[Ops]) -> bool:
    if user.op is REDUCE_AXIS:
        combined = elements([user.src[0].shape[axis] for axis in user.arg[1]])
        return combined <= LARGEST_OUTER_REDUCTION
    return user.op in ELEMENTWISE or user.op in movement or user.op in _SAME
