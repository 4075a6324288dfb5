"""The most memory that a training step takes, in fresh processes, beside torch where it is installed.

Usage: python benchmarks/peak_memory.py [--steps 5]

MB of resident memory above what the process had with its data and parameters in place. The step is
the one of benchmarks/workloads.py: a CNN on images of 28x28, forward, backward, Adam.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys

# What stands before: `step` is the call, `steps` how often. Resident memory is read from the kernel.
MEASURE = """
def resident(name):
    with open("/proc/self/status") as file:
        (line,) = [line for line in file if line.startswith(name)]
    return int(line.split()[1]) / 1000
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak starts again from here
before = resident("VmRSS")
for _ in range(steps):
    step()
print(resident("VmHWM") - before)
"""
PROOFGRAD = """
import sys
sys.path.insert(0, {folder!r})
import workloads
step = workloads.cnn_step()
steps = {steps}
"""
JITTED = PROOFGRAD + "from proofgrad import TinyJit\nstep = TinyJit(step)\n"
TORCH = """
import torch
from torch.nn import BatchNorm2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential
torch.set_num_threads(2)
model = Sequential(
    Conv2d(1, 32, 5), ReLU(), Conv2d(32, 32, 5), ReLU(), BatchNorm2d(32), MaxPool2d(2),
    Conv2d(32, 64, 3), ReLU(), Conv2d(64, 64, 3), ReLU(), BatchNorm2d(64), MaxPool2d(2),
    Flatten(), Linear(576, 10))
x, y = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
steps = {steps}
"""


def megabytes(setup: str, steps: int) -> float:
    """The peak above the start, in a fresh process."""
    folder = os.path.dirname(os.path.abspath(__file__))
    program = setup.format(folder=folder, steps=steps) + MEASURE
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5)
    steps = parser.parse_args().steps
    programs = {"proofgrad": PROOFGRAD, "proofgrad, jitted": JITTED}
    if importlib.util.find_spec("torch") is not None:
        programs["torch"] = TORCH
    print(f"MB above the start, {steps} training steps of a CNN")
    for name, setup in programs.items():
        if name != "torch":
            megabytes(setup, steps)  # so that the next one compiles nothing
        print(f"{name:<18} {megabytes(setup, steps):8.1f}")


if __name__ == "__main__":
    main()
