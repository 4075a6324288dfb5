"""Kernels as plain C text, to read: `CStyleLanguage().render_tensor(x @ y)`.

Owns: this way in. Does not own: the printer (backends/c), which is OpenCL C's with another head.
"""

from __future__ import annotations

from typing import ClassVar

from proofgrad import Tensor
from proofgrad.backends.c import TARGET
from proofgrad.backends.c.emit import emit
from proofgrad.core.compile.lowering.kernel_names import kernel_name
from proofgrad.core.compile.machine.target import Source, Target
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run


class CStyleLanguage:
    """Prints kernels as C. It runs nothing and needs no C compiler.

    `target` and `emit` are what a backend of one's own takes from it (proofgrad/custom_backend.py).

    Example:
        print(CStyleLanguage().render_tensor(Tensor([1, 2, 3]).realize() + 3 + 4))
    """

    target: ClassVar[Target] = TARGET

    def emit(self, linear: UOp, name: str) -> Source:
        """The C of a program made for `target`, with `name` as its function."""
        return emit(linear, name)

    def render(self, kernel: UOp) -> str:
        """The C of one kernel, a SINK; functions that fill its tables come before it."""
        stages = compiler().kernel_stages
        made = run_stages(stages, kernel, compiler().library, TARGET)
        return "\n".join([emit(linear, kernel_name(linear)).text for linear in parts_of(made)])

    def render_tensor(self, *tensors: Tensor) -> str:
        """The kernels that would compute these Tensors, in running order. Nothing runs."""
        if not tensors:
            raise ValueError("render_tensor takes at least one Tensor")
        graph = graph_to_run([t.uop for t in tensors], tensors[0].device)
        bodies = [call.src[0] for call in compiler().kernel_graph(graph).src]
        return "\n".join([self.render(body) for body in bodies if body.src[0].op is not Ops.COPY])
