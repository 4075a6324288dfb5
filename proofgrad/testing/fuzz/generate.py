"""Random programs: operand by operand, step by step, each step computed as it is drawn.

Owns: where operands come from, which steps are kept, the kinds of programs. A step whose value is
not worth going on with is thrown away: too large, mostly not finite, mostly decided by rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from proofgrad.testing.fuzz.operation import NothingFits, Operation
from proofgrad.testing.fuzz.oracle import Machine, Meaningless
from proofgrad.testing.fuzz.program import Data, Program, Realize, Ref, Statement, Step, references
from proofgrad.testing.fuzz.table import TABLE, WEIGHTS
from proofgrad.testing.fuzz.values import (
    CODES,
    FLOATS,
    INTS,
    Undecided,
    Value,
    kind_of,
    limits,
    rounded,
    unit_of,
)

SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17)
MOST_ELEMENTS = 400
TOO_LARGE = 1e6
TRIES = 30
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, float("inf"), -float("inf"), float("nan"), 3.0, -7.0, 100.25,
         127.5, 255.5, 65504.0, 2147483648.0, 1e10, -1e10, 1e-40, 6e-8, 3e38, 1e300, 5e-324)  # fmt: skip
TYPES = ("float32",) * 8 + ("int32",) * 5 + ("bool",) * 2 + tuple(INTS) + tuple(FLOATS) * 2 + CODES
SETTINGS: tuple[dict[str, str], ...] = (
    {"NOOPT": "1"}, {"NOSCHED": "1"}, {"SPEC": "1"}, {"CHECK": "1"}, {"DEV": "REFERENCE"},
    {"CHOICES": "tiled=off vectors=none"}, {"CHOICES": "tiled=off"},
    {"CHOICES": "tiled=on tile=2x1x4 blocks=1x1 depth=1"}, {"CHOICES": "tiled=on tile=8x3x16 depth=2"},
    {"CHOICES": "tiled=on tile=3x3x2 blocks=2x3 staged=rows+columns depth=4"},
    {"CHOICES": "tiled=on staged=none"}, {"CHOICES": "tiled=on staged=rows+columns"},
    {"CHOICES": "tiled=on packed=on staged=none"}, {"CHOICES": "tiled=on reduction_block=3"},
    {"CHOICES": "tiled=off vectors=*x4x2 copies=*x2"}, {"CHOICES": "tiled=off vectors=*x32x4 copies=*x4"},
    {"CHOICES": "tiled=off vectors=1x4 copies=0x2 buffered=off unroll=3"}, {"CHOICES": "threads=on", "NUM_THREADS": "2"},
    {"CHOICES": "threads=on", "NUM_THREADS": "4"},
)  # fmt: skip


class Builder:
    """A program that grows; `Drawing` for the draws of the table."""

    def __init__(
        self, random: Random, style: str = "plain", types: tuple[str, ...] = TYPES
    ) -> None:
        self.random, self.style, self.types = random, style, types
        self.machine = Machine()
        self.leaves: list[Statement] = []
        self.statements: list[Statement] = []
        self._into = self.statements
        self.pool: list[int] = []
        self.count = 0
        self.most = MOST_ELEMENTS  # of a value
        self.limit = 2 * MOST_ELEMENTS  # of an operand
        self.is_same_shape = False  # partners have the very shape, as with variables

    # -- what the table asks for ------------------------------------------------------------------

    def value(self, ref: Ref) -> Value:
        """What is known of the value of `ref`."""
        return self.machine.names[ref.number].value

    def any(self, *kinds: str, rank: int = 0, most: int | None = None) -> Ref:
        """A value of one of these kinds, mostly one of the last three. Raises: NothingFits."""
        fitting = [
            number
            for number in self.pool
            if kind_of(self.value(Ref(number)).dtype) in kinds
            and len(self.value(Ref(number)).shape) >= rank
            and self.value(Ref(number)).size <= (self.limit if most is None else most)
        ]
        if not fitting:
            raise NothingFits
        late = fitting[-3:] if self.random.random() < 0.7 else fitting
        return Ref(self.random.choice(late))

    def like(self, ref: Ref, shape: tuple[int, ...] | None = None) -> Ref:
        """A value of the type of `ref`, of its shape or of `shape`: one that is there, or a new leaf."""
        value = self.value(ref)
        wanted = value.shape if shape is None else shape
        fitting = [
            number
            for number in self.pool
            if self.value(Ref(number)).dtype == value.dtype
            and self.value(Ref(number)).shape == wanted
        ]
        if fitting and (self.is_same_shape or self.random.random() < 0.6):
            return Ref(self.random.choice(fitting))
        return self.leaf(value.dtype, wanted)

    def partner(self, ref: Ref, *kinds: str) -> Any:
        """A second operand: a number, a value that broadcasts with `ref`, or a new leaf."""
        value = self.value(ref)
        kind, chance = kind_of(value.dtype), self.random.random()
        if chance < 0.35 and kind in ("int", "float"):
            return self.number(value.dtype)
        if chance < 0.75:
            for _ in range(4):
                other = self.any(*(("bool",) if kind == "bool" else set(kinds) - {"bool"}))
                if self._goes_with(value.shape, self.value(other).shape):
                    return other
        if self.is_same_shape:
            return self.like(ref)
        shape = tuple([1 if self.random.random() < 0.25 else n for n in value.shape])
        return self.leaf(value.dtype, shape[self.random.choice([0, 0, 1, len(shape)]) :])

    def _goes_with(self, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        if self.is_same_shape:
            return a == b
        try:
            return int(np.prod(np.broadcast_shapes(a, b))) <= self.most
        except ValueError:
            return False

    def number(self, dtype: str) -> Any:
        """A Python number that fits the type; in programs of special values, an edge case."""
        if dtype == "bool":
            return self.random.random() < 0.5
        if kind_of(dtype) == "int":
            return self.random.randint(0 if dtype.startswith("u") else -4, 7)
        if self.style == "special":
            return self.random.choice(EDGES[:13])
        return self.random.choice([-2.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0, 2, 3, 0.25])

    def leaf(self, dtype: str, shape: tuple[int, ...], style: str = "plain") -> Ref:
        """A new Tensor of drawn elements; `style` says which, as in `_elements`."""
        count = int(np.prod(shape, dtype=np.int64))
        elements = tuple(self._elements(dtype, count, style))
        ref = self._add(
            Step(self._next(), "Tensor", (Data(dtype, tuple(shape), elements),)), self.leaves
        )
        return ref

    def _elements(self, dtype: str, count: int, style: str) -> list[Any]:
        draw = self.random
        name, _, size = style.partition(" ")
        if name == "positions":
            low = -int(size) if int(size) > 0 else 0
            return [draw.randrange(low, abs(int(size))) for _ in range(count)]
        if name == "distinct":
            every = int(size)
            return draw.sample(range(every), min(every, count)) if count <= every else [0] * count
        kind = kind_of(dtype)
        if kind == "bool":
            return [draw.random() < 0.5 for _ in range(count)]
        if name == "small":
            return [draw.choice([0, 1, 2, 3, 5, 7]) for _ in range(count)]
        if name == "unit":
            return [draw.choice([0.125, 0.25, 0.5, 0.75]) for _ in range(count)]
        if self.style == "special":
            return [self._edge(dtype) for _ in range(count)]
        if kind == "int":
            return [draw.randint(0 if dtype.startswith("u") else -7, 9) for _ in range(count)]
        if self.style == "smooth":
            raw = np.array([draw.gauss(0, 1) for _ in range(count)])
            return [float(x) for x in rounded(np.round(raw, 3), dtype)]
        return [
            draw.choice([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -0.5, -1.0, -2.0, -1.5, 4.0])
            for _ in range(count)
        ]

    def _edge(self, dtype: str) -> Any:
        if kind_of(dtype) == "int":
            low, high = limits(dtype)
            near = [
                0,
                1,
                2,
                3,
                7,
                low,
                high,
                low + 1,
                high - 1,
                high // 2,
                self.random.randint(low, high),
            ]
            return self.random.choice(near)
        return float(rounded(np.asarray(self.random.choice(EDGES)), dtype))

    # -- growing ----------------------------------------------------------------------------------

    def _next(self) -> int:
        self.count += 1
        return self.count - 1

    def _add(self, step: Step, statements: list[Statement]) -> Ref:
        self.machine.run(step)
        statements.append(step)
        self.pool.append(step.target)
        return Ref(step.target)

    def start(self, leaves: int) -> None:
        """Draw the first leaves, so that there are operands."""
        for _ in range(leaves):
            shape = self._shape()
            self.leaf(self.random.choice(self.types), shape)

    def _shape(self) -> tuple[int, ...]:
        while True:
            rank = self.random.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])
            sizes = SIZES if self.random.random() < 0.94 else (*SIZES, 0, 0, 0)
            shape = tuple(
                [self.random.choice(sizes[: 6 if rank > 2 else None]) for _ in range(rank)]
            )
            if self.random.random() < 0.05 and shape:
                shape = (0, *shape[1:])
            if int(np.prod(shape)) <= 150:
                return shape

    def grow(self, operations: list[Operation], into: list[Statement] | None = None) -> bool:
        """One step more; False if nothing was found."""
        statements = self._into = self.statements if into is None else into
        weights = [WEIGHTS[operation.name] for operation in operations]
        for operation in self.random.choices(operations, weights, k=TRIES):
            before = self._state()
            try:
                with np.errstate(all="ignore"):
                    operands, options = operation.draw(self)
                    pick = self._pick(operation, operands, options)
                    step = Step(
                        self._next(), operation.name, operands, tuple(options.items()), pick
                    )
                    self.machine.run(step)
                if self._is_worth(self.value(Ref(step.target))):
                    statements.append(step)
                    self.pool.append(step.target)
                    return True
            except (NothingFits, Meaningless, Undecided):
                pass
            self._undo(before)
        return False

    def step(self, name: str, *operands: Any) -> Ref:
        """A step that another one asks for."""
        return self._add(Step(self._next(), name, operands), self._into)

    def _state(self) -> tuple[int, int, int, int]:
        return self.count, len(self.leaves), len(self.pool), len(self._into)

    def _undo(self, before: tuple[int, int, int, int]) -> None:
        self.count = before[0]
        del self.leaves[before[1] :]
        del self.pool[before[2] :]
        del self._into[before[3] :]
        self.machine.names = {n: c for n, c in self.machine.names.items() if n < before[0]}

    def _pick(self, operation: Operation, operands: Any, options: Any) -> int | None:
        if not operation.results:
            return None
        if operation.results > 0:
            return int(self.random.randrange(operation.results))
        found = operation.meaning(np.zeros(self.value(operands[0]).shape), *operands[1:], **options)
        return int(self.random.randrange(len(found)))

    def _is_worth(self, value: Value) -> bool:
        if value.size > self.most or len(value.shape) > 6:
            return False
        if value.size == 0:
            return self.random.random() < 0.5
        if self.style == "special":
            return value.is_exact
        first = value.estimate
        if kind_of(value.dtype) in ("float", "code"):
            wide = first.astype(np.float64)
            finite = np.isfinite(wide)
            if finite.mean() < 0.9 or (np.abs(wide[finite]) > TOO_LARGE).any():
                return self.random.random() < 0.02
            with np.errstate(all="ignore"):
                apart = [np.where(finite, s.astype(np.float64) - wide, 0) for s in value.samples]
            spread = max([float(np.abs(a).max()) for a in apart])
            return spread <= 1e-2 * (
                float(np.abs(wide[finite]).max()) + float(unit_of(wide, value.dtype).min())
            )
        unknown = np.zeros(first.shape, bool)
        for sample in value.samples[1:]:
            unknown |= sample != first
        large = kind_of(value.dtype) == "int" and bool(
            (np.abs(first.astype(np.float64)) > TOO_LARGE).any()
        )
        return bool(unknown.mean() < 0.2) and not (large and self.random.random() < 0.9)


def smooth(operation: Operation) -> bool:
    """Whether gradients are asked for through the operation."""
    return operation.is_smooth


def of(test: Callable[[Operation], bool]) -> list[Operation]:
    """The operations of the table for which `test` holds."""
    return [operation for operation in TABLE.values() if test(operation)]


def results_of(builder: Builder, statements: list[Statement], most: int = 8) -> tuple[Ref, ...]:
    """Values that nothing uses, the last ones first, and one of the others."""
    made = [s.target for s in statements if isinstance(s, Step)]
    used = set(references([s.operands for s in statements if isinstance(s, Step)]))
    ends = [number for number in reversed(made) if number not in used]
    inner = [number for number in made if number in used]
    kept = ends[:most] + builder.random.sample(inner, min(1, len(inner)))
    return tuple([Ref(number) for number in kept])


def forced(random: Random) -> tuple[tuple[str, str], ...]:
    """What is asked of the machine: mostly nothing."""
    if random.random() < 0.6:
        return ()
    return tuple(sorted(random.choice(SETTINGS).items()))


def maybe_realized(builder: Builder, statements: list[Statement]) -> list[Statement]:
    """Some values computed on the way."""
    result: list[Statement] = []
    chance = builder.random.choice([0, 0, 0.1, 0.3])
    for statement in statements:
        result.append(statement)
        if isinstance(statement, Step) and builder.random.random() < chance:
            result.append(Realize(Ref(statement.target)))
    return result


def grown(builder: Builder, operations: list[Operation], count: int) -> None:
    """Add `count` steps to the program."""
    for _ in range(count):
        builder.grow(operations)


def finished(builder: Builder, kind: str, **more: Any) -> Program:
    """The program that was built: its results, its settings, and values realized here and there."""
    body = maybe_realized(builder, builder.statements)
    statements = (*builder.leaves, *body)
    options = {
        "results": results_of(builder, builder.statements),
        "settings": forced(builder.random),
        "is_together": builder.random.random() < 0.5,
    }
    return Program(kind, statements, **{**options, **more})


def length(random: Random) -> int:
    """How many steps a program gets: from 5 to 60, most often few."""
    return random.choice([random.randint(5, 12), random.randint(5, 25), random.randint(5, 60)])
