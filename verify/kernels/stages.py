"""Whether two forms of one kernel do differ, at the iteration where the comparison says so and at others.

Owns: elements that the scalar stores of a stage write (kernels/readback.py), computed at sampled iterations. Does not own:
the comparison that is asked about (kernels/match.py). A difference that no element shows is none of values: the
comparison then knows too little, which is said (`not covered`), and is no error of the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.readback import Written, free_loops_below
from proofgrad.verify.kernels.terms import loop_name
from proofgrad.verify.sampled.arithmetic import Values
from proofgrad.verify.sampled.expected import expected_elements
from proofgrad.verify.sampled.freedom import Estimate
from proofgrad.verify.sampled.inputs import KINDS, WHOLE, element
from proofgrad.verify.sampled.linear import constants_of
from proofgrad.verify.sampled.nesting import NotReadable
from proofgrad.verify.sampled.parts import Drawn, Part, Reader
from proofgrad.verify.sampled.tensor import Budget, OverBudgetError

ITERATIONS = 48
MOST_VALUES = 6_000_000
# Values that two right forms compute from whole numbers are nearer than this, for all that sums and functions leave free.
NEAR = 1e-3
# Memory is drawn so many times more with infinities and NaNs in it, or ends of a type, which show what is read and multiplied in vain;
# then with fewer and fewer, which show of which among many elements the largest is taken.
ROUNDS, RARER_ROUNDS = 12, 6


class _Scalars(Part):
    """Scalar stores in the place of a Linear."""

    def __init__(self, stores: Sequence[Written]) -> None:
        self.nests = {w.store: tuple(dict.fromkeys((*w.loops, *w.own_loops))) for w in stores}
        self.depends, self.registers = {}, {}
        for store in self.nests:
            self.depends |= free_loops_below(store)
        nodes = toposort(tuple(self.nests))
        numbers = sorted({n.arg[0] for n in nodes if n.op is Ops.PARAM})
        written: int = next(iter(self.nests)).src[0].src[0].arg[0]
        self.linear = UOp.sink(*self.nests)
        self.slots = tuple(range(max(numbers) + 1))
        self.before = {number: Drawn(number) for number in numbers}
        self.constants = constants_of(nodes)
        self._written = written

    @property
    def written(self) -> int:
        return self._written


def do_differ(
    before: Sequence[Written] | UOp, after: Sequence[Written], point: Mapping[str, int]
) -> bool:
    """Whether some element that `after` writes is another one before: a kernel, or the body of one.

    `point`: the values of loops that are tried first. Where it cannot be said the answer is yes.
    """
    try:
        with numpy.errstate(all="ignore"):
            return _differ(before, after, point)
    except (NotReadable, OverBudgetError):
        return True


def _differ(
    before: Sequence[Written] | UOp, after: Sequence[Written], point: Mapping[str, int]
) -> bool:
    part = _Scalars(after)
    reader = Reader(_draw, Budget(MOST_VALUES))
    where, values, kind = reader.sample(part, ITERATIONS, 0, _AtFirst(point, KINDS), KINDS)
    if isinstance(before, UOp):
        wanted = expected_elements(before, where, kind, reader.budget).values
        return _are_others(part, values, wanted)
    if _are_others(part, values, reader.written(_Scalars(before), where, kind)):
        return True
    return any(_differ_in_holes(before, part, point, seed) for seed in range(ROUNDS + RARER_ROUNDS))


def _differ_in_holes(
    before: Sequence[Written], part: _Scalars, point: Mapping[str, int], seed: int
) -> bool:
    """Whether an element differs where single elements of memory are infinities and NaNs, or ends of a type."""

    def draw(number: int, dtype: DType, index: Values, kind: Values) -> Values:
        values = element(number, dtype, index, kind, seed)
        if dtype.is_code or dtype.is_bool:
            return values
        # Whole numbers from -4 to 4 are added, one and then more of them: one element in 9, 81, 729 ... has the largest sum.
        count, rounds = max(1, seed - ROUNDS + 2), ROUNDS + RARER_ROUNDS
        seeds = [seed + rounds * (1 + k) for k in range(count)]
        chosen = sum([element(number, dtypes.int32, index, kind, s) for s in seeds])
        ends = (numpy.nan, numpy.inf) if dtype.is_float else (dtype.lo, dtype.hi)
        low, high = numpy.array(ends, values.dtype)
        drawn = numpy.where(chosen == -4 * count, low, values)
        return numpy.where(chosen == 4 * count, high, drawn)

    reader = Reader(draw, Budget(MOST_VALUES))
    iterations = _AtFirst(point, ITERATIONS // 2)
    where, values, kind = reader.sample(part, ITERATIONS, 0, iterations, WHOLE + 1)
    return _are_others(part, values, reader.written(_Scalars(before), where, kind))


def _are_others(part: _Scalars, values: Values, wanted: Values) -> bool:
    wanted = numpy.broadcast_to(wanted, values.shape)
    if part.dtype.is_float or part.dtype.is_code:
        one, other = values.astype(numpy.float64), wanted.astype(numpy.float64)
        error = NEAR * (1 + numpy.abs(other))
        return not bool((Estimate(wanted, error).agrees(values, part.dtype) | (one == other)).all())
    return bool((values != wanted).any())


def _draw(number: int, dtype: DType, index: Values, kind: Values) -> Values:
    return element(number, dtype, index, kind, 0)


class _AtFirst:
    """Draws iterations; so many of a point first."""

    def __init__(self, point: Mapping[str, int], at_point: int) -> None:
        self._point, self._at_point = point, at_point
        self._draw = numpy.random.default_rng(0)

    def choice(self, count: int) -> Values:
        """All of so many."""
        return numpy.arange(count)

    def loops(self, loops: Sequence[UOp], count: int) -> dict[UOp, Values]:
        """Values of loops for so many iterations."""
        found: dict[UOp, Values] = {}
        for loop in loops:
            size = loop.src[0].arg
            drawn = found[loop] = self._draw.integers(0, size, count)
            if loop_name(loop) in self._point:
                drawn[: min(count, self._at_point)] = min(self._point[loop_name(loop)], size - 1)
        return found

    def integers(self, low: int, high: int, count: int) -> Values:
        return self._draw.integers(low, high, count)
