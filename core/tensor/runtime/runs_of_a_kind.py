"""Kept runs of one kind, the one that a graph is most likely like before the others.

Owns: how many are kept, the order in which they are tried. Does not own: what a kind is (known_runs.py), what a graph is like (likeness.py).

A program repeats its runs in their order: a decoder over lengths, a solver over the steps of its loop. So the run that followed the last one before
is tried first, and a program of many runs of one kind finds each at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Generic, TypeVar

from proofgrad.core.tensor.runtime.kept_run import KeptRun

FEW, MANY = 8, 64  # runs: of any size, and of graphs that have few nodes together
NODES = 1 << 13

Run = TypeVar("Run", bound=KeptRun)


class RunsOfAKind(Generic[Run]):
    """Runs, the newest first."""

    __slots__ = ("_after", "_last", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._after: dict[Run, Run] = {}
        self._last: Run | None = None

    def likely(self) -> Iterable[Run]:
        """All, and first the one that followed the last; it may come twice."""
        last = self._last
        follower = None if last is None else self._after.get(last)
        return self.runs if follower is None else chain((follower,), self.runs)

    def note(self, run: Run) -> None:
        """This one was run now."""
        if len(self.runs) > 1:
            last, self._last = self._last, run
            if last is not None:
                self._after[last] = run

    def add(self, run: Run) -> None:
        """One more, in place of the oldest if they are too many."""
        kept, nodes = [run], run.nodes
        for one in self.runs[: MANY - 1]:
            nodes += one.nodes
            if len(kept) >= FEW and nodes > NODES:
                break
            kept.append(one)
        if len(kept) <= len(self.runs):  # what is gone is not tried
            self._after, self._last = {}, None
        self.runs = kept

    def most_nodes(self) -> int:
        """Of the largest graph."""
        return max([run.nodes for run in self.runs])
