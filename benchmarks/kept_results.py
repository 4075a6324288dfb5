"""Results of benchmarks as numbers, and kept as JSON to be compared later.

Owns: geomean, percentiles, the file. Does not own: measuring, tables for people.

A file has `format`, which is raised when the meaning of a field changes; `what` was measured, `when`, on which `machine`, with
which `calibration`, `versions` and `settings`; `lines` and their `summary`.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FORMAT = 1
FOLDER = Path(__file__).resolve().parent / "results"
PACKAGES = ("torch", "numpy", "jax", "tinygrad", "onnxruntime", "openvino", "llvmlite")
# Of the environment, what changes kernels or those of peers.
SETTINGS = (
    "CPU_TARGET", "NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA",
    "CALIBRATION", "FASTMATH", "CHOICES", "NOOPT",
)  # fmt: skip


def geomean(ratios: Sequence[float]) -> float:
    """Raises: ValueError for none."""
    if not ratios:
        raise ValueError("no ratios")
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def percentile(ratios: Sequence[float], percent: float) -> float:
    """So many of a hundred are at most as large: the nearest of those that there are."""
    ordered = sorted(ratios)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(percent / 100 * len(ordered)) - 1))]


def machine() -> str:
    """The processor by the name that it gives itself, and the threads that kernels have."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = found[0] if found else platform.processor() or platform.machine()
    from proofgrad import Device

    return f"{name}, {Device['CPU'].target.threads} threads"


def calibration() -> str:
    """What `python -m proofgrad calibrate` changed of this machine's description."""
    from proofgrad import calibrate

    return calibrate.state()


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def keep(
    what: str, lines: list[dict[str, Any]], summary: dict[str, Any], folder: Path, **more: Any
) -> Path:
    """Write a file, whole or not at all; its path."""
    now = datetime.datetime.now(datetime.UTC)
    settings = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    content = {
        "format": FORMAT, "what": what, "when": now.isoformat(timespec="seconds"), "machine": machine(),
        "calibration": calibration(), "versions": versions(), "settings": settings, **more, "summary": summary, "lines": lines,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{what.replace(' ', '-')}-{now:%Y%m%d-%H%M%S}.json"
    descriptor, unfinished = tempfile.mkstemp(dir=folder, prefix=".new-")
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=1)
    os.replace(unfinished, path)
    return path
