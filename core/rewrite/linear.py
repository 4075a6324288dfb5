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
        for atom, coefficient in other.terms.items():
            _add(terms, atom, coefficient * factor, self.dtype)
        return Linear(
            terms, wrap_int(self.constant + factor * other.constant, self.dtype), self.dtype
        )

    def scaled(self, factor: int) -> Linear:
        return Linear({}, 0, self.dtype).plus(self, factor)


def number(value: int, dtype: DType = dtypes.index) -> Linear:
    return Linear({}, wrap_int(value, dtype), dtype)


def _add(terms: dict[UOp, int], atom: UOp, coefficient: int, dtype: DType) -> None:
    total = wrap_int(terms.get(atom, 0) + coefficient, dtype)
    if total:
        terms[atom] = total
    else:
        terms.pop(atom, None)


def linear_form(node: UOp) -> Linear | None:
    """`node` as a linear form; None if it is not a scalar integer, or too large to be looked at."""
    dtype = node.dtype
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


def to_term(form: Linear, facts: Any) -> UOp:
    """The sum of the terms in the canonical order of their atoms, the constant last.

    Operands stand as the engine puts them, and -x is a negation: rewriting changes nothing more.
    """
    dtype = form.dtype
    total: UOp | None = None
    for atom in sorted(form.terms, key=facts.order_key):
        term = _scaled_atom(atom, form.terms[atom])
        if total is None:
            total = term
        elif facts.order_key(total) <= facts.order_key(term):
            total = total.alu(Ops.ADD, term)
        else:
            total = term.alu(Ops.ADD, total)
    if total is None:
        return UOp.const(dtype, form.constant)
    return total.alu(Ops.ADD, UOp.const(dtype, form.constant)) if form.constant else total


def _scaled_atom(atom: UOp, coefficient: int) -> UOp:
    if coefficient == 1:
        return atom
    if coefficient == -1:
        return atom.alu(Ops.NEG)
    return atom.alu(Ops.MUL, UOp.const(atom.dtype, coefficient))


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
