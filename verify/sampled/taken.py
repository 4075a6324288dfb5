"""What a register becomes in one iteration of its loop: by which operation it is combined, and with what.

Owns: reading that from the graph. Does not own: the values of what is taken in (sampled/linear.py), who keeps a register open (sampled/nesting.py).

    r = where(mask, r + a * b, r) + c     is     ADD of  a * b under mask,  c
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proofgrad.core.ir.op_names import ADD, CAST, MMA, MULACC, RESULT, WHERE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.sampled.matrices import from_nothing
from proofgrad.verify.sampled.nesting import NotReadable

_COMBINE = frozenset({Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN})


@dataclass(frozen=True, slots=True)
class Term:
    """What a register takes in: the product of factors, or one value, where all masks hold."""

    factors: tuple[UOp, ...]
    masks: tuple[UOp, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a register becomes in one iteration: terms combined with it by one operation."""

    op: Ops
    terms: tuple[Term, ...]


def ordered_loads(store: UOp) -> list[UOp]:
    """The loads of a STORE with loops that read what is there before each iteration."""
    return [n for n in toposort((store.src[1],)) if n.op is Ops.LOAD and len(n.src) > 1]


def writes_over(store: UOp) -> bool:
    """Whether a STORE with loops writes value after value, and combines them with nothing."""
    return store.arg is None and not ordered_loads(store)


def taken_in(register: UOp, combined: UOp, is_above: Callable[[UOp], bool]) -> Taken:
    """What `combined` makes of a register. Raises: NotReadable if it is no such combination.

    `is_above`: whether a node depends on the register in the same iteration.
    `register` may be the LOAD of the element that a STORE combines with.
    """
    op: Ops | None = None
    terms: list[Term] = []
    node = combined
    while node is not register:
        masks: list[UOp] = []
        inside = node
        while inside.op is WHERE:
            if not (is_above(inside.src[2]) and is_above(inside.src[1])):
                raise NotReadable("a register is chosen instead of combined")
            masks.append(inside.src[0])
            inside = inside.src[1]
        if inside is register:
            raise NotReadable("a register is chosen instead of combined")
        if inside.op is CAST:
            node = inside.src[0]
            if masks:
                raise NotReadable("a register is converted under a mask")
            continue
        own, factors, node_before = _one_step(inside, is_above)
        if masks and not _all_keep(node, inside, node_before):
            raise NotReadable("a register keeps another value under a mask")
        if op is not None and own is not op:
            raise NotReadable(f"a register is combined by {op.name} and by {own.name}")
        op = own
        terms.append(Term(factors, tuple(masks)))
        node = node_before
    if op is None:
        raise NotReadable("a register is not combined with anything")
    return Taken(op, tuple(terms))


def _one_step(node: UOp, is_above: Callable[[UOp], bool]) -> tuple[Ops, tuple[UOp, ...], UOp]:
    """The operation, what it takes in, and the register before."""
    inside = [s for s in node.src if is_above(s)]
    if len(inside) == 1 and node.op is MULACC and inside[0] is node.src[2]:
        return ADD, node.src[:2], node.src[2]
    if node.op is MMA and inside == [node.src[1]]:
        return ADD, (from_nothing(node),), node.src[1]
    if len(inside) == 1 and node.op in _COMBINE:
        (other,) = [s for s in node.src if s is not inside[0]]
        return node.op, (other,), inside[0]
    raise NotReadable(f"a register goes through {node.op.name} in its loop")


def _all_keep(outer: UOp, inside: UOp, before: UOp) -> bool:
    """Whether each mask, where it is false, leaves the register as it was before."""
    while outer is not inside:
        if outer.src[2] is not before:
            return False
        outer = outer.src[1]
    return True


def nodes_above(register: UOp, combined: UOp) -> set[UOp]:
    """The nodes of `combined` that depend on the register in the same iteration."""
    found = {register}
    for node in toposort((combined,), lambda n: n.op is not RESULT):
        if not found.isdisjoint(node.src):
            found.add(node)
    return found
