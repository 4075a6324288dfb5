"""Both sides of one instance at its points: where they differ, in words.

Owns: what "the same" means in each class of laws, false facts, the text of a difference. Does not
own: points (points.py), values (interpreter.py, tensors.py), which instances are compared (agree.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from proofgrad.core.compile.text.show import show_nest
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.verify.agreement.interpreter import COUNTERS, OUTSIDE, Values
from proofgrad.verify.agreement.points import points_of
from proofgrad.verify.agreement.tensors import tensor_values
from proofgrad.verify.encode.types import Case
from proofgrad.verify.sample.rules import same_value

# By the width of a type: what rounding of the constants of a law of reals may amount to.
REAL_TOLERANCE = {16: 5e-2, 32: 1e-4, 64: 1e-9}
LEAST_REAL, LARGEST_REAL = 1e-2, 1e3  # numbers of which few digits are lost
SHOWN_CHARACTERS = 1_500
_ARE_POSITIONS = frozenset({Ops.PARAM, Ops.INDEX})


@dataclass(frozen=True, slots=True)
class Agreement:
    """On how many instances and points both sides were compared; where they differ, as text."""

    instances: int
    points: int
    fired: int  # cases on whose instances the rule fired
    difference: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the rule may be admitted."""
        return not self.difference and self.instances > 0

    @property
    def reason(self) -> str:
        """Why it may not."""
        if self.difference:
            return f"the engine executes it otherwise, over {self.difference}"
        return "no instance was found on which the engine's rule fires"


class Differs(Exception):
    """Both sides differ. The message says where."""


def compare(
    case: Case, node: UOp, result: UOp, random: Random, most: int, is_summed: bool = False
) -> int:
    """At how many points both sides were compared. Raises: Differs."""
    if result.dtype is not node.dtype or result.shape != node.shape:
        raise Differs(
            f"{_told(node, result)}  which is {result.dtype} of shape {result.shape}, and no"
            f" {node.dtype} of shape {node.shape}"
        )
    values = points_of((node, result), random, most, is_summed)
    if values is None:
        return 0
    if case.domain == "real":
        values = values.with_reals()
    try:
        left = values.of(node)
    except KeyError:
        return 0  # a loop of the left side is used outside of it: no graph is so
    try:
        right = values.of(result)
    except KeyError:
        raise Differs(f"{_told(node, result)}  which reads a loop outside of it") from None
    is_same, allowed = _sameness(case, node), _allowed(case, node, values)
    compared = [
        k for k, a in enumerate(left) if a is not OUTSIDE and (allowed is None or allowed[k])
    ]
    differing = [k for k in compared if right[k] is OUTSIDE or not is_same(left[k], right[k])]
    if differing and _combines_floats(node):  # in which order is not specified
        parts = values.summed_by_parts()
        a, b = parts.of(node), parts.of(result)
        differing = [k for k in differing if right[k] is OUTSIDE or not is_same(a[k], b[k])]
    if differing:
        sides = {"left": left[differing[0]], "right": right[differing[0]]}
        raise Differs(f"{_told(node, result)}  {at_point(values, differing[0], **sides)}")
    return len(compared)


def _combines_floats(node: UOp) -> bool:
    return any([part.op is Ops.REDUCE and part.dtype.is_float for part in node.toposort()])


def compare_tensors(node: UOp, result: UOp, random: Random) -> int:
    """As `compare`, for tensors, element by element. Raises: Differs."""
    if result.dtype is not node.dtype or result.shape != node.shape:
        raise Differs(f"{_told(node, result)}  which has the shape {result.shape}")
    compared = 0
    for values in tensor_values((node, result), random):
        for k, (a, b) in enumerate(zip(values.of(node), values.of(result))):
            compared += 1
            if not same_value(a, b):
                raise Differs(
                    f"{_told(node, result)}  element {k} is {a!r} on the left, {b!r} on the right"
                )
    return max(compared, 1)  # of no element, but of the same shape


# -- what is the same -------------------------------------------------------------------------------


def _sameness(case: Case, node: UOp) -> Callable[[Any, Any], bool]:
    if case.domain == "nsz":
        return lambda a, b: same_value(_unsigned(a), _unsigned(b))
    if case.domain == "real":
        bits = max(16, node.dtype.bits, *[source.dtype.bits for source in node.src])
        tolerance = REAL_TOLERANCE[bits]
        return lambda a, b: _is_near(a, b, tolerance)
    return same_value


def _unsigned(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def _is_near(a: Any, b: Any, tolerance: float) -> bool:
    if not isinstance(a, float):
        return bool(a == b)
    return bool(abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)))


def _allowed(case: Case, node: UOp, values: Values) -> list[bool] | None:
    """At which points the class of the law claims something; None: at all."""
    if case.domain not in ("finite", "real"):
        return None
    floats = [n for n in node.toposort() if n.dtype.is_float and n.op not in _ARE_POSITIONS]
    if not floats:  # a law of integers that names this class
        return None
    columns = [values.of(n) for n in floats]
    is_allowed = math.isfinite if case.domain == "finite" else _is_moderate
    return [all(map(is_allowed, row)) for row in zip(*columns)]


def _is_moderate(value: float) -> bool:
    return value == 0.0 or LEAST_REAL <= abs(value) <= LARGEST_REAL


# -- facts ------------------------------------------------------------------------------------------


def check_facts(node: UOp, column: Sequence[Any], values: Values, facts: Facts) -> None:
    """Whether all that the engine finds of the node is true of its values. Raises: Differs."""
    told = _known(node, facts)
    for k, value in enumerate(column):
        if value is OUTSIDE:
            continue
        for text, holds in told:
            if not holds(value):
                raise Differs(f"  of\n{shown(node)}\n  {text}, {at_point(values, k, value=value)}")


def check_parts(node: UOp, random: Random, facts: Facts, most: int) -> None:
    """As `check_facts`, for each part of a graph that does not change with a loop of a reduction."""
    values = points_of((node,), random, most, False)
    if values is None:
        return
    for part in node.toposort():
        if part.op in ELEMENTWISE or part.op in COUNTERS:
            try:
                column = values.of(part)
            except KeyError:
                continue  # of a loop
            check_facts(part, column, values, facts)


def _known(node: UOp, facts: Facts) -> list[tuple[str, Callable[[Any], bool]]]:
    """What the engine says of the node, in words and as a test of a value."""
    found: list[tuple[str, Callable[[Any], bool]]] = []
    low, high = facts.interval(node)
    if low is not None:
        found.append((f"it is said to be no less than {low}", lambda v: v != v or low <= v))
    if high is not None:
        found.append((f"it is said to be no more than {high}", lambda v: v != v or v <= high))
    ones, may = facts.bits(node)
    if ones is not None and may is not None:
        text = f"its bits are said to be set in {ones}, and none outside of {may}"
        found.append((text, lambda v: v & ones == ones and v & may == v))
    divisor = facts.divisor(node)
    if divisor is not None:
        text = f"{divisor} is said to divide it"
        found.append((text, lambda v: v % divisor == 0 if divisor else v == 0))
    if node.dtype.is_float and facts.finite(node):
        found.append(("it is said to be finite", math.isfinite))
    if node.dtype.is_float and facts.not_nan(node):
        found.append(("it is said to be a number", lambda v: v == v))
    return found


# -- text -------------------------------------------------------------------------------------------


def _told(node: UOp, result: UOp) -> str:
    return f"  the engine makes of\n{shown(node)}\n  this:\n{shown(result)}\n"


def shown(node: UOp) -> str:
    """A graph as indented text, cut where it is long."""
    try:
        text = show_nest(node).removeprefix("term\n").rstrip()
    except ValueError:
        text = repr(node)  # of what has no text
    text = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} ..."
    return "\n".join([f"    {line}" for line in text.splitlines()])


def at_point(values: Values, k: int, **sides: Any) -> str:
    """What loops and memory are at a point, and what comes out."""
    told = [f"{_name(node)} = {value!r}" for node, value in values.at(k)]
    told += [f"{name} = {side!r}" for name, side in sides.items()]
    return f"at {', '.join(told)}"


def _name(node: UOp) -> str:
    if node.op is Ops.PARAM:
        return f"param {node.arg[0]}"
    return f"r{node.arg[0]}" if node.op is Ops.RANGE else str(node.arg[0])
