"""Program -> Program: VECTOR loops become the lanes of vector values.

A node that changes with the loop becomes a vector; every other node stays a scalar and is
broadcast where a vector needs it. An access whose index grows by 1 with the loop becomes one
contiguous access; any other becomes a gather or scatter. Does not own: which loop (axes.py).
"""

from __future__ import annotations

from proofgrad.core.compile.linear_terms import coefficient
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def vectorize(program: UOp) -> UOp:
    """Each VECTOR loop becomes the lanes of vector values."""
    loops = [n for n in toposort((program,)) if n.op is Ops.RANGE and n.arg[1] is AxisRole.VECTOR]
    for loop in loops:
        program = _vectorize_loop(program, loop)
    return program


def _vectorize_loop(program: UOp, loop: UOp) -> UOp:
    lanes: int = loop.src[0].arg
    steps = UOp(Ops.CONST, loop.dtype.vec(lanes), (), tuple(range(lanes)))
    first = UOp(Ops.CONST, loop.dtype, (), 0)
    done: dict[UOp, UOp] = {loop: steps}
    at_first: dict[UOp, UOp] = {loop: first}
    moving = {loop}  # nodes whose value changes with the loop: other vectors are of other loops
    for node in toposort((program,)):
        if node is loop:
            continue
        at_first[node] = node.with_src(tuple([at_first[s] for s in node.src]))
        if moving.isdisjoint(node.src):
            done[node] = node.with_src(tuple([done[s] for s in node.src]))
            continue
        done[node] = _widen(node, loop, lanes, done, at_first)
        if not _hides(node, loop):
            moving.add(node)
    return done[program]


def _hides(node: UOp, loop: UOp) -> bool:
    """Whether the loop is one of the node's own."""
    match node.op:
        case Ops.RESULT:
            return loop in node.src[0].src[0].src[1:]
        case Ops.KEPT:
            return loop in node.src[1:]
    return False


def _widen(node: UOp, loop: UOp, lanes: int, done: dict[UOp, UOp], at_first: dict[UOp, UOp]) -> UOp:
    """`node` with its vector sources; the node itself becomes a vector if one of them is."""
    src = tuple([done[s] for s in node.src])
    match node.op:
        case Ops.INDEX:
            return _index(node, src, loop, lanes, at_first)
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
            return node.with_src(src)
        case Ops.RESULT:
            return _result(node, src[0], loop)
        case Ops.KEPT:
            return node.with_src((src[0], *[s for s in node.src[1:] if s is not loop]))
        case Ops.SINK:
            return node.with_src(src)
    if all(s.dtype.lanes == 1 for s in src):
        return node.with_src(src)
    spread = tuple([_spread(s, lanes) for s in src])
    if node.op is Ops.UPDATE:
        return _update(node, src, lanes)
    return UOp(node.op, node.dtype.vec(lanes), spread, node.arg)


def _spread(value: UOp, lanes: int) -> UOp:
    if value.dtype.lanes == lanes:
        return value
    return UOp(Ops.BROADCAST, value.dtype.vec(lanes), (value,))


def _index(node: UOp, src: tuple[UOp, ...], loop: UOp, lanes: int, at_first: dict[UOp, UOp]) -> UOp:
    """The INDEX of a contiguous access names its first element; a gather has a vector of them.

    One whose lanes are a number of elements apart is the first lane's plus a constant.
    """
    gate = src[2:]
    step = coefficient(node.src[1], loop)
    if step == 1:
        return node.replace(src=(src[0], at_first[node.src[1]], *gate))
    if step:
        first = _spread(at_first[node.src[1]], lanes)
        apart = UOp(Ops.CONST, first.dtype, (), tuple([step * k for k in range(lanes)]))
        return node.replace(src=(src[0], first + apart, *gate))
    if step == 0 and gate and gate[0].dtype.lanes > 1:  # the same element, gated lane by lane
        return node.replace(src=(src[0], _spread(src[1], lanes), *gate))
    return node.replace(src=(src[0], src[1], *gate))


def _is_vector_access(old: UOp, loop: UOp, new: UOp) -> bool:
    moves = coefficient(old.src[1], loop) != 0
    return moves or any(s.dtype.lanes > 1 for s in new.src[1:])


def _update(node: UOp, src: tuple[UOp, ...], lanes: int) -> UOp:
    """A register that is fed vectors is a vector itself."""
    register = src[0]
    if register.dtype.lanes == 1:
        start = UOp(Ops.BROADCAST, register.dtype.vec(lanes), (register.src[0],))
        wide = UOp(Ops.ACCUMULATOR, start.dtype, (start, *register.src[1:]), register.arg)
        value = src[1].substitute({_spread(register, lanes): wide})
        return UOp(Ops.UPDATE, wide.dtype, (wide, value))
    return UOp(Ops.UPDATE, register.dtype, (register, _spread(src[1], lanes)))


def _result(node: UOp, update: UOp, loop: UOp) -> UOp:
    """Lanes that the reduction itself ran over are combined; other lanes stay lanes."""
    old_register = node.src[0].src[0]
    result = UOp(Ops.RESULT, update.dtype, (update,))
    if loop not in old_register.src[1:]:
        return result
    return UOp(Ops.HREDUCE, node.dtype, (result,), _combiner(node.src[0]))


def _combiner(update: UOp) -> Ops:
    value = update.src[1]
    op = value.src[1].op if value.op is Ops.WHERE else value.op
    return Ops.ADD if op is Ops.MULACC else op
