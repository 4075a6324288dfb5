"""PROVE=1: a compiled kernel shown to compute what its tensor graph says, access by access.

Owns: the obligations of one kernel, from its tensor graph through every stage to Linear; errors;
the report. Does not own: comparing two forms (kernels/match.py), deciding (kernels/questions.py), the
values of float arithmetic, which are the rules' (proofs/) and the procedures' own.

Three things are shown: each stage keeps, for every output element, which elements of memory it is
made from; every access lies inside its buffer wherever its mask holds, and no index term outgrows
its width; every output element is written exactly once, or is left as it was because what was to be written there is what is
there. What is combined in memory, value by value, is shown to be the
reduction that it was, and that each stage keeps its iterations and their order.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy

from proofgrad.core.compile.lowering.held_by_items import held_by_items
from proofgrad.core.compile.lowering.held_by_warps import held_by_warps
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.nests.weighted_sums import loops_of_blocks
from proofgrad.core.compile.passes.stages import Procedure, RuleSets, Stage, Tactic, parts_of
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.ahead import claims_of
from proofgrad.verify.kernels.kept import Alike, kept_alike
from proofgrad.verify.kernels.match import Difference
from proofgrad.verify.kernels.match_stores import StoreMatcher
from proofgrad.verify.kernels.questions import (
    LARGEST_ENUMERATION,
    MOST_STEPS,
    Count,
    Questions,
    Verdict,
    every_point,
)
from proofgrad.verify.kernels.readback import Written, stores_of
from proofgrad.verify.kernels.stages import do_differ
from proofgrad.verify.kernels.tables import Memories, read_through, without_kept
from proofgrad.verify.kernels.tensor import FromTensor
from proofgrad.verify.kernels.terms import (
    loop_name,
    loop_size,
    loops_of,
    most_iterations,
    width_limits,
)
from proofgrad.verify.kernels.text import show_term
from proofgrad.verify.kernels.truths import by_truths
from proofgrad.verify.kernels.waiting import what_races
from proofgrad.verify.kernels.writes import times_written, writes_each
from proofgrad.verify.sampled.nesting import NotCovered, NotReadable
from proofgrad.verify.sampled.taken import writes_over
from proofgrad.verify.sampled.values import assignments, shown_values, traces, variables_of

Trace = Sequence[tuple[Stage, UOp]]


class ProofError(RuntimeError):
    """A kernel that is not what it was made from: a bug of the compiler, never of its user."""

    def __init__(self, kernel: str, stage: str, reason: str) -> None:
        super().__init__(f"kernel {kernel}, stage {stage!r}: {reason}")
        self.kernel, self.stage, self.reason = kernel, stage, reason


_LAST_VALUES = "that the last of several values for a position stays, which a law of loops says"


def _is_in_order(store: UOp) -> bool:
    """Whether a store writes value after value over each other."""
    return len(store.src) > 2 and writes_over(store)


@dataclass(slots=True)
class Evidence:
    """What was shown for one kernel, or for several."""

    count: Count = field(default_factory=Count)
    rewritten: int = 0
    seconds: float = 0.0
    waits: int = 0  # of groups, that keep accesses of their memory apart
    kernels: int = 0
    not_covered: list[str] = field(default_factory=list)  # what the comparison knows too little of

    def add(self, other: Evidence) -> None:
        """Add the counts of `other` to these."""
        self.count.by_solver += other.count.by_solver
        self.count.by_enumeration += other.count.by_enumeration
        self.count.unknown += other.count.unknown
        self.rewritten += other.rewritten
        self.seconds += other.seconds
        self.waits += other.waits
        self.kernels += other.kernels
        self.not_covered += other.not_covered

    def __str__(self) -> str:
        count = self.count
        unknown = f"{count.unknown} UNKNOWN" if count.unknown else "none unknown"
        rewritten = f" {self.rewritten} values rewritten;" if self.rewritten else ""
        rewritten += f" {self.waits} waits of groups;" if self.waits else ""
        left_out = f" {len(self.not_covered)} NOT COVERED;" if self.not_covered else ""
        return (
            f"{count.obligations:,} obligations: {count.by_solver:,} by the solver,"
            f" {count.by_enumeration:,} by trying every value, {unknown};{rewritten}{left_out}"
            f" {self.seconds * 1e3:,.0f} ms"
        )


class KernelProver:
    """Proves kernels one after the other and keeps the sum."""

    def __init__(self, most_steps: int = MOST_STEPS) -> None:
        self.total = Evidence()
        self._most_steps = most_steps

    def __call__(self, name: str, body: UOp, trace: Trace) -> None:
        """Prove a kernel, of variable size at values of its variables, and print a line. Raises: ProofError."""
        variables = variables_of([body, *[root for _, root in trace]])
        evidence, which = Evidence(), ""
        if variables:
            chosen = assignments(variables)
            which = f" {shown_values(variables, len(chosen))};"
            room = elements(body.src[0].shape)
            for own_body, own_trace in traces(body, trace, chosen):
                evidence.add(prove_kernel(name, own_body, own_trace, self._most_steps, room))
            evidence.kernels = 1
        else:
            evidence = prove_kernel(name, body, trace, self._most_steps)
        self.total.add(evidence)
        print(f"proved {name:<24}{which} {evidence}", file=sys.stderr)
        for reason in dict.fromkeys(evidence.not_covered):
            print(f"  not covered: {reason}", file=sys.stderr)

    def summary(self) -> str:
        """One line for all kernels so far."""
        return f"{self.total.kernels:,} kernels, {self.total}"


def prove_kernel(
    name: str, body: UOp, trace: Trace, most_steps: int = MOST_STEPS, room: int | None = None
) -> Evidence:
    """Every obligation of one kernel, its graph after each stage given. Raises: ProofError.

    `room`: elements of memory that the result has, if they may be more than its own.
    """
    start = time.perf_counter()
    proof = _KernelProof(name, Questions(most_steps), room)
    proof.run(body, trace)
    seconds = time.perf_counter() - start
    count, waiting = proof.questions.count, proof.waits
    return Evidence(count, proof.rewritten, seconds, waiting, 1, proof.not_covered)


class _KernelProof:
    """The obligations of one kernel, in the order of its stages."""

    def __init__(self, name: str, questions: Questions, room: int | None = None) -> None:
        self.name, self.room = name, room
        self.questions = questions
        self.rewritten = self.waits = 0
        self.not_covered: list[str] = []
        self.written: dict[int, int] = {}  # elements of a buffer, where memory is made for more
        self.whole: dict[UOp, UOp] = {}  # terms with all that is kept in its place
        self.left: numpy.ndarray | None = None  # which elements are left as they were
        self.is_one_of_ways = (
            False  # where a truth that memory holds is off all are left to another kernel
        )

    def run(self, body: UOp, trace: Trace) -> None:
        try:
            self._from_body(body, trace)
        except NotCovered as error:
            self.not_covered.append(f"the rest: {error}")

    def _from_body(self, body: UOp, trace: Trace) -> None:
        stage, graph = trace[0]
        stores = self._read(stage, graph)
        if self.room is not None:
            self.written[0] = prod(body.src[0].shape)
        self._raise(stage, FromTensor(self.questions).body(body, stores, self.room), body, stores)
        self._follow(graph, stores, trace[1:], len({stage for stage, _ in trace}) - 1)

    def _follow(self, graph: UOp, stores: list[Written], trace: Trace, stages: int) -> Trace:
        """So many stages, each against the one before, and what must hold of the last; the rest of the trace."""
        stage = trace[0][0]
        for position, (stage, changed) in enumerate(trace[:stages]):
            if changed is graph:
                continue
            if len(parts_of(changed)) > 1:
                behind = trace[position + 1 :]
                return self._parts(stage, stores, changed, behind, stages - position - 1)
            self._widths(stage, graph, changed)
            try:
                after = self._read(stage, changed)
            except NotCovered:  # of what could be read last all else is shown
                self._bounds(stage, stores)
                self._writers(stage, stores)
                last, linear = trace[stages - 1]
                if linear.op is Ops.LINEAR:
                    self._waits(last, linear, stores)
                raise
            self._compare(stage, stores, after)
            if isinstance(stage.step, Tactic | Procedure) and _writes(after) != _writes(stores):
                self._find_left(stores, after)
                self._writers(stage, after)
            graph, stores = changed, after
        self._bounds(stage, stores)
        self._writers(stage, stores)
        if graph.op is Ops.LINEAR:
            self._waits(stage, graph, stores)
        return trace[stages:]

    def _parts(
        self, stage: Stage, before: list[Written], several: UOp, trace: Trace, stages: int
    ) -> Trace:
        """A kernel became several: they are the same with their tables read through; each is followed.

        Where several write one memory, each writes what it writes here, and together they write all of it.
        """
        if any(map(_is_in_order, [store for part in several.src for store in part.src])):
            self.not_covered.append(_LAST_VALUES)
        else:
            whole = read_through(several.src, self.questions)
            if isinstance(whole, Difference):
                raise ProofError(self.name, stage.name, self._explained(whole))
            stores_of_whole = self._read(stage, whole)
            self._compare(stage, before, stores_of_whole)
            self._writers(stage, stores_of_whole)
        written = Counter([part.src[0].src[0].src[0] for part in several.src])
        left = self.left
        for part in several.src:
            stores = self._read(stage, part)
            memory = part.src[0].src[0].src[0]
            self.is_one_of_ways = written[memory] > 1 and len(list(by_truths(stores))) > 1
            is_part = written[memory] > 1 and not self.is_one_of_ways
            if is_part and not any(w.changes_address or w.own_loops for w in stores):
                self.left = self._left_to_others(stores, memory)
            self._writers(stage, stores)
            trace = self._follow(part, stores, trace, stages)
            self.left, self.is_one_of_ways = left, False
        return trace

    def _left_to_others(self, stores: list[Written], memory: UOp) -> numpy.ndarray | None:
        """Elements of a memory that other kernels write; None where those of the stores are too many to count."""
        size = self.written.get(memory.arg[0], memory.arg[1])
        if sum(prod(map(loop_size, w.loops)) for w in stores) > LARGEST_ENUMERATION:
            return None
        left: numpy.ndarray = times_written(stores, size, self.questions) == 0
        return left

    def _read(self, stage: Stage, graph: UOp) -> list[Written]:
        try:
            return stores_of(graph)
        except NotCovered:
            raise
        except NotReadable as error:
            raise ProofError(self.name, stage.name, str(error)) from None

    def _compare(self, stage: Stage, before: list[Written], after: list[Written]) -> None:
        in_order = [any([_is_in_order(w.store) for w in stores]) for stores in (before, after)]
        if in_order == [False, True]:
            self.not_covered.append(_LAST_VALUES)
            return
        if any([loops_of_blocks(UOp.sink(*[w.store for w in s])) for s in (before, after)]):
            self.not_covered.append(
                "values beside a running maximum, which are so by a law of the reals"
            )
            return
        step, strict = stage.step, not isinstance(stage.step, RuleSets)
        matcher = StoreMatcher(self.questions)
        if isinstance(step, Procedure):
            matcher.computes = step.computes
        try:
            alike = kept_alike(before, after, matcher, strict)
            difference = self._difference(matcher, before, after, strict, alike)
            if difference is not None and alike.after:  # what is kept elsewhere may tell
                difference = self._difference(matcher, before, after, strict, Alike({}, {}))
        except NotReadable as error:
            raise ProofError(self.name, stage.name, str(error)) from None
        if difference is not None:
            whole = [self._put_in_place(stores, {}) for stores in (before, after)]
            self._raise(stage, difference, *whole)
        self.rewritten += matcher.rewritten

    def _difference(
        self,
        matcher: StoreMatcher,
        before: list[Written],
        after: list[Written],
        strict: bool,
        alike: Alike,
    ) -> Difference | None:
        """The first one between stores, where some of what they keep is known to be the same."""
        put = (self._put_in_place(before, alike.before), self._put_in_place(after, alike.after))
        return matcher.stores(*put, strict)

    def _put_in_place(self, stores: list[Written], memories: Memories) -> list[Written]:
        """Stores with what is kept where it is read; the others are read from these memories."""
        done = {} if memories else self.whole
        return [Written(without_kept(w.store, memories, done), w.loops) for w in stores]

    def _raise(
        self,
        stage: Stage,
        difference: Difference | None,
        before: UOp | list[Written],
        after: list[Written],
    ) -> None:
        """Raises: ProofError for a difference of order, or one that the values of some element show, or may show."""
        if difference is None:
            return
        explained = self._explained(difference)
        if difference.is_of_order or do_differ(before, after, difference.point):
            raise ProofError(self.name, stage.name, explained)
        self.not_covered.append(
            f"stage {stage.name!r}: {explained.splitlines()[0].removesuffix(':')}, as the comparison reads it; the"
            f" elements are the same at the values tried"
        )

    def _explained(self, difference: Difference) -> str:
        if not difference.is_counterexample:
            return (
                f"{difference.what} is not made as before:\n"
                f"  before: {show_term(difference.before)}\n  after:  {show_term(difference.after)}"
            )
        sides = (("before", difference.before), ("after", difference.after))
        shown = [f"  {side:<7} {self._valued(term, difference.point)}" for side, term in sides]
        return "\n".join([f"{difference.what} differs at {_point(difference.point)}", *shown])

    def _valued(self, term: UOp, point: dict[str, int]) -> str:
        text = show_term(term)
        if not self.questions.terms.is_computable(term):
            return text
        at = {name: numpy.array([value]) for name, value in point.items()}
        for loop in loops_of((term,)):
            at.setdefault(loop_name(loop), numpy.array([0]))
        return f"{numpy.ravel(self.questions.terms.values(term, at))[0]} = {text}"

    # -- widths ---------------------------------------------------------------------------------

    def _widths(self, stage: Stage, before: UOp, after: UOp) -> None:
        """Where index terms get a width, each of them fits it."""
        terms = [n for n in toposort((before,)) if n.dtype is dtypes.index]
        ranges = [n.dtype for n in toposort((after,)) if n.op is Ops.RANGE]
        if not terms or not ranges or ranges[0] is dtypes.index:
            return
        width: DType = ranges[0]
        low, high = width_limits(width) or (0, 0)
        for term in terms:
            if term.op is Ops.RANGE:
                last = most_iterations(term) - 1
                fits, point = last <= high, {f"r{term.arg[0]}": last}
            else:
                claim = ~(term < low) & (term < high + 1)
                decision = self.questions.holds(claim)
                fits, point = decision.verdict is not Verdict.REFUTED, decision.point
            if not fits:
                what = f"an index term leaves {width.name} at {_point(point)}"
                raise ProofError(
                    self.name, stage.name, f"{what}\n  value   {self._valued(term, point)}"
                )

    # -- accesses -------------------------------------------------------------------------------

    def _bounds(self, stage: Stage, stores: list[Written]) -> None:
        """Every access lies inside its buffer where its mask holds."""
        addresses = {n for w in stores for n in toposort((w.store,)) if n.op is Ops.INDEX}
        for address in addresses:
            buffer, index, *mask = address.src
            size = (
                prod(map(loop_size, buffer.src[1:]))
                if buffer.op is Ops.LOCAL_BUFFER
                else buffer.arg[1]
            )
            decision = self.questions.holds(~(index < 0) & (index < size), mask)
            if decision.verdict is Verdict.REFUTED:
                raise ProofError(
                    self.name,
                    stage.name,
                    f"an access of {show_term(buffer)} is outside of its {size} elements at"
                    f" {_point(decision.point)}\n  index   {self._valued(index, decision.point)}",
                )

    def _waits(self, stage: Stage, linear: UOp, stores: list[Written]) -> None:
        """Items of a group wait between putting into its memory, reading there, and putting there again."""
        found = waits(linear)
        wrong = what_races(linear, found)
        by_warps, by_items = held_by_warps(linear), held_by_items(linear)
        if wrong is None and (
            by_warps or by_items
        ):  # as a machine has it that keeps them in registers
            alone = {*by_warps, *by_items}
            wrong = what_races(linear, waits(linear, alone), by_warps, by_items)
        if wrong is not None:
            raise ProofError(self.name, stage.name, wrong)
        for what, claim, given in claims_of(linear, [written.store for written in stores]):
            decision = self.questions.holds(claim, given)
            if decision.verdict is Verdict.REFUTED:
                where = _point(decision.point)
                told = f"memory of a group that is filled ahead is {what} at {where}"
                raise ProofError(self.name, stage.name, told)
        self.waits += len(found)

    def _writers(self, stage: Stage, stores: list[Written]) -> None:
        """Every output element is written exactly once, or once in each iteration of a store's own loops."""
        slots = {w.store.src[0].src[0].arg for w in stores}
        if len(slots) != 1:
            raise ProofError(self.name, stage.name, "the stores do not fill one buffer")
        ((slot, size),) = slots
        size = self.written.get(slot, size)
        if any(w.changes_address for w in stores):
            return  # what combines is compared iteration by iteration
        for case in by_truths([w.once() for w in stores]):
            if case or not self.is_one_of_ways:
                self._writers_of_case(stage, case, size)

    def _writers_of_case(self, stage: Stage, stores: list[Written], size: int) -> None:
        """The same of stores under no truth that memory holds."""
        if writes_each(stores, size, self.questions):
            return
        if sum(prod(map(loop_size, w.loops)) for w in stores) > LARGEST_ENUMERATION:
            self.questions.leave_open(UOp.sink(*[w.store for w in stores]))
            return
        times = times_written(stores, size, self.questions)
        wrong = numpy.flatnonzero(times != (1 if self.left is None else ~self.left))
        if len(wrong):
            element = int(wrong[0])
            raise ProofError(
                self.name, stage.name, f"element {element} is written {times[element]} times"
            )
        self.questions.count.by_enumeration += 1

    def _find_left(self, before: list[Written], after: list[Written]) -> None:
        """Elements that stores after leave as they are, which is what the store before wrote there."""
        if len(before) != 1 or self.left is not None or before[0].own_loops:
            return
        (written,) = before
        address, value = written.store.src
        size = self.written.get(address.src[0].arg[0], address.src[0].arg[1])
        runs = max(sum(prod(map(loop_size, w.loops)) for w in stores) for stores in (before, after))
        is_over = any([n.op is Ops.LOAD and n.src == (address,) for n in toposort((value,))])
        if not is_over or len(address.src) > 2 or runs > LARGEST_ENUMERATION:
            return
        if any(w.changes_address or w.own_loops for w in after):
            return
        left = times_written(after, size, self.questions) == 0
        for points in every_point(written.loops):
            count = len(next(iter(points.values()))) if points else 1
            here = numpy.broadcast_to(self.questions.terms.values(address.src[1], points), (count,))
            left[here] &= self._is_there(value, address, points, count)
        if left.any():
            self.left = left

    def _is_there(
        self, value: UOp, address: UOp, points: dict[str, numpy.ndarray], count: int
    ) -> numpy.ndarray:
        """At which points a value is the element that is at this address."""
        if value.op is not Ops.WHERE:
            return numpy.full(count, value.op is Ops.LOAD and value.src == (address,))
        condition, *choices = value.src
        if not self.questions.terms.is_computable(condition):
            return numpy.full(count, False)
        holds = numpy.broadcast_to(self.questions.terms.values(condition, points), (count,))
        one, other = [self._is_there(choice, address, points, count) for choice in choices]
        return numpy.where(holds, one, other)


def _writes(stores: list[Written]) -> list[tuple[UOp, tuple[UOp, ...]]]:
    """Where and in which loops a kernel writes."""
    return [(w.store.src[0], w.loops) for w in stores]


def _point(point: dict[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sorted(point.items()))
