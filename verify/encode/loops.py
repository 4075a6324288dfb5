"""Laws of reductions over loops, by induction on how the values are combined.

The order of a reduction is not specified: it is any tree whose leaves are the values of the body, or
the identity of the operation. So a law is shown for three trees, and holds for all:
- the identity alone (also the reduction over nothing),
- one value of the body (variables that depend on the loops have any value there),
- two trees for which the law holds, combined.
If the left side is one reduction, its value in the third step is the right side, so that the step
is an equation of values again. A reduction over no loops at all is op(identity, value).

Owns: these goals. Does not own: the meaning of values (encode/goal.py).
"""

from __future__ import annotations

from typing import Any

import z3

from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.rule import Apply, Const, Expr, Fact, Instance, Name, Node, Text, Var
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.axes import identity
from proofgrad.verify.encode.goal import Bits, Encoder, Goal, joined
from proofgrad.verify.encode.memory import covered
from proofgrad.verify.encode.ring import Ring
from proofgrad.verify.encode.semantics import IllFormed, NoMeaning
from proofgrad.verify.encode.types import Case

Term = Any
_OPS = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)


def law_of_loops(case: Case) -> list[Goal]:
    """The goals of a rewrite of reductions, on values as they are."""
    return _goals(case, Bits)


def law_of_wrapping_loops(case: Case) -> list[Goal]:
    """The same goals as identities of rings, which hold at every integer width."""
    return _goals(case, Ring)


def _goals(case: Case, arithmetic: Any) -> list[Goal]:
    left = case.rule.left
    (right,) = case.rule.right
    if right is None or not isinstance(left, Node) or left.op != "REDUCE":
        raise NoMeaning("a law of loops has a reduction on the left and a right side")
    if len(left.src) == 1:
        return [_over_nothing(case, left, right, arithmetic)]
    return [_step(case, left, right, arithmetic, step) for step in ("identity", "leaf", "tree")]


def _over_nothing(case: Case, left: Node, right: RuleTerm, arithmetic: Any) -> Goal:
    encoder = _LoopEncoder(case, arithmetic(), "leaf")
    dtype, op = case.dtype(left.type), _operation(left)
    if dtype.is_bool:
        return Goal([], z3.BoolVal(True))  # there are no reductions of bools
    start = _identity(encoder, op, dtype)
    value = encoder.arithmetic.meaning(op, dtype, [start, encoder.term(left.src[0])], [dtype] * 2)
    read, encoder.reads = encoder.reads, []
    same = semantics.same(value, encoder.term(right))
    return encoder.goal(joined(same, covered(encoder.reads, read)), _conditions(encoder))


def _step(case: Case, left: Node, right: RuleTerm, arithmetic: Any, step: str) -> Goal:
    encoder = _LoopEncoder(case, arithmetic(), step)
    dtype, op = case.dtype(left.type), _operation(left)
    if dtype.is_bool:
        return Goal([], z3.BoolVal(True))
    if step != "tree":
        value, read = encoder.term(left), encoder.reads
        encoder.reads = []
        same = semantics.same(value, encoder.term(right))
        reads = covered(encoder.reads, read) if step == "leaf" else []
        return encoder.goal(joined(same, reads), _conditions(encoder))
    parts = []
    for encoder.tree in ("first", "second"):
        parts.append(encoder.term(right))  # by the hypothesis also the value of the left side
    encoder.tree = "both"
    whole = encoder.arithmetic.meaning(op, dtype, parts, [dtype, dtype])
    return encoder.goal(semantics.same(whole, encoder.term(right)), _conditions(encoder))


def _conditions(encoder: _LoopEncoder) -> list[Term]:
    conditions = [c for c in encoder.case.rule.where if not _is_independence(c)]
    if isinstance(encoder.arithmetic, Ring):
        return []
    return [encoder.condition(c) for c in conditions]


def _is_independence(condition: Expr) -> bool:
    return isinstance(condition, Apply) and condition.function == "independent"


class _LoopEncoder(Encoder):
    """Values of terms at one tree of iterations.

    `tree` names the tree: variables inside a reduction that may depend on the loops have one value
    a leaf; a reduction has one value a tree.
    """

    def __init__(self, case: Case, arithmetic: Any, step: str) -> None:
        super().__init__(case, arithmetic)
        self.step = step
        self.tree = "leaf"
        self.inside = False
        self.independent = {
            name
            for condition in case.rule.where
            if _is_independence(condition) and isinstance(condition, Apply)
            for name in _names(condition.args[0])
        }

    def term(self, term: RuleTerm) -> Term:
        used = [term.name] if isinstance(term, Var | Const) else []
        used = [term.name, term.counter] if isinstance(term, Instance) else used
        for name in used:
            if not self.inside and self._depends(name):
                raise IllFormed(f"{name} may depend on the loops, and is used outside of them")
        return super().term(term)

    def _depends(self, name: str) -> bool:
        left = self.case.rule.left
        if name in self.independent or not isinstance(left, Node) or len(left.src) < 2:
            return False
        return name in _variable_names(left.src[0])

    def node(self, term: Node, dtype: Any) -> Term:
        if term.op != "REDUCE":
            return super().node(term, dtype)
        op = _operation(term)
        left = self.case.rule.left
        assert isinstance(left, Node)
        if self.inside or len(term.src) != 2 or term.src[1] != left.src[1]:
            raise NoMeaning("a reduction in a reduction, or over other loops")
        if self.step == "identity":
            return _identity(self, op, dtype)
        if self.step == "leaf":
            self.inside = True
            value = self.term(term.src[0])
            self.inside = False
            return value
        first, second = [self._value_of(term, tree, dtype) for tree in ("first", "second")]
        if self.tree != "both":
            return first if self.tree == "first" else second
        return self.arithmetic.meaning(op, dtype, [first, second], [dtype, dtype])

    def _value_of(self, term: Node, tree: str, dtype: Any) -> Term:
        number = list(self.case.rule.right).index(term) if term in self.case.rule.right else 0
        name = f"reduction#{tree}_{number}_{abs(hash_of(term))}"
        return self.arithmetic.variable(name, dtype)


def hash_of(term: Any) -> int:
    """A number that tells terms of one rule apart, the same in every process."""
    return sum((k + 1) * ord(c) for k, c in enumerate(repr(term)))


def _identity(encoder: Encoder, op: Ops, dtype: Any) -> Term:
    if isinstance(encoder.arithmetic, Ring):
        if op not in (Ops.ADD, Ops.MUL):
            raise NoMeaning(f"{op.name} is no operation of a ring")
        return encoder.arithmetic.constant(dtype, 0 if op is Ops.ADD else 1)
    return identity(op, dtype)


def _operation(term: Node) -> Ops:
    if isinstance(term.arg, Text) and Ops[term.arg.value] in _OPS:
        return Ops[term.arg.value]
    raise NoMeaning("a reduction whose operation is not named")


def _names(expr: Expr) -> set[str]:
    match expr:
        case Fact(term):
            return _variable_names(term)
        case Name(name):
            return {name}
        case _:
            return set()


def _variable_names(term: Any) -> set[str]:
    if isinstance(term, Var | Const):
        return {term.name}
    return set().union(*[_variable_names(s) for s in term.src]) if isinstance(term, Node) else set()
