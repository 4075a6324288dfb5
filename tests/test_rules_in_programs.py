"""Every rule about tensors, gradients and bounds is used by the compiler as it is, with its evidence.

Laws of tensors: a program around an instance of the left side runs on a machine, and must give what
numpy gives. Cotangents: the gradient of an instance, against the slope of a line through its values.
Bounds: the line is the first that applies to an instance, and no value leaves the interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import oracle
from instances import Instance
from kernel_interpreter import element
from rule_coverage import not_among_all
from rule_kernels import RowInstance, kernel_around

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import ShapeError
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import cotangents
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.rule import Rule
from proofgrad.core.tensor.runtime import realize
from proofgrad.core.tensor.runtime.memory import host_buffer
from proofgrad.core.tensor.runtime.reading import read
from proofgrad.core.tensor.runtime.realize import compiler

ATTEMPTS = 1_500
STEP = 1e-5
SLOPE_TOLERANCE = 1e-4  # of float64 values near 1: the step squared, and rounding over the step


class DeviceInstance(Instance):
    """An instance whose leaves are buffers of a machine."""

    def __init__(self, rule: Rule, random: Random) -> None:
        super().__init__(rule, random)
        self.elements: dict[UOp, np.ndarray[Any, Any]] = {}

    def _tensor(self, dtype: DType, number: int) -> UOp:
        shape = self.random.choice([(6,), (2, 3), (1, 3), (2, 1, 3)])
        numbers = np.random.default_rng(self.random.getrandbits(32))
        values = numbers.integers(0, 2 if dtype.is_bool else 90, int(np.prod(shape)))
        held = values.astype(oracle.numpy_dtype(dtype))
        copy = host_buffer(oracle.to_bytes(held, dtype), dtype, "CPU")
        (buffer,) = realize.realize([copy], "CPU")
        self.elements[buffer] = held
        return UOp(Ops.RESHAPE, dtype, (buffer,), shape)


def tensor_rules() -> list[Rule]:
    sets = compiler().library.sets
    return [r for name in ("movement", "reduce") for r in sets[name].rules if "tensor" in r.domains]


def instances(rule: Rule) -> Iterator[tuple[UOp, DeviceInstance]]:
    random = Random(rule.full_name)
    for _ in range(ATTEMPTS):
        instance = DeviceInstance(rule, random)
        try:
            yield instance.build(rule.left), instance
        except (OverflowError, ShapeError):
            continue


def test_every_law_of_tensors_fires_in_a_program_and_the_result_is_right() -> None:
    silent = [rule.full_name for rule in tensor_rules() if not _fires_in_a_program(rule)]
    assert silent == []


def _fires_in_a_program(rule: Rule) -> bool:
    journal = compiler().library.journal
    for node, instance in instances(rule):
        before = journal.applied[rule.full_name]
        program = UOp(Ops.CONTIGUOUS, node.dtype, (node,))  # so that a view is computed too
        data = bytes(read(program, "CPU"))
        expected = oracle.evaluate_tensor(node, instance.elements)
        got = oracle.from_bytes(data, node.dtype).reshape(node.shape)
        np.testing.assert_array_equal(got, expected, rule.full_name)
        if journal.applied[rule.full_name] > before:
            return True
    return False


# -- gradients --------------------------------------------------------------------------------------


def test_every_cotangent_is_the_slope() -> None:
    rules = compiler().library.sets["cotangent"]
    wrong = {rule.full_name: _wrong_slope(rule) for rule in rules.rules}
    assert {name: why for name, why in wrong.items() if why} == {}


def _wrong_slope(rule: Rule) -> str:
    """How the cotangents of an instance differ from the slopes of its values; "" if they do not."""
    library = compiler().library
    random = Random(rule.full_name)
    for _ in range(ATTEMPTS):
        instance = _SmoothInstance(rule, random)
        try:
            node = instance.build(rule.left)
        except (OverflowError, ShapeError):
            continue
        weights = instance.weights(node)
        before = library.journal.applied[rule.full_name]
        parts = cotangents(library.sets["cotangent"], node, weights, journal=library.journal)
        if library.journal.applied[rule.full_name] > before:
            return instance.difference(node, weights, parts)
    return f"did not fire in {ATTEMPTS} programs"


class _SmoothInstance(Instance):
    """An instance over buffers of different numbers near 1, so that no two are a tie."""

    def __init__(self, rule: Rule, random: Random) -> None:
        super().__init__(rule, random)
        self.types = {n: dtypes.float64 if d.is_float else d for n, d in self.types.items()}
        self.elements: dict[UOp, np.ndarray[Any, Any]] = {}

    def _tensor(self, dtype: DType, number: int) -> UOp:
        shape = self.random.choice([(6,), (2, 3), (1, 3), (2, 1, 3)])
        return self._buffer(dtype, number, shape)

    def _buffer(self, dtype: DType, number: int, shape: tuple[int, ...]) -> UOp:
        parts = (UOp(Ops.UNIQUE, arg=number), UOp(Ops.DEVICE, arg="CPU"))
        buffer = UOp(Ops.BUFFER, dtype, parts, int(np.prod(shape)))
        numbers = np.random.default_rng(self.random.getrandbits(32))
        values = numbers.permutation(buffer.arg) / 7 + 0.31 + 0.041 * number
        self.elements[buffer] = values.astype(oracle.numpy_dtype(dtype))
        return UOp(Ops.RESHAPE, dtype, (buffer,), shape)

    def weights(self, node: UOp) -> UOp:
        """A cotangent of the node: how much each of its elements counts."""
        return self._buffer(node.dtype, 90, node.shape)

    def difference(self, node: UOp, weights: UOp, parts: tuple[UOp | None, ...]) -> str:
        """Where a cotangent is not the slope of the weighted sum, as text."""
        for position, (source, part) in enumerate(zip(node.src, parts)):
            if source.op is not Ops.RESHAPE or not source.dtype.is_float:
                continue
            slope = self._slope(node, weights, source.src[0]).reshape(source.shape)
            if part is None:
                if node.op is not Ops.DETACH and np.any(slope):
                    return f"source {position} has the slope {slope} and no cotangent"
                continue
            got = oracle.evaluate_tensor(part, self.elements)
            if not np.allclose(got, slope, rtol=SLOPE_TOLERANCE, atol=SLOPE_TOLERANCE):
                return f"source {position}: {got}, but the slope is {slope}"
        return ""

    def _slope(self, node: UOp, weights: UOp, buffer: UOp) -> np.ndarray[Any, Any]:
        values, slopes = self.elements[buffer], []
        for k in range(len(values)):
            ends = []
            for by in (STEP, -STEP):
                moved = values.copy()
                moved[k] += by
                ends.append(self._weighted(node, weights, {**self.elements, buffer: moved}))
            slopes.append((ends[0] - ends[1]) / (2 * STEP))
        return np.array(slopes)

    def _weighted(self, node: UOp, weights: UOp, elements: dict[UOp, Any]) -> float:
        # A rounding is a step function, and has the slope of what it rounds, as casts have.
        node = node.src[0] if node.op is Ops.TF32 else node
        total = oracle.evaluate_tensor(node, elements) * oracle.evaluate_tensor(weights, elements)
        return float(np.sum(total, dtype=np.float64))


# -- bounds -----------------------------------------------------------------------------------------


def test_every_line_of_bounds_is_the_first_for_some_term_and_holds() -> None:
    rules = compiler().library.sets["bounds"].rules
    rules = [rule for rule in rules if rule.full_name not in not_among_all()]
    wrong = {rule.full_name: _wrong_bounds(rule) for rule in rules}
    assert {name: why for name, why in wrong.items() if why} == {}


def _wrong_bounds(rule: Rule) -> str:
    random = Random(rule.full_name)
    for _ in range(ATTEMPTS):
        try:
            node = RowInstance(rule, random).build(rule.left)
        except (OverflowError, ShapeError):
            continue
        facts = compiler().library.facts()
        low, high = facts.interval(node)
        if _line_of(node, facts) == rule.name and low is not None and high is not None:
            values = list(_values(node, random))
            numbers = [v for v in values if not np.isnan(v)]  # bounds of floats say nothing of NaN
            return "" if all(low <= v <= high for v in numbers) else f"{values} in [{low}, {high}]"
    return f"is not the first of {ATTEMPTS} terms"


def _line_of(node: UOp, facts: Facts) -> str:
    """The line that gives the bounds of `node`: the first whose interval is theirs."""
    for matcher in compiler().library.sets["bounds"].candidates(node):
        if matcher.interval(node, facts) == facts.interval(node):
            return matcher.rule.name
    return ""


def _values(node: UOp, random: Random) -> Iterator[Any]:
    """The values of a term, for every choice of its loops."""
    made = kernel_around(node, random)
    store = made.kernel.src[0]
    loops = [n for n in store.toposort() if n.op is Ops.RANGE]
    for position in np.ndindex(*[loop.src[0].arg for loop in loops]):
        yield element(node, dict(zip(loops, map(int, position))), dict(made.data))
