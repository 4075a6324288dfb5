"""docs/performance.md: the page of what peers.py measured.

Owns: the text. Does not own: measuring (peers.py), the workloads (peer_workloads.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import first_call
from kept_results import calibration, geomean, machine, versions
from machine_limits import Limits
from peer_workloads import Limit, Workload
from side_by_side import Times

OURS = "proofgrad"
PEERS = ("torch", "torch.compile", "jax", "numpy", "tinygrad", "onnxruntime", "openvino")


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
            case Limit.FRESH:  # half of the bytes are read
                return self.workload.nbytes / 2 / self.ours / 1e9 / limits.fresh_gbs
            case Limit.LAUNCH:
                return limits.launch_us / (self.ours * 1e6)
            case Limit.NONE:
                return None

    @property
    def is_met(self) -> bool:
        """Whether it is as fast as asked."""
        if self.workload.most_ms:
            return self.ours * 1e3 <= self.workload.most_ms
        return self.ratio is None or self.ratio >= self.workload.bar


def page(
    lines: list[Line],
    first: list[tuple[str, float, float]],
    limits: Limits | None,
    peers: list[str],
    restricted: str,
) -> str:
    """docs/performance.md; `peers` were asked. `restricted`: to which instructions all were; "": to none."""
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
        "machine": f"{machine()}{restricted}; calibration: {calibration()}",
        "versions": _versions(timed) + missing,
        "limits": _limits(limits),
    }
    parts = [_ABOUT.format(peers=", ".join(timed), **about)]
    ratios = [line.ratio for line in lines if line.ratio is not None]
    mean = f" The geomean of the ratios is {geomean(ratios):.2f}." if ratios else ""
    parts.append(f"{met} of {len(lines)} lines are as asked.{mean}\n")
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
        f"{limits.read_gbs:.1f} GB/s reading, {limits.fresh_gbs:.1f} GB/s writing to memory that was not used"
        f" before, {limits.launch_us:.1f} us for a call of one kernel from Python."
    )


def _versions(peers: list[str]) -> str:
    packages = [name for name in peers if name != "torch.compile"]
    return ", ".join([f"{n} {v}" for n, v in versions([*packages, "llvmlite"]).items()]) + "."


_ABOUT = """\
# Performance

How fast the CPU's kernels are, beside the best of {peers}. This page is the output of
`python benchmarks/peers.py --table`.

Machine: {machine}. Versions: {versions} All float32.
Each framework runs in a process of its own, in turn with the others; the least time counts, and the compiler is warm. A ratio above 1
means that ours is faster. Ours are calls recorded by `TinyJit`, whose results use memory of earlier ones again; in lines with
"fresh", ours gets new pages for each result, as torch, jax and numpy do in both. `onnxruntime` and `openvino` have weights (the second
operand of products, filters, tables) as constants of their graphs, compute in float32, and keep the memory of results, so that they are
not asked in lines with "fresh".

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
## Other measures

| program | what it measures |
|---|---|
| `python benchmarks/peers.py --table` | this page; `--avx2` restricts ours and the peers that can be to AVX2, and says so |
| `python benchmarks/random_shapes.py` | 300 shapes of 13 kinds that nobody tuned for, another seed each month, beside the best of torch, numpy and jax: geomean, tenth percentile, ten worst |
| `python benchmarks/random_shapes.py --beam 3 --count 100` | how far the heuristics are from the best that [`BEAM`](schedules.md) finds: median and worst |
| `python benchmarks/layers.py` | layers and functions that models are built from, and their gradients, beside torch |
| `python benchmarks/opencl_peers.py` | OpenCL beside tinygrad's on the same device: products, convolution, softmax, a block |
| `python benchmarks/machine_limits.py` | what the machine can do at most; `python -m proofgrad calibrate` measures more, and [chooses kernels by it](schedules.md) |

`peers.py`, `random_shapes.py` and `opencl_peers.py` keep what they measured in `benchmarks/results` (`--results FOLDER`), as JSON with a `format`, the machine, versions,
settings, each line and a summary. Peers that are not installed are left out; `pip install torch jax onnx onnxruntime openvino` brings those of the
CPU, the extra `compare` tinygrad.
"""
