"""Which loop runs four iterations at a time, so that vectors that would be gathered are read along memory and transposed in registers.

Owns: the choice, a heuristic. Does not own: the loads and shuffles (backends/llvm/transposed_loads.py), the step (tactics/axes.py), transposes
through memory of a group (transposes.py).

    out[c, r] = x[r, c]:   for c < m, r < 16 as vector:   16 elements that lie apart;   of four c together 16 rows of four elements
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.schedule.table_cycles import TRANSPOSED_ROWS
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Bytes of an element: a row of four is a part of a vector within which shuffles work.
ITEMSIZE = 4


def turned_loop(kernel: UOp, vector: UOp, lanes: int, target: Target) -> UOp | None:
    """The innermost loop, if all that vectors along `vector` gather lies along it, and to read it so is faster."""
    nodes, loops = toposort((kernel,)), output_loops(kernel)
    if target.work_items or not loops or any([n.op in BINDERS for n in nodes]):
        return None
    along = loops[-1]
    is_long = along is not vector and is_fixed(along) and size_of(along) >= TRANSPOSED_ROWS
    if not is_long or lanes % TRANSPOSED_ROWS:
        return None
    loads = [n for n in nodes if n.op is Ops.LOAD]
    gathered = [n for n in loads if coefficient(n.src[0].src[1], vector) not in (0, 1)]
    return along if gathered and all([_lies_along(n, along) for n in gathered]) else None


def _lies_along(load: UOp, along: UOp) -> bool:
    """Whether words lie side by side along a loop. From memory, too: rows whose lines share a set of a cache leave it at each visit."""
    memory, index, *_ = load.src[0].src
    is_word = load.dtype.itemsize == ITEMSIZE and not load.dtype.is_bool
    return memory.op is Ops.PARAM and is_word and coefficient(index, along) == 1
