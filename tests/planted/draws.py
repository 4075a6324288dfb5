"""Faults drawn from files until enough of them are live, each with programs that run its line.

Owns: the draw, the arguments of the commands that draw, when enough were planted. Does not own: the faults (mutations.py), what becomes
of one (procedure_faults.py, tactic_faults.py).
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from planted.lines_run import Run, lines_run
from planted.mutations import lines_of, mutation
from planted.plant import Fault
from planted.procedure_programs import PROGRAMS, ran

PROGRAMS_TRIED = 7  # for one fault, of those that run its line


class Outcome(Protocol):
    """What became of a fault."""

    @property
    def is_live(self) -> bool: ...


Found = TypeVar("Found", bound=Outcome)
Way = Callable[[Fault, Sequence[str]], Found]  # plants a fault and runs programs with it


def runs(files: Sequence[str], names: Iterable[str] = PROGRAMS) -> dict[str, Run]:
    """What each program runs of the files."""
    return {name: lines_run(lambda: _right(name), files, 60) for name in names}


def _right(name: str) -> None:
    if (told := ran(name)) != "right":
        raise AssertionError(f"{name} is {told} without a fault")


class Drawn:
    """Faults of a file in a random order, each with programs that run its line."""

    def __init__(self, file: str, known: Mapping[str, Run], draw: random.Random) -> None:
        self.file, self._draw = file, draw
        self._programs = [
            [
                n
                for n, run in known.items()
                if not run.lines.get(file, frozenset()).isdisjoint(lines)
            ]
            for lines in lines_of(file)
        ]
        may_show = [k for k, names in enumerate(self._programs) if names]
        self.positions = len(may_show)
        self._waiting = draw.sample(may_show, len(may_show))
        self._known = known

    def next(self) -> tuple[Fault, list[str]] | None:
        """The next fault, cheap programs first; None if there is none left."""
        if not self._waiting:
            return None
        number = self._waiting.pop()
        names = self._programs[number]
        names = self._draw.sample(names, min(PROGRAMS_TRIED, len(names)))
        return mutation(self.file, number), sorted(names, key=lambda n: self._known[n].seconds)


def a_few_live(
    files: Sequence[str], some: int, most: int, draw: random.Random, outcome: Way[Found]
) -> Iterator[Found]:
    """What becomes of live faults of any of the files, of `most` that are planted, on `some` of the programs."""
    known = runs(files, draw.sample(sorted(PROGRAMS), some))
    drawn = {file: Drawn(file, known, draw) for file in files}
    for _ in range(most):
        one = drawn[draw.choice(files)].next()
        found = None if one is None else outcome(*one)
        if found is not None and found.is_live:
            yield found


# -- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """Which faults are planted, and how many."""

    seed: int
    live: int
    each: int
    most: int
    files: tuple[str, ...]


def asked_for(
    purpose: str, arguments: Sequence[str], files: Sequence[str], each: int, most: int
) -> Asked:
    """What a command is asked; `each`, `most`: where it is not said."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--live", type=int, default=100, help="live faults of all files together")
    parser.add_argument("--each", type=int, default=each, help="live faults of a file, at most")
    parser.add_argument("--most", type=int, default=most, help="faults planted in a file, at most")
    parser.add_argument("--file", action="append", help="only in these")
    told = parser.parse_args(arguments)
    return Asked(told.seed, told.live, told.each, told.most, tuple(told.file or files))


def plant_until(asked: Asked, outcome: Way[Found]) -> Iterator[tuple[str, Found]]:
    """Each fault's file and what became of it; of live ones a line is printed."""
    known = runs(asked.files)
    drawn = {
        file: Drawn(file, known, random.Random(f"{asked.seed} {file}")) for file in asked.files
    }
    live, planted = Counter[str](), Counter[str]()
    while waiting := [f for f in drawn if live[f] < asked.each and planted[f] < asked.most]:
        for file in waiting:
            one = drawn[file].next()
            if one is None or live.total() >= asked.live:
                del drawn[file]
                continue
            found = outcome(*one)
            planted[file] += 1
            if found.is_live:
                live[file] += 1
                print(found, flush=True)
            yield file, found
