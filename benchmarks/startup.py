"""How long a user waits before the first result: import, first call cold and warm, in seconds.

Usage: python benchmarks/startup.py [--peer tinygrad] [--rounds N]

Each figure is the median of N fresh processes; with a peer installed, the same is timed beside it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time


def seconds(code: str, fresh_cache: bool, rounds: int) -> float:
    """Median wall time of a fresh process that runs `code`."""
    times = []
    with tempfile.TemporaryDirectory() as warm:
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as cold:
                folder = cold if fresh_cache else warm
                environment = {**os.environ, "PROOFGRAD_CACHE": folder, "XDG_CACHE_HOME": folder}
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", code], check=True, env=environment)
                times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="append", default=[], help="a package with a Tensor")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds = options.rounds
    base = seconds("pass", fresh_cache=False, rounds=rounds)
    print(
        f"{'package':<12} {'import':>8} {'first call, cold':>18} {'warm':>8}   (python: {base:.3f})"
    )
    for name in ["proofgrad", *options.peer]:
        first = f"from {name} import Tensor\nassert (Tensor([1, 2, 3]) + 1).tolist() == [2, 3, 4]"
        imported = seconds(f"import {name}", fresh_cache=False, rounds=rounds)
        cold = seconds(first, fresh_cache=True, rounds=rounds)
        warm = seconds(first, fresh_cache=False, rounds=rounds)
        print(f"{name:<12} {imported:8.3f} {cold:18.3f} {warm:8.3f}")


if __name__ == "__main__":
    main()
