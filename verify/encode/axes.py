"""Laws of tensor movement and of reductions over axes, for shapes of every rank.

Three families, each with its own picture of a tensor:
- axis by axis (EXPAND, PAD, SHRINK, FLIP, REDUCE_AXIS): these act on each axis by itself, so one axis
  of unknown size stands for all. A term is its size and the relation "element i is made of source
  element j". Two terms with the same sizes and relations on every axis are the same tensor:
  an element with no source is 0, one with one source is that, one with several is their reduction,
  whose order is not specified (so that a reduction of reductions is one reduction).
- PERMUTE: axis k of the result is axis F(k) of the source.
- RESHAPE: the elements stay in row-major order, so that only the shape counts.

Owns: these pictures and the meaning of the functions on args in them. Does not own: SKEW and
derivatives (encode/derivative.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.rule import Apply, Expr, Fact, Name, Node, Text, Var
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.fresh_terms import Function
from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.semantics import NoMeaning
from proofgrad.verify.encode.types import Case

Term = Any
SAME_VALUES = ("CONTIGUOUS", "DETACH", "COPY")
_AXIS_BY_AXIS = ("EXPAND", "PAD", "SHRINK", "FLIP", "REDUCE_AXIS")


SMALL_RANK = 3


def law_of_small_tensors(case: Case) -> list[Goal]:
    """The goals at one small rank, where the solver finds counterexamples. They prove nothing."""
    return _law(case, SMALL_RANK)


def law_of_tensors(case: Case) -> list[Goal]:
    """The goals of a rewrite of tensors of any rank."""
    return _law(case, None)


def _law(case: Case, rank: int | None) -> list[Goal]:
    left = case.rule.left
    (right,) = case.rule.right
    if right is None or not isinstance(left, Node):
        raise NoMeaning("a law of tensors has a node on the left and a right side")
    _check_side_effects(left, right)
    family = family_of(left)
    picture = PermutePicture(rank) if family is PermutePicture else family()
    before: Any = picture.term(left)  # of a kind that this family has
    premises = [*picture.legal, *[picture.condition(c) for c in case.rule.where]]
    picture.legal = []
    after: Any = picture.term(right)
    claim = z3.And(picture.same(before, after), *picture.legal)
    goals = [Goal([*premises, *picture.given], claim, picture.named())]
    return goals + _reductions_of_one(case, left, right)


def family_of(term: RuleTerm) -> type[AxisPicture | PermutePicture | ReshapePicture]:
    """The picture in which all movement of a term can be drawn. Raises: NoMeaning."""
    used = {name for name in _ops(term) if name not in SAME_VALUES}
    if used <= set(_AXIS_BY_AXIS):
        return AxisPicture
    if used == {"PERMUTE"}:
        return PermutePicture
    if used == {"RESHAPE"}:
        return ReshapePicture
    raise NoMeaning(f"no proof for {', '.join(sorted(used))} together")


def _ops(term: Any) -> list[str]:
    return [term.op, *[op for s in term.src for op in _ops(s)]] if isinstance(term, Node) else []


def _check_side_effects(left: RuleTerm, right: RuleTerm) -> None:
    """CONTIGUOUS, DETACH and COPY do more than give values: a law may not lose or add that."""
    before, after = [{op for op in _ops(side) if op in SAME_VALUES} for side in (left, right)]
    if before != after or "COPY" in before:
        raise NoMeaning("a law of values may not remove or add CONTIGUOUS, DETACH or COPY")


def _reductions_of_one(case: Case, left: RuleTerm, right: RuleTerm) -> list[Goal]:
    """Where a reduction appears or vanishes, op(identity, element) has to be the element."""
    reductions = [node for side in (left, right) for node in _reductions(side)]
    if not reductions or (_reductions(left) and _reductions(right)):
        return []
    dtype, op = case.dtype(reductions[0].type), _reduction_op(reductions[0])
    if dtype.is_bool or dtype is dtypes.index:
        return []  # there are no reductions of bools or of index terms over axes
    element = z3.Const("element#", semantics.sort_of(dtype))
    one = semantics.meaning(op, dtype, [identity(op, dtype), element], [dtype, dtype])
    return [Goal([], semantics.same(one, element))]


def _reductions(term: Any) -> list[Node]:
    if not isinstance(term, Node):
        return []
    below = [node for source in term.src for node in _reductions(source)]
    return [term, *below] if term.op == "REDUCE_AXIS" else below


def identity(op: Ops, dtype: Any) -> Term:
    """What a reduction starts from: 0, 1, the smallest, the largest value."""
    lowest = float("-inf") if dtype.is_float else dtype.lo
    highest = float("inf") if dtype.is_float else dtype.hi
    values = {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: lowest, Ops.MIN: highest}
    return semantics.constant(dtype, values[op])


def _reduction_op(term: Node) -> Ops:
    match term.arg:
        case Apply("pair", (Text(name), _)):
            return Ops[name]
        case _:
            raise NoMeaning("a reduction whose operation is not named")


# -- axis by axis -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a tensor: its size; whether element i is made of source element j, for given i
    and j; whether any element is made of j."""

    size: Term
    made_of: Callable[[Term, Term], Term]
    used: Callable[[Term], Term]
    reduced: bool = False
    padded: bool = False
    repeated: bool = False


class AxisPicture:
    """One axis that stands for all. `legal` collects what makes the terms drawn so far legal."""

    def __init__(self) -> None:
        self.legal: list[Term] = []
        self.given: list[Term] = []
        self.sources: dict[str, Axis] = {}
        self.args: dict[str, Any] = {}
        self.op: Ops | None = None

    def term(self, term: RuleTerm) -> Axis:
        """The axis of a term after its movement operations. Raises: NoMeaning for any other operation."""
        match term:
            case Var(name, _):
                return self.source(name)
            case Node(op, (inner,), _, _) if op in SAME_VALUES:
                return self.term(inner)
            case Node("EXPAND", (inner, *_), _, arg):
                return self._expand(self.term(inner), self.bind(arg, z3.Int))
            case Node("PAD", (inner, *_), _, arg):
                return self._pad(self.term(inner), self.bind(arg, _two_ints))
            case Node("SHRINK", (inner, *_), _, arg):
                return self._shrink(self.term(inner), self.bind(arg, _two_ints))
            case Node("FLIP", (inner, *_), _, arg):
                return self._flip(self.term(inner), self.bind(arg, z3.Bool))
            case Node("REDUCE_AXIS", (inner, *_), _, _):
                return self._reduce(term, self.term(inner))
            case _:
                raise NoMeaning(f"{term} is not an axis-wise movement")

    def source(self, name: str) -> Axis:
        """The axis of a variable: any size, each element made of itself."""
        if name not in self.sources:
            size = z3.Int(f"size({name})")
            self.sources[name] = of_itself(size)
            self.legal.append(size >= 0)
        return self.sources[name]

    def named(self) -> dict[str, tuple[Term, DType]]:
        """What a counterexample tells: sizes, args, and the position."""
        parts = [axis.size for axis in self.sources.values()]
        for arg in self.args.values():
            parts += arg if isinstance(arg, tuple) else [arg]
        parts += z3.Ints("i# j#")
        kinds = [dtypes.bool if z3.is_bool(part) else dtypes.index for part in parts]
        return {str(part): (part, kind) for part, kind in zip(parts, kinds)}

    def same(self, a: Axis, b: Axis) -> Term:
        """Equal sizes, and every element made of the same."""
        i, j = z3.Ints("i# j#")
        within = z3.And(0 <= i, i < a.size)
        return z3.And(a.size == b.size, z3.Implies(within, a.made_of(i, j) == b.made_of(i, j)))

    def bind(self, arg: Expr | None, fresh: Callable[[str], Any]) -> Any:
        """The arg of a node: a name is bound where it is new; else the value of the expression."""
        if isinstance(arg, Name) and arg.name not in self.args:
            self.args[arg.name] = fresh(arg.name)
        if arg is None:
            raise NoMeaning("a movement without an arg")
        return self.value(arg)

    def value(self, expr: Expr) -> Any:
        """What an expression of args says about this one axis."""
        match expr:
            case Name(name) if name in self.args:
                return self.args[name]
            case Apply("shape", (Fact(term),)):
                return self._quietly(term).size
            case Apply(function, args) if function in _ON_AXES:
                return _ON_AXES[function](*[self.value(arg) for arg in args])
            case _:
                raise NoMeaning(f"{expr} has no meaning axis by axis")

    def condition(self, expr: Expr) -> Term:
        """A condition on all axes, on this one. `not` would be about some axis, so there is none."""
        match expr:
            case Apply("and", args):
                return z3.And(*[self.condition(arg) for arg in args])
            case Apply("==", (a, b)):
                return _all_equal(self.value(a), self.value(b))
            case Apply(function, args) if function in _CONDITIONS_ON_AXES:
                return _CONDITIONS_ON_AXES[function](*[self.value(arg) for arg in args])
            case _:
                raise NoMeaning(f"{expr} is not a condition on every axis")

    def _quietly(self, term: RuleTerm) -> Axis:
        """A term mentioned for its shape only: its legality is not asked."""
        legal = self.legal
        self.legal = []
        axis = self.term(term)
        self.legal = legal
        return axis

    def _expand(self, x: Axis, size: Term) -> Axis:
        self.legal += [size >= 0, z3.Or(x.size == size, x.size == 1)]
        position: Callable[[Term], Term] = lambda i: z3.If(x.size == 1, z3.IntVal(0), i)
        if x.padded:
            raise NoMeaning("an expansion of padding")
        return Axis(
            size,
            lambda i, j: x.made_of(position(i), j),
            lambda j: z3.And(size > 0, z3.If(x.size == 1, x.made_of(z3.IntVal(0), j), x.used(j))),
            x.reduced,
            repeated=True,
        )

    def _pad(self, x: Axis, pads: tuple[Term, Term]) -> Axis:
        before, after = pads
        if x.reduced:
            raise NoMeaning("padding of a reduction")
        self.legal += [before >= 0, after >= 0]
        inside: Callable[[Term], Term] = lambda i: z3.And(before <= i, i < before + x.size)
        return Axis(
            before + x.size + after,
            lambda i, j: z3.And(inside(i), x.made_of(i - before, j)),
            x.used,
            padded=True,
            repeated=x.repeated,
        )

    def _shrink(self, x: Axis, ends: tuple[Term, Term]) -> Axis:
        begin, end = ends
        self.legal += [0 <= begin, begin <= end, end <= x.size]
        return Axis(
            end - begin,
            lambda i, j: x.made_of(i + begin, j),
            _unknown,
            x.reduced,
            x.padded,
            x.repeated,
        )

    def _flip(self, x: Axis, turned: Term) -> Axis:
        position: Callable[[Term], Term] = lambda i: z3.If(turned, x.size - 1 - i, i)
        made_of = lambda i, j: x.made_of(position(i), j)
        return Axis(x.size, made_of, x.used, x.reduced, x.padded, x.repeated)

    def _reduce(self, term: Node, x: Axis) -> Axis:
        op = _reduction_op(term)
        if x.padded or x.repeated or self.op not in (None, op):
            raise NoMeaning("a reduction of padding, of copies, or by two operations")
        self.op = op
        assert isinstance(term.arg, Apply)
        over = self.bind(term.arg.args[1], z3.Bool)
        return Axis(
            z3.If(over, z3.IntVal(1), x.size),
            lambda i, j: z3.If(over, z3.And(i == 0, x.used(j)), x.made_of(i, j)),
            x.used,
            reduced=True,
        )


def of_itself(size: Term) -> Axis:
    """An axis each of whose elements is made of the one at its own position."""
    inside: Callable[[Term], Term] = lambda j: z3.And(0 <= j, j < size)
    return Axis(size, lambda i, j: z3.And(i == j, inside(j)), inside)


def _unknown(_: Term) -> Term:
    raise NoMeaning("a reduction of a part")


def _two_ints(name: str) -> tuple[Term, Term]:
    return z3.Int(f"{name}#first"), z3.Int(f"{name}#second")


def _all_equal(a: Any, b: Any) -> Term:
    if isinstance(a, tuple) != isinstance(b, tuple):
        raise NoMeaning("args of different kinds compared")
    return z3.And(*[x == y for x, y in zip(a, b)]) if isinstance(a, tuple) else a == b


_ON_AXES: dict[str, Callable[..., Any]] = {
    "add_pads": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "chain_shrinks": lambda a, b: (a[0] + b[0], a[0] + b[1]),
    "xor_flips": z3.Xor,
    "pads_to_shrinks": lambda a, size: (a[0], a[0] + size),
    "shrinks_to_pads": lambda a, size: (a[0], size - a[1]),
    "expanded_axes": lambda a, b: a != b,
    "union": z3.Or,
}

_CONDITIONS_ON_AXES: dict[str, Callable[..., Term]] = {
    "is_full_shrink": lambda a, size: z3.And(a[0] == 0, a[1] == size),
    "is_zero_pad": lambda a: z3.And(a[0] == 0, a[1] == 0),
    "is_no_flip": z3.Not,
    "is_empty": z3.Not,
    "disjoint": lambda a, b: z3.Not(z3.And(a, b)),
}


# -- permutations -----------------------------------------------------------------------------------


class PermutePicture:
    """A term is the function from its axes to the axes of its source; the rank is any number."""

    def __init__(self, rank: int | None = None) -> None:
        self.legal: list[Term] = []
        self.args: dict[str, Callable[[Term], Term]] = {}
        self.small_rank = rank
        self.rank = z3.Int("rank#") if rank is None else z3.IntVal(rank)
        self.given: list[Term] = []
        self._bound_names = 0

    def term(self, term: RuleTerm) -> Callable[[Term], Term]:
        """The map from axes of the term to axes of its source. Raises: NoMeaning unless it is made of PERMUTE alone."""
        match term:
            case Var():
                return lambda k: k
            case Node(op, (inner,), _, _) if op in SAME_VALUES:
                return self.term(inner)
            case Node("PERMUTE", (inner, *_), _, arg):
                return self._permute(self.term(inner), arg)
            case _:
                raise NoMeaning(f"{term} is not a permutation")

    def named(self) -> dict[str, tuple[Term, DType]]:
        """What a counterexample shows, where the rank is fixed: the permutations entry by entry, and an axis k."""
        if self.small_rank is None:
            return {}
        axes = range(self.small_rank)
        images = {f"{name}[{k}]": p(z3.IntVal(k)) for name, p in self.args.items() for k in axes}
        images["k"] = z3.Int("k#")
        return {name: (image, dtypes.index) for name, image in images.items()}

    def same(self, a: Callable[[Term], Term], b: Callable[[Term], Term]) -> Term:
        """Both maps agree on an arbitrary axis."""
        k = z3.Int("k#")
        return z3.Implies(self.is_axis(k), a(k) == b(k))

    def condition(self, expr: Expr) -> Term:
        """A condition of the rule, `is_identity(...)`, in SMT. Raises: NoMeaning for any other."""
        match expr:
            case Apply("is_identity", (inner,)):
                return self._for_all(lambda k: self.value(inner)(k) == k)
            case _:
                raise NoMeaning(f"{expr} is not a condition on permutations")

    def value(self, expr: Expr) -> Callable[[Term], Term]:
        """A permutation as a map of axes: a bound name, a composition or an inverse. Raises: NoMeaning."""
        match expr:
            case Name(name) if name in self.args:
                return self.args[name]
            case Apply("compose", (first, second)):
                p, q = self.value(first), self.value(second)
                return lambda k: p(q(k))
            case Apply("inverse", (Name(name),)) if name in self.args:
                return self._inverse(name)
            case _:
                raise NoMeaning(f"{expr} has no meaning as a permutation")

    def is_axis(self, k: Term) -> Term:
        """0 <= k < rank."""
        return z3.And(0 <= k, k < self.rank)

    def _permute(self, x: Callable[[Term], Term], arg: Expr | None) -> Callable[[Term], Term]:
        if isinstance(arg, Name) and arg.name not in self.args:
            self.args[arg.name] = z3.Function(arg.name, z3.IntSort(), z3.IntSort())
        if arg is None:
            raise NoMeaning("a permutation without an arg")
        p = self.value(arg)
        self.legal.append(self._names_each_axis_once(p))
        return lambda k: x(p(k))

    def _names_each_axis_once(self, p: Callable[[Term], Term]) -> Term:
        one: Callable[[Term], Term] = lambda a: self._for_all(
            lambda b: z3.Implies(p(a) == p(b), a == b)
        )
        return z3.And(self._for_all(lambda a: self.is_axis(p(a))), self._for_all(one))

    def _inverse(self, name: str) -> Callable[[Term], Term]:
        """A permutation has an inverse on both sides; this is it."""
        p = self.args[name]
        back: Callable[[Term], Term] = z3.Function(f"{name}#back", z3.IntSort(), z3.IntSort())
        holds = lambda k: z3.And(self.is_axis(back(k)), p(back(k)) == k, back(p(k)) == k)
        self.given.append(self._for_all(holds))
        return back

    def _for_all(self, claim: Callable[[Term], Term]) -> Term:
        """`claim` for every axis."""
        if self.small_rank is not None:
            return z3.And(*[claim(z3.IntVal(k)) for k in range(self.small_rank)])
        self._bound_names += 1
        k = z3.Int(f"axis#{self._bound_names}")
        return z3.ForAll([k], z3.Implies(self.is_axis(k), claim(k)))


# -- reshapes ---------------------------------------------------------------------------------------


def _shapes() -> Any:
    return z3.DeclareSort("Shape")


_COUNT = Function("count", _shapes, z3.IntSort)


class ReshapePicture:
    """A term is its shape: the elements, in row-major order, are those of its source."""

    def __init__(self) -> None:
        self.legal: list[Term] = []
        self.given: list[Term] = []
        self.args: dict[str, Term] = {}

    def term(self, term: RuleTerm) -> Term:
        """The shape of a term, of an uninterpreted sort. Raises: NoMeaning unless it is made of RESHAPE alone."""
        match term:
            case Var(name, _):
                return z3.Const(f"shape({name})", _shapes())
            case Node(op, (inner,), _, _) if op in SAME_VALUES:
                return self.term(inner)
            case Node("RESHAPE", (inner, *_), _, arg):
                return self._reshape(self.term(inner), arg)
            case _:
                raise NoMeaning(f"{term} is not a reshape")

    def named(self) -> dict[str, tuple[Term, DType]]:
        """Nothing: shapes are uninterpreted, so a counterexample has no numbers to show."""
        return {}

    def same(self, a: Term, b: Term) -> Term:
        """Equal shapes: the elements and their order never change."""
        return a == b

    def condition(self, expr: Expr) -> Term:
        """A condition of the rule, an equality of shapes, in SMT. Raises: NoMeaning for any other."""
        match expr:
            case Apply("==", (a, b)):
                return self.value(a) == self.value(b)
            case _:
                raise NoMeaning(f"{expr} is not a condition on shapes")

    def value(self, expr: Expr) -> Term:
        """The shape that an expression stands for: a bound arg or `shape(term)`. Raises: NoMeaning."""
        match expr:
            case Name(name):
                return self.args.setdefault(name, z3.Const(f"arg({name})", _shapes()))
            case Apply("shape", (Fact(term),)):
                legal, self.legal = self.legal, []
                shape = self.term(term)
                self.legal = legal
                return shape
            case _:
                raise NoMeaning(f"{expr} has no meaning as a shape")

    def _reshape(self, before: Term, arg: Expr | None) -> Term:
        if arg is None:
            raise NoMeaning("a reshape without an arg")
        after = self.value(arg)
        self.legal.append(_COUNT(before) == _COUNT(after))
        return after
