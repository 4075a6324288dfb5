"""How compile time grows with the graph: every doubling of the nodes beside its bar of 2.3 times.

Usage: python benchmarks/compile_time.py [--largest 100000]

Seconds of processor time (the least of some rounds) to build a graph with the Tensor API, to number
it, and to cut it into kernels; and to compile the kernels of smaller graphs. At the end a forward
pass of GPT-2 small with random weights: the schedule of its 12 layers, with no cache, bar 3 s.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Iterator

from workloads import Block

from proofgrad import Tensor
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import realize as machine

BAR = 2.3
GPT_BAR = 3.0


def chain(nodes: int) -> list[Tensor]:
    """Elementwise operations one on the other: one kernel."""
    x = Tensor([1.0] * 64).realize()
    for k in range(nodes // 3):
        x = x * 1.01 + 0.5 if k % 2 else x.relu()
    return [x]


def many_kernels(nodes: int) -> list[Tensor]:
    """Small products and softmaxes, each of which reads the one before."""
    weight = Tensor([[float(k) for k in range(8)] for _ in range(8)]).realize()
    x = weight
    for _ in range(nodes // 43):
        x = x + ((x @ weight).relu() * 0.01).softmax(-1)
    return [x]


def backward(nodes: int) -> list[Tensor]:
    """The gradient of a chain of products."""
    x = Tensor([[float(k) for k in range(8)] for _ in range(8)]).realize().requires_grad_()
    y = x
    for _ in range(nodes // 21):
        y = (y @ x).relu() * 0.01 + 1
    y.sum().backward()
    assert x.grad is not None
    return [x.grad]


def gpt2_forward() -> list[Tensor]:
    """12 blocks over 256 tokens, from embeddings to logits."""
    tokens = Tensor([[k % 50257 for k in range(256)]])
    words, positions = Tensor.rand(50257, 768), Tensor.rand(1, 256, 768)
    x = words[tokens] + positions
    for _ in range(12):
        x = Block()(x)
    return [x.layernorm() @ words.transpose(0, 1)]


def graph_of(make: Callable[[int], list[Tensor]], nodes: int) -> UOp:
    return machine.graph_to_run([tensor._uop for tensor in make(nodes)], "CPU")


def seconds(step: Callable[[], object], rounds: int) -> float:
    """The least processor time of some rounds."""
    found = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        step()
        found.append(time.process_time() - start)
    return min(found)


def sizes(smallest: int, largest: int) -> Iterator[int]:
    while smallest <= largest:
        yield smallest
        smallest *= 2


def show(name: str, rows: list[tuple[int, float]]) -> None:
    """Each size, its time, and how many times that of the half; the growth of the whole range."""
    print(f"\n{name}")
    for k, (nodes, time_s) in enumerate(rows):
        ratio = f"{time_s / rows[k - 1][1]:6.2f}" if k else ""
        print(f"{nodes:8} nodes {time_s:8.3f} s {time_s / nodes * 1e6:7.1f} us a node {ratio}")
    doublings = len(rows) - 1
    if doublings > 0:
        mean = (rows[-1][1] / rows[0][1]) ** (1 / doublings)
        print(
            f"twice the nodes: {mean:.2f} times the time (bar {BAR}){'' if mean <= BAR else '  OVER'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    os.environ["PLANS"] = "0"
    compiler = machine.compiler()
    compiler.kernel_graph(graph_of(many_kernels, 500))  # rules are loaded
    for make in (chain, many_kernels, backward):
        rows = []
        for nodes in sizes(1000, options.largest):
            count = len(graph_of(make, nodes).toposort())

            def step(make: Callable[[int], list[Tensor]] = make, nodes: int = nodes) -> None:
                compiler.kernel_graph(graph_of(make, nodes))

            rows.append((count, seconds(step, options.rounds)))
        show(f"build and schedule: {make.__doc__}", rows)
    for make in (chain, many_kernels):
        rows = []
        for nodes in sizes(500, max(500, options.largest // 25)):
            graph = graph_of(make, nodes)

            def plan(graph: UOp = graph) -> None:
                compiler.forget()
                compiler.plan(graph)

            rows.append((len(graph.toposort()), seconds(plan, options.rounds)))
        show(f"schedule and compile: {make.__doc__}", rows)
    print("\nGPT-2 small, forward")
    start, cpu = time.perf_counter(), time.process_time()
    kernels = compiler.kernel_graph(machine.graph_to_run([t._uop for t in gpt2_forward()], "CPU"))
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    over = "" if wall <= GPT_BAR else "  OVER"
    print(f"{len(kernels.src)} kernels built and scheduled in {wall:.2f} s, {cpu:.2f} s of one processor"
          f" (bar {GPT_BAR}){over}")  # fmt: skip


if __name__ == "__main__":
    main()
