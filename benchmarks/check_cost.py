"""What CHECK=1 costs: processor time of cold compiles with it and without, program by program.

Usage: python benchmarks/check_cost.py [--rounds 3] [NAME ...]

Each process compiles every program once, with an empty cache and no plans of earlier ones; processes with CHECK=1 and
CHECK=0 alternate. Printed are the medians over processes, in milliseconds of processor time of all threads. What a
process pays once, for the first program of all ("first"), has a line of its own and is part of the total. "inside" is what
the check itself takes, by the clock of its thread, and "share" its part of the rest, which does not depend on what else
the machine does meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median

import numpy
import workloads

from proofgrad import Device, Tensor
from proofgrad.core.tensor.runtime.realize import compile_only, compiler

Program = Callable[[], object]
Cost = tuple[float, float, int]  # seconds, those inside of the check, kernels


def _data(*shape: int) -> Tensor:
    return Tensor(numpy.random.default_rng(0).normal(size=shape).astype(numpy.float32))


def _positions(*shape: int, below: int) -> Tensor:
    drawn = numpy.random.default_rng(1).integers(0, below, shape)
    return Tensor(drawn.astype(numpy.int32))


def _of(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> Callable[[], Program]:
    """A function of data of these shapes."""

    def make() -> Program:
        arrays = [_data(*shape).realize() for shape in shapes]
        return lambda: function(*arrays).realize()

    return make


def _gradient(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> Callable[[], Program]:
    def make() -> Program:
        arrays = [_data(*shape).realize() for shape in shapes]
        return lambda: Tensor.realize(*function(*arrays).sum().gradient(*arrays))

    return make


def _with_positions(
    function: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...], positions: Tensor
) -> Callable[[], Program]:
    def make() -> Program:
        data = _data(*shape).realize()
        return lambda: function(data, positions).realize()

    return make


def _product(size: int) -> Callable[[], Program]:
    return _of(lambda a, b: a @ b, (size, size), (size, size))


def _row_gradient(table: Tensor, positions: Tensor) -> Tensor:
    return (table[positions] * 2).sum().gradient(table)[0]


PROGRAMS: dict[str, Callable[[], Program]] = {
    "product 64": _product(64),
    "product 128": _product(128),
    "product 256": _product(256),
    "product 512": _product(512),
    "product of odd sizes": _of(lambda a, b: a @ b, (37, 53), (53, 41)),
    "product of halves": _of(lambda a, b: a.half() @ b.half(), (96, 80), (80, 64)),
    "batched product": _of(lambda a, b: a @ b, (6, 40, 32), (6, 32, 24)),
    "gradient of a product": _gradient(lambda a, b: (a @ b).relu(), (64, 48), (48, 32)),
    "conv2d, padded": _of(lambda x, w: x.conv2d(w, padding=1), (4, 16, 28, 28), (32, 16, 3, 3)),
    "conv2d, strided": _of(lambda x, w: x.conv2d(w, stride=2), (2, 3, 33, 33), (16, 3, 5, 5)),
    "gradient of conv2d": _gradient(
        lambda x, w: x.conv2d(w, padding=1), (2, 8, 12, 12), (8, 8, 3, 3)
    ),
    "max_pool2d": _of(lambda x: x.max_pool2d(), (8, 16, 24, 24)),
    "softmax": _of(lambda x: x.softmax(), (64, 257)),
    "log_softmax, gradient": _gradient(lambda x: x.log_softmax(), (32, 100)),
    "layernorm": _of(lambda x: x.layernorm(), (64, 384)),
    "variance": _of(lambda x: x.var(0), (100, 64)),
    "long sum": _of(lambda x: x.sum(), (1 << 18,)),
    "sum of rows": _of(lambda x: x.sum(0), (512, 300)),
    "elementwise": _of(lambda x, y: (x * y + 1).relu().exp(), (100, 77), (100, 77)),
    "functions": _of(lambda x: x.sin() + x.abs().log() * x.tanh().sigmoid(), (1000,)),
    "gelu, gradient": _gradient(lambda x: x.gelu(), (64, 64)),
    "turned and padded": _of(lambda x: x.permute(1, 0).pad(((2, 3), (1, 0))) + 1, (40, 33)),
    "integers": _of(lambda x: (x * 100).cast("int32") // 7 % 5 + 3, (999,)),
    "choices": _of(lambda x: (x > 0).where(x, x * 0.1).clip(-1, 1), (50, 50)),
    "cumsum": _of(lambda x: x.cumsum(), (1000,)),
    "sort": _of(lambda x: x.sort()[0], (8, 50)),
    "topk": _of(lambda x: x.topk(5)[0], (5, 40)),
    "gather": _with_positions(lambda x, p: x.gather(1, p), (30, 40), _positions(30, 7, below=40)),
    "rows": _with_positions(lambda x, p: x[p], (100, 32), _positions(60, below=100)),
    "gradient of rows": _with_positions(_row_gradient, (100, 32), _positions(60, below=100)),
    "scatter": _with_positions(
        lambda x, p: x.scatter_reduce(1, p, x[:, :5], "sum"), (12, 33), _positions(12, 5, below=33)
    ),
    "interpolate": _of(lambda x: x.interpolate((20, 20)), (2, 3, 11, 11)),
    "attention": _of(lambda q, k, v: q.scaled_dot_product_attention(k, v), *[(2, 4, 32, 16)] * 3),
    "mlp_step": workloads.mlp_step,
    "gpt_block": workloads.gpt_block,
    "cnn_step": workloads.cnn_step,
}


def first() -> Program:
    """The program that pays for what is loaded once."""
    return _of(lambda x: x + 1, (3,))()


def seconds_inside() -> float:
    """Processor time that the check itself has taken so far."""
    check = compiler().value_check
    return 0.0 if check is None else check.total.seconds  # type: ignore[attr-defined]


def compiled(names: list[str]) -> dict[str, Cost]:
    """What each program costs in this process."""
    found: dict[str, Cost] = {}
    for name, make in [("first", first), *[(name, PROGRAMS[name]) for name in names]]:
        program = make()
        Device[Device.DEFAULT].synchronize()
        kernels, inside = compiler().kernels_compiled, seconds_inside()
        start = time.process_time()
        with compile_only():
            program()
        seconds = time.process_time() - start
        found[name] = seconds, seconds_inside() - inside, compiler().kernels_compiled - kernels
    return found


def in_new_process(names: list[str], check: int) -> dict[str, Cost]:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "CHECK": str(check), "PLANS": "0", "PROOFGRAD_CACHE": cache}
        command = [sys.executable, os.path.abspath(__file__), "--one", *names]
        done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", action="store_true", help="of this process, as JSON")
    options = parser.parse_args()
    names = options.names or list(PROGRAMS)
    if options.one:
        print(json.dumps(compiled(names)))
        return
    runs: list[list[dict[str, Cost]]] = [[], []]
    for _ in range(options.rounds):
        for check in (0, 1):
            runs[check].append(in_new_process(names, check))
    print(
        f"{'ms':<24}{'kernels':>8}{'CHECK=0':>9}{'CHECK=1':>9}{'more':>8}{'inside':>8}{'share':>8}"
    )
    total = [0.0, 0.0, 0.0]
    for name in ("first", *names):
        medians = [1e3 * median([run[name][0] for run in side]) for side in runs]
        medians.append(1e3 * median([run[name][1] for run in runs[1]]))
        total = [a + b for a, b in zip(total, medians)]
        print(_line(name, runs[0][0][name][2], medians))
    print(_line("all", sum([cost[2] for cost in runs[0][0].values()]), total))


def _line(name: str, kernels: int, medians: list[float]) -> str:
    without, with_check, inside = medians
    more, share = with_check / without - 1, inside / (with_check - inside)
    return f"{name:<24}{kernels:>8}{without:>9.1f}{with_check:>9.1f}{more:>8.1%}{inside:>8.1f}{share:>8.1%}"


if __name__ == "__main__":
    main()
