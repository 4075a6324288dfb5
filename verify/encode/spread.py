"""Laws of elementwise operations beside numbers that all elements of a tensor share.

A tensor is its shape and its element at a position, the same unknown one for all: elementwise operations join elements of one
position, and a literal that was reshaped and expanded is that literal at each.

Owns: this picture. Does not own: movement of what has several elements (axes.py), operations on elements (semantics.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.rewrite.rule import Expr, Lit, Name, Node, Var
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.fresh_terms import Function
from proofgrad.verify.encode.semantics import NoMeaning
from proofgrad.verify.encode.types import Case

Term = Any
SPREADING = ("RESHAPE", "EXPAND")
ON_ELEMENTS = frozenset({op.name for op in ELEMENTWISE})


def _shapes() -> Any:
    return z3.DeclareSort("Shape")


# Whether a tensor of the first shape may be reshaped, or expanded, to the second.
_IS_LEGAL = {op: Function(f"may_{op.lower()}", _shapes, _shapes, z3.BoolSort) for op in SPREADING}


@dataclass(frozen=True, slots=True)
class Spread:
    """A tensor: its shape, and its element at the position."""

    shape: Term
    element: Term


class SpreadPicture:
    """A term is a `Spread`."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.legal: list[Term] = []
        self.given: list[Term] = []
        self._elements: dict[str, tuple[Term, DType]] = {}

    def term(self, term: RuleTerm) -> Spread:
        """Raises: NoMeaning for movement of anything but a literal."""
        match term:
            case Var(name, kind):
                dtype = self.case.dtype(kind)
                element = z3.Const(name, semantics.sort_of(dtype))
                self._elements[name] = (element, dtype)
                return Spread(z3.Const(f"shape({name})", _shapes()), element)
            case Lit(value, kind):
                scalar = z3.Const("scalar#", _shapes())
                return Spread(scalar, semantics.constant(self.case.dtype(kind), value))
            case Node(op, (inner,), _, arg) if op in SPREADING and _is_spread(inner):
                return self._spread(op, self.term(inner), arg)
            case Node(op, src, kind, _) if op in ON_ELEMENTS:
                return self._joined(Ops[op], self.case.dtype(kind), src)
            case _:
                raise NoMeaning(f"{term} beside operations on elements")

    def same(self, a: Spread, b: Spread) -> Term:
        """Of one shape, with the same element wherever it is."""
        return z3.And(a.shape == b.shape, semantics.same(a.element, b.element))

    def condition(self, expr: Expr) -> Term:
        """Raises: NoMeaning, for there is none yet."""
        raise NoMeaning(f"{expr} is not a condition on elements")

    def named(self) -> dict[str, tuple[Term, DType]]:
        """What a counterexample shows: the elements."""
        return dict(self._elements)

    def _spread(self, op: str, inner: Spread, arg: Expr | None) -> Spread:
        if not isinstance(arg, Name):
            raise NoMeaning("a shape that has no name")
        shape = z3.Const(f"arg({arg.name})", _shapes())
        self.legal.append(_IS_LEGAL[op](inner.shape, shape))
        return Spread(shape, inner.element)

    def _joined(self, op: Ops, dtype: DType, src: tuple[RuleTerm, ...]) -> Spread:
        parts = [self.term(source) for source in src]
        self.legal += [part.shape == parts[0].shape for part in parts[1:]]
        types = [self.case.dtype(source.type) for source in src]
        elements = [part.element for part in parts]
        return Spread(parts[0].shape, semantics.meaning(op, dtype, elements, types))


def _is_spread(term: RuleTerm) -> bool:
    while isinstance(term, Node) and term.op in SPREADING:
        (term,) = term.src
    return isinstance(term, Lit)
