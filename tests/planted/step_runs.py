"""What steps make of small kernels and programs with a fault, beside what they make without.

Owns: which kernels, every application of a step to them, what counts as a difference. Does not own: the faults (step_faults.py), the
kernels and arguments themselves (small_kernels.py, step_arguments.py, small_graphs.py), what is asked of a graph (steps_exhaustively.py).

An application without a fault is run once, in the process that all others are forks of. As nodes are hash-consed, what is made with
a fault is the same object or another graph; only others are run.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any
from unittest.mock import patch

from programs_of_kernels import LAST, WrongStep, check_stored, ways_to_programs
from small_graphs import GRAPH_ARGUMENTS, PROGRAMS, check
from small_kernels import BESIDE, SmallKernel, graphs, small_kernels
from step_arguments import ARGUMENTS
from steps_exhaustively import Checked, facts, nests_of

from proofgrad.core.compile.steps.loop_nest import STEPS, LoopNest, StepRefused, Taken
from proofgrad.core.compile.steps.tensor_program import GRAPH_STEPS, traced
from proofgrad.core.ir.uop import UOp

EACH_FAMILY = 8  # kernels of a family, spread over it
# Steps that few kernels let be taken, with few arguments: so many kernels for them.
SELDOM = {
    "scatter": 100,
    "overwrite": 100,
    "sum_in_memory": 40,
    "join_sums": 40,
    "read_inside": 40,
    "unmask": 40,
    "merge": 40,
    "pair": 40,
    "offset_factor": 40,
    "where_normal": 40,
    "lanes": 40,
    "extend": 40,
    "shorten": 400,
    "window": 120,
    "leave": 40,
}
OF_PROGRAMS = 3  # of the small programs, every so many
FEWER = 4  # every so many of them, for the steps that only use what a fault is in

Graphs = tuple[UOp, ...]


@dataclass(frozen=True, slots=True)
class Application:
    """A step with its arguments on one kernel or program."""

    taken: Taken
    of: str
    make: Callable[[], Graphs]
    check: Callable[[Graphs], None]

    def made(self) -> Graphs | None:
        """The graphs; None: refused. Raises: WrongStep for an error that is no refusal."""
        try:
            return self.make()
        except StepRefused:
            return None
        except Exception as error:
            raise WrongStep(self._told(error)) from error

    def require_right(self, graphs: Graphs) -> None:
        """Raises: WrongStep."""
        try:
            self.check(graphs)
        except Exception as error:
            raise WrongStep(self._told(error)) from error

    def _told(self, error: Exception) -> str:
        cause = error.__cause__ or error
        return f"{self.taken} of one of {self.of}: {type(cause).__name__}: {cause}"


@dataclass(slots=True)
class Differences:
    """How applications end with a fault, of those that end well."""

    applications: int = 0
    refused: int = 0  # that are not, without it
    accepted: int = 0  # that are refused without it, and right
    otherwise: int = 0  # another graph, that is right

    def add(self, other: Differences) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @property
    def only_refuses(self) -> bool:
        return bool(self.refused) and not self.accepted and not self.otherwise

    def __str__(self) -> str:
        counts = {
            "refused": self.refused,
            "accepted and right": self.accepted,
            "other graphs, right": self.otherwise,
        }
        told = [f"{count} {what}" for what, count in counts.items() if count]
        return f"of {self.applications}: {', '.join(told) or 'no difference'}"


@cache
def kernels(start: int, each: int) -> list[Checked]:
    """So many legal kernels of each family; others for another start."""
    by_family = defaultdict[str, list[tuple[str, UOp]]](list)
    for family, graph in graphs():
        by_family[family].append((family, graph))
    chosen = []
    for family, members in by_family.items():
        chosen += drawn(members, each, f"{family} {start}")
    known = facts()
    return [Checked(kernel, known) for kernel in small_kernels(chosen)]


@cache
def beside(name: str) -> list[Checked]:
    """Kernels that are for one step alone."""
    known = facts()
    return [
        Checked(kernel, known) for kernel in small_kernels(BESIDE[name]() if name in BESIDE else ())
    ]


def drawn(members: Sequence[Any], count: int, seed: str) -> list[Any]:
    """So many of them, in their order: each n-th would always be of one form where a family goes through n forms."""
    chosen = random.Random(seed).sample(range(len(members)), min(count, len(members)))
    return [members[k] for k in sorted(chosen)]


def applications(name: str, start: int, stride: int) -> Iterator[Application]:
    """A step with each of its arguments, on every so many of its kernels or programs."""
    if name in GRAPH_ARGUMENTS:
        programs = list(PROGRAMS[name]())
        for graph in drawn(programs, len(programs) // (OF_PROGRAMS * stride), f"{name} {start}"):
            for args in GRAPH_ARGUMENTS[name](graph):
                yield Application(
                    Taken(name, args),
                    "the programs",
                    partial(_of_program, name, graph, args),
                    partial(_check_program, graph),
                )
        return
    chosen = kernels(start, SELDOM.get(name, EACH_FAMILY))[::stride]
    for checked in [*chosen, *beside(name)]:
        kernel, nest = checked.kernel, checked.nest
        if name in LAST:
            for step, way, asked in ways_to_programs(kernel.graph, nest):
                if step == name:
                    check = partial(_check_stored, kernel)
                    yield Application(
                        Taken(step, (asked,)), kernel.family, partial(_graphs, way), check
                    )
            continue
        for args, named in ARGUMENTS[name](kernel.graph):
            way = partial(STEPS[name], nest, *args, **named)
            done = Taken(name, (*args, *named.values()))
            yield Application(done, kernel.family, partial(_graphs, way), checked.check)


def _graphs(way: Callable[[], LoopNest | tuple[LoopNest, ...]]) -> Graphs:
    with patch.dict(os.environ, FASTMATH="real"):  # of steps that ask for it
        return tuple([nest.graph for nest in nests_of(way())])


def _check_stored(kernel: SmallKernel, made: Graphs) -> None:
    check_stored(made[0], kernel)


def _of_program(name: str, graph: UOp, args: tuple[Any, ...]) -> Graphs:
    return (GRAPH_STEPS[name](traced(graph), *args).graph,)


def _check_program(graph: UOp, made: Graphs) -> None:
    check(graph, made[0])


@cache
def right_ones(name: str, start: int, stride: int) -> list[Graphs | None]:
    """What each application makes without a fault."""
    return [one.made() for one in applications(name, start, stride)]


def differences(names: Iterable[str], start: int, stride: int = 1) -> Differences:
    """What a fault that is planted changes. Raises: WrongStep."""
    found = Differences()
    for name in names:
        tried, right = applications(name, start, stride), right_ones(name, start, stride)
        for one, before in zip(tried, right, strict=True):
            now = one.made()
            found.applications += 1
            if now == before:
                continue
            if now is None:
                found.refused += 1
                continue
            one.require_right(now)
            found.accepted += before is None
            found.otherwise += before is not None
    return found
