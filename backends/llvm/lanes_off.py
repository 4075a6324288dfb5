"""Lanes of a mask that are on, or off, whatever a kernel is given.

Owns: which lanes are known. Does not own: loads and stores under masks (memory.py).

LLVM cuts a vector that is wider than a register. Where a mask is known to be off in all lanes of such a part and not in the others,
LLVM 22 takes a load of the part without its mask (AVX and AVX2). So these lanes are not asked for.

Where one lane alone is known to be on, LLVM 22 stores that element as it was before it was cut to a narrower type (AVX-512), over
up to 7 bytes behind it. So such an element is stored by itself.

Lanes in a row that are known to be on, as those of the last vector of a row, are one plain store, or two, which may overlap; sooner than
one under a mask where that is microcode, or no instruction and so a store for each lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort


def known_lanes(term: UOp, at: Mapping[UOp, int]) -> tuple[Any, ...]:
    """The value of each lane of a term, in these iterations of loops; None where a kernel computes it."""
    known: dict[UOp, tuple[Any, ...]] = {loop: (number,) for loop, number in at.items()}
    for node in toposort((term,)):
        if node not in known:
            known[node] = _lanes(node, [known[source] for source in node.src])
    return known[term]


def plain_pieces(known: Sequence[bool | None]) -> tuple[tuple[int, int], ...]:
    """The first lane and the count, a power of two, of the plain stores of lanes that are on: at most two; (): they are not known, or not in a row."""
    first, count = (list(known).index(True), known.count(True)) if True in known else (0, 0)
    if None in known or not count or not all(known[first : first + count]):
        return ()
    wide = 1 << count.bit_length() - 1
    rest = count - wide
    if rest & rest - 1:  # no power of two: some lanes are stored again
        rest = wide
    return ((first, wide), (first + count - rest, rest)) if rest else ((first, wide),)


def _lanes(node: UOp, sources: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The value of each lane of a node; None where a kernel computes it."""
    count = node.dtype.lanes
    if node.op is Ops.CONST and not node.dtype.is_float:
        return node.arg if isinstance(node.arg, tuple) else (node.arg,) * count
    if node.op is Ops.BROADCAST:
        return sources[0] * count
    if node.op not in ELEMENTWISE or node.dtype.is_float:
        return (None,) * count
    wide = [lanes if len(lanes) == count else lanes * count for lanes in sources]
    if node.op is Ops.AND and node.dtype.is_bool:
        return tuple([_both(*pair) for pair in zip(*wide)])
    types = [source.dtype.scalar for source in node.src]
    return tuple(
        None if None in lane else evaluate(node.op, node.dtype.scalar, lane, types, node.arg)
        for lane in zip(*wide)
    )


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True
