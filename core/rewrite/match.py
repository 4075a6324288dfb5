"""Rule sets: which rules may match a node, and what one that matches makes of it.

Owns: `RuleSet`, the choice of rules by op and type of a node and the ops of its sources, `Matcher`.
Does not own: binding of names (patterns.py), right sides (terms.py), what is done with a result
(engine.py, facts.py).

A rule of a scalar domain also holds lane by lane and position by position: all nodes it matches have the
same lanes and the same shape, and a constant is then one that repeats in every lane and position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from proofgrad.core.ir.dtypes import DType, dtype_named
from proofgrad.core.ir.op_names import CONST
from proofgrad.core.ir.ops import COMPARE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.division_bounds import (
    DIVISIONS,
    DivisionBounds,
    division_bounds,
    division_code,
)
from proofgrad.core.rewrite.extractor_check import compile_extractor
from proofgrad.core.rewrite.functions import DOMAIN_TYPES
from proofgrad.core.rewrite.glance import Glance, glance_of
from proofgrad.core.rewrite.kept_code import kept
from proofgrad.core.rewrite.ledger import LazyRules
from proofgrad.core.rewrite.patterns import PatternCompiler, commutes, is_constant, orders_of
from proofgrad.core.rewrite.rule import (
    NUMBER_KINDS,
    Calc,
    Const,
    Lit,
    Name,
    Node,
    Rule,
    RuleKind,
    Term,
    Var,
)
from proofgrad.core.rewrite.scope import (
    CONSTANT_OPS,
    FACTS,
    RANGES,
    ROOT,
    Env,
    Scope,
    types_of_class,
)
from proofgrad.core.rewrite.terms import DoesNotFit, Value, compile_expr, compile_term

if TYPE_CHECKING:
    from proofgrad.core.rewrite.facts import Facts

Key = tuple[Any, ...]
# A glance, a matcher, whether with evidence.
Candidates = dict[Key, "tuple[tuple[Glance | None, Matcher, bool], ...]"]
KEYED_SOURCES = 3  # sources whose ops choose the candidates
KEYED_NUMBERS = {-1: "-1", 0: "0", 1: "1"}  # constants that have a key of their own
OTHER_NUMBER = "other number"
NOT_VALUES = frozenset(
    {Ops.PARAM, Ops.BUFFER, Ops.INDEX, Ops.SINK, Ops.STORE, CONST, Ops.UPDATE, Ops.LOCAL_BUFFER}
)


class RuleSet:
    """Rules in order of priority, under one name. `proven`: they came with fresh evidence.

    Rules of a ledger are decoded when they are first needed, operation by operation.
    """

    def __init__(self, name: str, rules: Iterable[Rule] | LazyRules, proven: bool = False) -> None:
        self.name = name
        self.proven = proven
        self._given = rules if isinstance(rules, LazyRules) else tuple(rules)
        self.digest = rules.digest if isinstance(rules, LazyRules) else None
        self._candidates: dict[Key, tuple[Matcher, ...]] = {}
        self._patterns: dict[Ops, list[_Pattern]] = {}
        self._of_rule: dict[str, list[_Pattern]] = {}
        self._joined: dict[tuple[RuleSet, ...], Joined] = {}

    @property
    def kept_under(self) -> str | None:
        """The digest under which code made from the set is kept; None without evidence."""
        return self.digest if self.proven else None

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, first in priority first."""
        return tuple(self._given)

    def rules_of(self, ops: Collection[Ops]) -> Sequence[Rule]:
        """In their order, the rules whose left side is one of `ops`, or any term."""
        if isinstance(self._given, LazyRules):
            return self._given.of_ops({op.name for op in ops})
        names = {op.name for op in ops}
        return [r for r in self._given if isinstance(r.left, Var) or r.left.op in names]

    def __repr__(self) -> str:
        return f"RuleSet({self.name!r}, {len(self.rules)} rules)"

    @cached_property
    def division_bounds(self) -> dict[Ops, DivisionBounds]:
        """What the BOUNDS rules of the set say of sums divided by numbers."""
        ledgers = [(self.name, self.kept_under)]
        made = kept("divisions", ledgers, lambda: division_code(self.rules_of(DIVISIONS)))
        return division_bounds(made)

    def candidates(self, node: UOp) -> tuple[Matcher, ...]:
        """Matchers that may match a node with the op, type and source ops of `node`, in order."""
        key = key_of(node)
        found = self._candidates.get(key)
        if found is None:
            patterns = self._patterns_of(node.op)
            found = tuple([p.matcher(node.dtype) for p in patterns if p.may_match(node)])
            self._candidates[key] = found
        return found

    def _patterns_of(self, op: Ops) -> list[_Pattern]:
        found = self._patterns.get(op)
        if found is None:
            rules = self.rules_of((op,))
            found = self._patterns[op] = [p for rule in rules for p in self._patterns_of_rule(rule)]
        return found

    def _patterns_of_rule(self, rule: Rule) -> list[_Pattern]:
        found = self._of_rule.get(rule.name)
        if found is None:
            orders = list(orders_of(rule.left))
            lefts = orders[:1] if _is_symmetric(rule) else orders
            found = self._of_rule[rule.name] = [_Pattern(rule, left) for left in lefts]
        return found

    def joined(self, rulesets: tuple[RuleSet, ...]) -> Joined:
        """The memory that all rewriters over `rulesets`, which hold this, share."""
        return self._joined.setdefault(rulesets, Joined())


@dataclass(slots=True)
class Joined:
    """What is made of several rule sets once: candidates, and one program for index terms."""

    candidates: Candidates = field(default_factory=dict)
    index: Any = None
    has_index: bool = False


def key_of(node: UOp) -> Key:
    """What of a node decides which rules are tried: -1, 0 and 1 have rules of their own."""
    src = node.src
    if len(src) == 2:
        first, second = src
        kind: Any = second.op
        if kind is CONST and type(second.arg) is int:
            kind = KEYED_NUMBERS.get(second.arg, OTHER_NUMBER)
        return (node.op, node.dtype, first.op, kind, first.dtype, first is second)
    if not src:
        return (node.op, node.dtype)
    return (node.op, node.dtype, src[0].dtype, *[source.op for source in src[:KEYED_SOURCES]])


COTANGENT = "g"  # the name that COTANGENT rules give to the cotangent of their left side
COTANGENT_SLOT = 2


class Matcher:
    """One left side, in one order of operands, for roots of one type."""

    __slots__ = (
        *("_choice", "_early", "_ends", "_late", "_match", "_results", "_size", "_extractors"),
        *("glance", "rule"),
    )

    def __init__(self, pattern: _Pattern, root: DType) -> None:
        rule = self.rule = pattern.rule
        self.glance = pattern.glance
        scope = Scope(rule, root)
        if pattern.left.type in scope.classes:
            scope.types[pattern.left.type] = root
        if rule.kind is RuleKind.COTANGENT:
            scope.nodes[COTANGENT] = scope.new_slot()
        strict = not all([domain in DOMAIN_TYPES for domain in rule.domains])
        self._match = PatternCompiler(scope, strict).compile(pattern.left)
        conditions = (*rule.where, *rule.when)
        late = {name for extractor in rule.extractors for name, _ in extractor.outputs}
        self._early = [compile_expr(c, scope) for c in conditions if not _mentions(c, late)]
        smaller = _taken_terms(rule)
        self._extractors = [
            compile_extractor(extractor, scope, smaller) for extractor in rule.extractors
        ]
        self._late = [compile_expr(c, scope) for c in conditions if _mentions(c, late)]
        is_numbers = rule.kind in NUMBER_KINDS
        self._ends = [_end(term, scope) for term in rule.right] if is_numbers else []
        terms = () if is_numbers else rule.right
        self._results = [None if term is None else compile_term(term, scope) for term in terms]
        self._size = scope.size
        self._choice = scope.choice

    def bind(self, node: UOp, facts: Facts, cotangent: UOp | None = None) -> Env | None:
        """The names of the rule at `node`, if it matches and its conditions hold."""
        if self._choice is None:
            return self._bind(node, facts, cotangent, 0)
        for position in range(1, len(node.src)):
            env = self._bind(node, facts, cotangent, position)
            if env is not None:
                return env
        return None

    def _bind(self, node: UOp, facts: Facts, cotangent: UOp | None, position: int) -> Env | None:
        """`position`: the source of `node` that is the range which the rule names, if it names one."""
        env: Env = [None] * self._size
        if self._choice is not None:
            env[self._choice] = position
        env[FACTS] = facts
        env[ROOT] = node
        if cotangent is not None:
            env[COTANGENT_SLOT] = cotangent
        if not self._match(node, env):
            return None
        for condition in self._early:
            if condition(env) is not True:
                return None
        for extractor in self._extractors:
            if not extractor(env):
                return None
        for condition in self._late:
            if condition(env) is not True:
                return None
        return env

    def apply(self, node: UOp, facts: Facts) -> UOp | None:
        """What a REWRITE rule makes of `node`; None if it does not fire."""
        env = self._bind(node, facts, None, 0) if self._choice is None else self.bind(node, facts)
        build = self._results[0]
        if env is None or build is None:
            return None
        try:
            return build(env, node.shape)
        except DoesNotFit:
            return None

    def cotangents(self, node: UOp, facts: Facts, cotangent: UOp) -> tuple[UOp | None, ...] | None:
        """What a COTANGENT rule says of the sources of `node`; None if it does not apply."""
        env = self.bind(node, facts, cotangent)
        if env is None:
            return None
        return tuple([None if build is None else build(env, node.shape) for build in self._results])

    def interval(self, node: UOp, facts: Facts) -> tuple[Any, Any] | None:
        """What a BOUNDS or BITS rule says of `node`, None for an unknown end.

        None if it does not apply.
        """
        env = self.bind(node, facts)
        if env is None:
            return None
        low, high = self._ends
        return low(env), high(env)

    def divisor(self, node: UOp, facts: Facts) -> int | None:
        """What a DIVISOR rule says of `node`; None if it does not apply."""
        env = self.bind(node, facts)
        if env is None:
            return None
        (number,) = self._ends
        found: int | None = number(env)
        return found

    def holds(self, node: UOp, facts: Facts) -> bool:
        """Whether a FINITE or NOT_NAN rule applies to `node`."""
        return self.bind(node, facts) is not None


def _end(term: Term | None, scope: Scope) -> Value:
    """One end of a BOUNDS rule, a mask of a BITS rule, a divisor: a mathematical number."""
    if not isinstance(term, Calc):
        raise ValueError(f"a bound is a number, not {term!r}")  # noqa: TRY004  (bad rule data)
    return compile_expr(term.number, scope)


def _taken_terms(rule: Rule) -> frozenset[str]:
    """What extractors find and the right side of a comparison takes: it has to be smaller."""
    if not isinstance(rule.left, Node) or Ops[rule.left.op] not in COMPARE:
        return frozenset()
    found = {name for extractor in rule.extractors for name, _ in extractor.outputs}
    return frozenset({name for name in found if any([_mentions(r, {name}) for r in rule.right])})


def _mentions(expr: Any, names: set[str]) -> bool:
    """Whether a condition uses one of `names`, in an expression or in a term of a fact."""
    if not names:
        return False
    if isinstance(expr, Name | Var | Const):
        return expr.name in names
    inner = getattr(expr, "args", None) or getattr(expr, "src", None) or ()
    term = getattr(expr, "term", None)
    return any([_mentions(part, names) for part in (*inner, *(() if term is None else (term,)))])


# -- patterns -----------------------------------------------------------------------------------


class _Pattern:
    """A left side in one order of operands, before it is compiled for a type."""

    def __init__(self, rule: Rule, left: Node | Var) -> None:
        self.rule = rule
        self.left = left
        classes = dict(rule.types)
        if left.type in classes:
            self._types = frozenset(types_of_class(rule, classes[left.type]))
        else:
            self._types = frozenset({dtype_named(left.type)})
        self._matchers: dict[DType, Matcher] = {}
        self.glance = glance_of(left, KEYED_SOURCES)

    def matcher(self, root: DType) -> Matcher:
        """The matcher of this pattern for roots of the type `root`, compiled once."""
        if root not in self._matchers:
            self._matchers[root] = Matcher(self, root)
        return self._matchers[root]

    def may_match(self, node: UOp) -> bool:
        if node.dtype.scalar not in self._types:
            return False
        if isinstance(self.left, Var):
            return node.op not in NOT_VALUES
        if self._wants_other_sources(node) or self._wants_other_number(node):
            return False
        wanted = [_source_ops(source) for source in self.left.src]
        given = [source.op for source in node.src[:KEYED_SOURCES]]
        if commutes(self.left) and is_constant(self.left.src[1]):
            return _agree(wanted, given) or _agree(wanted, given[::-1])
        return _agree(wanted, given)

    def _wants_other_sources(self, node: UOp) -> bool:
        """Whether the number of sources, the type of the first, or whether both are one, is wrong."""
        assert isinstance(self.left, Node)
        wanted, given = self.left.src, node.src
        if wanted and wanted[-1].type == RANGES:
            return False
        if len(wanted) > len(given) or len(wanted) < len(given) <= KEYED_SOURCES:
            return True
        if not wanted:
            return False
        first, last = wanted[0], wanted[-1]
        if isinstance(first, Var) and first == last and len(wanted) == len(given) == 2:
            return given[0] is not given[1]
        return given[0].dtype.scalar not in self._types_of(first, node)

    def _types_of(self, term: Term, root: UOp) -> frozenset[DType]:
        """The types that a source may have, whose type is no other than its name says."""
        if term.type == self.left.type:
            return frozenset({root.dtype.scalar})
        kind = dict(self.rule.types).get(term.type)
        if kind is None:
            return frozenset({dtype_named(term.type)})
        return frozenset(types_of_class(self.rule, kind))

    def _wants_other_number(self, node: UOp) -> bool:
        """Whether the last source is a literal among -1, 0 and 1, and that of `node` another int."""
        left, src = self.left, node.src
        if len(src) != 2 or src[1].op is not CONST or type(src[1].arg) is not int:
            return False
        wanted = left.src[1] if isinstance(left, Node) and len(left.src) == 2 else None
        if not isinstance(wanted, Lit) or type(wanted.value) is not int:
            return False
        assert isinstance(left, Node)
        if commutes(left) and src[0].op in CONSTANT_OPS:
            return False
        return wanted.value in KEYED_NUMBERS and wanted.value != src[1].arg


def _agree(wanted: list[frozenset[Ops] | None], given: list[Ops]) -> bool:
    return all([want is None or op in want for want, op in zip(wanted, given)])


def _source_ops(term: Term) -> frozenset[Ops] | None:
    if isinstance(term, Node):
        return frozenset({Ops[term.op]})
    return CONSTANT_OPS if is_constant(term) else None


def _is_symmetric(rule: Rule) -> bool:
    """Whether operands of a commutative left side matter only as that whole, as extractors see them."""
    left = rule.left
    if not isinstance(left, Node) or not commutes(left) or not rule.extractors:
        return False
    names = {source.name for source in left.src if isinstance(source, Var)}
    parts = (*rule.right, *rule.where, *rule.when, *[i for v in rule.extractors for i in v.inputs])
    return len(names) == 2 and not any([_mentions(part, names) for part in parts if part != left])
