"""Laws of reductions that name one range, by induction on how many values it takes.

`sum[r, R](body)` is a sum over the loops R of sums over r = 0, 1, ..., n-1: the order of a reduction
is not specified, so this order may be taken. So it is enough that for all values of the loops R

    body(0) op body(1) op ... op body(n-1)  =  what the right side reduces over R, at n

for every n that the conditions allow: for n = 0, where the left is the value of a reduction over
nothing, for n = 1, for n = 2, and for n + 1 if it holds for n >= 2. A variable of the body is any
function of r, unless a condition says that it is independent of r; v[r := x] is that function at x.
Both sides over R start from the same value and combine the same values. Where there are no loops R,
the left side starts from that value, whatever the right side does.

A sum of floats over R starts from 0.0. Then the signs of other zeros in it make no difference: x + y is
-0.0 only if x and y are, so no sum that 0.0 is in is -0.0, and what is not zero is the same beside
either zero. So there both sides may differ in the sign of a zero.

Owns: these goals. Does not own: the meaning of values (encode/goal.py), laws of all loops at once
(encode/loops.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Fact,
    Instance,
    Node,
    Rule,
    Text,
    Var,
)
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.assumed import variable_of
from proofgrad.verify.encode.axes import identity
from proofgrad.verify.encode.goal import READS, Bits, Encoder, Goal
from proofgrad.verify.encode.memory import Read, covered
from proofgrad.verify.encode.ring import Ring
from proofgrad.verify.encode.semantics import IllFormed, NoMeaning
from proofgrad.verify.encode.types import Case

Term = Any
RANGE = "range"


def names_a_range(rule: Rule) -> bool:
    """Whether the left side is a reduction, one loop of which has a name."""
    left = rule.left
    return isinstance(left, Node) and any(s.type == RANGE for s in left.src)


def law_of_a_range(case: Case) -> list[Goal]:
    """The goals of the induction, on values as they are."""
    few = [_few(case, Bits(), count) for count in (0, 1, 2)]
    return [*few, _step(case, Bits()), *_reads(case)]


def law_of_a_wrapping_range(case: Case) -> list[Goal]:
    """The same goals as identities of a ring, which hold at every integer width."""
    few = [_few(case, _IndexRing(), count) for count in (0, 1, 2)]
    return [*few, _step(case, _IndexRing()), *_reads(case)]


def law_of_a_short_range(case: Case) -> list[Goal]:
    """The goals for at most two iterations, without other loops. They prove nothing."""
    few = [_few(case, Bits(), count, started=True) for count in (0, 1, 2)]
    return [*few, *[goal for count in (0, 1, 2) for goal in _reads(case, count)]]


def _few(case: Case, arithmetic: Any, count: int, started: bool = False) -> Goal:
    """Both sides for `count` iterations. `started`: with what a reduction starts from.

    Without other loops the right side need not be a reduction, which starts from the same.
    """
    encoder = _RangeEncoder(case, arithmetic)
    if encoder.dtype.is_bool:
        return Goal([], z3.BoolVal(True))  # there are no reductions of bools
    started = started or not encoder.has_other_loops
    start = encoder.start()
    values = [encoder.body(z3.IntVal(k)) for k in range(max(count, 1))][:count]
    right, needed = encoder.right(z3.IntVal(count))
    if started:
        left = encoder.folded([start, *values])
        right = encoder.folded([start, right]) if encoder.has_other_loops else right
    else:
        left = encoder.folded(values) if values else start
    same = semantics.same if started else encoder.same
    claim = f"both sides are the same for {('no iterations', 'one iteration', 'two')[count]}"
    return replace(encoder.goal(same(left, right), needed), claim=claim)


def _step(case: Case, arithmetic: Any) -> Goal:
    """From n to n + 1 iterations, where the conditions allow n + 1."""
    encoder = _RangeEncoder(case, arithmetic)
    if encoder.dtype.is_bool:
        return Goal([], z3.BoolVal(True))
    count = z3.Int("n#")
    value = encoder.body(count)
    after, needed = encoder.right(count + 1)
    before, also = encoder.right(count)
    claim = z3.And(*also, encoder.same(encoder.folded([before, value]), after))
    return encoder.goal(claim, [count >= 2, *needed])


def _reads(case: Case, count: int | None = None) -> list[Goal]:
    """That the right side computes only what the left side does, for any `count` or a small one.

    In v[r := x] the variable is any term, with accesses to memory that stay in their buffers while r
    is a value of the counter: x has to be one. A read that is written down is one of the left side
    at one of these values.
    """
    encoder = _RangeEncoder(case, Bits())
    if encoder.dtype.is_bool:
        return []
    whole = z3.Int("n#") if count is None else z3.IntVal(count)
    encoder.body(z3.IntVal(0))  # binds the names
    encoder.reads = []
    _, needed = encoder.right(whole)
    reads, encoder.reads = encoder.reads, []
    taken = encoder.taken
    if not reads and not taken:
        return []
    claims = [is_counted(position, whole) for position in taken]
    positions = [*taken, z3.IntVal(0)] if count is None else [z3.IntVal(k) for k in range(count)]
    others: list[Read] = []
    for position in positions if reads else []:
        encoder.reads = []
        encoder.body(position)
        others += [
            Read(read.buffer, read.position, z3.And(read.mask, is_counted(position, whole)))
            for read in encoder.reads
        ]
    claim = z3.And(*claims, *covered(reads, others))
    return [replace(encoder.goal(claim, [whole >= 0, *needed]), claim=READS)]


def is_counted(position: Term, count: Term) -> Term:
    """Whether a counter that takes `count` values takes this one."""
    return z3.And(position >= 0, position < count)


class _RangeEncoder(Encoder):
    """Values of the body at one r, and of the right side at one number of iterations."""

    def __init__(self, case: Case, arithmetic: Any) -> None:
        super().__init__(case, arithmetic)
        left, (right,) = case.rule.left, case.rule.right
        if not isinstance(left, Node) or right is None or not isinstance(left.arg, Text):
            raise NoMeaning("a law of one range has a named reduction on the left")
        self.dtype = case.dtype(left.type)
        self._op = Ops[left.arg.value]
        self._left = left
        self._counter = next(s.name for s in left.src if isinstance(s, Var) and s.type == RANGE)
        self._right = self._reduced(right)
        self._fixed = _independent_of(self._counter, case.rule) | _constants(left)
        self._position: Term | None = None  # the value of r, inside of its loop
        self._count: Term | None = None
        self._fits: list[Term] = []
        self.taken: list[Term] = []  # the values of the counter that are put into variables

    @property
    def has_other_loops(self) -> bool:
        return len(self._left.src) > 2

    def start(self) -> Term:
        """What the reduction is over nothing."""
        if isinstance(self.arithmetic, Ring):
            if self._op not in (Ops.ADD, Ops.MUL):
                raise NoMeaning(f"{self._op.name} is no operation of a ring")
            return self.arithmetic.constant(self.dtype, 0 if self._op is Ops.ADD else 1)
        return identity(self._op, self.dtype)

    def same(self, left: Term, right: Term) -> Term:
        """Whether both sides may be reduced over the other loops: but for zeros in a sum of floats."""
        is_float_sum = self._op is Ops.ADD and self.dtype.is_float and self.has_other_loops
        return (semantics.same_but_for_zeros if is_float_sum else semantics.same)(left, right)

    def folded(self, values: Sequence[Term]) -> Term:
        total, *others = values
        for value in others:
            total = self.arithmetic.meaning(self._op, self.dtype, [total, value], [self.dtype] * 2)
        return total

    def body(self, position: Term) -> Term:
        """What is reduced, at r = `position`; contracts of extractors hold for every value of r."""
        self._position = position
        for extractor in self.case.rule.extractors:
            self.extractor(extractor)
        value = self.term(self._left.src[0])
        self._position = None
        return value

    def right(self, count: Term) -> tuple[Term, list[Term]]:
        """What the right side reduces, and what lets the rule fire, if r takes `count` values."""
        self._count, self._fits = count, []
        truths = [self.condition(c) for c in self.case.rule.where if not _is_independence(c)]
        value = self.term(self._right)
        return value, [*truths, *self._fits]

    def _reduced(self, right: RuleTerm) -> RuleTerm:
        """The right side without the reduction over the other loops, which both sides have."""
        others = self._left.src[2:]
        if not others:
            return right
        if isinstance(right, Node) and (right.op, right.arg) == ("REDUCE", self._left.arg):
            if right.src[1:] == others:
                return right.src[0]
        raise NoMeaning("the right side is no such reduction over the other loops")

    # -- terms --------------------------------------------------------------------------------------

    def variable(self, name: str, dtype: DType) -> Term:
        if name == self._counter:
            return self._at()
        if variable_of(name) in self._fixed:
            return super().variable(name, dtype)
        self.dtypes[name] = dtype
        return self._function(name, dtype)(self._at())

    def term(self, term: RuleTerm) -> Term:
        if isinstance(term, Instance) and self.case.dtype(term.value.type) is dtypes.index:
            value = self.term(term.value)
            self.taken.append(value)
            if term.name in self._fixed:
                return self.variable(term.name, self.case.dtype(term.type))
            return self._function(term.name, self.case.dtype(term.type))(value)
        return super().term(term)

    def _at(self) -> Term:
        if self._position is None:
            raise IllFormed(f"what depends on {self._counter} is used outside of its loop")
        return self._position

    def _function(self, name: str, dtype: DType) -> Any:
        sort = self.arithmetic.constant(dtype, 0).sort()
        return z3.Function(name, z3.IntSort(), sort)

    def node(self, term: Node, dtype: DType) -> Term:
        if term.op == "REDUCE":
            raise NoMeaning("a reduction in a reduction")
        return super().node(term, dtype)

    def computed(self, term: Calc, dtype: DType) -> Term:
        before = len(self.premises)
        value = super().computed(term, dtype)
        self._fits += self.premises[before:]
        del self.premises[before:]
        return value

    # -- numbers ------------------------------------------------------------------------------------

    def number(self, expr: Expr) -> Any:
        match expr:
            case Apply("count", _) if self._count is not None:
                return self._count
            case Apply(("lo" | "hi" | "finite"), (Fact(Var(name, _)),)) if name not in self._fixed:
                raise NoMeaning(f"a fact about {name}, which depends on {self._counter}")
            case Apply(("lo" | "hi"), _) if isinstance(self.arithmetic, Ring):
                raise NoMeaning("a residue has no bounds")
            case _:
                return super().number(expr)


class _IndexRing(Ring):
    """A ring in which index terms are themselves: an index as an integer is its residue."""

    def meaning(
        self, op: Ops, dtype: DType, args: Sequence[Term], src_dtypes: Sequence[DType]
    ) -> Term:
        source = src_dtypes[0]
        if op is Ops.CAST and dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
            if source.kind is Kind.INDEX:
                return args[0]
            if source.kind is Kind.BOOL:
                return z3.If(args[0], z3.IntVal(1), z3.IntVal(0))
        if source is dtypes.index and op is not Ops.CAST:
            return semantics.meaning(op, dtype, args, src_dtypes)
        return super().meaning(op, dtype, args, src_dtypes)


def _is_independence(condition: Expr) -> bool:
    return isinstance(condition, Apply) and condition.function == "independent"


def _constants(term: RuleTerm) -> set[str]:
    if isinstance(term, Const):
        return {term.name}
    sources = term.src if isinstance(term, Node) else ()
    return set().union(*[_constants(source) for source in sources])


def _independent_of(counter: str, rule: Rule) -> set[str]:
    """The variables that a condition says to be independent of the range."""
    found: set[str] = set()
    for condition in rule.where:
        match condition:
            case Apply("independent", (Fact(Var(name, _)), Fact(Var(loop, "range")))):
                found |= {name} if loop == counter else set()
    return found
