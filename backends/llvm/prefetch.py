"""Loads that a loop asks the cache for before it needs them.

Owns: which loads, and how far ahead. Does not own: the instruction (memory.py). A hint reads nothing, so
it may name a place outside of its buffer.

The columns of a tile come through a loop in steps that a processor does not foresee well: a row of a tile from a
table, or of a matrix, whose rows lie pages apart. Where several loops in turn run over a row, as in a softmax, only
the first waits for memory: the second asks for the row after this one, which comes while it computes.
"""

from __future__ import annotations

from proofgrad.core.compile.linear_terms import coefficient
from proofgrad.core.ir.op_names import CONST, END, LOAD, MULACC, PARAM, RANGE
from proofgrad.core.ir.uop import AxisRole, UOp

# Iterations ahead, measured from 1 to 4: 2 to 4 % of a large product, a quarter of one with few rows.
AHEAD = 2
# Vectors that are multiplied less often are read in a stream, which the processor foresees.
LEAST_USES = 4
# What a loop reads again and again stays in the first cache.
FIRST_CACHE_BYTES = 1 << 15
# Rows up to here stay in the second cache until their turn; buffers below stay there with all their rows.
SECOND_CACHE_BYTES = 1 << 20
LONGEST_ROW_BYTES = SECOND_CACHE_BYTES // 4


def prefetched(linear: UOp) -> dict[UOp, int]:
    """The loads to ask for ahead, and by how many elements."""
    return _columns_of_tiles(linear) | _next_rows(linear)


def _columns_of_tiles(linear: UOp) -> dict[UOp, int]:
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


def _next_rows(linear: UOp) -> dict[UOp, int]:
    """The loads of the second loop over a row, and how far behind it the next row is."""
    long = {node for node in linear.src if node.op is PARAM and _nbytes(node) > SECOND_CACHE_BYTES}
    found: dict[UOp, int] = {}
    readers: dict[tuple[UOp, UOp], list[UOp]] = {}  # of a buffer's rows, which a loop takes: loops
    loops: list[UOp] = []
    for node in linear.src if long else ():
        op = node.op
        if op is RANGE:
            loops.append(node)
        elif op is END:
            loops.pop()
        elif op is LOAD and len(loops) > 1 and node.src[0].src[0] in long and _is_vector(node):
            rows, inner = loops[-2:]
            inside = readers.setdefault((node.src[0].src[0], rows), [])
            if inner not in inside:
                inside.append(inner)
            step = coefficient(node.src[0].src[1], rows) if inside.index(inner) == 1 else None
            if step and abs(step) * node.dtype.itemsize <= LONGEST_ROW_BYTES:
                found[node] = step
    return found


def _nbytes(buffer: UOp) -> int:
    return int(buffer.arg[1] * buffer.dtype.itemsize)


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
