"""Left sides, conditions and extractors of rules about sums, as lines of Python.

Owns: how a left side looks at a sum. Does not own: what a rule makes of it (index_results.py).

`x + k` takes the constant of a sum, `x * k` is a sum of one summand, `p + x` takes any summand of
the form p and leaves the rest. A left side that no sum can look like, such as `-(x + y)`, matches
nothing: sums are normal by construction.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.rewrite.expression_code import NoCode
from proofgrad.core.rewrite.extractors import CONTRACTS, TERM
from proofgrad.core.rewrite.index_text import (
    DIVISIONS,
    NoMatch,
    RuleText,
    mentions,
    ops_of_summands,
)
from proofgrad.core.rewrite.rule import Apply, Const, Expr, Extractor, Lit, Name, Node, Term, Var
from proofgrad.core.rewrite.searches import NEEDS
from proofgrad.core.rewrite.sums import MARKS, OTHER


def write_left_side(text: RuleText) -> None:
    """The lines that bind the names of a rule. Raises: NoMatch, NoCode."""
    rule = text.rule
    side = _LeftSide(text)
    side.match()
    late = {name for extractor in rule.extractors for name, _ in extractor.outputs}
    conditions = [(c, mentions(c, late)) for c in (*rule.where, *rule.when)]
    text.test([c for c, is_late in conditions if not is_late])
    for extractor in rule.extractors:
        side.use_extractor(extractor)
    text.test([c for c, is_late in conditions if is_late])


@dataclass(frozen=True, slots=True)
class _LeftSide:
    _text: RuleText

    def match(self) -> None:
        """The lines of the left side itself."""
        text, left = self._text, self._text.rule.left
        self._need(left if text.op == "ADD" else getattr(left, "src", (left,))[0])
        if isinstance(left, Var):
            if text.op != "ADD":
                raise NoMatch
            text.forms[left.name] = "form"
        elif left.op in DIVISIONS:
            if left.op != text.op:
                raise NoMatch
            self._match_number(left.src[1], "number")
            self._match_sum(left.src[0], "form")
        else:
            self._match_whole(left)

    def _need(self, term: Term) -> None:
        """Nothing is tried where a kind of summand is missing."""
        marks = 0
        for op in ops_of_summands(term):
            marks |= MARKS.get(op, OTHER)
        if marks:
            self._text.open(f"if form.marks & {marks} == {marks}:")

    def _match_whole(self, left: Node) -> None:
        """A rule about a sum."""
        if self._text.op != "ADD":
            raise NoMatch
        if left.op == "MUL":
            self._match_sum(left, "form")
            return
        if left.op != "ADD":
            raise NoCode("other operations are matched as terms")
        used = (*self._text.rule.right, *self._text.rule.where, *self._text.rule.when)
        both = {part.name for part in left.src if isinstance(part, Var)}
        if len(both) == 2:
            inputs = [
                given for extractor in self._text.rule.extractors for given in extractor.inputs
            ]
            if left not in inputs or any([mentions(part, both) for part in used]):
                raise NoCode("a sum is not taken apart in every way")
            self._text.open("if len(terms) + (constant != 0) > 1:")
            return
        self._match_sum(left, "form")

    def _match_number(self, term: Term, local: str) -> None:
        """A divisor or a factor, which is a number."""
        match term:
            case Lit(value, _) if type(value) is int:
                self._text.open(f"if {local} == {value}:")
            case Lit():
                raise NoCode("no number of an index")
            case Const(name, _) | Var(name, _) if name in self._text.numbers:
                self._text.open(f"if {local} == {self._text.numbers[name]}:")
            case Var(name, _) if name in self._text.forms:
                form = self._text.forms[name]
                self._text.open(f"if not {form}[0] and {form}[1] == {local}:")
            case Const(name, _) | Var(name, _):
                self._text.numbers[name] = local
            case _:
                raise NoMatch

    def _match_sum(self, term: Term, local: str) -> None:
        match term:
            case Var(name, _):
                self._match_variable(name, local)
            case Const(name, _):
                self._text.open(f"if not {local}[0]:")
                value = self._text.local("value")
                self._text.emit(f"{value} = {local}[1]")
                self._match_number(term, value)
            case Lit(value, _) if type(value) is int:
                self._text.open(f"if not {local}[0] and {local}[1] == {value}:")
            case Lit():
                raise NoCode("no number of an index")
            case Node("ADD", (first, second), _, _):
                self._match_addition(first, second, local)
            case Node():
                atom, factor = self._text.local("atom"), self._text.local("factor")
                self._text.open(f"if len({local}[0]) == 1 and not {local}[1]:")
                self._text.emit(f"(({atom}, {factor}),) = {local}[0].items()")
                self._match_summand(term, atom, factor)
            case _:
                raise NoCode(f"{term!r} on a left side")

    def _match_variable(self, name: str, local: str) -> None:
        if name in self._text.numbers:
            self._text.open(f"if not {local}[0] and {local}[1] == {self._text.numbers[name]}:")
        elif name in self._text.forms:
            self._text.open(f"if tuple({local}) == tuple({self._text.forms[name]}):")
        else:
            self._text.forms[name] = local

    def _match_addition(self, first: Term, second: Term, local: str) -> None:
        if isinstance(first, Const | Lit):
            first, second = second, first
        if isinstance(first, Const | Lit):
            raise NoMatch
        if isinstance(second, Const | Lit):
            self._text.open(f"if {local}[0] and {local}[1]:")
            value, rest = self._text.local("value"), self._text.local("rest")
            self._text.emit(f"{value} = {local}[1]")
            self._match_number(second, value)
            self._text.emit(f"{rest} = {local}[0], 0")
            self._match_sum(first, rest)
            return
        if isinstance(first, Var):
            first, second = second, first
        if isinstance(first, Var):
            raise NoCode("a sum is not taken apart in every way")
        atom, factor = self._text.local("atom"), self._text.local("factor")
        self._text.loops += 1
        if isinstance(second, Var):
            self._text.open(f"for {atom}, {factor} in {local}[0].items():")
        else:
            self._text.open(
                f"for {atom}, {factor} in {local}[0].items() if len({local}[0]) == 2 else ():"
            )
        rest = self._text.local("rest")
        self._match_summand(first, atom, factor)
        self._text.emit(f"{rest} = without({local}, {atom})")
        self._match_sum(second, rest)

    def _match_summand(self, term: Term, atom: str, factor: str) -> None:
        match term:
            case Node("ADD", _, _, _):
                raise NoCode("a sum is not taken apart in every way")
            case Node("MUL", (first, second), _, _):
                if isinstance(first, Const | Lit) or self._is_number(first):
                    first, second = second, first
                if not isinstance(second, Const | Lit) and not self._is_number(second):
                    raise NoCode("a product of terms is matched as a term")
                self._text.open(f"if {factor} != 1 and {factor} != -1:")
                self._match_number(second, factor)
                self._match_atom(first, atom)
            case Node("NEG", (inner,), _, _):
                self._text.open(f"if {factor} == -1:")
                self._match_atom(inner, atom)
            case _:
                self._text.open(f"if {factor} == 1:")
                self._match_atom(term, atom)

    def _is_number(self, term: Term) -> bool:
        return isinstance(term, Var) and term.name in self._text.numbers

    def _match_atom(self, term: Term, atom: str) -> None:
        match term:
            case Var(name, _):
                local = self._text.local("alone")
                self._text.emit(f"{local} = {{{atom}: 1}}, 0")
                self._match_variable(name, local)
            case Node(("FLOORDIV" | "MOD") as op, (dividend, divisor), _, _):
                self._text.open(f"if {atom}.kind is {op}:")
                number, inner = self._text.local("number"), self._text.local("inner")
                self._text.emit(f"{number} = {atom}.number")
                self._match_number(divisor, number)
                self._text.emit(f"{inner} = {atom}.form")
                self._match_sum(dividend, inner)
            case Node(("ADD" | "MUL" | "NEG"), _, _, _) | Const() | Lit():
                raise NoMatch
            case _:
                raise NoCode("other operations are matched as terms")

    # -- extractors ------------------------------------------------------------------------------------

    def use_extractor(self, extractor: Extractor) -> None:
        """The lines that ask an extractor, and bind what it finds."""
        contract = CONTRACTS[extractor.function]
        given = [
            self._extractor_term(value) if sort == TERM else self._extractor_number(value)
            for value, (_, sort) in zip(extractor.inputs, contract.inputs, strict=True)
        ]
        needed = NEEDS.get(extractor.function, 0)
        if needed and "form" in given:
            self._text.open(f"if form.marks & {needed} == {needed}:")
        found = self._text.local("found")
        self._text.emit(f"{found} = extractor_{extractor.function}({', '.join(given)})")
        self._text.open(f"if {found} is not None:")
        locals_ = []
        divided = _divided_outputs(extractor)
        for (name, _), (_, sort) in zip(extractor.outputs, contract.outputs, strict=True):
            local = self._text.local("part")
            locals_.append(local)
            if sort == TERM:
                self._text.forms[name] = local
                if name in divided:
                    self._text.unsettled.add(name)
            else:
                self._text.numbers[name] = local
        self._text.emit(f"{', '.join(locals_)}, = {found}")

    def _extractor_term(self, given: object) -> str:
        if given == self._text.rule.left:
            if self._text.op != "ADD":
                raise NoCode("an extractor of a quotient")
            return "form"
        if isinstance(given, Var) and given.name in self._text.forms:
            local = self._text.forms[given.name]
            return local if local == "form" else f"kept({local})"
        raise NoCode(f"an extractor of {given!r}")

    def _extractor_number(self, given: object) -> str:
        name = given.name if isinstance(given, Const | Name) else None
        if name not in self._text.numbers:
            raise NoCode(f"an extractor of the number {given!r}")
        return self._text.numbers[name]


def _divided_outputs(extractor: Extractor) -> set[str]:
    """Outputs that the contract equates with a quotient or remainder: they may not be normal."""
    contract = CONTRACTS[extractor.function]
    inner = {
        claim.args[0].name
        for claim in contract.claims
        if isinstance(claim.args[0], Name) and _has_division(claim.args[1])
    }
    renamed = zip(extractor.outputs, contract.outputs, strict=True)
    return {name for (name, _), (formal, _) in renamed if formal in inner}


def _has_division(expr: Expr) -> bool:
    match expr:
        case Apply("//" | "%", _):
            return True
        case Apply(_, parts):
            return any([_has_division(part) for part in parts])
        case _:
            return False
