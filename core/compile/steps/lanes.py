"""A loop becomes the lanes of vector values.

    for i < n: f(i)   =   f(0), f(1), ..., f(n - 1), each in a lane

    i: 0 1 2 3             [f(0) f(1) f(2) f(3)]

An elementwise operation of vectors is the operation in each lane. A node that changes with the loop becomes a vector; every other
node stays a scalar and is broadcast where a vector needs it. An access whose index grows by 1 with the loop becomes one
contiguous access; any other becomes a gather or scatter. An element that lanes read only if their mask holds is
read for all of them where it is in its memory anyway. An element that its mask leaves to one lane is accessed with those beside it,
which the mask leaves out. A reduction over the loop is one in each lane, and then over lanes.
An MMA takes and gives vectors of what an item holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.steps.bounds import is_inside
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, step
from proofgrad.core.compile.steps.narrow import require_widths
from proofgrad.core.ir.fragments import fragments_of
from proofgrad.core.ir.op_names import BROADCAST, FILLED, LOAD, MMA, RESULT, STORE, UPDATE
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, known_below, toposort
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.masks import parts_of


@step("for i < n: f(i) is f(0), f(1), ..., f(n - 1), each in a lane", makes_loops=False)
def lanes(nest: LoopNest, loop: UOp) -> UOp:
    """The loop, which has the role VECTOR, as lanes."""
    program, facts = nest.graph, nest.facts
    is_vector = loop.op is Ops.RANGE and loop.arg[1] is AxisRole.VECTOR and is_fixed(loop)
    require(is_vector, "no loop of lanes", loop)
    count = size_of(loop)
    require(count > 1, "lanes of a loop that does not run twice", loop)
    nodes = toposort((program,))
    require(loop in nodes, "no loop of this nest", loop)
    require_widths(program)
    reduced = [n for n in nodes if n.op in BINDERS or (n.op is STORE and n.arg is not None)]
    require(not reduced, "a reduction that is no register yet", *reduced)
    steps = UOp(Ops.CONST, loop.dtype.vec(count), (), tuple(range(count)))
    done: dict[UOp, UOp] = {loop: steps}
    first_lane = {loop: UOp(Ops.CONST, loop.dtype, (), 0)}
    moving = {loop}  # nodes whose value changes with the loop: other vectors are of other loops
    registers = _registers_of_lanes(nodes, loop)
    for node in nodes:
        if node is loop:
            continue
        src = tuple([done[s] for s in node.src])
        if node in registers:
            start = _spread(src[0], count)
            done[node] = UOp(Ops.ACCUMULATOR, start.dtype, (start, *src[1:]), node.arg)
            moving.add(node)
            continue
        if moving.isdisjoint(node.src):
            done[node] = node.with_src(src)
            continue
        if node.op is LOAD and _is_one_inside(node.src[0], loop, facts):
            done[node] = _chosen(node, src[0])
        else:
            done[node] = _widen(node, src, loop, first_lane, facts)
        if not _hides(node, loop):
            moving.add(node)
    return done[program]


def _in_first_lane(term: UOp, terms: dict[UOp, UOp]) -> UOp:
    """An index term where the loop is at 0; `terms` has those that are known."""
    return known_below(term, terms, lambda n: n.with_src(tuple([terms[s] for s in n.src])))


def _registers_of_lanes(nodes: Sequence[UOp], loop: UOp) -> frozenset[UOp]:
    """The registers that are fed what changes with the loop, as by another of them: each is a vector wherever it is read."""
    found, before = frozenset[UOp](), None
    updates = any([n.op is UPDATE for n in nodes])
    while updates and found != before:
        before, moving = found, {loop, *found}
        for node in nodes:
            if not moving.isdisjoint(node.src) and not _hides(node, loop):
                moving.add(node)
        fed = [n.src[0] for n in nodes if n.op is UPDATE and n in moving]
        found = frozenset([x for x in fed if loop not in x.src[1:]])
    return found


def _hides(node: UOp, loop: UOp) -> bool:
    """Whether the loop is one of the node's own."""
    if node.op is RESULT:
        return loop in node.src[0].src[0].src[1:]
    if node.op is MMA:
        return loop is fragments_of(node).step
    return node.op is FILLED and loop in node.src[1:]


def _widen(
    node: UOp, src: tuple[UOp, ...], loop: UOp, first_lane: dict[UOp, UOp], facts: Facts
) -> UOp:
    """`node` with its vector sources; the node itself becomes a vector if one of them is."""
    lanes = size_of(loop)
    if node.op in ELEMENTWISE:
        if all([s.dtype.lanes == 1 for s in src]):
            return node.with_src(src)
        wide = tuple([_spread(s, lanes) for s in src])
        return UOp(node.op, node.dtype.vec(lanes), wide, node.arg)
    match node.op:
        case Ops.INDEX:
            return _index(node, src, loop, first_lane, facts)
        case Ops.LOAD:
            moves = src[0] is not node.src[0] and _is_vector_access(node.src[0], loop, src[0])
            return node.replace(src=src, dtype=node.dtype.vec(lanes) if moves else node.dtype)
        case Ops.STORE:
            moves = _is_vector_access(node.src[0], loop, src[0])
            return node.with_src((src[0], _spread(src[1], lanes) if moves else src[1], *src[2:]))
        case Ops.ACCUMULATOR:
            if loop in node.src[1:]:
                kept = tuple([s for s in node.src[1:] if s is not loop])
                start = UOp(Ops.BROADCAST, node.dtype.vec(lanes), (src[0],))
                return UOp(Ops.ACCUMULATOR, start.dtype, (start, *kept), (node.arg, loop.arg[0]))
            return node.replace(src=src, dtype=src[0].dtype)
        case Ops.RESULT:
            return _result(node, src[0], loop)
        case Ops.FILLED:
            return node.with_src((src[0], *[s for s in node.src[1:] if s is not loop]))
        case Ops.SINK:
            return node.with_src(src)
        case Ops.MMA:
            return _product(node, src, loop, lanes)
    if all(s.dtype.lanes == 1 for s in src):
        return node.with_src(src)
    return UOp(node.op, node.dtype.vec(lanes), tuple([_spread(s, lanes) for s in src]), node.arg)


def _spread(value: UOp, lanes: int) -> UOp:
    if value.dtype.lanes == lanes:
        return value
    return UOp(BROADCAST, value.dtype.vec(lanes), (value,))


def _index(
    node: UOp, src: tuple[UOp, ...], loop: UOp, first_lane: dict[UOp, UOp], facts: Facts
) -> UOp:
    """The INDEX of a contiguous access names its first element; a gather has a vector of them.

    One whose lanes are a number of elements apart is the first lane's plus a constant.
    """
    mask, lanes = src[2:], size_of(loop)
    step = coefficient(node.src[1], loop)
    if step == 1:
        return node.replace(src=(src[0], _in_first_lane(node.src[1], first_lane), *mask))
    if step:
        first = _spread(_in_first_lane(node.src[1], first_lane), lanes)
        apart = UOp(Ops.CONST, first.dtype, (), tuple([step * k for k in range(lanes)]))
        return node.replace(src=(src[0], first + apart, *mask))
    if step == 0 and mask and mask[0].dtype.lanes > 1:  # the same element, masked lane by lane
        alone = _only_lane(node, loop, facts)
        if alone is None:
            return node.replace(src=(src[0], _spread(src[1], lanes), *mask))
        return node.replace(src=(src[0], src[1] - alone if alone else src[1], *mask))
    return node.replace(src=(src[0], src[1], *mask))


def _only_lane(position: UOp, loop: UOp, facts: Facts) -> int | None:
    """The lane that the mask of a position leaves, if an element so far before its own has an index."""
    least, most = 0, size_of(loop) - 1
    for part in parts_of(position.src[2]):
        if part.op is not Ops.CMPLT:
            continue
        first, second = part.src
        if _counts(first, loop) and second.op is Ops.CONST:
            most = min(most, second.arg - 1)
        elif _counts(second, loop) and first.op is Ops.CONST:
            least = max(least, first.arg + 1)
    return least if least == most and _fits(position.src[1], least, facts) else None


def _counts(term: UOp, loop: UOp) -> bool:
    """Whether a term is the number of the lane, be it in fewer bits."""
    if term.op is not Ops.CAST:
        return term is loop
    most = term.dtype.scalar.hi
    return term.src[0] is loop and term.dtype.is_int and most is not None and size_of(loop) <= most


def _fits(term: UOp, number: int, facts: Facts) -> bool:
    """Whether the machine integers of a term hold what is so much less than it."""
    least, lowest = facts.lo(term), term.dtype.scalar.lo
    return number == 0 or (None not in (least, lowest) and lowest <= least - number)


def _is_one_inside(position: UOp, loop: UOp, facts: Facts) -> bool:
    """Whether lanes read the same element if their masks hold, and it is in its buffer if not."""
    memory, index, *mask = position.src
    if not mask or memory.op is not Ops.PARAM or coefficient(index, loop) != 0:
        return False
    return _only_lane(position, loop, facts) is None and is_inside(index, memory, facts)


def _chosen(load: UOp, position: UOp) -> UOp:
    """The element in the lanes whose mask holds, 0 in the others."""
    memory, index, mask = position.src
    index = index.src[0] if index.op is Ops.BROADCAST else index
    element = load.with_src((position.with_src((memory, index)),))
    wide = _spread(element, mask.dtype.lanes)
    return UOp(Ops.WHERE, wide.dtype, (mask, wide, wide.const_like(0)))


def _is_vector_access(old: UOp, loop: UOp, new: UOp) -> bool:
    moves = coefficient(old.src[1], loop) != 0
    return moves or any(s.dtype.lanes > 1 for s in new.src[1:])


def _product(node: UOp, src: tuple[UOp, ...], loop: UOp, lanes: int) -> UOp:
    """An MMA of vectors: of what an item holds of the factors, or has of the result."""
    parts = fragments_of(node)
    kept = [new for old, new in zip(node.src, src) if old is not loop]
    if loop is parts.step:
        held = slice(2, 3 + len(parts.rows))
        kept[held] = [_spread(factor, lanes) for factor in kept[held]]
        return node.with_src(tuple(kept))
    require(loop is parts.register, "lanes of a loop that is not of an MMA", loop)
    kept[1] = _spread(kept[1], lanes)
    return UOp(MMA, node.dtype.vec(lanes), tuple(kept), node.arg)


def _result(node: UOp, update: UOp, loop: UOp) -> UOp:
    """Lanes that the reduction itself ran over are combined; other lanes stay lanes."""
    old_register = node.src[0].src[0]
    result = UOp(Ops.RESULT, update.dtype, (update,))
    if loop not in old_register.src[1:]:
        return result
    return UOp(Ops.HREDUCE, node.dtype, (result,), _combiner(node.src[0]))


def _combiner(update: UOp) -> Ops:
    """The operation that combines two partial results: what an update does, under its masks."""
    value = update.src[1]
    while value.op is Ops.WHERE:
        value = value.src[1]
    return Ops.ADD if value.op is Ops.MULACC else value.op
