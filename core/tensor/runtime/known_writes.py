"""Writes to a part of memory that were done before, done again in the memory that they change.

Owns: when that may be, the steps. Does not own: which are kept (known_runs.py), whether a graph is like another one (likeness.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proofgrad.core.compile.machine.target import Borrowed
from proofgrad.core.ir.op_names import RESHAPE
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.execute import memory_of_variables, run_step
from proofgrad.core.tensor.runtime.kept_run import KeptRun
from proofgrad.core.tensor.runtime.likeness import Alike
from proofgrad.core.tensor.runtime.owners import owners_of_item

if TYPE_CHECKING:
    from proofgrad.core.compile.compiler import Compiler

_OF_TABLE_AND_LIST = 2


class KnownWrite(KeptRun):
    """A plan whose kernels write to one input alone, and make nothing else."""

    __slots__ = ()

    def run(self, alike: Alike, memory_of: Callable[[UOp], Any], compiler: Compiler) -> UOp | None:
        """The buffer that was written to, in the shape of the root, which nobody but the caller holds. None if others have it, or its memory."""
        (slot,), likeness = self.plan.results, self.likeness
        _, _, values = alike
        if self.is_asked and compiler.checks() is not None:
            return None
        if not likeness.is_sole_holder(alike, slot):
            return None
        inputs = likeness.buffers_of(alike)
        if inputs is None:
            return None
        memory = likeness.memory(inputs, memory_of)
        is_ours = not isinstance(memory[slot], Borrowed)
        if not is_ours or owners_of_item(memory, slot) != _OF_TABLE_AND_LIST:
            return None
        if self.plan.variables:
            memory += memory_of_variables(self.plan, values)
        for step in self.plan.steps:
            run_step(step, memory, self.where)
        written, root = inputs[slot], self.asked.src[0]
        if root.shape == written.shape:
            return written
        return UOp(RESHAPE, root.dtype, (written,), root.shape)
