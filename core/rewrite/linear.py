"""Linear forms: an integer term as constant + sum of coefficient * atom.

Owns: reading a term as a linear form, writing one back as a term, the interval of one. Adding,
scaling and comparing forms is exact for index terms, and modulo 2**bits for machine integers. Does
not own: what is done with forms (views.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from proofgrad.core.ir.dtypes import DType, Kind, dtypes, wrap_int
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

MOST_STEPS = 256  # of a walk through one term; longer sums are left alone


class Linear(NamedTuple):
    """`constant` + the sum of coefficient * atom; no coefficient is 0."""

    terms: dict[UOp, int]
    constant: int
    dtype: DType = dtypes.index

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """self + factor * other."""
        terms = dict(self.terms)
        if self.dtype is dtypes.index:
            for atom, coefficient in other.terms.items():
                total = terms.get(atom, 0) + coefficient * factor
                if total:
                    terms[atom] = total
                else:
                    terms.pop(atom, None)
            return Linear(terms, self.constant + factor * other.constant)
        for atom, coefficient in other.terms.items():
            _add(terms, atom, coefficient * factor, self.dtype)
        return Linear(
            terms, wrap_int(self.constant + factor * other.constant, self.dtype), self.dtype
        )

    def scaled(self, factor: int) -> Linear:
        return Linear({}, 0, self.dtype).plus(self, factor)


def number(value: int, dtype: DType = dtypes.index) -> Linear:
    return Linear({}, value if dtype is dtypes.index else wrap_int(value, dtype), dtype)


def _add(terms: dict[UOp, int], atom: UOp, coefficient: int, dtype: DType) -> None:
    total = wrap_int(terms.get(atom, 0) + coefficient, dtype)
    if total:
        terms[atom] = total
    else:
        terms.pop(atom, None)


def linear_form(node: UOp) -> Linear | None:
    """`node` as a linear form; None if it is not a scalar integer, or too large to be looked at."""
    dtype = node.dtype
    if dtype is dtypes.index:
        return None if node.shape else _index_form(node)
    if not dtype.is_int or dtype.lanes > 1 or node.shape:
        return None
    terms: dict[UOp, int] = {}
    constant = 0
    stack = [(node, 1)]
    for _ in range(MOST_STEPS):
        if not stack:
            return Linear(terms, wrap_int(constant, dtype), dtype)
        term, factor = stack.pop()
        match term.op:
            case Ops.CONST:
                constant += factor * term.arg
            case Ops.ADD:
                stack.extend(((term.src[1], factor), (term.src[0], factor)))
            case Ops.NEG:
                stack.append((term.src[0], -factor))
            case Ops.MUL if term.src[1].op is Ops.CONST:
                stack.append((term.src[0], factor * term.src[1].arg))
            case Ops.MUL if term.src[0].op is Ops.CONST:
                stack.append((term.src[1], factor * term.src[0].arg))
            case _:
                _add(terms, term, factor, dtype)
    return None


def _index_form(node: UOp) -> Linear | None:
    """As `linear_form`, for index terms: no wrap, no lanes. Most of rewriting passes here."""
    terms: dict[UOp, int] = {}
    constant = 0
    stack = [(node, 1)]
    for _ in range(MOST_STEPS):
        if not stack:
            if 0 in terms.values():
                terms = {atom: factor for atom, factor in terms.items() if factor}
            return Linear(terms, constant)
        term, factor = stack.pop()
        op = term.op
        if op is Ops.CONST:
            constant += factor * term.arg
        elif op is Ops.ADD:
            first, second = term.src
            stack.append((second, factor))
            stack.append((first, factor))
        elif op is Ops.NEG:
            stack.append((term.src[0], -factor))
        elif op is Ops.MUL and term.src[1].op is Ops.CONST:
            stack.append((term.src[0], factor * term.src[1].arg))
        elif op is Ops.MUL and term.src[0].op is Ops.CONST:
            stack.append((term.src[1], factor * term.src[0].arg))
        else:
            terms[term] = terms.get(term, 0) + factor
    return None


def to_term(form: Linear, facts: Any) -> UOp:
    """The sum of the terms in the canonical order of their atoms, the constant last.

    Operands stand as the engine puts them, and -x is a negation: rewriting changes nothing more.
    """
    dtype, terms, in_order = form.dtype, form.terms, facts.in_order
    total: UOp | None = None
    for atom in sorted(terms, key=facts.order_key) if len(terms) > 1 else terms:
        term = _scaled_atom(atom, terms[atom])
        if total is None:
            total = term
        else:
            pair = (total, term) if in_order(total, term) else (term, total)
            total = UOp(Ops.ADD, dtype, pair)
    if total is None:
        return UOp(Ops.CONST, dtype, (), form.constant)
    if form.constant:
        return UOp(Ops.ADD, dtype, (total, UOp(Ops.CONST, dtype, (), form.constant)))
    return total


def _scaled_atom(atom: UOp, coefficient: int) -> UOp:
    if coefficient == 1:
        return atom
    if coefficient == -1:
        return UOp(Ops.NEG, atom.dtype, (atom,))
    return UOp(Ops.MUL, atom.dtype, (atom, UOp(Ops.CONST, atom.dtype, (), coefficient)))


def interval(form: Linear, facts: Any) -> tuple[int | None, int | None]:
    """Bounds of an index form, from the bounds of its atoms."""
    if form.dtype.kind is not Kind.INDEX:
        return None, None
    low: int | None = form.constant
    high: int | None = form.constant
    for atom, coefficient in form.terms.items():
        ends = (facts.lo(atom), facts.hi(atom))
        least, most = ends if coefficient > 0 else ends[::-1]
        low = None if low is None or least is None else low + coefficient * least
        high = None if high is None or most is None else high + coefficient * most
    return low, high
