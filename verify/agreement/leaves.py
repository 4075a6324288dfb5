"""Graphs that stand for the variables of a rule: values with facts that the engine finds by itself.

Owns: the forms of such graphs. Every fact of a leaf comes from a node that has it: a loop, a
selection between constants, a mask, a clamp, a cast. Does not own: the left sides made of leaves
(instances.py), the values at which they are tried (points.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.verify.agreement.points import SMALL_INTS, corners, near_numbers

LARGEST_INDEX = 100
FACTORS = (2, 3, 4, 6, 8, 12, 16)
SIGNS = (
    *("any", "any", "positive", "not negative", "negative", "not positive", "small", "small"),
    "one of the rule",
)


class Leaves:
    """Makes leaves, each of which reads memory and loops of its own.

    `numbers`: those that the rule names, near which values are chosen. `has_facts`: whether the rule
    asks for facts. `loops`: those of the reduction around the leaf, if there is one.
    """

    def __init__(self, random: Random, numbers: Sequence[Any], has_facts: bool) -> None:
        self.random = random
        self.loops: tuple[UOp, ...] = ()
        self._numbers = numbers
        self._has_facts = has_facts
        self._count = 0

    def fresh(self) -> int:
        """A number that no other leaf of the instance has."""
        self._count += 1
        return self._count

    # -- constants --------------------------------------------------------------------------------

    def number(self, dtype: DType) -> Any:
        """A value for a constant."""
        random = self.random
        if dtype.is_bool:
            return random.random() < 0.5
        if dtype.is_float and random.random() < 0.2:
            return random.choice([0.0, -0.0])
        named = near_numbers(dtype, self._numbers)
        if named and random.random() < 0.25:
            return random.choice(named)
        if dtype.is_int and random.random() < 0.4:
            return self._within(dtype, random.choice(SMALL_INTS))
        if dtype.is_int and random.random() < 0.3:
            return self._within(dtype, random.choice(FACTORS))
        if dtype.lo is not None and random.random() < 0.2:
            return random.choice([dtype.lo, dtype.hi])
        return random.choice(corners(dtype))

    def _within(self, dtype: DType, value: int) -> int:
        return abs(value) if dtype.lo == 0 else value

    # -- variables --------------------------------------------------------------------------------

    def of(self, dtype: DType) -> UOp:
        """A graph of the type."""
        match dtype.kind:
            case Kind.BOOL | Kind.CODE:
                return self.loaded(dtype)
            case Kind.INDEX:
                return self._index()
            case Kind.FLOAT:
                return self._float(dtype)
            case _:
                return self._int(dtype)

    def loaded(self, dtype: DType, varies: bool | None = None) -> UOp:
        """A value from memory, of which nothing is known. `varies`: with the loops around it."""
        loops = self.loops if varies is None or varies else ()
        if varies is None and self.random.random() < 0.4:
            loops = ()
        position, size = UOp.index(0), 1
        for loop in loops:
            position = loop if position.op is Ops.CONST else position * loop.src[0].arg + loop
            size *= loop.src[0].arg
        memory = UOp(Ops.PARAM, dtype, (), (self.fresh(), size))
        return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, position)),))

    def _bounded_values(self, dtype: DType) -> list[Any]:
        """One to four corner values, all of a sign, or in a range with the ends of another type."""
        random, chosen = self.random, self.random.choice(SIGNS)
        if chosen == "one of the rule":
            exact = [n for n in self._numbers if n in near_numbers(dtype, (n,))]
            return [random.choice(exact)] if exact else [self.number(dtype)]
        values = [*corners(dtype), *near_numbers(dtype, self._numbers)]
        if random.random() < 0.5:  # numbers of the rule are worth more
            values = near_numbers(dtype, self._numbers) or values
        if dtype.is_float and random.random() < 0.8:
            values = [v for v in values if math.isfinite(v)]
        match chosen:
            case "positive":
                values = [v for v in values if v > 0]
            case "not negative":
                values = [v for v in values if v >= 0]
            case "negative":
                values = [v for v in values if v < 0]
            case "not positive":
                values = [v for v in values if v <= 0]
            case "small":
                values = [v for v in values if abs(v) <= 8]
        if not values:
            return [self.number(dtype)]
        return [random.choice(values) for _ in range(random.choice([1, 2, 2, 3, 4]))]

    def _selected(self, values: Sequence[Any], dtype: DType) -> UOp:
        """A choice between values by bools from memory: facts know all of them."""
        node = UOp.const(dtype, values[0])
        for value in values[1:]:
            node = self.loaded(dtypes.bool).where(UOp.const(dtype, value), node)
        return node

    def _int(self, dtype: DType) -> UOp:
        random = self.random
        if random.random() < (0.25 if self._has_facts else 0.8):
            return self.loaded(dtype)
        kind = random.random()
        if kind < 0.45:
            return self._selected(self._bounded_values(dtype), dtype)
        if kind < 0.65:
            mask = random.choice(
                [1, 3, 4, 12, 7, 15, 16, 64, self.number(dtype), self.number(dtype)]
            )
            masked = self.loaded(dtype) & self._within(dtype, mask)
            return (
                masked | self._within(dtype, random.choice([1, 2, 8, 16])) if kind < 0.5 else masked
            )
        if kind < 0.8:
            low, high = sorted([self.number(dtype), self.number(dtype)])
            return self.loaded(dtype).minimum(high).maximum(low)
        if kind < 0.9:
            small = self._bounded_values(dtypes.int8 if dtype.lo else dtypes.uint8)
            scaled = self._selected([v % 8 for v in small], dtype)
            return scaled * random.choice([f for f in FACTORS if f * 7 <= (dtype.hi or 0)])
        if kind < 0.95:
            return UOp.range(random.choice([1, 2, 3, 4]), 100 + self.fresh()).cast(dtype)
        return UOp.const(dtype, self.number(dtype))

    def _float(self, dtype: DType) -> UOp:
        random = self.random
        if random.random() < (0.2 if self._has_facts else 0.8):
            return self.loaded(dtype)
        kind = random.random()
        if kind < 0.6:
            return self._selected(self._bounded_values(dtype), dtype)
        if kind < 0.75:
            return self.loaded(random.choice([dtypes.int8, dtypes.uint8, dtypes.bool])).cast(dtype)
        if kind < 0.85:
            low, high = sorted([1.0, random.choice([-1.0, 2.0, 3.0])])
            whole = self.loaded(dtypes.int8).cast(dtype) if kind < 0.8 else self.loaded(dtype)
            return whole.minimum(high).maximum(low)
        if kind < 0.95:
            positive = self.loaded(dtype).alu(random.choice([Ops.EXP2, Ops.EXP, Ops.SQRT]))
            return -positive if kind < 0.9 else positive
        return UOp.const(dtype, self.number(dtype))

    # -- index terms ------------------------------------------------------------------------------

    def _index(self) -> UOp:
        random = self.random
        kind = random.random()
        if self.loops and random.random() < 0.5:
            moved = random.choice(self.loops) * random.choice([1, 1, 1, -1, 2])
            return moved + random.choice([0, 0, 1, -1]) if kind < 0.7 else moved + self._counter()
        if kind < 0.03:
            return self.loaded(dtypes.index)  # nothing is known of it
        if kind < 0.35:
            return self._counter()
        if kind < 0.55:
            return self._selected(self._bounded_values(dtypes.index), dtypes.index)
        if kind < 0.65:
            return self._counter() * random.choice([*FACTORS, -2]) + self._counter()
        if kind < 0.75:
            return self._counter() + random.choice([-9, -1, 1, 5, 8])
        if kind < 0.85:
            by, term = random.choice([2, 3, 4, 12]), self._counter() + self._counter()
            return self._counter() + (term % by if kind < 0.8 else term // by * by)
        if kind < 0.95:
            return self._counter() * random.choice(FACTORS)
        return UOp.index(self.number(dtypes.index))

    def _counter(self) -> UOp:
        """A loop, or a variable with bounds, which may be negative."""
        random, number = self.random, self.fresh()
        if random.random() < 0.5:
            return UOp.range(random.choice([1, 2, 3, 4, 8]), 100 + number)
        low, high = random.choice(
            [(-LARGEST_INDEX, LARGEST_INDEX), (-3, 5), (0, 6), (-8, -1), (1, 4), (0, LARGEST_INDEX)]
        )
        return UOp(Ops.VARIABLE, dtypes.index, (), (f"v{number}", low, high))

    def loop(self) -> UOp:
        """A loop of a reduction, over no, one, two or three values."""
        size = self.random.choice([0, 1, 2, 3, 2, 3])
        return UOp.range(size, 200 + self.fresh(), AxisRole.REDUCE)
