"""Sums of index terms as wholes: a constant and a number of times each of some atoms.

Owns: sums as data, adding and scaling them, reading a term as a sum, writing one as a term, the
interval of a sum. Does not own: which rules make a sum simpler (index_code.py, searches.py).

A sum is a pair (terms, constant): coefficients by atom, none of them 0. `Form` is a sum that is
kept once, so that equal sums are one object. An atom is a quotient or a remainder of a sum by a
number, or any other index term. Sums are mathematical integers: machine integers are not read.

Adding and scaling are the compiled form of laws of the integers, which LAWS names; the engine works
with sums only where rules of its sets state each of these laws (tests/test_forms.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import proxy

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import ADD, CONST, MUL, NEG
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.order import rank

if TYPE_CHECKING:
    from proofgrad.core.rewrite.facts import Facts

# What summands a sum has, as bits: rules and searches that need some are not tried without.
QUOTIENT, REMAINDER, OTHER = 1, 2, 4
MARKS = {Ops.FLOORDIV: QUOTIENT, Ops.MOD: REMAINDER, Ops.RANGE: 0}
LOADS = {Ops.FLOORDIV: 1, Ops.MOD: 2}
MOST_TERMS = 256  # of a sum, and steps of a walk through one term; longer sums are left alone
_INDEX = dtypes.index
LINEAR = frozenset({Ops.ADD, Ops.MUL, Ops.NEG})

Bound = int | None


class Atom:
    """A summand: `form // number`, `form % number` (`kind` says which), or else the term `node`."""

    __slots__ = ("form", "high", "kind", "load", "low", "mark", "node", "number")
    kind: Ops | None
    form: Any  # a Form, where there is a kind
    number: int
    node: UOp | None  # written when it is first needed
    low: Bound
    high: Bound

    def __init__(self, kind: Ops | None, form: Any, number: int, node: UOp | None) -> None:
        self.kind = kind
        self.form = form
        self.number = number
        self.node = node
        self.mark = MARKS.get(self.op, OTHER)
        self.load = 0  # sum_order.py says what it is for
        if kind is not None and form is not None:
            self.load = 8 * form.load + LOADS[kind]

    @property
    def op(self) -> Ops:
        """The op of the term."""
        if self.node is not None:
            return self.node.op
        assert self.kind is not None
        return self.kind


Sum = tuple[dict[Atom, int], int]  # what adding gives; treat it as frozen


class Form(tuple):  # type: ignore[type-arg]
    """A sum that is kept once: equal sums are the same object. Made by `Forms.kept` only."""

    low: Bound
    high: Bound
    marks: int
    load: int
    node: UOp | None

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


ZERO: Sum = ({}, 0)


def add(first: Sum, second: Sum) -> Sum:
    """first + second."""
    terms, constant = first
    others, other_constant = second
    constant += other_constant
    if not others:
        return terms, constant
    if not terms:
        return others, constant
    if len(others) > len(terms):
        terms, others = others, terms
    terms = terms.copy()
    for atom, coefficient in others.items():
        total = terms.get(atom, 0) + coefficient
        if total:
            terms[atom] = total
        else:
            del terms[atom]
    return terms, constant


def scale(form: Sum, factor: int) -> Sum:
    """form * factor."""
    if factor == 1:
        return form
    if not factor:
        return ZERO
    terms, constant = form
    return {atom: coefficient * factor for atom, coefficient in terms.items()}, constant * factor


PartOf = Callable[[UOp, "list[UOp]", int], "Sum | None"]


def read_sum(
    root: UOp, known: Mapping[UOp, Any], part_of: PartOf, missing: list[UOp], depth: int
) -> Sum | None:
    """`root` as a sum of terms that are `known` as sums, and of others as `part_of` gives them.

    None if it is too long, or if something is `missing`, which has to be known first. `part_of`
    says so too, and is given the `depth` at which it may still ask for sums itself.
    """
    terms: dict[Atom, int] = {}
    constant = steps = 0
    stack = [(root, 1)]
    while stack:
        node, factor = stack.pop()
        form = known.get(node)
        if form is None:
            op = node.op
            steps += 1
            if op is CONST:
                constant += factor * node.arg
                continue
            if op in LINEAR:
                if steps > MOST_TERMS:
                    missing.append(node)
                    continue
                first = node.src[0]
                if op is ADD:
                    stack.append((node.src[1], factor))
                    stack.append((first, factor))
                    continue
                if op is NEG:
                    stack.append((first, -factor))
                    continue
                second = node.src[1]
                if second.op is CONST:
                    stack.append((first, factor * second.arg))
                    continue
                if first.op is CONST:
                    stack.append((second, factor * first.arg))
                    continue
            form = part_of(node, missing, depth)
            if form is None:
                continue
        atoms, more = form
        constant += factor * more
        for atom, coefficient in atoms.items():
            terms[atom] = terms.get(atom, 0) + factor * coefficient
    if missing or len(terms) > MOST_TERMS:
        return None
    if 0 in terms.values():
        terms = {atom: factor for atom, factor in terms.items() if factor}
    return terms, constant


def interval(form: Sum) -> tuple[Bound, Bound]:
    """Bounds of a sum, from the bounds of its atoms."""
    terms, constant = form
    low: Bound = constant
    high: Bound = constant
    for atom, coefficient in terms.items():
        if coefficient > 0:
            least, most = atom.low, atom.high
        else:
            least, most = atom.high, atom.low
        low = None if low is None or least is None else low + coefficient * least
        high = None if high is None or most is None else high + coefficient * most
    return low, high


class Forms:
    """The sums and atoms of one compilation. Facts never change, so many rewrites share them."""

    def __init__(self, facts: Facts) -> None:
        self._facts: Facts = proxy(facts)  # who holds these Forms
        self._kept: dict[Any, Form] = {}
        self._divided: dict[tuple[Ops, Form, int], Atom] = {}
        self._wrapped: dict[UOp, Atom] = {}
        self._read: dict[UOp, Form] = {}
        self._division_bounds = facts.division_bounds

    # -- atoms and sums, kept once ----------------------------------------------------------------

    def kept(self, form: Sum) -> Form:
        """`form` as the one object that stands for it."""
        if type(form) is Form:
            return form
        terms, constant = form
        key = (constant, frozenset(terms.items())) if terms else constant
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = Form(form)
            found.low, found.high = interval(form)
            found.node = None
            marks = load = 0
            for atom in terms:
                marks |= atom.mark
                load += atom.load
            found.marks, found.load = marks, load
        return found

    def divided(self, kind: Ops, form: Sum, number: int) -> Atom:
        """The atom `form // number` or `form % number`, not simplified."""
        dividend = self.kept(form)
        key = (kind, dividend, number)
        found = self._divided.get(key)
        if found is None:
            found = self._divided[key] = Atom(kind, dividend, number, None)
            bounds = self._division_bounds[kind](dividend.low, dividend.high, number)
            found.low, found.high = bounds
        return found

    def wrapped(self, node: UOp) -> Atom:
        """The atom that is the term `node`."""
        found = self._wrapped.get(node)
        if found is None:
            found = self._wrapped[node] = Atom(None, None, 0, node)
            found.low, found.high = self._facts.interval(node)
        return found

    def divisor(self, form: Sum) -> int:
        """A number that divides every value of a sum, as facts say of the term.

        1 if there are only loops and divisions by numbers in it: there extractors see as much.
        """
        form = self.kept(form)
        if not form.marks & OTHER:
            return 1
        found = self._facts.divisor(self.written(form))
        assert found is not None
        return found

    def divisor_of(self, atom: Atom) -> int:
        """As `divisor`, of an atom; 1 if it is a quotient or remainder by a number, or a loop."""
        if atom.mark is not OTHER:
            return 1
        assert atom.node is not None
        found = self._facts.divisor(atom.node)
        assert found is not None
        return found

    # -- reading ----------------------------------------------------------------------------------

    def read(self, node: UOp) -> Form | None:
        """`node` as a sum; None if it is not a scalar index term."""
        found = self._read.get(node)
        if found is None and node.dtype is _INDEX and not node.shape:
            found = self._read_all(node)
        return found

    def known(self, node: UOp) -> Form | None:
        """The sum that `node` was read as, or written from."""
        return self._read.get(node)

    def _read_all(self, root: UOp) -> Form:
        stack = [root]
        while stack:
            node = stack[-1]
            missing: list[UOp] = []
            form = read_sum(node, self._read, self._part_of, missing, 0)
            if missing:
                stack.extend(missing)
                continue
            self._read[node] = self.kept(({self.wrapped(node): 1}, 0) if form is None else form)
            stack.pop()
        return self._read[root]

    def _part_of(self, node: UOp, missing: list[UOp], _: int) -> Sum | None:
        """A summand; None if it is divided, and what is divided is `missing`: not read yet."""
        if node.op not in LOADS or node.src[1].op is not CONST:
            return {self.wrapped(node): 1}, 0
        dividend = self._read.get(node.src[0])
        if dividend is None:
            missing.append(node.src[0])
            return None
        return {self.divided(node.op, dividend, node.src[1].arg): 1}, 0

    # -- writing ----------------------------------------------------------------------------------

    def written(self, form: Sum) -> UOp:
        """The sum as a term: atoms in the one order of nodes, the constant last.

        Operands stand as the engine puts them, and -x is a negation.
        """
        form = self.kept(form)
        if form.node is None:
            self._write_atoms(form)
            form.node = self._write(form)
            self._read[form.node] = form
        return form.node

    def _write_atoms(self, form: Form) -> None:
        stack = [atom for atom in form[0] if atom.node is None]
        while stack:
            atom = stack[-1]
            unwritten = [inner for inner in atom.form[0] if inner.node is None]
            if unwritten:
                stack.extend(unwritten)
                continue
            stack.pop()
            if atom.node is None:
                assert atom.kind is not None
                divisor = UOp(CONST, _INDEX, (), atom.number)
                dividend = self.written(atom.form)
                atom.node = UOp(atom.kind, _INDEX, (dividend, divisor))

    def _write(self, form: Form) -> UOp:
        terms, constant = form
        total: UOp | None = None
        in_order = self._facts.in_order
        for atom in self._sorted(terms) if len(terms) > 1 else terms:
            term = _scaled(atom.node, terms[atom])
            if total is None:
                total = term
            else:
                pair = (total, term) if in_order(total, term) else (term, total)
                total = UOp(ADD, _INDEX, pair)
        if total is None:
            return UOp(CONST, _INDEX, (), constant)
        if constant:
            number = UOp(CONST, _INDEX, (), constant)
            return UOp(ADD, _INDEX, (total, number))
        return total

    def _sorted(self, atoms: Iterable[Atom]) -> list[Atom]:
        """Atoms in the one order of their nodes."""
        ranks = {atom: rank(atom.node) for atom in atoms}  # type: ignore[arg-type]
        if len(set(ranks.values())) < len(ranks):
            return sorted(atoms, key=self._order)
        return sorted(ranks, key=ranks.__getitem__)

    def _order(self, atom: Atom) -> Any:
        assert atom.node is not None
        return self._facts.order_key(atom.node)


def _scaled(node: UOp | None, coefficient: int) -> UOp:
    assert node is not None
    if coefficient == 1:
        return node
    if coefficient == -1:
        return UOp(NEG, _INDEX, (node,))
    factor = UOp(CONST, _INDEX, (), coefficient)
    return UOp(MUL, _INDEX, (node, factor))
