"""Claims about memory, tried at a few values drawn: most wrong guesses fall before the solver is asked.

Owns: values of memory, of reductions and of operations on floats, drawn for each sample: the same
inputs give the same value, as the solver has it (kernels/terms.py). Does not own: the verdict that a
claim holds; a sample only ever shows that it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.terms import (
    EXACT_LIMIT,
    Points,
    Terms,
    is_integer,
    is_known,
    loop_name,
    loops_of,
    most_iterations,
    width_limits,
)

# Samples of claims about loops only, and of those about memory, whose masks hold more seldom.
_SAMPLES, _SAMPLES_OF_MEMORY = 128, 512
# Every other sample has memory of small numbers, which more often lie between the ends of a loop.
_SMALL = 16
_MIX = numpy.uint64(0x9E3779B97F4A7C15)


class Samples:
    """Draws values of loops and memory; each `failing` draws others."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._random = numpy.random.default_rng(0)

    def failing(
        self, claim: UOp, given: Sequence[UOp], loops: Sequence[UOp]
    ) -> dict[str, int] | None:
        """Loop values of a sample where `given` hold and `claim` does not; None: none was found."""
        nodes = (claim, *given)
        is_plain = all(self.terms.is_plain(node) for node in nodes)
        count = _SAMPLES if is_plain else _SAMPLES_OF_MEMORY
        points = self._drawn(loops, count)
        values = _Values(self.terms, points, self._random.integers(0, 1 << 63, count))
        found = [values.of(node) for node in nodes]
        if any(value is None for value in found):
            return None
        wrong = numpy.logical_not(found[0])
        for condition in found[1:]:
            wrong = numpy.logical_and(wrong, condition)
        where = numpy.flatnonzero(numpy.broadcast_to(wrong, (count,)))
        if not len(where):
            return None
        return {name: int(value[where[0]]) for name, value in points.items()}

    def _drawn(self, loops: Sequence[UOp], count: int) -> Points:
        """Random values of the loops, the ends of each among them."""
        points: Points = {}
        for loop in loops:
            values = self._random.integers(0, max(most_iterations(loop), 1), count)
            values[:2], values[2:4] = 0, max(most_iterations(loop) - 1, 0)
            self._random.shuffle(values[4:])
            points[loop_name(loop)] = values
        return points


class Likeness:
    """Which terms look the same: at samples that are drawn once, so that a term is computed once."""

    def __init__(self, terms: Terms) -> None:
        self._random = numpy.random.default_rng(0)
        self._points: Points = {}
        seeds = self._random.integers(0, 1 << 63, _SAMPLES)
        self._values = _Values(terms, self._points, seeds)

    def unlike(self, one: UOp, other: UOp, given: Sequence[UOp]) -> int:
        """In how many samples two terms differ, of those where most of `given` hold.

        Reductions look the same only if they are written so.
        """
        if one is other:
            return 0
        values = [self._value(node) for node in (one, other, *given)]
        if any(value is None for value in values):
            return 0
        differ = numpy.broadcast_to(values[0] != values[1], (_SAMPLES,))
        hold = numpy.zeros(_SAMPLES, numpy.int64)
        for condition in values[2:]:
            hold += condition
        return int(numpy.count_nonzero(differ[hold == hold.max()]))

    def are_alike(self, one: UOp, other: UOp) -> bool:
        """Whether two terms are the same in every sample."""
        values = self._value(one), self._value(other)
        return all([v is not None for v in values]) and bool(numpy.all(values[0] == values[1]))

    def meets(self, given: Sequence[UOp]) -> bool:
        """Whether a sample is found in which all of `given` hold; true where they cannot be computed."""
        values = [self._value(node) for node in given]
        if any(value is None for value in values):
            return True
        return bool(numpy.logical_and.reduce(numpy.broadcast_arrays(*values)).any())

    def _value(self, node: UOp) -> Any:
        if node not in self._values.done:
            for loop in loops_of((node,)):
                if loop_name(loop) not in self._points:
                    self._points[loop_name(loop)] = self._drawn(max(most_iterations(loop), 1))
        return self._values.of(node)

    def _drawn(self, iterations: int) -> Any:
        """Values of a loop, each second a small one, for which masks hold more often."""
        values = self._random.integers(0, iterations, _SAMPLES)
        small = iterations ** self._random.random(_SAMPLES // 2)
        values[::2] = small.astype(numpy.int64) - 1
        return values


class _Values:
    """The values of terms in each sample. Floats, of which nothing is known, are numbers that name them."""

    def __init__(self, terms: Terms, points: Points, seeds: Any) -> None:
        self.terms, self.points = terms, points
        self.seeds = seeds.astype(numpy.uint64)
        self.done: dict[UOp, Any] = {}

    def of(self, node: UOp) -> Any:
        """One value a sample; None if it leaves the integers that numpy computes exactly."""
        if node not in self.done:
            self.terms.interval(node)
            for n in toposort((node,), lambda n: n not in self.done):
                if n not in self.done:
                    self.done[n] = self._value_of(n)
        return self.done[node]

    def _value_of(self, node: UOp) -> Any:
        if node.op in (Ops.PARAM, Ops.INDEX, Ops.LOCAL_BUFFER):
            return None
        if node.op is Ops.REDUCE or (
            node.op is Ops.LOAD and node.src[0].src[0].op is not Ops.PARAM
        ):
            loops = [self.points[loop_name(x)] for x in loops_of((node,))]
            return self._unknown(node, self.terms.name(node), loops)
        if node.op is Ops.LOAD:
            return self._load(node)
        src = [self.done[s] for s in node.src]
        if any(value is None for value in src):
            return None
        if is_known(node):
            return self._known(node, src)
        if node.op is Ops.WHERE:
            return numpy.where(*src)
        return self._unknown(node, f"{node.op.name}.{node.arg}", src)

    def _known(self, node: UOp, src: list[Any]) -> Any:
        """An operation on integers or bools, where neither it nor the wrapping of it leaves int64."""
        if not self.terms.is_exact(node):
            return None
        return self.terms.value_of(node, src, self.points)

    def _load(self, node: UOp) -> Any:
        position = node.src[0]
        index, *mask = [self.done[s] for s in position.src[1:]]
        if index is None or any(g is None for g in mask):
            return None
        value = self._unknown(node, f"buffer{position.src[0].arg[0]}", [index])
        if value is None or not mask:
            return value
        zero = node.const_like(0)
        return numpy.where(mask[0], value, 0 if is_known(zero) else self._value_of(zero))

    def _unknown(self, node: UOp, name: str, sources: Sequence[Any]) -> Any:
        """A value of the node's type that its name, its sources and the sample decide."""
        drawn = self.seeds ^ numpy.uint64(crc32(f"{name}.{node.dtype.name}".encode()))
        for source in sources:
            drawn = _mixed(drawn) + numpy.asarray(source).astype(numpy.int64).view(numpy.uint64)
        drawn = _mixed(drawn)
        if node.dtype.is_bool:
            return (drawn & numpy.uint64(1)).astype(bool)
        if not is_integer(node.dtype):
            return drawn.view(numpy.int64)
        low, high = width_limits(node.dtype) or (0, EXACT_LIMIT)
        if low < -EXACT_LIMIT or high > EXACT_LIMIT:
            return None
        size = numpy.where(numpy.arange(len(drawn)) % 2 == 0, _SMALL, high - low + 1)
        return (drawn >> numpy.uint64(1)).astype(numpy.int64) % size + numpy.where(
            size == _SMALL, 0, low
        )


def _mixed(values: Any) -> Any:
    """Other 64 bits for each, by multiplication and shifts."""
    values = (values ^ (values >> numpy.uint64(30))) * _MIX
    return values ^ (values >> numpy.uint64(27))
