"""Heuristics on shapes that nobody tuned for: against the best of all choices, and against peers.

Usage: python benchmarks/random_shapes.py [--count 30] [--seed 0] [--kinds product convolution ...]
                                          [--beam 3] [--seconds 10] [--threads N] [--no-peers]

Draws shapes of products of matrices, convolutions and reductions. For each, BEAM searches for the
fastest choice; the ratio `best / default` is 1 where the heuristics found it, and less where they lose.
The same is timed in torch and numpy, each in its own process, in turn; `peer / ours` above 1 is a win.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
from collections.abc import Callable
from statistics import median
from typing import Any

from side_by_side import Run, Worker, in_turn, serve

KINDS = ("product", "batch", "convolution", "rows", "columns", "softmax")
PEERS = ("torch", "numpy")
LOSES = 0.85  # of the best: below, the heuristic's choice is worth a look
MOST_ELEMENTS = 1 << 22


def size(rng: random.Random, low: int, high: int) -> int:
    """A size between the two, as many small ones as large ones, seldom a round one."""
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def draw(kind: str, rng: random.Random) -> dict[str, Any]:
    """One workload."""
    match kind:
        case "product":
            shape = [size(rng, 8, 1500) for _ in range(3)]
            turned = [rng.random() < 0.25, rng.random() < 0.25]
            return {"kind": kind, "shape": shape, "turned": turned}
        case "batch":
            return {
                "kind": kind,
                "shape": [size(rng, 2, 48), *[size(rng, 8, 200) for _ in range(3)]],
            }
        case "convolution":
            window = rng.choice([1, 3, 3, 5, 7])
            pixels = size(rng, max(window, 6), 90)
            channels = [size(rng, 1, 160), size(rng, 4, 160)]
            stride = rng.choice([1, 1, 2])
            shape = [size(rng, 1, 8), *channels, pixels, window, stride]
            return {"kind": kind, "shape": shape}
        case _:
            return {"kind": kind, "shape": [size(rng, 16, 3000), size(rng, 16, 3000)]}


def is_fit(case: dict[str, Any]) -> bool:
    """Neither over at once nor too long for a search."""
    match case["kind"], case["shape"]:
        case "product", [rows, depth, columns]:
            return 2e6 < rows * depth * columns < 1e9
        case "batch", [batch, rows, depth, columns]:
            return 2e6 < batch * rows * depth * columns < 1e9
        case "convolution", [batch, inputs, outputs, pixels, window, stride]:
            work = batch * inputs * outputs * (pixels // stride * window) ** 2
            return 2e6 < work < 1e9 and batch * max(inputs, outputs) * pixels**2 < MOST_ELEMENTS
        case _, [rows, columns]:
            return 1e5 < rows * columns < MOST_ELEMENTS
    raise ValueError(f"no workload {case}")


def operands(case: dict[str, Any]) -> list[Any]:
    import numpy

    rng = numpy.random.default_rng(0)
    match case["kind"], case["shape"]:
        case "product", [rows, depth, columns]:
            shapes = [(rows, depth), (depth, columns)]
            shapes = [s[::-1] if turned else s for s, turned in zip(shapes, case["turned"])]
        case "batch", [batch, rows, depth, columns]:
            shapes = [(batch, rows, depth), (batch, depth, columns)]
        case "convolution", [batch, inputs, outputs, pixels, window, _]:
            shapes = [(batch, inputs, pixels, pixels), (outputs, inputs, window, window)]
        case _:
            shapes = [tuple(case["shape"])]
    return [rng.standard_normal(shape, numpy.float32) for shape in shapes]


def in_proofgrad(case: dict[str, Any]) -> Run:
    """A recorded call, as a user runs it."""
    from proofgrad import Tensor, TinyJit

    arguments = [Tensor(array).realize() for array in operands(case)]
    step = TinyJit(lambda *given: program(case)(*given).realize())
    return lambda: step(*arguments)


def program(case: dict[str, Any]) -> Callable[..., Any]:
    """The workload on Tensors of proofgrad or of torch."""
    match case["kind"]:
        case "product":
            one, other = case["turned"]
            return lambda a, b: (a.T if one else a) @ (b.T if other else b)
        case "batch":
            return lambda a, b: a @ b
        case "convolution":
            *_, window, stride = case["shape"]
            return lambda x, w: x.conv2d(w, stride=stride, padding=window // 2)
        case "rows":
            return lambda x: x.sum(1)
        case "columns":
            return lambda x: x.sum(0)
        case _:
            return lambda x: x.softmax(-1)


def in_torch(case: dict[str, Any]) -> Run:
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))
    torch.set_grad_enabled(False)
    arguments = [torch.from_numpy(array) for array in operands(case)]
    if case["kind"] == "convolution":
        *_, window, stride = case["shape"]
        x, w = arguments
        return lambda: torch.nn.functional.conv2d(x, w, stride=stride, padding=window // 2)
    run = program(case)
    return lambda: run(*arguments)


def in_numpy(case: dict[str, Any]) -> Run:
    if case["kind"] in ("convolution", "softmax"):
        raise NotImplementedError(f"numpy has no {case['kind']}")
    arguments, run = operands(case), program(case)
    return lambda: run(*arguments)


def searched(case: dict[str, Any]) -> dict[str, Any]:
    """What BEAM finds for the kernels of a workload: the lines that it prints, as data."""
    from proofgrad import Tensor
    from proofgrad.core.compile.tune.search import Found, Search

    found: list[Found] = []
    look = Search.found

    def noted(self: Search) -> tuple[Found, bool]:
        found.append((result := look(self))[0])
        return result

    arguments = [Tensor(array).realize() for array in operands(case)]
    os.environ["BEAM"] = os.environ["WIDTH"]
    Search.found = noted  # type: ignore[method-assign]
    program(case)(*arguments).realize()
    Search.found = look  # type: ignore[method-assign]
    del os.environ["BEAM"]
    return {"found": [[f.default, f.taken, f.gain, f.timings] for f in found]}


def work(framework: str) -> None:
    makers = {"torch": in_torch, "numpy": in_numpy, "proofgrad": in_proofgrad, "search": searched}
    serve(makers[framework])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30, help="shapes of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--beam", type=int, default=3, help="width of the search; 0: none")
    parser.add_argument("--seconds", type=int, default=10, help="for the search of one kernel")
    parser.add_argument("--threads", type=int, help="of every framework; on a busy machine 1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.worker)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as cache:
        environment = {"PROOFGRAD_CACHE": cache, "WIDTH": str(options.beam)}
        environment["BEAM_SECONDS"] = str(options.seconds)
        if options.threads:
            names_of_threads = ("NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
            environment |= dict.fromkeys(names_of_threads, str(options.threads))
        names = ["proofgrad", *([] if options.no_peers else PEERS)]
        if options.beam:
            names.append("search")
        workers = {n: Worker([__file__, "--worker", n], environment) for n in names}
        search = workers.pop("search", None)
        if options.no_peers:
            workers.clear()
        for kind in options.kinds:
            rows = []
            while len(rows) < options.count:
                case = draw(kind, rng)
                if is_fit(case):
                    rows.append(compare(case, search, workers, options.rounds))
            summarise(kind, rows)
        for worker in (*workers.values(), *([search] if search else [])):
            worker.close()
    return None


def compare(
    case: dict[str, Any], search: Worker | None, workers: dict[str, Worker], rounds: int
) -> dict[str, float]:
    """One line about a workload: its ratios."""
    ratios: dict[str, float] = {}
    turned = "".join(["T" if side else "-" for side in case.get("turned", [])])
    text = " ".join([case["kind"], "x".join(map(str, case["shape"])), turned])
    found = search.ask(case)["found"] if search else []
    for k, (_, _, gain, _) in enumerate(found):
        ratios["best/default"] = min(1 / gain, ratios.get("best/default", 1.0)) if k else 1 / gain
    times = in_turn(workers, case, rounds)
    for peer in PEERS:
        if peer in times:
            ratios[f"{peer}/ours"] = times[peer].least / times["proofgrad"].least
    ms = f"{times['proofgrad'].least * 1e3:8.3f} ms" if times else ""
    shown = "  ".join([f"{name} {ratio:5.2f}" for name, ratio in ratios.items()])
    print(f"{text:<32} {ms}  {shown}", flush=True)
    for default, taken, gain, timings in found:
        if 1 / gain < LOSES:
            print(
                f"    {default or 'default'}\n    {taken} is {gain:.2f} times as fast ({timings})"
            )
    return ratios


def summarise(kind: str, rows: list[dict[str, float]]) -> None:
    """How the ratios of a kind are spread."""
    for name in dict.fromkeys([name for row in rows for name in row]):
        ratios = sorted([row[name] for row in rows if name in row])
        tenth = ratios[len(ratios) // 10]
        below = sum(ratio < LOSES for ratio in ratios)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(
            f"== {kind} {name}: least {ratios[0]:.2f}, a tenth below {tenth:.2f}, median"
            f" {median(ratios):.2f}, mean {mean:.2f}, most {ratios[-1]:.2f}; {below} of {len(ratios)}"
            f" below {LOSES}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
