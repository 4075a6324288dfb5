"""What was rewritten: how often each rule fired, and how much of it had no evidence.

Owns: counts. Does not own: printing them, or deciding what evidence is (ledger.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from proofgrad.core.ir.uop import UOp

Observer = Callable[[str, UOp, UOp], None]


class Journal:
    """Counts of applications. One journal may serve many rewriters.

    `observe`, if given, is called with the rule, the node before and the node after each rewrite.
    """

    def __init__(self, observe: Observer | None = None) -> None:
        self.observe = observe
        self.applied: Counter[str] = Counter()
        self.unproven = 0

    def __repr__(self) -> str:
        return f"Journal({self.total} applications, {self.unproven} without evidence)"

    @property
    def total(self) -> int:
        """How many rewrites were applied, over all rules."""
        return sum(self.applied.values())

    def record(self, full_name: str, proven: bool) -> None:
        """One application of the rule `full_name` (set and name)."""
        self.applied[full_name] += 1
        if not proven:
            self.unproven += 1

    def by_set(self) -> Counter[str]:
        """Applications of each rule set."""
        sets: Counter[str] = Counter()
        for name, count in self.applied.items():
            sets[name.partition(".")[0]] += count
        return sets

    def add(self, other: Journal) -> None:
        """Count everything in `other` here too."""
        self.applied.update(other.applied)
        self.unproven += other.unproven
