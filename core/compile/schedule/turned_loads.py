"""Which loop runs four iterations at a time, so that vectors that would be gathered are read along memory and transposed in registers.

Owns: the choice, a heuristic. Does not own: the loads and shuffles (backends/llvm/transposed_loads.py), the step (tactics/axes.py), transposes
through memory of a group (transposes.py).

    out[c, r] = x[r, c]:   for c < m, r < 16 as vector:   16 elements that lie apart;   of four c together 16 rows of four elements
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.schedule.cost_model import TRANSPOSED_ROWS
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
    # Lanes beyond an end would be asked for in each row, which costs as much as is saved (measured).
    if not is_long or lanes % TRANSPOSED_ROWS or size_of(vector) % lanes:
        return None
    loads = [n for n in nodes if n.op is Ops.LOAD]
    gathered = [n for n in loads if coefficient(n.src[0].src[1], vector) not in (0, 1)]
    return along if gathered and all([_turns_fast(n, along, target) for n in gathered]) else None


def _turns_fast(load: UOp, along: UOp, target: Target) -> bool:
    """Whether a load lies along a loop, in words that come from caches: memory is as slow either way."""
    memory, index, *_ = load.src[0].src
    is_word = load.dtype.itemsize == ITEMSIZE and not load.dtype.is_bool
    if memory.op is not Ops.PARAM or not is_word or coefficient(index, along) != 1:
        return False
    nbytes: int = memory.arg[1] * ITEMSIZE
    return nbytes <= 2 * target.cache_bytes
