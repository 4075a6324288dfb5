"""Which rules of the library fired while the tests ran: a rule that never does is of no proven use.

Owns: counting, and the lines at the end of a run. Does not own: tests/test_rules_fire.py, which
makes a graph for each rule; what fires there is not counted.

A rule is *used* if it fired with its evidence, as it does when programs are compiled. A rule may
fire without: tests of the engine take rules straight from their files. Bounds are asked as facts,
always of the set in hand, so that the two are not told apart for them. Other processes that tests
start are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import Matcher

MADE_FOR_RULES = "test_rules_fire.py"
_ALLOWED = Path(__file__).with_name("never_fired.txt")


def allowed_not_to_fire() -> set[str]:
    """The rules that tests/never_fired.txt names."""
    lines = [line.partition("#")[0].split() for line in _ALLOWED.read_text().splitlines()]
    return {words[0] for words in lines if words}


class Coverage:
    """What fired since `start`, by full name."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.without_evidence: Counter[str] = Counter()
        self._paused = False

    def start(self) -> None:
        """Count from now on, in this process, to its end."""
        record, interval = Journal.record, Matcher.interval

        def recorded(journal: Journal, full_name: str, proven: bool) -> None:
            if not self._paused:
                (self.used if proven else self.without_evidence)[full_name] += 1
            record(journal, full_name, proven)

        def bounded(matcher: Matcher, node: UOp, facts: Facts) -> tuple[Any, Any] | None:
            found = interval(matcher, node, facts)
            if found is not None and not self._paused:
                self.used[matcher.rule.full_name] += 1
            return found

        Journal.record = recorded  # type: ignore[method-assign]
        Matcher.interval = bounded  # type: ignore[method-assign]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing meanwhile."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def report(self, library: Iterable[str], with_names: bool) -> list[str]:
        """Lines for people about the rules of `library`, given by their full names."""
        every = sorted(library)
        used = [name for name in every if self.used[name]]
        unproven = [n for n in every if not self.used[n] and self.without_evidence[n]]
        never = [n for n in every if not self.used[n] and not self.without_evidence[n]]
        lines = [f"{len(used)} of {len(every)} rules fired with evidence"]
        if with_names and unproven:
            lines.append(f"{len(unproven)} only without: {', '.join(unproven)}")
        if with_names and never:
            lines.append(f"{len(never)} never: {', '.join(never)}")
        return lines
