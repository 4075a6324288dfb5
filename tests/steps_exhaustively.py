"""Every step, with every argument, on every small kernel: it refuses, or the kernel stores the same.

    python tests/steps_exhaustively.py [--stride 1] [--jobs 4] [--pairs 2000]

Owns: what is asked of what a step makes, the count, the table. Does not own: kernels (small_kernels.py), arguments
(step_arguments.py), what a kernel stores (kernel_interpreter.py).

What is asked: each graph is a legal Kernel; no two of its loops have one number; no value has lanes of two loops; run in
order, by one worker and shared out over two, the graphs store what the kernel stored before, every access is inside of
its memory, every element is written once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import random
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

if __name__ == "__main__":  # else the folder of tests is found already
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from kernel_interpreter import SHARED_OUT, reads_memory, run_kernel  # noqa: E402
from programs_of_kernels import LAST, Programs, WrongStep  # noqa: E402
from small_kernels import BESIDE, OUT, SmallKernel, graphs, small_kernels  # noqa: E402
from step_arguments import ARGUMENTS  # noqa: E402

from proofgrad import Tensor  # noqa: E402, F401  (makes the compiler)
from proofgrad.core.compile import steps  # noqa: E402
from proofgrad.core.compile.machine.target import MatrixUnit, Target, TileUnit  # noqa: E402
from proofgrad.core.compile.nests.loops import BINDERS  # noqa: E402
from proofgrad.core.compile.nests.strides import loops_below  # noqa: E402
from proofgrad.core.compile.passes.forms import Form, check_form  # noqa: E402
from proofgrad.core.compile.steps.loop_nest import (  # noqa: E402
    STEPS,
    LoopNest,
    StepRefused,
    check_whole,
    lowered,
)
from proofgrad.core.ir.dtypes import dtypes  # noqa: E402
from proofgrad.core.ir.ops import Ops  # noqa: E402
from proofgrad.core.ir.uop import AxisRole, UOp  # noqa: E402
from proofgrad.core.rewrite.facts import Facts  # noqa: E402
from proofgrad.core.tensor.runtime.realize import compiler  # noqa: E402

for _module in pkgutil.iter_modules(steps.__path__):
    importlib.import_module(f"{steps.__name__}.{_module.name}")  # each puts its steps into STEPS

IN_ITEM = TileUnit(*(dtypes.int32,) * 3, side=2, groups=2, group=2, cycles=1, sums=1)
MACHINE = Target(
    "small",
    vector_bytes=16,
    threads=2,
    scratch_bytes=256,
    local_bytes=256,
    matrix_units=(MatrixUnit(dtypes.int32, dtypes.int32, 2, 1), IN_ITEM),
)

Done = tuple[str, tuple[Any, ...], dict[str, Any]]  # a step and its arguments


@dataclass(slots=True)
class Count:
    """What became of the applications of one step."""

    kernels: int = 0
    made: int = 0
    refused: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Tally:
    """The counts of all steps."""

    kernels: int = 0
    steps: dict[str, Count] = field(default_factory=lambda: {name: Count() for name in STEPS})

    def add(self, other: Tally) -> None:
        """Counts of other kernels."""
        self.kernels += other.kernels
        for name, one in other.steps.items():
            mine = self.steps[name]
            mine.kernels, mine.made = mine.kernels + one.kernels, mine.made + one.made
            mine.refused, mine.seconds = mine.refused + one.refused, mine.seconds + one.seconds

    def table(self) -> str:
        rows = ["| step | kernels | applications | refused | seconds |", "|---|---|---|---|---|"]
        for name, one in self.steps.items():
            seconds = f"{one.seconds:.0f}"
            rows.append(
                f"| {name} | {one.kernels} | {one.made + one.refused} | {one.refused} | {seconds} |"
            )
        return "\n".join(rows)


def facts() -> Facts:
    return compiler().library.facts()


def nests_of(made: LoopNest | tuple[LoopNest, ...]) -> tuple[LoopNest, ...]:
    return made if isinstance(made, tuple) else (made,)


class Checked:
    """A small kernel, and the graphs that are known to store the same."""

    def __init__(self, kernel: SmallKernel, known: Facts) -> None:
        self.kernel = kernel
        self.nest = lowered(kernel.graph, known, MACHINE)
        self.right: set[tuple[UOp, ...]] = {(kernel.graph,)}
        self.changed = frozenset({OUT} if reads_memory(kernel.graph, OUT) else ())

    def check(self, graphs: tuple[UOp, ...], *done: Done) -> None:
        """Raises: WrongStep."""
        if graphs in self.right:
            return
        try:
            for graph in graphs:
                check_graph(graph)
            for workers in (1, 2) if any(map(_is_shared_out, graphs)) else (1,):
                memory: Any = dict(self.kernel.buffers)
                filled: set[int] = set()
                for graph in graphs:
                    several = workers if _is_shared_out(graph) else 1
                    memory = run_kernel(graph, memory, several, filled, self.changed)
                found = memory[OUT]
                assert _same(found, self.kernel.stored), f"{workers} workers store {found}"
        except Exception as error:  # noqa: BLE001  (what a wrong step makes can end in any)
            raise WrongStep(self.report(graphs, error, *done)) from error
        self.right.add(graphs)

    def report(self, graphs: tuple[UOp, ...], error: Exception, *done: Done) -> str:
        what = f"{type(error).__name__}: {error}"
        texts = [str(self.kernel.graph), *[shown(*one) for one in done], what, *map(str, graphs)]
        return f"{self.kernel.family}\n" + "\n".join(texts) + f"\nbefore: {self.kernel.stored}"


def _ranges(graph: UOp) -> list[UOp]:
    return [n for n in graph.toposort() if n.op is Ops.RANGE]


def _is_shared_out(graph: UOp) -> bool:
    return any([loop.arg[1] in SHARED_OUT for loop in _ranges(graph)])


def _same(stored: Sequence[Any], expected: Sequence[Any]) -> bool:
    return list(map(str, stored)) == list(map(str, expected))


def check_graph(graph: UOp) -> None:
    """Asserts what every kernel keeps to beside its form."""
    assert graph.src, "a kernel without a store"
    check_form(Form.KERNEL, graph)
    nodes = graph.toposort()
    loops = [n for n in nodes if n.op is Ops.RANGE]
    assert len({loop.arg[0] for loop in loops}) == len(loops), "two loops of one number"
    for node in nodes:
        if node.op is Ops.INDEX:
            assert node.src[0].op in (Ops.PARAM, Ops.LOCAL_BUFFER), "a position in no memory"
            assert node.src[1].dtype is dtypes.index
        if node.op is Ops.LOAD:
            assert node.src[0].op is Ops.INDEX, "a load from no position"
    if [loop.arg[1] for loop in loops].count(AxisRole.VECTOR) > 1:
        for node, free in loops_below(graph).items():
            around = free.union(node.src[1:]) if node.op in BINDERS else free
            lanes = [loop for loop in around if loop.arg[1] is AxisRole.VECTOR]
            assert len(lanes) < 2, "lanes of two loops at once"


def try_steps(checked: Checked, names: Iterable[str], tally: Tally) -> None:
    """Each step with all its arguments on one kernel. Raises: WrongStep."""
    tally.kernels += 1
    for name in names:
        count, start = tally.steps[name], time.process_time()
        before = count.made
        for args, named in ARGUMENTS[name](checked.kernel.graph):
            made = taken(checked, checked.nest, name, args, named)
            if made is None:
                count.refused += 1
                continue
            count.made += 1
            checked.check(tuple([nest.graph for nest in made]), (name, args, named))
        count.kernels += count.made > before
        count.seconds += time.process_time() - start
    try_programs(checked, tally)


def try_programs(checked: Checked, tally: Tally) -> None:
    """The steps from a Kernel to a Program on one kernel. Raises: WrongStep."""
    start, programs = time.process_time(), Programs()
    programs.try_all(checked.kernel, checked.nest)
    for name in LAST:
        count = tally.steps[name]
        count.made += programs.made[name]
        count.refused += programs.refused[name]
        count.kernels += bool(programs.made[name])
        count.seconds += (time.process_time() - start) / len(LAST)


def taken(
    checked: Checked, nest: LoopNest, name: str, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[LoopNest, ...] | None:
    """What a step makes; None where it refuses. Raises: WrongStep for any other error."""
    try:
        return nests_of(STEPS[name](nest, *args, **named))
    except StepRefused:
        return None
    except Exception as error:
        done = (name, args, named)
        raise WrongStep(checked.report((nest.graph,), error, done)) from error


def shown(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> str:
    return f"{name}({', '.join([*map(repr, args), *[f'{k}={v!r}' for k, v in named.items()]])})"


def try_beside(tally: Tally, names: Collection[str] = tuple(BESIDE)) -> None:
    """The steps whose kernels are longer than small ones, each on its own. Raises: WrongStep."""
    known = facts()
    with patch.dict(os.environ, FASTMATH="real"):  # of steps that ask for it
        for name, made_for in [(n, made_for) for n, made_for in BESIDE.items() if n in names]:
            for kernel in small_kernels(made_for()):
                _try_beside(name, Checked(kernel, known), tally)


def _try_beside(name: str, checked: Checked, tally: Tally) -> None:
    count, kernel = tally.steps[name], checked.kernel.graph
    if name in LAST:
        try_programs(checked, tally)
    for args, named in ARGUMENTS[name](kernel) if name in ARGUMENTS else ():
        made = taken(checked, checked.nest, name, args, named)
        count.made += made is not None
        count.refused += not made
        if made is not None:
            checked.check(tuple([nest.graph for nest in made]), (name, args, named))


def try_pairs(checked: Checked, draw: random.Random, pairs: int) -> int:
    """Two steps one after the other, drawn. Raises: WrongStep. How many were made."""
    made = 0
    for _ in range(pairs):
        first = _drawn(checked, checked.nest, draw)
        if first is None:
            continue
        (one, done), position = first, draw.randrange(len(first[0]))
        second = _drawn(checked, one[position], draw)
        if second is None:
            continue
        whole = (*one[:position], *second[0], *one[position + 1 :])
        try:
            check_whole(checked.nest, whole)
        except StepRefused:  # their tables are one: `other_slots` says what others have
            continue
        checked.check(tuple([nest.graph for nest in whole]), done, second[1])
        made += 1
    return made


def _drawn(
    checked: Checked, nest: LoopNest, draw: random.Random
) -> tuple[tuple[LoopNest, ...], Done] | None:
    """A step with arguments that are drawn until it does not refuse; None after some tries."""
    for _ in range(8):
        name = draw.choice(sorted(ARGUMENTS))
        choices = list(ARGUMENTS[name](nest.graph))
        for args, named in draw.sample(choices, min(4, len(choices))):
            made = taken(checked, nest, name, args, named)
            if made is not None and [n.graph for n in made] != [nest.graph]:
                return made, (name, args, named)
    return None


def run(chosen: Sequence[tuple[str, UOp]], names: Iterable[str], tally: Tally) -> None:
    """Each step on each legal kernel of these. Raises: WrongStep."""
    names, known = list(names), facts()
    for number, kernel in enumerate(small_kernels(chosen)):
        if number % 200 == 199:
            known = facts()  # it keeps what it knows of every node
        try_steps(Checked(kernel, known), names, tally)


def run_pairs(chosen: Sequence[tuple[str, UOp]], draw: random.Random, each: int) -> int:
    """So many pairs of steps on each of these, drawn. Raises: WrongStep. How many were made."""
    known = facts()
    return sum([try_pairs(Checked(kernel, known), draw, each) for kernel in small_kernels(chosen)])


def _run_some(start: int, stride: int, names: Sequence[str]) -> Tally:
    tally = Tally()
    run(graphs()[start::stride], names, tally)
    return tally


def main(arguments: Sequence[str]) -> int:
    """The whole scope, or every so many kernels of it; the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=2000, help="of steps one after the other")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", action="append")
    asked = parser.parse_args(arguments)
    names, stride = asked.step or list(ARGUMENTS), asked.stride * asked.jobs
    tally = Tally()
    with ProcessPoolExecutor(asked.jobs) as workers:
        starts = [asked.start + asked.stride * k for k in range(asked.jobs)]
        for part in workers.map(_run_some, starts, repeat(stride), repeat(names)):
            tally.add(part)
    try_beside(tally, names)
    print(tally.table())
    draw, found = random.Random(asked.seed), graphs()
    made = run_pairs(draw.sample(found, min(len(found), asked.pairs // 4)), draw, 4)
    print(f"\n{tally.kernels} kernels; {made} pairs of steps")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
