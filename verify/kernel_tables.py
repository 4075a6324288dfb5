"""A kernel that was cut in two, with tables between: the tables read through.

Owns: replacing each load of a table by the term that fills that place of it. Does not own: that every
place of a table is written once and that accesses stay inside, which is asked of every kernel
(kernel_proof.py), nor comparing the result with the kernel before the cut (kernel_match.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernel_loops import map_by_position
from proofgrad.verify.kernel_match import Difference
from proofgrad.verify.kernel_questions import Questions, Verdict, all_of
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
