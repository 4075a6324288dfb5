"""The contracts of extractors: what a rule may believe of the names that a search gives it.

Owns: the contracts, which are data that the prover assumes and the engine checks at each use. Does
not own: the check (extractor_check.py), the searches (searches.py), the rules that use extractors.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.rewrite.rule import Apply, Expr, Name, Num

TERM, NUMBER, TRUTH = "term", "number", "truth"
# Extractors of a term and of a truth within a mask.
NARROW, NARROW_TRUTH, IMPLIED = "narrow", "narrow_truth", "implied"


@dataclass(frozen=True, slots=True)
class Contract:
    """What an extractor promises: `claims` over the names of its inputs and outputs, all true.

    A sort is "term" (an index term), "number" or "truth" (a bool term). Claims are equations of index
    terms, linear in the atoms; `%` and `//` by a number are atoms. A claim about a truth says that
    it is the conjunction of a comparison of index terms and another truth (masks.py), or what holds
    where it does (narrowing.py).
    """

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    claims: tuple[Apply, ...]


def _sum(*parts: Expr) -> Expr:
    total = parts[0]
    for part in parts[1:]:
        total = Apply("+", (total, part))
    return total


def _times(a: Expr, b: Expr) -> Expr:
    return Apply("*", (a, b))


def _equal(a: Expr, b: Expr) -> Apply:
    return Apply("==", (a, b))


_x, _c, _q, _r = Name("x"), Name("c"), Name("q"), Name("r")
_g, _y, _d = Name("g"), Name("y"), Name("d")
_rest, _s, _u, _z, _a, _m = [Name(n) for n in ("rest", "s", "u", "z", "a", "m")]
_v, _w, _t, _b, _e, _k, _l = [Name(n) for n in ("v", "w", "t", "b", "e", "k", "l")]
_p, _n, _h = [Name(n) for n in ("p", "n", "h")]


def _within(mask: Expr, claim: Apply) -> Apply:
    """Where the mask holds, so does the claim."""
    return Apply("or", (Apply("not", (mask,)), claim))


_OF_TRUTH = Contract((("v", TRUTH), ("g", TRUTH)), (("w", TRUTH),), (_within(_g, _equal(_v, _w)),))

# z == u + e*k + e*a*m + p*(g % n) - p*g, where p*n is the multiple h of e*a
_CONGRUENCE = (("m", TERM), ("p", NUMBER), ("g", TERM), ("n", NUMBER), ("h", NUMBER))
_CONGRUENT = (
    _equal(_times(_p, _n), _times(_times(_e, _a), _h)),
    _equal(
        _z,
        _sum(
            _u,
            _times(_e, _k),
            _times(_times(_e, _a), _m),
            _times(_p, Apply("%", (_g, _n))),
            _times(_times(Num(-1), _p), _g),
        ),
    ),
)

_DIVISION = Contract(
    (("x", TERM), ("c", NUMBER)),
    (("q", TERM), ("r", TERM)),
    (_equal(_x, _sum(_times(_q, _c), _r)),),
)

_i = Name("i")
# s*s == 1 and v - w == s*(r - i), so that v == w says r == i
_SOLVED = (
    _equal(_times(_s, _s), Num(1)),
    _equal(_sum(_v, _times(Num(-1), _w)), _sum(_times(_s, _r), _times(_times(Num(-1), _s), _i))),
)

CONTRACTS: dict[str, Contract] = {
    # m / p is at least 1 / c, by less than 1 / (h * p)
    "reciprocal": Contract(
        (("c", NUMBER), ("h", NUMBER)),
        (("m", NUMBER), ("p", NUMBER), ("e", NUMBER)),
        (_equal(_times(_m, _c), _sum(_p, _e)),),
    ),
    # g is v == w and p, where v == w says that r is i
    "solve": Contract(
        (("g", TRUTH), ("r", TERM)),
        (("i", TERM), ("p", TRUTH), ("v", TERM), ("w", TERM), ("s", NUMBER)),
        (_equal(_g, Apply("and", (_equal(_v, _w), _p))), *_SOLVED),
    ),
    # g is v < w and p, where v < w says that r < i (s == 1) or i < r (s == -1)
    "solve_less": Contract(
        (("g", TRUTH), ("r", TERM)),
        (("i", TERM), ("p", TRUTH), ("v", TERM), ("w", TERM), ("s", NUMBER)),
        (_equal(_g, Apply("and", (Apply("<", (_v, _w)), _p))), *_SOLVED),
    ),
    # x is y wherever g holds
    NARROW: Contract((("x", TERM), ("g", TRUTH)), (("y", TERM),), (_within(_g, _equal(_x, _y)),)),
    # v is w wherever g holds; w has less load, or it is v without some of its conjuncts, or false
    NARROW_TRUTH: _OF_TRUTH,
    IMPLIED: _OF_TRUTH,
    # x == q*c + r: q takes the terms that are whole multiples of c
    "split": _DIVISION,
    # x == q*c + r: every coefficient of r is reduced to 0 <= k < c
    "residue": _DIVISION,
    # x == g*y + r and c == g*d, g > 1, and 0 <= r < g where that can be had
    "gcd_split": Contract(
        (("x", TERM), ("c", NUMBER)),
        (("g", NUMBER), ("y", TERM), ("r", TERM), ("d", NUMBER)),
        (_equal(_x, _sum(_times(_g, _y), _r)), _equal(_c, _times(_g, _d))),
    ),
    # x == q + r: of q facts are to say that it is a multiple of c
    "multiples": Contract(
        (("x", TERM), ("c", NUMBER)), (("q", TERM), ("r", TERM)), (_equal(_x, _sum(_q, _r)),)
    ),
    # x == q + r and c == g*d: of q facts are to say that it is a multiple of g, and 0 <= r < g
    "gcd_multiples": Contract(
        (("x", TERM), ("c", NUMBER)),
        (("g", NUMBER), ("q", TERM), ("r", TERM), ("d", NUMBER)),
        (_equal(_x, _sum(_q, _r)), _equal(_c, _times(_g, _d))),
    ),
    # x == g*y, g the greatest common factor of all coefficients
    "common": Contract((("x", TERM),), (("g", NUMBER), ("y", TERM)), (_equal(_x, _times(_g, _y)),)),
    # x == y: like terms collected, in canonical order
    "tidy": Contract((("x", TERM),), (("y", TERM),), (_equal(_x, _y),)),
    # x == rest + s*(v % a) + s*a*(z // (e*a)), where z // e and v = u // e + k differ by a multiple
    # of a, counted with p*(g % n) as p*g; t == z // e
    "recombine": Contract(
        (("x", TERM),),
        (
            *(("rest", TERM), ("s", NUMBER), ("v", TERM), ("a", NUMBER), ("u", TERM)),
            *(("e", NUMBER), ("k", TERM), ("z", TERM), *_CONGRUENCE, ("t", TERM)),
        ),
        (
            _equal(
                _x,
                _sum(
                    _rest,
                    _times(_s, Apply("%", (_v, _a))),
                    _times(_times(_s, _a), Apply("//", (_z, _times(_e, _a)))),
                ),
            ),
            _equal(_v, _sum(Apply("//", (_u, _e)), _k)),
            *_CONGRUENT,
            _equal(_t, Apply("//", (_z, _e))),
        ),
    ),
    # x == rest + s*(v % a) + s*a*(w % b), where w = z // (e*a) + l, and y = z // e + a*l is v but
    # for a multiple of a as above; t == y % (a*b)
    "recombine_modulo": Contract(
        (("x", TERM),),
        (
            *(("rest", TERM), ("s", NUMBER), ("v", TERM), ("a", NUMBER), ("b", NUMBER)),
            *(("u", TERM), ("e", NUMBER), ("k", TERM), ("w", TERM), ("z", TERM), ("l", TERM)),
            *(*_CONGRUENCE, ("y", TERM), ("t", TERM)),
        ),
        (
            _equal(
                _x,
                _sum(
                    _rest,
                    _times(_s, Apply("%", (_v, _a))),
                    _times(_times(_s, _a), Apply("%", (_w, _b))),
                ),
            ),
            _equal(_v, _sum(Apply("//", (_u, _e)), _k)),
            _equal(_w, _sum(Apply("//", (_z, _times(_e, _a))), _l)),
            *_CONGRUENT,
            _equal(_y, _sum(Apply("//", (_z, _e)), _times(_a, _l))),
            _equal(_t, Apply("%", (_y, _times(_a, _b)))),
        ),
    ),
    # x == rest + s*(u % a)
    "remainder_in_sum": Contract(
        (("x", TERM), ("c", NUMBER)),
        (("rest", TERM), ("s", NUMBER), ("u", TERM), ("a", NUMBER)),
        (_equal(_x, _sum(_rest, _times(_s, Apply("%", (_u, _a))))),),
    ),
    # x == rest + u // a
    "quotient_in_sum": Contract(
        (("x", TERM),),
        (("rest", TERM), ("u", TERM), ("a", NUMBER)),
        (_equal(_x, _sum(_rest, Apply("//", (_u, _a)))),),
    ),
}
