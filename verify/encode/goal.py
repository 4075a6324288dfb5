"""From a rule at one choice of types to a goal: premises, and what has to follow from them.

Owns: what terms, conditions, facts, computed constants and extractors of a rule mean in SMT. Does not
own: the text of the obligation (encode/text.py), the meaning of operations (semantics.py,
encode/integers.py), laws of tensors, loops and derivatives (the other files of this folder), solving
(solve.py).

The goal holds for every value of the variables, every pair of bounds lo(x) <= x <= hi(x) within the
type, and every result of an extractor that keeps its contract.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import z3

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, Ops
from proofgrad.core.rewrite.extractors import CONTRACTS, NUMBER, TRUTH
from proofgrad.core.rewrite.functions import TYPE_NUMBERS
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Extractor,
    Fact,
    Instance,
    Lit,
    Name,
    Node,
    Num,
    RuleKind,
    Var,
)
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.encode import numbers as numbers
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.assumed import otherwise
from proofgrad.verify.encode.integers import Integers
from proofgrad.verify.encode.memory import Read, covered
from proofgrad.verify.encode.numbers import Number
from proofgrad.verify.encode.ring import Ring
from proofgrad.verify.encode.semantics import IllFormed, NoMeaning
from proofgrad.verify.encode.text import text_of
from proofgrad.verify.encode.types import Case, type_condition

Term = Any


class Arithmetic(Protocol):
    """One of the encodings of the operations: Bits here, Integers in encode/integers.py."""

    known: list[Term]

    def variable(self, name: str, dtype: DType) -> Term:
        """An arbitrary value of the type."""

    def constant(self, dtype: DType, value: Any) -> Term:
        """The constant `value` of the type."""

    def loaded(self, value: Term, dtype: DType) -> Term:
        """A value read from memory, with what is known of any value of the type."""

    def meaning(
        self, op: Ops, dtype: DType, args: Sequence[Term], src_dtypes: Sequence[DType]
    ) -> Term:
        """The result of `op`, of type `dtype`, on `args`, which are of `src_dtypes`. Raises: NoMeaning."""


class Bits:
    """Machine integers as bit-vectors, floats as IEEE floats: the meaning as it is written down."""

    def __init__(self) -> None:
        self.known: list[Term] = []

    def variable(self, name: str, dtype: DType) -> Term:
        """A constant of the sort of the type: every bit pattern is a value."""
        return z3.Const(name, semantics.sort_of(dtype))

    def constant(self, dtype: DType, value: Any) -> Term:
        """The bits, or the IEEE float, of `value`."""
        return semantics.constant(dtype, value)

    def loaded(self, value: Term, dtype: DType) -> Term:
        """The value itself: its sort holds values of the type alone."""
        return value

    def meaning(
        self, op: Ops, dtype: DType, args: Sequence[Term], src_dtypes: Sequence[DType]
    ) -> Term:
        """The total semantics of `op` in semantics.py. Raises: NoMeaning."""
        return semantics.meaning(op, dtype, args, src_dtypes)


@dataclass(slots=True)
class Goal:
    """`conclusion` follows from `premises`, whatever the values of the variables.

    `claim`: in words, where it is not that both sides are the same.
    """

    premises: list[Term]
    conclusion: Term
    variables: dict[str, tuple[Term, DType]] = field(default_factory=dict)
    bounds: dict[tuple[str, str], Term] = field(default_factory=dict)  # by "lo" or "hi", variable
    claim: str = ""

    def text(self) -> str:
        """The obligation as SMT-LIB: unsatisfiable if and only if the goal holds."""
        return text_of([*self.premises, z3.Not(self.conclusion)])


class Encoder:
    """Terms and expressions of one case in one arithmetic."""

    def __init__(self, case: Case, arithmetic: Arithmetic) -> None:
        self.case = case
        self.arithmetic = arithmetic
        self.values: dict[str, Term] = {}
        self.dtypes: dict[str, DType] = {}
        self.numbers: dict[str, Number] = {}
        self.facts: dict[Expr, Number] = {}
        self.premises: list[Term] = []
        self.reads: list[Read] = []  # of memory, by the terms so far

    # -- terms --------------------------------------------------------------------------------------

    def term(self, term: RuleTerm) -> Term:
        """The value of a term of the rule, as a value of its type."""
        dtype = self.case.dtype(term.type)
        match term:
            case Var(name, _) | Const(name, _):
                return self.variable(name, dtype)
            case Lit(value, _):
                return self.literal(value, dtype)
            case Calc():
                return self.computed(term, dtype)
            case Instance():
                return self.instance(term, dtype)
            case Node():
                return self.node(term, dtype)

    def variable(self, name: str, dtype: DType) -> Term:
        """The value of a variable or constant of the rule, the same one at each use of the name."""
        if name not in self.values:
            self.values[name] = self.arithmetic.variable(name, dtype)
            self.dtypes[name] = dtype
        return self.values[name]

    def instance(self, term: Instance, dtype: DType) -> Term:
        """The variable where its truth is the one that is asked for, elsewhere any value."""
        if self.case.dtype(term.value.type) is not dtypes.bool:
            raise NoMeaning(f"{term.counter} is the counter of a loop, and there is none here")
        truth, asked = self.variable(term.counter, dtypes.bool), self.term(term.value)
        itself = self.variable(term.name, dtype)
        other = self.variable(otherwise(term.name, term.counter), dtype)
        return z3.If(truth == asked, itself, other)

    def literal(self, value: Any, dtype: DType) -> Term:
        """A literal; where it does not fit the type the rule cannot fire."""
        if dtype.lo is not None and dtype.hi is not None and not dtype.lo <= value <= dtype.hi:
            self.premises.append(z3.BoolVal(False))
            return self.arithmetic.constant(dtype, 0)
        return self.arithmetic.constant(dtype, value)

    def node(self, term: Node, dtype: DType) -> Term:
        """The value of an operation on single values, or of a LOAD. Raises: NoMeaning for any other."""
        op = Ops[term.op]
        if op is Ops.LOAD:
            return self.load(term, dtype)
        if op not in ELEMENTWISE:
            raise NoMeaning(f"{op.name} has no meaning on single values")
        args = [self.term(source) for source in term.src]
        src_dtypes = [self.case.dtype(source.type) for source in term.src]
        _check_types(op, dtype, src_dtypes)
        return self.arithmetic.meaning(op, dtype, args, src_dtypes)

    def load(self, term: Node, dtype: DType) -> Term:
        """Memory is any function of the position; a false mask gives zero."""
        (position,) = term.src
        if (
            not isinstance(position, Node)
            or position.op != "INDEX"
            or not isinstance(position.src[0], Var)
        ):
            raise NoMeaning("LOAD of anything but an INDEX of a variable buffer")
        at = self.term(position.src[1])
        zero = self.arithmetic.constant(dtype, 0)
        buffer = position.src[0].name
        memory = z3.Function(f"memory#{buffer}", at.sort(), zero.sort())
        held = self.arithmetic.loaded(memory(at), dtype)
        if len(position.src) == 2:
            self.reads.append(Read(buffer, at, z3.BoolVal(True)))
            return held
        mask = self.term(position.src[2])
        self.reads.append(Read(buffer, at, mask))
        return z3.If(mask, held, zero)

    def left_and_right(self, right: RuleTerm) -> tuple[Term, Term, list[Term], list[Term]]:
        """Values of both sides, conditions, and that the right side reads only what the left does."""
        left, read = self.term(self.case.rule.left), self.reads
        for extractor in self.case.rule.extractors:
            self.extractor(extractor)
        conditions = [self.premise(c) for c in self.case.rule.where]
        self.reads = []
        return left, self.term(right), conditions, covered(self.reads, read)

    def computed(self, term: Calc, dtype: DType) -> Term:
        """A computed constant; one that does not fit keeps the rule from firing."""
        if term.mode == "wrap":
            return self.term(term.computed)
        value = self.number(term.number)
        if isinstance(self.arithmetic, Ring):
            return value
        if isinstance(self.arithmetic, Bits):
            result, fits = numbers.to_value(value, dtype)
            self.premises.append(fits)
            return result
        if isinstance(value, numbers.Wide) or not z3.is_int(value):
            return value
        if dtype.lo is not None and dtype.hi is not None:
            self.premises += [value >= dtype.lo, value <= dtype.hi]
        return value

    # -- conditions ---------------------------------------------------------------------------------

    def condition(self, expr: Expr) -> Term:
        """The truth of a condition."""
        truth = self.number(expr)
        if isinstance(truth, numbers.Wide) or not z3.is_bool(truth):
            raise NoMeaning(f"{expr} is not a condition")
        return truth

    def number(self, expr: Expr) -> Number:
        """The mathematical value (or truth) of an expression."""
        match expr:
            case Num(value):
                return numbers.literal(
                    value, "wide" if isinstance(self.arithmetic, Bits) else "int"
                )
            case Name(name):
                return self.named_number(name)
            case Apply(function, args) if function in ("lo", "hi"):
                return self.bound(function, args[0])
            case Apply("finite", (Fact(term),)):
                return numbers.is_finite(self.term(term))
            case Apply("not_nan", (Fact(term),)):
                return z3.Not(z3.fpIsNaN(self.term(term)))
            case Apply(("ones" | "may") as function, (about,)):
                return self.mask(function, about)
            case Apply("divisor", (about,)):
                return self.divisor(about)
            case Apply("wrapped", (value, Name(target))):
                return numbers.wrapped(self.number(value), self.case.dtype(target))
            case Apply(function, (Name(kind),)) if function in TYPE_NUMBERS:
                return self.number_of_type(function, self.case.dtype(kind))
            case Apply(function, args):
                truth = type_condition(expr, self.case)
                if truth is not None:
                    return z3.BoolVal(truth)
                return self._applied(function, [self.number(arg) for arg in args])
            case _:
                raise NoMeaning(f"{expr} is not a number")

    def number_of_type(self, function: str, dtype: DType) -> Number:
        """A number that a type has, such as the largest of its values."""
        value = TYPE_NUMBERS[function](dtype)
        if value is None:
            raise NoMeaning(f"{dtype.name} has no number {function}")
        return numbers.literal(value, "wide" if isinstance(self.arithmetic, Bits) else "int")

    def premise(self, expr: Expr) -> Term:
        """A condition that is assumed. Of a multiple, the factor gets a name.

        Of what is no multiple, it is added that the product with none of the variables is it.
        """
        if isinstance(self.arithmetic, Integers) and isinstance(expr, Apply):
            if expr.function == "and":
                return z3.And(*[self.premise(arg) for arg in expr.args])
            if expr.function == "divides":
                a, b = self.number(expr.args[0]), self._multiple(expr.args[1])
                return b == self.arithmetic.multiple_of(a)
            if expr.function == "not" and getattr(expr.args[0], "function", "") == "divides":
                a, b = [self.number(arg) for arg in expr.args[0].args]  # type: ignore[union-attr]
                known = [v for v in (*self.values.values(), *self.numbers.values()) if z3.is_int(v)]
                return z3.And(self.condition(expr), *[b != a * v for v in known])
        return self.condition(expr)

    def _multiple(self, expr: Expr) -> Number:
        """What a condition says is a multiple. What divides a divisor of x divides x: rules need that."""
        match expr:
            case Apply("divisor", (about,)) if self.case.rule.kind is RuleKind.REWRITE:
                term, _ = self._about("divisor", about)
                return self.number_of(self.term(term), self.case.dtype(term.type))
            case _:
                return self.number(expr)

    def _applied(self, function: str, args: list[Number]) -> Number:
        if isinstance(self.arithmetic, Integers) and function in ("//", "%"):
            return self.arithmetic.floor(*args)[function == "%"]
        if isinstance(self.arithmetic, Integers) and function == "gcd":
            return self.arithmetic.common_divisor(*args)
        return numbers.apply(function, args)

    def named_number(self, name: str) -> Number:
        """The mathematical number that a name of a condition stands for. Raises: NoMeaning if it stands for none."""
        if name in self.numbers:
            return self.numbers[name]
        if name not in self.values:
            raise NoMeaning(f"{name} is not a number")
        return self.number_of(self.values[name], self.dtypes[name])

    def number_of(self, value: Term, dtype: DType) -> Number:
        """A value as a mathematical number: a bit-vector without overflow, or an Int; a bool counts as 0 or 1."""
        if isinstance(self.arithmetic, Bits):
            return numbers.of_value(value, dtype)
        if dtype.kind is Kind.BOOL:
            return z3.If(value, z3.IntVal(1), z3.IntVal(0))
        return value

    def bound(self, function: str, about: Expr) -> Number:
        """lo or hi of a term: any number on that side of its value, within its type."""
        term, key = self._about(function, about)
        if key not in self.facts:
            dtype = self.case.dtype(term.type)
            value = self.number_of(self.term(term), dtype)
            bound, within = self._fresh_number(self._fact_name(function, term), dtype)
            self.premises += within
            holds = numbers.apply("<=" if function == "lo" else ">=", [bound, value])
            if dtype.is_float:
                holds = z3.Or(z3.fpIsNaN(value), holds)
            self.premises.append(holds)
            self.facts[key] = bound
        return self.facts[key]

    def mask(self, function: str, about: Expr) -> Number:
        """ones or may of a term: bits that are all set in its value, or of which all of its are."""
        term, key = self._about(function, about)
        if key not in self.facts:
            dtype, value = self.case.dtype(term.type), self.term(term)
            if not isinstance(self.arithmetic, Bits) or not z3.is_bv(value):
                raise NoMeaning(f"{function} of what has no bits")
            known = z3.BitVec(self._fact_name(function, term), dtype.bits)
            self.premises.append(value & known == (known if function == "ones" else value))
            self.facts[key] = numbers.of_value(known, dtype)
        return self.facts[key]

    def divisor(self, about: Expr) -> Number:
        """The divisor of a term: any number from 0 on of which its value is a multiple."""
        term, key = self._about("divisor", about)
        if key not in self.facts:
            if not isinstance(self.arithmetic, Integers):
                raise NoMeaning("divisors are numbers without end")
            divisor = z3.Int(self._fact_name("divisor", term))
            value = self.number_of(self.term(term), self.case.dtype(term.type))
            self.premises += [divisor >= 0, value == self.arithmetic.multiple_of(divisor)]
            self.facts[key] = divisor
        return self.facts[key]

    def _about(self, function: str, about: Expr) -> tuple[RuleTerm, Expr]:
        """The term that a fact is about, and the key of the fact."""
        term = about.term if isinstance(about, Fact) else None
        if isinstance(about, Name):
            term = Var(about.name, self.dtypes[about.name].name)
        if term is None:
            raise NoMeaning(f"{function} of something that is not a term")
        return term, Apply(function, (Fact(term),))

    def _fact_name(self, function: str, term: RuleTerm) -> str:
        """A name in SMT: no name of a rule has a parenthesis or a "#" in it, so it is free."""
        about = term.name if isinstance(term, Var | Const) else f"#{len(self.facts)}"
        return f"{function}({about})"

    def _fresh_number(self, name: str, dtype: DType) -> tuple[Number, list[Term]]:
        if isinstance(self.arithmetic, Bits):
            return numbers.fresh_between(name, dtype)
        bound = z3.Int(name)
        if dtype.lo is None or dtype.hi is None:
            return bound, []
        return bound, [bound >= dtype.lo, bound <= dtype.hi]

    def goal(self, conclusion: Term, conditions: Sequence[Term]) -> Goal:
        """`conclusion` from all that is known and assumed by now."""
        premises = [*self.arithmetic.known, *self.premises, *conditions]
        variables = {name: (value, self.dtypes[name]) for name, value in self.values.items()}
        return Goal(premises, conclusion, variables, self._bounds_of_variables())

    def _bounds_of_variables(self) -> dict[tuple[str, str], Term]:
        found: dict[tuple[str, str], Term] = {}
        for key, bound in self.facts.items():
            match key:
                case Apply(side, (Fact(Var(name, _) | Const(name, _)),)):
                    found[side, name] = bound.bits if isinstance(bound, numbers.Wide) else bound
        return found

    # -- extractors --------------------------------------------------------------------------------------

    def extractor(self, extractor: Extractor) -> None:
        """Names for the results of an extractor, with its contract as the only thing known of them."""
        contract = CONTRACTS[extractor.function]
        numbers_of: dict[str, Number] = {}
        for (name, sort), given in zip(contract.inputs, extractor.inputs, strict=True):
            if sort != TRUTH:
                numbers_of[name] = self._input_number(given)
            elif isinstance(given, Var | Const | Lit | Node | Calc | Instance):
                numbers_of[name] = self.term(given)
            else:
                raise NoMeaning(f"{given} is no truth that {extractor.function} can be given")
        for (name, sort), (output, _) in zip(contract.outputs, extractor.outputs, strict=True):
            if sort == NUMBER:
                result = self.numbers[output] = z3.Int(output)
            else:
                result = self.variable(output, dtypes.bool if sort == TRUTH else dtypes.index)
            numbers_of[name] = result
        names = self.numbers
        self.numbers = {**names, **numbers_of}
        self.premises += [self.condition(claim) for claim in contract.claims]
        self.numbers = names

    def _input_number(self, given: Any) -> Number:
        if isinstance(given, Var | Const | Lit | Calc | Node):
            dtype = self.case.dtype(given.type)
            if dtype.kind is not Kind.INDEX:
                raise NoMeaning(
                    f"extractors have contracts on index terms only, not on {dtype.name}"
                )
            return self.term(given)
        return self.number(given)


def equality(
    case: Case, arithmetic: Arithmetic, same: Callable[[Term, Term], Term] = semantics.same
) -> Goal:
    """The goal of a rewrite of values: where the conditions hold, both sides are the same."""
    encoder = Encoder(case, arithmetic)
    (right_side,) = case.rule.right
    if right_side is None:
        raise NoMeaning("a rewrite needs a right side")
    if isinstance(case.rule.left, Node) and case.rule.left.op == "INDEX":
        return _same_position(encoder, case.rule.left, right_side)
    left, right, conditions, reads = encoder.left_and_right(right_side)
    goal = encoder.goal(joined(same(left, right), reads), conditions)
    return replace(goal, claim=SAME_AND_READ) if reads else goal


READS = "the right side reads only positions that the left side reads"
SAME_AND_READ = f"both sides are the same, and {READS}"


def joined(claim: Term, others: Sequence[Term]) -> Term:
    """All of the claims together; a single one as it is."""
    return z3.And(claim, *others) if others else claim


def ring_equality(case: Case) -> Goal:
    """The goal of a rewrite of wrapping integers as an identity of rings, without conditions."""
    if case.rule.extractors:
        raise NoMeaning("extractors are about index terms")
    encoder = Encoder(case, Ring())
    (right_side,) = case.rule.right
    if right_side is None:
        raise NoMeaning("a rewrite needs a right side")
    left, read = encoder.term(case.rule.left), encoder.reads
    encoder.reads = []
    same = semantics.same(left, encoder.term(right_side))
    return Goal([], joined(same, covered(encoder.reads, read)))


def _same_position(encoder: Encoder, left: Node, right: RuleTerm) -> Goal:
    """The goal of a rewrite of an INDEX: the same buffer and mask, the same element where it is true."""
    if not isinstance(right, Node) or right.op != "INDEX" or left.src[0] != right.src[0]:
        raise NoMeaning("an INDEX can only become an INDEX of the same buffer")
    masks = [encoder.term(n.src[2]) if len(n.src) > 2 else z3.BoolVal(True) for n in (left, right)]
    element = encoder.term(left.src[1])
    for extractor in encoder.case.rule.extractors:
        encoder.extractor(extractor)
    same_element = element == encoder.term(right.src[1])
    conditions = [encoder.premise(c) for c in encoder.case.rule.where]
    same_mask = masks[0] == masks[1]
    return encoder.goal(z3.And(same_mask, z3.Implies(masks[0], same_element)), conditions)


def _check_types(op: Ops, dtype: DType, src_dtypes: Sequence[DType]) -> None:
    """Refuse terms that are no legal nodes: a claim about them would be about nothing."""
    if op in (Ops.CAST, Ops.BITCAST):
        return
    operands = src_dtypes[1:] if op is Ops.WHERE else src_dtypes
    if op is Ops.WHERE and src_dtypes[0] is not dtypes.bool:
        raise IllFormed("the condition of a WHERE is a bool")
    expected = dtypes.bool if op in COMPARE else operands[0]
    if any(d is not operands[0] for d in operands) or dtype is not expected:
        names = ", ".join(d.name for d in src_dtypes)
        raise IllFormed(f"{op.name} of {names} as {dtype.name}")
