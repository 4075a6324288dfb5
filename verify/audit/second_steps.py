"""Goals about integers in steps, where another solver has no answer in one.

Each step keeps or weakens what is asserted, so what has no model in the end had none at first:
- a condition that the assertions decide, as the solver itself says, gives way to that truth;
- a comparison of a choice becomes one comparison for each choice, under its condition;
- a quotient is any number with the property that defines it; the value of a function is any number;
- products of what the goal compares are facts (second_products.py).
With enough products the rest is linear: a product of variables is one more variable there, and the
solver is asked about nothing else.

Owns: the steps. Does not own: products, asking (second_solver.py), goals (obligations.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import z3

from proofgrad.verify.audit.second_products import (
    Polynomials,
    Signs,
    differences,
    is_comparison,
    key_of,
    opposite,
    products_of_pairs,
    products_with_variables,
    text_of_polynomial,
)
from proofgrad.verify.dsl.polynomial import Polynomial, scale
from proofgrad.verify.encode.fresh_terms import fresh_terms
from proofgrad.verify.prove.solve import OPEN, PROVED

Term = Any
Ask = Callable[[str, int], list[str]]  # text, ms for each answer; products stay opaque
Done = dict[int, tuple[Term, Term]]  # by id, a term, which keeps its id, and what it became
Row = dict[int, tuple[Term, bool]]  # by id, conditions and their truths
Rows = list[tuple[Row, Term]]

SHORT_MS, LONG_MS = 100, 5_000
MOST_CHOICES = 64
END = "(check-sat)\n"

_NOT_INTEGERS = re.compile(
    r"\b(?:Real|BitVec|FloatingPoint|Array|forall|exists|declare-sort|bv\d+|fp)\b"
)


def can_take_steps(text: str) -> bool:
    """Whether the text is about integers and truths only."""
    return "Int" in text and not _NOT_INTEGERS.search(text)


def decide_in_steps(text: str, ask: Ask) -> str:
    """PROVED if the text has no model, as `ask` says of weaker ones; else OPEN."""
    with fresh_terms():
        assertions = list(z3.parse_smt2_string(text))
        for has_products in (False, True):
            assertions = _pruned(assertions, ask, has_products)
        choices = _Choices()
        split = [choices.without(assertion) for assertion in assertions]
        if None in split:
            return OPEN
        assertions = _without_quotients(split)
        signs, variables = _signs(assertions, ask)
        for products in (products_of_pairs(signs), products_with_variables(signs, variables)):
            if ask(_with(assertions, products), LONG_MS)[-1] == PROVED:
                return PROVED
    return OPEN


def _with(assertions: Sequence[Term], facts: Iterable[str]) -> str:
    """The text of the assertions and of what else is known."""
    return f"{_head(assertions)}{''.join(facts)}{END}"


def _head(assertions: Sequence[Term]) -> str:
    """The assertions as a text that can go on; names are those of the terms."""
    solver = z3.Solver()
    solver.add(*assertions)
    return str(solver.to_smt2()).removesuffix(END)


# -- conditions that are decided ------------------------------------------------------------------


def _pruned(assertions: list[Term], ask: Ask, has_products: bool = False) -> list[Term]:
    """The assertions without the branches that they exclude, or they and products of pairs."""
    while conditions := _conditions(assertions):
        facts = products_of_pairs(_signs(assertions, ask)[0]) if has_products else ()
        truths = _decided(_with(assertions, facts), conditions, ask)
        if not truths:
            break
        found = [(c, truths[c.get_id()]) for c in conditions if c.get_id() in truths]
        done: Done = {}
        kept = [_with_truths(assertion, truths, done) for assertion in assertions]
        assertions = [*kept, *[c if truth else z3.Not(c) for c, truth in found]]
    return assertions


def _conditions(assertions: Sequence[Term]) -> list[Term]:
    """What choices and implications depend on."""
    kinds = (z3.Z3_OP_ITE, z3.Z3_OP_IMPLIES)
    found = {t.arg(0).get_id(): t.arg(0) for t in _parts(assertions) if t.decl().kind() in kinds}
    return [c for c in found.values() if not z3.is_true(c) and not z3.is_false(c)]


def _decided(text: str, conditions: Sequence[Term], ask: Ask) -> dict[int, bool]:
    """By id, the truth of each condition that follows from the text."""
    written = [condition.sexpr() for condition in conditions]
    answers = _ask_each(text, [s for c in written for s in (c, f"(not {c})")], ask)
    truths: dict[int, bool] = {}
    for number, condition in enumerate(conditions):
        if answers[2 * number] == PROVED:
            truths[condition.get_id()] = False
        elif answers[2 * number + 1] == PROVED:
            truths[condition.get_id()] = True
    return truths


def _ask_each(text: str, more: Sequence[str], ask: Ask) -> list[str]:
    """What the solver says of the text with each of `more`."""
    each = [f"(push 1)\n(assert {one})\n{END}(pop 1)\n" for one in more]
    return ask(text.removesuffix(END) + "".join(each), SHORT_MS) if each else []


def _with_truths(term: Term, truths: dict[int, bool], done: Done) -> Term:
    if term.get_id() not in done:
        done[term.get_id()] = term, _made_with_truths(term, truths, done)
    return done[term.get_id()][1]


def _made_with_truths(term: Term, truths: dict[int, bool], done: Done) -> Term:
    if term.get_id() in truths:
        return z3.BoolVal(truths[term.get_id()])
    if not term.children():
        return term
    parts = [_with_truths(part, truths, done) for part in term.children()]
    kind = term.decl().kind()
    if kind == z3.Z3_OP_ITE and (z3.is_true(parts[0]) or z3.is_false(parts[0])):
        return parts[1] if z3.is_true(parts[0]) else parts[2]
    if kind == z3.Z3_OP_IMPLIES and z3.is_true(parts[0]):
        return parts[1]
    if kind == z3.Z3_OP_IMPLIES and z3.is_false(parts[0]):
        return z3.BoolVal(True)
    return _rebuilt(term, parts)


# -- choices --------------------------------------------------------------------------------------


class _Choices:
    """Comparisons of choices, each made one comparison for each choice; what became of a term is kept."""

    def __init__(self) -> None:
        self._without: dict[int, tuple[Term, Term | None]] = {}
        self._rows: dict[int, tuple[Term, Rows | None]] = {}

    def without(self, term: Term) -> Term | None:
        """The same truth with no choice of numbers in a comparison; None if there are too many."""
        if term.get_id() not in self._without:
            self._without[term.get_id()] = term, self._made_without(term)
        return self._without[term.get_id()][1]

    def _made_without(self, term: Term) -> Term | None:
        children = term.children()
        if not children:
            return term
        if not is_comparison(term):
            parts = [self.without(part) for part in children]
            return None if None in parts else _rebuilt(term, parts)
        choices = self._rows_of(term)
        if choices is None or len(choices) == 1:
            return term if choices is not None else None
        every = []
        for conditions, chosen in choices:
            simple = [self.without(condition) for condition, _ in conditions.values()]
            if None in simple:
                return None
            truths = [truth for _, truth in conditions.values()]
            sides = [c if truth else z3.Not(c) for c, truth in zip(simple, truths)]
            every.append(z3.Implies(z3.And(*sides), chosen))
        return z3.And(*every)

    def _rows_of(self, term: Term) -> Rows | None:
        """Rows of conditions, of which just one holds, and what the term is then."""
        if term.get_id() not in self._rows:
            self._rows[term.get_id()] = term, self._made_rows_of(term)
        return self._rows[term.get_id()][1]

    def _made_rows_of(self, term: Term) -> Rows | None:
        children = term.children()
        if term.decl().kind() == z3.Z3_OP_ITE:
            condition, then, other = children
            sides = [(True, self._rows_of(then)), (False, self._rows_of(other))]
            key = condition.get_id()
            rows = [
                (row, chosen)
                for truth, found in sides
                for more, chosen in found or []
                if (row := _joined([{key: (condition, truth)}, more])) is not None
            ]
            return None if None in [found for _, found in sides] else rows
        every = [self._rows_of(part) for part in children]
        count = 1
        for found in every:
            count *= len(found) if found is not None else MOST_CHOICES + 1
        if count > MOST_CHOICES:
            return None
        if count == 1:
            return [({}, term)]
        return [
            (row, _rebuilt(term, [chosen for _, chosen in some]))
            for some in product(*[found or [] for found in every])
            if (row := _joined([more for more, _ in some])) is not None
        ]


def _joined(rows: Iterable[Row]) -> Row | None:
    """The conditions of all of them; None if they cannot all hold."""
    joined: Row = {}
    for row in rows:
        for key, (condition, truth) in row.items():
            if joined.setdefault(key, (condition, truth))[1] != truth:
                return None
    return joined


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
        self._done: Done = {}
        self._polynomials = Polynomials()

    def in_place_of(self, term: Term) -> Term:
        if term.get_id() not in self._done:
            self._done[term.get_id()] = term, self._made_for(term)
        return self._done[term.get_id()][1]

    def _made_for(self, term: Term) -> Term:
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
        key = function, *[self._key_of(part) for part in parts]
        if key not in self._names:
            number = len(self._names)
            self._names[key] = z3.Int(f"whole#{number}"), z3.Int(f"rest#{number}")
            if function == "division":
                dividend, divisor = parts
                self.known += _of_division(dividend, divisor, *self._names[key])
        return self._names[key]

    def _key_of(self, part: Term) -> Any:
        polynomial = self._polynomials.of(part)
        return part.get_id() if polynomial is None else key_of(polynomial)


def _of_division(x: Term, y: Term, whole: Term, rest: Term) -> list[Term]:
    """What SMT-LIB says of `div` and `mod`."""
    return [
        z3.Implies(y != 0, x == whole * y + rest),
        z3.Implies(y != 0, rest >= 0),
        z3.Implies(y > 0, rest < y),
        z3.Implies(y < 0, rest < -y),
    ]


# -- signs ----------------------------------------------------------------------------------------


def _signs(assertions: Sequence[Term], ask: Ask) -> tuple[Signs, list[Polynomial]]:
    """The signs of what the assertions compare, and the variables that are never negative."""
    parts = list(_parts(assertions))
    polynomials = Polynomials()
    equal, compared = differences(parts, polynomials)
    names = [t for t in parts if z3.is_const(t) and z3.is_int(t) and not z3.is_int_value(t)]
    variables: list[Polynomial] = [{(name.sexpr(),): 1} for name in names]
    known = {key_of(p) for p in (*compared, *[opposite(c) for c in compared])}
    compared += [variable for variable in variables if key_of(variable) not in known]
    texts = [text_of_polynomial(polynomial) for polynomial in compared]
    either = [side for text in texts for side in (f"(< {text} 0)", f"(>= {text} 0)")]
    answers = _ask_each(_with(assertions, []), either, ask)
    signs = Signs()
    for number, polynomial in enumerate(compared):
        if answers[2 * number] == PROVED:
            signs.above.append(polynomial)
        elif answers[2 * number + 1] == PROVED:
            signs.above.append(opposite(polynomial))
        else:
            signs.either.append(polynomial)
    keys = {key_of(polynomial) for polynomial in signs.above}
    for polynomial in equal:
        is_zero = {key_of(polynomial), key_of(scale(polynomial, -1))} <= keys
        (signs.zero if is_zero else signs.may_be_zero).append(polynomial)
    return signs, [variable for variable in variables if key_of(variable) in keys]


# -- terms ----------------------------------------------------------------------------------------


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
