"""Convolutions of 3x3 windows with WINO=1, beside the same without and torch: milliseconds, errors.

Usage: python benchmarks/winograd.py [--rounds 30] [--shapes 8x64x56x64 ...] [--no-torch]

A shape is images x channels x pixels of a side x filters. Calls are in turn, in one process; the least
time of each counts. Errors: the largest, beside the same in float64, of results that are about 1 large.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from proofgrad import Context, Device, Tensor, TinyJit

SHAPES = ("8x64x56x64", "1x256x28x256", "1x128x56x128", "1x64x224x64", "1x512x14x512")
NAMES = ("ordinary", "WINO=1", "torch")
WARM = 4  # calls that do not count: the first two record


def recorded(x: Tensor, w: Tensor, wino: int) -> Callable[[], Any]:
    """A call of the recorded convolution, which waits for its result."""
    convolution = TinyJit(lambda x, w: x.conv2d(w, padding=1).realize())

    def call() -> Any:
        with Context(WINO=wino):
            result = convolution(x, w)
        Device[Device.DEFAULT].synchronize()
        return result

    return call


def of_torch(x: Tensor, w: Tensor) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(Device[Device.DEFAULT].target.threads)
    image, weights = torch.from_numpy(x.numpy()), torch.from_numpy(w.numpy())
    return lambda: torch.nn.functional.conv2d(image, weights, padding=1)


def milliseconds(calls: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """The least time of each call, taken in turn."""
    best = [math.inf] * len(calls)
    for number in range(WARM + rounds):
        for k, call in enumerate(calls):
            start = time.perf_counter()
            call()
            spent = time.perf_counter() - start
            best[k] = min(best[k], spent if number >= WARM else math.inf)
    return [seconds * 1e3 for seconds in best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--shapes", nargs="*", default=SHAPES)
    parser.add_argument("--no-torch", action="store_true")
    asked = parser.parse_args()
    names = NAMES[:2] if asked.no_torch else NAMES
    print(f"{'shape':<16}" + "".join([f"{name:>10}" for name in names]) + "     errors")
    for text in asked.shapes:
        n, channels, pixels, filters = map(int, text.split("x"))
        x = Tensor.randn(n, channels, pixels, pixels).realize()
        w = (Tensor.randn(filters, channels, 3, 3) / math.sqrt(9 * channels)).realize()
        calls = [recorded(x, w, 0), recorded(x, w, 1)]
        exact = x.double().conv2d(w.double(), padding=1).numpy()
        errors = [float(np.abs(call().numpy() - exact).max()) for call in calls]
        if not asked.no_torch:
            calls.append(of_torch(x, w))
        times = "".join([f"{spent:10.2f}" for spent in milliseconds(calls, asked.rounds)])
        print(f"{text:<16}{times}     " + " ".join([f"{error:.1e}" for error in errors]))


if __name__ == "__main__":
    main()
