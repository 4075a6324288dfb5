"""Whether the engine and the reference agree on a rule: instances of every case, by value.

Owns: how many instances are tried, and by which parts of the engine. Does not own: instances
(instances.py), what is compared (compare.py), derivatives (derivatives.py).

An instance counts if the engine's rule fires on it by itself, with facts that the engine finds by the
library's lines, and both sides were compared at a point at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from random import Random
from zlib import crc32

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.shapes import ShapeError
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import RewriteError, Rewriter
from proofgrad.core.rewrite.match import Matcher, RuleSet
from proofgrad.core.rewrite.rule import FACT_KINDS, Rule, RuleKind, Var
from proofgrad.verify.agreement.compare import (
    Agreement,
    Differs,
    check_facts,
    check_parts,
    compare,
    compare_tensors,
    shown,
)
from proofgrad.verify.agreement.derivatives import wrong_cotangent
from proofgrad.verify.agreement.instances import About, Instance
from proofgrad.verify.agreement.library import Uncounted, facts_for, narrowing_for
from proofgrad.verify.agreement.points import points_of
from proofgrad.verify.agreement.sums import is_about_sums, sums_by, sums_over_short_loops
from proofgrad.verify.agreement.unmatched import count_orders, unmatched_agreement
from proofgrad.verify.dsl.parser import read_example
from proofgrad.verify.encode.types import Case, cases, type_condition

# Enough instances of a case to meet each choice that matters; of a rule of few cases, more of each.
ENOUGH, ENOUGH_IN_ALL = 6, 64
MANY_POINTS, FEW_POINTS = 160, 40
FEW_TRIES, MANY_TRIES, MOST_TRIES = 30, 240, 4_000
WALKED = 4  # instances that the engine's walk takes too
MISSED, MISSED_CASES = 2, 4  # instances of so many cases of which each part is exchanged once
MOST_ORDERS = 1_000  # of the operands of a left side; one with more is not matched
ENDLESS = "rewriting does not end"  # how the engine's message begins
_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def agreement(rule: Rule, every: Sequence[Case] | None = None) -> Agreement:
    """Run the rule on instances of its cases, until one differs."""
    if count_orders(rule.left) > MOST_ORDERS:
        return unmatched_agreement(rule)
    used = used_cases(rule) if every is None else every
    trial = _Trial(rule, max(ENOUGH, ENOUGH_IN_ALL // max(len(used), 1)))
    for case in used:
        trial.run(case)
        if trial.difference:
            break
    if not trial.instances and not trial.difference:
        trial.search_longer()
    return Agreement(trial.instances, trial.points, trial.fired, trial.difference)


def used_cases(rule: Rule) -> list[Case]:
    """The cases that are proven, but for those in which `when` leaves the rule out."""
    return [case for case in cases(rule) if not _is_never_used(case)]


def _is_never_used(case: Case) -> bool:
    return any(type_condition(condition, case) is False for condition in case.rule.when)


class _Trial:
    """One rule on its instances. `enough`: how many of a case are to fire."""

    def __init__(self, rule: Rule, enough: int) -> None:
        self.rule = rule
        self.about = About(rule)
        self.instances = self.points = self.fired = 0
        self.difference = ""
        self._enough = enough if self.about.has_choices else max(2, enough // 4)
        self._rules = RuleSet(rule.ruleset, (rule,))
        self._facts = facts_for(rule)
        # Facts narrow by a rewriter that they do not keep alive.
        self._narrower = narrowing_for(self._facts) if self.about.is_narrowed else None
        self._sums = sums_by(self._rules, self._facts) if is_about_sums(rule) else None
        self._fired_before: dict[int, None] = {}  # seeds on which the rule fired at other types
        self._seed = crc32(rule.full_name.encode()) << 24
        self._done: list[Case] = []
        self._ends = True  # rewriting by this rule alone, on the instances so far

    def run(self, case: Case) -> None:
        """Try instances of one case until enough have fired."""
        first = self._seed + len(self._done) * MOST_TRIES
        with_others = len(self._done) < 8 or not self.instances
        self._done.append(case)
        if len(self._done) == 1:
            self._try(case, self._given(case))
        if not self.difference:
            fired = self._try(case, self._built(case, self._seeds(first, with_others)))
            if len(self._done) <= MISSED_CASES:
                self._try_others(case, fired[:MISSED])

    def search_longer(self) -> None:
        """Try many more instances of a few cases, for the rule fired on none."""
        first = self._seed + len(self._done) * MOST_TRIES
        for case in self._done[:: max(1, len(self._done) // 3)]:
            self._try(case, self._built(case, range(first, first + MOST_TRIES)))
            if self.instances or self.difference:
                return

    def _try(self, case: Case, nodes: Iterator[tuple[UOp, int]]) -> list[int]:
        """The seeds of the instances on which the rule fired."""
        fired: list[int] = []
        try:
            for node, seed in nodes:
                points = self._compared(case, node, Random(seed))
                if points:
                    fired.append(seed)
                    self.points += points
                    self.instances += 1
                    self._fired_before[seed] = None
                    if len(fired) >= self._enough:
                        break
        except Differs as error:
            self.difference = f"{case}:\n{error}"
        except RecursionError:
            self.difference = (
                f"{case}:\n  what the line says is asked for by what it asks, without end"
            )
        self.fired += bool(fired)
        return fired

    def _try_others(self, case: Case, seeds: Sequence[int]) -> None:
        """Exchange each part of some instances for another: the rule may not fire, or is right there too."""
        for seed in seeds:
            whole = Instance(case, self.about, Random(seed))
            whole.build(self.rule.left)
            try:
                for node, _ in self._built(case, [seed] * whole.positions, range(whole.positions)):
                    self._compared(case, node, Random(seed))
            except Differs as error:
                self.difference = f"{case}, a part of the left side exchanged:\n{error}"
                return

    # -- instances --------------------------------------------------------------------------------

    def _seeds(self, first: int, with_others: bool) -> Iterator[int]:
        """Numbers of instances; after some, those on which the rule fired at other types."""
        yield from range(first, first + FEW_TRIES)
        if self.about.has_choices:
            yield from list(self._fired_before)[-2 * ENOUGH :]
            if with_others:
                yield from range(first + FEW_TRIES, first + MANY_TRIES)

    def _built(
        self, case: Case, seeds: Iterable[int], missed: Iterable[int | None] = repeat(None)
    ) -> Iterator[tuple[UOp, int]]:
        for seed, part in zip(seeds, missed):
            try:
                yield Instance(case, self.about, Random(seed), part).build(self.rule.left), seed
            except (OverflowError, ShapeError):
                continue  # the choices do not go together

    def _given(self, case: Case) -> Iterator[tuple[UOp, int]]:
        """The rule's own examples. A rule about any index term may also change what a loop counts."""
        for text in self.rule.examples:
            for node in read_example(text)[0].toposort():
                yield node, self._seed
        is_rewrite = self.rule.kind is RuleKind.REWRITE
        if (
            is_rewrite
            and isinstance(self.rule.left, Var)
            and case.dtype(self.rule.left.type) is dtypes.index
        ):
            for node in sums_over_short_loops():
                walked = self._walked(node, self._alone())
                if walked is not None:
                    self._compare(case, node, walked, Random(self._seed))

    # -- one instance -----------------------------------------------------------------------------

    def _compared(self, case: Case, node: UOp, random: Random) -> int:
        """At how many points the rule, if it fires on the node, was compared. Raises: Differs."""
        if self.rule.kind in FACT_KINDS:
            return self._claimed(node, random)
        if self.rule.kind is RuleKind.COTANGENT:
            return self._derived(node, random)
        return self._rewritten(case, node, random)

    def _rewritten(self, case: Case, node: UOp, random: Random) -> int:
        result = self._result(node)
        if result is None:
            return 0
        points = self._compare(case, node, result, random)
        if points and self.instances < WALKED:
            walked = self._walked(node, self._alone()) if self._ends else None
            if walked is not None:
                self._compare(case, node, walked, random)
            if len(self._done) == 1 and not self.about.on_tensors:
                check_parts(node, random, self._facts, FEW_POINTS)
        if points and self._sums is not None and self._ends:
            walked = self._walked(node, self._sums)
            if walked is not None:
                self._compare(case, node, walked, random)
        return points

    def _result(self, node: UOp) -> UOp | None:
        try:
            for matcher in self._rules.candidates(node):
                result = matcher.apply(node, self._facts)
                if result is not None and result is not node:
                    return result
        except _ERRORS as error:
            raise _cannot_run(node, error) from error
        return None

    def _alone(self) -> Rewriter:
        return Rewriter([self._rules], self._facts, Uncounted())

    def _walked(self, node: UOp, rewriter: Rewriter) -> UOp | None:
        """What the engine's walk makes of the node; None if that does not end.

        Whether rewriting ends is asked of the order of a file's rules, and is not what they mean.
        """
        try:
            return rewriter.rewrite(node)
        except RewriteError as error:
            if str(error).startswith(ENDLESS):
                self._ends = False
                return None
            raise Differs(f"  {error}") from error

    def _compare(self, case: Case, node: UOp, result: UOp, random: Random) -> int:
        if self.about.on_tensors:
            return compare_tensors(node, result, random)
        return compare(case, node, result, random, self._most_points(), self.about.has_loops)

    def _most_points(self) -> int:
        return MANY_POINTS if self.instances < WALKED else FEW_POINTS

    # -- facts and derivatives ----------------------------------------------------------------------

    def _claimed(self, node: UOp, random: Random) -> int:
        """At how many points the facts hold of a node of which a line of facts says something."""
        if not any(self._says(matcher, node) for matcher in self._rules.candidates(node)):
            return 0
        values = points_of((node,), random, self._most_points(), False)
        if values is None:
            return 0
        column = values.of(node)
        check_facts(node, column, values, self._facts)
        return len(column)

    def _says(self, matcher: Matcher, node: UOp) -> bool:
        match self.rule.kind:
            case RuleKind.BOUNDS | RuleKind.BITS:
                found = matcher.interval(node, self._facts)
                return found is not None and None not in found
            case RuleKind.DIVISOR:
                return matcher.divisor(node, self._facts) is not None
            case _:
                return matcher.holds(node, self._facts)

    def _derived(self, node: UOp, random: Random) -> int:
        try:
            found = wrong_cotangent(self._rules, node, self._facts, random)
        except ShapeError as error:
            raise _cannot_run(node, error) from error
        if found is None:
            return 0
        if found.difference:
            raise Differs(f"  of\n{shown(node)}\n  {found.difference}")
        return max(found.points, 1)


def _cannot_run(node: UOp, error: Exception) -> Differs:
    return Differs(f"  the engine cannot run it on\n{shown(node)}\n  {error!r}")
