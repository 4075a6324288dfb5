"""What a truth says of an index term that is read only where it holds.

Where x < c holds, x is min(x, c - 1), and so on: LAWS. So in a term that is read only there, these
minima and maxima may stand for x, and have narrower bounds. The term is simplified by the rules in
use, and then x may stand for them again. A sum of several atoms, x + 3*y < 12, is met wherever a
multiple of it is in a sum. Equals are put for equals, and nothing else is believed: that the bounds are
among what the mask claims (masks.py) is checked of each mask, and that what was put in gives back the
term when it is taken out at each use.

Owns: the clauses of a mask, this exchange, LAWS. Does not own: the rules between (index_terms.py),
bounds of minima and maxima (rules/bounds.rules), the contract of the extractor `narrow` (extractors.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakMethod

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import FLOORDIV
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.extractors import IMPLIED, NARROW
from proofgrad.core.rewrite.masks import claims_of, conjunction_of, parts_of
from proofgrad.core.rewrite.rule import Apply, Const, Expr, Name, Node, Num, Rule, Term, Var
from proofgrad.core.rewrite.scope import takes
from proofgrad.core.rewrite.sum_laws import unnamed
from proofgrad.core.rewrite.sum_order import is_lighter, load_of
from proofgrad.core.rewrite.sums import (
    QUOTIENT,
    REMAINDER,
    Atom,
    Bound,
    Form,
    Forms,
    Sum,
    add,
    interval,
    scale,
)

if TYPE_CHECKING:
    from proofgrad.core.rewrite.index_terms import IndexTerms

Core = frozenset[tuple[Atom, int]]  # the summands of a sum
DIVIDED = QUOTIENT | REMAINDER
_TRUE, _FALSE = UOp.const(dtypes.bool, True), UOp.const(dtypes.bool, False)

_T = "T"
_x, _y, _c, _d = Var("x", _T), Var("y", _T), Const("c", _T), Const("d", _T)


def _law(clause: Ops, sides: tuple[Term, Term], before: Term, after: Term, *where: Expr) -> object:
    truth = Node(clause.name, sides, "bool")
    left, right = [Node(Ops.WHERE.name, (truth, x, _y), _T) for x in (before, after)]
    return unnamed((left, right, *where))


def _more(first: str, second: str) -> Expr:
    """first <= second + 1"""
    return Apply("<=", (Name(first), Apply("+", (Name(second), Num(1)))))


# What a clause says of its term. The engine narrows only where its sets state each of these. Of what
# equals a number, the number stands for it: so does max(min(x, c), c).
LAWS = frozenset(
    {
        _law(Ops.CMPLT, (_x, _c), Node(Ops.MIN.name, (_x, _d), _T), _x, _more("c", "d")),
        _law(Ops.CMPLT, (_c, _x), Node(Ops.MAX.name, (_x, _d), _T), _x, _more("d", "c")),
        _law(Ops.CMPEQ, (_x, _c), _x, _c),
    }
)


def states_laws(rules: Iterable[Rule]) -> bool:
    """Whether each of LAWS is among `rules`, for index terms."""
    plain = [rule for rule in rules if not rule.extractors and takes(rule, dtypes.index)]
    stated = {unnamed((r.left, *[t for t in r.right if t is not None], *r.where)) for r in plain}
    return stated >= LAWS


@dataclass(slots=True)
class Clauses:
    """Bounds of the terms of a mask, and what stands for them while terms in it are simplified.

    The latter is made when it is first needed.
    """

    mask: UOp
    bounds: dict[Core, tuple[Bound, Bound]]
    atoms: dict[Atom, Sum] = field(default_factory=dict)
    sums: list[tuple[Core, Sum]] = field(default_factory=list)
    stands_for: dict[Atom, Sum] = field(default_factory=dict)


class Narrowing:
    """Terms within masks, simplified by the functions of one rewriter; masks are read once."""

    def __init__(
        self, index: IndexTerms, forms: Forms, normal_of: WeakMethod[Callable[[UOp], UOp]]
    ) -> None:
        self._index = index
        self._forms = forms
        self._normal_of = normal_of
        self._clauses: dict[UOp, Clauses | None] = {}

    def find(self, extractor: str, given: UOp, mask: UOp) -> UOp | None:
        """What the extractor NARROW, NARROW_TRUTH or IMPLIED finds for a term or truth within a mask."""
        if extractor != NARROW:
            return self._truth(given, mask, extractor == IMPLIED)
        form = self._forms.read(given)
        found = None if form is None else self.narrowed(form, mask)
        return None if found is None else self._forms.written(found)

    def narrowed(self, x: Form, mask: UOp) -> Sum | None:
        """A sum with less load, or less in its divisions, that is `x` wherever `mask` holds; None if none is found."""
        clauses = self._clauses_of(mask) if x.marks & DIVIDED else None
        if clauses is None:
            return None
        inside = self._inside(x, clauses)
        if inside is x:
            return None
        found = self._taken_out(self._simplified(inside), clauses)
        return found if is_lighter(found, x) else None

    def _truth(self, truth: UOp, mask: UOp, is_implied: bool) -> UOp | None:
        """`truth` with less load, or without conjuncts, that is the same wherever `mask` holds."""
        clauses = self._clauses_of(mask)
        if clauses is None:
            return None
        parts = parts_of(truth)
        change = self._decided if is_implied else self._lighter
        found = [change(part, clauses) for part in parts]
        if found == parts:
            return None
        if _FALSE in found:
            return _FALSE
        return conjunction_of([part for part in found if part is not _TRUE])

    def _decided(self, part: UOp, clauses: Clauses) -> UOp:
        """True or false, if the comparison `part` is so within a mask; else `part` itself."""
        before = self._sides(part)
        if before is None:
            return part
        is_plain = not (before[0].marks | before[1].marks) & DIVIDED
        if is_plain and not _may_decide(part.op, _interval_within(_difference(before), clauses)):
            return part
        sides = self._sides_inside(part, clauses)
        if sides is None or not _may_decide(part.op, interval(_difference(sides))):
            return part
        found = self._asked(part.op, *sides)
        return found if found is _TRUE or found is _FALSE else part

    def _lighter(self, part: UOp, clauses: Clauses) -> UOp:
        """The comparison `part` with less load, if it is the same within a mask; else itself."""
        before = self._sides(part)
        if before is None or not (before[0].marks | before[1].marks) & DIVIDED:
            return part
        sides = self._sides_inside(part, clauses)
        found = None if sides is None else self._asked(part.op, *sides)
        changed = None if found is None else self._sides(found)
        if found is None or changed is None:
            return part
        after = [self._taken_out(side, clauses) for side in changed]
        if load_of(after[0]) + load_of(after[1]) >= before[0].load + before[1].load:
            return part
        first, second = [self._forms.written(side) for side in after]
        return UOp(found.op, dtypes.bool, (first, second))

    def _asked(self, op: Ops, first: Sum, second: Sum) -> UOp:
        """The normal form of a comparison under the rules in use."""
        sides = self._forms.written(first), self._forms.written(second)
        normal_of = self._normal_of()
        assert normal_of is not None, "the Rewriter is in use"
        return normal_of(UOp(op, dtypes.bool, sides))

    def _sides(self, part: UOp) -> tuple[Form, Form] | None:
        """What is compared, if it is two index terms."""
        if part.op is not Ops.CMPLT and part.op is not Ops.CMPEQ:
            return None
        first, second = [self._forms.read(source) for source in part.src]
        return None if first is None or second is None else (first, second)

    def _sides_inside(self, part: UOp, clauses: Clauses) -> tuple[Sum, Sum] | None:
        """The same within a mask, simplified; None if the mask says nothing of them."""
        sides = self._sides(part)
        if sides is None:
            return None
        first, second = [self._inside(side, clauses) for side in sides]
        if first is sides[0] and second is sides[1]:
            return None
        return self._simplified(first), self._simplified(second)

    def _inside(self, x: Form, clauses: Clauses) -> Sum:
        """`x` with what stands for terms of a mask, if taking that out gives `x`; else `x`."""
        if not clauses.stands_for:
            self._stand_ins(clauses)
        inside = self._put_in(x, clauses)
        out = self._taken_out(inside, clauses)
        is_same = self._forms.kept(out) is x or self._forms.kept(self._simplified(out)) is x
        return inside if is_same else x

    # -- clauses --------------------------------------------------------------------------------

    def _clauses_of(self, mask: UOp) -> Clauses | None:
        """The clauses of a mask; None if it says nothing of index terms."""
        if mask not in self._clauses:
            self._clauses[mask] = self._read_clauses(mask)
        return self._clauses[mask]

    def _read_clauses(self, mask: UOp) -> Clauses | None:
        bounds: dict[Core, tuple[Bound, Bound]] = {}
        for part in parts_of(mask):
            found = self._bounds(part)
            if found is not None:
                core, low, high = found
                least, most = bounds.get(core, (None, None))
                bounds[core] = _larger(least, low), _smaller(most, high)
        return Clauses(mask, bounds) if bounds else None

    def _stand_ins(self, clauses: Clauses) -> None:
        """Have something stand for each term of the mask; those of one atom first.

        This is what the contract rests on, so that each bound has to be among what the mask claims.
        """
        claims = claims_of(clauses.mask, self._forms)
        for core, (low, high) in sorted(clauses.bounds.items(), key=lambda item: len(item[0])):
            opposite = frozenset([(atom, -k) for atom, k in core])
            is_least = low is None or (core, -low) in claims
            is_most = high is None or (opposite, high) in claims
            if is_least and is_most:
                self._add(clauses, core, low, high)

    def _bounds(self, part: UOp) -> tuple[Core, Bound, Bound] | None:
        """The summands of a term that is compared with a number, and the bounds that follow."""
        sides = self._sides(part)
        if sides is None or bool(sides[0][0]) == bool(sides[1][0]):
            return None
        first, second = sides
        terms, constant = first if first[0] else second
        number = (second if first[0] else first)[1] - constant
        core = frozenset(terms.items())
        if part.op is Ops.CMPEQ:
            return core, number, number
        return (core, None, number - 1) if first[0] else (core, number + 1, None)

    def _add(self, clauses: Clauses, core: Core, low: Bound, high: Bound) -> None:
        """Have the term with these summands and bounds stand within the mask."""
        terms = dict(core)
        alone, factor = next(iter(terms.items()))
        is_atom = len(terms) == 1 and factor == 1
        term: Sum = self._put_in((terms, 0), clauses)
        node = self._forms.written(term)
        if high is not None:
            node = UOp(Ops.MIN, dtypes.index, (node, UOp.index(high)))
        if low is not None:
            node = UOp(Ops.MAX, dtypes.index, (node, UOp.index(low)))
        atom = self._forms.wrapped(node)
        clauses.stands_for[atom] = term
        within: Sum = {atom: 1}, 0
        if is_atom:
            clauses.atoms[alone] = within
        else:
            clauses.sums.append((core, within))

    # -- putting in and taking out --------------------------------------------------------------

    def _put_in(self, x: Sum, clauses: Clauses) -> Sum:
        """`x` with what stands for terms of the mask; `x` itself if there are none in it."""
        terms, constant = x
        rest = terms
        total: Sum = {}, constant
        for core, within in clauses.sums:
            factor = _multiple(rest, core)
            if factor:
                rest = {atom: k for atom, k in rest.items() if atom not in dict(core)}
                total = add(total, scale(within, factor))
        changed = rest is not terms
        for atom, k in rest.items():
            part = clauses.atoms.get(atom)
            if part is None:
                part = {atom: 1}, 0
                if atom.kind is not None:
                    form = (
                        atom.form if atom.kind is FLOORDIV else _near_zero(atom.form, atom.number)
                    )
                    inner = self._put_in(form, clauses)
                    if inner is not form:
                        part = {self._forms.divided(atom.kind, inner, atom.number): 1}, 0
                        changed = True
            else:
                changed = True
            total = add(total, scale(part, k))
        return total if changed else x

    def _taken_out(self, x: Sum, clauses: Clauses) -> Sum:
        """`x` with the terms of the mask in place of what stands for them."""
        terms, constant = x
        total: Sum = {}, constant
        for atom, k in terms.items():
            part: Sum = {atom: 1}, 0
            if atom in clauses.stands_for:
                part = self._taken_out(clauses.stands_for[atom], clauses)
            elif atom.kind is not None:
                inner = self._forms.kept(self._taken_out(atom.form, clauses))
                if inner is not atom.form:
                    part = {self._forms.divided(atom.kind, inner, atom.number): 1}, 0
            total = add(total, scale(part, k))
        return total

    def _simplified(self, x: Sum) -> Sum:
        """The normal form of `x` under the rules in use, whose divisions may not be normal."""
        terms, constant = x
        total: Sum = {}, constant
        for atom, k in terms.items():
            part: Sum = {atom: 1}, 0
            if atom.kind is not None:
                divide = self._index.quotient if atom.kind is FLOORDIV else self._index.remainder
                part = divide(self._simplified(atom.form), atom.number)
            elif atom.low is not None and atom.low == atom.high:
                part = self._index.whole(part)
            total = add(total, scale(part, k))
        found: Sum = self._index.whole(total)
        return found


def _near_zero(x: Sum, number: int) -> Sum:
    """What has the same remainder, with the factors nearest to 0: those of a mask are not reduced by `number`."""
    terms, constant = x
    if number <= 0 or all([2 * abs(k) <= number for k in terms.values()]):
        return x
    near = {atom: k - (2 * k + number) // (2 * number) * number for atom, k in terms.items()}
    return {atom: k for atom, k in near.items() if k}, constant


def _difference(sides: tuple[Sum, Sum]) -> Sum:
    """The second minus the first."""
    return add(sides[1], scale(sides[0], -1))


def _may_decide(op: Ops, difference: tuple[Bound, Bound]) -> bool:
    """Whether a rule might tell how two terms compare, of whose difference these are the bounds."""
    low, high = difference
    if op is Ops.CMPLT:
        return (low is not None and low > 0) or (high is not None and high <= 0)
    return (low is not None and low > 0) or (high is not None and high < 0) or low == high == 0


def _interval_within(x: Sum, clauses: Clauses) -> tuple[Bound, Bound]:
    """About the bounds of `x` within a mask: a guess, by which rules are asked or not."""
    rest, parts = dict(x[0]), []
    for core, (least, most) in sorted(clauses.bounds.items(), key=lambda item: -len(item[0])):
        factor = _multiple(rest, core)
        if factor:
            rest = {atom: k for atom, k in rest.items() if atom not in dict(core)}
            low, high = interval((dict(core), 0))
            ends = _larger(least, low), _smaller(most, high)
            parts.append([None if end is None else factor * end for end in ends][:: _sign(factor)])
    parts.append([*interval((rest, x[1]))])
    low, high = [None if None in ends else sum(ends) for ends in zip(*parts)]
    return low, high


def _sign(factor: int) -> int:
    return 1 if factor > 0 else -1


def _multiple(terms: dict[Atom, int], core: Core) -> int:
    """How often the sum `core` is among `terms`, as a whole multiple; 0 if it is not."""
    factor = 0
    for atom, k in core:
        found = terms.get(atom, 0)
        if not found or found % k or (factor and found != factor * k):
            return 0
        factor = found // k
    return factor


def _larger(first: Bound, second: Bound) -> Bound:
    known = [bound for bound in (first, second) if bound is not None]
    return max(known) if known else None


def _smaller(first: Bound, second: Bound) -> Bound:
    known = [bound for bound in (first, second) if bound is not None]
    return min(known) if known else None
