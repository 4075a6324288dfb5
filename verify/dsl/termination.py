"""Does rewriting end? Each rule must go down in one stated order, whatever its variables stand for.

Owns: the order, which is four measures compared one after the other, and the message about a rule
that does not go down. Each measure gives every operation a polynomial that grows with each of its
arguments, so that a step anywhere in a graph makes the measure of the whole graph smaller; the
polynomials of commutative operations are symmetric, so that exchanging operands changes nothing.

Rules with extractors are only looked at in the first two measures, given what the extractor promises
(promises.py): what a search finds is not known when a rule is read. One that is no smaller there has
to be about index terms: the engine tests at each use that it goes down in the order of sums
(core/rewrite/sum_order.py). Or it turns divisions into divisions by powers of two (`only_powers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.rewrite.extractors import CONTRACTS
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Extractor,
    Fact,
    Instance,
    Lit,
    Name,
    Node,
    Rule,
    RuleKind,
    Term,
    Var,
)
from proofgrad.verify.dsl.polynomial import (
    Polynomial,
    TooLarge,
    add,
    always_positive,
    multiply,
    never_negative,
    number,
    scale,
    variable,
)
from proofgrad.verify.dsl.promises import PROMISES, Promise
from proofgrad.verify.dsl.termination_sums import (
    CHOOSES,
    MAKES,
    READS,
    SUM_OPS,
    Reading,
    is_tested_at_each_use,
    may_weigh_the_same,
    readings,
)

Interpretation = Callable[[str, Sequence[Polynomial]], Polynomial]


@dataclass(frozen=True, slots=True)
class Measure:
    """A weight for terms: `constant` for constants, at least `least` for others, `of` for nodes."""

    name: str
    constant: int
    least: int
    of: Interpretation


_LEGALISED = ("FLOORDIV", "MOD", "CAST_OF_CODE", "NUMBER_TO_CODE", "CODE_TO_CODE", "TF32")
_CODES = frozenset({dtype.name for dtype in dtypes.fp8s})


def _loops(op: str, args: Sequence[Polynomial]) -> Polynomial:
    """Loops of reductions, counted wherever they are copied to; legalising copies 7 times."""
    if op in _LEGALISED:
        return scale(add(*args), 64 if op == "CODE_TO_CODE" else 8)
    return add(*args, number(1)) if op == "REDUCE_AXIS" else add(*args)


def _division_load(op: str, args: Sequence[Polynomial]) -> Polynomial:
    """What legalising removes, and what stands below it, which legalising copies 7 times.

    Of quotients and remainders it is the load of core/rewrite/sum_order.py.
    """
    if op in _LEGALISED:
        loads = {"CODE_TO_CODE": (64, 10), "NUMBER_TO_CODE": (8, 2), "MOD": (8, 2)}
        times, more = loads.get(op, (8, 1))
        return add(scale(add(*args), times), number(more))
    return add(*args)


def _weighted_size(op: str, args: Sequence[Polynomial]) -> Polynomial:
    """Size, where products multiply, so that (x + y) * c weighs more than x * c + y * c."""
    match op:
        case "MUL":
            return multiply(*args)
        case "MULACC" | "FMA":
            return add(multiply(args[0], args[1]), args[2])
        case "FDIV":
            return add(multiply(*args), number(1))
        case "FLOORDIV":
            return add(multiply(args[0], args[0]), args[1], number(1))
        case "MOD":
            return add(multiply(args[0], args[0]), args[1], number(2))
        case "REDUCE" | "REDUCE_AXIS":
            return scale(multiply(args[0], args[0]), 2)
        case "WHERE":
            return add(*args, number(3))
        case "CAST_TO_INDEX":
            return args[0]
        case "CAST_FROM_INDEX":
            return add(*args, number(1 + MAKES))
        case _:
            return add(*args, number(1))


def _depth_of_constants(op: str, args: Sequence[Polynomial]) -> Polynomial:
    """Heavier the deeper a constant stands in a sum."""
    match op:
        case "ADD":
            return add(multiply(*args), number(1))
        case "NEG":
            return scale(args[0], 2)
        case _:
            return add(*args, number(1))


LOOPS = Measure("loops", 0, 0, _loops)
LOAD = Measure("division load", 0, 0, _division_load)
SIZE = Measure("weighted size", 2, 3, _weighted_size)
DEPTH = Measure("depth of constants", 1, 2, _depth_of_constants)
MEASURES = (LOOPS, LOAD, SIZE, DEPTH)


def check_termination(rules: Sequence[Rule]) -> tuple[Rule, str] | None:
    """The first rewrite rule that does not go down, and why; None if all do."""
    for rule in rules:
        try:
            if rule.kind is RuleKind.REWRITE and not goes_down(rule):
                return rule, _reason(rule, rules)
        except TooLarge as error:
            return rule, str(error)
    return None


def goes_down(rule: Rule) -> bool:
    """Whether the right side of a rewrite rule is smaller than the left, for all variables.

    As a tree, for sets that do not state the laws of sums, and beside sums in normal form.
    """
    if _only_assumes(rule) or only_powers(rule):
        return True
    return _goes_down_as_tree(rule) and all(
        [_goes_down_beside_sums(rule, reading) for reading in readings(rule) if reading.has_sums]
    )


def _goes_down_as_tree(rule: Rule) -> bool:
    smaller = _is_smaller(rule, _known_measures(rule), None)
    return is_tested_at_each_use(rule) if smaller is None else smaller


def _goes_down_beside_sums(rule: Rule, reading: Reading) -> bool:
    smaller = _is_smaller(rule, MEASURES, reading)
    if smaller is not None:
        return smaller
    return may_weigh_the_same(rule, reading)


def _is_smaller(rule: Rule, measures: Sequence[Measure], reading: Reading | None) -> bool | None:
    """Whether the right side is smaller in the first measure in which it differs; None: in none.

    Whichever of two things an extractor keeps, where it promises one of them.
    """
    found = [_is_smaller_if(rule, measures, reading, kept) for kept in _ways_to_keep(rule)]
    return min(found, key=(False, None, True).index)


def _ways_to_keep(rule: Rule) -> tuple[bool, ...]:
    """Whether less load is kept, or less weighted size instead, where a promise says one of them."""
    promises = [p for extractor in rule.extractors for p in PROMISES[extractor.function]]
    return (False, True) if any([p.or_less_size is not None for p in promises]) else (False,)


def _is_smaller_if(
    rule: Rule, measures: Sequence[Measure], reading: Reading | None, in_size: bool
) -> bool | None:
    for measure in measures:
        difference = _Weights(rule, measure, reading, in_size).difference()
        if always_positive(difference):
            return True
        if not never_negative(difference):
            return False
    return None


def _uses(rule: Rule) -> list[Extractor]:
    """The extractors that found terms of the right side."""
    used = _names_in(rule.right[0])
    return [v for v in rule.extractors if not used.isdisjoint([name for name, _ in v.outputs])]


def _known_measures(rule: Rule) -> tuple[Measure, ...]:
    """All measures; of a tree that an extractor found those of which it promises something."""
    found = _uses(rule)
    if not found:
        return MEASURES
    sizes = [
        (p.less_size, p.or_less_size) for extractor in found for p in PROMISES[extractor.function]
    ]
    has_sizes = all([one is not None or other is not None for one, other in sizes])
    return MEASURES[: 3 if has_sizes else 2]


def only_powers(rule: Rule) -> bool:
    """Whether a division by a number that is no power of two becomes divisions by powers of two.

    Such divisions become fewer, which is an order for a set of such rules alone.
    """
    powers = {c.args[0] for c in (*rule.where, *rule.when) if _is_about_powers(c)}
    negated = [c.args[0] for c in (*rule.where, *rule.when) if _is_call(c, "not")]
    others = {c.args[0] for c in negated if _is_about_powers(c)}
    right, left = rule.right[0], rule.left
    if right is None or not isinstance(left, Node) or left.op not in ("FLOORDIV", "MOD"):
        return False
    divided, divisor = left.src
    return (
        isinstance(divisor, Const)
        and Name(divisor.name) in others
        and isinstance(divided, Var)
        and _occurrences(divided, right) <= 1
        and all([isinstance(d, Calc) and d.value in powers for d in _divisors(right)])
    )


def _is_about_powers(condition: Expr) -> TypeGuard[Apply]:
    return _is_call(condition, "is_power_of_two")


def _is_call(condition: Expr, function: str) -> TypeGuard[Apply]:
    return isinstance(condition, Apply) and condition.function == function


def _divisors(term: Term) -> list[Term]:
    """What is divided by, in a term."""
    if not isinstance(term, Node):
        return []
    own = [term.src[1]] if term.op in ("FLOORDIV", "MOD") else []
    return own + [divisor for source in term.src for divisor in _divisors(source)]


def _occurrences(part: Term, term: Term) -> int:
    below = term.src if isinstance(term, Node) else ()
    return (part == term) + sum([_occurrences(part, source) for source in below])


def _only_assumes(rule: Rule) -> bool:
    """Whether the right side is the left with constants for truths: smaller, or the same node."""
    return rule.right[0] is not None and _without_assumptions(rule.right[0]) == rule.left


def _without_assumptions(term: Term) -> Term:
    match term:
        case Instance(name, kind, _, Lit()):
            return Var(name, kind)
        case Node(op, src, kind, arg):
            return Node(op, tuple([_without_assumptions(s) for s in src]), kind, arg)
        case _:
            return term


class _Weights:
    """The weights of the terms of one rule under one measure."""

    def __init__(
        self, rule: Rule, measure: Measure, reading: Reading | None, in_size: bool = False
    ) -> None:
        self._rule = rule
        self._in_size = in_size  # what promises one of two things is less in size
        self._measure = measure
        self._reading = reading if measure in (SIZE, DEPTH) else None
        self._never_constant = _never_constant(rule)
        self._loop_free = _loop_free(rule)
        self._known: dict[Term, Polynomial] = {}
        self._used = {Var(name, "") for name in _names_in(rule.right[0])}
        for extractor in rule.extractors:
            self._keep_promise(extractor)

    def difference(self) -> Polynomial:
        """The weight of the left side minus that of the right."""
        right = self._rule.right[0]
        assert right is not None
        return add(self._of(self._rule.left), scale(self._of(right), -1))

    def _keep_promise(self, extractor: Extractor) -> None:
        """What an extractor takes apart weighs as much as what it promises of its parts, or more."""
        whole = extractor.inputs[0]  # other inputs say how it is taken apart
        if not isinstance(whole, Var | Node):
            return
        names = dict(
            zip([name for name, _ in CONTRACTS[extractor.function].outputs], extractor.outputs)
        )
        used = {name for name, (own, _) in names.items() if Var(own, "") in self._used}
        for promise in PROMISES[extractor.function]:
            if used and used <= set(promise.times):
                slack = variable(f"more than {extractor.function}", 0)
                weights = [
                    scale(self._of(Var(names[name][0], whole.type)), self._times(times))
                    for name, times in promise.times.items()
                ]
                less = number(_promised(promise, self._measure, self._in_size))
                self._known[whole] = add(slack, less, *weights)
                return

    def _times(self, times: int) -> int:
        """How often a part counts: what stood in a division is 8 times as heavy in two measures."""
        return times if self._reading is None else 1

    def _of(self, term: Term) -> Polynomial:
        if term in self._known:
            return self._known[term]
        match term:
            case _ if self._reading is not None and self._reading.is_index(term):
                return self._of_index_term(term, self._reading)
            case Var(name, _) if self._measure is LOOPS and name in self._loop_free:
                return {}
            case Var(name, _):
                measure = self._measure
                least = measure.least if name in self._never_constant else measure.constant
                return variable(name, least)
            case Const() | Lit() | Calc():
                return number(self._measure.constant)
            case Instance(name, _, _, value):
                # as many loops as the variable has, if its value has none; else who knows
                same = self._measure is LOOPS and not self._of(value)
                return variable(name if same else f"{name} at any position", 0)
            case Node(op, src, kind):
                op = _cast_name(src[0].type, kind) if op == "CAST" else op
                loops = [s for s in src if isinstance(s, Var) and s.type in ("range", "ranges")]
                weight = self._measure.of(op, [self._of(s) for s in src if s not in loops])
                if self._reading is not None and self._reading.reads_index(term):
                    made = MAKES if op == "CAST_FROM_INDEX" else 0
                    weight = add(number(READS + made), *[self._of(s) for s in src])
                return add(weight, *map(_count, loops)) if self._measure is LOOPS else weight

    def _of_index_term(self, term: Term, reading: Reading) -> Polynomial:
        """What an index term weighs beside sums in normal form: as a sum, what its atoms weigh."""
        match term:
            case _ if reading.is_number(term):
                return {}
            case Var(name, _):
                return variable(name, int(name in self._never_constant | reading.never_numbers))
            case Node(op, src, _) if op in SUM_OPS:
                return add(*[self._of(source) for source in src])
            case Node("MULACC", src, _):
                return add(number(1), *[self._of(source) for source in src])
            case Node(op, src, kind):
                op = _cast_name(src[0].type, kind) if op == "CAST" else op
                weight = self._measure.of(op, [self._of(source) for source in src])
                return weight if op == "CAST_TO_INDEX" else add(number(CHOOSES), weight)
            case _:
                return variable(f"{term!r}", 0)


def _promised(promise: Promise, measure: Measure, in_size: bool) -> int:
    """By how much what an extractor finds is less in a measure."""
    is_other = in_size and promise.or_less_size is not None
    if measure is SIZE:
        return (promise.or_less_size if is_other else promise.less_size) or 0
    return promise.less if measure is LOAD and not is_other else 0


def _cast_name(source: str, target: str) -> str:
    """What the measures call a cast between two types of a rule."""
    if target in _CODES:
        if source in _CODES:
            return "CODE_TO_CODE"
        return "CAST_OF_CODE" if source in ("float32", "float64") else "NUMBER_TO_CODE"
    if source in _CODES:
        return "CAST_OF_CODE"
    if target == "index":
        return "CAST_TO_INDEX"
    return "CAST_FROM_INDEX" if source == "index" else "CAST"


def _names_in(term: Term | None) -> set[str]:
    """The variables of a right side that are terms; numbers weigh nothing that an extractor could say."""
    match term:
        case Var(name, _):
            return {name}
        case Instance(_, _, _, value):
            return _names_in(value)
        case Node(_, src):
            return {name for source in src for name in _names_in(source)}
        case _:
            return set()


def _count(loops: Var) -> Polynomial:
    """One loop, or the number of loops that a name stands for."""
    return number(1) if loops.type == "range" else variable(f"loops {loops.name}", 0)


def _loop_free(rule: Rule) -> set[str]:
    """Variables in which there is no reduction."""
    return {
        term.name
        for condition in (*rule.where, *rule.when)
        if isinstance(condition, Apply) and condition.function == "loop_free"
        for term in [getattr(condition.args[0], "term", None)]
        if isinstance(term, Var)
    }


def _never_constant(rule: Rule) -> set[str]:
    """Variables that are surely not constants: the whole left side, or those with lo != hi."""
    names = {rule.left.name} if isinstance(rule.left, Var) else set()
    for condition in (*rule.where, *rule.when):
        match condition:
            case Apply("!=", (Apply("lo", (Fact(Var(a, _)),)), Apply("hi", (Fact(Var(b, _)),)))):
                names |= {a} if a == b else set()
    return names


def _reason(rule: Rule, rules: Sequence[Rule]) -> str:
    partner = next((r for r in rules if r is not rule and _undoes(rule, r)), None)
    if partner is not None:
        return (
            f"rule {rule.name!r} undoes rule {partner.name!r} of line {partner.line}: together they"
            " never end; keep one of them"
        )
    return (
        f"rule {rule.name!r} does not go down: its right side is not smaller than its left in the"
        " order of rules/README.md, so rewriting may not end; turn it round or leave it out"
    )


def _undoes(rule: Rule, other: Rule) -> bool:
    if other.kind is not RuleKind.REWRITE or other.right[0] is None or rule.right[0] is None:
        return False
    renaming: dict[str, str] = {}
    return _same(rule.left, other.right[0], renaming) and _same(rule.right[0], other.left, renaming)


def _same(a: Term, b: Term, renaming: dict[str, str]) -> bool:
    """Equal but for the names of variables; all constants are alike."""
    match a, b:
        case (Var(x, _), Var(y, _)):
            return renaming.setdefault(x, y) == y
        case ((Const() | Lit() | Calc()), (Const() | Lit() | Calc())):
            return True
        case (Node(op, src, _), Node(other_op, other_src, _)):
            return (
                op == other_op
                and len(src) == len(other_src)
                and all([_same(s, t, renaming) for s, t in zip(src, other_src)])
            )
        case _:
            return False
