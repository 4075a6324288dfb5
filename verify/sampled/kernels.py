"""CHECK=1: each compiled kernel at sampled elements, beside the tensor graph that it was made from.

Owns: which elements are sampled, the comparison, errors, the counts. Does not own: the two
interpreters (sampled/tensor.py, sampled/linear.py), the launches of a plan (launch_plan.py).

What is launched is what is looked at: the Linear forms with their dense slots, the buffers of the body that
their slots name, tables between them. Nothing is skipped in silence: a kernel that costs too much to sample, or
holds what the interpreters do not know, is counted as not checked, with the reason.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy

from proofgrad.core import settings
from proofgrad.core.compile.passes.stages import GraphTactic, Stage
from proofgrad.core.compile.plan.plan import TOLD, BufferInfo, Kernel, Plan, Step
from proofgrad.core.ir.op_names import PARAM
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.arena import Arena
from proofgrad.core.tensor.runtime.launches import Launches
from proofgrad.verify.sampled import launched
from proofgrad.verify.sampled.arithmetic import Values
from proofgrad.verify.sampled.as_run import compare_runs
from proofgrad.verify.sampled.expected import CheckError, compare, drawn, expected_elements
from proofgrad.verify.sampled.graph_stages import check_parts, compare_graphs
from proofgrad.verify.sampled.inputs import KINDS, WHOLE, rows_of_corners
from proofgrad.verify.sampled.launch_memory import (
    Followed,
    check_fixed,
    check_numbers,
    check_replay,
    check_results,
    check_unseen,
    check_written_over,
    named_buffers,
)
from proofgrad.verify.sampled.launch_plan import PlanError, check_arena, check_plan
from proofgrad.verify.sampled.nesting import NotReadable
from proofgrad.verify.sampled.one_writer import check_writers
from proofgrad.verify.sampled.parts import NO_ROWS, Drawn, Part, Reader
from proofgrad.verify.sampled.tensor import Budget, OverBudgetError, reads_of, values_of_one
from proofgrad.verify.sampled.values import at_values, some_assignments, variables_of

# Elements of a kernel: of iterations, and of elements that an iteration is looked for. Fewer where they cost too much.
ITERATIONS, ELEMENTS = 21, 9
# And so many iterations more in memory of the ends of types, of which each element is one of fifteen.
AT_ENDS = 64
# About so many values are computed for a kernel, both sides together, and at most so many.
USUAL_VALUES, MOST_VALUES = 80_000, 1_600_000
# Elements of a kernel that are compared though they cost more than usual.
FEWEST = 9
# Whole numbers that are drawn for memory are smaller than this.
NEAR = 5
# And so many for each root of a graph that rules have rewritten, and for each of its nodes.
MOST_OF_GRAPH, MOST_OF_NODE = 40_000, 6_000


@dataclass(slots=True)
class Checked:
    """What was looked at so far."""

    kernels: int = 0
    points: int = 0
    plans: int = 0
    runs: int = 0  # of kernels, on drawn memory
    not_checked: Counter[str] = field(default_factory=Counter)  # kernels, by reason
    seconds: float = 0.0

    def __str__(self) -> str:
        skipped = "".join(
            [f"; {n} not checked: {why}" for why, n in sorted(self.not_checked.items())]
        )
        return (
            f"{self.kernels:,} kernels at {self.points:,} points, {self.plans:,} plans"
            f"{f', {self.runs:,} runs' if self.runs else ''} in"
            f" {self.seconds * 1e3:,.0f} ms{skipped}"
        )


class Iterations:
    """Draws stores, and values of their loops: from numbers that are drawn once."""

    def __init__(self, seed: int) -> None:
        self._next = seed * 7919 % len(_drawn())

    def _take(self, count: int) -> Values:
        if count > len(_drawn()):
            return numpy.resize(_drawn(), count)
        if self._next + count > len(_drawn()):
            self._next = 0
        self._next += count
        return _drawn()[self._next - count : self._next]

    def choice(self, count: int) -> Values:
        """One of so many."""
        return self._take(1) % count

    def integers(self, low: int, high: int, count: int) -> Values:
        """`count` integers from `low` on and below `high`, shape (count,)."""
        return low + self._take(count) % (high - low)

    def loops(self, loops: Sequence[UOp], count: int) -> dict[UOp, Values]:
        """Values of loops for so many iterations: the last of all, the first of all, and of some, for the edges."""
        if not loops:
            return {}
        sizes = numpy.array([[loop.src[0].arg] for loop in loops])
        drawn = self._take(len(loops) * count).reshape(len(loops), count)
        ends = drawn & 3
        values = numpy.where(ends > 1, (drawn >> 2) % sizes, ends * (sizes - 1))
        values[:, :1], values[:, 1:2] = sizes - 1, 0
        return dict(zip(loops, values))


@functools.cache
def _drawn() -> Values:
    return numpy.random.default_rng(0).integers(0, 1 << 62, 1 << 14)


class ValueChecker:
    """Checks kernels and plans one after the other and counts."""

    def __init__(self, most_values: int = MOST_VALUES) -> None:
        self.total = Checked()
        self._most_values = most_values

    def kernels(self, body: UOp, kernels: Sequence[Kernel]) -> None:
        """The kernels of one body, at sampled elements. Raises: CheckError."""
        start = time.thread_time()
        name = kernels[-1].name
        try:
            reason = _not_covered(kernels)
            with numpy.errstate(all="ignore"):
                points = 0 if reason else self._points(body, kernels)
                if settings.runs_kernels() and not reason:
                    self._run(body, kernels)
        except NotReadable as error:
            raise CheckError(name, "Linear", str(error)) from None
        except OverBudgetError:
            reason = "too much to compute"
        self.total.seconds += time.thread_time() - start
        if not reason and not points and 0 not in body.src[0].shape:
            reason = "nothing is known of the elements that were drawn"
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
        start = time.thread_time()
        try:
            reason = check_plan(graphs[-1][1], after, plan, compiled)
            for values in some_assignments(variables_of([graph for _, graph in graphs])):
                self._stages([(stage, at_values(graph, values)) for stage, graph in graphs])
        except PlanError as error:
            raise CheckError(error.kernel, "launch plan", error.reason) from None
        self.total.seconds += time.thread_time() - start
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

    def numbers(
        self,
        roots: Sequence[UOp],
        graph: UOp,
        inputs: Sequence[UOp],
        given: Sequence[Any],
        values: dict[str, int],
    ) -> None:
        """What a run is given, beside what was asked for. Raises: CheckError."""
        with self._of_launches():
            check_numbers(roots, graph, inputs, given, values)

    @contextmanager
    def launches(self, plan: Plan, given: Sequence[Any]) -> Iterator[Followed]:
        """Follow the launches inside. Raises: CheckError."""
        with self._of_launches():
            check_written_over(plan, given)
            followed, before = Followed(plan, given), TOLD.launch
            TOLD.launch = followed.launch
            try:
                yield followed
            finally:
                TOLD.launch = before

    def written_anew(self, node: UOp) -> None:
        """The memory of an earlier result, which is written to again. Raises: CheckError."""
        with self._of_launches():
            check_unseen(node)

    def results(
        self, plan: Plan, shapes: Sequence[Any], memory: Sequence[Any], found: Sequence[UOp]
    ) -> None:
        """The nodes of what a plan has computed. Raises: CheckError."""
        with self._of_launches():
            check_results(plan, shapes, memory, found)

    def named(self, roots: Sequence[UOp], entries: Iterable[Any]) -> list[Any]:
        """The buffers that `fixed` asks for."""
        return named_buffers(roots, entries)

    def fixed(self, named: Sequence[Any], buffers: Sequence[UOp]) -> None:
        """What all replays will read as it is. Raises: CheckError."""
        with self._of_launches():
            check_fixed(named, buffers)

    def replay(
        self,
        steps: Sequence[Step],
        program: Launches,
        memory: Sequence[Any],
        results: Mapping[int, UOp | None],
    ) -> None:
        """What a replay launches. Raises: CheckError."""
        with self._of_launches():
            check_replay(steps, program, memory, results)

    @contextmanager
    def _of_launches(self) -> Iterator[None]:
        try:
            yield
        except PlanError as error:
            raise CheckError(error.kernel, "launches", error.reason) from None

    def _stages(self, graphs: Sequence[tuple[Stage | None, UOp]]) -> None:
        """The tensor graph, what rules and steps made of it, and what reductions in parts made of that."""
        for (_, before), (stage, after) in zip(graphs, graphs[1:]):
            if before is after:
                continue
            if stage is not None and isinstance(stage.step, GraphTactic) and stage.step.in_parts:
                check_parts(before, after, settings.proves_kernels())
            elif not settings.fastmath():
                self._rewritten(before, after)

    def _rewritten(self, before: UOp, after: UOp) -> None:
        try:
            with numpy.errstate(all="ignore"):
                most = MOST_OF_GRAPH + MOST_OF_NODE * (
                    len(toposort((before,))) + len(toposort((after,)))
                )
                self.total.points += compare_graphs(before, after, drawn, most)
        except OverBudgetError:
            self.total.not_checked["a graph before rules and after: too much to compute"] += 1

    def summary(self) -> str:
        """How much was checked so far, in one line."""
        return str(self.total)

    def _points(self, body: UOp, kernels: Sequence[Kernel]) -> int:
        """How many elements were compared, at some values of variables. Raises: CheckError, NotReadable, OverBudgetError."""
        linear = [k.source.program for k in kernels if k.source.program is not None]
        slots, name = [kernel.slots for kernel in kernels], kernels[-1].name
        variables = variables_of([body, *linear])
        if not variables:
            return self._points_of_numbers(toposort((body,)), name, linear, slots)
        of_kernels, points = [_variable_slots(kernel) for kernel in kernels], 0
        for values in some_assignments(variables):
            nodes = toposort((at_values(body, values),))
            with_numbers = [at_values(p, values, of) for p, of in zip(linear, of_kernels)]
            points += self._points_of_numbers(nodes, name, with_numbers, slots, True)
        return points

    def _run(self, body: UOp, kernels: Sequence[Kernel]) -> None:
        """Run kernels on drawn memory, at some values of variables, and compare what they leave.

        Raises: CheckError, OverBudgetError.
        """
        linear = [k.source.program for k in kernels if k.source.program is not None]
        for values in some_assignments(variables_of([body, *linear])):
            made = _made(body, kernels, linear, values)
            if not made.is_small:
                self.total.not_checked["not run: much memory"] += 1
                return
            if prod(made.nodes[-1].src[0].shape):
                self.total.runs += compare_runs(made)

    def _points_of_numbers(
        self,
        nodes: Sequence[UOp],
        name: str,
        linear: Sequence[UOp],
        slots: Sequence[Any],
        is_variable: bool = False,
    ) -> int:
        body = nodes[-1]
        value = body.src[0]
        if 0 in value.shape:
            return 0
        parts = _parts(nodes, linear, slots)
        last = parts[-1]
        size = prod(value.shape)
        if last.written != 0:
            raise NotReadable(
                f"the last kernel writes buffer {last.written} of the body, not the result"
            )
        if is_variable:
            last.elements = size  # of memory for the greatest size
        if (last.size, last.dtype) != (size, value.dtype):
            raise NotReadable(
                f"{last.size} elements of {last.dtype} are written, {size} of {value.dtype} are asked for"
            )
        each = values_of_one(nodes)
        affordable = USUAL_VALUES // (3 * each)
        if affordable >= ITERATIONS + ELEMENTS:
            at_ends = AT_ENDS if affordable >= ITERATIONS + AT_ENDS + ELEMENTS else 0
            memories = {node for node in nodes if node.op is PARAM}
            most = affordable - ITERATIONS - AT_ENDS - ELEMENTS
            corners = rows_of_corners(*reads_of(nodes, memories), most)
            with suppress(OverBudgetError):
                return self._compared(name, body, parts, ITERATIONS + at_ends, ELEMENTS, corners)
            affordable = 0  # the kernels compute far more of one element than their graph does
        few = max(1, affordable, min(FEWEST, self._most_values // (6 * each)))
        return self._compared(name, body, parts, few - few // 3, few // 3)

    def _compared(
        self,
        name: str,
        body: UOp,
        parts: Sequence[Part],
        iterations: int,
        elements: int,
        corners: Values = NO_ROWS,
    ) -> int:
        budget = Budget(self._most_values)
        with closing(Reader(drawn, budget)) as reader:
            for part in {part.written: part for part in parts}.values():  # the last of each memory
                check_writers(reader, part)
            last = parts[-1]
            draw = Iterations(len(last.linear.src) + last.size)
            where, values, kind = reader.sample(last, iterations, elements, draw, KINDS, corners)
            if last.size and not len(where):  # the masks of all iterations are false
                elements = max(1, elements)
            if last.combines and elements and last.size * elements <= MOST_OF_GRAPH:
                near = _near_the_start(body.src[0].shape, elements, draw)
                more = numpy.concatenate([draw.integers(0, last.size, elements), near])
                kinds = numpy.append(numpy.arange(elements) % KINDS, [WHOLE] * elements)
                try:
                    parts_of_more = more, reader.written(last, more, kinds), kinds
                    where, values, kind = [
                        numpy.concatenate(each)
                        for each in zip((where, values, kind), parts_of_more)
                    ]
                except OverBudgetError:
                    budget.left = self._most_values  # the iterations are enough
        expected = expected_elements(body, where, kind, budget)
        compare(
            name,
            "tensor graph to Linear",
            body.src[0].dtype,
            body.src[0].shape,
            where,
            expected,
            values,
        )
        return int(numpy.broadcast_to(expected.is_known(), where.shape).sum())


def _near_the_start(shape: Sequence[int], count: int, draw: Iterations) -> Values:
    """Elements of small indices, which are those that small whole numbers in memory name, as row-major positions."""
    index = [draw.integers(0, min(size, NEAR), count) for size in shape]
    return numpy.broadcast_to(
        numpy.ravel_multi_index(index, tuple(shape)) if index else 0, (count,)
    )


def _parts(nodes: Sequence[UOp], linear: Sequence[UOp], slots: Sequence[Any]) -> list[Part]:
    """The kernels with the memory that each finds."""
    memory: dict[int, Any] = {n.arg[0]: Drawn(n.arg[0]) for n in nodes if n.op is PARAM}
    parts: list[Part] = []
    for program, numbers in zip(linear, slots):
        part = Part(program, numbers, dict(memory))
        memory[part.written] = part
        parts.append(part)
    return parts


def _made(
    body: UOp, kernels: Sequence[Kernel], linear: Sequence[UOp], values: Mapping[str, int]
) -> launched.Made:
    """A body and its kernels with numbers in place of variables."""
    slots = [kernel.slots for kernel in kernels]
    if not values:
        nodes = toposort((body,))
        return launched.Made(nodes, kernels, _parts(nodes, linear, slots))
    nodes = toposort((at_values(body, values),))
    numbered = [at_values(p, values, _variable_slots(k)) for p, k in zip(linear, kernels)]
    parts = _parts(nodes, numbered, slots)
    parts[-1].elements = prod(nodes[-1].src[0].shape)  # of memory for the greatest size
    return launched.Made(nodes, kernels, parts, values)


def _variable_slots(kernel: Kernel) -> dict[int, str]:
    """The parameters of a Linear that are variables, and their names."""
    names = kernel.variables
    return {k: names[number] for k, number in enumerate(kernel.slots) if number in names}


def _not_covered(kernels: Sequence[Kernel]) -> str:
    if settings.fastmath():
        return "FASTMATH is asked for"
    if any(kernel.source.program is None for kernel in kernels):
        return "no Linear is kept"
    return ""


def _say(text: str) -> None:
    if settings.debug_level() >= 2:
        print(text, file=sys.stderr)
