"""Goals about integers in steps, where another solver has no answer in one.

Each step keeps or weakens what is asserted, so what has no model in the end had none at first:
- a condition that the assertions decide, as the solver itself says, gives way to that truth;
- a comparison of a choice becomes one comparison for each choice, under its condition;
- a quotient is any number with the property that defines it; the value of a function is any number;
- products: 0 <= a and 0 <= b give 0 <= a * b, and a = 0 gives a * b = 0, of what the goal compares.
With enough products the rest is linear: a product of variables is one more variable there.

Owns: the steps. Does not own: asking (second_solver.py), goals (obligations.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import z3

from proofgrad.verify.encode_text import text_of
from proofgrad.verify.fresh_terms import fresh_terms
from proofgrad.verify.solve import OPEN, PROVED

Term = Any
Ask = Callable[
    [str, bool, int], list[str]
]  # text, whether products stay opaque, ms for each answer

SHORT_MS, MIDDLE_MS, LONG_MS = 100, 300, 5_000
MOST_CHOICES = 64
MOST_FACTORS = 3
END = "(check-sat)"

_NOT_INTEGERS = re.compile(r"\b(?:Real|BitVec|FloatingPoint|Array|forall|exists|declare-sort)\b")
_COMPARE = {z3.Z3_OP_LE, z3.Z3_OP_GE, z3.Z3_OP_LT, z3.Z3_OP_GT, z3.Z3_OP_EQ, z3.Z3_OP_DISTINCT}


def can_take_steps(text: str) -> bool:
    """Whether the text is about integers and truths only."""
    return "Int" in text and not _NOT_INTEGERS.search(text)


def decide_in_steps(text: str, ask: Ask) -> str:
    """PROVED if the text has no model, as `ask` says of weaker ones; else OPEN."""
    with fresh_terms():
        assertions = list(z3.parse_smt2_string(text))
        for is_linear in (True, False):
            assertions = _pruned(assertions, is_linear, ask)
        split = [_by_choice(assertion) for assertion in assertions]
        if None in split:
            return OPEN
        assertions = _pruned(_without_quotients(split), True, ask)
        if ask(text_of(assertions), False, MIDDLE_MS)[-1] == PROVED:
            return PROVED
        for products in (_of_pairs, _with_variables):
            more = list(products(assertions, ask))
            if ask(text_of([*assertions, *more]), True, LONG_MS)[-1] == PROVED:
                return PROVED
    return OPEN


# -- conditions that are decided ------------------------------------------------------------------


def _pruned(assertions: list[Term], is_linear: bool, ask: Ask) -> list[Term]:
    """The assertions without the branches that they exclude themselves."""
    while True:
        conditions = _conditions(assertions)
        truths = _decided(assertions, conditions, is_linear, ask)
        if not truths:
            return assertions
        found = [(c, truths[c.get_id()]) for c in conditions if c.get_id() in truths]
        kept = [_with_truths(assertion, truths) for assertion in assertions]
        assertions = [*kept, *[c if truth else z3.Not(c) for c, truth in found]]


def _conditions(assertions: Sequence[Term]) -> list[Term]:
    """What choices and implications depend on."""
    kinds = (z3.Z3_OP_ITE, z3.Z3_OP_IMPLIES)
    found = {t.arg(0).get_id(): t.arg(0) for t in _parts(assertions) if t.decl().kind() in kinds}
    return [c for c in found.values() if not z3.is_true(c) and not z3.is_false(c)]


def _decided(
    assertions: Sequence[Term], conditions: Sequence[Term], is_linear: bool, ask: Ask
) -> dict[int, bool]:
    """By id, the truth of each condition that follows from the assertions."""
    if not conditions:
        return {}
    either = [side for c in conditions for side in (c, z3.Not(c))]
    answers = _ask_each(assertions, either, is_linear, ask)
    truths: dict[int, bool] = {}
    for number, condition in enumerate(conditions):
        if answers[2 * number] == PROVED:
            truths[condition.get_id()] = False
        elif answers[2 * number + 1] == PROVED:
            truths[condition.get_id()] = True
    return truths


def _ask_each(
    assertions: Sequence[Term], more: Sequence[Term], is_linear: bool, ask: Ask
) -> list[str]:
    """What the solver says of the assertions with each of `more`."""
    head = text_of(assertions).removesuffix(f"{END}\n")
    each = [f"(push 1)\n(assert {term.sexpr()})\n{END}\n(pop 1)\n" for term in more]
    return ask(head + "".join(each), is_linear, SHORT_MS)


def _with_truths(term: Term, truths: dict[int, bool]) -> Term:
    if term.get_id() in truths:
        return z3.BoolVal(truths[term.get_id()])
    if not term.children():
        return term
    parts = [_with_truths(part, truths) for part in term.children()]
    kind = term.decl().kind()
    if kind == z3.Z3_OP_ITE and (z3.is_true(parts[0]) or z3.is_false(parts[0])):
        return parts[1] if z3.is_true(parts[0]) else parts[2]
    if kind == z3.Z3_OP_IMPLIES and z3.is_true(parts[0]):
        return parts[1]
    if kind == z3.Z3_OP_IMPLIES and z3.is_false(parts[0]):
        return z3.BoolVal(True)
    return _rebuilt(term, parts)


# -- choices --------------------------------------------------------------------------------------


def _by_choice(term: Term) -> Term | None:
    """The same truth with no choice of numbers in a comparison; None if there are too many."""
    if not term.children():
        return term
    if not _is_comparison(term):
        parts = [_by_choice(part) for part in term.children()]
        return None if None in parts else _rebuilt(term, parts)
    choices = _choices(term)
    if choices is None or len(choices) == 1:
        return term if choices is not None else None
    every = []
    for conditions, chosen in choices:
        simple = [_by_choice(condition) for condition in conditions]
        if None in simple:
            return None
        every.append(z3.Implies(z3.And(*simple), chosen))
    return z3.And(*every)


def _choices(term: Term) -> list[tuple[list[Term], Term]] | None:
    """Conditions, of which just one row holds, and what the term is then."""
    if term.decl().kind() == z3.Z3_OP_ITE:
        condition, then, other = term.children()
        sides = [(condition, _choices(then)), (z3.Not(condition), _choices(other))]
        rows = [([c, *more], t) for c, found in sides for more, t in found or []]
        return None if None in [found for _, found in sides] else rows
    every = [_choices(part) for part in term.children()]
    count = 1
    for found in every:
        count *= len(found) if found is not None else MOST_CHOICES + 1
    if count > MOST_CHOICES:
        return None
    if count == 1:
        return [([], term)]
    return [
        ([c for conditions, _ in row for c in conditions], _rebuilt(term, [t for _, t in row]))
        for row in product(*[found or [] for found in every])
    ]


# -- quotients ------------------------------------------------------------------------------------


def _without_quotients(assertions: Sequence[Term]) -> list[Term]:
    """The assertions with a name for each quotient, remainder and value of a function."""
    names = _Names()
    return [*[names.in_place_of(assertion) for assertion in assertions], *names.known]


class _Names:
    """Names for what is not linear; `known` is what defines those of quotients and remainders."""

    def __init__(self) -> None:
        self.known: list[Term] = []
        self._names: dict[tuple[Any, ...], tuple[Term, Term]] = {}
        self._keep: list[Term] = []  # ids of z3 terms are reused unless the terms live

    def in_place_of(self, term: Term) -> Term:
        if not term.children():
            return term
        parts = [self.in_place_of(part) for part in term.children()]
        kind = term.decl().kind()
        if kind in (z3.Z3_OP_IDIV, z3.Z3_OP_MOD):
            return self._named("division", parts)[kind == z3.Z3_OP_MOD]
        if kind == z3.Z3_OP_UNINTERPRETED and z3.is_int(term):
            return self._named(term.decl().name(), parts)[0]
        return _rebuilt(term, parts)

    def _named(self, function: str, parts: list[Term]) -> tuple[Term, Term]:
        key = function, *[part.get_id() for part in parts]
        if key not in self._names:
            self._keep += parts
            number = len(self._names)
            self._names[key] = z3.Int(f"whole#{number}"), z3.Int(f"rest#{number}")
            if function == "division":
                self.known += _of_division(*parts, *self._names[key])
        return self._names[key]


def _of_division(x: Term, y: Term, whole: Term, rest: Term) -> list[Term]:
    """What SMT-LIB says of `div` and `mod`."""
    return [
        z3.Implies(y != 0, x == whole * y + rest),
        z3.Implies(y != 0, rest >= 0),
        z3.Implies(y > 0, rest < y),
        z3.Implies(y < 0, rest < -y),
    ]


# -- products -------------------------------------------------------------------------------------


def _of_pairs(assertions: Sequence[Term], _: Ask) -> Iterator[Term]:
    """Products of two compared differences that bring in one new product of variables at most."""
    equal, above = _differences(assertions)
    signs = [v >= 0 for v in _variables(assertions) if v.decl().name().startswith("whole#")]
    above = _different([*above, *_differences(signs)[1]])
    there = {m for difference in (*equal, *above) for m in _monomials(difference)}
    linear = [(d, is_zero) for d, is_zero in _all(equal, above) if _degree(d) <= 1]
    for (a, a_zero), (b, b_zero) in combinations_with_replacement(linear, 2):
        if len(_monomials(a * b) - there) > 1:
            continue
        if a_zero or b_zero:
            zero, other = (a, b) if a_zero else (b, a)
            yield z3.Implies(zero == 0, zero * other == 0)
            continue
        for one, two in product((a, _opposite(a)), (b, _opposite(b))):
            yield _not_negative(one, two)


def _with_variables(assertions: Sequence[Term], ask: Ask) -> Iterator[Term]:
    """Products of what is compared with one or two variables that are not negative."""
    equal, above = _differences(assertions)
    variables = _variables(assertions)
    answers = _ask_each(assertions, [v < 0 for v in variables], True, ask)
    positive = [v for v, answer in zip(variables, answers) if answer == PROVED]
    factors = [(v,) for v in positive] + list(combinations(positive, 2))
    for (difference, is_zero), some in product(_all(equal, above), factors):
        if _degree(difference) + len(some) > MOST_FACTORS:
            continue
        if is_zero:
            yield z3.Implies(difference == 0, z3.Product(difference, *some) == 0)
            continue
        for side in (difference, _opposite(difference)):
            yield _not_negative(side, *some)


def _not_negative(*factors: Term) -> Term:
    return z3.Implies(z3.And(*[f >= 0 for f in factors]), z3.Product(*factors) >= 0)


def _opposite(difference: Term) -> Term:
    """What is not negative just where the difference is."""
    return -difference - 1


def _all(equal: Sequence[Term], above: Sequence[Term]) -> list[tuple[Term, bool]]:
    return [*[(d, True) for d in equal], *[(d, False) for d in above]]


def _differences(assertions: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """Differences that the assertions compare: those that may be zero, those that may be above.

    A variable beside a number tells little in a product, unless the number is 0.
    """
    equal, above = [], []
    for term in _parts(assertions):
        if not _is_comparison(term):
            continue
        left, right = term.children()
        match term.decl().kind():
            case z3.Z3_OP_LE:
                above.append(right - left)
            case z3.Z3_OP_GE:
                above.append(left - right)
            case z3.Z3_OP_LT:
                above.append(right - left - 1)
            case z3.Z3_OP_GT:
                above.append(left - right - 1)
            case _:
                equal.append(left - right)
                above += [left - right - 1, right - left - 1]
    return _different(equal), _different(above)


def _different(differences: Sequence[Term]) -> list[Term]:
    """Each difference once, and none that says only where a variable lies."""
    found: dict[int, Term] = {}
    for difference in differences:
        simple = z3.simplify(difference, som=True)
        if not _is_bound(simple):
            opposite = z3.simplify(_opposite(simple), som=True)
            if opposite.get_id() not in found:
                found[simple.get_id()] = simple
    return list(found.values())


def _is_bound(simple: Term) -> bool:
    """Whether it is a number, or one variable and a number of more than one step."""
    numbers = [p.as_long() for p in _summands(simple) if z3.is_int_value(p)]
    others = [p for p in _summands(simple) if not z3.is_int_value(p)]
    return not others or (
        len(others) == 1 and _degree(others[0]) == 1 and any(abs(n) > 1 for n in numbers)
    )


def _degree(term: Term) -> int:
    if z3.is_int_value(term):
        return 0
    if z3.is_mul(term):
        return sum([_degree(part) for part in term.children()])
    return max([_degree(part) for part in term.children()], default=1)


def _monomials(term: Term) -> set[tuple[int, ...]]:
    """The products of two variables or more in the sum of products that the term is."""
    found = set()
    for summand in _summands(z3.simplify(term, som=True)):
        factors = summand.children() if z3.is_mul(summand) else [summand]
        found.add(tuple(sorted([f.get_id() for f in factors if not z3.is_int_value(f)])))
    return {monomial for monomial in found if len(monomial) > 1}


def _summands(term: Term) -> list[Term]:
    return term.children() if z3.is_add(term) else [term]


# -- terms ----------------------------------------------------------------------------------------


def _is_comparison(term: Term) -> bool:
    return term.decl().kind() in _COMPARE and z3.is_int(term.arg(0)) and term.num_args() == 2


def _variables(assertions: Sequence[Term]) -> list[Term]:
    names = {t.get_id(): t for t in _parts(assertions) if z3.is_const(t) and z3.is_int(t)}
    return [term for term in names.values() if not z3.is_int_value(term)]


def _parts(terms: Sequence[Term]) -> Iterator[Term]:
    """Every term in them, once."""
    seen: set[int] = set()
    waiting = list(reversed(terms))
    while waiting:
        term = waiting.pop()
        if term.get_id() not in seen:
            seen.add(term.get_id())
            yield term
            waiting += reversed(term.children())


def _rebuilt(term: Term, parts: Sequence[Term]) -> Term:
    """The same operation on other arguments; And, Or and sums take any number of them."""
    arguments = (z3.Ast * len(parts))(*[part.as_ast() for part in parts])
    made = z3.Z3_mk_app(term.ctx_ref(), term.decl().ast, len(parts), arguments)
    return z3.z3._to_expr_ref(made, term.ctx)
