"""Facts about nodes: bounds from the BOUNDS rules, finiteness, independence of loops.

Owns: when a bound may be used (a machine integer's only if it cannot have wrapped), memory of facts
already known. Does not own: how operations bound their values (rules/bounds.rules), terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.forms import Forms
from proofgrad.core.rewrite.functions import EXPONENT_BITS
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.order import OrderKey, StableOrder, rank
from proofgrad.core.rewrite.scope import SPREAD
from proofgrad.core.rewrite.view_check import Views

Interval = tuple[int | None, int | None]
MOST_STEPS = 64  # of a search for a reason why a value is finite

_KEEPS_FINITE = MOVEMENT | {
    Ops.NEG, Ops.TRUNC, Ops.MAX, Ops.MIN, Ops.SIN, Ops.BROADCAST, Ops.CONTIGUOUS, Ops.DETACH,
    Ops.COPY,
}  # fmt: skip
_BINDS_LOOPS = frozenset({Ops.REDUCE, Ops.RESULT})


class Facts:
    """What is known about nodes. Facts never change, so one object may serve many rewrites."""

    def __init__(self, bounds: RuleSet) -> None:
        self._rules = bounds
        self._intervals: dict[UOp, Interval] = {}
        self._loops: dict[UOp, frozenset[UOp]] = {}
        self._loop_free: dict[UOp, bool] = {}
        self.order = StableOrder()
        self.order_key: Callable[[UOp], OrderKey] = self.order.key
        self.division_bounds = bounds.division_bounds
        self.forms = Forms(self)
        self.views = Views(self.forms)

    def in_order(self, first: UOp, second: UOp) -> bool:
        """Whether `first` may stand before `second` in the one stable order of nodes."""
        ranks = rank(first), rank(second)
        if ranks[0] != ranks[1]:
            return ranks[0] < ranks[1]
        return self.order_key(first) <= self.order_key(second)

    # -- bounds ---------------------------------------------------------------------------------

    def lo(self, node: UOp) -> int | None:
        """A number that no value of `node` is below; None if there is none."""
        return self.interval(node)[0]

    def hi(self, node: UOp) -> int | None:
        """A number that no value of `node` is above; None if there is none."""
        return self.interval(node)[1]

    def assume(self, node: UOp, interval: Interval) -> None:
        """Take these bounds of `node` as known, before anything is asked. Nothing checks them."""
        self._intervals[node] = interval

    def interval(self, node: UOp) -> Interval:
        """Bounds of the values of `node`, in every lane and place."""
        known = self._intervals.get(node)
        if known is not None:
            return known
        form = self.forms.known(node)
        if form is not None:
            self._intervals[node] = (form.low, form.high)
            return self._intervals[node]
        intervals, stack = self._intervals, [node]
        while stack:
            top = stack[-1]
            missing = [s for s in self._bounding_sources(top) if s not in intervals]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if top not in intervals:
                intervals[top] = self._interval(top)
        return intervals[node]

    def _bounding_sources(self, node: UOp) -> Iterable[UOp]:
        """The sources that the bounds of `node` are computed from."""
        if not node.src:
            return ()
        if node.op is Ops.RANGE or node.op in SPREAD or self._rules.candidates(node):
            return [s for s in node.src if s.dtype.is_int]
        return ()

    def _interval(self, node: UOp) -> Interval:
        dtype = node.dtype.scalar
        if not dtype.is_int and not dtype.is_bool:
            return (None, None)
        if node.op is Ops.CONST:
            lanes = node.arg if isinstance(node.arg, tuple) else (node.arg,)
            return (int(min(lanes)), int(max(lanes)))
        if node.op is Ops.VARIABLE:
            return (node.arg[1], node.arg[2])
        if node.op is Ops.RANGE:
            size = self._intervals[node.src[0]][1]
            return (0, None if size is None else size - 1)
        if node.op in SPREAD:
            return self.interval(node.src[0])
        for rule in self._rules.candidates(node):
            found = rule.interval(node, self)
            if found is not None and _usable(found, dtype):
                return found
        return (dtype.lo, dtype.hi)

    # -- other facts ----------------------------------------------------------------------------

    def finite(self, node: UOp) -> bool:
        """Whether `node` is surely neither infinite nor NaN. Ints and bools always are."""
        stack = [node]
        for _ in range(MOST_STEPS):
            if not stack:
                return True
            top = stack.pop()
            if not top.dtype.is_float:
                continue
            if top.op in _KEEPS_FINITE:
                stack.extend(top.src)
            elif top.op is Ops.WHERE:
                stack.extend(top.src[1:])
            elif not self._surely_finite(top):
                return False
        return not stack

    def _surely_finite(self, node: UOp) -> bool:
        if node.op is Ops.CONST:
            lanes = node.arg if isinstance(node.arg, tuple) else (node.arg,)
            return all([lane - lane == 0 for lane in lanes])
        if node.op is not Ops.CAST:
            return False
        source, target = node.src[0].dtype.scalar, node.dtype.scalar
        if source.is_float:
            return EXPONENT_BITS[source] <= EXPONENT_BITS[target] and self._surely_finite(
                node.src[0]
            )
        return source.is_bool or _largest_is_finite(source, target)

    def independent(self, node: UOp, ranges: Iterable[UOp]) -> bool:
        """Whether the value of `node` stays the same while any of `ranges` advances."""
        return self.loops(node).isdisjoint(ranges)

    def loop_free(self, node: UOp) -> bool:
        """Whether there is no reduction in `node`."""
        known = self._loop_free.get(node)
        if known is None:
            known = not any([part.op in _BINDS_LOOPS for part in node.toposort()])
            self._loop_free[node] = known
        return known

    def loops(self, node: UOp) -> frozenset[UOp]:
        """The RANGEs that the value of `node` depends on."""
        known = self._loops.get(node)
        if known is not None:
            return known
        loops, stack = self._loops, [node]
        while stack:
            top = stack[-1]
            missing = [s for s in top.src if s not in loops]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if top not in loops:
                loops[top] = _loops_of(top, loops)
        return loops[node]


def _usable(interval: Interval, dtype: DType) -> bool:
    """A machine integer within its bounds did not wrap; if they exceed the type it may have."""
    low, high = interval
    if dtype.kind is Kind.INDEX:
        return low is not None or high is not None
    if low is None or high is None or dtype.lo is None or dtype.hi is None:
        return False
    return dtype.lo <= low and high <= dtype.hi


def _largest_is_finite(source: DType, target: DType) -> bool:
    """Integers of `source` stay below the largest power of two that `target` holds."""
    largest_exponent = (1 << (EXPONENT_BITS[target] - 1)) - 1
    return source.kind is not Kind.INDEX and source.bits <= largest_exponent


def _loops_of(node: UOp, loops: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    found: frozenset[UOp] = frozenset({node}) if node.op is Ops.RANGE else frozenset()
    for source in node.src:
        if not loops[source] <= found:
            found = found | loops[source]
    if node.op is Ops.REDUCE:
        return found.difference(node.src[1:])
    if node.op is Ops.RESULT:
        return found.difference(node.src[0].src[0].src[1:])
    return found
