"""What an operation of the table is, and the value of one step by numpy.

Owns: `Operation`, the rules for types, how samples go through a meaning. Does not own: the meanings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import log2, sqrt
from typing import Any, Protocol, TypeAlias

import numpy as np

from proofgrad.testing.fuzz.program import Ref, Step, references
from proofgrad.testing.fuzz.values import (
    CODES,
    DIGITS,
    INTS,
    LEAST_INNER,
    NOISE,
    SAMPLES,
    Array,
    Value,
    cast,
    granule,
    held,
    kind_of,
    least_float,
    least_of,
    merged,
    moved,
    promote,
    promote_number,
    rounded,
    sum_type,
    unit_of,
)


class Rounding(Enum):
    """How much of a result is defined."""

    EXACT = "the bits, as IEEE arithmetic or the integers have them"
    CLOSE = "within a few units in the last place of its operands and of itself"
    SUM = "the bits where every order of its sums gives the same, else as CLOSE"


class Drawing(Protocol):
    """What draws operands: generate.py has it."""

    random: Any

    def value(self, ref: Ref) -> Value:
        """What is known of the value of `ref`."""

    def any(self, *kinds: str, rank: int = 0, most: int | None = None) -> Ref:
        """A value of one of these kinds, of at least `rank` axes and at most `most` elements. Raises: NothingFits."""

    def like(self, ref: Ref, shape: tuple[int, ...] | None = None) -> Ref:
        """A value of the type of `ref`, of its shape or of `shape`."""

    def leaf(self, dtype: str, shape: tuple[int, ...], style: str = "plain") -> Ref:
        """A new Tensor; `style` names a range of elements, such as "small" or "positions 7"."""

    def partner(self, ref: Ref, *kinds: str) -> Any:
        """A second operand for `ref`: a number, or a value that broadcasts with it."""

    def number(self, dtype: str) -> Any:
        """A Python number that fits the type."""

    def step(self, name: str, *operands: Any) -> Ref:
        """Add a step to the program; its result."""


class NothingFits(Exception):
    """There is no operand for this operation now; another one is drawn."""


Operands: TypeAlias = tuple[Any, ...]
Drawn: TypeAlias = tuple[Operands, dict[str, Any]]
Types: TypeAlias = Callable[[list[Any], dict[str, Any]], tuple[str | None, str]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method: how its arguments are drawn, and what it means.

    `types` gives, of the types of the operands (numbers stand for themselves), the type in which the
    operands `first` up to `data` are taken, and that of the result. `meaning` gets arrays and the other
    arguments. `is_view`: the result shows elements of the first operand, so a write changes that.
    `results`: how many it gives; those numbered in `positions` are int32 whatever `types` says.
    """

    name: str
    draw: Callable[[Any], Drawn]
    meaning: Callable[..., Any]
    types: Types
    rounding: Rounding = Rounding.EXACT
    data: int = 1
    first: int = 0
    is_view: bool = False
    is_plain: bool = True  # its result is memory of its own: it can be written to
    results: int = 0
    positions: tuple[int, ...] = ()
    is_smooth: bool = True  # gradients are asked for
    takes_variables: bool = False
    is_elementwise: bool = False
    noise: float = NOISE
    inner: float = (
        0.0  # how large a number inside is whose rounding stays, where the result is less
    )


# -- types ----------------------------------------------------------------------------------------


def same(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    """Computed in any type; the result has that of the first operand."""
    return None, types[0]


def as_float(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    """Computed in the type of the first operand if it is a float, else in float32; so is the result."""
    return least_float(types[0]), least_float(types[0])


def as_bool(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    """Computed in any type; the result is bool."""
    return None, "bool"


def as_int32(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    """Computed in any type; the result is int32."""
    return None, "int32"


def common_type(types: list[Any]) -> str:
    """Of Tensors and weak numbers."""
    named = [t for t in types if isinstance(t, str)]
    result: str = named[0]
    for other in named[1:]:
        result = promote(result, other)
    if result in CODES:
        result = "float32"
    for number in types:
        if not isinstance(number, str):
            result = promote_number(result, number)
    return result


def pair(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    """Computed in the common type of the operands, which the result has."""
    found = common_type(types)
    return found, found


def pair_of_floats(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    """Computed in the common type if it is a float, else in float32; so is the result."""
    found = least_float(common_type(types))
    return found, found


def compared(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    """Computed in the common type of the operands; the result is bool."""
    return common_type(types), "bool"


def summed(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    """Computed in the type that `dtype=` asks for, else in that of sums; so is the result."""
    found = options.get("dtype") or sum_type(types[0])
    return found, found


# -- the value of a step --------------------------------------------------------------------------


def evaluate(
    operation: Operation, step: Step, values: Mapping[int, Value], seed: int, is_real: bool = False
) -> Value:
    """The value that `step` gives. `is_real`: floats are float64 and nothing is rounded."""
    used = {number: values[number] for number in references(step)}
    options = dict(step.options)
    types = [values[o.number].dtype if isinstance(o, Ref) else o for o in step.operands]
    common, result = operation.types(types, options)
    if step.pick in operation.positions:
        result = "int32"
    taken = common or next((t for t in types if isinstance(t, str)), result)
    with np.errstate(all="ignore"):
        if is_real:
            return _real(operation, step, used, common, result)
        integral = kind_of(taken) != "float"
        if integral or operation.rounding is Rounding.EXACT:
            return _exact(operation, step, used, common, result, seed)
        if operation.rounding is Rounding.SUM:
            exact = _exact_sum(operation, step, used, taken, result)
            if exact is not None:
                return exact
        return _close(operation, step, used, taken, result, seed)


def _run(operation: Operation, step: Step, at: Callable[[Any, int], Any]) -> Array:
    """The meaning of a step whose values are given by `at(operand, position)`."""
    operands = [at(operand, position) for position, operand in enumerate(step.operands)]
    options = {key: at(value, -1) for key, value in step.options if key != "dtype"}
    found = operation.meaning(*operands, **options)
    return np.asarray(found if step.pick is None else found[step.pick])


def _resolved(value: Any, lookup: Callable[[int], Array]) -> Any:
    if isinstance(value, Ref):
        return lookup(value.number)
    if isinstance(value, (tuple, list)):
        return type(value)([_resolved(part, lookup) for part in value])
    return value


def _number(number: Any, dtype: str) -> Array:
    """A Python number as the type has it."""
    plain = np.asarray(number)
    kind = (
        "bool" if isinstance(number, bool) else "float64" if isinstance(number, float) else "int64"
    )
    if kind == "int64" and plain.dtype.kind == "O" or plain.dtype == np.uint64:
        return plain.astype(held(dtype))
    return cast(plain, kind, dtype)


def _exact(
    operation: Operation,
    step: Step,
    used: Mapping[int, Value],
    common: str | None,
    result: str,
    seed: int,
) -> Value:
    count = 1 if all(value.is_exact for value in used.values()) else SAMPLES

    def sample(turn: int) -> Array:
        def at(operand: Any, position: int) -> Any:
            is_data = operation.first <= position < operation.data and common is not None
            if isinstance(operand, Ref):
                value = used[operand.number]
                array = value.sample(turn)
                return cast(array, value.dtype, common) if is_data and common else array
            if is_data and common and isinstance(operand, (bool, int, float)):
                return _number(operand, common)
            return _resolved(operand, lambda number: used[number].sample(turn))

        found = _run(operation, step, at)
        return (
            found
            if found.dtype == held(result) and result not in ("bfloat16",)
            else rounded(found, result)
        )

    samples = [sample(turn) for turn in range(count)]
    if count > 1 and kind_of(result) == "float" and len({s.shape for s in samples}) == 1:
        return Value(result, tuple(samples))  # that few samples are alike does not make them exact
    return merged(result, samples)


def _real(
    operation: Operation, step: Step, used: Mapping[int, Value], common: str | None, result: str
) -> Value:
    """In real numbers, as nearly as float64 has them."""

    def at(operand: Any, position: int) -> Any:
        is_data = operation.first <= position < operation.data and common is not None
        if isinstance(operand, Ref):
            value = used[operand.number]
            if kind_of(value.dtype) in ("float", "code"):
                return value.estimate
            if is_data and common:
                to = "float64" if kind_of(common) == "float" else common
                return cast(value.estimate, value.dtype, to)
            return value.estimate
        if is_data and common and isinstance(operand, (bool, int, float)):
            return _number(operand, "float64" if kind_of(common) == "float" else common)
        return _resolved(operand, lambda number: used[number].estimate)

    found = _run(operation, step, at)
    if kind_of(result) == "float":
        return Value(result, (found.astype("float64"),))
    if found.dtype.kind == "f" and result in INTS:  # a float that was not cast before
        return Value(result, (cast(found, "float64", result),))
    return Value(result, (found.astype(held(result)),))


def _wide(value: Value, to: str) -> Value:
    """A data operand in the type that is computed in, its samples in float64."""
    return Value(to, tuple([cast(x, value.dtype, to).astype(np.float64) for x in value.samples]))


def _data_of(operation: Operation, step: Step, used: Mapping[int, Value], to: str) -> list[Any]:
    found: list[Any] = []
    for position, operand in enumerate(step.operands[: operation.data]):
        if position < operation.first:
            found.append(None)
        elif isinstance(operand, Ref):
            found.append(_wide(used[operand.number], to))
        elif isinstance(operand, (bool, int, float)):
            found.append(Value(to, (_number(operand, to).astype(np.float64),)))
        else:
            found.append(operand)
    return found


def _exact_sum(
    operation: Operation, step: Step, used: Mapping[int, Value], taken: str, result: str
) -> Value | None:
    """The sum if no partial sum needs to be rounded; else None."""
    data = _data_of(operation, step, used, taken)
    arrays = [value for value in data if isinstance(value, Value)]
    if not all(value.is_exact for value in (*arrays, *used.values())):
        return None
    smallest = 1.0
    for value in arrays:
        smallest *= granule(value.estimate)
    if not smallest:
        return None

    def with_data(change: Callable[[Array], Array]) -> Array:
        def at(operand: Any, position: int) -> Any:
            if operation.first <= position < operation.data and isinstance(data[position], Value):
                return change(data[position].estimate)
            return _resolved(operand, lambda number: used[number].estimate)

        return _run(operation, step, at)

    largest = with_data(np.abs)
    digits = DIGITS["float64" if taken == "float64" else "float32"]
    if largest.size and not float(np.max(largest)) / smallest <= 2.0**digits:
        return None
    total = with_data(lambda x: x)
    if (total == 0).any() and any(np.signbit(v.estimate[v.estimate == 0]).any() for v in arrays):
        return None  # which zero depends on what a sum starts from
    return Value(result, (rounded(total + 0.0, result),))


def _close(
    operation: Operation, step: Step, used: Mapping[int, Value], taken: str, result: str, seed: int
) -> Value:
    """Samples of operands and results that were moved by the operation's noise."""
    data = _data_of(operation, step, used, taken)
    noise = operation.noise
    if operation.rounding is Rounding.SUM:
        noise *= 1 + log2(1 + max([d.size for d in data if isinstance(d, Value)], default=1)) / 4
    sizes = [
        moved(d, taken, noise, seed + 7919 * position) if isinstance(d, Value) else ()
        for position, d in enumerate(data)
    ]
    samples = []
    for turn in range(SAMPLES):

        def at(operand: Any, position: int, turn: int = turn) -> Any:
            if operation.first <= position < operation.data and sizes[position]:
                return sizes[position][turn]
            return _resolved(operand, lambda number: used[number].sample(turn))

        samples.append(_run(operation, step, at))
    if kind_of(result) == "float":
        found = Value(result, tuple([np.asarray(s, np.float64) for s in samples]))
        terms = max([d.size for d in data if isinstance(d, Value)], default=1) / max(1, found.size)
        noise *= 1 + sqrt(terms) / 8  # sums may run one by one
        least = max(
            float(unit_of(np.array(operation.inner), result)), LEAST_INNER * least_of(result)
        )
        samples = [rounded(s, result) for s in moved(found, result, noise, seed + 1, least)]
    return Value(result, tuple([rounded(s, result) for s in samples]))
