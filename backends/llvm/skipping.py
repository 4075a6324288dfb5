"""Loops whose masks are known before they begin: left out where one turns all off, without masks where all hold.

Owns: which loops, and which masks. Does not own: the branches (emit.py).

A mask of a sum turns off single steps of it, in lanes. Where it is one truth for all lanes, known before the loop
begins, as whether a row of a window lies inside of an image, the loop need not run at all: every register leaves it as it
entered. Where masks hold on all lanes, as inside of an image they do for all but its borders, a choice under a mask is its
first value: loop unswitching, one loop for where all hold and one for the rest. A choice costs two instructions beside
the one that multiplies and adds (x86 without AVX-512), so most of a padded convolution's gradient takes a third of the time. There a load under
a mask of lanes, as of the last columns of a matrix, keeps it in one of the registers that the sums of a tile fill.

A mask that grows with the loop, as whether a step of a sum in blocks is one of the last block, holds in all iterations if in the last:

    for i < n: f(i) if 32 * o + i < size   =   if 32 * o + n - 1 < size: for i < n: f(i);   else: for i < n: f(i) if 32 * o + i < size

In the loop for the rest a term goes into a sum, or not, by one truth for all lanes of a row of the tile. Written as a choice by that
truth, not by a vector of it, x86 without AVX-512 has a branch there, the same in all iterations, and neither choice nor register for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proofgrad.backends.llvm.memory import by_data
from proofgrad.backends.llvm.peeling import MOST_NODES, innermost_loops
from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import at_start, coefficient
from proofgrad.core.ir.op_names import (
    ADD,
    AND,
    BROADCAST,
    CMPLT,
    CONST,
    END,
    INDEX,
    MUL,
    PARAM,
    RANGE,
    STORE,
    UPDATE,
    WHERE,
)
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, counters_in, toposort

Truths = frozenset[UOp]


def skipped(linear: UOp) -> dict[UOp, tuple[UOp, ...]]:
    """The innermost loops that change nothing if one of some scalar truths is false; those truths."""
    found: dict[UOp, tuple[UOp, ...]] = {}
    before: set[UOp] = set()
    loop: UOp | None = None
    inside: list[UOp] = []
    for node in linear.src:
        if node.op is RANGE:
            before.update(inside)
            loop, inside = node, []
        elif node.op is END:
            if node.src[0] is loop and (masks := _masks(inside) & before):
                found[loop] = tuple([n for n in linear.src if n in masks])
            before.update(inside)
            loop, inside = None, []
        else:
            inside.append(node)
    return found


def truths_of_all(linear: UOp) -> Truths:
    """The truths that memory holds, read before the first loop, without each of which no result is stored."""
    stores = [n for n in linear.src if n.op is STORE and n.src[0].src[0].op is PARAM]
    asked = [frozenset(parts_of_truths(store.src[0].src[2:])) for store in stores]
    if not asked or not (found := asked[0].intersection(*asked[1:])):
        return frozenset()
    first = next(k for k, n in enumerate(linear.src) if n.op is RANGE or n.op is STORE)
    read = by_data(linear)
    before = [n for n in linear.src[:first] if n.dtype.lanes == 1 and n.op is not AND]
    return frozenset([n for n in before if n in found and n in read])


def unswitched(
    linear: UOp, settled_by: Mapping[UOp, tuple[UOp, ...]], are_vectors: bool = False
) -> dict[UOp, tuple[UOp, ...]]:
    """The innermost loops of sums that choose by masks made before them, and those masks.

    `settled_by`: what `skipped` has found, whose masks need not be asked again. `are_vectors`: a mask of lanes takes a register that
    the sums need, so that loads under one count as choices.
    """
    found: dict[UOp, tuple[UOp, ...]] = {}
    before: set[UOp] = set()
    loop: UOp | None = None
    inside: list[UOp] = []
    for node in linear.src:
        if node.op is RANGE or node.op is END:
            if node.op is END and node.src[0] is loop and _is_sum(inside):
                asked = [mask for n in inside for mask in _asked(n, are_vectors)]
                masks = dict.fromkeys([mask for mask in asked if mask in before])
                known = frozenset(settled_by.get(loop, ()))
                if left := tuple([mask for mask in masks if not _is_implied(mask, known)]):
                    found[loop] = left
            before.update(inside)
            loop, inside = (node, []) if node.op is RANGE else (None, [])
        else:
            inside.append(node)
    return found


def _asked(node: UOp, are_vectors: bool) -> tuple[UOp, ...]:
    """The masks that a node chooses by."""
    if are_vectors and node.op is INDEX:
        return tuple([mask for mask in node.src[2:] if mask.dtype.lanes > 1])
    return node.src[:1] if node.op is WHERE else ()


def end_of_asked(nodes: Sequence[UOp], end: int, masks: tuple[UOp, ...]) -> int:
    """Where what a loop's masks decide ends: with the loop, at `end`, or with the stores under masks of its lanes that come behind it in the same iteration."""
    behind = next((k for k in range(end, len(nodes)) if nodes[k].op in (RANGE, END)), len(nodes))
    if behind < len(nodes) and nodes[behind].op is RANGE:
        return end
    stores = [node.src[0] for node in nodes[end:behind] if node.op is STORE]
    asked = parts_of_truths(tuple([mask for index in stores for mask in index.src[2:]]))
    is_stored = any([mask in asked for mask in masks if mask.dtype.lanes > 1])
    return behind if is_stored else end


def masks_of_lanes(linear: UOp) -> Truths:
    """The masks under which lanes are loaded or stored."""
    masks = [mask for node in linear.src if node.op is INDEX for mask in node.src[2:]]
    return frozenset([mask for mask in masks if mask.dtype.lanes > 1])


def whole_choices(linear: UOp) -> dict[UOp, UOp]:
    """The choices between a sum with a term and without it by a truth that all lanes share and no loaded value decides; that truth."""
    sums = [n for n in linear.src if n.op is Ops.WHERE and n.src[0].op is BROADCAST]
    sums = [n for n in sums if n.dtype.lanes > 1 and n.src[2] in n.src[1].src]
    read = by_data(linear) if sums else frozenset()
    return {
        n: n.src[0].src[0] for n in sums if n.src[0] not in read and n.src[0].src[0].op is not CONST
    }


def growing_masks(linear: UOp) -> dict[UOp, tuple[UOp, ...]]:
    """The innermost loops of sums with masks that hold in all iterations if they hold in the last, which other loops decide; those masks."""
    found: dict[UOp, tuple[UOp, ...]] = {}
    for loop, inside in innermost_loops(linear):
        if _is_sum(inside) and len(inside) <= MOST_NODES:
            if masks := tuple([n for n in inside if _grows(n, loop)]):
                found[loop] = masks
    return found


def _grows(node: UOp, loop: UOp) -> bool:
    """Whether a node is `term < limit`, numbers of which the first alone grows with the loop, and changes with others."""
    if node.op is not CMPLT or node.dtype.lanes > 1 or node.src[0].dtype.is_float:
        return False
    term, limit = node.src
    is_known = size_of(loop) > 1 if is_fixed(loop) else False
    if not is_known or loop in counters_in(limit) or counters_in(node) <= {loop}:
        return False
    return (coefficient(term, loop) or 0) > 0 and _never_wraps(term) and _never_wraps(limit)


def _never_wraps(term: UOp) -> bool:
    """Whether a term is a sum of multiples of loops, none of whose values is beyond those of its type."""
    loops = counters_in(term)
    steps = [coefficient(term, loop) for loop in loops if is_fixed(loop)]
    is_line = all([node.op in _LINEAR for node in toposort((term,))])
    if not is_line or None in steps or len(steps) < len(loops):
        return False
    far = [(step or 0) * (size_of(loop) - 1) for step, loop in zip(steps, loops, strict=True)]
    start, bits, half = at_start(term), term.dtype.bits, not term.dtype.is_unsigned
    low, high = start + sum([x for x in far if x < 0]), start + sum([x for x in far if x > 0])
    return -(half << bits - 1) <= low and high < 1 << bits - half


_LINEAR = frozenset({ADD, MUL, CONST, RANGE})


def at_last(mask: UOp, loop: UOp) -> UOp:
    """A mask in the last iteration of a loop."""
    return mask.substitute({loop: loop.const_like(size_of(loop) - 1)})


def _is_sum(body: list[UOp]) -> bool:
    """Whether the body of a loop changes registers alone."""
    ops = {node.op for node in body}
    return UPDATE in ops and STORE not in ops


def parts_of_truths(truths: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """The truths, and those that they are made of by `and` and by the same truth in all lanes: all hold where they do."""
    found: dict[UOp, None] = {}
    stack = list(truths)
    while stack:
        truth = stack.pop()
        if truth not in found:
            found[truth] = None
            stack += truth.src if truth.op in (AND, BROADCAST) else ()
    return tuple(found)


def settled(loop_masks: tuple[UOp, ...], nodes: tuple[UOp, ...]) -> list[UOp]:
    """The truths among `nodes` that hold wherever the masks do, on all lanes."""
    masks = frozenset(loop_masks)
    return [n for n in nodes if n.dtype.scalar.is_bool and _is_implied(n, masks)]


def _is_implied(truth: UOp, masks: Truths) -> bool:
    if truth.op is BROADCAST:
        return _is_implied(truth.src[0], masks)
    if truth.op is AND:
        return all(_is_implied(part, masks) for part in truth.src)
    return truth in masks


def _masks(body: list[UOp]) -> Truths:
    """The scalar truths without which no UPDATE of a loop's body changes its register."""
    updates = [node for node in body if node.op is UPDATE]
    if not _is_sum(body):
        return frozenset()
    known: dict[UOp, Truths | None] = {}
    masks = [_needed(update.src[1], update.src[0], known) or frozenset() for update in updates]
    return masks[0].intersection(*masks[1:])


def _needed(value: UOp, register: UOp, known: dict[UOp, Truths | None]) -> Truths | None:
    """The truths of which one that is false makes a value the register's; None: it is always."""
    if value is register:
        return None
    if value.op is not Ops.WHERE:
        return frozenset()
    if value not in known:
        mask, inside, outside = value.src
        first = _needed(inside, register, known)
        here = None if first is None else _conjuncts(mask) | first
        rest = _needed(outside, register, known)
        known[value] = here if rest is None else rest if here is None else here & rest
    return known[value]


def _conjuncts(mask: UOp) -> Truths:
    """The scalar truths that a truth, or each lane of one, is made of by `and`."""
    if mask.op is AND:
        return _conjuncts(mask.src[0]) | _conjuncts(mask.src[1])
    if mask.op is BROADCAST:
        return _conjuncts(mask.src[0])
    return frozenset((mask,)) if mask.dtype.lanes == 1 and mask.op is not CONST else frozenset()
