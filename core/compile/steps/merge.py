"""Two loops that no term tells apart become one.

    for a < m: for b < n: f(k * (n * a + b))   =   for c < m * n: f(k * c)

    a: 0     1             c: 0 1 2 3 4 5
    b: 0 1 2 0 1 2

As `collapse`, where every index reads a and b only as n * a + b: then a = 0 and b = c say the same of each, and no
quotient is left. That a term is u + k * (n * a + b), with k a number and u free of both, is decided by its coefficients.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from proofgrad.core.compile.nests.loops import BINDERS, size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.steps.bijection import NewLoop, exchanged, new_counters
from proofgrad.core.compile.steps.collapse import collapse_law
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_fixed, step
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp, toposort


@step("for a < m, b < n: f(u + k * (n * a + b)) = for c < m * n: f(u + k * c)")
def merge(nest: LoopNest, outer: UOp, inner: UOp) -> UOp:
    """One loop, in the place of the outer one."""
    require_fixed((outer, inner))
    require(reads_as_one(nest.graph, outer, inner), "a term tells the loops apart", outer, inner)
    sizes = (size_of(outer), size_of(inner))
    made = (NewLoop(*outer.arg),)
    (both,) = new_counters(nest.graph, collapse_law(2), sizes, (outer, inner), made)
    values = dict(zip((outer, inner), counted_by(UOp.index(0), both)))
    return exchanged(nest.graph, values, [both], in_order=True)


def counted_by(start: Any, both: Any) -> tuple[Any, Any]:
    """The loops where one counter counts for both, in terms that do not tell them apart."""
    return start, both


def is_one_number(a: Any, b: Any, size: Any) -> Any:
    """Whether a * outer + b * inner is a multiple of size * outer + inner, `size` that of the inner loop."""
    return a == b * size


def reads_as_one(graph: UOp, outer: UOp, inner: UOp) -> bool:
    """Whether no index tells the loops apart; those of loads in an index are asked by themselves."""
    for term in _index_demands(graph):
        a, b = [coefficient(term, loop, beside_loads=True) for loop in (outer, inner)]
        if a is None or b is None or not is_one_number(a, b, size_of(inner)):
            return False
    return True


@lru_cache(maxsize=4)  # of the graph that a tactic asks for each pair of its loops
def _index_demands(graph: UOp) -> list[UOp]:
    """The index terms that are not part of another one: what is asked of the loops, from where it is used."""
    demands: dict[UOp, None] = {}
    for node in toposort((graph,)):
        if node.dtype is not dtypes.index:
            sources = node.src[:1] if node.op in BINDERS else node.src
            demands.update({s: None for s in sources if s.dtype is dtypes.index})
    return list(demands)
