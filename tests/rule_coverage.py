"""Which rules of the library fired while the tests ran: a rule that never does is of no proven use.

Owns: counting, and the lines at the end of a run. Does not own: tests/test_rules_fire.py, which
makes a graph for each rule; what fires there is not counted.

A rule is *used* if it fired with its evidence, as it does when programs are compiled. A rule may
fire without: tests of the engine take rules straight from their files. Facts (bounds, bits, divisors,
what is finite) are asked of the set in hand, so that the two are not told apart for them. Other processes
that tests start are not counted.

Rewrite applications, of which the fraction with a proof is told, are those that journals count.
Left out are `graph_rewrite` with a user's own Python functions, and tests that bring rules without
evidence (rules_from_text.py), which are about the engine and not about the compiler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import Matcher

MADE_FOR_RULES = "test_rules_fire.py"
_BY_USERS = "patterns.function"  # one application of a user's own PatternMatcher
_BRINGS_RULES = "rules_from_text"
_ALLOWED = Path(__file__).with_name("never_fired.txt")
_NOT_AMONG_ALL = Path(__file__).with_name("not_among_all.txt")


def allowed_not_to_fire() -> set[str]:
    """The rules that tests/never_fired.txt names."""
    lines = [line.partition("#")[0].split() for line in _ALLOWED.read_text().splitlines()]
    return {words[0] for words in lines if words}


def not_among_all() -> set[str]:
    """The rules that tests/not_among_all.txt names."""
    lines = _NOT_AMONG_ALL.read_text().splitlines()
    return {line for line in lines if not line.startswith("#")}


def brings_rules(module: ModuleType | None) -> bool:
    """Whether the tests of a module use rules that they take from text, without evidence."""
    named = () if module is None else vars(module).values()
    return any(getattr(value, "__module__", None) == _BRINGS_RULES for value in named)


class Coverage:
    """What fired since `start`, by full name."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.without_evidence: Counter[str] = Counter()
        self.proven = 0  # rewrite applications of the compiler's rules
        self.unproven: Counter[str] = Counter()
        self._paused = False
        self._is_own = False

    def start(self) -> None:
        """Count from now on, in this process, to its end."""
        record, interval, holds = Journal.record, Matcher.interval, Matcher.holds
        divisor = Matcher.divisor

        def recorded(journal: Journal, full_name: str, proven: bool) -> None:
            if not self._paused:
                self._count(full_name, proven)
            record(journal, full_name, proven)

        def bounded(matcher: Matcher, node: UOp, facts: Facts) -> tuple[Any, Any] | None:
            found = interval(matcher, node, facts)
            if found is not None and not self._paused:
                self.used[matcher.rule.full_name] += 1
            return found

        def divided(matcher: Matcher, node: UOp, facts: Facts) -> int | None:
            found = divisor(matcher, node, facts)
            if found is not None and not self._paused:
                self.used[matcher.rule.full_name] += 1
            return found

        def held(matcher: Matcher, node: UOp, facts: Facts) -> bool:
            found = holds(matcher, node, facts)
            if found and not self._paused:
                self.used[matcher.rule.full_name] += 1
            return found

        Journal.record = recorded  # type: ignore[method-assign]
        Matcher.interval = bounded  # type: ignore[method-assign]
        Matcher.divisor = divided  # type: ignore[method-assign]
        Matcher.holds = held  # type: ignore[method-assign]

    def _count(self, full_name: str, proven: bool) -> None:
        (self.used if proven else self.without_evidence)[full_name] += 1
        if self._is_own or full_name == _BY_USERS:
            return
        if proven:
            self.proven += 1
        else:
            self.unproven[full_name] += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing meanwhile."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    @contextmanager
    def with_own_rules(self) -> Iterator[None]:
        """Meanwhile no application counts as one of the compiler's."""
        self._is_own = True
        try:
            yield
        finally:
            self._is_own = False

    def applications(self) -> str:
        """How many rewrites there were, and the fraction of them that has a proof."""
        without = self.unproven.total()
        total = self.proven + without
        percent = 10_000 * self.proven // total / 100 if total else 100  # never rounded up
        line = (
            f"{total} rewrite applications, of them {self.proven} proven ({percent:g} %),"
            f" {without} without a proof"
        )
        return line + (f": {', '.join(sorted(self.unproven))}" if without else "")

    def never_fired(self, library: Iterable[str]) -> list[str]:
        """The rules of `library` that did not fire, neither with their evidence nor without."""
        return sorted([n for n in library if not self.used[n] and not self.without_evidence[n]])

    def report(
        self, library: Iterable[str], with_names: bool, expected: Container[str] = ()
    ) -> list[str]:
        """Lines for people about the rules of `library`, given by their full names.

        Those in `expected` that never fired are counted and not named.
        """
        every = sorted(library)
        used = [name for name in every if self.used[name]]
        unproven = [n for n in every if not self.used[n] and self.without_evidence[n]]
        silent = self.never_fired(every)
        never = [name for name in silent if name not in expected]
        lines = [f"{len(used)} of {len(every)} rules fired with evidence", self.applications()]
        if with_names and unproven:
            lines.append(f"{len(unproven)} only without: {', '.join(unproven)}")
        if with_names and never:
            lines.append(f"{len(never)} never: {', '.join(never)}")
        if with_names and len(silent) > len(never):
            lines.append(f"{len(silent) - len(never)} never, as {_ALLOWED.name} says")
        return lines
