"""What the driver tells a check of kernels, and one of values: plans, launches and replays too.

Owns: which calls there are, and what each has to refuse. Does not own: the checks (verify/), when they are asked for
(compiler.py, core/tensor/runtime/realize.py, core/tensor/jit/replay.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from proofgrad.core.compile.passes.stages import Stage
from proofgrad.core.compile.plan.plan import BufferInfo, Kernel, Plan, Step
from proofgrad.core.ir.uop import UOp


class KernelCheck(Protocol):
    """Looks at each kernel that is compiled while PROVE=1."""

    def __call__(self, name: str, body: UOp, trace: Sequence[tuple[Stage, UOp]]) -> None:
        """`trace`: the graph after each stage, from `body` to Linear. Raises if it is wrong."""
        ...

    def summary(self) -> str:
        """One line about all kernels so far."""
        ...


class ValueCheck(Protocol):
    """Looks at kernels and plans that are made while CHECK=1, or PROVE=1."""

    def kernels(self, body: UOp, kernels: Sequence[Kernel]) -> None:
        """What one body became. Raises if it is wrong."""
        ...

    def plan(
        self,
        graphs: Sequence[tuple[Stage | None, UOp]],
        after: UOp,
        plan: Plan,
        compiled: Sequence[Sequence[Kernel]],
    ) -> None:
        """`graphs`: the tensor graph, first as it was, after each stage; `after`: its calls and their kernels.

        Raises if the steps of the plan are not those of the graph.
        """
        ...

    def arena(self, made: Mapping[int, BufferInfo], steps: Sequence[Step], arena: Any) -> None:
        """Memory that the slots `made` of a recorded plan share. Raises if two need it at once."""
        ...

    def numbers(
        self,
        roots: Sequence[UOp],
        graph: UOp,
        inputs: Sequence[UOp],
        given: Sequence[Any],
        values: dict[str, int],
    ) -> None:
        """`graph` is that of `roots` over the memory `given`, which is that of `inputs`, and the `values` of variables. Raises if not."""
        ...

    def launches(self, plan: Plan, given: Sequence[Any]) -> AbstractContextManager[Any]:
        """What runs inside has to be the launches of a plan; gives whom to tell of the results, by `end`."""
        ...

    def written_anew(self, node: UOp) -> None:
        """A run is about to write to the memory of a result of an earlier one. Raises if somebody can see that."""
        ...

    def results(
        self, plan: Plan, shapes: Sequence[Any], memory: Sequence[Any], found: Sequence[UOp]
    ) -> None:
        """The nodes that stand for what a plan has computed. Raises if they show other memory."""
        ...

    def named(self, roots: Sequence[UOp], entries: Iterable[Any]) -> list[Any]:
        """The buffers below `roots` that Tensors name which there were before: a replay reads those anew."""
        ...

    def fixed(self, named: Sequence[Any], buffers: Sequence[UOp]) -> None:
        """What all replays will read as it is. Raises if one of these is named."""
        ...

    def replay(
        self,
        steps: Sequence[Step],
        program: Any,
        memory: Sequence[Any],
        results: Mapping[int, UOp | None],
    ) -> None:
        """What a replay is about to launch, on the memory that each slot has to be. Raises if it is not that."""
        ...

    def summary(self) -> str:
        """One line about everything so far."""
        ...
