"""A program of tensors that only steps change, and what a step on it is.

Owns: TensorProgram and its seal, GraphStep, the list of these steps. Does not own: the laws (each step's file), steps on
the loops of one kernel (loop_nest.py), which step is taken (the tactics).

As a LoopNest is of a kernel: whoever holds a TensorProgram knows that it is what Tensors and proven rules made, and then
changed by steps whose laws are proved. It is a TensorGraph until `store` has made kernels of it, then a KernelGraph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from proofgrad.core.compile.steps.evidence import require_evidence
from proofgrad.core.compile.steps.loop_nest import Taken
from proofgrad.core.ir.uop import UOp

_SEAL = object()
_Wanted = TypeVar("_Wanted", bound=Collection[UOp])


class TensorProgram:
    """A graph of the form TensorGraph or KernelGraph: a SINK of its roots, or of its kernels."""

    __slots__ = ("graph", "taken")

    def __init__(self, graph: UOp, taken: tuple[Taken, ...], seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("a TensorProgram is made by steps (core/compile/steps), not by hand")
        self.graph = graph
        self.taken = taken  # the steps that led here, in order


def traced(graph: UOp) -> TensorProgram:
    """The program of a graph that Tensors or proven rules made. Called by the runner of stages only."""
    return TensorProgram(graph, (), _SEAL)


@dataclass(frozen=True, slots=True)
class GraphStep(Generic[_Wanted]):
    """A way to change a program: `program = step(program, wanted)`, at all nodes where it is wanted at once, for there are many.

    Raises: StepRefused; EvidenceError if its law is not proved.
    """

    name: str
    law: str
    function: Callable[[TensorProgram, _Wanted], UOp]

    def __call__(self, program: TensorProgram, wanted: _Wanted) -> TensorProgram:
        require_evidence(self.name, self.law, self.function.__module__)
        made = self.function(program, wanted)
        if made is program.graph:
            return program
        nodes = f"{len(wanted)} node{'s' * (len(wanted) > 1)}"
        return TensorProgram(made, (*program.taken, Taken(self.name, (nodes,))), _SEAL)


GRAPH_STEPS: dict[str, GraphStep[Any]] = {}


def graph_step(law: str) -> Callable[[Callable[[TensorProgram, _Wanted], UOp]], GraphStep[_Wanted]]:
    """Make a function from a program to a changed graph a step, by its name. `law`: as an equation."""

    def made(function: Callable[[TensorProgram, _Wanted], UOp]) -> GraphStep[_Wanted]:
        one = GraphStep(function.__name__, law, function)
        GRAPH_STEPS[one.name] = one
        return one

    return made
