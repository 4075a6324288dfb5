"""Whether a long training holds more and more: nodes, buffers, Python objects, memory of the process.

Usage: python benchmarks/leaks.py [--eager N] [--recorded N] [--numbers N]

Three loops: steps of Adam on a small network with dropout and batch norm, run as they are; the same
recorded with TinyJit; a product with a number that no step before had, which is a new kernel each
time (of those the newest few thousand are kept). A line at the start, after a tenth, and at the end.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from proofgrad import Tensor, TinyJit, nn
from proofgrad.core.ir import uop
from proofgrad.core.tensor.runtime.table import MEMORY
from proofgrad.nn.optim import Adam
from proofgrad.nn.state import get_parameters

ROWS, WIDTH, KINDS = 32, 16, 4


class Network:
    """Two layers, batch norm and dropout between."""

    def __init__(self) -> None:
        self.first, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm(WIDTH)
        self.last = nn.Linear(WIDTH, KINDS)

    def __call__(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu().dropout(0.1))


def training(recorded: bool) -> Callable[[int], None]:
    """A step of training, on other data each time."""
    network, random = Network(), numpy.random.default_rng(0)
    optimizer = Adam(get_parameters(network))

    def step(x: Tensor, y: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = network(x).sparse_categorical_crossentropy(y)
            loss.backward()
            return loss.realize(*optimizer.schedule_step())

    run: Any = TinyJit(step) if recorded else step

    def one(_: int) -> None:
        x = Tensor(random.random((ROWS, WIDTH), numpy.float32)).realize()
        run(x, Tensor(random.integers(0, KINDS, ROWS)).realize()).item()

    return one


def new_numbers() -> Callable[[int], None]:
    """A kernel that there was not before."""
    x = Tensor.rand(64).realize()

    def one(number: int) -> None:
        (x * (number * 0.37 + 0.01)).realize()

    return one


def held() -> dict[str, int]:
    """What lives now."""
    gc.collect()
    return {
        "nodes": len(uop._NODES),
        "buffers": len(MEMORY),
        "objects": len(gc.get_objects()),
        "MB": resident_bytes() // 1_000_000,
    }


def resident_bytes() -> int:
    """Memory of this process; on Linux only, elsewhere 0."""
    if not sys.platform.startswith("linux"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def watched(step: Callable[[int], None], count: int) -> Iterator[tuple[int, dict[str, int]]]:
    """What lives after the first steps, a tenth of them, and all."""
    marks = {min(10, count - 1), count // 10, count - 1}
    for number in range(count):
        step(number)
        if number in marks:
            yield number + 1, held()


def main() -> None:
    """Run the three loops."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--eager", type=int, default=2_000)
    options.add_argument("--recorded", type=int, default=10_000)
    options.add_argument("--numbers", type=int, default=6_000)
    chosen = options.parse_args()
    loops = (
        ("recorded", training(True), chosen.recorded),
        ("eager", training(False), chosen.eager),
        ("new numbers", new_numbers(), chosen.numbers),
    )
    for name, step, count in loops:
        for steps, counts in watched(step, count):
            told = "  ".join([f"{value:>8,} {what}" for what, value in counts.items()])
            print(f"{name:12} {steps:>7,} steps  {told}", flush=True)


if __name__ == "__main__":
    main()
