"""Bilinear laws: a rule that states a correlation with few products, read as three matrices.

Owns: reading. Does not own: the proof of the rule (its ledger), programs made of the matrices
(core/tensor/methods/nn/winograd.py).

Such a rule is a sum of products of three linear forms: in y, which picks results, in weights w, and
in inputs x. For all real numbers

    sum[k]((R y)[k] * (W w)[k] * (X x)[k])  =  scale * sum[i, j](y[i] * w[j] * x[i + j])

so result i, which is sum[j](w[j] * x[i + j]), is sum[k](R[k, i] * (W w)[k] * (X x)[k]) / scale. Of w
and x only sums, multiples and one product are asked. So each may be a row of numbers, with the law
itself, along the other axis, for their product: the law of two axes has Kronecker products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from proofgrad.core.rewrite.rule import Lit, Node, Rule, Term, Var

Matrix: TypeAlias = tuple[tuple[Fraction, ...], ...]
Polynomial: TypeAlias = dict[tuple[str, ...], Fraction]  # the coefficient of each product of names

_RESULTS, _WEIGHTS, _INPUTS = "y", "w", "x"


@dataclass(frozen=True, slots=True)
class Correlation:
    """Correlations with windows of `taps` weights, `results` at once, by `products` products.

    Fields:
        of_results: R, shape (products, results).
        of_weights: W over the scale, shape (products, taps).
        of_inputs: X, shape (products, results + taps - 1).
    """

    of_results: Matrix
    of_weights: Matrix
    of_inputs: Matrix

    @property
    def results(self) -> int:
        """How many results one application gives: the columns of R."""
        return len(self.of_results[0])

    @property
    def taps(self) -> int:
        """How many weights a window has: the columns of W."""
        return len(self.of_weights[0])

    @property
    def inputs(self) -> int:
        """How many inputs one application reads: the columns of X, results + taps - 1."""
        return len(self.of_inputs[0])

    @property
    def products(self) -> int:
        """How many products it takes: the rows of each matrix."""
        return len(self.of_inputs)

    def over_two_axes(self) -> Correlation:
        """The law along one axis, whose product is the law along the next one."""
        return Correlation(
            kronecker(self.of_results), kronecker(self.of_weights), kronecker(self.of_inputs)
        )


def kronecker(matrix: Matrix) -> Matrix:
    """The product of a matrix with itself: [k * rows + l, i * columns + j] is [k, i] * [l, j]."""
    rows = [(first, second) for first in matrix for second in matrix]
    return tuple([tuple([a * b for a in first for b in second]) for first, second in rows])


def correlation_of(rule: Rule) -> Correlation:
    """The matrices of a rule. Raises: ValueError, naming it, if it states no correlation."""
    (right,) = rule.right
    forms = [_forms(summand, rule) for summand in _parts(rule.left, "ADD")]
    if right is None:
        raise _no_correlation(rule, "it has no right side")
    claimed = polynomial(right, rule)
    taps, results = _count(forms, _WEIGHTS), _count(forms, _RESULTS)
    scale = next(iter(claimed.values()), Fraction(0))
    expected = {
        tuple(sorted((f"{_RESULTS}{i}", f"{_WEIGHTS}{j}", f"{_INPUTS}{i + j}"))): scale
        for i in range(results)
        for j in range(taps)
    }
    if claimed != expected or not scale:
        raise _no_correlation(rule, "its right side is no multiple of sum[i, j](yi * wj * x(i+j))")
    weights = _matrix(forms, _WEIGHTS, taps)
    return Correlation(
        _matrix(forms, _RESULTS, results),
        tuple([tuple([entry / scale for entry in row]) for row in weights]),
        _matrix(forms, _INPUTS, results + taps - 1),
    )


def polynomial(term: Term, rule: Rule) -> Polynomial:
    """A term of sums, products and numbers, multiplied out. Raises: ValueError for another one."""
    match term:
        case Var(name):
            return {(name,): Fraction(1)}
        case Lit(value):
            return {(): Fraction(value)} if value else {}
        case Node("NEG", (inner,)):
            return {names: -factor for names, factor in polynomial(inner, rule).items()}
        case Node("ADD", (first, second)):
            return _sum_of(polynomial(first, rule), polynomial(second, rule))
        case Node("MUL", (first, second)):
            return _product_of(polynomial(first, rule), polynomial(second, rule))
        case _:
            raise _no_correlation(rule, f"it has {term}, which is no sum or product")


def _sum_of(first: Polynomial, second: Polynomial) -> Polynomial:
    total = dict(first)
    for names, factor in second.items():
        total[names] = total.get(names, Fraction(0)) + factor
    return {names: factor for names, factor in total.items() if factor}


def _product_of(first: Polynomial, second: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for names, factor in first.items():
        moved = {tuple(sorted(names + others)): factor * other for others, other in second.items()}
        total = _sum_of(total, moved)
    return total


def _parts(term: Term, op: str) -> Iterator[Term]:
    """The operands of nested operations: summands of a sum, factors of a product."""
    if isinstance(term, Node) and term.op == op:
        for source in term.src:
            yield from _parts(source, op)
    else:
        yield term


def _forms(summand: Term, rule: Rule) -> dict[str, Polynomial]:
    """The linear form in y, that in w, and that in x. Numbers beside them go to the weights."""
    forms: dict[str, Polynomial] = {}
    number = Fraction(1)
    for factor in _parts(summand, "MUL"):
        form = polynomial(factor, rule)
        letters = {"".join([name[0] for name in names]) for names in form}
        if letters == {""}:
            number *= form[()]
            continue
        letter = letters.pop() if len(letters) == 1 else ""
        if letter not in (_RESULTS, _WEIGHTS, _INPUTS) or letter in forms:
            raise _no_correlation(rule, f"{factor} is no linear form in one of y, w, x, each once")
        forms[letter] = form
    if len(forms) != 3:
        raise _no_correlation(
            rule, f"a product has linear forms in {', '.join(forms)}, not y, w, x"
        )
    forms[_WEIGHTS] = {names: entry * number for names, entry in forms[_WEIGHTS].items()}
    return forms


def _count(forms: list[dict[str, Polynomial]], letter: str) -> int:
    return len({names for form in forms for names in form[letter]})


def _matrix(forms: list[dict[str, Polynomial]], letter: str, columns: int) -> Matrix:
    """A row for each product: the coefficients of the names 0, 1, ..., which are all there are."""
    rows = [form[letter] for form in forms]
    names = [(f"{letter}{column}",) for column in range(columns)]
    return tuple([tuple([row.get(name, Fraction(0)) for name in names]) for row in rows])


def _no_correlation(rule: Rule, reason: str) -> ValueError:
    return ValueError(f"rule {rule.full_name} states no correlation of w and x: {reason}")
