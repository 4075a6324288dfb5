"""Views: names that an untrusted search gives to a rule, under a contract checked at each use.

Owns: the contracts (data that the prover assumes), the check of a contract by comparing linear
forms, the searches. A search that answers wrongly makes its rule not fire; it cannot make it wrong.
Does not own: linear forms (linear.py), the rules that use views.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.linear import Linear, interval, linear_form, number, to_term
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Lit,
    Name,
    Node,
    Num,
    Var,
    View,
)
from proofgrad.core.rewrite.scope import Env, Scope

TERM, NUMBER = "term", "number"
Search = Callable[..., "tuple[Any, ...] | None"]
ViewUse = Callable[[Env], bool]


@dataclass(frozen=True, slots=True)
class Contract:
    """What a view promises: `claims` over the names of its inputs and outputs, all true.

    A sort is "term" or "number". Claims are equations of index terms, linear in the atoms; `%` and
    `//` by a number are atoms.
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

_DIVISION = Contract(
    (("x", TERM), ("c", NUMBER)),
    (("q", TERM), ("r", TERM)),
    (_equal(_x, _sum(_times(_q, _c), _r)),),
)

CONTRACTS: dict[str, Contract] = {
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
    # x == g*y, g the greatest common factor of all coefficients
    "common": Contract((("x", TERM),), (("g", NUMBER), ("y", TERM)), (_equal(_x, _times(_g, _y)),)),
    # x == y: like terms collected, in canonical order
    "tidy": Contract((("x", TERM),), (("y", TERM),), (_equal(_x, _y),)),
    # x == rest + s*(u % a) + s*a*(z // a) and z == u + a*m
    "recombine": Contract(
        (("x", TERM),),
        (("rest", TERM), ("s", NUMBER), ("u", TERM), ("z", TERM), ("a", NUMBER), ("m", TERM)),
        (
            _equal(
                _x,
                _sum(
                    _rest,
                    _times(_s, Apply("%", (_u, _a))),
                    _times(_times(_s, _a), Apply("//", (_z, _a))),
                ),
            ),
            _equal(_z, _sum(_u, _times(_a, _m))),
        ),
    ),
}


# -- searches: untrusted -------------------------------------------------------------------------


def split(x: UOp, c: int, facts: Any) -> tuple[UOp, UOp] | None:
    """Whole multiples of c apart from the rest. None if there are none."""
    form = linear_form(x)
    if form is None or c <= 0:
        return None
    quotient = {atom: k // c for atom, k in form.terms.items() if k % c == 0}
    rest = {atom: k for atom, k in form.terms.items() if k % c != 0}
    if not quotient and 0 <= form.constant < c:
        return None
    q = Linear(quotient, form.constant // c, form.dtype)
    r = Linear(rest, form.constant % c, form.dtype)
    return to_term(q, facts), to_term(r, facts)


def residue(x: UOp, c: int, facts: Any) -> tuple[UOp, UOp] | None:
    """Coefficients reduced modulo c. None if they all are already."""
    form = linear_form(x)
    if form is None or c <= 0:
        return None
    if all([0 < k < c for k in form.terms.values()]) and 0 <= form.constant < c:
        return None
    rest = {atom: k % c for atom, k in form.terms.items() if k % c}
    quotient = {atom: k // c for atom, k in form.terms.items() if k // c}
    q = Linear(quotient, form.constant // c, form.dtype)
    r = Linear(rest, form.constant % c, form.dtype)
    return to_term(q, facts), to_term(r, facts)


def gcd_split(x: UOp, c: int, facts: Any) -> tuple[int, UOp, UOp, int] | None:
    """The largest factor g of c such that what g does not divide stays within 0 <= r < g."""
    form = linear_form(x)
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


def common(x: UOp, facts: Any) -> tuple[int, UOp] | None:
    """The greatest common factor of all coefficients, if it is more than 1."""
    form = linear_form(x)
    if form is None or not form.terms:
        return None
    g = gcd(form.constant, *form.terms.values())
    if g <= 1:
        return None
    whole = {atom: k // g for atom, k in form.terms.items()}
    return g, to_term(Linear(whole, form.constant // g, form.dtype), facts)


def tidy(x: UOp, facts: Any) -> tuple[UOp] | None:
    """The canonical sum equal to x. None if x is that sum."""
    form = linear_form(x)
    if form is None:
        return None
    y = to_term(form, facts)
    return None if y is x else (y,)


def recombine(x: UOp, facts: Any) -> tuple[UOp, int, UOp, UOp, int, UOp] | None:
    """A term s*(u % a) and a term s*a*(z // a) with z - u a multiple of a."""
    form = linear_form(x)
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
            m = _exact_quotient(z, u, a)
            if m is None:
                continue
            rest = {t: k for t, k in form.terms.items() if t is not remainder and t is not quotient}
            others = Linear(rest, form.constant, form.dtype)
            return to_term(others, facts), s, u, z, a, to_term(m, facts)
    return None


def _divided_by_number(node: UOp, op: Ops) -> bool:
    return node.op is op and node.src[1].op is Ops.CONST and node.src[1].arg > 0


def _exact_quotient(z: UOp, u: UOp, a: int) -> Linear | None:
    """(z - u) / a, if every coefficient is a multiple of a."""
    upper, lower = linear_form(z), linear_form(u)
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


# -- use in a rule, and the check ------------------------------------------------------------------


def compile_view(view: View, scope: Scope, searches: dict[str, Search] = SEARCHES) -> ViewUse:
    """A function that binds the outputs of `view`, and says whether its contract holds."""
    # Terms are compiled here and not at the top: terms.py compiles whole sides, this one inputs.
    from proofgrad.core.rewrite.terms import compile_expr, compile_term

    contract, search = CONTRACTS[view.function], searches[view.function]
    sorts = [sort for _, sort in contract.inputs]
    inputs: list[Callable[[Env], Any]] = []
    for value, sort in zip(view.inputs, sorts, strict=True):
        if sort == NUMBER:
            inputs.append(
                compile_expr(Name(value.name) if isinstance(value, Const) else value, scope)
            )
        else:
            inputs.append(_term_input(value, compile_term, scope))
    slots = _output_slots(view, contract, scope)
    names = [name for name, _ in (*contract.inputs, *contract.outputs)]

    def use(env: Env) -> bool:
        given = [read(env) for read in inputs]
        if None in given or not _about_index_terms(given):
            return False
        found = search(*given, env[0])
        if found is None or not holds(contract, dict(zip(names, (*given, *found)))):
            return False
        for slot, value in zip(slots, found):
            env[slot] = value
        return True

    return use


def _about_index_terms(values: list[Any]) -> bool:
    """Contracts are equations of mathematical integers: machine integers may wrap."""
    return all([v.dtype is dtypes.index for v in values if isinstance(v, UOp)])


def _term_input(value: Any, compile_term: Any, scope: Scope) -> Callable[[Env], Any]:
    if not isinstance(value, Var | Const | Lit | Node | Calc):
        raise ValueError(f"a view needs a term here, not {value!r}")
    build = compile_term(value, scope)
    return lambda env: build(env, ())


def _output_slots(view: View, contract: Contract, scope: Scope) -> list[int]:
    """One new slot an output; terms are found as variables, numbers as values."""
    slots = []
    for (name, _), (_, sort) in zip(view.outputs, contract.outputs, strict=True):
        slot = scope.new_slot()
        (scope.nodes if sort == TERM else scope.values)[name] = slot
        slots.append(slot)
    return slots


def holds(contract: Contract, values: dict[str, Any]) -> bool:
    """Whether every claim is an identity of linear forms."""
    for claim in contract.claims:
        left, right = [_form(side, values) for side in claim.args]
        if left is None or right is None or left[:2] != right[:2]:
            return False
    return True


def _form(expr: Expr, values: dict[str, Any]) -> Linear | None:
    match expr:
        case Num(value):
            return number(int(value))
        case Name(name):
            value = values[name]
            return linear_form(value) if isinstance(value, UOp) else number(value)
        case Apply("+", (a, b)):
            return _with(_form(a, values), _form(b, values), Linear.plus)
        case Apply("*", (a, b)):
            return _with(_form(a, values), _form(b, values), _product)
        case Apply("%" | "//" as function, (Name(name), divisor)):
            by = _form(divisor, values)
            return None if by is None or by.terms else _atom(function, values[name], by.constant)
        case _:
            raise ValueError(f"no linear form of {expr!r}")


def _with(a: Linear | None, b: Linear | None, function: Callable[..., Any]) -> Linear | None:
    return None if a is None or b is None else function(a, b)


def _product(a: Linear, b: Linear) -> Linear | None:
    if a.terms and b.terms:
        return None
    return b.scaled(a.constant) if not a.terms else a.scaled(b.constant)


def _atom(function: str, x: UOp, divisor: int) -> Linear:
    op = Ops.MOD if function == "%" else Ops.FLOORDIV
    return Linear({x.alu(op, UOp.const(dtypes.index, divisor)): 1}, 0)
