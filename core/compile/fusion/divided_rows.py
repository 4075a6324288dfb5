"""Which values are stored because rows that lie apart in memory are read as rows of another length, or from within one to within another.

Owns: the choice. Does not own: rows that are joined whole, which loops run along (joined_rows.py).

    x.permute(1, 0).reshape(101, -1).softmax()        x: 1111 x 87        rows of 957 elements, of parts of rows of 1111

    x.permute(1, 0).reshape(-1)[5:-7].sum()            rows of 1111 elements, of which the first and the last are not whole

No loop runs along both: from the place of each element its row and column would be divided out. What is stored lies in one piece; the loops that
store what is cut are of whole rows, and of the elements before and behind (tactics/split_index_sets.py).
"""

from __future__ import annotations

from collections.abc import Container
from math import prod

from proofgrad.core.compile.fusion.joined_rows import JoinedRows, joined_rows
from proofgrad.core.compile.fusion.work import MOST_NODES, pays_a_buffer
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.schedule.operation_cycles import DIVISION_CYCLES
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import elements, is_plain
from proofgrad.core.ir.uop import UOp

_CUTS = frozenset({Ops.SHRINK, Ops.PAD})
_KEEP_AXES = _CUTS | {Ops.PERMUTE, Ops.FLIP, Ops.DETACH}


def is_divided_out(reshape: UOp, stored: Container[UOp], target: Target) -> bool:
    """Whether a buffer for what is reshaped takes less than to divide out the place of each element."""
    source = reshape.src[0]
    shapes_known = is_plain(source.shape) and is_plain(reshape.shape)
    if source in stored or not shapes_known or not elements(source.shape):
        return False
    mixed = _mixed(source.shape, reshape.shape)
    if not any([_lies_apart(source, first, last, stored) for first, last in mixed]):
        return False
    cycles = elements(source.shape) * (DIVISION_CYCLES + target.core.gather_cycles)
    return pays_a_buffer(source, cycles, 1, target)


def is_cut_within_rows(cut: UOp, stored: Container[UOp], target: Target) -> bool:
    """Whether a buffer for what is cut or padded takes less than to divide out the place of each element, of rows that are not whole."""
    if cut in stored or not is_plain((*cut.shape, *cut.src[0].shape)):
        return False
    changed = [a for a, size in enumerate(cut.shape) if size != cut.src[0].shape[a]]
    joined = [(cut.shape[a], joined_rows(cut, a, stored)) for a in changed]
    if not any([rows and _is_ragged(rows, size, target.lanes(cut.dtype)) for size, rows in joined]):
        return False
    cycles = elements(cut.shape) * (DIVISION_CYCLES + target.core.gather_cycles)
    return pays_a_buffer(cut, cycles, 1, target)


def _is_ragged(rows: JoinedRows, size: int, lanes: int) -> bool:
    """Whether so many elements begin, or end, within rows of several vectors."""
    length = min(rows.lengths)
    return length >= lanes and bool(rows.offset % length or size % length)


def _mixed(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[int, int]]:
    """From which axis to which one the rows of a value, or of several axes of it, make no whole rows of another shape, nor these of its own."""
    steps, others = ([prod(shape[k:]) for k in range(len(shape) + 1)] for shape in (before, after))
    borders = sorted(set(steps).intersection(others))
    found = list[tuple[int, int]]()
    for low, high in zip(borders, borders[1:]):
        lengths = sorted({n for n in (*steps, *others) if low <= n <= high})
        if any([m % n for n, m in zip(lengths, lengths[1:])]):
            first = max([axis for axis, step in enumerate(steps) if step == high])
            found.append((first, steps.index(low) - 1))
    return found


def _lies_apart(end: UOp, first: int, last: int, stored: Container[UOp]) -> bool:
    """Whether some of what a value reads, as far as it has the same axes, is moved within these: copies count as one piece."""
    waiting = [(end, first, last)]
    seen = set(waiting)
    while waiting and len(seen) < MOST_NODES:
        node, first, last = waiting.pop()
        if node in stored:
            continue
        if _is_moved(node, first, last):
            return True
        if node.op is Ops.PERMUTE:
            first, last = node.arg[first], node.arg[last]
        if node.op in ELEMENTWISE or node.op in _KEEP_AXES:
            more = [(source, first, last) for source in node.src]
            waiting += [one for one in more if one not in seen]
            seen.update(more)
    return False


def _is_moved(node: UOp, first: int, last: int) -> bool:
    """Whether a node takes apart what lies in one piece along these axes."""
    if node.op is Ops.PERMUTE:
        order: tuple[int, ...] = node.arg[first : last + 1]
        return order != tuple(range(order[0], order[0] + len(order)))
    if node.op is Ops.FLIP:
        return any(node.arg[first : last + 1])
    behind = range(first + 1, last + 1)
    return node.op in _CUTS and any([node.shape[k] != node.src[0].shape[k] for k in behind])
