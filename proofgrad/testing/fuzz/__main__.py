"""`python -m proofgrad.testing.fuzz --seconds N --seed S`: one line if nothing is found, else a script.

The programs of a seed are always the same, in the same order. Exit code 0: nothing found; 1: a script
is printed that shows what was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from proofgrad.testing.fuzz.kinds import KINDS, program
from proofgrad.testing.fuzz.program import Program, Step
from proofgrad.testing.fuzz.report import script_of
from proofgrad.testing.fuzz.run import Outcome
from proofgrad.testing.fuzz.shrink import shrunk
from proofgrad.testing.fuzz.worker import Checker, Worker


@dataclass(slots=True)
class Tally:
    """What has been run, and the scripts of what was found, by fault."""

    programs: int = 0
    operations: int = 0
    slowest: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    scripts: dict[str, str] = field(default_factory=dict)


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    found = argparse.ArgumentParser(prog="python -m proofgrad.testing.fuzz", description=__doc__)
    found.add_argument("--seconds", type=float, default=60.0, help="how long; default 60")
    found.add_argument(
        "--count", type=int, default=None, help="how many programs, instead of a time"
    )
    found.add_argument("--seed", type=int, default=0, help="which programs; default 0")
    found.add_argument(
        "--first", type=int, default=0, help="number of the first program; default 0"
    )
    found.add_argument("--only", choices=list(KINDS), help="programs of one kind")
    found.add_argument("--keep-going", action="store_true", help="list all distinct faults")
    return found


def main(arguments: Sequence[str] | None = None, checker: Checker | None = None) -> int:
    """Run the fuzzer; 1 if it found something."""
    asked = parser().parse_args(arguments)
    begin = time.monotonic()
    running = Worker() if checker is None else checker
    try:
        tally = _run(asked, running, begin)
    finally:
        running.close()
    for fault, script in tally.scripts.items():
        print(f"# -- {fault}: {tally.faults[fault]} programs\n{script}")
    spent = time.monotonic() - begin
    refused = f", {tally.outcomes['refused']} refused" if tally.outcomes["refused"] else ""
    result = f"{len(tally.scripts)} faults" if tally.scripts else "nothing wrong"
    mark = "# " if tally.scripts else ""  # what is printed runs as it is
    print(
        f"{mark}fuzz: {tally.programs:,} programs of {tally.operations:,} operations in {spent:.0f} s, seed"
        f" {asked.seed}, the slowest took {tally.slowest:.1f} s{refused}: {result}"
    )
    return 1 if tally.scripts else 0


def _run(asked: argparse.Namespace, checker: Checker, begin: float) -> Tally:
    tally = Tally()
    number = asked.first
    while _goes_on(asked, tally, begin):
        made = program(asked.seed, number, asked.only)
        number += 1
        outcome = checker.check(made)
        tally.programs += 1
        tally.operations += made.operations
        tally.slowest = max(tally.slowest, outcome.seconds)
        tally.outcomes[outcome.status] += 1
        if outcome.is_find:
            _note(tally, made, outcome, checker)
            if not asked.keep_going:
                break
    return tally


def _goes_on(asked: argparse.Namespace, tally: Tally, begin: float) -> bool:
    if asked.count is not None:
        return bool(tally.programs < asked.count)
    return bool(time.monotonic() - begin < asked.seconds)


def _note(tally: Tally, made: Program, outcome: Outcome, checker: Checker) -> None:
    """Shrink what was found, unless the same error was before."""
    fault = outcome.fault
    if outcome.status == "error" and fault in tally.scripts:
        tally.faults[fault] += 1
        return
    first = outcome.detail.splitlines()[0][:150]
    print(
        f"{outcome.status}: {first} ({made.note}); looking for a smaller one",
        file=sys.stderr,
        flush=True,
    )
    small, last = shrunk(made, outcome, checker.check)
    if outcome.status == "wrong":
        fault = (
            f"wrong {small.kind}: {' '.join(_names(small))} {dict(small.settings) or ''}".strip()
        )
    tally.faults[fault] += 1
    if fault not in tally.scripts:
        tally.scripts[fault] = script_of(small, last)
        print(
            f"found {fault}: {last.detail.splitlines()[0][:150]} ({made.note})",
            file=sys.stderr,
            flush=True,
        )


def _names(program: Program) -> list[str]:
    return [
        s.name if isinstance(s, Step) else type(s).__name__.lower()
        for s in (*program.statements, *program.body)
        if not (isinstance(s, Step) and s.name == "Tensor")
    ]


if __name__ == "__main__":
    sys.exit(main())
