"""What a program means: its statements by numpy, with names, views and writes as docs/guide.md has them.

Owns: cells (what a name stands for), writes through views, calls of recorded functions, gradients by
differences.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from proofgrad.testing.fuzz.operation import evaluate
from proofgrad.testing.fuzz.program import (
    OPERATORS,
    Data,
    Program,
    Realize,
    Ref,
    Statement,
    Step,
    Write,
    references,
)
from proofgrad.testing.fuzz.table import TABLE
from proofgrad.testing.fuzz.values import (
    DIGITS,
    SAMPLES,
    Array,
    Value,
    cast,
    kind_of,
    merged,
    promote,
    rounded,
)


class Meaningless(Exception):
    """The program asks for something that has no meaning here; generation and shrinking avoid it."""


@dataclass(eq=False, slots=True)
class Cell:
    """What a name stands for: a value, and where its elements lie in `parent`'s root, if it is a view."""

    value: Value
    parent: Cell | None = None
    positions: Array | None = None
    is_memory: bool = True

    @property
    def root(self) -> Cell:
        """The cell whose memory it is: itself, unless it is a view."""
        cell = self
        while cell.parent is not None:
            cell = cell.parent
        return cell

    def positions_in_root(self) -> Array:
        """For each element, its number in the row-major order of the root."""
        if self.positions is not None:
            return self.positions
        return np.arange(self.value.size).reshape(self.value.shape)


@dataclass(frozen=True, slots=True)
class Symbol:
    """The bound Variable; it prints as its name in the source."""

    def __repr__(self) -> str:
        return "m"


def value_of_data(data: Data) -> Value:
    """The elements of a leaf, rounded to its type: an exact value."""
    with np.errstate(all="ignore"):
        plain = np.array(data.elements, dtype=None if data.elements else "float64")
        if kind_of(data.dtype) in ("float", "code"):
            array = rounded(plain.astype(np.float64), data.dtype)
        else:
            array = np.array(data.elements, data.dtype)
    return Value(data.dtype, (array.reshape(data.shape),))


class Machine:
    """Runs statements on cells."""

    def __init__(self, seed: int = 0, is_real: bool = False, size: int = 0) -> None:
        self.names: dict[int, Cell] = {}
        self.seed, self.is_real, self.size = seed, is_real, size

    def values(self, numbers: Sequence[int]) -> Mapping[int, Value]:
        """The values under these numbers."""
        return {number: self.names[number].value for number in numbers}

    def run(self, statement: Statement) -> None:
        """Execute a statement on the cells. Raises: Meaningless."""
        match statement:
            case Step():
                self.names[statement.target] = self._cell(statement)
            case Write():
                self._write(statement)
            case Realize():
                pass

    def _cell(self, step: Step) -> Cell:
        if step.name == "Tensor":
            return Cell(value_of_data(step.operands[0]))
        operation = TABLE[step.name]
        plain = _sized(step, self.size) if self.size else step
        seed = zlib.crc32(repr(step).encode()) + self.seed
        used = self.values(list(references(plain)))
        try:
            value = evaluate(operation, plain, used, seed, self.is_real)
        except TypeError as error:
            if "ufunc" not in str(error):
                raise
            raise Meaningless(f"{step.name} has no meaning at these types: {error}") from error
        if not operation.is_view or has_positions(step):
            return Cell(value, is_memory=operation.is_plain)
        below = self.names[plain.operands[0].number]
        positions = Value("int64", (below.positions_in_root(),))
        shown = evaluate(operation, plain, {**used, plain.operands[0].number: positions}, 0)
        return Cell(value, below, shown.estimate, below.is_memory)

    # -- writes -----------------------------------------------------------------------------------

    def _write(self, write: Write) -> None:
        target = self.names[write.target.number]
        positions = target.positions_in_root()
        root = target.root
        if write.name == "__setitem__":
            index = _arrays_of(write.index, self)
            positions = positions[index]
        if (
            not target.is_memory
            or len(np.unique(positions)) != positions.size
            and write.name != "__setitem__"
        ):
            raise Meaningless("a write to what is no memory of its own")
        new = self._new_value(write, target, positions)
        _store(root, positions, new)
        cell: Cell | None = target
        while cell is not None:
            if cell is not root:
                cell.value = _read(root, cell.positions_in_root())
            cell = cell.parent

    def _new_value(self, write: Write, target: Cell, positions: Array) -> Value:
        dtype = target.value.dtype
        if write.name not in ("assign", "__setitem__"):
            now = _read(target.root, target.positions_in_root())
            name = f"__{write.name[3:]}"
            assert name in OPERATORS
            operands = (Ref(-1), write.value)
            used = {-1: now, **self.values(list(references(write.value)))}
            if isinstance(write.value, Ref) and self.names[write.value.number] is target:
                used[write.value.number] = now  # one Tensor, looked at once
            seed = zlib.crc32(repr(write).encode()) + self.seed
            found = evaluate(TABLE[name], Step(-2, name, operands), used, seed, self.is_real)
            if found.dtype != dtype or found.shape != now.shape:
                raise Meaningless("an operation in place cannot change type or shape")
            return found
        if isinstance(write.value, Ref):
            given = self.names[write.value.number].value
            if promote(dtype, given.dtype) != dtype:
                raise Meaningless("a write that loses the type")
        else:
            is_float = isinstance(write.value, float)
            kind = "bool" if isinstance(write.value, bool) else "float64" if is_float else "int64"
            given = Value(kind, (np.asarray(write.value),))
        with np.errstate(all="ignore"):
            arrays = [
                np.broadcast_to(cast(x, given.dtype, dtype), positions.shape) for x in given.samples
            ]
        return merged(dtype, arrays)


def has_positions(step: Step) -> bool:
    """An index by Tensors, lists or masks, which is no view."""
    if step.name != "__getitem__":
        return False
    index = step.operands[1]
    return any(
        isinstance(part, (Ref, list)) for part in (index if isinstance(index, tuple) else (index,))
    )


def _arrays_of(index: Any, machine: Machine) -> Any:
    def array(part: Any) -> Any:
        if isinstance(part, Ref):
            value = machine.names[part.number].value
            if not value.is_exact:
                raise Meaningless("a write to a position that rounding decides")
            return value.estimate
        return np.asarray(part) if isinstance(part, list) else part

    return tuple(map(array, index)) if isinstance(index, tuple) else array(index)


def _store(root: Cell, positions: Array, new: Value) -> None:
    count = 1 if root.value.is_exact and new.is_exact else SAMPLES
    samples = []
    for turn in range(count):
        flat = root.value.sample(turn).flatten()
        flat[positions.reshape(-1)] = np.asarray(new.sample(turn)).reshape(-1)
        samples.append(flat.reshape(root.value.shape))
    root.value = Value(root.value.dtype, tuple(samples))


def _read(root: Cell, positions: Array) -> Value:
    return Value(root.value.dtype, tuple([x.reshape(-1)[positions] for x in root.value.samples]))


def _sized(step: Step, size: int) -> Step:
    def plain(value: Any) -> Any:
        if isinstance(value, Symbol):
            return size
        if isinstance(value, slice):
            return slice(plain(value.start), plain(value.stop), value.step)
        if isinstance(value, tuple):
            return tuple([plain(part) for part in value])
        return value

    return Step(step.target, step.name, plain(step.operands), step.options, step.pick)


# -- whole programs -------------------------------------------------------------------------------


def expected(program: Program, seed: int = 0) -> dict[str, Value]:
    """What each `see` of the program's source is given. Raises: Meaningless."""
    try:
        with np.errstate(all="ignore"):
            return dict(_expected(program, seed))
    except (KeyError, IndexError, ValueError, TypeError, OverflowError, ZeroDivisionError) as error:
        raise Meaningless(f"{type(error).__name__}: {error}") from error


def _expected(program: Program, seed: int) -> Iterator[tuple[str, Value]]:
    if program.sizes:
        for size in program.sizes:
            machine = Machine(seed, size=size)
            for statement in program.statements:
                machine.run(statement)
            for ref in program.results:
                yield f"{ref!r} at {size}", machine.names[ref.number].value
        return
    machine = Machine(seed)
    for statement in program.statements:
        machine.run(statement)
    if program.body:
        yield from _calls(program, machine)
        return
    for ref in program.results:
        yield repr(ref), machine.names[ref.number].value
    if program.gradient_of:
        yield from gradients(program)


def _calls(program: Program, machine: Machine) -> Iterator[tuple[str, Value]]:
    made = dict(machine.names)
    given: list[tuple[str, Cell]] = []
    for turn, call in enumerate(program.calls):
        machine.names = dict(made)
        for number, argument in zip(program.parameters, call.arguments, strict=True):
            machine.names[number] = made[argument.number]
        for statement in program.body:
            machine.run(statement)
        for position, ref in enumerate(program.results):
            given.append((f"result {position} of call {turn}", machine.names[ref.number]))
    for name, cell in given:
        yield name, cell.value
    for statement in program.statements:
        if isinstance(statement, Step):
            yield f"v{statement.target}", made[statement.target].value


# -- gradients ------------------------------------------------------------------------------------

STEP = 2.0**-17  # of a difference in float64: what truncation and rounding lose is alike
POSITIONS = 20  # of one leaf, whose derivatives are looked at
UNITS_LOST = 4.0  # in the last place, by cotangents that are rounded to a narrow type on the way
KINK = 1e-3  # differences to both sides that are this far apart: there is no derivative


def gradients(program: Program) -> Iterator[tuple[str, Value]]:
    """The derivative of the weighted sum for each leaf, by differences; unknown at kinks."""
    weights = [value_of_data(weight).estimate.astype(np.float64) for weight in program.weights]
    leaves = {
        s.target: value_of_data(s.operands[0]).estimate.astype(np.float64)
        for s in program.statements
        if isinstance(s, Step) and Ref(s.target) in program.gradient_of
    }

    def parts() -> Array:
        """What each element of the results gives to the weighted sum."""
        machine = Machine(is_real=True)
        for statement in program.statements:
            if isinstance(statement, Step) and statement.target in leaves:
                machine.names[statement.target] = Cell(
                    Value("float64", (leaves[statement.target],))
                )
            else:
                machine.run(statement)
        return np.concatenate(
            [
                (machine.names[ref.number].value.estimate * weight).ravel()
                for ref, weight in zip(program.results, weights, strict=True)
            ]
        )

    dtypes = {
        s.target: s.operands[0].dtype
        for s in program.statements
        if isinstance(s, Step) and s.name == "Tensor"
    }
    middle = parts()
    plain = Machine(is_real=True)
    for statement in program.statements:
        plain.run(statement)
    for ref in program.gradient_of:
        leaf = leaves[ref.number]
        slopes, errors = np.zeros(leaf.shape), np.full(leaf.shape, np.nan)
        positions = list(np.ndindex(leaf.shape))
        for position in (
            positions
            if len(positions) <= POSITIONS
            else Random(ref.number).sample(positions, POSITIONS)
        ):
            slopes[position], errors[position] = _slope(leaf, position, parts, middle)
        dtype = dtypes[ref.number]
        loose = max(1e-5 if dtype == "float64" else 2e-3, _lost_on_the_way(program, ref, plain))
        largest = float(np.nanmax(np.abs(slopes), initial=0.0))
        errors += loose * max(1.0, largest if np.isfinite(largest) else 1.0) / 4
        samples = (slopes, slopes + errors, slopes - errors)
        yield f"g{ref.number}", Value(dtype, (*samples, *samples[1:]))


def _lost_on_the_way(program: Program, leaf: Ref, machine: Machine) -> float:
    """How much of a gradient is lost, at most, where it is a number of the narrowest type between the results and a leaf."""
    made = {leaf.number}
    for step in program.statements:
        if isinstance(step, Step) and not made.isdisjoint(references(step)):
            made.add(step.target)
    types = [machine.names[number].value.dtype for number in made]
    return UNITS_LOST * 2.0 ** -min([DIGITS[one] for one in types if one in DIGITS])


def _slope(leaf: Array, position: Any, parts: Any, middle: Array) -> tuple[float, float]:
    """A derivative of the sum of the parts, and its error: NaN where differences do not agree.

    Those of each part are asked: kinks of several, as where one value is the largest of several windows, may cancel.
    """
    here = float(leaf[position])

    def at(offset: float) -> Array:
        leaf[position] = here + offset
        found: Array = parts()
        leaf[position] = here
        return found

    up, down, up_half, down_half = at(STEP), at(-STEP), at(STEP / 2), at(-STEP / 2)
    with np.errstate(all="ignore"):
        wide, narrow = (
            float((up - down).sum()) / (2 * STEP),
            float((up_half - down_half).sum()) / STEP,
        )
        bend = np.abs(up_half - 2 * middle + down_half).max(initial=0.0) * 2 / STEP
        best, total = (4 * narrow - wide) / 3, float(middle.sum())
    if not np.isfinite(best):
        return 0.0, float("nan")  # the sum is not finite: differences say nothing of its slope
    size = max(1.0, abs(best))
    if not bend <= KINK * size or not abs(wide - narrow) <= KINK * size:
        return best, float("nan")
    return best, 4 * abs(wide - narrow) + 1e-9 * abs(total)
