"""Shapes that nobody tuned for: ours beside the best of torch, numpy and jax; or the heuristics beside BEAM.

Usage: python benchmarks/random_shapes.py [--count 300] [--seed 202612] [--kinds product convolution ...] [--threads N]
                                          [--peers torch numpy jax] [--rounds 3] [--results FOLDER]
       python benchmarks/random_shapes.py --beam 3 --count 100 [--seconds 10]

Draws workloads of 13 kinds by a seed that is another one each month. Each framework is a process of its own, they are timed in
turn, and the least time of each counts: the ratio is the best peer's time over ours, above 1 ours is faster. With `--beam` a
search for the fastest schedule is timed in place of peers: the ratio is that of the heuristics' time to the best, 1 where they
found it. The geomean, the tenth percentile and the ten worst lines are printed, and all is kept in `--results` as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from drawn_cases import KINDS, Case, case_from_json, cases, seed_of_month
from drawn_peers import PEERS
from kept_results import FOLDER, geomean, keep, percentile
from side_by_side import Run, Worker, in_turn, own_cache, serve

OURS = "proofgrad"
WORST = 10
# What is asked of shapes that nobody tuned for; of the heuristics beside the search, how many times as long they take.
ASKED_OF_PEERS = {"geomean": 1.5, "tenth percentile": 0.95, "least": 0.7}
ASKED_OF_HEURISTICS = {"median": 1.1, "most": 1.3}


def run_of(framework: str, request: dict[str, Any]) -> Run | dict[str, Any]:
    """What a worker of a framework answers."""
    case = case_from_json(request)
    match framework:
        case "search":
            from drawn_ours import searched

            return searched(case)
        case "proofgrad":
            from drawn_ours import run_of

            return run_of(case)
        case _:
            from drawn_peers import run_of as run_of_peer

            return run_of_peer(case, framework)


def beside_peers(
    drawn: list[Case], workers: dict[str, Worker], rounds: int
) -> list[dict[str, Any]]:
    """A line for each case, printed as it comes: times in seconds, the least and the median."""
    lines = []
    for case in drawn:
        times = in_turn(workers, case.to_json(), rounds)
        ours = times.pop(OURS).least
        line: dict[str, Any] = {"case": case.to_json(), "text": case.text, "seconds": {OURS: ours}}
        line["seconds"] |= {name: found.least for name, found in times.items()}
        line["peer"] = min(times, key=lambda name: times[name].least, default=None)
        shown = ", ".join([f"{name} {s * 1e3:.3f}" for name, s in line["seconds"].items()])
        if line["peer"] is not None:
            line["ratio"] = times[line["peer"]].least / ours
            shown = f"{line['ratio']:6.2f}  {shown}"
        print(f"{shown} ms  {case.text}", flush=True)
        lines.append(line)
    return lines


def beside_search(drawn: list[Case], search: Worker) -> list[dict[str, Any]]:
    """A line for each case with kernels that can be searched: the ratio is that of its worst kernel."""
    lines = []
    for case in drawn:
        found = search.ask(case.to_json())["found"]
        line: dict[str, Any] = {"case": case.to_json(), "text": case.text, "kernels": found}
        if found:
            default, taken, line["ratio"], timings = max(found, key=lambda kernel: kernel[2])
            better = "" if line["ratio"] == 1.0 else f"\n        {default}\n        {taken}"
            print(f"{line['ratio']:6.2f}  {case.text} ({timings} timings){better}", flush=True)
        lines.append(line)
    return lines


def summary_of(lines: list[dict[str, Any]], is_search: bool) -> dict[str, Any]:
    """All lines together, and each kind by itself."""
    rows = [line for line in lines if "ratio" in line]
    if not rows:
        return {"lines": 0}
    ratios = [row["ratio"] for row in rows]
    kinds: dict[str, list[float]] = {row["case"]["kind"]: [] for row in rows}
    for row in rows:
        kinds[row["case"]["kind"]].append(row["ratio"])
    worst = sorted(rows, key=lambda row: row["ratio"], reverse=is_search)[:WORST]
    return {
        "lines": len(rows),
        "geomean": geomean(ratios),
        "tenth percentile": percentile(ratios, 10),
        "median": percentile(ratios, 50),
        "least": min(ratios),
        "most": max(ratios),
        "kinds": {kind: [geomean(of), min(of), max(of)] for kind, of in kinds.items()},
        "worst": [[row["ratio"], row["text"]] for row in worst],
    }


def show(summary: dict[str, Any], is_search: bool) -> None:
    """The summary for people, beside what is asked."""
    if not summary["lines"]:
        print("no line was compared")
        return
    asked = ASKED_OF_HEURISTICS if is_search else ASKED_OF_PEERS
    what = "the heuristics' time over the best found" if is_search else "best peer over ours"
    parts = [
        f"{name} {summary[name]:.2f} (asked {'at most' if is_search else 'at least'} {bar:g})"
        for name, bar in asked.items()
    ]
    print(f"\n{summary['lines']} lines, {what}: {', '.join(parts)}")
    for kind, (mean, least, most) in summary["kinds"].items():
        print(f"  {kind:12} geomean {mean:5.2f}, from {least:5.2f} to {most:5.2f}")
    print("worst:")
    for ratio, text in summary["worst"]:
        print(f"  {ratio:5.2f}  {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="of all kinds, in turn")
    parser.add_argument("--seed", type=int, default=seed_of_month(), help="default: of this month")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=[], help="leave out the others"
    )
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of every framework; on a busy machine 1")
    parser.add_argument("--most", type=float, default=1e9, help="operations of a case")
    parser.add_argument("--beam", type=int, default=0, help="width of a search, in place of peers")
    parser.add_argument("--seconds", type=int, default=10, help="for the search of one kernel")
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder for the JSON file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return serve(lambda request: run_of(options.worker, request))
    if options.threads:  # each framework has as many threads as it may use processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    drawn = cases(
        options.seed, options.count, options.kinds, min(2e6, options.most / 4), options.most
    )
    print(f"seed {options.seed}: {len(drawn)} cases", flush=True)
    names = ["search"] if options.beam else [OURS, *options.peers]
    with tempfile.TemporaryDirectory() as cache, contextlib.ExitStack() as stack:
        environment = {**own_cache(Path(cache)), "WIDTH": str(options.beam), "DEV": "CPU"}
        environment["BEAM_SECONDS"] = str(options.seconds)
        workers = {name: Worker([__file__, "--worker", name], environment) for name in names}
        for worker in workers.values():
            stack.callback(worker.close)
        if options.beam:
            lines = beside_search(drawn, workers["search"])
        else:
            lines = beside_peers(drawn, workers, options.rounds)
    summary = summary_of(lines, options.beam > 0)
    show(summary, options.beam > 0)
    what = "random shapes beside BEAM" if options.beam else "random shapes"
    print(f"kept in {keep(what, lines, summary, options.results, seed=options.seed)}")
    return None


if __name__ == "__main__":
    sys.exit(main())
