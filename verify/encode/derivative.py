"""Cotangents: the right sides against a table of derivatives that stands here and nowhere else.

Arithmetic is over the reals: a derivative is a statement about real functions, and its rounding is
that of the operations that the rule names. For a node y = op(x1, x2, ..) and its cotangent g, the
cotangent of xk has to be g * dy/dxk wherever that exists; at a tie of max or min, half each.
For movement and sums, which are linear, it has to be the transpose: element j of the source gets the
sum of g over the elements that are made of j.

Read as the exact numbers they round: ln 2 and 1 / ln 2. Derivatives of steps (TRUNC, comparisons,
casts to and from integers) are zero or do not exist: no gradient passes; nor through DETACH.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import z3

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import CASTS, ELEMENTS, ELEMENTWISE, Ops
from proofgrad.core.rewrite.rule import Apply, Fact, Lit, Name, Node, Text, Var
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.encode.axes import (
    SAME_VALUES,
    SMALL_RANK,
    AxisPicture,
    PermutePicture,
    ReshapePicture,
    family_of,
)
from proofgrad.verify.encode.fresh_terms import Function
from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.quotients import named_quotients
from proofgrad.verify.encode.semantics import NoMeaning
from proofgrad.verify.encode.types import Case

Term = Any


def law_of_small_derivatives(case: Case) -> list[Goal]:
    """The goals of a cotangent of PERMUTE at one small rank. They prove nothing."""
    if not isinstance(case.rule.left, Node) or case.rule.left.op != "PERMUTE":
        raise NoMeaning("only permutations depend on the rank")
    return _law(case, SMALL_RANK)


def law_of_derivatives(case: Case) -> list[Goal]:
    """The goals of a cotangent rule: one for each source."""
    return [named_quotients(goal) for goal in _law(case, None)]


def _law(case: Case, rank: int | None) -> list[Goal]:
    left = case.rule.left
    if not isinstance(left, Node) or any(not isinstance(s, Var) for s in left.src):
        raise NoMeaning("a cotangent rule is about one operation on variables")
    if len(case.rule.right) != len(left.src):
        raise NoMeaning(f"{left.op} has {len(left.src)} sources, not {len(case.rule.right)}")
    if any(isinstance(s, Var) and s.name == "g" for s in left.src):
        raise NoMeaning("g is the cotangent; a source needs another name")
    if case.rule.where or case.rule.extractors:
        raise NoMeaning("cotangent rules have no conditions")
    op = Ops[left.op]
    if op in ELEMENTWISE:
        return _of_elementwise(case, op, left)
    (right,) = case.rule.right
    if op is Ops.DETACH:
        return [Goal([], z3.BoolVal(right is None))]
    if right is None:
        raise NoMeaning(f"a gradient passes through {op.name}")
    if op is Ops.SKEW:
        return [_of_skew(left, right)]
    if op is Ops.REDUCE_AXIS and left.arg is not None and _reduces_by(left, "MAX", "MIN"):
        return _of_extreme(case, left, right)
    if op is Ops.REDUCE_AXIS and left.arg is not None and _reduces_by(left, "MUL"):
        return _of_product(case, left, right)
    return [_transpose(left, right, rank)]


# -- one value ---------------------------------------------------------------------------------------

_EXP2 = Function("exp2", z3.RealSort, z3.RealSort)
_EXP = Function("power_of_e", z3.RealSort, z3.RealSort)
_LOG2 = Function("log2", z3.RealSort, z3.RealSort)
_SIN = Function("sin", z3.RealSort, z3.RealSort)
_COS = Function("cos", z3.RealSort, z3.RealSort)
_POW = Function("pow", z3.RealSort, z3.RealSort, z3.RealSort)
_SQRT = Function("sqrt", z3.RealSort, z3.RealSort)
_NAMED = {math.log(2): "ln2#", 1 / math.log(2): "one_over_ln2#"}  # what these floats stand for


def _ln2() -> Term:
    return z3.Real("ln2#")


def _truncated(x: Term) -> Term:
    """The whole number at x or next to it towards 0."""
    return z3.ToReal(z3.If(x < 0, -z3.ToInt(-x), z3.ToInt(x)))


def _half_at_a_tie(wins: Term, ties: Term) -> Term:
    return z3.If(wins, z3.RealVal(1), z3.If(ties, z3.RealVal("1/2"), z3.RealVal(0)))


def _everywhere(*_: Term) -> Term:
    return z3.BoolVal(True)


# Derivative by each source, and where the operation has one.
DERIVATIVES: dict[Ops, tuple[Callable[..., Sequence[Term]], Callable[..., Term]]] = {
    Ops.ADD: (lambda x, y: (z3.RealVal(1), z3.RealVal(1)), _everywhere),
    Ops.MUL: (lambda x, y: (y, x), _everywhere),
    Ops.NEG: (lambda x: (z3.RealVal(-1),), _everywhere),
    Ops.FDIV: (lambda x, y: (1 / y, -x / (y * y)), lambda x, y: y != 0),
    Ops.SQRT: (lambda x: (1 / (2 * _SQRT(x)),), lambda x: x > 0),
    Ops.EXP2: (lambda x: (_ln2() * _EXP2(x),), _everywhere),
    Ops.EXP: (lambda x: (_EXP(x),), _everywhere),
    Ops.LOG2: (lambda x: (1 / (x * _ln2()),), lambda x: x > 0),
    Ops.SIN: (lambda x: (_COS(x),), _everywhere),
    Ops.COS: (lambda x: (-_SIN(x),), _everywhere),
    Ops.POW: (
        lambda x, y: (y * _POW(x, y - 1), _POW(x, y) * _LOG2(x) * _ln2()), lambda x, y: x > 0,
    ),
    # Where the quotient is no whole number; the multiple that is taken off is a step.
    Ops.FMOD: (lambda x, y: (z3.RealVal(1), -_truncated(x / y)), lambda x, y: y != 0),
    Ops.MULACC: (lambda x, y, z: (y, x, z3.RealVal(1)), _everywhere),
    Ops.FMA: (lambda x, y, z: (y, x, z3.RealVal(1)), _everywhere),
    Ops.TF32: (lambda x: (z3.RealVal(1),), _everywhere),  # of the number that it rounds, as a cast
    Ops.MAX: (
        lambda x, y: (_half_at_a_tie(x > y, x == y), _half_at_a_tie(y > x, x == y)), _everywhere,
    ),
    Ops.MIN: (
        lambda x, y: (_half_at_a_tie(x < y, x == y), _half_at_a_tie(y < x, x == y)), _everywhere,
    ),
}  # fmt: skip


def _of_elementwise(case: Case, op: Ops, left: Node) -> list[Goal]:
    rights = case.rule.right
    if is_step(op) or (op in CASTS and not _between_floats(case, op, left)):
        if any(right is not None for right in rights):
            raise NoMeaning(f"no gradient passes through {op.name} here")
        return [Goal([], z3.BoolVal(True))]
    values = Reals(case)
    sources = [values.term(s) for s in left.src]
    exists = [z3.BoolVal(True)]
    if op is Ops.WHERE:
        condition = sources[0]
        derivatives = [
            None,
            *[z3.If(c, z3.RealVal(1), z3.RealVal(0)) for c in (condition, z3.Not(condition))],
        ]
    elif op is Ops.CAST:
        derivatives = [z3.RealVal(1)]
    else:
        if op not in DERIVATIVES:
            raise NoMeaning(f"{op.name} has no derivative in verify/encode/derivative.py")
        of, where = DERIVATIVES[op]
        derivatives, exists = list(of(*sources)), [where(*sources)]
    goals = []
    for right, derivative in zip(rights, derivatives):
        if (right is None) != (derivative is None):
            raise NoMeaning(f"{op.name}: a source has a gradient, or has none, against the rule")
        if right is None:
            continue
        value = values.term(right)
        goals.append(Goal([*values.known, *exists], value == values.g * derivative))
    return goals


def is_step(op: Ops) -> bool:
    """Whether an operation on elements is constant between jumps, so that no gradient passes."""
    return op in ELEMENTS and ELEMENTS[op].is_step


def _between_floats(case: Case, op: Ops, left: Node) -> bool:
    source = case.dtype(left.src[0].type)
    return op is Ops.CAST and source.is_float and case.dtype(left.type).is_float


class Reals:
    """Terms as real numbers; `known` holds what is used of sqrt and the constants."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.g = z3.Real("g")
        self.known: list[Term] = [_ln2() > 0, _ln2() * z3.Real("one_over_ln2#") == 1]

    def term(self, term: RuleTerm) -> Term:
        """The value of a term of the rule as a real number, or as a truth value if it is a bool. Raises: NoMeaning."""
        match term:
            case Var("g", _):
                return self.g
            case Var(name, kind):
                boolean = self.case.dtype(kind) is dtypes.bool
                return z3.Bool(name) if boolean else z3.Real(name)
            case Lit(value, kind):
                return self._literal(value, kind)
            case Node(op, src, _, _):
                return self.node(Ops[op], [self.term(s) for s in src], term)
            case _:
                raise NoMeaning(f"{term} in a cotangent")

    def node(self, op: Ops, args: list[Term], term: Node) -> Term:
        """The value of an operation on real numbers; of a root it notes what is known. Raises: NoMeaning."""
        match op:
            case Ops.SQRT:
                root = _SQRT(args[0])
                self.known.append(
                    z3.Implies(args[0] >= 0, z3.And(root >= 0, root * root == args[0]))
                )
                return root
            case Ops.CAST:
                return (
                    z3.If(args[0], z3.RealVal(1), z3.RealVal(0)) if z3.is_bool(args[0]) else args[0]
                )
            case _ if op in ON_REALS:
                return ON_REALS[op](*args)
            case _:
                raise NoMeaning(f"{op.name} in a cotangent")

    def _literal(self, value: Any, kind: str) -> Term:
        if self.case.dtype(kind) is dtypes.bool:
            return z3.BoolVal(bool(value))
        number = float(value)
        if number in _NAMED:
            return z3.Real(_NAMED[number])
        if not math.isfinite(number):
            raise NoMeaning(f"{number} is not a real number")
        numerator, denominator = number.as_integer_ratio()
        return z3.RealVal(f"{numerator}/{denominator}")


ON_REALS: dict[Ops, Callable[..., Term]] = {
    Ops.NEG: lambda x: -x,
    Ops.ADD: lambda x, y: x + y,
    Ops.MUL: lambda x, y: x * y,
    Ops.FDIV: lambda x, y: x / y,
    Ops.MULACC: lambda x, y, z: x * y + z,
    Ops.FMA: lambda x, y, z: x * y + z,
    Ops.TF32: lambda x: x,
    Ops.EXP2: lambda x: _EXP2(x),
    Ops.EXP: lambda x: _EXP(x),
    Ops.LOG2: lambda x: _LOG2(x),
    Ops.SIN: lambda x: _SIN(x),
    Ops.COS: lambda x: _COS(x),
    Ops.POW: lambda x, y: _POW(x, y),
    Ops.TRUNC: lambda x: _truncated(x),
    Ops.MAX: lambda x, y: z3.If(x < y, y, x),
    Ops.MIN: lambda x, y: z3.If(x < y, x, y),
    Ops.CMPLT: lambda x, y: x < y,
    Ops.CMPEQ: lambda x, y: x == y,
    Ops.WHERE: lambda c, x, y: z3.If(c, x, y),
    Ops.NOT: z3.Not,
    Ops.AND: z3.And,
    Ops.OR: z3.Or,
}


# -- movement and sums: the transpose ---------------------------------------------------------------


def _transpose(left: Node, right: RuleTerm, rank: int | None) -> Goal:
    """Element i of the result is made of j if and only if j of the cotangent is made of i of g."""
    if isinstance(left.src[0], Var) and left.op in SAME_VALUES:
        return Goal([], z3.BoolVal(right == Var("g", left.type)))
    family = family_of(left)
    if family is AxisPicture:
        return _transposed_axis(left, right)
    if family is PermutePicture:
        return _transposed_permutation(left, right, rank)
    return _transposed_reshape(left, right)


def _transposed_axis(left: Node, right: RuleTerm) -> Goal:
    picture = AxisPicture()
    source = picture.term(left.src[0])
    forward = picture.term(left)
    premises, picture.legal = picture.legal, []
    if left.op == "REDUCE_AXIS" and picture.op is not Ops.ADD:
        raise NoMeaning("only sums are linear")
    picture.op = None  # sums of g are another matter
    g = picture.source("g")
    picture.legal = []
    premises = [*premises, g.size == forward.size]
    backward = picture.term(right)
    i, j = z3.Ints("i# j#")
    inside = z3.And(0 <= i, i < forward.size, 0 <= j, j < source.size)
    transposed = z3.Implies(inside, forward.made_of(i, j) == backward.made_of(j, i))
    claim = z3.And(backward.size == source.size, transposed, *picture.legal)
    if picture.op not in (None, Ops.ADD):
        raise NoMeaning("cotangents add up")
    return Goal(premises, claim)


def _transposed_permutation(left: Node, right: RuleTerm, rank: int | None) -> Goal:
    picture = PermutePicture(rank)
    forward = picture.term(left)
    premises, picture.legal = picture.legal, []
    backward = picture.term(right)
    out, source = z3.Ints("out# source#")
    axes = z3.And(picture.is_axis(out), picture.is_axis(source))
    same = (forward(out) == source) == (backward(source) == out)
    return Goal([*premises, *picture.given], z3.And(z3.Implies(axes, same), *picture.legal))


def _transposed_reshape(left: Node, right: RuleTerm) -> Goal:
    picture = ReshapePicture()
    before, after = picture.term(left.src[0]), picture.term(left)
    premises, picture.legal = picture.legal, []
    shape_of_g = picture.term(Var("g", left.type))
    backward = picture.term(right)
    return Goal([*premises, shape_of_g == after], z3.And(backward == before, *picture.legal))


def _of_skew(left: Node, right: RuleTerm) -> Goal:
    """Along `axis` and `by`: element (i, k) is made of (j, k) where j = i + step * k."""
    backward = (
        isinstance(right, Node) and right.op == "SKEW" and right.src == (Var("g", left.type),)
    )
    if not backward or not isinstance(left.arg, Name):
        raise NoMeaning("the transpose of a SKEW is a SKEW of g")
    assert isinstance(right, Node)
    expected = Apply("skew_back", (left.arg, Apply("shape", (Fact(left.src[0]),))))
    if right.arg != expected:
        raise NoMeaning("the transpose of a SKEW has the arg skew_back(arg, shape)")
    i, j, k, step, size, old_size = z3.Ints("i j k step size old_size")
    made_of: Callable[[Term, Term, Term], Term] = lambda a, b, by: b == a + by * k
    inside = z3.And(0 <= i, i < size, 0 <= j, j < old_size)
    # skew_back is (axis, by, -step, the old size)
    return Goal([inside], made_of(i, j, step) == made_of(j, i, -step))


# -- largest and smallest -----------------------------------------------------------------------------


def _reduces_by(left: Node, *ops: str) -> bool:
    match left.arg:
        case Apply("pair", (Text(op), _)):
            return op in ops
        case _:
            return False


def _of_extreme(case: Case, left: Node, right: RuleTerm) -> list[Goal]:
    """Each of the c elements that equal the extreme gets g / c, the others nothing."""
    values = _Grouped(case, left)
    value = values.term(right)
    x, extreme, count = values.x, values.extreme, values.count
    claim = value == z3.If(x == extreme, values.g / count, z3.RealVal(0))
    known = [*values.known, count >= 1]
    return [Goal(known, claim), *[Goal(known, c) for c in values.claims]]


class _Group(Reals):
    """Terms at one element x of a group that is reduced together. `claims`: what sums are of."""

    def __init__(self, case: Case, left: Node) -> None:
        super().__init__(case)
        self.left = left
        assert isinstance(left.src[0], Var)
        self.name = left.src[0].name
        self.x = z3.Real("x#")
        self.claims: list[Term] = []

    def term(self, term: RuleTerm) -> Term:
        match term:
            case Var(name, _) if name == self.name:
                return self.x
            case Node("REDUCE_AXIS", _, _, _) if term == self.left:
                return self.result()
            case Node("REDUCE_AXIS", (body, *_), _, Apply("pair", (Text(op), axes))):
                assert isinstance(self.left.arg, Apply)
                if axes != self.left.arg.args[1]:
                    raise NoMeaning("a reduction over other axes")
                return self.reduction(op, body)
            case Node("EXPAND", (inner, *_), _, arg):
                if arg != Apply("shape", (Fact(self.left.src[0]),)):
                    raise NoMeaning("an expansion to anything but the shape of the source")
                return self.term(inner)
            case _:
                return super().term(term)

    def result(self) -> Term:
        """The value of the left side."""
        raise NoMeaning("the left side itself in a cotangent")

    def reduction(self, op: str, body: RuleTerm) -> Term:
        """The value of another reduction of the group."""
        raise NotImplementedError

    def at_another(self, body: RuleTerm) -> tuple[Term, Term]:
        """A body at another element of the group; that element."""
        here, self.x = self.x, z3.Real("x#other")
        value, other = self.term(body), self.x
        self.x = here
        return value, other


class _Grouped(_Group):
    """`claims` says of every sum over the group that it counts the elements that are the extreme."""

    def __init__(self, case: Case, left: Node) -> None:
        super().__init__(case, left)
        self.extreme, self.count = z3.Real("extreme#"), z3.Real("count#")

    def result(self) -> Term:
        return self.extreme

    def reduction(self, op: str, body: RuleTerm) -> Term:
        if op != "ADD":
            raise NoMeaning(f"a reduction by {op} beside an extreme")
        value, other = self.at_another(body)
        self.claims.append(value == z3.If(other == self.extreme, z3.RealVal(1), z3.RealVal(0)))
        return self.count


# -- products -----------------------------------------------------------------------------------------


def _of_product(case: Case, left: Node, right: RuleTerm) -> list[Goal]:
    """Each element gets g times the product of the others, which is 0 if one of them is 0."""
    values = _Multiplied(case, left)
    value = values.term(right)
    others = z3.If(values.other_zeros > 0, z3.RealVal(0), values.others)
    known = [*values.known, values.other_zeros >= 0, values.others != 0]
    return [Goal(known, value == values.g * others), *[Goal(known, c) for c in values.claims]]


class _Multiplied(_Group):
    """The other elements of a group: how many are 0, and the product of those that are not.

    `claims` says of every sum that it counts zeros, and of every product that it leaves them out.
    """

    def __init__(self, case: Case, left: Node) -> None:
        super().__init__(case, left)
        self.other_zeros, self.others = z3.ToReal(z3.Int("zeros#")), z3.Real("others#")

    def result(self) -> Term:
        any_zero = z3.Or(self.other_zeros > 0, self.x == 0)
        return z3.If(any_zero, z3.RealVal(0), self.others * self.x)

    def reduction(self, op: str, body: RuleTerm) -> Term:
        value, other = self.at_another(body)
        one, zero = z3.RealVal(1), z3.RealVal(0)
        if op == "ADD":
            self.claims.append(value == z3.If(other == 0, one, zero))
            return self.other_zeros + z3.If(self.x == 0, one, zero)
        if op == "MUL":
            self.claims.append(value == z3.If(other == 0, one, other))
            return self.others * z3.If(self.x == 0, one, self.x)
        raise NoMeaning(f"a reduction by {op} beside a product")
