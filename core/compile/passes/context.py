"""What a pass is given beside the graph.

Owns: that value. A pass is a function of a graph, or a nest, and a Context.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.facts import Facts


@dataclass(frozen=True, slots=True)
class Context:
    """The machine, what is known of values, and the override of its schedule."""

    target: Target
    facts: Facts
    override: Schedule = AUTOMATIC

    @property
    def native(self) -> frozenset[Ops]:
        """The operations that the machine's backend prints itself."""
        return self.target.native

    @property
    def approximate(self) -> frozenset[Ops]:
        """Of float32: those that it prints where that is asked for."""
        return self.target.approximate

    @property
    def calls_fma(self) -> bool:
        """Whether FMA is a function that is called for each lane."""
        return self.target.calls_fma
