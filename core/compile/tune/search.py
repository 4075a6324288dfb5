"""BEAM: the fastest of many choices for a kernel, timed on the machine that it runs on.

Owns: the search, its limits, its progress, the results kept on disk. Does not own: what is tried
(search_space.py), running and comparing (trial.py), the choices themselves (kernel_schedule.py).

The search starts from what the heuristics choose and is never slower: another choice is taken only
if its results agree and it wins against the heuristics' when both are timed in turn.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from proofgrad.core import settings
from proofgrad.core.compile.machine.target import Backend
from proofgrad.core.compile.nests.kernel_schedule import Schedule, read_schedule
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule
from proofgrad.core.compile.tune.search_space import neighbours, work
from proofgrad.core.compile.tune.trial import SAMPLE_SECONDS, Bench, Trial
from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.ir.text import show_uop
from proofgrad.core.ir.uop import UOp
from proofgrad.core.messages import warn

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import Kernel

# Kernels with less to do are over before a choice matters.
WORTH_OPERATIONS = 1 << 12
# A kernel that takes longer is not tried often enough for times to mean something.
LONGEST_SECONDS = 1.0
MOST_ROUNDS = 6
FIRST_SAMPLES = 3
MORE_SAMPLES = 4
# Two choices whose times differ by less are as good as each other: the heuristics' is kept.
MARGIN = 0.03
# Of the time that a search may take, for timing the best in turn with the heuristics'.
SHARE_OF_FINAL = 0.25
FINAL_SAMPLES = 12

Compile = Callable[[Schedule], "tuple[Kernel, ...]"]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search gave: texts of choices, how many were timed, how much faster the taken one is."""

    taken: str
    default: str
    timings: int
    seconds: float
    gain: float  # 1.0 where the default is kept

    @property
    def schedule(self) -> Schedule:
        """The schedule that was taken, read from its text."""
        return read_schedule(self.taken)

    def line(self, name: str, width: int, is_old: bool) -> str:
        """For people: what was taken instead of what."""
        when = "timings of an earlier search" if is_old else f"timings in {self.seconds:.1f} s"
        end = f"({self.timings} {when})"
        if self.gain == 1.0:
            return f"BEAM={width} {name}: keeps {self.default} {end}"
        return (
            f"BEAM={width} {name}: takes {self.taken or 'the default'}, {self.gain:.2f} times as fast"
            f" as {self.default} {end}"
        )


def may_search(kernel: UOp, backend: Backend) -> bool:
    """Whether there is something to choose, and a machine to time it on."""
    target = backend.target
    if not target.runs or target.vector_bytes == 0:
        return False
    return work(kernel) >= WORTH_OPERATIONS


class Search:
    """The search for one kernel. `kernel` is its Kernel form when the first choice is made."""

    def __init__(
        self, body: UOp, kernel: UOp, backend: Backend, compile_: Compile, forced: Schedule
    ) -> None:
        self._body, self._kernel, self._backend = body, kernel, backend
        self._target = backend.target.as_asked(*settings.asked_of_machine())
        self._compile, self._forced = compile_, forced
        self._width, self._limit = settings.beam_width(), settings.beam_seconds()
        self._times: dict[Schedule, float] = {}
        self._trials: dict[Schedule, Trial] = {}
        self._asked: set[Schedule] = {forced}
        self._seen: set[tuple[str, ...]] = set()
        self.name = ""

    def found(self) -> tuple[Found, bool]:
        """The result, and whether it was kept from an earlier search."""
        cache = DiskCache(settings.cache_folder() / "beam")
        key = self._key()
        stored = cache.get(key)
        if stored is not None:
            return Found(**json.loads(stored)), True
        found = self._search()
        cache.put(key, json.dumps(asdict(found)).encode())
        return found, False

    def _key(self) -> str:
        """Everything that the result depends on but the noise."""
        target = self._target
        known = {name: getattr(target, name) for name in target.__slots__}
        described = [f"{name}={_in_order(value)}" for name, value in known.items()]
        environment = [settings.wants_no_rules(), settings.fastmath(), self._width, self._limit]
        parts = [
            show_uop(self._body),
            *described,
            *environment,
            self._forced,
            self._backend.identity,
        ]
        text = "\n".join([str(part) for part in (*parts, _sources(type(self._backend)))])
        return hashlib.sha256(text.encode()).hexdigest()

    def _search(self) -> Found:
        start = time.monotonic()
        deadline = start + self._limit * (1 - SHARE_OF_FINAL)
        bench = Bench(self._body, self._backend)
        kernels = self._compile(self._forced)
        self.name = kernels[-1].name
        default = bench.trial(kernels)
        first = default.seconds()
        expected = bench.result()
        times = max(1, int(SAMPLE_SECONDS / max(first, 1e-7)))
        self._keep(self._forced, default, kernels, _least(default, times, FIRST_SAMPLES))
        best = [self._forced]
        rounds = MOST_ROUNDS if first <= LONGEST_SECONDS else 0
        with _Progress(self._width, self.name) as progress:
            for _ in range(rounds):
                before = best
                for choices in self._moves(best):
                    if time.monotonic() >= deadline:
                        break
                    self._try(choices, bench, expected, times)
                    progress.show(self._times, self._forced)
                best = sorted(self._times, key=self._times.__getitem__)[: self._width]
                if best == before or time.monotonic() >= deadline:
                    break
        end = start + self._limit
        taken, gain = self._final([c for c in best if c != self._forced], times, end)
        shown = str(choose_schedule(self._kernel, self._target, self._forced))
        wanted = str(choose_schedule(self._kernel, self._target, taken))
        return Found(wanted, shown, len(self._times), time.monotonic() - start, gain)

    def _moves(self, best: Sequence[Schedule]) -> list[Schedule]:
        target = self._target
        moves = [m for c in best for m in neighbours(self._kernel, target, c, self._forced)]
        return [move for move in dict.fromkeys(moves) if move not in self._asked]

    def _try(self, choices: Schedule, bench: Bench, expected: bytes, times: int) -> None:
        """Time one choice, as long as it may be among the best."""
        self._asked.add(choices)
        kernels = self._compile(choices)
        if tuple([k.source.text for k in kernels]) in self._seen:
            return
        trial = bench.trial(kernels)
        seconds = trial.seconds()
        if not bench.agree(expected, bench.result()):
            warn(
                f"BEAM: {self.name} with {choices} does not give what it gives by default, and is left"
                " out; please report this kernel"
            )
            return
        best = min(self._times.values())
        if seconds < 4 * best or seconds * times < 4 * SAMPLE_SECONDS:
            seconds = _least(trial, times, FIRST_SAMPLES)
        if seconds < 1.2 * best:
            seconds = min(seconds, _least(trial, times, MORE_SAMPLES))
        self._keep(choices, trial, kernels, seconds)

    def _keep(
        self, choices: Schedule, trial: Trial, kernels: Sequence[Kernel], seconds: float
    ) -> None:
        self._seen.add(tuple([k.source.text for k in kernels]))
        self._times[choices] = seconds
        self._trials[choices] = trial
        slowest = sorted(self._times, key=self._times.__getitem__)[self._width :]
        for other in slowest:  # their tables are not needed again
            if other != self._forced:
                self._trials.pop(other, None)

    def _final(self, best: Sequence[Schedule], times: int, end: float) -> tuple[Schedule, float]:
        """The winner against the default, timed in turn, and how many times as fast it is."""
        best = [choices for choices in best if choices in self._trials]
        if not best:
            return self._forced, 1.0
        runs: dict[Schedule, list[float]] = {choices: [] for choices in (self._forced, *best)}
        for sample in range(FINAL_SAMPLES):
            if sample >= FIRST_SAMPLES and time.monotonic() >= end:
                break
            for choices, taken in runs.items():
                taken.append(self._trials[choices].seconds(times))
        winner = min(runs, key=lambda choices: min(runs[choices]))
        ours, theirs = runs[winner], runs[self._forced]
        gain = min(theirs) / min(ours)
        if gain < 1 + MARGIN or median(ours) >= median(theirs):
            return self._forced, 1.0
        return winner, gain


def _least(trial: Trial, times: int, samples: int) -> float:
    return min([trial.seconds(times) for _ in range(samples)])


def _in_order(value: Any) -> str:
    return str(sorted(map(str, value))) if isinstance(value, frozenset) else str(value)


def _sources(backend: type) -> str:
    """A digest of what turns choices into code: core/compile, and the folder of the machine."""
    digest = hashlib.sha256()
    for folder in (
        Path(__file__).parents[1],
        Path(inspect.getsourcefile(backend) or __file__).parent,
    ):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


class _Progress:
    """How far the search is: on a terminal, where it is wiped again; a line a choice with DEBUG=3."""

    def __init__(self, width: int, name: str) -> None:
        self._title = f"BEAM={width} {name}"
        self._status: Any = None
        self._shown = 1

    def __enter__(self) -> _Progress:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status(self._title)
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, times: dict[Schedule, float], default: Schedule) -> None:
        """After each choice."""
        gain = times[default] / min(times.values())
        if self._status is not None:
            self._status.update(f"{self._title}: {len(times)} timed, best {gain:.2f} times as fast")
        if settings.debug_level() >= 3 and len(times) > self._shown:
            self._shown = len(times)
            choices, seconds = list(times.items())[-1]
            print(f"{self._title}: {seconds * 1e6:10.1f} us {choices}", file=sys.stderr)
