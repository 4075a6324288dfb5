"""Facts about nodes, from transfer functions: bounds, bits, divisors, finiteness, free loops.

Owns: when a line may be used (a machine integer's bound or mask only if it is a value of the type),
facts of leaves and of operations that only carry values, memory of facts already known. Does not
own: what operations make of facts (rules/bounds.rules and its neighbours in rules/pipeline.py).

A line about a node may ask for facts of the same kind of its sources, and for facts of the same node
only downwards in this order: not_nan, finite, divisor, bits, bounds. So every question ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd, inf, isfinite, isnan, lcm
from typing import TYPE_CHECKING, Any, TypeVar

from proofgrad.core.ir.dtypes import DType, Kind, round_float
from proofgrad.core.ir.op_names import (
    CONST,
    FILLED,
    LOCAL_BUFFER,
    RANGE,
    REDUCE,
    RESULT,
    VARIABLE,
    WHERE,
)
from proofgrad.core.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.uop import UOp, known_below
from proofgrad.core.rewrite.extractor_check import Extractors
from proofgrad.core.rewrite.match import Matcher, RuleSet
from proofgrad.core.rewrite.order import OrderKey, StableOrder, rank
from proofgrad.core.rewrite.rule import Node, RuleKind
from proofgrad.core.rewrite.scope import SPREAD
from proofgrad.core.rewrite.sums import Forms
from proofgrad.core.rewrite.terms import exact_number

if TYPE_CHECKING:
    from proofgrad.core.rewrite.narrowing import Narrowing

_T = TypeVar("_T")
Interval = tuple[Any, Any]  # ints, None where there is no end; of floats fractions and infinities
Bits = tuple[int | None, int | None]  # bits that are set, bits that may be set

# Truths that are told apart: of more some have the same bit, and a term may seem to hold one for another.
DIFFERENT_TRUTHS = 1024
# The same values in other positions, and zeros: no new infinity, no new NaN.
_CARRIES = MOVEMENT | {Ops.BROADCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY}
# Kinds of types whose nodes are worth to be asked for a fact.
_HAVE_BITS = frozenset({Kind.SIGNED, Kind.UNSIGNED})
_INTEGERS = _HAVE_BITS | {Kind.INDEX}
_FLOATS = frozenset({Kind.FLOAT})
_ASKED = {"bits": _HAVE_BITS, "divisor": _INTEGERS}
_BINDS_LOOPS = frozenset({Ops.REDUCE, Ops.RESULT, Ops.LOCAL_BUFFER, Ops.FILLED})


class Facts:
    """What is known about nodes. Facts never change, so one object may serve many rewrites.

    `bounds`: the lines of bounds. `others`: those of other facts, each set named as its kind.
    """

    def __init__(self, bounds: RuleSet, *others: RuleSet) -> None:
        self._rules = bounds
        self._others = {rules.name: rules for rules in others}
        self._intervals: dict[UOp, Interval] = {}
        self._bits: dict[UOp, Bits] = {}
        self._divisors: dict[UOp, int] = {}
        self._holding: dict[RuleKind, dict[UOp, bool]] = {RuleKind.FINITE: {}, RuleKind.NOT_NAN: {}}
        self._loops: dict[UOp, frozenset[UOp]] = {}
        self._truths: dict[UOp, int] = {}  # a bit for each truth that a term is made of
        self._bit_of_truth: dict[UOp, int] = {}
        self._loop_free: dict[UOp, bool] = {}
        self.order = StableOrder()
        self.order_key: Callable[[UOp], OrderKey] = self.order.key
        self.division_bounds = bounds.division_bounds
        self.forms = Forms(self)
        self.extractors = Extractors(self.forms)
        self.narrowing: Narrowing | None = None  # of the rewriter at work, which sets it

    def in_order(self, first: UOp, second: UOp) -> bool:
        """Whether `first` may stand before `second` in the one stable order of nodes."""
        ranks = rank(first), rank(second)
        if ranks[0] != ranks[1]:
            return ranks[0] < ranks[1]
        return self.order_key(first) <= self.order_key(second)

    # -- bounds ---------------------------------------------------------------------------------

    def lo(self, node: UOp) -> Any:
        """A number that no value of `node` is below; None if there is none."""
        return self.interval(node)[0]

    def hi(self, node: UOp) -> Any:
        """A number that no value of `node` is above; None if there is none."""
        return self.interval(node)[1]

    def assume(self, node: UOp, interval: Interval) -> None:
        """Take these bounds of `node` as known, before anything is asked. Nothing checks them."""
        self._intervals[node] = interval

    def interval(self, node: UOp) -> Interval:
        """Bounds of the values of `node`, in every lane and position; a NaN is outside of all bounds."""
        known = self._intervals.get(node)
        if known is not None:
            return known
        intervals = self._intervals
        if node.op is RANGE and node.src[0].op is CONST:  # most questions are about these
            intervals[node] = _interval_of_counter(node.src[0].arg, node.src[0].arg)
            return intervals[node]
        form = self.forms.known(node)
        if form is not None:
            intervals[node] = (form.low, form.high)
            return intervals[node]
        return known_below(node, intervals, self._interval, self._bounding_sources)

    def _bounding_sources(self, node: UOp) -> Iterable[UOp]:
        """The sources that the bounds of `node` are computed from."""
        src = node.src
        if not src:
            return ()
        op = node.op
        if op is RANGE or op in SPREAD or self._rules.candidates(node):
            return src[1:] if op is WHERE else src
        return ()

    def _interval(self, node: UOp) -> Interval:
        dtype = node.dtype.scalar
        op = node.op
        if op is CONST:
            return _interval_of_constant(node)
        if op is VARIABLE:
            return (node.arg[1], node.arg[2])
        if op is RANGE:
            return _interval_of_counter(*self._intervals[node.src[0]])
        if op in SPREAD:
            return self.interval(node.src[0])
        for rule in self._rules.candidates(node):
            found = rule.interval(node, self)
            if found is not None and _usable(found, dtype):
                return found
        return (-inf, inf) if dtype.is_float else (dtype.lo, dtype.hi)

    # -- bits -----------------------------------------------------------------------------------

    def bits(self, node: UOp) -> Bits:
        """Masks: bits set in every value of `node`, bits set in any; None but for machine ints."""
        if node.dtype.scalar.kind not in _HAVE_BITS:
            return None, None
        return self._settled(node, self._bits, "bits", self._bits_of)

    def _bits_of(self, node: UOp) -> Bits:
        """What all lines that apply say together."""
        dtype = node.dtype.scalar
        if node.op is CONST:
            return _bits_of_constant(node)
        if node.op in SPREAD:
            return self._bits[node.src[0]]
        assert dtype.lo is not None and dtype.hi is not None
        ones, may = 0, -1 if dtype.kind is Kind.SIGNED else dtype.hi
        for line in self._lines("bits", node):
            found = line.interval(node, self)
            if found is not None and all(
                [f is not None and dtype.lo <= f <= dtype.hi for f in found]
            ):
                ones, may = ones | found[0], may & found[1]
        return ones, may

    # -- divisors -------------------------------------------------------------------------------

    def divisor(self, node: UOp) -> int | None:
        """A number that divides every value of `node`, 0 if that is 0; None but for integers."""
        if node.dtype.scalar.kind not in _INTEGERS:
            return None
        found: int = self._settled(node, self._divisors, "divisor", self._divisor_of)
        return found

    def _divisor_of(self, node: UOp) -> int:
        """The least common multiple of what all lines that apply say."""
        if node.op is CONST:
            return gcd(*_lanes(node))
        if node.op in SPREAD:
            return self._divisors[node.src[0]]
        found = [line.divisor(node, self) for line in self._lines("divisor", node)]
        return lcm(*[number for number in found if number is not None])

    # -- finiteness -----------------------------------------------------------------------------

    def finite(self, node: UOp) -> bool:
        """Whether `node` is surely neither infinite nor NaN. Ints and bools always are."""
        if not node.dtype.is_float:
            return True
        return self._holds(node, RuleKind.FINITE, isfinite)

    def not_nan(self, node: UOp) -> bool:
        """Whether `node` is surely not NaN. Ints and bools never are."""
        if not node.dtype.is_float:
            return True
        return self._holds(node, RuleKind.NOT_NAN, lambda value: not isnan(value))

    def _holds(self, node: UOp, kind: RuleKind, is_met: Callable[[float], bool]) -> bool:
        known, name = self._holding[kind], kind.value

        def find(part: UOp) -> bool:
            if not part.dtype.is_float:
                return True
            if part.op is CONST:
                return all([is_met(value) for value in _lanes(part)])
            if part.op in _CARRIES:
                return known[part.src[0]]
            return any([line.holds(part, self) for line in self._lines(name, part)])

        return self._settled(node, known, name, find)

    # -- all lines but those of bounds ----------------------------------------------------------

    def _lines(self, name: str, node: UOp) -> tuple[Matcher, ...]:
        rules = self._others.get(name)
        return () if rules is None else rules.candidates(node)

    def _settled(self, node: UOp, known: dict[UOp, _T], name: str, find: Callable[[UOp], _T]) -> _T:
        """The fact of `node`, sources first, found once."""
        if node in known:
            return known[node]
        return known_below(node, known, find, lambda top: self._asked_sources(name, top))

    def _asked_sources(self, name: str, node: UOp) -> Iterable[UOp]:
        """Sources of the kind of `node`, if what carries values or a line reads them."""
        reads = node.op in _CARRIES or node.op in SPREAD
        if reads or any([isinstance(m.rule.left, Node) for m in self._lines(name, node)]):
            asked = _ASKED.get(name, _FLOATS)
            return [s for s in node.src if s.dtype.scalar.kind in asked]
        return ()

    # -- truths ---------------------------------------------------------------------------------

    def may_hold(self, term: UOp, truth: UOp) -> bool:
        """False where `term` is no elementwise operation on `truth`, or on what is made of it. No walk: a chain of choices is asked at each of them."""
        bit = self._truths_of(term) & self._bit_of_truth.get(truth, 0)
        return bit != 0 or not truth.dtype.is_bool

    def _truths_of(self, term: UOp) -> int:
        return known_below(
            term, self._truths, self._find_truths, lambda n: n.src if n.op in ELEMENTWISE else ()
        )

    def _find_truths(self, node: UOp) -> int:
        bits = 0
        for source in node.src if node.op in ELEMENTWISE else ():
            bits |= self._truths[source]
        if node.dtype.is_bool:
            bit = 1 << len(self._bit_of_truth) % DIFFERENT_TRUTHS
            bits |= self._bit_of_truth.setdefault(node, bit)
        return bits

    # -- independence ---------------------------------------------------------------------------

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
        loops = self._loops
        return known_below(node, loops, lambda top: _loops_of(top, loops))


def _interval_of_counter(least: int | None, most: int | None) -> Interval:
    """Bounds of a counter that takes from `least` to `most` values.

    Proofs take bounds to have a number between them, so those of a loop that never runs do not cross.
    Nor is its counter pinned: what would not depend on it any more might be read outside of the loop.
    """
    may_be_empty = least is None or least < 1
    return (0, None if most is None else max(most - 1, int(may_be_empty)))


def _usable(interval: Interval, dtype: DType) -> bool:
    """A machine integer within its bounds did not wrap; if they exceed the type it may have."""
    low, high = interval
    if dtype.kind is Kind.INDEX:
        return low is not None or high is not None
    if dtype.is_float:
        return _is_float_of(low, dtype) and _is_float_of(high, dtype)
    if low is None or high is None or dtype.lo is None or dtype.hi is None:
        return False
    return bool(dtype.lo <= low and high <= dtype.hi)


def _lanes(node: UOp) -> tuple[Any, ...]:
    """The values of a constant."""
    return node.arg if isinstance(node.arg, tuple) else (node.arg,)


def _interval_of_constant(node: UOp) -> Interval:
    lanes = _lanes(node)
    if not node.dtype.is_float:
        return int(min(lanes)), int(max(lanes))
    numbers = [exact_number(lane) for lane in lanes if not isnan(lane)]
    return (min(numbers), max(numbers)) if numbers else (-inf, inf)


def _bits_of_constant(node: UOp) -> Bits:
    lanes = _lanes(node)
    ones = may = lanes[0]
    for lane in lanes[1:]:
        ones, may = ones & lane, may | lane
    return ones, may


def _is_float_of(value: Any, dtype: DType) -> bool:
    """Whether an extended real is a value of a float type, as proofs take bounds of floats to be."""
    return value is not None and round_float(float(value), dtype) == value


def _loops_of(node: UOp, loops: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    found: frozenset[UOp] = frozenset({node}) if node.op is RANGE else frozenset()
    for source in node.src:
        if not loops[source] <= found:
            found = found | loops[source]
    if node.op in (REDUCE, LOCAL_BUFFER, FILLED):
        return found.difference(node.src[1:])
    if node.op is RESULT:
        return found.difference(node.src[0].src[0].src[1:])
    return found
