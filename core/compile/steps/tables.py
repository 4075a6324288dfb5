"""Memory between the nests that one nest becomes.

Owns: its parameter, reading it, filling it with what a reduction starts from. Does not own: what is kept there (stage.py,
scatter.py, sum_in_memory.py), the memory itself (the plan's, compiler.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def new_table(graphs: Iterable[UOp], dtype: DType, length: int) -> UOp:
    """A parameter of so many elements that none of the graphs has."""
    slot = 1 + max([n.arg[0] for n in toposort(tuple(graphs)) if n.op is Ops.PARAM])
    return UOp(Ops.PARAM, dtype, (), (slot, length))


def loaded(memory: UOp, *place: UOp) -> UOp:
    """The element at an index, behind a gate if there is one."""
    return UOp(Ops.LOAD, memory.dtype, (UOp(Ops.INDEX, memory.dtype, (memory, *place)),))


def filled(memory: UOp, op: Ops) -> UOp:
    """The kernel that fills memory with what a reduction starts from."""
    start = UOp.const(memory.dtype, identity(op, memory.dtype))
    everywhere = UOp(Ops.INDEX, memory.dtype, (memory, UOp.range(memory.arg[1], 0)))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (everywhere, start)))


def stored(memory: UOp, place: UOp, value: UOp) -> UOp:
    """The graph that stores one value at each place."""
    there = UOp(Ops.INDEX, memory.dtype, (memory, place))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (there, value)))
