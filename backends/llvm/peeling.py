"""Loops whose masks are off in the last iteration alone: it is written behind the loop, under its masks, and no other asks.

    for i < n: f(i) if 16 * i + lane < size   =   for i < n - 1: f(i);   f(n - 1) if 16 * (n - 1) + lane < size

Owns: which loops, and which masks. Does not own: the text of both (loop_printer.py).

A row of any length runs in vectors, the last of which reaches beyond its end. Where it does is known of each lane: so masks are
constants there, and what they leave out is not computed. A mask that grows with the loop and holds in an iteration holds in all before it.
Of a loop with others inside, as over columns whose rows are stored one by one, these are the masks of lanes that are stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.ir.op_names import ADD, AND, BROADCAST, CMPLT, CONST, END, MUL, RANGE, STORE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

# Nodes of a body that is written twice: LLVM takes twice as long for it.
MOST_NODES = 600


def peeled(linear: UOp) -> dict[UOp, tuple[UOp, ...]]:
    """The loops with masks that hold in all iterations but the last, and those masks."""
    found: dict[UOp, tuple[UOp, ...]] = {}
    for loop, inside in _loops(linear):
        if _has_a_last(loop) and len(inside) <= MOST_NODES:
            masks = tuple([n for n in inside if _holds_before_last(n, loop)])
            if masks and (_is_innermost(inside) or not _masks_of_stores(inside).isdisjoint(masks)):
                found[loop] = masks
    return found


def _loops(linear: UOp) -> Iterator[tuple[UOp, list[UOp]]]:
    """All loops, and what is between the begin and the end of each."""
    begins: list[int] = []
    for k, node in enumerate(linear.src):
        if node.op is RANGE:
            begins.append(k)
        elif node.op is END and begins:
            begin = begins.pop()
            yield linear.src[begin], list(linear.src[begin + 1 : k])


def _is_innermost(inside: list[UOp]) -> bool:
    """Whether there is no loop among the nodes of a loop."""
    return all([node.op is not RANGE for node in inside])


def _masks_of_stores(nodes: list[UOp]) -> frozenset[UOp]:
    """What masks of lanes that are stored are made of by `and`."""
    stack = [mask for n in nodes if n.op is STORE for mask in n.src[0].src[2:]]
    found: set[UOp] = set()
    while stack:
        mask = stack.pop()
        if mask.dtype.lanes > 1:
            found.add(mask)
            stack += mask.src if mask.op is AND else ()
    return frozenset(found)


def innermost_loops(linear: UOp) -> Iterator[tuple[UOp, list[UOp]]]:
    """The loops without a loop inside, and what is between the begin and the end of each."""
    loop: UOp | None = None
    inside: list[UOp] = []
    for node in linear.src:
        if node.op is RANGE:
            loop, inside = node, []
        elif node.op is END:
            if loop is not None and node.src[0] is loop:
                yield loop, inside
            loop = None
        else:
            inside.append(node)


def _has_a_last(loop: UOp) -> bool:
    """Whether a loop runs several times, one after the other, and no variable says how often. Of one that threads share a part may have the last."""
    is_plain = loop.arg[1] in (AxisRole.LOOP, AxisRole.REDUCE, AxisRole.THREAD)
    return is_plain and is_fixed(loop) and size_of(loop) > 1


def _holds_before_last(node: UOp, loop: UOp) -> bool:
    """Whether a node is `term < limit`, of numbers that grow with the loop, and holds in the last iteration but one."""
    if node.op is not CMPLT or node.src[0].dtype.is_float:
        return False
    term, limit = [_line(source, loop) for source in node.src]
    if term is None or limit is None or limit[0] or term[0] <= 0:
        return False
    before = [term[0] * (size_of(loop) - 2) + first for first in term[1]]
    return max(before) < min(limit[1]) and _fits(node.src[0], term, size_of(loop))


def _fits(node: UOp, line: tuple[int, tuple[int, ...]], size: int) -> bool:
    """Whether no number of a line is beyond those of its type, where it would begin anew."""
    (slope, firsts), dtype = line, node.dtype.scalar
    low, high = (
        (0, 1 << dtype.bits) if dtype.is_unsigned else (-1 << dtype.bits - 1, 1 << dtype.bits - 1)
    )
    return low <= min(firsts) and max(firsts) + slope * (size - 1) < high


def _line(node: UOp, loop: UOp) -> tuple[int, tuple[int, ...]] | None:
    """s and a number for each lane, where the node is s * loop + number; None: it is not of that kind."""
    if node is loop:
        return 1, (0,)
    if node.op is CONST:
        return 0, node.arg if isinstance(node.arg, tuple) else (node.arg,)
    if node.op is BROADCAST or _keeps_low_bits(node):
        return _line(node.src[0], loop)
    if node.op is not ADD and node.op is not MUL:
        return None
    lines = [_line(source, loop) for source in node.src]
    if lines[0] is None or lines[1] is None:
        return None
    (slope, firsts), (other, seconds) = lines[0], lines[1]
    if node.op is ADD:
        count = max(len(firsts), len(seconds))
        pairs = zip(firsts * (count // len(firsts)), seconds * (count // len(seconds)))
        return slope + other, tuple([a + b for a, b in pairs])
    if slope:
        (slope, firsts), (other, seconds) = (other, seconds), (slope, firsts)
    if slope or len(firsts) > 1:
        return None
    return other * firsts[0], tuple([number * firsts[0] for number in seconds])


def _keeps_low_bits(node: UOp) -> bool:
    """Whether a node is an integer of fewer bits: if the line fits these, it is the same one."""
    if node.op is not Ops.CAST or not node.dtype.is_int or not node.src[0].dtype.is_int:
        return False
    return node.dtype.bits <= node.src[0].dtype.bits
