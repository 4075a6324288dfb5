"""A term at one value of a range: substitution that respects the loops inside of the term.

Owns: the substitution. Does not own: which rules use it (an `Instance` on a right side).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

if TYPE_CHECKING:
    from proofgrad.core.rewrite.facts import Facts


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
        if node.op is Ops.REDUCE and not used.isdisjoint(node.src[1:]):
            return None
        missing = [source for source in node.src if source not in done]
        if missing:
            stack.extend(missing)
            continue
        done[node] = node.with_src(tuple([done[source] for source in node.src]))
    return done[term]
