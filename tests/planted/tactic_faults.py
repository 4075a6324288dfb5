"""Faults planted in every tactic: a wrong choice is refused, only slow, or an error that says so, and never a wrong value.

    python tests/planted/tactic_faults.py --seed 1 --live 100

Owns: the files, the run of a fault, the table. Does not own: which faults are drawn (draws.py), the programs
(procedure_programs.py), faults of steps and procedures (procedure_faults.py).

A fault is *live* if one of the programs that run its line is compiled to other kernels than without it, if a step refuses, if
compiling ends in an error, or does not end. Each is planted in a process of its own, so that one that crashes is seen.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # else the folder of tests is found already
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted.draws import asked_for, plant_until  # noqa: E402
from planted.plant import Fault, in_a_fork, plant  # noqa: E402
from planted.procedure_programs import PROGRAMS, ran  # noqa: E402
from proofgrad import Device  # noqa: E402
from proofgrad.core.compile.steps.loop_nest import StepRefused  # noqa: E402

# What chooses steps, and what they ask of a kernel before they do.
ROOT = Path(__file__).resolve().parents[2]
_HEURISTICS = ("tiles", "operands", "reduction_blocks", "contraction", "divisors")
FILES = (
    *sorted(
        [
            f"core/compile/tactics/{path.name}"
            for path in (ROOT / "core/compile/tactics").glob("[a-z]*.py")
        ]
    ),
    *[f"core/compile/schedule/{name}.py" for name in _HEURISTICS],
)
SECONDS = 30  # of a process's own time
WRONG = frozenset({"wrong", "died"})
# What becomes of a program, from what shows least to what shows most.
KINDS = ("same", "other", "refused", "error", "hangs", "wrong", "died")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a fault: the worst of its programs."""

    fault: Fault
    program: str
    kind: str

    @property
    def is_live(self) -> bool:
        return self.kind != "same"

    @property
    def is_wrong(self) -> bool:
        return self.kind in WRONG

    def __str__(self) -> str:
        return f"{self.kind:8} {self.program:20} {self.fault.name}"


def outcome(fault: Fault, programs: Sequence[str]) -> Outcome:
    """Run programs with a fault, until one is wrong or the process ends."""
    text = fault.text()

    def work(tell: Callable[[Any], None]) -> None:
        plant(fault.module, text)
        for name in programs:
            tell([name, kind := kind_of(name)])
            if kind in WRONG:
                return

    told = in_a_fork(work, SECONDS)
    seen = [one for one in told if isinstance(one, list)]
    if len(seen) < len(told):  # the program after those that told something: it died, or hangs
        seen.append([programs[len(seen)], told[-1]])
    program, kind = max(seen, key=lambda one: KINDS.index(one[1]))
    return Outcome(fault, program, kind)


def kind_of(name: str) -> str:
    """What happens to one program here and now."""
    watched = Watched()
    with watched:
        told = ran(name)
    match told:
        case "right" if watched.refusals:
            return "refused"
        case "right":
            return "same" if watched.kernels == without_faults(name) else "other"
        case "refused" | "found":
            return "error"
    return told


class Watched:
    """The kernels that are printed, and the steps that refuse, while a program runs."""

    def __init__(self) -> None:
        self.kernels: list[str] = []
        self.refusals = 0

    def __enter__(self) -> Watched:
        machine = type(Device["CPU"])
        self._emit, self._init = machine.emit, StepRefused.__init__
        emit, refuse = self._emit, self._init

        def emitted(backend: Any, linear: Any, name: str) -> Any:
            source = emit(backend, linear, name)
            text = source.text.replace(name, "kernel").encode()
            self.kernels.append(hashlib.sha256(text).hexdigest()[:16])
            return source

        def refused(error: StepRefused, *args: object) -> None:
            self.refusals += 1
            refuse(error, *args)

        machine.emit, StepRefused.__init__ = emitted, refused  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        machine = type(Device["CPU"])
        machine.emit, StepRefused.__init__ = self._emit, self._init  # type: ignore[method-assign]
        self.kernels.sort()  # threads compile them in any order


_KERNELS: dict[str, list[str]] = {}


def without_faults(name: str) -> list[str]:
    """The kernels of a program as it is: found before a fault is planted."""
    return _KERNELS[name]


def warm(names: Sequence[str]) -> None:
    """Everything loaded that forks share, and the kernels of each program. Raises: AssertionError if one is wrong."""
    for name in names:
        watched = Watched()
        with watched:
            told = ran(name)
        assert (told, watched.refusals) == ("right", 0), (name, told, watched.refusals)
        _KERNELS[name] = watched.kernels


def main(arguments: Sequence[str]) -> int:
    """Plant until so many live faults were seen; a table, and 1 if a value was wrong."""
    asked = asked_for(str(__doc__), arguments, FILES, each=8, most=30)
    warm([*PROGRAMS])
    tallies: dict[str, Counter[str]] = {file: Counter() for file in asked.files}
    for file, found in plant_until(asked, outcome):
        tallies[file][found.kind] += 1
    print(f"\n| file | planted | {' | '.join(KINDS)} |")
    print("|---|---|" + "---|" * len(KINDS))
    for file, tally in tallies.items():
        numbers = [tally[kind] for kind in KINDS]
        print(f"| `{file}` | {' | '.join(map(str, [tally.total(), *numbers]))} |")
    everything = sum(tallies.values(), Counter())
    wrong = sum([everything[kind] for kind in WRONG])
    live = everything.total() - everything["same"]
    print(f"\n{everything.total()} planted, {live} live, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
