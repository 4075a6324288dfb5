"""Training steps of small networks, eager and recorded by TinyJit, beside torch's eager ones: milliseconds, and how many times as fast.

Usage: python benchmarks/eager_steps.py [--seconds 1] [--layers 2 8 32]

A step is zero_grad, loss, backward, step, and the loss as a number. All run in this process on one thread by turns; each figure is the least.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

# Before the first kernel runs.
os.environ.setdefault("NUM_THREADS", "1")

import numpy as np
import torch

from proofgrad import Tensor, TinyJit
from proofgrad.nn import optim

WIDTH, ROWS = 64, 32
OPTIMIZERS = ("SGD", "Adam")


def ours(numbers: list[np.ndarray], x: np.ndarray, name: str) -> Callable[[], Tensor]:
    """A step of the network here, whose result is the loss."""
    weights = [Tensor(n) for n in numbers]
    optimizer = getattr(optim, name)(weights, lr=1e-3)
    rows = Tensor(x).realize()

    def step() -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            y = rows
            for weight in weights:
                y = y + (y @ weight).relu()
            loss = y.square().mean().backward()
            optimizer.step()
        return loss.realize()

    return step


def theirs(numbers: list[np.ndarray], x: np.ndarray, name: str) -> Callable[[], torch.Tensor]:
    """The same of torch."""
    weights = [torch.from_numpy(n.copy()).requires_grad_() for n in numbers]
    optimizer = getattr(torch.optim, name)(weights, lr=1e-3)
    rows = torch.from_numpy(x)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        y = rows
        for weight in weights:
            y = y + (y @ weight).relu()
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def least(steps: list[Callable[[], float]], seconds: float) -> list[float]:
    """The least milliseconds of each, by turns."""
    best = [float("inf")] * len(steps)
    for _ in range(3):
        for step in steps:
            step()
    end = time.perf_counter() + seconds * len(steps)
    while time.perf_counter() < end:
        for k, step in enumerate(steps):
            start = time.perf_counter()
            step()
            best[k] = min(best[k], (time.perf_counter() - start) * 1e3)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 8, 32])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    print(f"{'':<20} {'eager':>8} {'TinyJit':>8} {'torch':>8} {'eager':>6} {'TinyJit':>8}")
    for layers in asked.layers:
        numbers = [rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 16 for _ in range(layers)]
        x = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
        for name in OPTIMIZERS:
            eager, other = ours(numbers, x, name), theirs(numbers, x, name)
            recorded = TinyJit(ours(numbers, x, name))
            found = [one().item() for one in (eager, recorded, other)]
            assert np.allclose(found, found[-1], rtol=1e-4), found
            ms = least(
                [lambda s=one: s().item() for one in (eager, recorded, other)], asked.seconds
            )
            ratios = f"{ms[2] / ms[0]:6.2f} {ms[2] / ms[1]:8.2f}"
            print(
                f"{f'{layers} layers, {name}':<20} {ms[0]:8.3f} {ms[1]:8.3f} {ms[2]:8.3f} {ratios}"
            )


if __name__ == "__main__":
    main()
