"""Loads that a loop asks the cache for before it needs them.

Owns: which loads, and how far ahead. Does not own: the instruction (memory.py). A hint reads nothing, so
it may name a place outside of its buffer.

The columns of a tile come through a loop in steps that a processor does not foresee well: a row of a tile from a
table, or of a matrix, whose rows lie pages apart.
"""

from __future__ import annotations

from proofgrad.core.compile.linear_terms import coefficient
from proofgrad.core.ir.op_names import CONST, END, LOAD, MULACC, RANGE
from proofgrad.core.ir.uop import AxisRole, UOp

# Iterations ahead, measured from 1 to 4: 2 to 4 % of a large product, a quarter of one with few rows.
AHEAD = 2
# Vectors that are multiplied less often are read in a stream, which the processor foresees.
LEAST_USES = 4
# What a loop reads again and again stays in the first cache.
FIRST_CACHE_BYTES = 1 << 15


def prefetched(linear: UOp) -> dict[UOp, int]:
    """The loads to ask for ahead, and by how many elements."""
    uses: dict[UOp, int] = {}
    for node in linear.src:
        if node.op is MULACC:
            for source in node.src[:2]:
                uses[source] = uses.get(source, 0) + 1
    found: dict[UOp, int] = {}
    loops: list[UOp] = []
    for node in linear.src:
        if node.op is RANGE:
            loops.append(node)
        elif node.op is END:
            loops.pop()
        elif uses.get(node, 0) >= LEAST_USES and loops and _is_vector(node):
            step = _step(node, loops[-1])
            if step:
                found[node] = AHEAD * step
    return found


def _is_vector(node: UOp) -> bool:
    return node.op is LOAD and node.dtype.lanes > 1 and node.src[0].src[1].dtype.lanes == 1


def _step(load: UOp, loop: UOp) -> int | None:
    """Elements between two iterations of a loop of a sum, if it reads more than the first cache holds."""
    size = loop.src[0]
    if loop.arg[1] is not AxisRole.REDUCE or size.op is not CONST:
        return None
    step = coefficient(load.src[0].src[1], loop)
    is_long = step and abs(step) * size.arg * load.dtype.itemsize > FIRST_CACHE_BYTES
    return step if is_long else None
