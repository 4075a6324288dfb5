"""A kernel that only steps change, and what a step is.

Owns: LoopNest and its seal, Step, what a refusal is, the list of all steps. Does not own: the laws (each step's file),
their proofs (verify/steps), which step is taken (the tactics).

As in a prover of the LCF kind, the type is the argument: whoever holds a LoopNest knows that it was
lowered from a tensor graph, or rewritten by proven rules, and then changed by steps whose laws are proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule
from proofgrad.core.compile.nests.loops import is_fixed
from proofgrad.core.compile.steps.cuts import Cut, Position, cut_of, largest_slot, what_is_missing
from proofgrad.core.compile.steps.evidence import require_evidence
from proofgrad.core.compile.steps.running import what_is_wrong
from proofgrad.core.compile.text.show import brief
from proofgrad.core.compile.text.syntax import type_name
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import RANGE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.core.rewrite.facts import Facts

_SEAL = object()
_Arguments = ParamSpec("_Arguments")
_Made = TypeVar("_Made", UOp, tuple[UOp, ...])


class StepRefused(Exception):
    """A side condition of a step does not hold, or could not be decided. The nest is as before.

    Of `what` and the values that it is about: they are written when somebody reads it, for most refusals nobody does.
    """

    def __str__(self) -> str:
        what, *values = self.args
        return f"{what}: {', '.join(map(_shown, values))}" if values else str(what)


class LoopNest:
    """A graph of the form Kernel, what is known of its values, and the machine that it is for."""

    __slots__ = ("facts", "graph", "other_slots", "position", "schedule", "taken", "target")

    def __init__(
        self,
        graph: UOp,
        facts: Facts,
        target: Target,
        taken: tuple[Taken, ...],
        position: Position,
        other_slots: int,
        seal: object,
    ) -> None:
        if seal is not _SEAL:
            raise TypeError("a LoopNest is made by steps (core/compile/steps), not by hand")
        self.graph = graph
        self.facts = facts
        self.target = target
        self.taken = taken  # the steps that led here, in order
        self.position = position  # among the nests that fissions made
        self.other_slots = (
            other_slots  # up to here, nests that run before and after have parameters
        )
        self.schedule: Schedule | None = None  # what tactics have decided to do with it

    def scheduled(self, schedule: Schedule | None) -> LoopNest:
        """The same nest, for which this is decided."""
        nest = self._sealed(self.graph, self.taken, self.position, self.other_slots)
        nest.schedule = schedule
        return nest

    def _sealed(
        self, graph: UOp, taken: tuple[Taken, ...], position: Position, other_slots: int
    ) -> LoopNest:
        """Another graph, or the same one, with what is known of its values and for the same machine."""
        return LoopNest(graph, self.facts, self.target, taken, position, other_slots, _SEAL)


def lowered(graph: UOp, facts: Facts, target: Target, other_slots: int = 0) -> LoopNest:
    """The nest of a graph that lowering or proven rules made. Called by the runner of stages only.

    `other_slots`: the largest number of a parameter of nests that run before or after this one.
    """
    position = ((Cut(1, frozenset()), 0),)
    return LoopNest(graph, facts, target, (), position, other_slots, _SEAL)


def check_whole(start: LoopNest, nests: tuple[LoopNest, ...]) -> None:
    """Raises: StepRefused unless the nests are all that steps made of one, in order; TypeError for what no step made."""
    if not all([type(nest) is LoopNest for nest in nests]):
        raise TypeError(f"what no step made: {nests}")
    missing = what_is_missing(start.position, [nest.position for nest in nests])
    require(missing is None, missing or "")


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was taken, with its arguments."""

    step: str
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.step}({', '.join(map(_shown, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Step(Generic[_Arguments]):
    """A way to change a nest: `nest = step(nest, ...)`. Raises: StepRefused; EvidenceError if its law is not proved."""

    name: str
    law: str
    function: Callable[Concatenate[LoopNest, _Arguments], UOp]
    makes_loops: bool = True
    makes_ahead: bool = False

    def __call__(
        self, nest: LoopNest, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> LoopNest:
        require_evidence(self.name, self.law, self.function.__module__)
        made = self.function(nest, *args, **kwargs)
        if made is nest.graph:
            return nest
        taken = Taken(self.name, (*args, *kwargs.values()))
        if self.makes_loops:
            _check_loops(made, taken)
            _check_ahead(nest.graph, made, self)
        changed = nest._sealed(made, (*nest.taken, taken), nest.position, nest.other_slots)
        changed.schedule = nest.schedule
        return changed


@dataclass(frozen=True, slots=True)
class Fission(Generic[_Arguments]):
    """A step that makes several nests of one, which run in order; nothing is decided for them. Raises: as Step."""

    name: str
    law: str
    function: Callable[Concatenate[LoopNest, _Arguments], tuple[UOp, ...]]

    def __call__(
        self, nest: LoopNest, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> tuple[LoopNest, ...]:
        require_evidence(self.name, self.law, self.function.__module__)
        taken = Taken(self.name, (*args, *kwargs.values()))
        graphs = self.function(nest, *args, **kwargs)
        is_plain = not any([_ahead(graph) for graph in (nest.graph, *graphs)])
        require(is_plain, f"{self.name}: memory that is filled ahead")
        for graph in graphs:
            _check_loops(graph, taken)
        cut, steps = cut_of(nest.graph, graphs, self.name), (*nest.taken, taken)
        slots = max(nest.other_slots, largest_slot(graphs))
        return tuple(
            [
                nest._sealed(graph, steps, (*nest.position, (cut, number)), slots)
                for number, graph in enumerate(graphs)
            ]
        )


def _check_loops(graph: UOp, taken: Taken) -> None:
    """Raises: StepRefused if the loops that a step made cannot run together."""
    if (wrong := what_is_wrong(graph)) is not None:
        what, loops = wrong
        raise StepRefused(f"{taken.step}: {what}", *loops)


def _check_ahead(before: UOp, made: UOp, taken: Step[Any]) -> None:
    """Raises: StepRefused for a step on loops of a nest that fills memory ahead, or one that makes such memory without its law."""
    was, now = _ahead(before), _ahead(made)
    if taken.makes_ahead:  # of other loops, as it leaves those that are there
        require(set(was) <= set(now), f"{taken.name}: a loop that is filled ahead is gone", *was)
        return
    require(not was, f"{taken.name}: loops of a nest that fills memory ahead", *was)
    require(not now, f"{taken.name}: a loop of this role", *now)


def _ahead(graph: UOp) -> list[UOp]:
    """The loops over parts of memory that is filled ahead."""
    loops = [n for n in toposort((graph,)) if n.op is RANGE]
    return [loop for loop in loops if loop.arg[1] is AxisRole.AHEAD]


STEPS: dict[str, Step[Any] | Fission[Any]] = {}


def step(
    law: str, makes_loops: bool = True, makes_ahead: bool = False
) -> Callable[[Callable[Concatenate[LoopNest, _Arguments], UOp]], Step[_Arguments]]:
    """Make a function from a nest to a changed graph a step, by its name. `law`: as an equation.

    `makes_loops`: loops, roles of loops, or reductions over them. `makes_ahead`: memory that is filled
    ahead (steps/fill_ahead.py): from then on no step changes loops.
    """

    def made(function: Callable[Concatenate[LoopNest, _Arguments], UOp]) -> Step[_Arguments]:
        one = Step(function.__name__, law, function, makes_loops, makes_ahead)
        STEPS[one.name] = one
        return one

    return made


def fission(
    law: str,
) -> Callable[[Callable[Concatenate[LoopNest, _Arguments], tuple[UOp, ...]]], Fission[_Arguments]]:
    """As `step`, of a function that makes several graphs, to be run in order."""

    def made(
        function: Callable[Concatenate[LoopNest, _Arguments], tuple[UOp, ...]],
    ) -> Fission[_Arguments]:
        one = Fission(function.__name__, law, function)
        STEPS[one.name] = one
        return one

    return made


def require(condition: bool, what: str, *values: Any) -> None:
    """Raises: StepRefused, saying `what`, unless the condition holds."""
    if not condition:
        raise StepRefused(what, *values)


def require_fixed(loops: Iterable[UOp]) -> None:
    """Raises: StepRefused unless these are loops, and of known sizes."""
    others = [x for x in loops if x.op is not Ops.RANGE or not is_fixed(x)]
    require(not others, "no loop of known size", *others)


def require_in(graph: UOp, *nodes: UOp) -> None:
    """Raises: StepRefused unless these are nodes of the graph."""
    missing = set(nodes).difference(toposort((graph,)))
    require(not missing, "not in the nest", *missing)


def _shown(value: Any) -> str:
    """An argument of a step for people: loops and terms as in the text of nests."""
    match value:
        case UOp():
            return brief(value)
        case DType():
            return type_name(value)
        case AxisRole():
            return value.value
        case tuple() | list() | frozenset():
            parts = (
                sorted(map(_shown, value)) if isinstance(value, frozenset) else map(_shown, value)
            )
            return f"({', '.join(parts)})"
        case dict():
            return ", ".join([f"{_shown(key)} as {_shown(one)}" for key, one in value.items()])
    return str(value)
