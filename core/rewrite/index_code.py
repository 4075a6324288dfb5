"""Rules about sums of index terms as Python: one function for each kind of term.

Owns: the text of `quotient(form, number)`, `remainder(form, number)` and `whole(form)`, made from
the data of the rules. Nothing of a rule enters it but numbers: names are made here, or belong to the
operations and contracts of this project, and a rule is called by its position. Each gives the normal form of a sum divided by a number, or of a sum. Rules
are tried in their order. Does not own: the lines of one rule (index_patterns.py, index_results.py),
what runs the text (index_terms.py), sums (sums.py), rules that match terms (match.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.rewrite.expression_code import NoCode
from proofgrad.core.rewrite.extractors import CONTRACTS
from proofgrad.core.rewrite.index_patterns import write_left_side
from proofgrad.core.rewrite.index_results import write_right_side
from proofgrad.core.rewrite.index_text import DIVISIONS, LINEAR, NoMatch, RuleText, ops_of_summands
from proofgrad.core.rewrite.rule import Lit, Node, Rule, RuleKind, Var
from proofgrad.core.rewrite.scope import takes
from proofgrad.core.rewrite.sum_laws import is_linear_law


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
                more = _lines(RuleText(rule, numbers[rule.full_name], op))
                lines += more[_shared(last, more) :]
                last = more
            except NoMatch:
                continue
            except NoCode:
                left_over[rule.full_name] = rule
        bodies[op] = lines
    early = {op: _early_lines(about, numbers, op, left_over) for op in DIVISIONS}
    asked = {extractor.function for rule in about for extractor in rule.extractors}
    used = [
        f'    extractor_{name} = extractors.use("{name}")' for name in CONTRACTS if name in asked
    ]
    functions = [_division(op, early[op], bodies[op]) for op in DIVISIONS]
    functions.append(_whole(bodies["ADD"]))
    text = "\n".join([_HEAD, *used, "", *functions, _TAIL])
    return IndexCode(text, tuple(about), tuple(left_over.values()))


def _lines(text: RuleText) -> list[str]:
    """The lines that try one rule. Raises: NoMatch, NoCode."""
    write_left_side(text)
    write_right_side(text)
    return text.lines


def _shared(first: list[str], second: list[str]) -> int:
    """How many lines of the second rule are those with which the rule before it begins."""
    count = 0
    for line, other in zip(first, second):
        if line != other or "for " in line:
            break
        count += 1
    return count


def _is_early(rule: Rule) -> bool:
    """Whether `rule` is about any sum and one divisor, so that the sum is not looked at.

    A right side that divides is compared with the sum, and so is not early.
    """
    left, right = rule.left, rule.right[0]
    if isinstance(left, Var) or left.op not in DIVISIONS:
        return False
    if rule.extractors or rule.where or rule.when or right is None or ops_of_summands(right):
        return False
    return isinstance(left.src[0], Var) and isinstance(left.src[1], Lit)


def _early_lines(
    rules: Sequence[Rule], numbers: dict[str, int], op: str, left_over: dict[str, Rule]
) -> list[str]:
    """The lines of rules about any sum; those that have no text go to `left_over`."""
    lines: list[str] = []
    for rule in rules:
        if _is_early(rule) and isinstance(rule.left, Node) and rule.left.op == op:
            try:
                lines += _lines(RuleText(rule, numbers[rule.full_name], op, is_early=True))
            except NoCode:
                left_over[rule.full_name] = rule
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

_HEAD = """def make(forms, extractors, tried, note, observe, normal_divisions, left_over):
    kept, divided, divisor = forms.kept, forms.divided, forms.divisor
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
