"""How long rewriting takes: a ResNet-18 forward graph (1, 3, 224, 224) through all stages to Linear.

Usage: python benchmarks/resnet_rewrite.py [--peer tinygrad] [--rounds N] [--stages]

Each round is a fresh process. The clock (processor time) runs from the finished graph of Tensors,
whose weights are buffers, to the Linear form of each different kernel for a CPU: scheduling and
rewriting, no printing, no compiling, nothing cached from before. A first small model, whose kernels
differ, makes each package load its rules. Nodes are counted twice: those of the graph of Tensors
(the work asked for) and those of all Linear forms (the work done, which unrolling makes more of).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SMALL, LARGE = 32, 224


@dataclass(frozen=True, slots=True)
class Run:
    """What one run took, in seconds, and how much there was."""

    nodes: int
    kernels: int
    instructions: int
    schedule: float
    rewrite: float

    @property
    def total(self) -> float:
        return self.schedule + self.rewrite


def model_of(package: str) -> tuple[Any, Any]:
    """The model with weights that are buffers, and a function that gives buffers of a package."""
    sys.path.insert(0, str(EXAMPLES))
    resnet = importlib.import_module("resnet")
    buffer = our_buffer if package == "proofgrad" else importlib.import_module(package).Tensor.empty
    model = resnet.ResNet18(importlib.import_module(f"{package}.nn"))
    state = importlib.import_module(f"{package}.nn.state")
    for weight in state.get_state_dict(model).values():
        weight.replace(buffer(*weight.shape, dtype=weight.dtype))
    return model, buffer


def our_buffer(*shape: int, dtype: Any = None) -> Any:
    """A Tensor over a buffer without memory: nothing is run here."""
    from proofgrad import Tensor, dtypes
    from proofgrad.core.ir.ops import Ops
    from proofgrad.core.ir.uop import UOp
    from proofgrad.core.tensor.runtime.table import new_buffer

    memory = new_buffer(dtype or dtypes.float32, prod(shape), "CPU", None)
    return Tensor._new(UOp(Ops.RESHAPE, memory.dtype, (memory,), shape), "CPU")


def run_ours() -> Run:
    from proofgrad.core.tensor.runtime import realize
    from proofgrad.core.tensor.runtime.canonical import numbered

    model, buffer = model_of("proofgrad")
    compiler = realize.compiler()

    def run(size: int) -> Run:
        scores = model(buffer(1, 3, size, size))
        graph, inputs = numbered([scores.uop], "CPU")
        assert len(inputs) > 100, "the weights are buffers"
        start = time.thread_time()
        calls = compiler.kernel_graph(graph).src
        middle = time.thread_time()
        bodies = dict.fromkeys([call.src[0] for call in calls])
        linears = [linear for body in bodies for linear in compiler.linears(body, "CPU")]
        end = time.thread_time()
        instructions = sum(len(linear.src) for linear in linears)
        nodes = len(graph.toposort())
        return Run(nodes, len(linears), instructions, middle - start, end - middle)

    run(SMALL)
    gc.collect()
    return run(LARGE)


def run_tinygrad() -> Run:
    os.environ["DEV"] = "CPU"
    from tinygrad.codegen import do_linearize, full_rewrite_to_sink
    from tinygrad.uop.ops import Ops, ProgramInfo, UOp

    model, buffer = model_of("tinygrad")
    renderer = their_renderer()

    def linear(ast: Any) -> Any:
        sink = full_rewrite_to_sink(ast, renderer, optimize=ast.tag is None)
        program = UOp(Ops.PROGRAM, src=(sink,), arg=ProgramInfo.from_sink(sink, renderer.target))
        return do_linearize(renderer, program, sink).src[-1]

    def run(size: int) -> Run:
        scores = model(buffer(1, 3, size, size))
        nodes = len(scores.uop.toposort())
        start = time.thread_time()
        calls = scores.schedule_linear().src
        middle = time.thread_time()
        bodies = dict.fromkeys([call.src[0] for call in calls if call.src[0].op is Ops.SINK])
        linears = [linear(body) for body in bodies]
        end = time.thread_time()
        instructions = sum(len(found.src) for found in linears)
        return Run(nodes, len(linears), instructions, middle - start, end - middle)

    run(SMALL)
    gc.collect()
    return run(LARGE)


def their_renderer() -> Any:
    """tinygrad's renderer of C for a CPU, without the compiler behind it, which may be missing."""
    from tinygrad.helpers import Target
    from tinygrad.renderer import Renderer
    from tinygrad.renderer.cstyle import ClangRenderer

    class Uncompiled(ClangRenderer):  # type: ignore[misc]
        def __init__(self) -> None:
            Renderer.__init__(self, Target.parse("CPU:CLANG:x86_64"))

    return Uncompiled()


RUNS = {"proofgrad": run_ours, "tinygrad": run_tinygrad}


def median_run(package: str, rounds: int) -> Run:
    """The run of median length among fresh processes."""
    command = [sys.executable, __file__, "--one", package]
    runs = []
    for _ in range(rounds):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(Run(**json.loads(done.stdout.splitlines()[-1])))
    middle = statistics.median_low([run.total for run in runs])
    return next(run for run in runs if run.total == middle)


def show_stages() -> None:
    """Seconds of each stage of ours, summed over all kernels."""
    from proofgrad.core.compile import compiler as driver

    spent: Counter[str] = Counter()
    clock = [0.0]

    def observe(stage: Any, _: Any, __: Any) -> None:
        now = time.thread_time()
        spent[stage.name] += now - clock[0]
        clock[0] = now

    run_stages = driver.run_stages

    def timed(stages: Any, root: Any, library: Any, target: Any = None, *_: Any, **__: Any) -> Any:
        clock[0] = time.thread_time()
        return run_stages(stages, root, library, target, observe)

    driver.run_stages = timed  # type: ignore[assignment]
    run_ours()
    for name, seconds in spent.most_common():
        print(f"{name:<24} {seconds:8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peer", choices=["tinygrad"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stages", action="store_true", help="seconds of each stage, both models")
    parser.add_argument("--one", choices=list(RUNS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(RUNS[options.one]())))
        return
    if options.stages:
        show_stages()
        return
    packages = ["proofgrad", *([options.peer] if options.peer else [])]
    print(f"{'':<10} {'nodes':>6} {'kernels':>8} {'instructions':>13} {'schedule s':>11}", end="")
    print(f" {'rewrite s':>10} {'total s':>8} {'us per node':>12} {'us per instruction':>19}")
    totals = []
    for package in packages:
        run = median_run(package, options.rounds)
        totals.append(run.total)
        print(
            f"{package:<10} {run.nodes:>6} {run.kernels:>8} {run.instructions:>13}"
            f" {run.schedule:>11.3f} {run.rewrite:>10.3f} {run.total:>8.3f}"
            f" {run.total / run.nodes * 1e6:>12.0f} {run.total / run.instructions * 1e6:>19.0f}"
        )
    if options.peer:
        print(f"{totals[1] / totals[0]:.1f} times as fast as {options.peer}, same program")


if __name__ == "__main__":
    main()
