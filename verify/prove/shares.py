"""How the time for a file is shared by its rules, so that one that takes the solver long leaves some to the others.

Owns: when a rule is put off, and until when it may be worked on. Does not own: what is asked of it (rules.py).

A rule gets as much as each would if none of those that are not decided got more. When that is up it is put off
until the others had theirs; what is left is shared again by those that were put off.
"""

from __future__ import annotations

import math
import time

from proofgrad.verify.prove.workers import seconds_left

LEAST_SECONDS = 2.0  # of many rules those that come first are decided, rather than none


class Shares:
    """Of the time until `until`, of `time.monotonic`, among rules by number; without end if there is none."""

    def __init__(self, until: float | None, processes: int) -> None:
        self._until, self._processes = until, processes
        self._ends: dict[int, float] = {}

    def left(self, number: int, undecided: int) -> float:
        """How many seconds of its share a rule has left, of which it gets one if it has none."""
        if not seconds_left(self._ends.get(number, 0.0)):
            self._ends[number] = time.monotonic() + self._share(undecided)
        return seconds_left(self._ends[number])

    def put_off(self, number: int) -> None:
        """What a rule had is over: it gets another share when its turn comes again."""
        self._ends.pop(number, None)

    def _share(self, undecided: int) -> float:
        turns = math.ceil(undecided / self._processes)
        return max(LEAST_SECONDS, seconds_left(self._until) / max(1, turns))
