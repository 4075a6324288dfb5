"""Checks that any machine can run: is it the machine that the compiler believes it to be?

    python -m proofgrad.testing.backend CPU

Owns: the list of checks. Each is a small program that runs on the machine and on REFERENCE, which
runs kernels in plain Python. Results agree to the bit but for sums of floats, whose order is open,
and for functions, whose steps may be contracted. Where the machine is not here, kernels are compiled
and none is run, so no check holds: that is said. The members that a backend leaves out are named with
what is lost.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from proofgrad import Device, Tensor, dtypes
from proofgrad.core.compile.machine.target import (
    LOST_WITHOUT,
    Backend,
    CompileError,
    DeviceError,
    Target,
    left_out,
)
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.nn.optim import Adam
from proofgrad.testing.closeness import assert_close

FLOAT_EDGES = (
    0.0, -0.0, 1.0, -1.5, 0.1, 255.5, 3.0e38, -3.0e38, 1e-40, 2.0**-126, float("inf"),
    -float("inf"), float("nan"),
)  # fmt: skip
SUM_TOLERANCE = 1e-4  # of sums of some hundred float32 in another order
FUNCTION_ULP = 4  # twice the published bound of each function (docs/numerics.md)
Program = Callable[[str, Target], list[Tensor]]


@dataclass(frozen=True, slots=True)
class Check:
    """A program, and how far its results may be from those of REFERENCE."""

    name: str
    program: Program
    sums: bool = False  # of floats, in any order
    ulp: int = 0


def memory(device: str, target: Target) -> list[Tensor]:
    """Bytes in and out, of sizes around those that machines round to."""
    return [
        Tensor(bytes((k * 7 + size) % 256 for k in range(size)), device).contiguous()
        for size in (1, 3, 64, 4095, 4097)
    ]


def casts(device: str, target: Target) -> list[Tensor]:
    """Every type to every other."""
    types = [kind for kind in dtypes.all if kind in target.storage]
    made = [_line(device, kind) for kind in types]
    return [line.cast(kind) for line, kind in itertools.product(made, types)]


def integers(device: str, target: Target) -> list[Tensor]:
    """Arithmetic that wraps, floors and shifts, on every pair of edges."""
    found = []
    for kind in dtypes.all:
        if kind.is_int and kind in target.storage:
            x, y = _pairs(device, kind)
            found += [x + y, x * y, x // y, x % y, x & y, x | y, x ^ y, x << y, x >> y]
            found += [x.maximum(y), x.minimum(y), -x, ~x, x < y, x.eq(y)]
    return found


def floats(device: str, target: Target) -> list[Tensor]:
    """IEEE arithmetic on every pair of edges: denormals, infinities, NaN, signed zeros."""
    found = []
    for kind in dtypes.all:
        if kind in TYPES_OF_FLOATS and kind in target.storage:
            x, y = _pairs(device, kind)
            found += [x + y, x - y, x * y, x / y, x.maximum(y), x.minimum(y), x < y, x.eq(y)]
            found += [x.sqrt(), x.trunc(), x.floor(), (x < y).where(x, y)]
    return found


def functions(device: str, target: Target) -> list[Tensor]:
    """Functions that are made of arithmetic."""
    values = [*FLOAT_EDGES, *[k * 0.37 - 9.0 for k in range(50)]]
    x = Tensor(values, device, dtypes.float32)
    return [x.exp2(), x.exp(), x.log2(), x.sin(), x.cos(), x.tanh(), x.sigmoid(), x.erf()]


def movement(device: str, target: Target) -> list[Tensor]:
    """Movement operations in a row, each computed."""
    x = Tensor(list(range(24)), device, dtypes.int32).reshape((2, 3, 4))
    return [
        (x.permute((2, 0, 1)) + 1).contiguous(),
        x.flip((0, 2)).contiguous(),
        x.pad(((1, 0), (0, 2), (1, 1))).contiguous(),
        x.shrink(((0, 1), (1, 3), (2, 4))).contiguous(),
        x.reshape((4, 1, 6)).expand((4, 3, 6)).contiguous(),
        x[:, ::2, ::-1].contiguous(),
        x.cat(x * 2, dim=1),
    ]


def reductions(device: str, target: Target) -> list[Tensor]:
    """Sums of integers, largest and smallest, over each choice of axes."""
    x = Tensor([k * 37 % 101 - 50 for k in range(210)], device, dtypes.int32).reshape((5, 6, 7))
    axes: list[Any] = [None, 0, 1, 2, (0, 2)]
    return [f for axis in axes for f in (x.sum(axis), x.max(axis), x.float().min(axis))]


def many(device: str, target: Target) -> list[Tensor]:
    """More elements than a machine has lanes or threads, in a number that nothing divides."""
    x = Tensor.arange(20011, device=device)
    return [x * x + 3, (x % 7).sum(), (x.reshape((20011, 1)) * 2).reshape((20011,)).max()]


def products(device: str, target: Target) -> list[Tensor]:
    """Matrix products, convolutions, softmax."""
    x = Tensor([(k * 13 % 29 - 14) / 14 for k in range(13 * 17)], device).reshape((13, 17))
    image = x.reshape((1, 1, 13, 17))
    kernel = x[:3, :3].reshape((1, 1, 3, 3))
    return [x @ x.transpose(0, 1), image.conv2d(kernel, padding=1), x.softmax(), x.mean(0)]


def training(device: str, target: Target) -> list[Tensor]:
    """A step of Adam through a product and a loss."""
    weight = Tensor([[0.5, -0.25], [0.125, 1.0]], device)
    optimizer = Adam([weight], lr=0.1)
    x = Tensor([[1.0, 2.0], [3.0, -1.0]], device, requires_grad=False)
    for _ in range(2):
        optimizer.zero_grad()
        ((x @ weight).tanh() - 1).square().mean().backward()
        optimizer.step()
    return [weight]


TYPES_OF_FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
CHECKS = (
    Check("memory", memory),
    Check("casts", casts),
    Check("integers", integers),
    Check("floats", floats),
    Check("functions", functions, ulp=FUNCTION_ULP),
    Check("movement", movement),
    Check("reductions", reductions),
    Check("many", many),
    Check("products", products, sums=True),
    Check("training", training, sums=True),
)


def run(name: str) -> Iterator[tuple[str, str]]:
    """Each check of the machine, and what is wrong, "" for nothing.

    Raises: DeviceError if there is no such machine here.
    """
    device = Device.canonical(name)
    target = Device[device].target
    for check in CHECKS:
        try:
            yield check.name, _problem(check, device, target)
        except (CompileError, DeviceError) as error:
            yield check.name, f"{type(error).__name__}: {error}"


def _problem(check: Check, device: str, target: Target) -> str:
    if not target.runs:
        with compile_only():
            Tensor.realize(*check.program(device, target))
        return ""
    found, expected = check.program(device, target), check.program("REFERENCE", target)
    Tensor.realize(*found)
    Tensor.realize(*expected)
    for number, (mine, reference) in enumerate(zip(found, expected, strict=True)):
        try:
            _compare(check, mine, reference)
        except AssertionError as error:
            return f"result {number} of {mine.dtype}: {error}"
    return ""


def _compare(check: Check, mine: Tensor, reference: Tensor) -> None:
    if check.sums:
        assert_close(mine, reference, rtol=SUM_TOLERANCE, atol=SUM_TOLERANCE)
        return
    assert_close(mine, reference, 0.0, 0.0, check.ulp if mine.dtype in TYPES_OF_FLOATS else None)
    if not check.ulp and mine.dtype.is_float:
        _same_zeros(mine.numpy(), reference.numpy())


def _same_zeros(first: Any, second: Any) -> None:
    import numpy

    if ((numpy.signbit(first) != numpy.signbit(second)) & (first == 0)).any():
        raise AssertionError("a zero has the wrong sign")


def _edges(kind: DType) -> list[Any]:
    if kind.is_float:
        most = {dtypes.float16: 65504.0}.get(kind, 3.0e38)
        return [x if not abs(x) < float("inf") else max(-most, min(x, most)) for x in FLOAT_EDGES]
    if kind.is_bool:
        return [False, True]
    assert kind.lo is not None and kind.hi is not None
    small = [n for n in (0, 1, -1, 2, 3, 7, 100, -100) if kind.lo <= n <= kind.hi]
    return [*small, kind.lo, kind.hi]


def _line(device: str, kind: DType) -> Tensor:
    if kind.is_float and kind not in TYPES_OF_FLOATS:
        return Tensor([0.0, 1.0, -1.5, 2.0, 0.25], device).cast(kind)
    return Tensor(_edges(kind), device, kind)


def _pairs(device: str, kind: DType) -> tuple[Tensor, Tensor]:
    pairs = list(itertools.product(_edges(kind), repeat=2))
    first, second = zip(*pairs, strict=True)
    return Tensor(list(first), device, kind), Tensor(list(second), device, kind)


def main(arguments: list[str]) -> int:
    """Print one line a check; 0 if all hold, 1 if some do not, 2 if there is no machine to run them."""
    if len(arguments) != 1:
        print("usage: python -m proofgrad.testing.backend NAME", file=sys.stderr)
        return 2
    wrong = 0
    try:
        machine = Device[Device.canonical(arguments[0])]
        runs = machine.target.runs
        for name, problem in run(arguments[0]):
            wrong += bool(problem)
            print(f"{name:<12} {problem or ('ok' if runs else 'compiles; not run')}", flush=True)
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 2
    print(_verdict(machine, wrong))
    for member in left_out(machine):
        print(f"no {member}: {LOST_WITHOUT[member]}")
    return 1 if wrong else 0 if runs else 2


def _verdict(machine: Backend, wrong: int) -> str:
    right, count = len(CHECKS) - wrong, len(CHECKS)
    if machine.target.runs:
        return f"{right} of {count} checks hold"
    return (
        f"nothing was run: {machine.name} is not on this machine. The kernels of {right} of {count}"
        " checks compile; whether their values are right is not known"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
