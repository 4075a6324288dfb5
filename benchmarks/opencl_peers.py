"""OpenCL beside tinygrad's on the same device, in one run.

Usage: python benchmarks/opencl_peers.py [--only TEXT ...] [--rounds 3] [--results FOLDER]

Products, convolutions, softmax, layernorm, blocks of GPT-2, sums, elementwise, recorded by TinyJit in both. Each is a process of its own,
in turn with the other, and the least time of each counts; a ratio above 1 means that ours is faster. Without tinygrad (extra
`compare`) ours are timed alone. The device is the first that ours takes (docs/devices.md); tinygrad is given the same
OpenCL loader, and the run ends if it opens another device.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from kept_results import FOLDER, geomean, keep
from peer_workloads import Limit, Workload
from side_by_side import Run, Worker, in_turn, serve

OURS, PEER = "proofgrad", "tinygrad"
MAPS = Path("/proc/self/maps")


def _workload(name: str, kind: str, *sizes: int) -> Workload:
    return Workload(name, kind, sizes, Limit.NONE, 1.0, "")


WORKLOADS = (
    _workload("product 512", "product", 512, 512, 512),
    _workload("product 501x299x703", "product", 501, 299, 703),
    _workload("product, transposed", "turned_b", 512),
    _workload("32 products of 128", "batch", 32, 128, 128, 128),
    _workload("matrix times vector", "product", 2048, 2048, 1),
    _workload("conv 3x3, 4x64x28x28", "convolution", 4, 64, 64, 28, 3, 1),
    _workload("conv 7x7/2, 1x3x112x112", "convolution", 1, 3, 64, 112, 7, 2),
    _workload("conv 1x1, 4x128x14x14", "convolution", 4, 128, 512, 14, 1, 1),
    _workload("softmax 1024", "softmax", 1024, 1024),
    _workload("softmax 999x1001", "softmax", 999, 1001),
    _workload("layernorm 1024", "layernorm", 1024, 1024),
    _workload("attention 4x256x64", "attention", 4, 256, 64),
    _workload("GPT-2 block, 64 tokens", "block", 64),
    _workload("GPT-2 block, 1 token", "block", 1),
    _workload("sum 4M", "sum", 2048, 2048),
    _workload("sum 1001x1003", "sum", 1001, 1003),
    _workload("sum axis 0", "sum_axis0", 2048, 2048),
    _workload("elementwise 4M", "elementwise", 2048, 2048),
    _workload("gelu 4M", "gelu", 2048, 2048),
    _workload("transpose 2048", "transpose", 2048, 2048),
)


def answer(framework: str, request: dict[str, Any]) -> Run | dict[str, Any]:
    """A call of a workload; or the name of the device. Raises: NotImplementedError, ImportError."""
    if framework == PEER:
        give_loader_to_peer()
    if "name" not in request:
        return {"device": device_of(framework)}
    import peer_lazy

    workload = next(workload for workload in WORKLOADS if workload.name == request["name"])
    return peer_lazy.run_of(workload, framework)


def give_loader_to_peer() -> None:
    """Let tinygrad open the OpenCL loader that pyopencl's wheel brings, with the drivers that ours finds."""
    if "OPENCL_PATH" in os.environ:
        return
    from proofgrad.backends.opencl.wheels import name_drivers_of_wheels

    name_drivers_of_wheels()
    import pyopencl

    pyopencl.get_platforms()  # the loader looks for drivers
    names = [line.split()[-1] for line in MAPS.read_text().splitlines() if "libOpenCL" in line]
    if names:
        os.environ["OPENCL_PATH"] = names[0]


def device_of(framework: str) -> str:
    """The name that the driver has for the device. Raises: NotImplementedError where it does not open."""
    if framework == OURS:
        from proofgrad import Device

        return str(Device["CL"].label)  # type: ignore[attr-defined]
    from tinygrad import Device as Theirs

    try:
        return str(Theirs["CL"].device_name)
    except (RuntimeError, OSError, AttributeError) as error:
        raise NotImplementedError(f"tinygrad opens no OpenCL device: {error}") from error


def measured(
    workloads: list[Workload], workers: dict[str, Worker], rounds: int
) -> list[dict[str, Any]]:
    """A line for each workload, printed as it comes."""
    print(f"{'':26}{'ours, ms':>12}{'tinygrad, ms':>14}{'ratio':>8}{'first call, s':>15}")
    lines = []
    for workload in workloads:
        times = in_turn(workers, {"name": workload.name}, rounds)
        line: dict[str, Any] = {"workload": workload.name, "first": times[OURS].first}
        line["seconds"] = {name: [t.least, t.middle] for name, t in times.items()}
        shown = f"{times[OURS].least * 1e3:>12.3f}{'-':>14}{'':>8}"
        if PEER in times:
            line["ratio"] = times[PEER].least / times[OURS].least
            shown = f"{times[OURS].least * 1e3:>12.3f}{times[PEER].least * 1e3:>14.3f}{line['ratio']:>8.2f}"
        print(f"{workload.name:26}{shown}{line['first']:>15.2f}", flush=True)
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder for the JSON file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return serve(lambda request: answer(options.worker, request))
    workloads = [w for w in WORKLOADS if any(text in w.name for text in options.only)]
    if not workloads:
        parser.error(f"no workload has {' or '.join(options.only)} in its name")
    with tempfile.TemporaryDirectory() as cache:
        workers, devices = {}, {}
        for name in (OURS, PEER):
            folder = str(Path(cache) / name)
            environment = {"PROOFGRAD_CACHE": folder, "XDG_CACHE_HOME": folder, "DEV": "CL"}
            environment["POCL_CACHE_DIR"] = str(Path(folder) / "pocl")
            Path(environment["POCL_CACHE_DIR"]).mkdir(parents=True)
            workers[name] = Worker([__file__, "--worker", name], environment)
            found = workers[name].ask({"about": "device"})
            devices[name] = found.get("device", "")
            if not devices[name]:
                print(f"{name} is not timed: {found['missing']}")
                workers.pop(name).close()
        if OURS not in workers:
            parser.error("no OpenCL device")
        if PEER in workers and devices[OURS] != devices[PEER]:
            parser.error(f"two devices: {devices[OURS]}, and {devices[PEER]} for tinygrad")
        print(f"on {devices[OURS]}")
        lines = measured(workloads, workers, options.rounds)
        for worker in workers.values():
            worker.close()
    ratios = [line["ratio"] for line in lines if "ratio" in line]
    summary: dict[str, Any] = {"lines": len(lines)}
    if ratios:
        summary |= {"geomean": geomean(ratios), "least": min(ratios)}
        print(
            f"{len(ratios)} lines beside tinygrad: geomean {summary['geomean']:.2f}, least {summary['least']:.2f}"
        )
    path = keep("opencl peers", lines, summary, options.results, device=devices[OURS])
    print(f"kept in {path}")
    return None


if __name__ == "__main__":
    sys.exit(main())
