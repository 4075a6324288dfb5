"""The tests under each choice that heuristics may take: no choice changes a result.

Usage: python tests/forced_choices.py [NAME ...] [-- arguments for pytest]

Left out are those with the mark `heuristics`: they are about what is chosen if nothing is forced, or plant
errors where only that choice has a position for them.

Owns: the choices by name, the tests that are run under each. Does not own: the option `--choices`
(conftest.py), the choices (core/compile/nests/kernel_schedule.py). `pytest --choices NAME` runs any tests so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FORCED: dict[str, dict[str, str]] = {
    "plain": {"NOSCHED": "1"},
    "scalars": {"CHOICES": "tiled=off vectors=none"},
    "no-tiles": {"CHOICES": "tiled=off"},
    "small-tiles": {"CHOICES": "tiled=on tile=2x1x4 blocks=1x1 depth=1"},
    "large-tiles": {"CHOICES": "tiled=on tile=8x3x16 depth=2"},
    "odd-tiles": {"CHOICES": "tiled=on tile=3x3x2 blocks=2x3 staged=rows+columns depth=4"},
    "no-staging": {"CHOICES": "tiled=on staged=none"},
    "staging": {"CHOICES": "tiled=on staged=rows+columns"},
    "packed": {"CHOICES": "tiled=on packed=on staged=none"},
    "blocks": {"CHOICES": "tiled=on reduction_block=3"},
    "matrix-units": {"CHOICES": "matrices=1x2"},
    "short-vectors": {"CHOICES": "tiled=off vectors=*x4x2 copies=*x2"},
    "long-vectors": {"CHOICES": "tiled=off vectors=*x32x4 copies=*x4"},
    "other-loops": {"CHOICES": "tiled=off vectors=1x4 copies=0x2 buffered=off unroll=3"},
    "threads": {"CHOICES": "threads=on", "NUM_THREADS": "3"},
    "one-thread": {"CHOICES": "threads=off"},
}
# Where values of many kernels are compared with numpy, torch or force.
TESTS = (
    "test/test_ops.py",
    "tests/test_tensor_functions.py",
    "tests/test_tensor_reduce.py",
    "tests/test_tensor_windows.py",
    "tests/test_tensor_indexing.py",
    "tests/test_tensor_movement.py",
    "tests/test_tensor_properties.py",
    "tests/test_tensor_gradient.py",
    "tests/test_tiles.py",
    "tests/test_rows.py",
    "tests/test_nn_layers.py",
)


def force(name: str) -> None:
    """Let every kernel of this process and of its children be compiled so."""
    os.environ.update(FORCED[name])
    if name == "threads":  # however little there is to share
        from proofgrad import Device  # opened with what the environment says now

        Device["CPU"].parallel_instructions = 0


def main(arguments: list[str]) -> int:
    """Run the tests under each choice; how many of the choices had a test that failed."""
    names = arguments[: arguments.index("--")] if "--" in arguments else arguments
    rest = arguments[len(names) + 1 :]
    failed = 0
    for name in names or FORCED:
        start = time.perf_counter()
        command = [sys.executable, "-m", "pytest", "-q", "--choices", name, "-m", "not heuristics"]
        status = subprocess.run([*command, *TESTS, *rest], cwd=ROOT, check=False).returncode
        failed += status != 0
        end = "passed" if status == 0 else f"FAILED with {status}"
        print(f"--choices {name}: {end} in {time.perf_counter() - start:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
