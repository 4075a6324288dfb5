"""How long a first call takes, in a process that finds no cache and in one that finds it filled.

Usage: python benchmarks/first_call.py [--rounds 3] [NAME ...]

Seconds from the call to its result, data and parameters being there. Each figure is the least of
some fresh processes. "call" is a later call, which the first one contains; "cpu" is the processor
time of all threads, and of copies of the process that compile, which tells what the machine was doing beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

# Seconds for the first call: cold, warm.
BARS = {
    "product": (0.25, None),
    "mlp_step": (2.0, None),
    "gpt_block": (2.0, 0.5),
    "cnn_step": (4.0, 0.5),
    "lstm_step": (4.0, None),
    "unet_step": (4.0, None),
    "resnet_step": (4.0, None),
}
PROGRAM = """
import json, os, sys, time
sys.path.insert(0, {folder!r})
import workloads
from proofgrad import Device
from proofgrad.core.tensor.runtime.realize import compiler
call = getattr(workloads, {name!r})()
def timed():
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    call()
    Device[Device.DEFAULT].synchronize()
    return time.perf_counter() - wall, sum(os.times()[:4]) - cpu
before = compiler().kernels_compiled
first, cpu = timed()
print(json.dumps([first, cpu, timed()[0], compiler().kernels_compiled - before]))
"""


def run(name: str, cache: str) -> list[float]:
    """First call, its processor time, the second call, kernels compiled: of a fresh process."""
    program = PROGRAM.format(folder=os.path.dirname(os.path.abspath(__file__)), name=name)
    environment = {**os.environ, "PROOFGRAD_CACHE": cache, "XDG_CACHE_HOME": cache, "PLANS": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BARS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(
        f"{'seconds':<12} {'cache':<6}{'first':>8} {'cpu':>7} {'call':>8} {'kernels':>8} {'bar':>6}"
    )
    for name in options.names or BARS:
        found: dict[str, list[list[float]]] = {"cold": [], "warm": []}
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as cache:
                for rows in found.values():  # the second process finds what the first one left
                    rows.append(run(name, cache))
        for (kind, rows), bar in zip(found.items(), BARS[name]):
            first, cpu, call = [min(row[k] for row in rows) for k in range(3)]
            shown = "" if bar is None else f"{bar:6.2f}{'' if first <= bar else '  OVER'}"
            compiled = int(rows[0][3])
            print(f"{name:<12} {kind:<6}{first:8.3f} {cpu:7.3f} {call:8.4f} {compiled:8} {shown}")


if __name__ == "__main__":
    main()
