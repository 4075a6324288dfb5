"""What the compiler makes of one kernel: `full_rewrite_to_sink`.

Owns: that name. Does not own: the stages (rules/pipeline.py).
"""

from __future__ import annotations

from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.wiring import connect

__all__ = ["full_rewrite_to_sink"]

connect()


def full_rewrite_to_sink(ast: UOp, device: str | None = None) -> UOp:
    """The Program form of a kernel's body: a SINK of STOREs over LOADs, before it is put in order.

    `ast` is that of a `ScheduleItem` or of a kernelized Tensor, `device` None is the default one.

    Example:
        t = (Tensor([1, 2]) + 3 + 4).kernelize()
        full_rewrite_to_sink(t.uop.src[1].arg.ast)
    """
    return compiler().program(ast, Device.canonical(device))
