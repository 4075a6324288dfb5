"""Searches behind views: they look for names that keep a contract, and are believed in nothing.

Owns: the searches. A search that answers wrongly makes its rule not fire; it cannot make it wrong,
so this file is not part of what proofs depend on. Does not own: contracts (views.py), linear forms.

Each takes the inputs of its view and the Facts, and gives the outputs, or None if it finds none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

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
    """Coefficients reduced modulo c: to 0 <= r < c where that can be had, else to 0 <= k < c.

    None if they all are reduced already.
    """
    form = facts.form(x)
    if form is None or c <= 0:
        return None
    found = _residue_in_one_period(form, c, facts)
    if found is not None:
        return found
    if all([0 < k < c for k in form.terms.values()]) and 0 <= form.constant < c:
        return None
    return _residue(
        form, {atom: k // c for atom, k in form.terms.items()}, form.constant // c, c, facts
    )


def _residue_in_one_period(form: Linear, c: int, facts: Facts) -> tuple[UOp, UOp] | None:
    """Each coefficient reduced to the side of 0 where its summand spans less."""
    near = {atom: (2 * k + c) // (2 * c) for atom, k in form.terms.items()}
    for quotients in _choices(form, near, c):
        rest = {atom: k - quotients[atom] * c for atom, k in form.terms.items()}
        rest = {atom: k for atom, k in rest.items() if k}
        low, high = interval(Linear(rest, form.constant), facts)
        if low is not None and high is not None and low // c == high // c:
            return _residue(form, quotients, low // c, c, facts)
    return None


def _choices(form: Linear, near: dict[UOp, int], c: int) -> Iterator[dict[UOp, int]]:
    """Quotients of the coefficients: the nearest, then the other ones for a tie or a lone term."""
    yield near
    for atom, k in form.terms.items():
        if len(near) == 1 or 2 * (k % c) == c:
            yield {**near, atom: near[atom] + (1 if k > near[atom] * c else -1)}


def _residue(
    form: Linear, quotients: dict[UOp, int], constant: int, c: int, facts: Facts
) -> tuple[UOp, UOp]:
    rest = {atom: k - quotients[atom] * c for atom, k in form.terms.items()}
    q = Linear({atom: k for atom, k in quotients.items() if k}, constant, form.dtype)
    r = Linear({a: k for a, k in rest.items() if k}, form.constant - constant * c, form.dtype)
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


class Divided(NamedTuple):
    """A term that is (u // e) + k: e is 1 and k is 0 where there is no division."""

    u: UOp
    e: int
    k: UOp
    whole: Linear  # u + e*k


def recombine(x: UOp, facts: Facts) -> tuple[Any, ...] | None:
    """A term s*(v % a) and a term s*a*(z // (e*a)), where v is z // e but for a multiple of a."""
    form = facts.form(x)
    if form is None:
        return None
    for remainder, quotient in _pairs(form, Ops.FLOORDIV):
        v, a, s = remainder.src[0], remainder.src[1].arg, form.terms[remainder]
        z, divisor = quotient.src[0], quotient.src[1].arg
        if divisor % a:
            continue
        for u, e, k, whole in _as_divided(v, divisor // a, facts):
            found = _congruence(facts.form(z), whole, divisor, facts)
            if found is not None:
                rest = to_term(_without(form, remainder, quotient), facts)
                t = z if e == 1 else z.alu(Ops.FLOORDIV, UOp.index(e))
                return rest, s, v, a, u, e, k, z, *found, t
    return None


def recombine_modulo(x: UOp, facts: Facts) -> tuple[Any, ...] | None:
    """A term s*(v % a) and a term s*a*(w % b), where w is v // a but for a multiple of b."""
    form = facts.form(x)
    if form is None:
        return None
    for remainder, digit in _pairs(form, Ops.MOD):
        v, a, s = remainder.src[0], remainder.src[1].arg, form.terms[remainder]
        w, b = digit.src[0], digit.src[1].arg
        for z, divisor, lifted, _ in _quotients_in(w, a, facts):
            for u, e, k, whole in _as_divided(v, divisor // a, facts):
                found = _congruence(facts.form(z), whole, divisor, facts)
                if found is not None:
                    rest = to_term(_without(form, remainder, digit), facts)
                    y = _lower_digits(z, e, facts.form(lifted), a, facts)
                    t = y.alu(Ops.MOD, UOp.index(a * b))
                    return rest, s, v, a, b, u, e, k, w, z, lifted, *found, y, t
    return None


def _lower_digits(z: UOp, e: int, lifted: Linear | None, a: int, facts: Facts) -> UOp:
    """z // e + a * lifted."""
    assert lifted is not None
    quotient = z if e == 1 else z.alu(Ops.FLOORDIV, UOp.index(e))
    form = facts.form(quotient)
    assert form is not None
    return to_term(form.plus(lifted, a), facts)


def _congruence(
    upper: Linear | None, lower: Linear, d: int, facts: Facts
) -> tuple[UOp, int, UOp, int, int] | None:
    """m, p, g, n, h: upper == lower + d*m + p*(g % n) - p*g, and p*n == d*h; p is 0 if it can be."""
    if upper is None:
        return None
    difference = upper.plus(lower, -1)
    m = _whole_quotient(difference, d)
    if m is not None:
        return to_term(m, facts), 0, UOp.index(0), 1, 0
    for atom, p in difference.terms.items():
        if _divided_by_number(atom, Ops.MOD) and p * atom.src[1].arg % d == 0:
            g, n = atom.src[0], atom.src[1].arg
            inner = facts.form(g)
            m = (
                None
                if inner is None
                else _whole_quotient(difference.plus(Linear({atom: 1}, 0), -p).plus(inner, p), d)
            )
            if m is not None:
                return to_term(m, facts), p, g, n, p * n // d
    return None


def _whole_quotient(form: Linear, a: int) -> Linear | None:
    """form / a, if every coefficient is a multiple of a."""
    if form.constant % a or any([k % a for k in form.terms.values()]):
        return None
    return Linear({atom: k // a for atom, k in form.terms.items()}, form.constant // a, form.dtype)


def _pairs(form: Linear, op: Ops) -> Iterator[tuple[UOp, UOp]]:
    """Remainders s*(v % a), each with every term s*a*y where y is an `op` by a number."""
    remainders = [t for t in form.terms if t.op is Ops.MOD and _divided_by_number(t, Ops.MOD)]
    if not remainders:
        return
    others = [t for t in form.terms if t.op is op and _divided_by_number(t, op)]
    for remainder in remainders:
        wanted = form.terms[remainder] * remainder.src[1].arg
        for other in others:
            if form.terms[other] == wanted and other is not remainder:
                yield remainder, other


def _as_divided(v: UOp, e: int, facts: Facts) -> Iterator[Divided]:
    """Each way to read v as u // e + k."""
    form = facts.form(v)
    if form is None:
        return
    if e == 1:
        yield Divided(v, 1, UOp.index(0), form)
        return
    for quotient, factor in form.terms.items():
        is_quotient = factor == 1 and _divided_by_number(quotient, Ops.FLOORDIV)
        if is_quotient and quotient.src[1].arg == e:
            yield from _divided(form, quotient, facts)


def _quotients_in(w: UOp, a: int, facts: Facts) -> Iterator[Divided]:
    """Each way to read w as z // d + l for a multiple d of a."""
    form = facts.form(w)
    for quotient, factor in form.terms.items() if form is not None else ():
        is_quotient = factor == 1 and _divided_by_number(quotient, Ops.FLOORDIV)
        if is_quotient and quotient.src[1].arg % a == 0:
            yield from _divided(form, quotient, facts)


def _divided(form: Linear, quotient: UOp, facts: Facts) -> Iterator[Divided]:
    """The sum `form` read as its summand u // e and the rest k."""
    u, e = quotient.src[0], quotient.src[1].arg
    k, inner = _without(form, quotient), facts.form(u)
    if inner is not None:
        yield Divided(u, e, to_term(k, facts), inner.plus(k, e))


def _without(form: Linear, *gone: UOp) -> Linear:
    terms = {atom: k for atom, k in form.terms.items() if atom not in gone}
    return Linear(terms, form.constant, form.dtype)


def remainder_in_sum(x: UOp, c: int, facts: Facts) -> tuple[UOp, int, UOp, int] | None:
    """A summand s*(u % a) where c divides s*a."""
    form = facts.form(x)
    for term, s in form.terms.items() if form is not None and c else ():
        if _divided_by_number(term, Ops.MOD) and s * term.src[1].arg % c == 0:
            return to_term(_without(form, term), facts), s, term.src[0], term.src[1].arg
    return None


def quotient_in_sum(x: UOp, facts: Facts) -> tuple[UOp, UOp, int] | None:
    """A summand u // a, for a number a."""
    form = facts.form(x)
    for term, factor in form.terms.items() if form is not None else ():
        if factor == 1 and _divided_by_number(term, Ops.FLOORDIV):
            return to_term(_without(form, term), facts), term.src[0], term.src[1].arg
    return None


def _divided_by_number(node: UOp, op: Ops) -> bool:
    return node.op is op and node.src[1].op is Ops.CONST and node.src[1].arg > 0


SEARCHES: dict[str, Search] = {
    "split": split,
    "residue": residue,
    "gcd_split": gcd_split,
    "common": common,
    "tidy": tidy,
    "recombine": recombine,
    "recombine_modulo": recombine_modulo,
    "remainder_in_sum": remainder_in_sum,
    "quotient_in_sum": quotient_in_sum,
}
