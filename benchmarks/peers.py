"""The workloads of docs/performance.md in proofgrad and in its peers, side by side.

Usage: python benchmarks/peers.py [--only TEXT ...] [--peers torch jax numpy ...] [--rounds 4] [--avx2]
                                  [--no-limits] [--no-first] [--table] [--results FOLDER]

Each framework is a process of its own; they are timed in turn, and the least time of each counts. A peer
that is five times as slow as the best in a round is not asked again. What was measured is kept as JSON. With --avx2 ours makes code
for CPU_TARGET=haswell, and the peers that can be are kept from AVX-512, too. With --table the page is printed:

    python benchmarks/peers.py --table > docs/performance.md
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import first_call
from kept_results import FOLDER, geomean, keep
from machine_limits import measure
from peer_workloads import WORKLOADS, named
from peers_page import OURS, PEERS, Line, page
from side_by_side import Run, Worker, in_turn, own_cache, serve

# What keeps ours, torch and numpy from instructions after AVX2. The others have no setting that all of their kernels obey (jax
# multiplies matrices as fast with XLA's as without).
AVX2 = {
    "CPU_TARGET": "haswell", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}  # fmt: skip
PEERS_OF_AVX2 = ("torch", "numpy")
RESTRICTED = (
    "; ours and the peers are restricted to AVX2: CPU_TARGET=haswell beside ATEN_CPU_CAPABILITY=avx2,"
    " ONEDNN_MAX_CPU_ISA=AVX2 and the like"
)


def run_of(framework: str, request: dict[str, Any]) -> Run:
    """A call of a workload. Raises: NotImplementedError, ImportError where there is none."""
    workload = named(request["name"])
    match framework:
        case "torch":
            import peer_torch

            return peer_torch.run_of(workload)
        case "torch.compile":
            import peer_torch

            return peer_torch.compiled_run_of(workload)
        case "onnxruntime" | "openvino":
            import peer_onnx

            return peer_onnx.run_of(workload, framework)
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
    environment = {**own_cache(Path(cache) / framework), "DEV": "CPU"}
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


def kept(lines: list[Line], limits: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What is kept as JSON: the lines, and their summary."""
    rows = [
        {
            "workload": line.workload.name, "ratio": line.ratio, "peer": line.best_peer, "of the limit": line.fraction(limits),
            "seconds": {name: [times.least, times.middle] for name, times in line.times.items()},
            "is as asked": line.is_met,
        }
        for line in lines
    ]  # fmt: skip
    ratios = [line.ratio for line in lines if line.ratio is not None]
    if not ratios:
        return rows, {"lines": len(lines)}
    below = [line.workload.name for line in lines if line.ratio is not None and line.ratio < 1]
    return rows, {
        "lines": len(lines),
        "geomean": geomean(ratios),
        "least": min(ratios),
        "below 1": below,
    }


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
    parser.add_argument("--avx2", action="store_true", help="without AVX-512, ours and peers")
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder for the JSON file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        framework = options.worker
        return serve(lambda request: run_of(framework, request))
    names = [name for name in names if any(text in name for text in options.only)]
    if not names:
        parser.error(f"no workload has {' or '.join(options.only)} in its name")
    restricted = ""
    if options.avx2:
        os.environ.update(AVX2)
        options.peers = [peer for peer in options.peers if peer in PEERS_OF_AVX2]
        restricted = RESTRICTED
        print(f"machine{restricted}", file=sys.stderr)
    limits = None if options.no_limits else measure()
    lines = measured(names, options.peers, options.rounds)
    rows, summary = kept(lines, limits)
    what = "peers with AVX2" if options.avx2 else "peers"
    print(f"{summary}, kept in {keep(what, rows, summary, options.results)}", file=sys.stderr)
    first = [] if options.no_first else first_calls()
    if options.table:
        print(page(lines, first, limits, options.peers, restricted))
    return None


if __name__ == "__main__":
    sys.exit(main())
