"""CHECK=1: each compiled kernel at sampled elements, beside the tensor graph that it was made from.

Owns: which elements are sampled, the comparison, errors, the counts. Does not own: the two
interpreters (sampled_tensor.py, sampled_linear.py), the launches of a plan (launch_plan.py).

What is launched is what is looked at: the Linear forms with their dense slots, the buffers of the body that
their slots name, tables between them. Nothing is skipped in silence: a kernel that costs too much to sample, or
holds what the interpreters do not know, is counted as not checked, with the reason.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy

from proofgrad.core import settings
from proofgrad.core.compile.plan import BufferInfo, Kernel, Plan, Step
from proofgrad.core.compile.stages import Procedure, Stage
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.arena import Arena
from proofgrad.verify.graph_stages import check_parts, compare_graphs
from proofgrad.verify.kernel_nesting import NotReadable
from proofgrad.verify.launch_plan import PlanError, check_arena, check_plan
from proofgrad.verify.sampled_arithmetic import Values
from proofgrad.verify.sampled_freedom import Estimate
from proofgrad.verify.sampled_inputs import KINDS, element
from proofgrad.verify.sampled_parts import Drawn, Part, Reader, may_cover
from proofgrad.verify.sampled_tensor import Budget, OverBudgetError, TensorElements, flat_elements

# Elements of a kernel: of iterations, and of elements that an iteration is looked for. Fewer where they cost too much.
ITERATIONS, ELEMENTS = 9, 3
# About so many values are computed for a kernel, both sides together, and at most so many.
USUAL_VALUES, MOST_VALUES = 80_000, 800_000
# And so many for each root of a graph that rules have rewritten.
MOST_OF_GRAPH = 40_000


class CheckError(RuntimeError):
    """A kernel that computes another value than its tensor graph: a bug of the compiler, never of its user."""

    def __init__(self, kernel: str, stage: str, reason: str) -> None:
        super().__init__(f"kernel {kernel}, {stage}: {reason} (CHECK=1)")
        self.kernel, self.stage, self.reason = kernel, stage, reason


@dataclass(slots=True)
class Checked:
    """What was looked at so far."""

    kernels: int = 0
    points: int = 0
    plans: int = 0
    not_checked: Counter[str] = field(default_factory=Counter)  # kernels, by reason
    seconds: float = 0.0

    def __str__(self) -> str:
        skipped = "".join(
            [f"; {n} not checked: {why}" for why, n in sorted(self.not_checked.items())]
        )
        return (
            f"{self.kernels:,} kernels at {self.points:,} points, {self.plans:,} plans in"
            f" {self.seconds * 1e3:,.0f} ms{skipped}"
        )


class Iterations:
    """Draws stores, and values of their loops."""

    def __init__(self, seed: int) -> None:
        draw = numpy.random.default_rng(seed)
        self.choice, self.integers = draw.choice, draw.integers

    def loop(self, loop: UOp, count: int) -> Values:
        """Values of a loop for so many iterations: the last of all loops, and of some, for the edges of tiles."""
        size = loop.src[0].arg
        drawn = self.integers(0, size, count)
        drawn[self.integers(0, 4, count) == 0] = size - 1
        drawn[:1] = size - 1
        return drawn


class ValueChecker:
    """Checks kernels and plans one after the other and counts."""

    def __init__(self, most_values: int = MOST_VALUES) -> None:
        self.total = Checked()
        self._most_values = most_values

    def kernels(self, body: UOp, kernels: Sequence[Kernel]) -> None:
        """The kernels of one body, at sampled elements. Raises: CheckError."""
        start = time.perf_counter()
        name = kernels[-1].name
        try:
            reason = _not_covered(body, kernels)
            with numpy.errstate(all="ignore"):
                points = 0 if reason else self._points(body, kernels)
        except NotReadable as error:
            raise CheckError(name, "Linear", str(error)) from None
        except OverBudgetError:
            reason = "too much to compute"
        self.total.seconds += time.perf_counter() - start
        if reason:
            self.total.not_checked[reason] += 1
            _say(f"not checked {name:<24} {reason}")
            return
        self.total.kernels += 1
        self.total.points += points
        _say(f"checked {name:<24} {points} points")

    def plan(
        self,
        graphs: Sequence[tuple[Stage | None, UOp]],
        after: UOp,
        plan: Plan,
        compiled: Sequence[Sequence[Kernel]],
    ) -> None:
        """The stages before the cut, and the launches of a plan. Raises: CheckError."""
        start = time.perf_counter()
        try:
            reason = check_plan(graphs[-1][1], after, plan, compiled)
            if not reason:
                self._stages(graphs)
        except PlanError as error:
            raise CheckError(error.kernel, "launch plan", error.reason) from None
        self.total.seconds += time.perf_counter() - start
        if reason:
            self.total.not_checked[reason] += 1
        else:
            self.total.plans += 1

    def arena(self, made: Mapping[int, BufferInfo], steps: Sequence[Step], arena: Arena) -> None:
        """Memory that the buffers of a recorded plan share. Raises: CheckError."""
        try:
            check_arena(made, steps, arena)
        except PlanError as error:
            raise CheckError(error.kernel, "memory of a recorded plan", error.reason) from None

    def _stages(self, graphs: Sequence[tuple[Stage | None, UOp]]) -> None:
        """The tensor graph, what rules made of it, and what reductions in parts made of that."""
        for (_, before), (stage, after) in zip(graphs, graphs[1:]):
            if before is after:
                continue
            if stage is not None and isinstance(stage.step, Procedure):
                check_parts(before, after, settings.proves_kernels())
            elif not settings.fastmath():
                self._rewritten(before, after)

    def _rewritten(self, before: UOp, after: UOp) -> None:
        try:
            with numpy.errstate(all="ignore"):
                self.total.points += compare_graphs(before, after, _draw, KINDS, MOST_OF_GRAPH)
        except OverBudgetError:
            self.total.not_checked["a graph before rules and after: too much to compute"] += 1

    def summary(self) -> str:
        return str(self.total)

    def _points(self, body: UOp, kernels: Sequence[Kernel]) -> int:
        """How many elements were compared. Raises: CheckError, NotReadable, OverBudgetError."""
        parts = _parts(body, kernels)
        value = body.src[0]
        last = parts[-1]
        size = prod(value.shape)
        if last.written != 0:
            raise NotReadable(
                f"the last kernel writes buffer {last.written} of the body, not the result"
            )
        if (last.size, last.dtype) != (size, value.dtype):
            raise NotReadable(
                f"{last.size} elements of {last.dtype} are written, {size} of {value.dtype} are asked for"
            )
        for part in parts:
            if not may_cover(part):
                raise NotReadable(f"not every element of {part.size} is written")
        each = _values_of_one(value)
        affordable = USUAL_VALUES // (3 * each)
        if affordable >= ITERATIONS + ELEMENTS:
            return self._compared(kernels[-1].name, body, parts, ITERATIONS, ELEMENTS)
        few = max(1, affordable)
        return self._compared(kernels[-1].name, body, parts, few - few // 3, few // 3)

    def _compared(
        self, name: str, body: UOp, parts: Sequence[Part], iterations: int, elements: int
    ) -> int:
        budget = Budget(self._most_values)
        reader = Reader(_draw, budget)
        draw = Iterations(len(body.toposort()))
        last = parts[-1]
        where, values, kind = reader.sample(last, iterations, elements, draw, KINDS)
        if last.combines and elements and last.size * elements <= MOST_OF_GRAPH:
            more = draw.integers(0, last.size, elements)
            kinds = numpy.arange(elements) % KINDS
            try:
                parts_of_more = more, reader.written(last, more, kinds), kinds
                where, values, kind = [
                    numpy.concatenate(each) for each in zip((where, values, kind), parts_of_more)
                ]
            except OverBudgetError:
                budget.left = self._most_values  # the iterations are enough
        expected = expected_elements(body, where, kind, budget)
        _compare(name, body.src[0].dtype, body.src[0].shape, where, expected, values)
        return int(numpy.broadcast_to(expected.is_known(), where.shape).sum())


def expected_elements(body: UOp, where: Values, kind: Values, budget: Budget) -> Estimate:
    """The elements of a body at row-major positions, each with the memory of its kind."""
    value = body.src[0]

    def read(node: UOp, index: Values) -> Estimate:
        index = numpy.asarray(index)
        seen = numpy.broadcast_to(kind, numpy.broadcast_shapes(index.shape, kind.shape))
        return Estimate(_draw(node.arg[0], node.dtype, index, seen))

    return TensorElements(read, budget).at(value, flat_elements(value.shape, where))


def _values_of_one(root: UOp) -> int:
    """About how many values one element of a graph is made of."""
    times: dict[UOp, int] = {root: 1}
    total = 0
    for node in reversed(toposort((root,))):
        here = times[node]
        total += here
        if node.op is Ops.REDUCE_AXIS:
            here *= prod([node.src[0].shape[axis] for axis in node.arg[1]])
        for source in node.src:
            times[source] = max(times.get(source, 1), here)
    return total


def _draw(number: int, dtype: DType, index: Values, kind: Values) -> Values:
    return element(number, dtype, index, kind, 0)


def _parts(body: UOp, kernels: Sequence[Kernel]) -> list[Part]:
    """The kernels with the memory that each finds."""
    memory: dict[int, Any] = {
        n.arg[0]: Drawn(n.arg[0]) for n in body.toposort() if n.op is Ops.PARAM
    }
    parts: list[Part] = []
    for kernel in kernels:
        assert kernel.source.program is not None
        part = Part(kernel.source.program, kernel.slots, dict(memory))
        memory[part.written] = part
        parts.append(part)
    return parts


def _not_covered(body: UOp, kernels: Sequence[Kernel]) -> str:
    is_whole = all(is_plain(node.shape) for node in body.toposort())
    if not is_whole or any(kernel.variables for kernel in kernels):  # one may bound a frame alone
        return "sizes are variables"
    if settings.fastmath():
        return "FASTMATH is asked for"
    if any(kernel.source.program is None for kernel in kernels):
        return "no Linear is kept"
    return ""


def _compare(
    name: str, dtype: DType, shape: Sequence[int], where: Values, expected: Estimate, values: Values
) -> None:
    """Raises: CheckError for the first element that is another one than it may be."""
    agrees = numpy.broadcast_to(expected.agrees(values, dtype), where.shape)
    if agrees.all():
        return
    first = int(agrees.argmin())
    index = tuple([int(i) for i in numpy.unravel_index(int(where[first]), tuple(shape) or (1,))])
    right = numpy.broadcast_to(expected.values, where.shape)[first]
    off = (
        ""
        if expected.error is None
        else f" (off by {numpy.broadcast_to(expected.error, where.shape)[first]:.3g} at most)"
    )
    raise CheckError(
        name,
        "tensor graph to Linear",
        f"element {index if shape else ()} of shape {tuple(shape)} is {values[first]!r}, expected {right!r}{off};"
        f" {int((~agrees).sum())} of {len(where)} sampled elements differ",
    )


def _say(text: str) -> None:
    if settings.debug_level() >= 2:
        print(text, file=sys.stderr)
