"""Kernel -> Kernel: loops that no index tells apart become one.

Owns: that change of the iteration space, a bijection; tests/test_procedures.py validates that no value
changes. Does not own: how the loops run (axes.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from proofgrad.core.compile.contraction import is_fixed, output_loops, size_of
from proofgrad.core.compile.linear_terms import coefficient
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Nodes that have loops of their own.
BINDERS = frozenset({Ops.REDUCE, Ops.KEEP})


def merge_loops(kernel: UOp) -> UOp:
    """Two loops a, b become one where every index needs only a * size(b) + b."""
    while (pair := _mergeable_pair(kernel)) is not None:
        kernel = _merge(kernel, *pair)
    return kernel


def _mergeable_pair(kernel: UOp) -> tuple[UOp, UOp] | None:
    groups = [output_loops(kernel)]
    groups += unshared_reductions(kernel)
    demands = _index_demands(kernel)
    for group in groups:
        for outer in group:
            for inner in group:
                if outer is not inner and _reads_as_one(demands, outer, inner):
                    return outer, inner
    return None


def unshared_reductions(kernel: UOp) -> list[list[UOp]]:
    """Loop groups of reductions, and of what is kept, that share no loop with another one."""
    groups = {n.src[1:] for n in toposort((kernel,)) if n.op in BINDERS}
    groups = {group for group in groups if all(is_fixed(loop) for loop in group)}
    uses: dict[UOp, int] = {}
    for group in groups:
        for loop in group:
            uses[loop] = uses.get(loop, 0) + 1
    unshared = [g for g in groups if all(uses[loop] == 1 for loop in g)]
    return [list(g) for g in sorted(unshared, key=lambda g: [loop.arg[0] for loop in g])]


def _index_demands(kernel: UOp) -> list[UOp]:
    """The largest sums of index terms: what is asked of the loops, from where it is used."""
    demands: dict[UOp, None] = {}
    for node in toposort((kernel,)):
        inside_sum = node.op in (Ops.ADD, Ops.MUL, Ops.NEG) and node.dtype is dtypes.index
        sources = node.src[:1] if node.op in BINDERS else node.src
        if not inside_sum:
            demands.update({s: None for s in sources if s.dtype is dtypes.index})
        else:
            demands.update({s: None for s in sources if node.op is Ops.MUL and not _scaled(node)})
    return list(demands)


def _scaled(product: UOp) -> bool:
    return any(s.op is Ops.CONST for s in product.src)


def _reads_as_one(demands: Iterable[UOp], outer: UOp, inner: UOp) -> bool:
    """Whether no index tells the loops apart; those of loads in an index are asked by themselves."""
    for term in demands:
        a, b = [coefficient(term, loop, beside_loads=True) for loop in (outer, inner)]
        if a is None or b is None or a != b * size_of(inner):
            return False
    return True


def _merge(kernel: UOp, outer: UOp, inner: UOp) -> UOp:
    """outer * size(inner) + inner runs over 0 .. size(outer) * size(inner) - 1, each once."""
    both = UOp.range(size_of(outer) * size_of(inner), outer.arg[0], outer.arg[1])
    changes = {outer: UOp.index(0), inner: both}
    merged = kernel.substitute(changes)
    return _without_constant_loops(merged)


def _without_constant_loops(kernel: UOp) -> UOp:
    """REDUCE over a loop that became a constant no longer names it."""
    done: dict[UOp, UOp] = {}
    for node in toposort((kernel,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        if new.op in BINDERS and any(s.op is not Ops.RANGE for s in new.src[1:]):
            kept = tuple([s for s in new.src[1:] if s.op is Ops.RANGE])
            new = new.replace(src=(new.src[0], *kept))
        done[node] = new
    return done[kernel]
