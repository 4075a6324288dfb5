"""CHECK=2: a kernel as it ran, beside its graph.

Owns: in which kinds of memory a kernel is run, which elements of its result are compared. Does not own: the runs (sampled/launched.py),
what elements should be (sampled/expected.py).

A printer may get wrong what only some elements show: one lane of a vector, one sum of a tile, the last row; or some values: where a
maximum starts shows in numbers that are all below 0, and a sum of many floats may be off by more than one of them, but not a sum of
whole numbers. So all elements are compared where there are few, and in memory of every kind.
"""

from __future__ import annotations

import functools
from itertools import product
from math import prod

import numpy

from proofgrad.core.ir.uop import UOp
from proofgrad.verify.sampled import launched
from proofgrad.verify.sampled.arithmetic import Values
from proofgrad.verify.sampled.expected import CheckError, compare, drawn, expected_elements
from proofgrad.verify.sampled.freedom import Estimate
from proofgrad.verify.sampled.inputs import CORNERS, ENDS, KINDS, MIXED, WHOLE
from proofgrad.verify.sampled.tensor import Budget, OverBudgetError, values_of_one

# About so many values are computed for a kernel and a kind of memory, of so many elements at least and at most.
VALUES, LEAST, MOST = 1_500_000, 64, 1 << 14
# A graph may compute so many times as many values as that; beyond, so many times fewer elements are compared.
BUDGET, FEWER = 4, 8
# Of what is compared, one of so many lies where memory begins, and one where it ends.
SHARE_OF_ENDS = 8
# In larger memory, which takes long to fill, not every kind is seen. So many draws of each kind are, where they cost little, and of
# those with ends of types, each of which is one element of many.
SMALL, DRAWS = 1 << 20, 8
KINDS_OF_LARGE = (MIXED, ENDS, WHOLE)


def compare_runs(made: launched.Made) -> int:
    """Run the kernels of a body in memory of each kind, and compare what they leave; the number of runs.

    Raises: CheckError, OverBudgetError, DeviceError.
    """
    memory, each = made.elements, values_of_one(made.nodes)
    count = max(LEAST, min(MOST, VALUES // each))
    whole = memory + each * prod(made.nodes[-1].src[0].shape)
    kinds = range(KINDS) if memory <= SMALL else KINDS_OF_LARGE
    draws = max(1, min(DRAWS, VALUES // (KINDS * whole)))
    runs = [*product(kinds, range(draws)), *product((CORNERS, ENDS), range(draws, DRAWS))]
    for kind, seed in runs:
        number = kind + seed
        way = launched.Way(kind, seed, is_moved=number % 2 > 0, is_cut=number % 4 > 1)
        _compare_run(made, way, count)
    return len(runs)


def _compare_run(made: launched.Made, way: launched.Way, count: int) -> None:
    name, value = made.kernels[-1].name, made.nodes[-1].src[0]
    stage = "as it ran" + "".join([f", {variable} = {n}" for variable, n in made.values.items()])
    try:
        found = launched.results(made, functools.partial(drawn, seed=way.seed), way)
    except launched.WrittenElsewhere as error:
        raise CheckError(name, stage, str(error)) from None
    where, expected = _expected(made.nodes[-1], count, way.kind, way.seed)
    compare(name, stage, value.dtype, value.shape, where, expected, found[where])


def _expected(body: UOp, count: int, kind: int, seed: int) -> tuple[Values, Estimate]:
    """About so many elements, and what they should be; fewer, where they cost too much. Raises: OverBudgetError."""
    where = elements_compared(prod(body.src[0].shape), count, kind + KINDS * seed)
    try:
        budget, kinds = Budget(BUDGET * VALUES), numpy.full(where.shape, kind)
        return where, expected_elements(body, where, kinds, budget, seed)
    except OverBudgetError:
        if count < FEWER:
            raise
        return _expected(body, count // FEWER, kind, seed)


def elements_compared(size: int, count: int, seed: int) -> Values:
    """About `count` of so many positions, others for each seed: those at both ends, and some between; all, if there are no more."""
    if size <= count:
        return numpy.arange(size)
    ends = count // SHARE_OF_ENDS
    between = numpy.random.default_rng([size, seed]).integers(0, size, count - 2 * ends)
    found = [numpy.arange(ends), between, numpy.arange(size - ends, size)]
    return numpy.unique(numpy.concatenate(found))
