"""Kernels on an NVIDIA GPU beside torch's on the same one, in one run: by the GPU's own clock, values compared.

    python benchmarks/gpu_peers.py [--only TEXT ...] [--small] [--seconds 240] [--results FOLDER]
    python benchmarks/gpu_peers.py --page FILE      the table of docs/performance.md, from kept results

Ours are recorded by TinyJit, torch's are called as its users do (float32 products are float32; where a line says tf32, both are asked for it). A sample is as many
calls as fill some milliseconds, between two events; ours and torch's take turns, and the median of each counts. What the
machine can do at most is measured, too: a copy of memory, and torch's product of 8192 rows. `--small`: sizes that an emulated
GPU can run (MOCKGPU=1), ours alone, to try this script.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from kept_results import FOLDER, geomean, keep

from proofgrad import Context, Device, Tensor, TinyJit
from proofgrad.core.ir.dtypes import dtypes

SAMPLE_SECONDS, SAMPLES = 4e-3, 9
MOST_CALLS = 200
TOLERANCE = {
    "float32": 1e-4,
    "float64": 1e-10,
    "bfloat16": 2e-2,
    "float16": 3e-3,
    "int8": 0.0,
    "tf32": 2e-3,
}


@dataclass(frozen=True, slots=True)
class Workload:
    """Inputs by their shapes, what both compute of them, and the work in it."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Tensor]
    peer: Callable[..., Any]
    operations: int = 0
    nbytes: int = 0
    is_rounded: bool = False  # factors, to TF32: ours with ALLOW_TF32=1, torch with allow_tf32


def product(n: int, k: int, m: int, dtype: str, turned: str = "") -> Workload:
    """Of matrices; `turned`: B is read transposed."""
    name = f"product {n}x{k}x{m} {dtype}{turned and f', {turned}'}"
    work = 2 * n * k * m
    if dtype == "int8":  # torch has its own name for it
        return Workload(name, dtype, ((n, k), (k, m)), lambda a, b: a.matmul(b, dtype=dtypes.int32),
                        lambda a, b: _torch()._int_mm(a, b), work)  # fmt: skip
    if turned:
        return Workload(name, dtype, ((n, k), (m, k)), lambda a, b: a @ b.T, lambda a, b: a @ b.T, work)  # fmt: skip
    read = n * k * getattr(dtypes, dtype).itemsize if m == 1 else 0  # all there is to a vector
    return Workload(
        name, dtype, ((n, k), (k, m)), lambda a, b: a @ b, lambda a, b: a @ b, work, read
    )


def attention(heads: int, tokens: int, width: int, dtype: str, causal: bool = False) -> Workload:
    """Of one sequence."""
    name = f"attention {heads}x{tokens}x{width} {dtype}{', causal' if causal else ''}"
    shape = (1, heads, tokens, width)
    return Workload(
        name,
        dtype,
        (shape,) * 3,
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=causal),
        lambda q, k, v: _functional().scaled_dot_product_attention(q, k, v, is_causal=causal),
        4 * heads * tokens * tokens * width // (1 + causal),
    )


def convolution(
    n: int, c: int, o: int, size: int, window: int, stride: int, dtype: str
) -> Workload:
    """Of padded images."""
    name = f"conv {window}x{window}/{stride} {n}x{c}x{size}x{size}->{o} {dtype}"
    pad = window // 2
    out = (size + 2 * pad - window) // stride + 1
    return Workload(
        name,
        dtype,
        ((n, c, size, size), (o, c, window, window)),
        lambda x, w: x.conv2d(w, stride=stride, padding=pad),
        lambda x, w: _functional().conv2d(x, w, stride=stride, padding=pad),
        2 * n * o * out * out * c * window * window,
    )


def in_tf32(workload: Workload) -> Workload:
    """The same with its factors rounded for matrix units."""

    def ours(*arguments: Tensor) -> Tensor:
        with Context(ALLOW_TF32=1):
            return workload.ours(*arguments)

    def peer(*arguments: Any) -> Any:
        switches = _torch().backends.cuda.matmul, _torch().backends.cudnn
        for switch in switches:
            switch.allow_tf32 = True
        result = workload.peer(*arguments)
        for switch in switches:
            switch.allow_tf32 = False
        return result

    name = workload.name.replace("float32", "tf32")
    return replace(workload, name=name, ours=ours, peer=peer, is_rounded=True)


def rows(
    name: str, shape: tuple[int, ...], dtype: str, ours: Any, peer: Any, passes: int
) -> Workload:
    """What is bound by memory: `passes` over so many elements."""
    count = 1
    for size in shape:
        count *= size
    label = f"{name} {'x'.join(map(str, shape))} {dtype}"
    width = getattr(dtypes, dtype).itemsize
    return Workload(label, dtype, (shape,), ours, peer, 0, passes * count * width)


def workloads(small: bool) -> list[Workload]:
    """All of them; small ones have an eighth of each side."""

    def s(n: int) -> int:
        return max(1, n // 32) if small else n

    big, odd = (s(4096), s(4096)), (s(3001), s(5003))
    wide = (s(8192), s(16384))
    return [
        product(s(4096), s(4096), s(4096), "float32"),
        product(s(4096), s(4096), s(4096), "bfloat16"),
        product(s(8192), s(8192), s(8192), "bfloat16"),
        product(s(4096), s(4096), s(4096), "bfloat16", "B.T"),
        product(s(4096), s(4096), s(4096), "float16"),
        product(s(4096), s(4096), s(4096), "int8"),
        product(s(2048), s(2048), s(2048), "float64"),
        in_tf32(product(s(4096), s(4096), s(4096), "float32")),
        in_tf32(product(s(4096), s(4096), s(4096), "float32", "B.T")),
        in_tf32(product(s(1024), s(1024), s(1024), "float32")),
        product(s(1024), s(1024), s(1024), "float32"),
        product(s(1024), s(1024), s(1024), "bfloat16"),
        product(s(1000), s(700), s(900), "float32"),
        product(s(4001), s(3001), s(2003), "bfloat16"),
        product(s(4096), s(4096), 1, "float32"),
        product(s(4096), s(4096), 1, "bfloat16"),
        attention(4 if small else 32, s(4096), 64, "bfloat16"),
        attention(4 if small else 32, s(4096), 64, "bfloat16", True),
        attention(4 if small else 32, s(4096), 128, "bfloat16"),
        attention(2 if small else 16, s(1024), 64, "float32"),
        in_tf32(attention(4 if small else 32, s(4096), 64, "float32")),
        convolution(1 if small else 32, 64, 64, s(56), 3, 1, "float32"),
        in_tf32(convolution(1 if small else 32, 64, 64, s(56), 3, 1, "float32")),
        convolution(1 if small else 32, 64, 64, s(56), 3, 1, "bfloat16"),
        convolution(1 if small else 32, 256, 512, s(14), 1, 1, "float32"),
        convolution(1 if small else 16, 3, 64, s(224), 7, 2, "float32"),
        rows("softmax", wide, "float32", lambda x: x.softmax(), lambda x: x.softmax(-1), 2),
        rows("softmax", odd, "float32", lambda x: x.softmax(), lambda x: x.softmax(-1), 2),
        rows("softmax", (s(1 << 18), 64), "float32", lambda x: x.softmax(), lambda x: x.softmax(-1), 2),
        rows("layernorm", wide, "float32", lambda x: x.layernorm(), lambda x: _functional().layer_norm(x, x.shape[-1:]), 2),
        rows("layernorm", wide, "bfloat16", lambda x: x.layernorm(), lambda x: _functional().layer_norm(x, x.shape[-1:]), 2),
        rows("sum", wide, "float32", lambda x: x.sum(), lambda x: x.sum(), 1),
        rows("sum", odd, "float32", lambda x: x.sum(), lambda x: x.sum(), 1),
        rows("sum axis 0", wide, "float32", lambda x: x.sum(0), lambda x: x.sum(0), 1),
        rows("sum axis 1", wide, "float32", lambda x: x.sum(1), lambda x: x.sum(1), 1),
        rows("argmax axis 1", wide, "float32", lambda x: x.argmax(1), lambda x: x.argmax(1), 1),
        rows("elementwise", wide, "float32", lambda x: (x * 2 + 1).relu() * x - 3, lambda x: (x * 2 + 1).relu() * x - 3, 2),
        rows("gelu", wide, "bfloat16", lambda x: x.gelu(), lambda x: _functional().gelu(x, approximate="tanh"), 2),
        rows("copy", wide, "float32", lambda x: x * 1.5, lambda x: x * 1.5, 2),
        rows("transpose", wide, "float32", lambda x: x.T.contiguous(), lambda x: x.T.contiguous(), 2),
        rows("transpose", odd, "float32", lambda x: x.T.contiguous(), lambda x: x.T.contiguous(), 2),
        rows("cumsum axis 1", big, "float32", lambda x: x.cumsum(1), lambda x: x.cumsum(1), 2),
        rows("cumsum axis 0", big, "float32", lambda x: x.cumsum(0), lambda x: x.cumsum(0), 2),
        rows("cummax axis 1", big, "float32", lambda x: x.cummax(1)[0], lambda x: x.cummax(1)[0], 2),
        rows("max_pool", (4 if small else 32, 64, s(112), s(112)), "float32", lambda x: x.max_pool2d(3, 2, 1),
             lambda x: _functional().max_pool2d(x, 3, 2, 1), 1),
        rows("sort axis 1", (s(4096), s(1024)), "float32", lambda x: x.sort(1)[0], lambda x: x.sort(1)[0], 2),
    ]  # fmt: skip


def _torch() -> Any:
    import torch

    return torch


def _functional() -> Any:
    import torch.nn.functional as functional

    return functional


class Peer:
    """torch on the GPU."""

    def __init__(self) -> None:
        self.torch = _torch()
        self.torch.backends.cuda.matmul.allow_tf32 = False
        self.torch.backends.cudnn.allow_tf32 = False
        self.torch.set_grad_enabled(False)
        self.name = str(self.torch.cuda.get_device_name())

    def ready(self, array: Any, dtype: str) -> Any:
        return self.torch.from_numpy(array).cuda().to(getattr(self.torch, dtype))

    def timed(self, work: Callable[[], Any]) -> float:
        """Seconds of the GPU."""
        before, after = [self.torch.cuda.Event(enable_timing=True) for _ in range(2)]
        before.record()
        work()
        after.record()
        self.torch.cuda.synchronize()
        return float(before.elapsed_time(after)) / 1000

    def values(self, result: Any) -> Any:
        return result.double().cpu().numpy()

    def limits(self) -> dict[str, float]:
        """Bytes a second of a copy, operations a second of a bf16 product."""
        one = self.torch.empty(1 << 30, dtype=self.torch.uint8, device="cuda")
        other = self.torch.empty_like(one)
        copies = calls_of(lambda: other.copy_(one), self.timed)
        a = self.torch.randn(8192, 8192, device="cuda").bfloat16()
        products = calls_of(lambda: a @ a, self.timed)
        f = self.torch.randn(4096, 4096, device="cuda")
        floats = calls_of(lambda: f @ f, self.timed)
        return {
            "copy": 2 * (1 << 30) / median(copies()),
            "bfloat16": 2 * 8192**3 / median(products()),
            "float32": 2 * 4096**3 / median(floats()),
        }


def calls_of(
    run: Callable[[], Any], timed: Callable[[Callable[[], Any]], float]
) -> Callable[[], list[float]]:
    """Takes some samples of seconds a call. It is called some times before the first."""
    for _ in range(3):
        run()
    once = max(1e-7, min(timed(run), timed(run)))
    count = min(MOST_CALLS, max(1, int(SAMPLE_SECONDS / once)))

    def repeated() -> None:
        for _ in range(count):
            run()

    return lambda: [timed(repeated) / count for _ in range(SAMPLES // 3)]


def inputs_of(workload: Workload) -> list[Any]:
    """float32 arrays, or of small integers."""
    import numpy

    rng = numpy.random.default_rng(0)
    if workload.dtype == "int8":
        return [rng.integers(-9, 9, shape).astype(numpy.int8) for shape in workload.shapes]
    return [rng.standard_normal(shape, numpy.float32) for shape in workload.shapes]


def difference(ours: Any, theirs: Any) -> float:
    """The norm of the difference by that of what is expected."""
    import numpy

    scale = float(numpy.linalg.norm(theirs.ravel())) or 1.0
    return float(numpy.linalg.norm((ours - theirs).ravel())) / scale


def measured(workload: Workload, peer: Peer | None) -> dict[str, Any]:
    """One line: seconds of both, of our first call, the difference, kernels."""
    machine = Device["CUDA"]
    arrays = inputs_of(workload)
    given = [Tensor(array, device="CUDA").cast(workload.dtype).contiguous().realize() for array in arrays]  # fmt: skip
    step = TinyJit(lambda *arguments: workload.ours(*arguments).realize())
    machine.synchronize()
    start = time.perf_counter()
    result = step(*given)
    machine.synchronize()
    line: dict[str, Any] = {
        "workload": workload.name,
        "first": time.perf_counter() - start,
        "operations": workload.operations,
        "bytes": workload.nbytes,
    }
    ours, theirs = calls_of(lambda: step(*given), machine.timed), None
    if peer is not None:
        taken = [peer.ready(array, workload.dtype) for array in arrays]
        expected = workload.peer(*taken)
        if "argmax" not in workload.name:  # of equal ones torch takes another
            values = step(*given).cast("float64").numpy()
            line["difference"] = difference(values, peer.values(expected))
        theirs = calls_of(lambda: workload.peer(*taken), peer.timed)
    del result
    samples: dict[str, list[float]] = {"ours": [], "torch": []}
    for _ in range(3):
        samples["ours"] += ours()
        samples["torch"] += theirs() if theirs is not None else []
    line["seconds"] = {name: median(found) for name, found in samples.items() if found}
    if theirs is not None:
        line["ratio"] = line["seconds"]["torch"] / line["seconds"]["ours"]
    return line


def shown(line: dict[str, Any], limits: dict[str, float]) -> str:
    """For people."""
    times = line["seconds"]
    speed = ""
    if not line["bytes"]:
        speed = f"{line['operations'] / times['ours'] / 1e12:8.1f} TFLOP/s"
    else:
        share = f" ({line['bytes'] / times['ours'] / limits['copy']:.0%})" if limits else ""
        speed = f"{line['bytes'] / times['ours'] / 1e9:8.0f} GB/s{share}"
    theirs = f"{times['torch'] * 1e6:12.1f}{line['ratio']:8.2f}" if "ratio" in line else f"{'-':>12}{'':8}"  # fmt: skip
    error = f"{line['difference']:10.1e}" if "difference" in line else f"{'-':>10}"
    return f"{line['workload']:42}{times['ours'] * 1e6:12.1f}{theirs}{error}{line['first']:8.2f} {speed}"


def page(path: Path) -> str:
    """A table for people, of kept results."""
    kept = json.loads(path.read_text())
    limits = kept["summary"]["limits"]
    rows = ["| | ours, us | torch, us | ratio | of the limit | first call, s |", "|---|---|---|---|---|---|"]  # fmt: skip
    for line in kept["lines"]:
        ours, theirs = line["seconds"]["ours"], line["seconds"]["torch"]
        dtype = line["workload"].split(",")[0].split()[-1]
        share = "-"
        limits["float16"], limits["tf32"] = (
            limits["bfloat16"],
            limits["bfloat16"] / 2,
        )  # of the same units
        if line["bytes"]:
            share = f"{line['bytes'] / ours / limits['copy']:.0%}"
        elif dtype in limits:
            share = f"{line['operations'] / ours / limits[dtype]:.0%}"
        cells = line["workload"], f"{ours * 1e6:.1f}", f"{theirs * 1e6:.1f}", f"{line['ratio']:.2f}", share, f"{line['first']:.2f}"  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no line after so many")
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder for the JSON file")
    parser.add_argument("--page", type=Path, metavar="FILE", help="print the table of kept results")
    options = parser.parse_args()
    if options.page:
        print(page(options.page))
        return 0
    if not options.small and not _torch().cuda.is_available():
        parser.error(
            "torch has no GPU here; --small runs ours alone, in an emulator with MOCKGPU=1"
        )
    started = time.perf_counter()
    peer = None if options.small else Peer()
    limits = {} if peer is None else peer.limits()
    print(f"on {Device['CUDA'].identity}", *[f"{k} {v:.3e}" for k, v in limits.items()], sep=", ")
    print(f"{'':42}{'ours, us':>12}{'torch, us':>12}{'ratio':>8}{'apart':>10}{'first, s':>8}")
    lines, failed = [], 0
    for workload in workloads(options.small):
        if not any(text in workload.name for text in options.only):
            continue
        if time.perf_counter() - started > options.seconds:
            print(f"{workload.name}: not begun, {options.seconds:.0f} s are over")
            continue
        try:
            line = measured(workload, peer)
        except Exception:  # the other lines are worth having; this one fails the run
            failed += 1
            print(f"{workload.name}: failed\n{traceback.format_exc()[-1500:]}", flush=True)
            continue
        if (
            line.get("difference", 0.0)
            > TOLERANCE["tf32" if workload.is_rounded else workload.dtype]
        ):
            failed += 1
            print(f"{workload.name}: WRONG VALUES")
        print(shown(line, limits), flush=True)
        lines.append(line)
    ratios = [line["ratio"] for line in lines if "ratio" in line]
    summary: dict[str, Any] = {"lines": len(lines), "failed": failed, "limits": limits}
    if ratios:
        summary |= {"geomean": geomean(ratios), "least": min(ratios)}
        print(f"{len(ratios)} lines beside torch: geomean {geomean(ratios):.2f}, least {min(ratios):.2f}")  # fmt: skip
    keep("gpu peers", lines, summary, options.results, device=Device["CUDA"].identity)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
