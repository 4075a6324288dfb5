"""Cotangents by numbers: what a rule says against differences of the operation that it is about.

Owns: the points, which are apart from where an operation has no derivative but for ties of two; the
tolerance. Does not own: values (tensors.py). Rounding is no part of what is claimed, so all is
computed in doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, prod
from random import Random
from typing import Any

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.verify.agreement.interpreter import Column
from proofgrad.verify.agreement.tensors import TensorValues

STEP = 1e-5
TOLERANCE = {
    16: 5e-2,
    32: 1e-5,
    64: 1e-5,
}  # by the width of the type, to which constants are rounded
POINTS = 3


@dataclass(frozen=True, slots=True)
class Derived:
    """How many entries were compared, and where they differ."""

    points: int
    difference: str = ""


def wrong_cotangent(rules: RuleSet, node: UOp, facts: Facts, random: Random) -> Derived | None:
    """Compare cotangents of the sources of `node` with differences; None if the rule does not apply."""
    parts = (UOp(Ops.UNIQUE, arg=-1), UOp(Ops.DEVICE, arg="CPU"))
    memory = UOp(Ops.BUFFER, node.dtype, parts, prod(node.shape))
    cotangent = UOp(Ops.RESHAPE, node.dtype, (memory,), node.shape)
    found = None
    for matcher in rules.candidates(node):
        found = matcher.cotangents(node, facts, cotangent)
        if found is not None:
            break
    if found is None:
        return None
    count, tolerance = 0, TOLERANCE.get(node.dtype.bits, 0.0)
    for _ in range(POINTS):
        roots = [node, *[term for term in found if term is not None]]
        buffers = [n for n in toposort([*roots, cotangent]) if n.op is Ops.BUFFER]
        contents = {b: _elements(b, random) for b in buffers}
        for k, (source, term) in enumerate(zip(node.src, found)):
            if term is not None and (term.dtype, term.shape) != (source.dtype, source.shape):
                return Derived(
                    count, f"the cotangent of source {k} is {term.dtype} of {term.shape}"
                )
            if not source.dtype.is_float or not node.dtype.is_float or node.op is Ops.DETACH:
                if term is not None:
                    return Derived(count, f"there is a cotangent of source {k}, and no derivative")
                continue
            if source.op is not Ops.RESHAPE or source.src[0].op is not Ops.BUFFER:
                continue
            given = [0.0] * prod(source.shape)
            if term is not None:
                given = TensorValues(contents, as_reals=True).of(term)
            expected = _differences(node, source.src[0], contents, contents[memory])
            for position, (a, b) in enumerate(zip(given, expected)):
                count += 1
                if isfinite(b) and not abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)):
                    return Derived(count, _told(k, position, a, b, contents))
    return Derived(count)


def _differences(node: UOp, buffer: UOp, contents: dict[UOp, Column], cotangent: Column) -> Column:
    """The derivative of the sum of `cotangent` times `node` for each element of the buffer."""
    found = []
    for position in range(len(contents[buffer])):
        ends = []
        for step in (STEP, -STEP):
            moved = list(contents[buffer])
            moved[position] += step
            values = TensorValues({**contents, buffer: moved}, as_reals=True).of(node)
            ends.append(sum([g * v for g, v in zip(cotangent, values)]))
        found.append((ends[0] - ends[1]) / (2 * STEP))
    return found


def _elements(buffer: UOp, random: Random) -> Column:
    """Elements apart from each other and from whole numbers; here and there a tie of two, or a zero."""
    size = prod(buffer.shape)
    if not buffer.dtype.is_float:
        return [_number(buffer.dtype, random) for _ in range(size)]
    found = [0.3 + 0.37 * k + 0.1 * random.random() for k in range(size)]
    random.shuffle(found)
    return [-v if random.random() < 0.3 else v for v in found]


def _number(dtype: DType, random: Random) -> Any:
    return random.random() < 0.5 if dtype.is_bool else random.choice([0, 1, 2, 3])


def _told(k: int, position: int, a: float, b: float, contents: dict[UOp, Column]) -> str:
    told = ", ".join([str(values) for values in contents.values()])
    return f"the cotangent of source {k} has {a} at element {position}, and should have {b}; memory: {told}"
