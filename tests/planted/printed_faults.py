"""Faults planted in the text of kernels: are the values wrong, and does CHECK=2 find it?

    python tests/planted/printed_faults.py --seed 1 --each 8

Owns: the run of a fault, the table. Does not own: the kinds of fault (printed_text.py), the programs (printed_programs.py).

A fault is *live* if the kernel leaves other values than without it in some memory that CHECK=2 does not draw, beginning where vectors
are aligned or not, the items of its threads together or in parts; or if it dies. Values that are off by rounding alone, as those
of a sum in another order, are no other values: which order is not specified.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy

if __name__ == "__main__":  # else the folder of tests is found already
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted.plant import in_a_fork  # noqa: E402
from planted.printed_programs import PROGRAMS  # noqa: E402
from planted.printed_text import Change, changes  # noqa: E402
from proofgrad import Context  # noqa: E402
from proofgrad.core.compile.machine.target import CompileError  # noqa: E402
from proofgrad.core.compile.plan.plan import Kernel  # noqa: E402
from proofgrad.core.ir.op_names import PARAM  # noqa: E402
from proofgrad.core.ir.uop import UOp, toposort  # noqa: E402
from proofgrad.core.tensor.runtime.realize import compiler  # noqa: E402
from proofgrad.verify.sampled.expected import CheckError  # noqa: E402
from proofgrad.verify.sampled.freedom import unit  # noqa: E402
from proofgrad.verify.sampled.inputs import ENDS, KINDS, WHOLE, element  # noqa: E402
from proofgrad.verify.sampled.kernels import ValueChecker, _parts  # noqa: E402
from proofgrad.verify.sampled.launched import _as_bytes, _as_values  # noqa: E402

SECONDS = 8  # of a process's own time for a fault, and for its check
AROUND = 512  # bytes behind memory
# What a value may be off by rounding: so many units of its type, of the largest one.
ROUNDINGS = 64


@dataclass(frozen=True, slots=True)
class Made:
    """A body and its kernels."""

    body: UOp
    kernels: tuple[Kernel, ...]

    def with_fault(self, which: int, change: Change) -> Made:
        """With a fault in the text of one. Raises: CompileError where that is no text of LLVM."""
        old = self.kernels[which]
        source = replace(old.source, text=change.of(old.source.text))
        new = replace(old, source=source, compiled=old.backend.compile(source), loaded=None)
        return Made(self.body, (*self.kernels[:which], new, *self.kernels[which + 1 :]))


@dataclass(frozen=True, slots=True)
class Try:
    """Memory that a kernel is run in, of which kind and drawn with which seed; how many bytes behind a cache line it begins."""

    kind: int
    seed: int
    offset: int = 0
    in_parts: bool = False


SEEDS = (13, 14)  # others than those of CHECK=2
TRIES = [
    *[Try(kind, seed) for seed in SEEDS for kind in range(KINDS)],
    Try(ENDS, 15, 8), Try(WHOLE, 16, 24, True), Try(ENDS, 16, 0, True),
]  # fmt: skip


class _Kept(ValueChecker):
    """Keeps bodies and their kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Made] = []

    def kernels(self, body: UOp, kernels: Sequence[Kernel]) -> None:
        self.made.append(Made(body, tuple(kernels)))


def kernels_of(name: str) -> list[Made]:
    """The kernels of a program, each with its body."""
    program, choices = PROGRAMS[name]
    kept, before = _Kept(), compiler().value_check
    compiler().forget()
    compiler().value_check = kept
    try:
        with Context(CHECK=1, PLANS=0, CHOICES=choices):
            program().realize()
    finally:
        compiler().value_check = before
    return kept.made


# -- a run -----------------------------------------------------------------------------------------


def _left(made: Made, one: Try) -> tuple[Any, bytes]:
    """The values that kernels leave in the memory of a result, and what lies behind it."""
    nodes, backend = toposort((made.body,)), made.kernels[-1].backend
    linear = [k.source.program for k in made.kernels if k.source.program is not None]
    parts = _parts(nodes, linear, [kernel.slots for kernel in made.kernels])
    memory: dict[int, Any] = {}

    def place(slot: int, data: Any) -> None:
        whole = backend.alloc(data.nbytes + one.offset + AROUND)
        whole.view[:] = b"\x5a" * len(whole.view)
        memory[slot] = backend.part(whole, one.offset)
        memory[slot].view[: data.nbytes] = memoryview(data)

    for node in [n for n in nodes if n.op is PARAM]:
        index = numpy.arange(node.arg[1])
        kinds = numpy.full(index.shape, one.kind)
        values = element(node.arg[0], node.dtype, index, kinds, one.seed)
        place(node.arg[0], _as_bytes(values, node.dtype))
    for kernel, part in zip(made.kernels, parts):
        if part.written not in memory:
            place(part.written, numpy.full(part.size * part.dtype.itemsize, 0x7F, numpy.uint8))
        _launch(kernel, [memory[slot] for slot in kernel.slots], one.in_parts)
    last = parts[-1]
    size = last.size * last.dtype.itemsize
    found = bytes(memory[last.written].view)
    return _as_values(numpy.frombuffer(found[:size], numpy.uint8).copy(), last.dtype), found[size:]


def _launch(kernel: Kernel, handles: list[Any], in_parts: bool) -> None:
    """All items of a kernel's threads, or a third of them after the other, the last ones first."""
    launch: Any = kernel.ready()
    size = launch.size if in_parts else 1
    if size < 2:
        launch(handles)
        return
    table = (ctypes.c_void_p * len(handles))(*[handle.address for handle in handles])
    types = None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
    call, third = ctypes.CFUNCTYPE(*types)(launch.address), size // 3 + 1
    for first in reversed(range(0, size, third)):
        call(ctypes.addressof(table), first, min(size, first + third))


def _differ(made: Made, other: Made) -> bool:
    """Whether kernels leave other values than others, beyond rounding, or write behind their memory."""
    dtype = made.body.src[0].dtype
    for one in TRIES:
        (values, behind), (others, behind_others) = _left(made, one), _left(other, one)
        same = (values == others) | ((values != values) & (others != others))
        if behind != behind_others:
            return True
        if same.all():
            continue
        if not dtype.is_float:
            return True
        with numpy.errstate(all="ignore"):
            a, b = values[~same].astype(numpy.float64), others[~same].astype(numpy.float64)
            size = numpy.where(numpy.isfinite(values), abs(values), 0).max()
            near = abs(a - b) <= ROUNDINGS * unit(dtype) * float(size)
        if not near.all():
            return True
    return False


# -- one fault -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a fault."""

    change: Change
    is_text: bool = True
    is_live: bool = False
    is_found: bool = False

    @property
    def is_missed(self) -> bool:
        return self.is_live and not self.is_found


def outcome(made: Made, which: int, change: Change) -> Outcome:
    """Is a fault live, and does CHECK=2 find it? A kernel that dies there is found."""

    def run(tell: Callable[[Any], None]) -> None:
        try:
            other = made.with_fault(which, change)
            other.kernels[which].ready()
        except CompileError:
            tell("no text")
            return
        tell("planted")
        tell(_differ(made, other))

    def check(tell: Callable[[Any], None]) -> None:
        other = made.with_fault(which, change)
        with Context(CHECK=2):
            try:
                ValueChecker().kernels(other.body, other.kernels)
            except CheckError:
                tell("found")
                return
        tell("missed")

    told = in_a_fork(run, SECONDS)
    if told[:1] != ["planted"] or told[1:] == [False]:
        return Outcome(change, is_text=told[:1] == ["planted"])
    return Outcome(change, is_live=True, is_found=in_a_fork(check, SECONDS)[-1] != "missed")


def faults_of(made: Made, draw: random.Random) -> Iterator[tuple[int, Change]]:
    """A fault of each kind that the text of each kernel can have."""
    for which, kernel in enumerate(made.kernels):
        by_kind: dict[str, list[Change]] = defaultdict(list)
        for change in changes(kernel.source.text):
            by_kind[change.kind].append(change)
        for kind in draw.sample(sorted(by_kind), len(by_kind)):
            yield which, draw.choice(by_kind[kind])


def main(arguments: Sequence[str]) -> int:
    """Plant a few faults in each kernel of each program; a table, and 1 if one was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=8, help="faults in each kernel")
    parser.add_argument("--only", choices=PROGRAMS, nargs="*", default=[*PROGRAMS])
    asked = parser.parse_args(arguments)
    draw, tally = random.Random(asked.seed), defaultdict[str, Counter[str]](Counter)
    for name in asked.only:
        for made in kernels_of(name):
            for which, change in [*faults_of(made, draw)][: asked.each]:
                found = outcome(made, which, change)
                counts = {"planted": 1, "no text": not found.is_text, "live": found.is_live}
                tally[change.kind].update({**counts, "missed": found.is_missed})
                if found.is_missed:
                    line = made.kernels[which].source.text.split("\n")[change.number]
                    print(f"MISSED in {name}: {change.kind}\n {line}\n {change.line}")
    columns = ["planted", "no text", "live", "missed"]
    print(f"| kind | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for kind, of_kind in sorted(tally.items()):
        print(f"| {kind} | {' | '.join([str(of_kind[column]) for column in columns])} |")
    return 1 if any([of_kind["missed"] for of_kind in tally.values()]) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
