"""Memory between the nests that one nest becomes, and that an item has to itself.

Owns: its parameter, reading it, filling it with what a reduction starts from, how much an item has. Does not own: what is kept there
(stage.py, scatter.py, sum_in_memory.py, local_buffer.py), the memory itself (the plan's, compiler.py).
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import elements_of
from proofgrad.core.compile.steps.cuts import largest_slot
from proofgrad.core.compile.steps.loop_nest import LoopNest, require
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.op_names import LOCAL_BUFFER
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, is_of_group, toposort

_VALUES = frozenset({Ops.CONST, Ops.LOAD, Ops.REDUCE})


def new_table(nest: LoopNest, dtype: DType, length: int) -> UOp:
    """A parameter of so many elements that neither the nest, nor one that runs before or after it, has."""
    slot = max(nest.other_slots, largest_slot((nest.graph,)))
    return UOp(Ops.PARAM, dtype, (), (slot + 1, length))


def require_value(value: UOp) -> None:
    """Raises: StepRefused for what memory cannot hold: positions, memory itself, stores, index terms, which have no width."""
    is_value = value.op in ELEMENTWISE or value.op in _VALUES
    require(is_value and value.dtype is not dtypes.index, "no value that memory can hold", value)


def require_room(nest: LoopNest, made: UOp) -> None:
    """Raises: StepRefused for more bytes of LOCAL_BUFFER than an item, or a group of them, has to itself, unless there were as many."""
    target = nest.target
    for who, of_group, room in (
        ("an item", False, target.item_bytes),
        ("a group", True, target.local_bytes),
    ):
        kept = _bytes_kept(made, of_group)
        has_room = kept <= room or kept <= _bytes_kept(nest.graph, of_group)
        require(has_room, f"more bytes than {who} has to itself", kept, room)


def _bytes_kept(graph: UOp, of_group: bool) -> int:
    nodes = toposort((graph,))
    memories = [n for n in nodes if n.op is LOCAL_BUFFER and is_of_group(n.src[1:]) is of_group]
    return sum([elements_of(memory) * memory.dtype.itemsize for memory in memories])


def loaded(memory: UOp, *position: UOp) -> UOp:
    """The element at an index, under a mask if there is one."""
    return UOp(Ops.LOAD, memory.dtype, (UOp(Ops.INDEX, memory.dtype, (memory, *position)),))


def filled(memory: UOp, op: Ops) -> UOp:
    """The kernel that fills memory with what a reduction starts from."""
    start = UOp.const(memory.dtype, identity(op, memory.dtype))
    everywhere = UOp(Ops.INDEX, memory.dtype, (memory, UOp.range(memory.arg[1], 0)))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (everywhere, start)))


def stored(memory: UOp, position: UOp, value: UOp) -> UOp:
    """The graph that stores one value at each position."""
    there = UOp(Ops.INDEX, memory.dtype, (memory, position))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (there, value)))
