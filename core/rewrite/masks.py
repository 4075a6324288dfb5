"""Extractors of truths: what a mask says of a range, found by a search that is believed in nothing.

Owns: these searches, the check that a truth is the conjunction that a contract claims, what a truth says
of sums. Does not own:
contracts (extractors.py), the check of their equations (extractor_check.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import AND, CONST
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.extractors import CONTRACTS, TRUTH, Contract
from proofgrad.core.rewrite.rule import Apply, Name
from proofgrad.core.rewrite.sums import add, scale

if TYPE_CHECKING:
    from proofgrad.core.rewrite.facts import Facts
    from proofgrad.core.rewrite.sums import Forms

Solution = tuple[UOp, UOp, UOp, UOp, int]
COMPARISONS = {"==": Ops.CMPEQ, "<": Ops.CMPLT}


def is_about_truth(contract: Contract) -> bool:
    """Whether an extractor takes a truth apart."""
    return any([sort == TRUTH for _, sort in contract.inputs])


def comparison_of(contract: Contract) -> str:
    """The comparison that a contract says to be among the conjuncts of its truth."""
    sorts = dict((*contract.inputs, *contract.outputs))
    for claim in contract.claims:
        match claim.args:
            case (Name(truth), Apply("and", (Apply(sign, _), _))) if sorts[truth] == TRUTH:
                return sign
    raise ValueError(f"{contract!r} says nothing of its truth")


def solution(extractor: str, mask: UOp, counter: UOp, facts: Facts) -> Solution | None:
    """(i, p, v, w, s) that keep the contract of `extractor` for the mask and the range."""
    op = COMPARISONS[comparison_of(CONTRACTS[extractor])]
    found = solve(mask, counter, op, facts)
    return found if found is not None and agrees(extractor, mask, counter, found, facts) else None


def agrees(extractor: str, mask: UOp, counter: UOp, found: Solution, facts: Facts) -> bool:
    """Whether a solution keeps the contract: the truths here, the equations as sums."""
    i, rest, v, w, sign = found
    read = facts.forms.read
    sums = [read(node) for node in (counter, i, v, w)]
    if None in sums:
        return False  # not all of them are index terms
    op = COMPARISONS[comparison_of(CONTRACTS[extractor])]
    comparison = _conjunct(UOp(op, dtypes.bool, (v, w)))
    if conjuncts(mask) != conjuncts(rest) | {comparison}:
        return False
    r, *others = sums
    return facts.extractors.check(extractor)(
        facts.forms, None, r, others[0], None, *others[1:], sign
    )


def conjuncts(truth: UOp) -> frozenset[Any]:
    """What `&` joins in a truth; none if it is true. The sides of an equation have no order."""
    if truth.op is AND:
        return conjuncts(truth.src[0]) | conjuncts(truth.src[1])
    if truth.op is CONST and truth.arg is True:
        return frozenset()
    return frozenset({_conjunct(truth)})


def _conjunct(truth: UOp) -> Any:
    return frozenset(truth.src) if truth.op is Ops.CMPEQ else truth


# -- the search -----------------------------------------------------------------------------------


def solve(mask: UOp, counter: UOp, op: Ops, facts: Facts) -> Solution | None:
    """A comparison of index terms among the conjuncts, solved for the range; the other conjuncts.

    It is v == w or v < w, with v - w = s * (counter - i), s being 1 or -1, and i without the range.
    """
    parts = parts_of(mask)
    for position, part in enumerate(parts):
        if part.op is not op:
            continue
        v, w = part.src
        first, second = facts.forms.read(v), facts.forms.read(w)
        if first is None or second is None:
            continue
        terms, constant = add(first, scale(second, -1))
        terms = dict(terms)
        sign = terms.pop(facts.forms.wrapped(counter), 0)
        if abs(sign) != 1:
            continue
        i = facts.forms.written(scale((terms, constant), -sign))
        if facts.independent(i, (counter,)):
            return i, conjunction_of(parts[:position] + parts[position + 1 :]), v, w, sign
    return None


def parts_of(truth: UOp) -> list[UOp]:
    """What `&` joins in a truth, from left to right."""
    if truth.op is not AND:
        return [truth]
    return parts_of(truth.src[0]) + parts_of(truth.src[1])


Claim = tuple[frozenset[tuple[Any, int]], int]  # the summands of a sum, and its constant


def claims_of(truth: UOp, forms: Forms) -> frozenset[Claim]:
    """Sums of index terms that are 0 or more wherever a truth holds: one or two of each comparison."""
    found = set()
    for part in parts_of(truth):
        if part.op is not Ops.CMPLT and part.op is not Ops.CMPEQ:
            continue
        first, second = [forms.read(source) for source in part.src]
        if first is None or second is None:
            continue
        terms, constant = add(second, scale(first, -1))
        if part.op is Ops.CMPLT:
            found.add((frozenset(terms.items()), constant - 1))
        else:
            found.add((frozenset(terms.items()), constant))
            found.add((frozenset([(atom, -k) for atom, k in terms.items()]), -constant))
    return frozenset(found)


def conjunction_of(truths: list[UOp]) -> UOp:
    """All of `truths`; true if there are none."""
    if not truths:
        return UOp.const(dtypes.bool, True)
    whole = truths[0]
    for truth in truths[1:]:
        whole = whole & truth
    return whole
