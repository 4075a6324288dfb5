"""The workloads of docs/performance.md in proofgrad and in its peers, side by side.

Usage: python benchmarks/peers.py [--only TEXT ...] [--peers torch jax numpy tinygrad] [--rounds 4]
                                  [--no-limits] [--no-first] [--table]

Each framework is a process of its own; they are timed in turn, and the least time of each counts. A peer
that is five times as slow as the best in a round is not asked again. With --table the page is printed:

    python benchmarks/peers.py --table > docs/performance.md
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import first_call
from machine_limits import Limits, measure
from peer_workloads import WORKLOADS, Limit, Workload, named
from side_by_side import Run, Times, Worker, in_turn, serve

OURS = "proofgrad"
PEERS = ("torch", "jax", "numpy", "tinygrad")


@dataclass(frozen=True, slots=True)
class Line:
    """One workload as it was measured."""

    workload: Workload
    times: dict[str, Times]

    @property
    def ours(self) -> float:
        return self.times[OURS].least

    @property
    def best_peer(self) -> str | None:
        peers = [name for name in self.times if name != OURS]
        return min(peers, key=lambda name: self.times[name].least, default=None)

    @property
    def ratio(self) -> float | None:
        """How many times the best peer's time is ours."""
        return None if self.best_peer is None else self.times[self.best_peer].least / self.ours

    def fraction(self, limits: Limits | None) -> float | None:
        """Of what the machine can do."""
        if limits is None:
            return None
        match self.workload.limit:
            case Limit.MULTIPLIERS:
                return self.workload.operations / self.ours / 1e9 / limits.gflops
            case Limit.COPY:
                return self.workload.nbytes / self.ours / 1e9 / limits.copy_gbs
            case Limit.READ:
                return self.workload.nbytes / self.ours / 1e9 / limits.read_gbs
            case Limit.NONE:
                return None

    @property
    def is_met(self) -> bool:
        """Whether it is as fast as asked."""
        if self.workload.most_ms:
            return self.ours * 1e3 <= self.workload.most_ms
        return self.ratio is None or self.ratio >= self.workload.bar


def run_of(framework: str, request: dict[str, Any]) -> Run:
    """A call of a workload. Raises: NotImplementedError, ImportError where there is none."""
    workload = named(request["name"])
    match framework:
        case "torch":
            import peer_torch

            return peer_torch.run_of(workload)
        case "jax":
            import peer_jax

            return peer_jax.run_of(workload)
        case "numpy":
            import peer_numpy

            return peer_numpy.run_of(workload)
        case _:
            import peer_lazy

            return peer_lazy.run_of(workload, framework)


def worker(framework: str, cache: str) -> Worker:
    """A process of a framework, whose compiled kernels are kept in a folder."""
    folder = Path(cache) / framework
    environment = {"PROOFGRAD_CACHE": str(folder), "XDG_CACHE_HOME": str(folder), "DEV": "CPU"}
    return Worker([__file__, "--worker", framework], environment)


def measured(names: list[str], peers: list[str], rounds: int) -> list[Line]:
    """Every workload of `names` in ours and the peers."""
    lines = []
    with tempfile.TemporaryDirectory() as cache:
        workers = {name: worker(name, cache) for name in (OURS, *peers)}
        for name in names:
            lines.append(Line(named(name), in_turn(workers, {"name": name}, rounds)))
            print(_progress(lines[-1]), file=sys.stderr, flush=True)
        for process in workers.values():
            process.close()
    return lines


def first_calls() -> list[tuple[str, float, float]]:
    """Name, seconds of the first call with an empty cache, and in a second process."""
    rows = []
    for name in first_call.BARS:
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = [first_call.run(name, cache)[0] for _ in range(2)]
        rows.append((name, cold, warm))
        print(f"{name}: first call {cold:.2f} s, then {warm:.2f} s", file=sys.stderr)
    return rows


def _progress(line: Line) -> str:
    times = [f"{name} {times.least * 1e3:.3f}" for name, times in line.times.items()]
    ratio = "" if line.ratio is None else f"  ratio {line.ratio:.2f}"
    met = "" if line.is_met else "  BELOW"
    return f"{line.workload.name}: {', '.join(times)} ms{ratio}{met}"


def page(
    lines: list[Line],
    first: list[tuple[str, float, float]],
    limits: Limits | None,
    peers: list[str],
) -> str:
    """docs/performance.md; `peers` were asked."""
    rows = [_row(line, limits) for line in lines]
    met = sum(line.is_met for line in lines)
    head = (
        "| workload | ours, ms | best peer, ms | ratio | asked | of the limit | what limits it |\n"
        "|---|---|---|---|---|---|---|"
    )
    ran = {name for line in lines for name in line.times}
    absent = [name for name in peers if name not in ran]
    missing = (
        f" Not timed, for it does not run on this machine: {', '.join(absent)}." if absent else ""
    )
    timed = [name for name in PEERS if name in ran]
    about = {
        "machine": _machine(),
        "versions": _versions(timed) + missing,
        "limits": _limits(limits),
    }
    parts = [_ABOUT.format(peers=", ".join(timed), **about)]
    parts.append(f"{met} of {len(lines)} lines are as asked.\n")
    parts.append("\n".join([head, *rows]))
    parts.append(_ALL.format(rows="\n".join(_every(lines))))
    if first:
        parts.append(_FIRST.format(rows="\n".join([_first_row(*row) for row in first])))
    parts.append(_RANDOM)
    return "\n".join(parts)


def _row(line: Line, limits: Limits | None) -> str:
    workload, peer = line.workload, line.best_peer
    theirs = "" if peer is None else f"{line.times[peer].least * 1e3:.3f} {peer}"
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    asked = f"{workload.most_ms:g} ms" if workload.most_ms else f"{workload.bar:g}"
    fraction = line.fraction(limits)
    part = "" if fraction is None else f"{fraction:.0%}"
    mark = "" if line.is_met else " (below)"
    cells = (workload.name, f"{line.ours * 1e3:.3f}", theirs, ratio + mark, asked, part)
    return f"| {' | '.join(cells)} | {workload.note} |"


def _every(lines: list[Line]) -> list[str]:
    names = list(dict.fromkeys([name for line in lines for name in line.times]))
    rows = [f"| workload | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for line in lines:
        cells = [
            f"{line.times[name].least * 1e3:.3f} / {line.times[name].middle * 1e3:.3f}"
            if name in line.times
            else "-"
            for name in names
        ]
        rows.append(f"| {line.workload.name} | {' | '.join(cells)} |")
    return rows


def _first_row(name: str, cold: float, warm: float) -> str:
    most_cold, most_warm = first_call.BARS[name]
    asked = "" if most_warm is None else f"{most_warm:g}"
    return f"| {name} | {cold:.2f} | {most_cold:g} | {warm:.2f} | {asked} |"


def _limits(limits: Limits | None) -> str:
    if limits is None:
        return "The limits of the machine were not measured."
    return (
        f"The limits, measured in the same run (`python benchmarks/machine_limits.py`): {limits.gflops:.0f}"
        f" GFLOP/s of multiply-adds, {limits.copy_gbs:.1f} GB/s copying (bytes read and written),\n"
        f"{limits.read_gbs:.1f} GB/s reading."
    )


def _machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = found[0] if found else platform.processor() or platform.machine()
    from proofgrad import Device

    return f"{name}, {Device['CPU'].target.threads} threads"


def _versions(peers: list[str]) -> str:
    found = []
    for name in (*peers, "llvmlite"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found) + "."


_ABOUT = """\
# Performance

How fast the CPU's kernels are, beside the best of {peers}. This page is the output of
`python benchmarks/peers.py --table`.

Machine: {machine}. Versions: {versions} All float32.
Each framework runs in a process of its own, in turn with the others; the least time counts, and the compiler is warm. A ratio above 1
means that ours is faster. Ours are calls recorded by `TinyJit`, whose results use memory of earlier ones again; in lines with
"fresh", ours gets new pages for each result, as torch, jax and numpy do in both.

{limits}
"""

_ALL = """
## Every framework

Milliseconds, the least and the median. A peer that was five times as slow as the best after one round was not asked again.

{rows}
"""

_FIRST = """
## First calls

Seconds of the first call in a process (`benchmarks/first_call.py`), compiling included, importing not: with an empty cache, and in a second process.

| workload | empty cache | asked | second process | asked |
|---|---|---|---|---|
{rows}
"""

_RANDOM = """
## Shapes that nobody tuned for

`python benchmarks/random_shapes.py` draws shapes of products, convolutions and reductions, has `BEAM` search for the best choice of
tiles ([search](schedules.md)), and prints how far the heuristics are from it and from torch and numpy. `python benchmarks/layers.py`
times layers and functions that models are built from, and their gradients, beside torch.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [workload.name for workload in WORKLOADS]
    about = f"workloads whose name has one of these in it: {'; '.join(names)}"
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help=about)
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--no-limits", action="store_true", help="do not measure the machine")
    parser.add_argument("--no-first", action="store_true", help="no first calls")
    parser.add_argument("--table", action="store_true", help="print docs/performance.md")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        framework = options.worker
        return serve(lambda request: run_of(framework, request))
    names = [name for name in names if any(text in name for text in options.only)]
    if not names:
        parser.error(f"no workload has {' or '.join(options.only)} in its name")
    limits = None if options.no_limits else measure()
    lines = measured(names, options.peers, options.rounds)
    first = [] if options.no_first else first_calls()
    if options.table:
        print(page(lines, first, limits, options.peers))
    return None


if __name__ == "__main__":
    sys.exit(main())
