"""Reductions over the first iterations of a loop, as a running sum has them: element i combines elements 0 to i.

Owns: what such a reduction looks like in a kernel. Does not own: how it runs (steps/carry.py), which loops are left whole
for it (schedule/prefix_loops.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import at_start, coefficient, loops_of
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.op_names import REDUCE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

_LINEAR = frozenset({Ops.RANGE, Ops.CONST, Ops.ADD, Ops.MUL, Ops.NEG})
_COUNTERS = frozenset({dtypes.index, dtypes.int32, dtypes.int64})
_MOST = 1 << 30  # sizes and constants below it: a sum of a counter and a constant fits 32 bits


@dataclass(frozen=True, slots=True)
class Prefix:
    """reduction = reduce[own](where(own <= along + offset, value, identity)), with `counts_up`.

    Else one of the loops, or both, has to count down first: then `own` is not below, or `along` is taken from `offset`.
    """

    reduction: UOp
    along: UOp  # the loop of results
    own: UOp  # the loop of the reduction
    value: UOp  # changes with `along` no more
    offset: int
    own_counts_up: bool
    along_counts_up: bool

    @property
    def counts_up(self) -> bool:
        """Whether both loops count as they have to."""
        return self.own_counts_up and self.along_counts_up


def prefix_of(reduction: UOp) -> Prefix | None:
    """The reduction as one over the first, or the last, iterations of a loop of its results; None: it is none."""
    if reduction.op is not Ops.REDUCE or len(reduction.src) != 2:
        return None
    value, own = reduction.src
    neutral = UOp.const(reduction.dtype, identity(reduction.arg, reduction.dtype))
    for comparison, truth in _masks_of(value, neutral):
        bound = _bound(comparison, truth, own)
        if bound is not None:
            inside = _where_it_holds(value, comparison, truth)
            if bound.along in loops_of(inside):
                return None
            return Prefix(reduction, bound.along, own, inside, *bound[1:])
    return None


class First(NamedTuple):
    """reduction = reduce[own](where(own < end, value, identity)), or own <= end with `takes_end`; `end` is free of `own`."""

    own: UOp
    end: UOp
    takes_end: bool
    value: UOp


def first_iterations(reduction: UOp) -> First | None:
    """The reduction as one over the iterations of its loop before a term; None: it is none."""
    if reduction.op is not Ops.REDUCE or len(reduction.src) != 2:
        return None
    value, own = reduction.src
    neutral = UOp.const(reduction.dtype, identity(reduction.arg, reduction.dtype))
    for comparison, truth in _masks_of(value, neutral):
        if comparison.src[0].dtype is not dtypes.index:
            continue
        low, high = comparison.src if truth else comparison.src[::-1]  # low < high, or low <= high
        if _difference(high, low, own) == -1:
            start = own.const_like(0)
            end = high.substitute({own: start}) - low.substitute({own: start})
            return First(own, end, not truth, _where_it_holds(value, comparison, truth))
    return None


def _masks_of(value: UOp, neutral: UOp) -> Iterator[tuple[UOp, bool]]:
    """Comparisons, and which truth of each a value needs not to be `neutral`."""
    match value.op:
        case Ops.WHERE if value.src[2] is neutral or value.src[1] is neutral:
            is_second = value.src[1] is neutral
            yield from needed(value.src[0], not is_second)
            yield from _masks_of(value.src[2 if is_second else 1], neutral)
        case Ops.LOAD if len(value.src[0].src) > 2 and neutral.arg == 0:
            yield from needed(value.src[0].src[2], True)
        case Ops.CAST if neutral.arg == 0 and value.src[0].dtype.is_bool:
            yield from needed(value.src[0], True)
        case Ops.CAST if neutral.arg == 0:
            (below,) = value.src
            yield from _masks_of(below, below.const_like(0))


def needed(mask: UOp, truth: bool) -> Iterator[tuple[UOp, bool]]:
    """The comparisons that a mask is made of, each as it has to be for the mask to be `truth`.

    A maximum is below what both operands are below, and not below less than neither is (of ints: NaN is below nothing).
    """
    if mask.op is Ops.NOT:
        yield from needed(mask.src[0], not truth)
    elif mask.op is (Ops.AND if truth else Ops.OR):
        for source in mask.src:
            yield from needed(source, truth)
    elif mask.op is Ops.CMPLT:
        yield mask, truth
        for side, extreme in enumerate((Ops.MAX, Ops.MIN) if truth else (Ops.MIN, Ops.MAX)):
            if mask.src[side].op is extreme and not mask.src[side].dtype.is_float:
                for operand in mask.src[side].src:
                    sources = (operand, mask.src[1]) if side == 0 else (mask.src[0], operand)
                    yield from needed(mask.with_src(sources), truth)


def _where_it_holds(value: UOp, comparison: UOp, truth: bool) -> UOp:
    """A value where a comparison has this truth, without asking for it."""
    done: dict[UOp, UOp] = {comparison: UOp.const(dtypes.bool, truth)}
    for node in toposort((value,)):
        if node not in done:
            done[node] = _folded(node.with_src(tuple([done[s] for s in node.src])))
    return done[value]


def _folded(node: UOp) -> UOp:
    """A node whose masks may be constants."""
    known = [s.arg if s.op is Ops.CONST and s.dtype is dtypes.bool else None for s in node.src]
    match node.op:
        case Ops.AND | Ops.OR if (node.op is Ops.AND) in known:  # what changes nothing
            return node.src[1 - known.index(node.op is Ops.AND)]
        case Ops.NOT if known[0] is not None:
            return UOp.const(dtypes.bool, not known[0])
        case Ops.WHERE if known[0] is not None:
            return node.src[1 if known[0] else 2]
        case Ops.INDEX if len(node.src) > 2 and known[2] is True:
            return node.with_src(node.src[:2])
    return node


def prefixes(kernel: UOp) -> list[Prefix]:
    """Those among the reductions of a kernel."""
    found = [prefix_of(n) for n in toposort((kernel,)) if n.op is REDUCE]
    return [one for one in found if one is not None]


class _Bound(NamedTuple):
    """own <= along + offset, or as much where a loop counts down."""

    along: UOp
    offset: int
    own_counts_up: bool
    along_counts_up: bool


def _bound(comparison: UOp, truth: bool, own: UOp) -> _Bound | None:
    """What the truth of `a < b` says of `own` and of one other loop; None: not that one ends where the other is."""
    if comparison.src[0].dtype not in _COUNTERS:
        return None
    low, high = comparison.src if truth else comparison.src[::-1]  # low < high, or low <= high
    others = (loops_of(low) | loops_of(high)) - {own}
    if len(others) != 1 or any([n.op not in _LINEAR for n in toposort((low, high)) if n.src]):
        return None
    (along,) = others
    if not (is_fixed(along) and is_fixed(own)):
        return None
    first, last = at_start(low), at_start(high)
    is_small = max(abs(first), abs(last), size_of(own), size_of(along)) < _MOST
    of_own, of_along = [_difference(high, low, loop) for loop in (own, along)]
    if not is_small or of_own not in (-1, 1) or of_along not in (-1, 1):
        return None
    offset = last - first - (1 if truth else 0)
    return _Bound(along, offset, of_own == -1, of_along == 1)


def _difference(high: UOp, low: UOp, loop: UOp) -> int | None:
    first, second = coefficient(high, loop), coefficient(low, loop)
    return None if first is None or second is None else first - second


def is_whole(along: UOp) -> bool:
    """Whether a loop still runs over all of its iterations, one by one."""
    return along.arg[1] is AxisRole.LOOP
