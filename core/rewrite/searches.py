"""Searches behind views: they look for names that keep a contract, and are believed in nothing.

Owns: the searches. A search that answers wrongly makes its rule not fire; it cannot make it wrong,
so this file is not part of what proofs depend on. Does not own: contracts (views.py), linear forms.

Each takes the inputs of its view and the Facts, and gives the outputs, or None if it finds none.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING, Any

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.linear import Linear, interval, to_term

if TYPE_CHECKING:
    from proofgrad.core.rewrite.facts import Facts

Search = Callable[..., "tuple[Any, ...] | None"]


def split(x: UOp, c: int, facts: Facts) -> tuple[UOp, UOp] | None:
    """Whole multiples of c apart from the rest. None if there are none."""
    form = facts.form(x)
    if form is None or c <= 0:
        return None
    quotient = {atom: k // c for atom, k in form.terms.items() if k % c == 0}
    rest = {atom: k for atom, k in form.terms.items() if k % c != 0}
    if not quotient and 0 <= form.constant < c:
        return None
    q = Linear(quotient, form.constant // c, form.dtype)
    r = Linear(rest, form.constant % c, form.dtype)
    return to_term(q, facts), to_term(r, facts)


def residue(x: UOp, c: int, facts: Facts) -> tuple[UOp, UOp] | None:
    """Coefficients reduced modulo c. None if they all are already."""
    form = facts.form(x)
    if form is None or c <= 0:
        return None
    if all([0 < k < c for k in form.terms.values()]) and 0 <= form.constant < c:
        return None
    rest = {atom: k % c for atom, k in form.terms.items() if k % c}
    quotient = {atom: k // c for atom, k in form.terms.items() if k // c}
    q = Linear(quotient, form.constant // c, form.dtype)
    r = Linear(rest, form.constant % c, form.dtype)
    return to_term(q, facts), to_term(r, facts)


def gcd_split(x: UOp, c: int, facts: Facts) -> tuple[int, UOp, UOp, int] | None:
    """The largest factor g of c such that what g does not divide stays within 0 <= r < g."""
    form = facts.form(x)
    if form is None or c <= 1:
        return None
    shared = [gcd(c, k) for k in form.terms.values()]
    for g in sorted({gcd(a, b) for a in shared for b in shared} - {1}, reverse=True):
        rest = {atom: k for atom, k in form.terms.items() if k % g}
        r = Linear(rest, form.constant % g, form.dtype)
        low, high = interval(r, facts)
        if low is None or high is None or low < 0 or high >= g:
            continue
        whole = {atom: k // g for atom, k in form.terms.items() if k % g == 0}
        y = Linear(whole, form.constant // g, form.dtype)
        return g, to_term(y, facts), to_term(r, facts), c // g
    return None


def common(x: UOp, facts: Facts) -> tuple[int, UOp] | None:
    """The greatest common factor of all coefficients, if it is more than 1."""
    form = facts.form(x)
    if form is None or not form.terms:
        return None
    g = gcd(form.constant, *form.terms.values())
    if g <= 1:
        return None
    whole = {atom: k // g for atom, k in form.terms.items()}
    return g, to_term(Linear(whole, form.constant // g, form.dtype), facts)


def tidy(x: UOp, facts: Facts) -> tuple[UOp] | None:
    """The canonical sum equal to x. None if x is that sum."""
    form = facts.form(x)
    if form is None:
        return None
    y = to_term(form, facts)
    return None if y is x else (y,)


def recombine(x: UOp, facts: Facts) -> tuple[UOp, int, UOp, UOp, int, UOp] | None:
    """A term s*(u % a) and a term s*a*(z // a) with z - u a multiple of a."""
    form = facts.form(x)
    if form is None:
        return None
    quotients = [t for t in form.terms if _divided_by_number(t, Ops.FLOORDIV)]
    if not quotients:
        return None
    for remainder in [t for t in form.terms if _divided_by_number(t, Ops.MOD)]:
        u, a, s = remainder.src[0], remainder.src[1].arg, form.terms[remainder]
        for quotient in quotients:
            if quotient.src[1].arg != a or form.terms[quotient] != s * a:
                continue
            z = quotient.src[0]
            m = _exact_quotient(z, u, a, facts)
            if m is None:
                continue
            rest = {t: k for t, k in form.terms.items() if t is not remainder and t is not quotient}
            others = Linear(rest, form.constant, form.dtype)
            return to_term(others, facts), s, u, z, a, to_term(m, facts)
    return None


def _divided_by_number(node: UOp, op: Ops) -> bool:
    return node.op is op and node.src[1].op is Ops.CONST and node.src[1].arg > 0


def _exact_quotient(z: UOp, u: UOp, a: int, facts: Facts) -> Linear | None:
    """(z - u) / a, if every coefficient is a multiple of a."""
    upper, lower = facts.form(z), facts.form(u)
    if upper is None or lower is None:
        return None
    difference = upper.plus(lower, -1)
    if any([k % a for k in (difference.constant, *difference.terms.values())]):
        return None
    terms = {atom: k // a for atom, k in difference.terms.items()}
    return Linear(terms, difference.constant // a, difference.dtype)


SEARCHES: dict[str, Search] = {
    "split": split,
    "residue": residue,
    "gcd_split": gcd_split,
    "common": common,
    "tidy": tidy,
    "recombine": recombine,
}
