"""What this machine's core does in a cycle, and what takes it how many: the numbers of `Core` that are measured.

Usage: python benchmarks/measure_core.py [--seconds 0.15]

Prints each beside what the compiler takes: what `python -m proofgrad calibrate` measures, and how long tables take to
copy, as kernels of Tensors, which it leaves alone. `--seconds` is for each kernel.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from proofgrad import Device, Tensor, TinyJit
from proofgrad.backends.cpu.probe import SECONDS, Probe, measure


def copies(machine: Any, seconds: float) -> dict[str, float]:
    """Cycles an element of a table: of 48 columns a piece, in the order of both, and of 8 rows, which lie apart."""
    rows, columns = 768, 768
    probe = Probe(machine, seconds)
    x = Tensor.ones(rows, columns).contiguous().realize()
    found = {}
    for name, shape, order in (
        ("copy_cycles", (rows, columns // 48, 48), (1, 0, 2)),
        ("copy_apart_cycles", (rows // 8, 8, columns), (0, 2, 1)),
    ):
        step = TinyJit(lambda s=shape, o=order: x.reshape(s).permute(o).contiguous().realize())
        for _ in range(4):
            step()
        found[name] = probe.best(step) / (rows * columns) / probe.cycle
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each kernel")
    seconds = parser.parse_args().seconds
    machine: Any = Device["CPU"]
    taken = machine.target.core
    found = measure(machine, machine.target.cache_bytes, seconds) | copies(machine, seconds)
    for name in [field.name for field in fields(taken) if field.name in found]:
        print(f"{name:22} {found[name]:9.2f}   the compiler takes {getattr(taken, name)}")


if __name__ == "__main__":
    main()
