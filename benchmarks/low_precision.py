"""Products, convolutions and rows of bfloat16, float16 and int8, beside PyTorch and beside our float32; one thread each.

Usage: python benchmarks/low_precision.py [--only TEXT ...] [--types float16 ...] [--rounds 1] [--no-torch] [--flush]

A ratio above 1 means that ours is faster. PyTorch's products of bfloat16 and int8 use AMX, or AVX-512 BF16, where there is, for which denormal
numbers are 0; ours of bfloat16 look first whether there are any, with --flush they don't.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from side_by_side import Run, Worker, in_turn, serve

TYPES = ("bfloat16", "float16", "int8")
ONE_THREAD = {"NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Line:
    """A function of arrays of these shapes; `options` of ours say the type of integer sums."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    has_integers: bool = True


def product(rows: int, depth: int, columns: int, is_transposed: bool = False) -> Line:
    """x @ w, or x @ w.T, as a linear layer has it."""
    shape, name = (depth, columns), f"{rows} x {depth} x {columns}"
    if not is_transposed:
        return Line(
            name, ((rows, depth), shape), lambda x, w, **o: x.matmul(w, **o), lambda F, x, w: x @ w
        )
    return Line(
        f"{name}, w.T",
        ((rows, depth), shape[::-1]),
        lambda x, w, **o: x.matmul(w.T, **o),
        lambda F, x, w: x @ w.T,
    )


def rows(name: str, call: Callable[..., Any], theirs: Callable[..., Any]) -> Line:
    return Line(name, ((1024, 1000),), lambda x, **_: call(x), theirs, has_integers=False)


LINES = (
    product(512, 512, 512),
    product(1000, 1000, 1000),
    product(1024, 1024, 1024),
    product(257, 643, 129),
    product(1, 2048, 2048),
    product(1, 4096, 4096),
    product(4, 2048, 2048),
    product(16, 2048, 2048),
    product(1, 2048, 2048, True),
    product(32, 2048, 2048, True),
    product(512, 512, 512, True),
    Line(
        "conv 3x3",
        ((4, 64, 56, 56), (64, 64, 3, 3)),
        lambda x, w, **o: x.conv2d(w, padding=1, **o),
        lambda F, x, w: F.conv2d(x, w, padding=1),
    ),
    Line(
        "conv 1x1",
        ((4, 256, 28, 28), (128, 256, 1, 1)),
        lambda x, w, **o: x.conv2d(w, **o),
        lambda F, x, w: F.conv2d(x, w),
    ),
    rows("softmax", lambda x: x.softmax(-1), lambda F, x: x.softmax(-1)),
    rows("layer norm", lambda x: x.layernorm(), lambda F, x: F.layer_norm(x, x.shape[-1:])),
    rows("gelu", lambda x: x.gelu(), lambda F, x: F.gelu(x, approximate="tanh")),
    rows("sum", lambda x: x.sum(-1), lambda F, x: x.sum(-1)),
)  # fmt: skip


def arrays(line: Line, kind: str) -> list[Any]:
    generator = np.random.default_rng(0)
    if kind == "int8":
        return [generator.integers(-128, 128, shape, np.int8) for shape in line.shapes]
    return [generator.standard_normal(shape, np.float32) for shape in line.shapes]


def ours(line: Line, kind: str) -> Run:
    from proofgrad import Tensor, TinyJit, dtypes

    given = [Tensor(x).cast(kind).contiguous().realize() for x in arrays(line, kind)]
    options = {"dtype": dtypes.int32} if kind == "int8" else {}
    step = TinyJit(lambda *x: line.ours(*x, **options).realize())
    return lambda: step(*given)


def theirs(line: Line, kind: str) -> Run:
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    given = [torch.from_numpy(x).to(getattr(torch, kind)) for x in arrays(line, kind)]
    if kind != "int8":
        return lambda: line.theirs(F, *given)
    if len(given[0].shape) != 2:
        raise NotImplementedError("PyTorch has no convolution of int8 whose sums are exact")
    x, w = given[0], given[1].T if line.name.endswith("w.T") else given[1]
    return lambda: torch._int_mm(x, w)


def run_of(framework: str, request: dict[str, Any]) -> Run:
    """A call of a line in a type."""
    line = next(line for line in LINES if line.name == request["name"])
    return (ours if framework == "proofgrad" else theirs)(line, request["type"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT")
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--flush", action="store_true", help="FLUSH=1")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return serve(lambda request: run_of(options.worker, request))
    names = ("proofgrad",) if options.no_torch else ("proofgrad", "torch")
    environment = {**ONE_THREAD, "FLUSH": str(int(options.flush))}
    workers = {name: Worker([__file__, "--worker", name], environment) for name in names}
    print(f"{'':<24}{'':<10}{'ours, ms':>10}{'torch, ms':>11}{'ratio':>7}{'to float32':>12}")
    for line in [x for x in LINES if any(text in x.name for text in options.only)]:
        single = in_turn(
            {"proofgrad": workers["proofgrad"]},
            {"name": line.name, "type": "float32"},
            options.rounds,
        )
        for kind in [x for x in options.types if x != "int8" or line.has_integers]:
            found = in_turn(workers, {"name": line.name, "type": kind}, options.rounds)
            least = found["proofgrad"].least
            other = found["torch"].least if "torch" in found else math.nan
            times = f"{least * 1e3:>10.3f}{other * 1e3:>11.3f}{other / least:>7.2f}"
            print(
                f"{line.name:<24}{kind:<10}{times}{single['proofgrad'].least / least:>12.2f}",
                flush=True,
            )
    for worker in workers.values():
        worker.close()


if __name__ == "__main__":
    sys.exit(main())
