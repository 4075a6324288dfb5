"""Deciding one claim about the loops of a kernel: by the solver, or by trying every value.

Owns: time limits, counting of what was decided and how, counterexamples. Does not own: which claims
are made (kernels/match.py, kernels/proof.py), what terms mean (kernels/terms.py).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy
import z3

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.encode.answers import check
from proofgrad.verify.kernels.samples import Likeness, Samples
from proofgrad.verify.kernels.terms import (
    Points,
    Terms,
    is_counted,
    loop_name,
    loop_size,
    loops_of,
    most_iterations,
)

# Steps of the solver, so that the same is proven on every machine, however busy.
MOST_STEPS = 20_000_000
# The solver gets so many before every value is tried instead, where that is possible.
FIRST_STEPS = 600_000
# So many combinations of loop values are tried at most: some seconds.
LARGEST_ENUMERATION = 1 << 25
# So many at a time.
_CHUNK = 1 << 20

TRUE = UOp(Ops.CONST, dtypes.bool, (), True)


def all_of(conditions: Sequence[UOp]) -> UOp:
    """The conditions joined by and; true for none."""
    result = TRUE
    for condition in conditions:
        result = condition if result is TRUE else result & condition
    return result


class Verdict(enum.Enum):
    """What became of a claim."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


_VERDICTS = {"unsat": Verdict.PROVED, "sat": Verdict.REFUTED, "unknown": Verdict.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict; for a refuted claim the loop values where it fails."""

    verdict: Verdict
    point: dict[str, int] = field(default_factory=dict)
    by_enumeration: bool = False


@dataclass(slots=True)
class Count:
    """How many claims were decided how."""

    by_solver: int = 0
    by_enumeration: int = 0
    unknown: int = 0

    @property
    def obligations(self) -> int:
        """How many claims there were, decided or not."""
        return self.by_solver + self.by_enumeration + self.unknown


class Questions:
    """The claims about one kernel. Each is decided once, and counted if it is proved or unknown."""

    def __init__(self, most_steps: int = MOST_STEPS) -> None:
        self.terms = Terms()
        self.count = Count()
        self._most_steps = most_steps
        self.likeness = Likeness(self.terms)
        self._samples = Samples(self.terms)
        self._solver = z3.SimpleSolver()
        self._open: set[tuple[UOp, tuple[UOp, ...]]] = set()
        self._known: dict[tuple[UOp, tuple[UOp, ...]], Decision] = {}

    def same(self, left: UOp, right: UOp, given: Sequence[UOp] = ()) -> Decision:
        """Are two terms equal for all loop values under which all of `given` hold?"""
        if left is right:
            return Decision(Verdict.PROVED)
        return self.holds(UOp(Ops.CMPEQ, dtypes.bool, (left, right)), given)

    def holds(self, claim: UOp, given: Sequence[UOp] = ()) -> Decision:
        """Is `claim` true for all loop values under which all of `given` hold? It must be."""
        decision = self.seems(claim, given)
        if decision.verdict is Verdict.UNKNOWN:
            self.leave_open(claim, given)
        return decision

    def seems(self, claim: UOp, given: Sequence[UOp] = ()) -> Decision:
        """As `holds`, for a guess that the proof can do without."""
        given = tuple(dict.fromkeys(g for g in given if g is not TRUE))
        if claim is TRUE or claim in given:
            return Decision(Verdict.PROVED)
        key = claim, given
        if key not in self._known:
            self._known[key] = decision = self._decide_simply(claim, given)
            self._add(decision)
        return self._known[key]

    def leave_open(self, claim: UOp, given: Sequence[UOp] = ()) -> None:
        """Count an obligation that was not decided."""
        self._open.add((claim, tuple(given)))
        self.count.unknown = len(self._open)

    def _decide_simply(self, claim: UOp, given: tuple[UOp, ...]) -> Decision:
        """Without what is given of memory, where the claim is about loops only."""
        plain = tuple([g for g in given if self.terms.is_plain(g)])
        if len(plain) < len(given) and self.terms.is_plain(claim):
            decision = self._decide(claim, plain)
            if decision.verdict is Verdict.PROVED:
                return decision
        return self._decide(claim, given)

    def _add(self, decision: Decision) -> None:
        match decision.verdict:
            case Verdict.PROVED if decision.by_enumeration:
                self.count.by_enumeration += 1
            case Verdict.PROVED:
                self.count.by_solver += 1
            case Verdict.UNKNOWN | Verdict.REFUTED:
                pass  # counted by `holds`; a refuted claim was a guess, or becomes an error

    def _decide(self, claim: UOp, given: tuple[UOp, ...]) -> Decision:
        loops = loops_of((claim, *given))
        given += tuple([loop < loop.src[0] for loop in loops if not is_counted(loop)])
        if any(most_iterations(loop) == 0 for loop in loops):
            return Decision(Verdict.PROVED, by_enumeration=True)  # there is nothing to try
        try:
            is_plainly_true = z3.is_true(z3.simplify(self.terms.term(claim)))
        except z3.Z3Exception:  # a guess of terms that do not go together
            return Decision(Verdict.UNKNOWN)
        if is_plainly_true:
            return Decision(Verdict.PROVED)
        wrong = self._samples.failing(claim, given, loops)
        if wrong is not None:
            return Decision(Verdict.REFUTED, wrong)
        computable = all(self.terms.is_computable(node) for node in (claim, *given))
        small = computable and all(map(is_counted, loops))
        small = small and prod(map(loop_size, loops)) <= LARGEST_ENUMERATION
        decision = self._ask(claim, given, loops, FIRST_STEPS if small else self._most_steps)
        if decision.verdict is Verdict.UNKNOWN and small:
            return self._enumerate(claim, given, loops)
        return decision

    # -- the solver -----------------------------------------------------------------------------

    def _ask(
        self, claim: UOp, given: tuple[UOp, ...], loops: list[UOp], most_steps: int
    ) -> Decision:
        solver = self._solver
        solver.push()
        solver.set(rlimit=most_steps)
        solver.add(*self.terms.constraints((claim, *given)))
        solver.add(*[self.terms.term(g) for g in given], z3.Not(self.terms.term(claim)))
        verdict = str(check(solver))
        point: dict[str, int] = {}
        if verdict == "sat":
            model = solver.model()
            for loop in loops:
                value = model.eval(self.terms.term(loop), model_completion=True)
                point[loop_name(loop)] = value.as_long()
        solver.pop()
        if verdict == "sat" and not self._is_wrong_at(claim, given, point):
            return Decision(Verdict.UNKNOWN)
        return Decision(_VERDICTS[verdict], point)

    def _is_wrong_at(self, claim: UOp, given: tuple[UOp, ...], point: dict[str, int]) -> bool:
        """Whether a claim fails at a point, as computed; the solver may not know what an operation is. True where it cannot be computed."""
        if not all(self.terms.is_computable(node) for node in (claim, *given)):
            return True
        points = {name: numpy.array([value], numpy.int64) for name, value in point.items()}
        return self._failing(claim, given, points) is not None

    # -- every value ----------------------------------------------------------------------------

    def _failing(self, claim: UOp, given: tuple[UOp, ...], points: Points) -> dict[str, int] | None:
        """The first of `points` where `given` hold and `claim` does not."""
        shape = numpy.broadcast_shapes(*[values.shape for values in points.values()])
        wrong = numpy.logical_not(self.terms.values(claim, points))
        for condition in given:
            wrong = numpy.logical_and(wrong, self.terms.values(condition, points))
        if not wrong.any():
            return None
        first = numpy.unravel_index(numpy.broadcast_to(wrong, shape).argmax(), shape)
        return {name: int(numpy.broadcast_to(v, shape)[first]) for name, v in points.items()}

    def _enumerate(self, claim: UOp, given: tuple[UOp, ...], loops: list[UOp]) -> Decision:
        for points in every_grid(loops):
            wrong = self._failing(claim, given, points)
            if wrong is not None:
                return Decision(Verdict.REFUTED, wrong)
        return Decision(Verdict.PROVED, by_enumeration=True)


def every_point(loops: Sequence[UOp]) -> Iterator[Points]:
    """All combinations of loop values in row-major order, some at a time."""
    names, sizes = [loop_name(loop) for loop in loops], [loop_size(loop) for loop in loops]
    total = prod(sizes)
    for begin in range(0, total, _CHUNK):
        flat = numpy.arange(begin, min(begin + _CHUNK, total), dtype=numpy.int64)
        yield dict(zip(names, numpy.unravel_index(flat, sizes) if sizes else ()))


def every_grid(loops: Sequence[UOp]) -> Iterator[Points]:
    """The same combinations, each loop along an axis of its own: a term is computed once for those of its own loops."""
    names, sizes = [loop_name(loop) for loop in loops], [loop_size(loop) for loop in loops]
    whole = next(k for k in range(len(sizes) + 1) if prod(sizes[k:]) <= _CHUNK)
    at_once = [1] * (whole - 1) + [_CHUNK // prod(sizes[whole:])] * (whole > 0) + sizes[whole:]
    for begins in product(*map(range, [0] * len(sizes), sizes, at_once)):
        ends = [min(b + n, size) for b, n, size in zip(begins, at_once, sizes)]
        values = map(numpy.arange, begins, ends)
        yield dict(zip(names, numpy.ix_(*values)))
