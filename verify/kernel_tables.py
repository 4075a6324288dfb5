"""Values that a kernel keeps, and kernels that were cut in two with tables between: both read through.

Owns: replacing each load of such memory by the term that fills that place of it. Does not own: that every
place of a table is written once and that accesses stay inside, which is asked of every kernel
(kernel_proof.py), nor comparing the result with the kernel before the cut (kernel_match.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernel_loops import map_by_position, values_at
from proofgrad.verify.kernel_match import Difference
from proofgrad.verify.kernel_questions import Questions, Verdict, all_of
from proofgrad.verify.kernel_readback import NotReadable, free_loops, free_loops_below
from proofgrad.verify.kernel_terms import loop_size


def read_through(parts: Sequence[UOp], questions: Questions) -> UOp | Difference:
    """The last kernel with what the others wrote in place of its loads of their tables.

    Each kernel but the last has one store. A load at index g stands for the value stored at the
    iteration that writes g; that iteration is guessed from g, and shown to be one that does.
    """
    *filling, last = parts
    filled = {store.src[0].src[0]: store for kernel in filling for store in kernel.src}
    changes: dict[UOp, UOp] = {}
    for load in [n for n in toposort((last,)) if n.op is Ops.LOAD and n.src[0].src[0] in filled]:
        store = filled[load.src[0].src[0]]
        found = _value_at(store, load.src[0].src[1], questions)
        if isinstance(found, Difference):
            return found
        changes[load] = found
    return last.substitute(changes)


def without_kept(term: UOp) -> UOp:
    """`term` with every load of KEEP replaced by the value that is kept there, where its gate holds.

    The place lies inside of what is kept: that is asked of every access (kernel_proof.py).
    """
    done: dict[UOp, UOp] = {}
    for node in toposort((term,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        if node.op is Ops.LOAD and node.src[0].src[0].op is Ops.KEEP:
            kept, index, *gate = new.src[0].src
            new = _instance(kept.src[0], values_at(index, kept.src[1:]))
            for condition in gate:
                new = condition.where(new, UOp.const(new.dtype, 0))
        done[node] = new
    return done[term]


def _instance(value: UOp, terms: dict[UOp, UOp]) -> UOp:
    """`value` with terms for loops that it depends on; loops of its own reductions are others.

    Raises: NotReadable where such a loop is one that a term depends on.
    """
    free = free_loops_below(value)
    used = frozenset().union(*[free_loops(term) for term in terms.values()])
    done: dict[UOp, UOp] = dict(terms)
    for node in toposort((value,)):
        if node in done or free[node].isdisjoint(terms):
            done.setdefault(node, node)
            continue
        if node.op is Ops.REDUCE and not used.isdisjoint(node.src[1:]):
            raise NotReadable("a reduction in what is kept runs over a loop of its reader")
        done[node] = node.with_src(tuple([done[s] for s in node.src]))
    return done[value]


def _value_at(store: UOp, index: UOp, questions: Questions) -> UOp | Difference:
    place, value = store.src
    loops = [n for n in toposort((place.src[1],)) if n.op is Ops.RANGE]
    terms = map_by_position(place.src[1], index, loops)
    if terms is None:
        return Difference("the place in a table", place.src[1], index)
    inside = [c for x, t in terms.items() for c in (~(t < 0), t < loop_size(x))]
    claim = all_of([place.src[1].substitute(terms).eq(index), *inside])
    decision = questions.holds(claim)
    if decision.verdict is Verdict.REFUTED:
        return Difference("the place in a table", place.src[1], index, decision.point)
    return value.substitute(terms)
