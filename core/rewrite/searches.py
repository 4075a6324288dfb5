"""Searches behind extractors: they look for names that keep a contract, and are believed in nothing.

Owns: the searches. A search that answers wrongly makes its rule not fire; it cannot make it wrong,
so this file is not part of what proofs depend on. Does not own: contracts (extractors.py), sums (sums.py).

Each takes the inputs of its extractor, terms as sums that are kept once, and the Forms; it gives the
outputs, terms as sums, or None if it finds none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd
from typing import Any, NamedTuple

from proofgrad.core.ir.op_names import FLOORDIV, MOD
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.sums import (
    OTHER,
    QUOTIENT,
    REMAINDER,
    ZERO,
    Atom,
    Form,
    Forms,
    Sum,
    add,
    interval,
    scale,
)

Search = Callable[..., "tuple[Any, ...] | None"]


def split(x: Form, c: int, forms: Forms) -> tuple[Sum, Sum] | None:
    """Whole multiples of c apart from the rest. None if there are none."""
    terms, constant = x
    if c <= 0:
        return None
    quotient = {atom: k // c for atom, k in terms.items() if not k % c}
    if not quotient and 0 <= constant < c:
        return None
    rest = {atom: k for atom, k in terms.items() if k % c} if quotient else terms
    return (quotient, constant // c), (rest, constant % c)


def residue(x: Form, c: int, forms: Forms) -> tuple[Sum, Sum] | None:
    """Coefficients reduced modulo c: to 0 <= r < c where that can be had, else to 0 <= k < c.

    None if they all are reduced already.
    """
    terms, constant = x
    if c <= 0:
        return None
    found = _residue_in_one_period(terms, constant, c)
    if found is not None:
        return found
    quotients = {atom: k // c for atom, k in terms.items()}
    if not any(quotients.values()) and 0 <= constant < c:
        return None
    return _residue(terms, quotients, constant, constant // c, c)


def _residue_in_one_period(terms: dict[Atom, int], constant: int, c: int) -> tuple[Sum, Sum] | None:
    """Each coefficient reduced to the side of 0 where its summand spans less."""
    near = {}
    low, span = constant, 0
    for atom, k in terms.items():
        quotient = near[atom] = (2 * k + c) // (2 * c)
        k -= quotient * c
        if k:
            least, most = atom.low, atom.high
            if least is None or most is None:
                return None
            low += k * least if k > 0 else k * most
            span += abs(k) * (most - least)
    period = low // c
    if (low + span) // c == period:
        return _residue(terms, near, constant, period, c)
    if span >= c:  # the other side of a tie spans as much; that of a lone term spans more
        return None
    for quotients in _choices(terms, near, c):
        reduced = {atom: k - quotients[atom] * c for atom, k in terms.items()}
        least, most = interval((reduced, constant))
        if least is not None and most is not None and least // c == most // c:
            return _residue(terms, quotients, constant, least // c, c)
    return None


def _choices(terms: dict[Atom, int], near: dict[Atom, int], c: int) -> Iterator[dict[Atom, int]]:
    """Quotients of the coefficients: other ones than the nearest, for a tie or a lone term."""
    for atom, k in terms.items():
        if len(near) == 1 or 2 * (k % c) == c:
            yield {**near, atom: near[atom] + (1 if k > near[atom] * c else -1)}


def _residue(
    terms: dict[Atom, int], quotients: dict[Atom, int], constant: int, lifted: int, c: int
) -> tuple[Sum, Sum]:
    rest = {}
    for atom, k in terms.items():
        k -= quotients[atom] * c
        if k:
            rest[atom] = k
    whole = {atom: k for atom, k in quotients.items() if k}
    return (whole, lifted), (rest, constant - lifted * c)


def gcd_split(x: Form, c: int, forms: Forms) -> tuple[int, Sum, Sum, int] | None:
    """The largest factor g of c such that what g does not divide stays within 0 <= r < g."""
    terms, constant = x
    found = _shared_factor(x, c, terms)
    if found is None:
        return None
    g, lifted = found
    rest = {atom: k for atom, k in terms.items() if k % g}
    whole = {atom: k // g for atom, k in terms.items() if not k % g}
    return g, (whole, lifted), (rest, constant - lifted * g), c // g


def _shared_factor(x: Form, c: int, numbers: dict[Atom, int]) -> tuple[int, int] | None:
    """The largest factor g > 1 of c such that summands whose number it does not divide stay in one period of it.

    With the constant less so many times g, the second result, they lie within 0 <= r < g. `numbers`: what divides
    each summand.
    """
    terms, constant = x
    if c <= 1:
        return None
    shared = set()
    for k in numbers.values():
        g = gcd(c, k)
        if g != 1:
            shared.add(g)
    if not shared:
        return None
    if len(shared) > 1:
        shared = {gcd(a, b) for a in shared for b in shared} - {1}
    for g in sorted(shared, reverse=True):
        low = high = constant
        for atom, number in numbers.items():
            if number % g:
                k = terms[atom]
                least, most = (atom.low, atom.high) if k > 0 else (atom.high, atom.low)
                if least is None or most is None:
                    break
                low += k * least
                high += k * most
        else:
            if low // g == high // g:
                return g, low // g
    return None


def multiples(x: Form, c: int, forms: Forms) -> tuple[Sum, Sum] | None:
    """Summands that c divides, as facts say of their atoms, apart from the rest."""
    terms, constant = x
    numbers = _divisors(x, forms)
    if not c or numbers is None:
        return None
    whole = {atom: k for atom, k in terms.items() if not numbers[atom] % c}
    if not whole:
        return None
    return (whole, 0), ({atom: k for atom, k in terms.items() if atom not in whole}, constant)


def gcd_multiples(x: Form, c: int, forms: Forms) -> tuple[int, Sum, Sum, int] | None:
    """As `gcd_split`, where g divides summands as facts say of their atoms."""
    terms, constant = x
    numbers = _divisors(x, forms)
    found = None if numbers is None else _shared_factor(x, c, numbers)
    if found is None or numbers is None:
        return None
    g, lifted = found
    rest = {atom: k for atom, k in terms.items() if numbers[atom] % g}
    if not rest and not constant % g:
        return None  # nothing to take out
    whole = {atom: k for atom, k in terms.items() if not numbers[atom] % g}
    return g, (whole, lifted * g), (rest, constant - lifted * g), c // g


def _divisors(x: Form, forms: Forms) -> dict[Atom, int] | None:
    """What divides each summand; None if facts say no more than the coefficients do."""
    found = {atom: k * forms.divisor_of(atom) for atom, k in x[0].items()}
    return None if found == x[0] else found


def common(x: Form, forms: Forms) -> tuple[int, Sum] | None:
    """The greatest common factor of all coefficients, if it is more than 1."""
    terms, constant = x
    if not terms:
        return None
    g = gcd(constant, *terms.values())
    if g <= 1:
        return None
    return g, ({atom: k // g for atom, k in terms.items()}, constant // g)


def tidy(x: Form, forms: Forms) -> tuple[Sum]:
    """The sum itself: it is written in canonical order."""
    return (x,)


class Divided(NamedTuple):
    """A term that is (u // e) + k: e is 1 and k is 0 where there is no division."""

    u: Sum
    e: int
    k: Sum
    whole: Sum  # u + e*k


def recombine(x: Form, forms: Forms) -> tuple[Any, ...] | None:
    """A term s*(v % a) and a term s*a*(z // (e*a)), where v is z // e but for a multiple of a."""
    terms, _ = x
    for remainder, quotient in _pairs(terms, FLOORDIV):
        v, a, s = remainder.form, remainder.number, terms[remainder]
        z, divisor = quotient.form, quotient.number
        if divisor % a:
            continue
        for u, e, k, whole in _as_divided(v, divisor // a):
            found = _congruence(z, whole, divisor)
            if found is not None:
                t = z if e == 1 else ({forms.divided(FLOORDIV, z, e): 1}, 0)
                return _without(x, remainder, quotient), s, v, a, u, e, k, z, *found, t
    return None


def recombine_modulo(x: Form, forms: Forms) -> tuple[Any, ...] | None:
    """A term s*(v % a) and a term s*a*(w % b), where w is v // a but for a multiple of b."""
    terms, _ = x
    for remainder, digit in _pairs(terms, MOD):
        v, a, s = remainder.form, remainder.number, terms[remainder]
        w, b = digit.form, digit.number
        for z, divisor, lifted, _ in _quotients_in(w, a):
            for u, e, k, whole in _as_divided(v, divisor // a):
                found = _congruence(z, whole, divisor)
                if found is not None:
                    rest = _without(x, remainder, digit)
                    y = z if e == 1 else ({forms.divided(FLOORDIV, z, e): 1}, 0)
                    y = add(y, scale(lifted, a))
                    t = {forms.divided(MOD, y, a * b): 1}, 0
                    return rest, s, v, a, b, u, e, k, w, z, lifted, *found, y, t
    return None


def _congruence(upper: Sum, lower: Sum, d: int) -> tuple[Sum, int, Sum, int, int] | None:
    """m, p, g, n, h: upper == lower + d*m + p*(g % n) - p*g, and p*n == d*h; p is 0 if it can be."""
    difference = add(upper, scale(lower, -1))
    m = _whole_quotient(difference, d)
    if m is not None:
        return m, 0, ZERO, 1, 0
    for atom, p in difference[0].items():
        if atom.kind is MOD and atom.number > 0 and not p * atom.number % d:
            inner = add(difference, ({atom: -p}, 0))
            m = _whole_quotient(add(inner, scale(atom.form, p)), d)
            if m is not None:
                return m, p, atom.form, atom.number, p * atom.number // d
    return None


def _whole_quotient(form: Sum, a: int) -> Sum | None:
    """form / a, if every coefficient is a multiple of a."""
    terms, constant = form
    if constant % a:
        return None
    for k in terms.values():
        if k % a:
            return None
    return {atom: k // a for atom, k in terms.items()}, constant // a


def _pairs(terms: dict[Atom, int], kind: Ops) -> Iterator[tuple[Atom, Atom]]:
    """Remainders s*(v % a), each with every term s*a*y where y is a `kind` by a number."""
    for remainder, s in terms.items():
        if remainder.kind is MOD and remainder.number > 0:
            wanted = s * remainder.number
            for other, k in terms.items():
                is_alike = k == wanted and other.kind is kind and other.number > 0
                if is_alike and other is not remainder:
                    yield remainder, other


def _as_divided(v: Form, e: int) -> Iterator[Divided]:
    """Each way to read v as u // e + k."""
    if e == 1:
        yield Divided(v, 1, ZERO, v)
        return
    for atom, factor in v[0].items():
        if factor == 1 and atom.kind is FLOORDIV and atom.number == e:
            yield _divided(v, atom)


def _quotients_in(w: Form, a: int) -> Iterator[Divided]:
    """Each way to read w as z // d + l for a multiple d of a."""
    for atom, factor in w[0].items():
        if factor == 1 and atom.kind is FLOORDIV and atom.number > 0 and not atom.number % a:
            yield _divided(w, atom)


def _divided(form: Form, quotient: Atom) -> Divided:
    """The sum `form` read as its summand u // e and the rest k."""
    k = _without(form, quotient)
    u, e = quotient.form, quotient.number
    return Divided(u, e, k, add(u, scale(k, e)))


def _without(form: Sum, *gone: Atom) -> Sum:
    terms = form[0].copy()
    for atom in gone:
        del terms[atom]
    return terms, form[1]


def remainder_in_sum(x: Form, c: int, forms: Forms) -> tuple[Sum, int, Form, int] | None:
    """A summand s*(u % a) where c divides s*a."""
    if not c:
        return None
    for atom, s in x[0].items():
        if atom.kind is MOD and atom.number > 0 and not s * atom.number % c:
            return _without(x, atom), s, atom.form, atom.number
    return None


def quotient_in_sum(x: Form, forms: Forms) -> tuple[Sum, Form, int] | None:
    """A summand u // a, for a number a."""
    for atom, factor in x[0].items():
        if factor == 1 and atom.kind is FLOORDIV and atom.number > 0:
            return _without(x, atom), atom.form, atom.number
    return None


# Marks of the summands without which a search of a sum finds nothing.
NEEDS = {
    "multiples": OTHER,
    "gcd_multiples": OTHER,
    "recombine": QUOTIENT | REMAINDER,
    "recombine_modulo": REMAINDER,
    "remainder_in_sum": REMAINDER,
    "quotient_in_sum": QUOTIENT,
}


def reciprocal(c: int, h: int, forms: Forms) -> tuple[int, int, int] | None:
    """The least power of two p, and m and e with m * c == p + e, for which e * h < p."""
    if c <= 0 or h < 0:
        return None
    p = 1
    while True:
        e = -p % c
        if e * h < p:
            return (p + e) // c, p, e
        p *= 2


SEARCHES: dict[str, Search] = {
    "reciprocal": reciprocal,
    "split": split,
    "residue": residue,
    "gcd_split": gcd_split,
    "multiples": multiples,
    "gcd_multiples": gcd_multiples,
    "common": common,
    "tidy": tidy,
    "recombine": recombine,
    "recombine_modulo": recombine_modulo,
    "remainder_in_sum": remainder_in_sum,
    "quotient_in_sum": quotient_in_sum,
}
