"""Other forms of an index term, each shown to be equal: shorter, or with values for loops that are gone.

Owns: which forms are tried, and asking whether they are equal. Does not own: what is compared
(kernels/match.py), deciding (kernels/questions.py), shorter forms (kernels/linear_sums.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.linear_sums import shortest
from proofgrad.verify.kernels.questions import Questions, Verdict, all_of
from proofgrad.verify.kernels.terms import is_integer, loop_size

# From so many operations on quotients and remainders are taken apart first.
LONG_TERM = 24
# So many parts of an index are tried as the value that a selection gave a loop, in so many ways.
MOST_PARTS, MOST_SELECTIONS = 12, 64
_QUOTIENTS = (Ops.FLOORDIV, Ops.MOD, Ops.SHR, Ops.AND)


def shortened(term: UOp, questions: Questions, known: dict[UOp, UOp]) -> UOp:
    """An index term that no memory is part of, with equal ones for its quotients and remainders, each shown to be equal.

    `known`: what became of terms before; it is added to.
    """
    if not questions.terms.is_plain(term) or len(toposort((term,))) < LONG_TERM:
        return term
    for node in toposort((term,)):
        if node in known:
            continue
        new = node.with_src(tuple([known[s] for s in node.src]))
        known[node] = new
        if node is term or node.op in _QUOTIENTS:
            short = shortest(new)
            claim = UOp(Ops.CMPEQ, dtypes.bool, (new, short))
            if short is not new and questions.seems(claim).verdict is Verdict.PROVED:
                known[node] = short
    return known[term]


def selected(
    questions: Questions, before: UOp, after: UOp, loops: Sequence[UOp], given: tuple[UOp, ...]
) -> dict[UOp, UOp] | None:
    """Values of loops that are gone, among the parts of the index `after`, that give it."""
    no_values = (Ops.CONST, Ops.PARAM, Ops.INDEX)
    parts = [n for n in toposort((after,)) if is_integer(n.dtype) and n.op not in no_values]
    choices = product(parts[::-1][:MOST_PARTS], repeat=len(loops))
    for chosen in islice(choices, MOST_SELECTIONS):
        terms = dict(zip(loops, chosen))
        claim = UOp(Ops.CMPEQ, dtypes.bool, (before.substitute(terms), after))
        inside = [c for x, t in terms.items() for c in (~(t < 0), t < loop_size(x))]
        whole = all_of([claim, *inside])
        if questions.seems(whole, given).verdict is Verdict.PROVED:
            return terms
    return None
