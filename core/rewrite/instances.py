"""A term at one value of a range or of a truth: substitution that respects loops and accesses.

Owns: the substitution. Does not own: which rules use it (an `Instance` on a right side).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proofgrad.core.ir.op_names import CONST, LOCAL_BUFFER, REDUCE
from proofgrad.core.ir.ops import APPROXIMATED, ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp

if TYPE_CHECKING:
    from proofgrad.core.rewrite.facts import Facts


COSTLY = APPROXIMATED | {Ops.SQRT, Ops.FDIV, Ops.FMOD}
MOST_STEPS = 256  # of a walk through a term; in a larger one nothing is assumed


def assumed(term: UOp, truth: UOp, value: UOp, facts: Facts) -> UOp:
    """`term` with the constant `value` for `truth`, but not inside of accesses and reductions.

    An access keeps its mask: both branches of a selection are computed, whatever its condition is.
    For the same reason a costly function keeps its argument: what both branches share is computed once.
    """
    if truth.op is CONST:
        return term
    inner = _elementwise_above(term, truth, facts)
    if inner is None or truth not in inner:
        return term
    done: dict[UOp, UOp] = {truth: value}
    for node in inner:
        if node not in done:
            if node.op in COSTLY and any(
                done.get(source, source) is not source for source in node.src
            ):
                return term
            done[node] = node.with_src(tuple([done.get(source, source) for source in node.src]))
    return done[term]


def _elementwise_above(term: UOp, truth: UOp, facts: Facts) -> list[UOp] | None:
    """The elementwise nodes of `term` above and including `truth`, sources first; None: too many, or `truth` is none of them."""
    if not facts.may_hold(term, truth):
        return None
    order: dict[UOp, None] = {}
    entered: set[UOp] = set()
    stack = [term]
    for _ in range(MOST_STEPS):
        if not stack:
            return list(order)
        node = stack[-1]
        if node in entered or node is truth or node.op not in ELEMENTWISE:
            order[stack.pop()] = None
        else:
            entered.add(node)
            stack.extend([source for source in node.src if source not in order])
    return None


def instance(term: UOp, counter: UOp, value: UOp, facts: Facts) -> UOp | None:
    """`term` with `value` wherever it reads the range `counter`.

    A loop of `term` over `counter` itself has its own counter and stays. None if a loop of `term`
    that has to change runs over a range that `value` reads: the two would be confused.
    """
    used = facts.loops(value)
    done: dict[UOp, UOp] = {counter: value}
    stack = [term]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if counter not in facts.loops(node):
            done[node] = node
            continue
        if node.op in (REDUCE, LOCAL_BUFFER) and not used.isdisjoint(node.src[1:]):
            return None
        missing = [source for source in node.src if source not in done]
        if missing:
            stack.extend(missing)
            continue
        done[node] = node.with_src(tuple([done[source] for source in node.src]))
    return done[term]
