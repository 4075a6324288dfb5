"""What a refuted rule lacks: the weakest condition of a closed list with which it is proved.

Owns: the list of conditions, the order in which they are tried, the time that the search may take.
Does not own: proofs (portfolio.py), what the engine makes of instances (agreement/), values of rules (sample/rules.py).

A choice of values at which the rule fails rules out every condition that allows it. Among those left,
the one that allows the most choices counts as the weakest and is tried first; a proof that fails
gives one more such choice. First single conditions, then other domains, then pairs of conditions.
A rule is hinted at only if it would be admitted: its cases are proved, and the engine does what was proved.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.rewrite.functions import DOMAIN_TYPES
from proofgrad.core.rewrite.rule import (
    LOOSE_CLASSES,
    Apply,
    Calc,
    Const,
    Expr,
    Fact,
    Lit,
    Name,
    Node,
    Num,
    Rule,
    Var,
)
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.agreement.agree import agreement
from proofgrad.verify.dsl.show import show_term
from proofgrad.verify.encode.types import Case, cases
from proofgrad.verify.prove.case import can_fire, decide
from proofgrad.verify.prove.portfolio import attempts
from proofgrad.verify.prove.rules import Result
from proofgrad.verify.prove.solve import PROVED
from proofgrad.verify.prove.workers import end_with, process_context
from proofgrad.verify.sample.rules import (
    NotFiring,
    Outcome,
    Trial,
    attempt,
    can_sample,
    smallest_first,
)

SECONDS = 15.0  # of the processor
BY_THE_CLOCK = 2  # so many times as many at most
MOST_CHOICES = 1_500
# The looser the later. Those of floats hold where FASTMATH asks for them.
OTHER_DOMAINS = {"int": ("index", "unsigned", "signed"), "float": ("nsz", "finite", "real")}


@dataclass(frozen=True, slots=True)
class Repair:
    """A change of a rule, and how it is told. `fits`: computed constants must fit their type."""

    text: str
    where: tuple[Expr, ...] = ()
    fits: bool = False
    domain: str = ""

    def of(self, rule: Rule) -> Rule:
        """The changed rule."""
        right = (
            tuple([t if t is None else _fitted(t) for t in rule.right]) if self.fits else rule.right
        )
        domains = (self.domain,) if self.domain else rule.domains
        return replace(rule, where=rule.where + self.where, right=right, domains=domains)


def hint(result: Result, seconds: float = SECONDS) -> str:
    """With what a refuted rule would be right, or that nothing was found; "" if that is not asked.

    The search runs in a process of its own, which ends after `seconds` of the processor whatever the solver does, so
    that a busy machine finds the same; after some times as many by the clock, it ends all the same.
    """
    failed = result.refutation
    if failed is None or failed.decision.outcome is None or not can_sample(result.rule):
        return ""
    context = process_context()
    receiver, sender = context.Pipe(duplex=False)
    search = context.Process(
        target=_search,
        args=(failed.case, failed.decision.outcome, sender, os.getpid(), seconds),
        daemon=True,
    )
    search.start()
    sender.close()
    try:
        return _told(receiver, search, seconds)
    finally:
        search.kill()
        search.join()


def _told(receiver: Connection, search: BaseProcess, seconds: float) -> str:
    late = f"no missing condition was found in {seconds:g} s; the search gave up"
    if not receiver.poll(BY_THE_CLOCK * seconds):
        return late
    try:
        found = receiver.recv()
    except EOFError:
        search.join()
        is_late = hasattr(signal, "SIGPROF") and search.exitcode == -signal.SIGPROF
        return late if is_late else "the search for a missing condition broke off"
    if found is None:
        return "with none of the conditions that are tried, nor two of them, it would be right; others may do"
    return f"would be right with: {found}"


def _search(case: Case, outcome: Outcome, sender: Connection, parent: int, seconds: float) -> None:
    end_with(parent)
    if hasattr(signal, "setitimer"):  # where the system counts seconds of the processor
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
    repair = find_repair(case, outcome)
    sender.send(None if repair is None else repair.text)


def find_repair(case: Case, outcome: Outcome) -> Repair | None:
    """The first repair, the weakest first, with which the rule of `case` is proved."""
    rule = case.rule
    search = _Search(case, outcome)
    single = list(_conditions(case))
    found = search.first(single)
    if found is None:
        found = next((r for r in _domains(rule) if _is_admitted(r.of(rule))), None)
    if found is None:
        pairs = combinations(single, 2)
        found = search.first([_both(a, b) for a, b in pairs if not _are_equality(a, b)])
    return found


def _are_equality(a: Repair, b: Repair) -> bool:
    """Whether two conditions, as x <= c and c <= x, leave one value: with it another rule would be right, and not this one."""
    ends = [repair.text.removeprefix("where ").split(" <= ") for repair in (a, b)]
    return len(ends[0]) == 2 and ends[0] == ends[1][::-1]


# -- the search ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Choice:
    """Values at which the rule fires, and whether its sides differ there."""

    case: Case
    outcome: Outcome


class _Search:
    def __init__(self, case: Case, known: Outcome) -> None:
        self._rule = case.rule
        tried = [attempt(case, values) for values in smallest_first(case, MOST_CHOICES)]
        outcomes = [known, *[outcome for outcome in tried if outcome is not None]]
        self._choices = [_Choice(case, outcome) for outcome in outcomes]
        self._allowed: dict[Repair, list[bool]] = {}

    def first(self, repairs: Iterable[Repair]) -> Repair | None:
        """The repair that is proved and allows the most choices."""
        left = list(repairs)
        while True:
            counts = {repair: self._count(repair) for repair in left}
            left = [repair for repair in left if counts[repair] > 0]
            if not left:
                return None
            weakest = max(left, key=counts.__getitem__)
            if self._proves(weakest):
                return weakest
            left.remove(weakest)

    def _count(self, repair: Repair) -> int:
        """How many choices are allowed; 0 if one of them is a failing one."""
        allowed = self._choices_allowed(repair)
        chosen = [choice for choice, is_allowed in zip(self._choices, allowed) if is_allowed]
        return 0 if any(choice.outcome.differs for choice in chosen) else len(chosen)

    def _choices_allowed(self, repair: Repair) -> list[bool]:
        known = self._allowed.setdefault(repair, [])
        for choice in self._choices[len(known) :]:
            known.append(_allows(repair, choice))
        return known

    def _proves(self, repair: Repair) -> bool:
        rule = repair.of(self._rule)
        for case in cases(rule):
            decision = decide(case, attempts(case))
            if decision.outcome is not None:
                self._choices.append(_Choice(replace(case, rule=self._rule), decision.outcome))
            if decision.verdict != PROVED:
                return False
        return _is_executed_so(rule)


def _is_admitted(rule: Rule) -> bool:
    every = list(cases(rule))
    is_proved = bool(every) and all(decide(c, attempts(c)).verdict == PROVED for c in every)
    return is_proved and _is_executed_so(rule)


def _is_executed_so(rule: Rule) -> bool:
    """Whether a rule whose cases are proved can fire, and the engine does on instances what was proved."""
    can = any(can_fire(case, attempts(case)) for case in cases(rule))
    return can and agreement(rule).is_met


def _allows(repair: Repair, choice: _Choice) -> bool:
    outcome = choice.outcome
    trial = Trial(choice.case, outcome.values, outcome.bounds)
    try:
        allowed = all(trial.number(condition) for condition in repair.where)
    except (NotFiring, OverflowError, TypeError):
        return False
    if not allowed or not repair.fits:
        return allowed
    fitted = replace(choice.case, rule=repair.of(choice.case.rule))
    return attempt(fitted, outcome.values, outcome.bounds) is not None


# -- the list ------------------------------------------------------------------------------------


def _conditions(case: Case) -> Iterator[Repair]:
    """Single conditions on the names of the left side; the more usual first."""
    variables, constants, floats = _names(case)
    for c in constants:
        yield from _where(f"{c.name} != 0", Apply("!=", (Name(c.name), Num(0))))
        yield from _where(f"{c.name} >= 0", Apply("<=", (Num(0), Name(c.name))))
        yield from _where(f"{c.name} > 0", Apply("<", (Num(0), Name(c.name))))
        yield from _where(f"{c.name} < 0", Apply("<", (Name(c.name), Num(0))))
    for x in floats:
        for fact in ("not_nan", "finite"):
            yield from _where(f"{fact}({x.name})", Apply(fact, (Fact(x),)))
    for x in variables:
        yield from _where(f"0 <= {x.name}", Apply("<=", (Num(0), _low(x))))
        yield from _where(f"0 < {x.name}", Apply("<", (Num(0), _low(x))))
        yield from _where(f"{x.name} < 0", Apply("<", (_high(x), Num(0))))
        yield from _ends(x, case.dtype(x.type))
    for c, d in permutations(constants, 2):
        yield from _where(f"divides({c.name}, {d.name})", _of("divides", c, d))
        yield from _where(f"{c.name} <= {d.name}", _of("<=", c, d))
        yield from _where(f"{c.name} < {d.name}", _of("<", c, d))
    for c, d in combinations(constants, 2):
        yield from _where(f"{c.name} != {d.name}", _of("!=", c, d))
    others: list[Const | Var] = [*constants, *variables]
    for x, y in [(x, y) for x in variables for y in others if x != y]:
        low, high = (Name(y.name),) * 2 if isinstance(y, Const) else (_low(y), _high(y))
        yield from _where(f"{x.name} <= {y.name}", Apply("<=", (_high(x), low)))
        yield from _where(f"{x.name} < {y.name}", Apply("<", (_high(x), low)))
        if isinstance(y, Const):
            yield from _where(f"{y.name} <= {x.name}", Apply("<=", (high, _low(x))))
            yield from _where(f"{y.name} < {x.name}", Apply("<", (high, _low(x))))
    wrapped = [term for right in case.rule.right for term in _parts(right) if _fitted_number(term)]
    if wrapped:
        texts = ", ".join([show_term(term) for term in wrapped])
        yield Repair(f"{texts.replace('wrap: ', '')} in place of {texts}", fits=True)


def _ends(x: Var, dtype: DType) -> Iterator[Repair]:
    """That x is not the last number of its type, or the first of a type with negative ones."""
    end = Name(x.type)
    if dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
        yield from _where(
            f"{x.name} < largest({x.type})", Apply("<", (_high(x), Apply("largest", (end,))))
        )
    if dtype.kind is Kind.SIGNED:
        yield from _where(
            f"least({x.type}) < {x.name}", Apply("<", (Apply("least", (end,)), _low(x)))
        )


def _domains(rule: Rule) -> Iterator[Repair]:
    for stated, others in OTHER_DOMAINS.items():
        for domain in others if _is_of(rule, stated) else ():
            if domain in LOOSE_CLASSES or not _includes(domain, rule.domains):
                with_what = f", for FASTMATH={domain}" if domain in LOOSE_CLASSES else ""
                yield Repair(f"over {domain}{with_what}", domain=domain)


def _is_of(rule: Rule, stated: str) -> bool:
    """Whether a rule is over this domain, or types of it. What floats may lose is lost already in the classes of FASTMATH."""
    return any([d not in LOOSE_CLASSES and _includes(stated, (d,)) for d in rule.domains])


def _includes(domain: str, others: Sequence[str]) -> bool:
    """Whether every type of the others is one of this domain."""
    types = DOMAIN_TYPES[domain]
    return all([dtype in types for other in others for dtype in DOMAIN_TYPES.get(other, (None,))])


def _both(a: Repair, b: Repair) -> Repair:
    if a.fits:
        a, b = b, a
    joined = f"{a.text}, and {b.text}" if b.fits else f"{a.text}, {b.text.removeprefix('where ')}"
    return Repair(joined, a.where + b.where, a.fits or b.fits)


def _where(text: str, condition: Expr) -> Iterator[Repair]:
    yield Repair(f"where {text}", (condition,))


def _of(function: str, c: Const, d: Const) -> Expr:
    return Apply(function, (Name(c.name), Name(d.name)))


def _low(x: Var) -> Expr:
    return Apply("lo", (Fact(x),))


def _high(x: Var) -> Expr:
    return Apply("hi", (Fact(x),))


def _names(case: Case) -> tuple[list[Var], list[Const], list[Var | Const]]:
    """The integer variables, the number constants and all float names of the left side."""
    variables: list[Var] = []
    constants: list[Const] = []
    floats: list[Var | Const] = []
    for term in dict.fromkeys(_parts(case.rule.left)):
        if not isinstance(term, Var | Const) or term.type in ("range", "ranges"):
            continue
        dtype = case.dtype(term.type)
        if dtype.is_float:
            floats.append(term)
        if isinstance(term, Const) and not dtype.is_bool:
            constants.append(term)
        elif isinstance(term, Var) and dtype.is_int:
            variables.append(term)
    return variables, constants, floats


def _parts(term: RuleTerm | None) -> list[RuleTerm]:
    if not isinstance(term, Node):
        return [] if term is None else [term]
    return [term, *[part for source in term.src for part in _parts(source)]]


def _fitted(term: RuleTerm) -> RuleTerm:
    """The term with constants that must fit instead of wrapping."""
    number = _fitted_number(term)
    if isinstance(term, Calc) and number is not None:
        return replace(term, value=number, mode="exact")
    if isinstance(term, Node):
        return replace(term, src=tuple([_fitted(source) for source in term.src]))
    return term


def _fitted_number(term: RuleTerm | None) -> Expr | None:
    """The number that a constant is if it does not wrap; None if it has no such form."""
    if not isinstance(term, Calc) or term.mode != "wrap":
        return None
    return _number_of(term.computed)


_MATHEMATICAL = {"ADD": "+", "MUL": "*", "NEG": "neg", "FLOORDIV": "//", "MOD": "%", "MAX": "max",
                 "MIN": "min", "AND": "&", "OR": "|", "XOR": "^", "SHL": "<<", "SHR": ">>"}  # fmt: skip


def _number_of(term: RuleTerm) -> Expr | None:
    """The mathematical number of a term over constants; None if there is no such function."""
    match term:
        case Const(name, _):
            return Name(name)
        case Lit(value, _):
            return Num(value)
        case Node(op, src, _) if op in _MATHEMATICAL:
            args = [_number_of(source) for source in src]
            known = tuple([arg for arg in args if arg is not None])
            return Apply(_MATHEMATICAL[op], known) if len(known) == len(args) else None
        case _:
            return None
