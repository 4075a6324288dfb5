"""Normal forms of index terms: sums, and sums divided by numbers, under all rules about them.

Owns: the functions made by index_code.py, in use; what they cannot say, which is matched as terms.
Does not own: the text of the functions (index_code.py), other nodes (engine.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any
from weakref import WeakMethod

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.expression_code import LIBRARY
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.index_code import index_code
from proofgrad.core.rewrite.index_text import LINEAR, ops_of_summands
from proofgrad.core.rewrite.kept_code import kept
from proofgrad.core.rewrite.match import Matcher, RuleSet, key_of
from proofgrad.core.rewrite.narrowing import states_laws
from proofgrad.core.rewrite.rule import Node
from proofgrad.core.rewrite.sum_laws import is_collector, missing_laws
from proofgrad.core.rewrite.sum_order import division_goes_down, goes_down, load_of
from proofgrad.core.rewrite.sums import MARKS, OTHER, Atom, Form, Sum, add, interval, scale

Named = tuple[str, bool]  # the full name of a rule, and whether it has evidence


ROOTS = frozenset({Ops.ADD, Ops.MUL, Ops.NEG, Ops.FLOORDIV, Ops.MOD})


def without(form: Sum, atom: Atom) -> Sum:
    """`form` without its summand `atom`."""
    terms = form[0].copy()
    del terms[atom]
    return terms, form[1]


_NAMESPACE: dict[str, Any] = {
    **LIBRARY, "goes_down": goes_down,
    "division_goes_down": division_goes_down, "load_of": load_of, "add": add, "scale": scale, "interval": interval, "without": without,
    "FLOORDIV": Ops.FLOORDIV, "MOD": Ops.MOD, "ADD": Ops.ADD, "Form": Form,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A rule that is matched as a term, and the ops of summands without which it does not match."""

    name: str
    needed: frozenset[Ops]


@dataclass(frozen=True)
class IndexProgram:
    """What rule sets say of index terms, compiled."""

    code: CodeType
    tried: tuple[Named, ...]
    left_over: dict[Ops, tuple[LeftOver, ...]]  # by the op of their left side; ADD: of sums
    collector: Named
    has_rules_of_any_term: bool  # all of them: none has to be matched as a term
    narrows: bool  # the sets state what clauses of masks say (narrowing.py)

    @cached_property
    def make(self) -> Callable[..., Any]:
        """The function that makes the functions."""
        namespace = dict(_NAMESPACE)
        exec(self.code, namespace)  # noqa: S102
        made: Callable[..., Any] = namespace["make"]
        return made

    @cached_property
    def left_over_marks(self) -> dict[Ops, int]:
        """By op, the marks of summands that a rule which is left over may need."""
        found = dict.fromkeys((Ops.ADD, Ops.FLOORDIV, Ops.MOD), 0)
        for root, rules in self.left_over.items():
            for op in {op for rule in rules for op in rule.needed}:
                found[root] |= MARKS.get(op, OTHER)
        return found

    @cached_property
    def left_over_always(self) -> dict[Ops, bool]:
        """By op, whether a rule which is left over may match sums of any summands."""
        roots = (Ops.ADD, Ops.FLOORDIV, Ops.MOD)
        return {
            root: any([rule.needed <= {Ops.RANGE} for rule in self.left_over.get(root, ())])
            for root in roots
        }


def index_program(rulesets: Sequence[RuleSet]) -> IndexProgram | None:
    """The program of `rulesets`; None if they do not state the laws of sums.

    That of sets with evidence is kept between processes.
    """
    ledgers = [(rules.name, rules.kept_under) for rules in rulesets]
    return _unpacked(kept("index terms", ledgers, lambda: _packed(_made(rulesets))))


def _made(rulesets: Sequence[RuleSet]) -> IndexProgram | None:
    found = [(rule, s.proven) for s in rulesets for rule in s.rules_of(ROOTS)]
    rules = [rule for rule, _ in found]
    proven = {rule.full_name: is_proven for rule, is_proven in found}
    collector = next((rule.full_name for rule in rules if is_collector(rule)), None)
    if collector is None or missing_laws(rules):
        return None
    code = index_code(rules)
    left_over: dict[Ops, tuple[LeftOver, ...]] = {}
    for rule in code.left_over:
        if not isinstance(rule.left, Node):
            continue
        root = Ops.ADD if rule.left.op in LINEAR else Ops[rule.left.op]
        term = rule.left if root is Ops.ADD else rule.left.src[0]
        left = LeftOver(rule.full_name, frozenset(ops_of_summands(term)))
        left_over[root] = (*left_over.get(root, ()), left)
    return IndexProgram(
        compile(code.text, "<rules of index terms>", "exec"),
        tuple([(rule.full_name, proven[rule.full_name]) for rule in code.tried]),
        left_over,
        (collector, proven[collector]),
        all([isinstance(rule.left, Node) for rule in code.left_over]),
        states_laws([rule for s in rulesets for rule in s.rules_of((Ops.WHERE,))]),
    )


# -- between processes ---------------------------------------------------------------------------


def _packed(program: IndexProgram | None) -> tuple[Any, ...] | None:
    """The program without what only this process has."""
    if program is None:
        return None
    left_over = tuple(
        [
            (root.name, left.name, tuple([op.name for op in left.needed]))
            for root, rules in program.left_over.items()
            for left in rules
        ]
    )
    flags = program.has_rules_of_any_term, program.narrows
    return program.code, program.tried, left_over, program.collector, flags


def _unpacked(parts: tuple[Any, ...] | None) -> IndexProgram | None:
    """The program that `_packed` took apart."""
    if parts is None:
        return None
    code, tried, rules, collector, flags = parts
    left_over: dict[Ops, tuple[LeftOver, ...]] = {}
    for root, name, needed in rules:
        left = LeftOver(name, frozenset([Ops[op] for op in needed]))
        left_over[Ops[root]] = (*left_over.get(Ops[root], ()), left)
    return IndexProgram(code, tried, left_over, collector, *flags)


class IndexTerms:
    """The functions of an IndexProgram over the sums of one compilation.

    `note(name, proven)` counts an application; `observe(name, before, after)` sees it, if given;
    `form_of` gives the normal form of a term that a rule made. Call `release` at the end: the
    functions hold each other, and would wait for a collection.
    """

    def __init__(
        self,
        program: IndexProgram,
        rulesets: Sequence[RuleSet],
        facts: Facts,
        note: Callable[[str, bool], None],
        observe: Callable[[str, UOp, UOp], None] | None,
        form_of: WeakMethod[Callable[[UOp], Sum]],
    ) -> None:
        self._facts = facts
        self._forms = facts.forms
        self._rulesets = rulesets
        self._program = program
        self._note = note
        self._observe = observe
        self._form_of = form_of
        self._candidates: dict[Any, list[tuple[Matcher, bool]]] = {}
        self.marks, self.always = program.left_over_marks, program.left_over_always
        self.quotient, self.remainder, self.whole, self.release = program.make(
            facts.forms,
            facts.extractors,
            program.tried,
            note,
            None if observe is None else self._show,
            set(),
            self,
        )

    def _show(self, k: int, form: Form, op: Ops | None, number: int, after: Sum) -> None:
        before = form if op is None else ({self._forms.divided(op, form, number): 1}, 0)
        assert self._observe is not None
        name, _ = self._program.tried[k]
        self._observe(name, self._forms.written(before), self._forms.written(after))

    # -- rules that are matched as terms ------------------------------------------------------------

    def left_over_division(self, op: Ops, form: Form, atom: Atom) -> Sum:
        """What the rules that are left over make of `form` divided by a number."""
        alone = {atom: 1}, 0
        return self._first_left_over(op, form, alone)

    def left_over_whole(self, form: Form) -> Sum:
        """What the rules that are left over make of a sum."""
        return self._first_left_over(Ops.ADD, form, form)

    def _first_left_over(self, op: Ops, form: Form, whole: Sum) -> Sum:
        ops = {atom.op for atom in form[0]}
        if not any([left.needed <= ops for left in self._program.left_over.get(op, ())]):
            return whole
        node = self._forms.written(whole)
        for matcher, proven in self._matchers(op, node):
            result = matcher.apply(node, self._facts)
            if result is not None and result is not node:
                name = matcher.rule.full_name
                self._note(name, proven)
                if self._observe is not None:
                    self._observe(name, node, result)
                form_of = self._form_of()
                assert form_of is not None, "the Rewriter is in use"
                return form_of(result)
        return whole

    def _matchers(self, op: Ops, node: UOp) -> list[tuple[Matcher, bool]]:
        key = key_of(node)
        found = self._candidates.get(key)
        if found is None:
            rules = {left.name for left in self._program.left_over[op]}
            found = self._candidates[key] = [
                (matcher, ruleset.proven)
                for ruleset in self._rulesets
                for matcher in ruleset.candidates(node)
                if matcher.rule.full_name in rules
            ]
        return found
