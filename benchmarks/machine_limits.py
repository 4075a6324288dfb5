"""What the machine can do at most: multiply-adds, copying memory, reading memory, by all its threads.

Usage: python benchmarks/machine_limits.py [--seconds 1]

The kernels of the probe of `python -m proofgrad calibrate`, for a second each: sums of products that stay in
registers; vectors loaded and stored; vectors loaded. Then what a call and a new page cost. The best of many runs counts.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from dataclasses import dataclass
from typing import Any

from proofgrad.backends.cpu import backend
from proofgrad.backends.cpu.probe import Probe

SECONDS = 1.0
FRESH_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class Limits:
    """Of this machine, measured now."""

    gflops: float
    copy_gbs: float  # bytes read and bytes written
    read_gbs: float
    fresh_gbs: float  # bytes written to memory that was not used before
    launch_us: float  # a call of one kernel from Python


def measure(seconds: float = SECONDS) -> Limits:
    """All of them; some seconds."""
    probe = Probe(backend(), seconds)  # type: ignore[arg-type]
    launch_us = probe.launch_cycles() * probe.cycle * 1e6
    fresh = 1e-9 * FRESH_BYTES / min([_touched(probe.machine) for _ in range(5)])
    return Limits(probe.gflops(), probe.copy_gbs(), probe.read_gbs(), fresh, launch_us)


def _touched(machine: Any) -> float:
    """Seconds to write memory that was not used before."""
    machine.memory.clear()
    block = machine.alloc(FRESH_BYTES)
    start = time.perf_counter()
    ctypes.memset(block.address, 0, FRESH_BYTES)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each kernel")
    found = measure(parser.parse_args().seconds)
    print(f"multiply-adds {found.gflops:.0f} GFLOP/s")
    print(f"copying {found.copy_gbs:.1f} GB/s read and written, reading {found.read_gbs:.1f} GB/s")
    print(f"new memory {found.fresh_gbs:.1f} GB/s, a call of one kernel {found.launch_us:.1f} us")


if __name__ == "__main__":
    main()
