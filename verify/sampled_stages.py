"""Whether two forms of one kernel do differ, at the iteration where the comparison says so and at others.

Owns: elements that the scalar stores of a stage write (kernel_readback.py), computed at sampled iterations. Does not own:
the comparison that is asked about (kernel_match.py). A difference that no element shows is none of values: the
comparison then knows too little, which is said (`not covered`), and is no error of the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernel_nesting import NotReadable
from proofgrad.verify.kernel_readback import Written, free_loops_below
from proofgrad.verify.kernel_terms import loop_name
from proofgrad.verify.sampled_arithmetic import Values
from proofgrad.verify.sampled_freedom import Estimate
from proofgrad.verify.sampled_inputs import KINDS, element
from proofgrad.verify.sampled_kernels import expected_elements
from proofgrad.verify.sampled_parts import Drawn, Part, Reader
from proofgrad.verify.sampled_tensor import Budget, OverBudgetError

ITERATIONS = 48
MOST_VALUES = 6_000_000
# Values that two right forms compute from whole numbers are nearer than this, for all that sums and functions leave free.
NEAR = 1e-3


class _Scalars(Part):
    """Scalar stores in the place of a Linear."""

    def __init__(self, stores: Sequence[Written]) -> None:
        self.nests = {w.store: tuple(dict.fromkeys((*w.loops, *w.own_loops))) for w in stores}
        self.depends = {}
        for store in self.nests:
            self.depends |= free_loops_below(store)
        nodes = toposort(tuple(self.nests))
        numbers = sorted({n.arg[0] for n in nodes if n.op is Ops.PARAM})
        written = next(iter(self.nests)).src[0].src[0].arg[0]
        self.linear = UOp.sink(*self.nests)
        self.slots = tuple(range(max(numbers) + 1))
        self.before = {number: Drawn(number) for number in numbers}
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
    draw = _AtFirst(point)
    where, values, kind = reader.sample(part, ITERATIONS, 0, draw, KINDS)
    if isinstance(before, UOp):
        wanted = expected_elements(before, where, kind, reader.budget).values
    else:
        wanted = reader.written(_Scalars(before), where, kind)
    wanted = numpy.broadcast_to(wanted, where.shape)
    if part.dtype.is_float or part.dtype.is_code:
        one, other = values.astype(numpy.float64), wanted.astype(numpy.float64)
        error = NEAR * (1 + numpy.abs(other))
        return not bool((Estimate(wanted, error).agrees(values, part.dtype) | (one == other)).all())
    return bool((values != wanted).any())


def _draw(number: int, dtype: Any, index: Values, kind: Values) -> Values:
    return element(number, dtype, index, kind, 0)


class _AtFirst:
    """Draws iterations; those of a point first, in each kind of memory."""

    def __init__(self, point: Mapping[str, int]) -> None:
        self._point = point
        self._draw = numpy.random.default_rng(0)

    def choice(self, count: int, size: int, replace: bool) -> Values:
        del size, replace
        return numpy.arange(count)

    def loop(self, loop: UOp, count: int) -> Values:
        """Values of a loop for so many iterations."""
        size = loop.src[0].arg
        drawn = self._draw.integers(0, size, count)
        if loop_name(loop) in self._point:
            drawn[: min(count, KINDS)] = min(self._point[loop_name(loop)], size - 1)
        return drawn

    def integers(self, low: int, high: int, count: int) -> Values:
        return self._draw.integers(low, high, count)
