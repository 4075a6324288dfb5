"""Frameworks timed side by side: each in a process of its own, in turn, on the same workloads.

Owns: the worker processes, the way in which a call is timed. Does not own: workloads (peers.py,
random_shapes.py).

Two frameworks in one process disturb each other (their threads go on spinning), so a worker does one
thing at a time and the others wait. Times are the least and the median of several samples.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

# A sample of short calls takes so long, and a round of samples.
SAMPLE_SECONDS = 2e-3
ROUND_SECONDS = 0.25
FEWEST_SAMPLES = 3
# A call that takes longer is a sample by itself.
LONG_SECONDS = 0.5
# Calls before the first sample: the second and the third may still compile.
WARM_UPS = 3
# A framework that takes so many times as long as the best is not asked again.
FAR_BEHIND = 5
# Threads of OpenMP spin so long after a call; then the next framework has the processors.
PAUSE_SECONDS = 0.25

Run = Callable[[], Any]


@dataclass(slots=True)
class Times:
    """Seconds a call of one workload in one framework."""

    first: float
    samples: list[float]

    @property
    def least(self) -> float:
        return min(self.samples)

    @property
    def middle(self) -> float:
        return median(self.samples)


class Worker:
    """A process that times what it is asked for."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's answer. Raises: RuntimeError if it has died."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries print, too
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"the worker ended with {self._process.wait()} when asked for {request}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def own_cache(folder: Path) -> dict[str, str]:
    """The environment of a worker that finds no kernels of others in its cache, but how this machine was measured."""
    from proofgrad.core import settings

    measured = settings.cache_folder() / "calibration"
    if measured.is_dir():
        shutil.copytree(measured, folder / "calibration", dirs_exist_ok=True)
    return {"PROOFGRAD_CACHE": str(folder), "XDG_CACHE_HOME": str(folder)}


def serve(make: Callable[[dict[str, Any]], Run | dict[str, Any]]) -> None:
    """Answer requests until there are no more. `make` gives what to call, or an answer of its own."""
    current: dict[str, Any] = {}
    run: Run | dict[str, Any] = {}
    first = 0.0
    for line in sys.stdin:
        request = json.loads(line)
        if request != current:
            current, run = request, {}  # the memory of the last one goes first
            try:
                run = make(request)
                start = time.perf_counter()
                if callable(run):
                    run()
                first = time.perf_counter() - start
                for _ in range(WARM_UPS if callable(run) else 0):
                    run()  # type: ignore[operator]
            except (ImportError, NotImplementedError) as error:
                run = {"missing": str(error)}
        answer = {"first": first, "samples": samples_of(run)} if callable(run) else run
        print(json.dumps(answer), flush=True)


def samples_of(run: Run) -> list[float]:
    """Seconds a call, several times, for a fraction of a second."""
    start = time.perf_counter()
    run()
    if (taken := time.perf_counter() - start) > LONG_SECONDS:
        return [taken]
    start = time.perf_counter()
    run()
    times = max(1, int(SAMPLE_SECONDS / max(1e-9, time.perf_counter() - start)))
    end = start + ROUND_SECONDS
    found: list[float] = []
    while len(found) < FEWEST_SAMPLES or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(times):
            run()
        found.append((time.perf_counter() - start) / times)
    return found


def in_turn(workers: dict[str, Worker], request: dict[str, Any], rounds: int) -> dict[str, Times]:
    """The times of one workload in each framework that has it; the first one's in every round."""
    found: dict[str, Times] = {}
    ours = next(iter(workers), None)
    for _ in range(rounds):
        best = min([times.least for times in found.values()], default=0.0)
        for name, worker in workers.items():
            if best and name != ours and _is_out(found.get(name), best):
                continue
            answer = worker.ask(request)
            time.sleep(PAUSE_SECONDS)
            if "samples" not in answer:
                continue
            if name not in found:
                found[name] = Times(answer["first"], [])
            found[name].samples += answer["samples"]
    return found


def _is_out(times: Times | None, best: float) -> bool:
    """Whether a framework lacks the workload, or is far behind."""
    return times is None or times.least > FAR_BEHIND * best
