"""Memory between the kernels that one kernel becomes.

Owns: its parameter, places in it, reading it, filling it with what a reduction starts from. Does not own: what is kept
there (staging.py, by_place.py, slabs.py), the memory itself (the plan's, compiler.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from proofgrad.core.compile.contraction import size_of
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def new_table(kernels: Iterable[UOp], dtype: DType, length: int) -> UOp:
    """A parameter of so many elements that none of the kernels has."""
    slot = 1 + max([n.arg[0] for n in toposort(tuple(kernels)) if n.op is Ops.PARAM])
    return UOp(Ops.PARAM, dtype, (), (slot, length))


def table_over(kernels: Iterable[UOp], dtype: DType, loops: Sequence[UOp]) -> tuple[UOp, UOp]:
    """A table with one element for each value of the loops, and which one it is: row-major."""
    position = UOp.index(0)
    for loop in loops:
        position = position * size_of(loop) + loop
    return new_table(kernels, dtype, prod([size_of(loop) for loop in loops])), position


def loaded(memory: UOp, *place: UOp) -> UOp:
    """The element at an index, behind a gate if there is one."""
    return UOp(Ops.LOAD, memory.dtype, (UOp(Ops.INDEX, memory.dtype, (memory, *place)),))


def filled(memory: UOp, op: Ops) -> UOp:
    """The kernel that fills memory with what a reduction starts from."""
    start = UOp.const(memory.dtype, identity(op, memory.dtype))
    everywhere = UOp(Ops.INDEX, memory.dtype, (memory, UOp.range(memory.arg[1], 0)))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (everywhere, start)))
