"""Faults planted in every procedure and in what launches its kernels: are the values wrong, and who finds it?

    python tests/planted/procedure_faults.py --seed 1 --live 100

Owns: the files, the run of a fault, the table. Does not own: which faults are drawn (draws.py), the programs (procedure_programs.py).

A fault is *live* if one of the programs that run its line compiles and computes another value than numpy, or dies. CHECK=1
and PROVE=1 must then each refuse a kernel or a plan of that program. A fault is *not live* if every program that it was
tried on computes the same: slower code is no fault. One by which compiling ends in an error is counted apart, for no
value comes of it; so is one by which it does not end. A line that no program runs is not drawn.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # else the folder of tests is found already
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted.draws import asked_for, plant_until  # noqa: E402
from planted.plant import ROOT, Fault, in_a_fork, plant  # noqa: E402
from planted.procedure_programs import ran  # noqa: E402
from proofgrad.core.compile.passes.stages import GraphTactic, Procedure, Tactic  # noqa: E402
from proofgrad.rules.procedures import procedure_sizes  # noqa: E402

_EXECUTED = (
    "core/compile/compiler.py",
    "core/compile/planning.py",
    "core/compile/plan/plan.py",
    "core/compile/plan/reuse.py",
    "core/tensor/runtime/canonical.py",
    "core/tensor/runtime/realize.py",
    "core/tensor/runtime/reading.py",
    "core/tensor/runtime/once.py",
    "core/tensor/runtime/execute.py",
    "core/tensor/runtime/arena.py",
    "core/tensor/runtime/launches.py",
    "core/tensor/jit/record.py",
    "core/tensor/jit/replay.py",
    "core/tensor/jit/inputs.py",
    "core/rewrite/instances.py",
    "core/rewrite/facts.py",
    "core/rewrite/sums.py",
    "core/rewrite/masks.py",
    "core/rewrite/narrowing.py",
    "core/rewrite/searches.py",
)


def where() -> list[str]:
    """Every file that a procedure or a tactic runs, steps among them, and those that make and run a plan."""
    sizes = procedure_sizes(kinds=(Procedure, Tactic, GraphTactic))
    modules = {module for size in sizes for module in size.modules}
    return [*sorted([str(module.relative_to(ROOT)) for module in modules]), *_EXECUTED]


# -- one fault ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a fault: the program that shows it, and what found it."""

    fault: Fault
    program: str = ""
    plain: str = "right"
    checked: str = ""
    proved: str = ""

    @property
    def is_live(self) -> bool:
        return self.plain in _LIVE

    @property
    def is_missed(self) -> bool:
        return self.is_live and not {self.checked, self.proved} <= _FOUND

    def __str__(self) -> str:
        missed = "  MISSED" if self.is_missed else ""
        return f"{self.fault.name[:70]:70} {self.program:18} {self.plain:6} CHECK {self.checked:7} PROVE {self.proved}{missed}"


_LIVE, _FOUND = frozenset({"wrong", "died"}), frozenset({"found", "refused"})
WAYS = ("CHECK", "PROVE")
SECONDS = {"": 4, "CHECK": 6, "PROVE": 20}  # of a process's own time for one program


def outcome(fault: Fault, programs: Sequence[str]) -> Outcome:
    """Run programs with a fault until one shows it; then with CHECK=1 and with PROVE=1."""
    text = fault.text()
    left, seen = list(programs), "right"
    while left:
        told = _told(fault, text, left)
        if told[-1] not in _LIVE:
            return Outcome(fault, plain=_worst([seen, *told]))
        name = left[len(told) - 1]
        if len(told) == 1 or _told(fault, text, [name])[0] in _LIVE:  # alone, as the checks run it
            found = [_told(fault, text, [name], way)[0] for way in WAYS]
            return Outcome(fault, name, told[-1], *found)
        left, seen = left[len(told) :], _worst([seen, *told[:-1]])
    return Outcome(fault, plain=seen)


def _worst(told: Iterable[str]) -> str:
    return max(told, key=("right", "refused", "hangs").index)


def _told(fault: Fault, text: str, names: Sequence[str], way: str = "") -> list[str]:
    """What happens to programs with a fault, in a process of its own, until one is wrong or does not end."""

    def work(tell: Callable[[Any], None]) -> None:
        plant(fault.module, text)
        for name in names:
            tell(told := ran(name, **({way: 1} if way else {})))
            if told in _LIVE:
                return

    return in_a_fork(work, SECONDS[way]) or ["died"]


def warm() -> None:
    """Everything loaded that forks share: rules with their evidence, the solver, one compiled kernel."""
    for name in ("short sum", "half"):
        told = [ran(name), ran(name, CHECK=1), ran(name, PROVE=1)]
        assert told == ["right"] * 3, (name, told)


# -- many -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """What became of the faults of one file."""

    planted: int = 0
    stopped: int = 0
    live: int = 0
    found: Counter[str] = field(default_factory=Counter)
    missed: int = 0

    def add(self, one: Outcome) -> None:
        self.planted += 1
        self.stopped += one.plain in ("refused", "hangs")
        self.live += one.is_live
        self.found["CHECK"] += one.checked in _FOUND
        self.found["PROVE"] += one.proved in _FOUND
        self.missed += one.is_missed

    def row(self, file: str) -> str:
        numbers = [
            self.planted,
            self.stopped,
            self.live,
            *[self.found[w] for w in WAYS],
            self.missed,
        ]
        return f"| `{file}` | {' | '.join(map(str, numbers))} |"


def main(arguments: Sequence[str]) -> int:
    """Plant until so many live faults were seen; a table, and 1 if one was missed."""
    asked = asked_for(str(__doc__), arguments, where(), each=4, most=60)
    warm()
    tallies = {file: Tally() for file in asked.files}
    for file, found in plant_until(asked, outcome):
        tallies[file].add(found)
    print("\n| file | planted | stopped | live | `CHECK=1` | `PROVE=1` | missed |")
    print("|---|---|---|---|---|---|---|")
    for file, tally in tallies.items():
        print(tally.row(file))
    missed = sum([tally.missed for tally in tallies.values()])
    live = sum([tally.live for tally in tallies.values()])
    planted = sum([tally.planted for tally in tallies.values()])
    print(f"\n{planted} planted, {live} live, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
