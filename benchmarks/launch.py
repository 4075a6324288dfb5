"""What a launch costs: eager and jitted calls of tiny kernels, in microseconds, beside their bars.

Usage: python benchmarks/launch.py [--rounds 400]

Each figure is the least of many short rounds, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from proofgrad import Device, Tensor, TinyJit

CALLS = 10
Row = tuple[str, int, Callable[[], object]]  # a name, the most microseconds, the call


def microseconds(call: Callable[[], object], rounds: int) -> float:
    """The least time of one call in rounds of CALLS calls."""
    for _ in range(5):
        call()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - start)
    return best / CALLS * 1e6


def jitted(function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:
    """A call of the recorded function that waits for its result."""
    recorded = TinyJit(lambda x: function(x).realize())
    device = Device[Device.DEFAULT]

    def call() -> None:
        recorded(x)
        device.synchronize()

    return call


def ten_products(x: Tensor) -> Tensor:
    """Ten kernels, each of which reads the result of the one before."""
    for _ in range(10):
        x = (x @ x).contiguous()
    return x


def show(rows: list[Row], rounds: int) -> None:
    """A line for each call: what it costs, and the bar."""
    for name, bar, call in rows:
        found = microseconds(call, rounds)
        print(f"{name:<36} {found:8.1f} {bar:6} {'' if found <= bar else '  OVER'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    x = Tensor([[float(k % 7) / 8 for k in range(16)] for _ in range(16)]).realize()
    weight, index = Tensor.rand(1000, 64).realize(), Tensor([3, 1, 999, 0]).realize()
    print(f"{'microseconds a call':<36} {'time':>8} {'bar':>6}")
    show([("eager x + 1 of 16x16, known graph", 10, lambda: (x + 1).realize())], rounds)
    factor = Tensor([1.0], requires_grad=True).realize()  # a program that trains has parameters
    rows: list[Row] = [
        ("eager x + 1 beside a parameter", 15, lambda: (x + 1).realize()),
        ("eager x * a parameter", 30, lambda: (x * factor).realize()),
        ("eager x @ x", 35, lambda: (x @ x).realize()),
        ("eager x.exp()", 20, lambda: x.exp().realize()),
        ("eager x.softmax()", 30, lambda: x.softmax().realize()),
        ("eager x.cat(x)", 50, lambda: x.cat(x).realize()),
        ("eager weight[index]", 75, lambda: weight[index].realize()),
        ("eager x[3].numpy()", 35, lambda: x[3].numpy()),
        ("eager x[3] + 1", 60, lambda: (x[3] + 1).realize()),
        ("jitted ((x + 1) * 2).relu()", 5, jitted(lambda x: ((x + 1) * 2).relu(), x)),
        ("jitted chain of ten 16x16 products", 10, jitted(ten_products, x)),
        ("jitted weight[index]", 5, jitted(lambda index: weight[index], index)),
    ]
    show(rows, rounds)


if __name__ == "__main__":
    main()
