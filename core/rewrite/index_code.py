"""Rules about sums of index terms as Python: one function for each kind of term.

Owns: the text of `quotient(form, number)`, `remainder(form, number)` and `whole(form)`, made from
the data of the rules. Each gives the normal form of a sum divided by a number, or of a sum. Rules
are tried in their order; right sides are built by the same functions, so that results are normal.
Does not own: what runs the text (index_terms.py), sums (forms.py), rules that match terms (match.py).

A left side is matched against a sum: `x + k` takes its constant, `x * k` is a sum of one summand,
`p + x` takes any summand of the form p and leaves the rest. A left side that no sum can look like,
such as `-(x + y)`, matches nothing: sums are normal by construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.expression_code import Expressions, NoCode, known
from proofgrad.core.rewrite.forms import MARKS, OTHER
from proofgrad.core.rewrite.linear_laws import is_linear_law
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Fact,
    Lit,
    Name,
    Node,
    Rule,
    RuleKind,
    Term,
    Var,
    View,
)
from proofgrad.core.rewrite.scope import takes
from proofgrad.core.rewrite.searches import NEEDS
from proofgrad.core.rewrite.views import CONTRACTS, TERM

DIVISIONS = {"FLOORDIV": "quotient", "MOD": "remainder"}
ATOMS = {"FLOORDIV": "plain_quotient", "MOD": "plain_remainder"}
LINEAR = frozenset({"ADD", "MUL", "NEG"})


class NoMatch(Exception):
    """A left side that no sum in normal form looks like."""


@dataclass(slots=True)
class IndexCode:
    """The text, the rules that it tries by number, and those that have to be matched as terms."""

    text: str
    tried: tuple[Rule, ...]
    left_over: tuple[Rule, ...]


def index_code(rules: Sequence[Rule]) -> IndexCode:
    """The functions for `rules`, in their order."""
    about = [rule for rule in rules if _is_about_index_terms(rule)]
    numbers = {rule.full_name: k for k, rule in enumerate(about)}
    left_over: dict[str, Rule] = {}
    bodies: dict[str, list[str]] = {}
    for op in (*DIVISIONS, "ADD"):
        lines: list[str] = []
        last: list[str] = []
        for rule in about:
            if _is_early(rule):
                continue
            try:
                more = _RuleCode(rule, numbers[rule.full_name], op).lines()
                lines += more[_shared(last, more) :]
                last = more
            except NoMatch:
                continue
            except NoCode:
                left_over[rule.full_name] = rule
        bodies[op] = lines
    early = {op: _early_lines(about, numbers, op) for op in DIVISIONS}
    views = sorted({view.function for rule in about for view in rule.views})
    used = [f'    view_{name} = views.use("{name}")' for name in views]
    functions = [_division(op, early[op], bodies[op]) for op in DIVISIONS]
    functions.append(_whole(bodies["ADD"]))
    text = "\n".join([_HEAD, *used, "", *functions, _TAIL])
    return IndexCode(text, tuple(about), tuple(left_over.values()))


def _shared(first: list[str], second: list[str]) -> int:
    """How many lines of the second rule are those with which the rule before it begins."""
    count = 0
    for line, other in zip(first, second):
        if line != other or "for " in line:
            break
        count += 1
    return count


def _is_early(rule: Rule) -> bool:
    """Whether `rule` is about any sum and one divisor, so that the sum is not looked at."""
    left = rule.left
    if isinstance(left, Var) or left.op not in DIVISIONS or rule.views or rule.where or rule.when:
        return False
    return isinstance(left.src[0], Var) and isinstance(left.src[1], Lit)


def _early_lines(rules: Sequence[Rule], numbers: dict[str, int], op: str) -> list[str]:
    lines: list[str] = []
    for rule in rules:
        if _is_early(rule) and isinstance(rule.left, Node) and rule.left.op == op:
            lines += _RuleCode(rule, numbers[rule.full_name], op, is_early=True).lines()
    return lines


def _is_about_index_terms(rule: Rule) -> bool:
    """Whether `rule` may fire at a sum of index terms, or at one divided by a number."""
    if rule.kind is not RuleKind.REWRITE or not takes(rule, dtypes.index):
        return False
    left = rule.left
    if isinstance(left, Var) or left.op in DIVISIONS:
        return True
    return left.op in LINEAR and not is_linear_law(rule)


# -- the functions -------------------------------------------------------------------------------

_HEAD = """def make(forms, views, tried, note, observe, normal_divisions, left_over):
    kept, divided = forms.kept, forms.divided
    left_over_marks, left_over_always = left_over.marks, left_over.always
    quotients, remainders, wholes = {}, {}, {}

    def plain_quotient(form, number):
        return {divided(FLOORDIV, form, number): 1}, 0

    def plain_remainder(form, number):
        return {divided(MOD, form, number): 1}, 0

    def settled(form):
        terms, constant = form
        for atom in terms:
            if atom.kind is not None and atom not in normal_divisions:
                break
        else:
            return form
        total = ({}, constant)
        for atom, factor in terms.items():
            part = {atom: 1}, 0
            if atom.kind is not None and atom not in normal_divisions:
                divide = quotient if atom.kind is FLOORDIV else remainder
                part = divide(atom.form, atom.number)
            total = add(total, scale(part, factor))
        return total
"""
_TAIL = """    def release():
        nonlocal quotient, remainder, whole, left_over
        quotient = remainder = whole = left_over = None

    return quotient, remainder, whole, release
"""


def _division(op: str, early: list[str], rules: list[str]) -> str:
    name = DIVISIONS[op]
    return "\n".join(
        [
            f"    def {name}(form, number):",
            *early,
            "        form = whole(form)",
            "        first = form, number",
            f"        found = {name}s.get(first)",
            "        if found is not None:",
            "            return found",
            "        while True:",
            "            terms, constant = form",
            "            low, high = form.low, form.high",
            *rules,
            f"            atom = divided({op}, form, number)",
            "            normal_divisions.add(atom)",
            "            result = {atom: 1}, 0",
            f"            if form.marks & left_over_marks[{op}] or left_over_always[{op}]:",
            f"                result = left_over.left_over_division({op}, form, atom)",
            "            break",
            f"        {name}s[first] = result",
            "        return result",
            "",
        ]
    )


def _whole(rules: list[str]) -> str:
    return "\n".join(
        [
            "    def whole(form):",
            "        if type(form) is not Form:",
            "            form = kept(form)",
            "        found = wholes.get(form)",
            "        if found is not None:",
            "            return found",
            "        first = form",
            "        while True:",
            "            terms, constant = form",
            "            if not terms:",
            "                break",
            "            low, high = form.low, form.high",
            *rules,
            "            if form.marks & left_over_marks[ADD] or left_over_always[ADD]:",
            "                result = left_over.left_over_whole(form)",
            "                if result is not form:",
            "                    form = kept(result)",
            "                    continue",
            "            break",
            "        wholes[first] = wholes[form] = form",
            "        return form",
            "",
        ]
    )


# -- one rule ------------------------------------------------------------------------------------

_STEP = "    "


@dataclass(slots=True)
class _RuleCode:
    """The lines that try one rule at a sum, or at a sum divided by a number."""

    rule: Rule
    number: int
    op: str
    is_early: bool = False
    _lines: list[str] = field(default_factory=list)
    _depth: int = 3
    _forms: dict[str, str] = field(default_factory=dict)  # names of the rule -> locals: sums
    _numbers: dict[str, str] = field(default_factory=dict)  # names of the rule -> numbers
    _bounded: dict[str, tuple[str, str]] = field(default_factory=dict)  # locals -> lo and hi
    _unsettled: set[str] = field(default_factory=set)
    _loops: int = 0
    _count: int = 0
    _code: Expressions = field(init=False)

    def lines(self) -> list[str]:
        """Raises: NoMatch, NoCode."""
        rule, left = self.rule, self.rule.left
        self._bounded["form"] = ("low", "high")
        self._code = Expressions(self._numbers, self._bound)
        self._depth = 2 if self.is_early else 3
        self._need(left if self.op == "ADD" else getattr(left, "src", (left,))[0])
        if isinstance(left, Var):
            if self.op != "ADD":
                raise NoMatch
            self._forms[left.name] = "form"
        elif left.op in DIVISIONS:
            if left.op != self.op:
                raise NoMatch
            self._match_number(left.src[1], "number")
            self._match_sum(left.src[0], "form")
        else:
            self._match_whole(left)
        late = {name for view in rule.views for name, _ in view.outputs}
        conditions = [(c, _mentions(c, late)) for c in (*rule.where, *rule.when)]
        self._test([c for c, is_late in conditions if not is_late])
        for view in rule.views:
            self._use_view(view)
        self._test([c for c, is_late in conditions if is_late])
        self._fire()
        return self._lines

    # -- lines ------------------------------------------------------------------------------------

    def _emit(self, line: str) -> None:
        self._lines.append(_STEP * self._depth + line)

    def _need(self, term: Term) -> None:
        """Nothing is tried where a kind of summand is missing."""
        marks = 0
        for op in ops_of_summands(term):
            marks |= MARKS.get(op, OTHER)
        if marks:
            self._open(f"if form.marks & {marks} == {marks}:")

    def _open(self, line: str) -> None:
        self._emit(line)
        self._depth += 1

    def _local(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _test(self, conditions: list[Expr]) -> None:
        if conditions:
            self._open(f"if {' and '.join([self._code.condition(c) for c in conditions])}:")

    def _bound(self, side: str, name: str) -> str:
        if name in self._numbers:
            return f"({self._numbers[name]})"
        local = self._forms.get(name)
        if local is None:
            raise NoCode(f"no bounds of {name}")
        if local not in self._bounded:
            low, high = self._local("low"), self._local("high")
            self._bounded[local] = (low, high)
            self._emit(f"{low}, {high} = interval({local})")
        return self._bounded[local][side == "hi"]

    # -- left sides -------------------------------------------------------------------------------

    def _match_whole(self, left: Node) -> None:
        """A rule about a sum."""
        if self.op != "ADD":
            raise NoMatch
        if left.op != "ADD":
            raise NoCode("factors of one summand are matched as terms")
        used = (*self.rule.right, *self.rule.where, *self.rule.when)
        both = {part.name for part in left.src if isinstance(part, Var)}
        if len(both) == 2:
            inputs = [given for view in self.rule.views for given in view.inputs]
            if left not in inputs or any([_mentions(part, both) for part in used]):
                raise NoCode("a sum is not taken apart in every way")
            self._open("if len(terms) + (constant != 0) > 1:")
            return
        self._match_sum(left, "form")

    def _match_number(self, term: Term, local: str) -> None:
        """A divisor or a factor, which is a number."""
        match term:
            case Lit(value, _):
                self._open(f"if {local} == {int(value)}:")
            case Const(name, _) | Var(name, _) if name in self._numbers:
                self._open(f"if {local} == {self._numbers[name]}:")
            case Var(name, _) if name in self._forms:
                form = self._forms[name]
                self._open(f"if not {form}[0] and {form}[1] == {local}:")
            case Const(name, _) | Var(name, _):
                self._numbers[name] = local
            case _:
                raise NoMatch

    def _match_sum(self, term: Term, local: str) -> None:
        match term:
            case Var(name, _):
                self._match_variable(name, local)
            case Const(name, _):
                self._open(f"if not {local}[0]:")
                value = self._local("value")
                self._emit(f"{value} = {local}[1]")
                self._match_number(term, value)
            case Lit(value, _):
                self._open(f"if not {local}[0] and {local}[1] == {int(value)}:")
            case Node("ADD", (first, second), _, _):
                self._match_addition(first, second, local)
            case Node():
                atom, factor = self._local("atom"), self._local("factor")
                self._open(f"if len({local}[0]) == 1 and not {local}[1]:")
                self._emit(f"(({atom}, {factor}),) = {local}[0].items()")
                self._match_summand(term, atom, factor)
            case _:
                raise NoCode(f"{term!r} on a left side")

    def _match_variable(self, name: str, local: str) -> None:
        if name in self._numbers:
            self._open(f"if not {local}[0] and {local}[1] == {self._numbers[name]}:")
        elif name in self._forms:
            self._open(f"if tuple({local}) == tuple({self._forms[name]}):")
        else:
            self._forms[name] = local

    def _match_addition(self, first: Term, second: Term, local: str) -> None:
        if isinstance(first, Const | Lit):
            first, second = second, first
        if isinstance(first, Const | Lit):
            raise NoMatch
        if isinstance(second, Const | Lit):
            self._open(f"if {local}[0] and {local}[1]:")
            value, rest = self._local("value"), self._local("rest")
            self._emit(f"{value} = {local}[1]")
            self._match_number(second, value)
            self._emit(f"{rest} = {local}[0], 0")
            self._match_sum(first, rest)
            return
        if isinstance(first, Var):
            first, second = second, first
        if isinstance(first, Var):
            raise NoCode("a sum is not taken apart in every way")
        atom, factor = self._local("atom"), self._local("factor")
        self._loops += 1
        if isinstance(second, Var):
            self._open(f"for {atom}, {factor} in {local}[0].items():")
        else:
            self._open(
                f"for {atom}, {factor} in {local}[0].items() if len({local}[0]) == 2 else ():"
            )
        rest = self._local("rest")
        self._match_summand(first, atom, factor)
        self._emit(f"{rest} = without({local}, {atom})")
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
                self._open(f"if {factor} != 1 and {factor} != -1:")
                self._match_number(second, factor)
                self._match_atom(first, atom)
            case Node("NEG", (inner,), _, _):
                self._open(f"if {factor} == -1:")
                self._match_atom(inner, atom)
            case _:
                self._open(f"if {factor} == 1:")
                self._match_atom(term, atom)

    def _is_number(self, term: Term) -> bool:
        return isinstance(term, Var) and term.name in self._numbers

    def _match_atom(self, term: Term, atom: str) -> None:
        match term:
            case Var(name, _):
                local = self._local("alone")
                self._emit(f"{local} = {{{atom}: 1}}, 0")
                self._match_variable(name, local)
            case Node(("FLOORDIV" | "MOD") as op, (dividend, divisor), _, _):
                self._open(f"if {atom}.kind is {op}:")
                number, inner = self._local("number"), self._local("inner")
                self._emit(f"{number} = {atom}.number")
                self._match_number(divisor, number)
                self._emit(f"{inner} = {atom}.form")
                self._match_sum(dividend, inner)
            case Node(("ADD" | "MUL" | "NEG"), _, _, _) | Const() | Lit():
                raise NoMatch
            case _:
                raise NoCode("other operations are matched as terms")

    # -- views ------------------------------------------------------------------------------------

    def _use_view(self, view: View) -> None:
        contract = CONTRACTS[view.function]
        given = [
            self._view_term(value) if sort == TERM else self._view_number(value)
            for value, (_, sort) in zip(view.inputs, contract.inputs, strict=True)
        ]
        needed = NEEDS.get(view.function, 0)
        if needed and "form" in given:
            self._open(f"if form.marks & {needed} == {needed}:")
        found = self._local("found")
        self._emit(f"{found} = view_{view.function}({', '.join(given)})")
        self._open(f"if {found} is not None:")
        locals_ = []
        divided = _divided_outputs(view)
        for (name, _), (_, sort) in zip(view.outputs, contract.outputs, strict=True):
            local = self._local("part")
            locals_.append(local)
            if sort == TERM:
                self._forms[name] = local
                if name in divided:
                    self._unsettled.add(name)
            else:
                self._numbers[name] = local
        self._emit(f"{', '.join(locals_)}, = {found}")

    def _view_term(self, given: object) -> str:
        if given == self.rule.left:
            if self.op != "ADD":
                raise NoCode("a view of a quotient")
            return "form"
        if isinstance(given, Var) and given.name in self._forms:
            local = self._forms[given.name]
            return local if local == "form" else f"kept({local})"
        raise NoCode(f"a view of {given!r}")

    def _view_number(self, given: object) -> str:
        name = given.name if isinstance(given, Const | Name) else None
        if name not in self._numbers:
            raise NoCode(f"a view of the number {given!r}")
        return self._numbers[name]

    # -- right sides ------------------------------------------------------------------------------

    def _fire(self) -> None:
        right = self.rule.right[0]
        assert right is not None
        unknown: set[str] = set()
        plain = self._sum(right, ATOMS, unknown)
        if unknown:
            self._open(f"if {known(unknown, 'True')}:")
        self._emit(f"# {self.rule.full_name}: {' '.join(self.rule.text.split())}")
        alone = self._lone_division(right) if self._may_grow(right) else None
        if alone is not None:
            loads = " + ".join([f"load_of({local})" for local in self._beside(right)]) or "0"
            dividend = self._sum(alone.src[0], ATOMS, unknown)
            number = self._value(alone.src[1], unknown)
            self._open(f"if division_goes_down({loads}, {dividend}, {number}, form, number):")
        elif self.rule.views and not self._may_grow(right):
            loads = " + ".join([f"load_of({local})" for local in self._beside(right)]) or "0"
            self._open(f"if {loads} <= 8 * form.load:")
        elif self._may_grow(right):
            before = "form" if self.op == "ADD" else f"{ATOMS[self.op]}(form, number)"
            self._emit(f"after = {plain}")
            self._open(f"if goes_down(after, {before}):")
            plain = "after"
        at = "form, None, None" if self.op == "ADD" else f"form, {self.op}, number"
        self._emit(f"note(*tried[{self.number}])")
        self._open("if observe is not None:")
        self._emit(f"observe({self.number}, {at}, {plain})")
        self._depth -= 1
        self._finish(right, unknown)

    def _lone_division(self, term: Term) -> Node | None:
        """The only division of a right side, if it is of the kind of the left side."""
        if not isinstance(term, Node) or self.op == "ADD":
            return None
        if term.op in DIVISIONS:
            is_alone = term.op == self.op and not any([_divides(source) for source in term.src])
            return term if is_alone else None
        found = [source for source in term.src if _divides(source)]
        return self._lone_division(found[0]) if len(found) == 1 else None

    def _beside(self, term: Term) -> list[str]:
        """The sums of a right side that are not divided."""
        if isinstance(term, Node):
            parts = () if term.op in DIVISIONS else term.src
            return [local for source in parts for local in self._beside(source)]
        return [self._forms[name] for name in _names_in(term) if name in self._forms]

    def _may_grow(self, right: Term) -> bool:
        """Whether the right side has to be compared with the left at each use (sum_order.py).

        If it does not divide, and takes no more than 8 sums, each a part of the dividend, the
        load goes down; what a view found need not be a part, so that its load is looked at.
        """
        if self.op == "ADD":
            return bool(ops_of_summands(right)) or any(_names_in(right))
        taken = [name for name in _names_in(right) if name in self._forms]
        return _divides(right) or len(taken) > 8 or not self._unsettled.isdisjoint(taken)

    def _finish(self, right: Term, unknown: set[str]) -> None:
        if self.op == "ADD":
            self._emit(f"form = kept({self._sum(right, DIVISIONS, unknown)})")
            if not self._loops:
                self._emit("continue")
            else:
                self._emit("form = wholes[first] = whole(form)")
                self._emit("return form")
            return
        if self.is_early:
            self._emit(f"return {self._sum(right, DIVISIONS, unknown)}")
            return
        name = DIVISIONS[self.op]
        is_tail = isinstance(right, Node) and right.op == self.op and not self._loops
        if is_tail:
            assert isinstance(right, Node)
            dividend = self._sum(right.src[0], DIVISIONS, unknown)
            divisor = self._value(right.src[1], unknown)
            self._emit(f"form, number = whole({dividend}), {divisor}")
            self._emit(f"result = {name}s.get((form, number))")
            self._emit("if result is not None:")
            self._emit("    break")
            self._emit("continue")
            return
        self._emit(f"result = {name}s[first] = {self._sum(right, DIVISIONS, unknown)}")
        self._emit("return result")

    def _sum(self, term: Term, made: dict[str, str], unknown: set[str]) -> str:
        """The text of a term of the right side, as a sum."""
        match term:
            case Var(name, _) if name in self._forms:
                local = self._forms[name]
                is_settled = name not in self._unsettled or made is ATOMS
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
            isinstance(term, Const | Var) and term.name in self._numbers
        )

    def _value(self, term: Term, unknown: set[str]) -> str:
        """The text of a term of the right side that is a number."""
        match term:
            case Lit(literal, _):
                return f"({int(literal)})"
            case Const(name, _) | Var(name, _) if name in self._numbers:
                return self._numbers[name]
            case Calc(expr, _, _):
                text, names = self._code.value(expr)
                unknown |= names
                return text
            case _:
                raise NoCode(f"{term!r} is no number")


def _divides(term: Term) -> bool:
    return isinstance(term, Node) and (
        term.op in DIVISIONS or any([_divides(source) for source in term.src])
    )


def _divided_outputs(view: View) -> set[str]:
    """Names of outputs that the contract equates with a quotient or remainder: may not be normal."""
    contract = CONTRACTS[view.function]
    inner = {
        claim.args[0].name
        for claim in contract.claims
        if isinstance(claim.args[0], Name) and _has_division(claim.args[1])
    }
    renamed = zip(view.outputs, contract.outputs, strict=True)
    return {name for (name, _), (formal, _) in renamed if formal in inner}


def _has_division(expr: Expr) -> bool:
    match expr:
        case Apply("//" | "%", _):
            return True
        case Apply(_, parts):
            return any([_has_division(part) for part in parts])
        case _:
            return False


def ops_of_summands(term: Term) -> set[Ops]:
    """Ops that a sum must have among its summands to look like `term`."""
    if not isinstance(term, Node):
        return set()
    if term.op not in LINEAR:
        return {Ops[term.op]}
    if term.op == Ops.MUL.name and not any([isinstance(s, Const | Lit | Var) for s in term.src]):
        return {Ops.MUL}
    return {op for source in term.src for op in ops_of_summands(source)}


def _mentions(part: object, names: set[str]) -> bool:
    return not names.isdisjoint(_names_in(part))


def _names_in(part: object) -> Iterator[str]:
    if isinstance(part, Name | Var | Const):
        yield part.name
    for inner in (*getattr(part, "args", ()), *getattr(part, "src", ())):
        yield from _names_in(inner)
    if isinstance(part, Fact | Calc):
        yield from _names_in(part.term if isinstance(part, Fact) else part.value)
