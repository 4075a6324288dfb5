"""Right sides of rules about sums, as lines of Python that build and keep what the rule makes.

Owns: when a rule still may not fire, because its right side would not be smaller; the text of the
right side. Right sides are built by the functions themselves, so that results are normal. Does not
own: how names are bound (index_patterns.py), the order of sums (sum_order.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.rewrite.expression_code import NoCode, known
from proofgrad.core.rewrite.index_text import ATOMS, DIVISIONS, RuleText, names_in, ops_of_summands
from proofgrad.core.rewrite.rule import Calc, Const, Lit, Node, Term, Var


def write_right_side(text: RuleText) -> None:
    """The lines that fire a rule, where its left side matched. Raises: NoCode."""
    _RightSide(text).fire()


@dataclass(frozen=True, slots=True)
class _RightSide:
    _text: RuleText

    def fire(self) -> None:
        """What is tested, noted and kept where the rule fires."""
        right = self._text.rule.right[0]
        assert right is not None
        unknown: set[str] = set()
        plain = self._sum(right, ATOMS, unknown)
        if unknown:
            self._text.open(f"if {known(unknown, 'True')}:")
        self._text.emit(f"# rule {self._text.number}")
        alone = self._lone_division(right) if self._may_grow(right) else None
        if alone is not None:
            loads = " + ".join([f"load_of({local})" for local in self._beside(right)]) or "0"
            dividend = self._sum(alone.src[0], ATOMS, unknown)
            number = self._value(alone.src[1], unknown)
            self._text.open(f"if division_goes_down({loads}, {dividend}, {number}, form, number):")
        elif self._text.rule.extractors and not self._may_grow(right):
            loads = " + ".join([f"load_of({local})" for local in self._beside(right)]) or "0"
            self._text.open(f"if {loads} <= 8 * form.load:")
        elif self._may_grow(right):
            before = "form" if self._text.op == "ADD" else f"{ATOMS[self._text.op]}(form, number)"
            self._text.emit(f"after = {plain}")
            self._text.open(f"if goes_down(after, {before}):")
            plain = "after"
        at = "form, None, None" if self._text.op == "ADD" else f"form, {self._text.op}, number"
        self._text.emit(f"note(*tried[{self._text.number}])")
        self._text.open("if observe is not None:")
        self._text.emit(f"observe({self._text.number}, {at}, {plain})")
        self._text.depth -= 1
        self._finish(right, unknown)

    def _lone_division(self, term: Term) -> Node | None:
        """The only division of a right side, if it is of the kind of the left side."""
        if not isinstance(term, Node) or self._text.op == "ADD":
            return None
        if term.op in DIVISIONS:
            is_alone = term.op == self._text.op and not any(
                [_divides(source) for source in term.src]
            )
            return term if is_alone else None
        found = [source for source in term.src if _divides(source)]
        return self._lone_division(found[0]) if len(found) == 1 else None

    def _beside(self, term: Term) -> list[str]:
        """The sums of a right side that are not divided."""
        if isinstance(term, Node):
            parts = () if term.op in DIVISIONS else term.src
            return [local for source in parts for local in self._beside(source)]
        return [self._text.forms[name] for name in names_in(term) if name in self._text.forms]

    def _may_grow(self, right: Term) -> bool:
        """Whether the right side has to be compared with the left at each use (sum_order.py).

        If it does not divide, and takes no more than 8 sums, each a part of the dividend, the
        load goes down; what an extractor found need not be a part, so that its load is looked at.
        """
        if self._text.op == "ADD":
            return bool(ops_of_summands(right)) or any(names_in(right))
        taken = [name for name in names_in(right) if name in self._text.forms]
        return _divides(right) or len(taken) > 8 or not self._text.unsettled.isdisjoint(taken)

    def _finish(self, right: Term, unknown: set[str]) -> None:
        if self._text.op == "ADD":
            self._text.emit(f"form = kept({self._sum(right, DIVISIONS, unknown)})")
            if not self._text.loops:
                self._text.emit("continue")
            else:
                self._text.emit("form = wholes[first] = whole(form)")
                self._text.emit("return form")
            return
        if self._text.is_early:
            self._text.emit(f"return {self._sum(right, DIVISIONS, unknown)}")
            return
        name = DIVISIONS[self._text.op]
        is_tail = isinstance(right, Node) and right.op == self._text.op and not self._text.loops
        if is_tail:
            assert isinstance(right, Node)
            dividend = self._sum(right.src[0], DIVISIONS, unknown)
            divisor = self._value(right.src[1], unknown)
            self._text.emit(f"form, number = whole({dividend}), {divisor}")
            self._text.emit(f"result = {name}s.get((form, number))")
            self._text.emit("if result is not None:")
            self._text.emit("    break")
            self._text.emit("continue")
            return
        self._text.emit(f"result = {name}s[first] = {self._sum(right, DIVISIONS, unknown)}")
        self._text.emit("return result")

    def _sum(self, term: Term, made: dict[str, str], unknown: set[str]) -> str:
        """The text of a term of the right side, as a sum."""
        match term:
            case Var(name, _) if name in self._text.forms:
                local = self._text.forms[name]
                is_settled = name not in self._text.unsettled or made is ATOMS
                return local if is_settled else f"settled({local})"
            case Node("ADD", (first, second), _, None):
                return f"add({self._sum(first, made, unknown)}, {self._sum(second, made, unknown)})"
            case Node("NEG", (inner,), _, None):
                return f"scale({self._sum(inner, made, unknown)}, -1)"
            case Node("MUL", (first, second), _, None):
                if self._is_value(first):
                    first, second = second, first
                return f"scale({self._sum(first, made, unknown)}, {self._value(second, unknown)})"
            case Node(op, (first, second), _, None) if op in made:
                dividend = self._sum(first, made, unknown)
                return f"{made[op]}({dividend}, {self._value(second, unknown)})"
            case Node():
                raise NoCode(f"{term.op} is built as a term")
            case _:
                return f"({{}}, {self._value(term, unknown)})"

    def _is_value(self, term: Term) -> bool:
        return isinstance(term, Lit | Calc) or (
            isinstance(term, Const | Var) and term.name in self._text.numbers
        )

    def _value(self, term: Term, unknown: set[str]) -> str:
        """The text of a term of the right side that is a number."""
        match term:
            case Lit(literal, _) if type(literal) is int:
                return f"({literal})"
            case Const(name, _) | Var(name, _) if name in self._text.numbers:
                return self._text.numbers[name]
            case Calc():
                text, names = self._text.code.computed(term)
                unknown |= names
                return text
            case _:
                raise NoCode(f"{term!r} is no number")


def _divides(term: Term) -> bool:
    return isinstance(term, Node) and (
        term.op in DIVISIONS or any([_divides(source) for source in term.src])
    )
