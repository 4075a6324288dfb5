"""Proving rules: every case of every rule, in parallel, and one verdict a rule.

Owns: the division of work, what may be taken over from an old ledger, verdicts. Does not own: how a
case is decided (prove/case.py, portfolio.py and encode/), whether the engine does what was
proved (agreement/), whether conditions are needed (prove/needed.py), processes (workers.py), files
(ledger.py), output (cli.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proofgrad.core.rewrite.rule import Apply, Calc, Rule, RuleKind
from proofgrad.core.rewrite.sorts import IllSorted, check_sorts
from proofgrad.verify.agreement.agree import agreement
from proofgrad.verify.agreement.compare import Agreement
from proofgrad.verify.agreement.library import read_facts
from proofgrad.verify.encode.types import Case, cases
from proofgrad.verify.prove.case import Decision, can_fire, decide, taken_over
from proofgrad.verify.prove.needed import UNDECIDED, UNNEEDED, Needed, is_needed
from proofgrad.verify.prove.portfolio import attempts
from proofgrad.verify.prove.solve import OPEN, PROVED, REFUTED, forget_answers
from proofgrad.verify.prove.workers import Workers, process_count

CASES_A_TASK = 6  # enough to keep processes busy, few enough to stop soon after a refutation
SOLVER = "z3: "
PROVED_VERDICT = "proved"
BUT = "the solver proves its cases, but "

Entry = Mapping[str, Any]  # of a ledger
Witness = Callable[[Sequence[str]], Any]  # says something of the texts of a case that is proved


@dataclass(frozen=True, slots=True)
class Obligation:
    """One case of a rule, how it was decided, and what a witness says of the texts."""

    case: Case
    decision: Decision
    testimony: Any = None

    def to_json(self) -> dict[str, Any]:
        """The form that the ledger stores; the same on every machine."""
        return {
            "types": {name: dtype.name for name, dtype in self.case.types},
            "domain": self.case.domain,
            "method": f"{SOLVER}{self.decision.method}",
            "goals": self.decision.goals,
            "steps": self.decision.steps,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on a rule: "proved", "refuted" or "unknown".

    `conditions`: what is known of the need of each condition, where all cases are proved.
    `agreement`: what the engine made of instances, likewise.
    """

    rule: Rule
    verdict: str
    reason: str = ""
    obligations: tuple[Obligation, ...] = field(default=())
    conditions: tuple[Needed, ...] = field(default=())
    agreement: Agreement | None = None

    @property
    def refutation(self) -> Obligation | None:
        """The first case that fails."""
        failed = [o for o in self.obligations if o.decision.verdict == REFUTED]
        return failed[0] if failed else None

    @property
    def undecided(self) -> list[Needed]:
        """The conditions of which it is not known whether they are needed."""
        return [needed for needed in self.conditions if needed.verdict == UNDECIDED]

    @property
    def seconds(self) -> float:
        """The time that the solvers took for all obligations of the rule."""
        return sum(o.decision.seconds for o in self.obligations)


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left to say of a rule when its cases are proved."""

    fires: bool
    conditions: tuple[Needed, ...]
    agreement: Agreement


def prove_rules(
    rules: Sequence[Rule],
    processes: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    before: Mapping[str, Entry] | None = None,
    witness: Witness | None = None,
) -> list[Result]:
    """The verdict on each rule, in the same order. `on_progress` gets cases done, cases in all.

    `before`: by full name, entries about the same rules by the same solvers. What they say of a case
    is taken over if the text of its goals is still the same.
    `witness`: gets the texts of each case that is proved anew, in the process that proved it.

    Raises: WorkerDied.
    """
    known = before or {}
    refused = {rule: reason for rule in rules for reason in [_ill_sorted(rule)] if reason}
    work = {rule: [] if rule in refused else list(cases(rule)) for rule in rules}
    chunks = [(rule, chunk) for rule in rules for chunk in _chunks(work[rule])]
    tasks = [
        _Chunk(position, chunk, _old_cases(known.get(rule.full_name)), witness)
        for position, (rule, chunk) in enumerate(chunks)
    ]
    found: dict[Case, Obligation] = {}
    total = sum(len(chunk) for _, chunk in chunks)
    read_facts()  # before the processes begin, so that they share them
    with Workers(processes or process_count()) as workers:
        for position, decided in workers.each(_decide_all, tasks, _chunk_told):
            for case, (decision, testimony) in zip(tasks[position].cases, decided):
                found[case] = Obligation(case, decision, testimony)
            if on_progress is not None:
                on_progress(len(found), total)
        asked = [rule for rule in rules if rule not in refused]
        rest = _say_rest(workers, asked, work, found, known)
        tried = _try_open(workers, asked, work, found)
    return [
        Result(rule, "unknown", refused[rule])
        if rule in refused
        else _verdict(rule, work[rule], found, rest.get(rule), tried.get(rule))
        for rule in rules
    ]


def _ill_sorted(rule: Rule) -> str:
    """Why a rule says nothing, since its parts do not fit together; else nothing."""
    try:
        check_sorts(rule)
    except IllSorted as error:
        return f"it is not well formed: {error}"
    return ""


def run_rules(rules: Sequence[Rule], processes: int | None = None) -> list[Result]:
    """What the engine makes of instances of rules that are proved, in the same order.

    A result is "proved", without cases, if both sides agree. Raises: WorkerDied.
    """
    read_facts()
    with Workers(processes or process_count()) as workers:
        answers = _agreements(workers, rules)
    return [
        _otherwise(rule, found, ()) or Result(rule, PROVED_VERDICT, agreement=found)
        for rule, found in zip(rules, answers)
    ]


def _agreements(workers: Workers, rules: Sequence[Rule]) -> list[Agreement]:
    """What the engine makes of instances of each rule, in the same order."""
    tasks = [_Question(position, rule, AGREES) for position, rule in enumerate(rules)]
    answers = dict(workers.each(_answer, tasks, _question_told))
    return [answers[position] for position in range(len(rules))]


def _try_open(
    workers: Workers,
    rules: Sequence[Rule],
    work: Mapping[Rule, list[Case]],
    found: Mapping[Case, Obligation],
) -> dict[Rule, Agreement]:
    """What the engine makes of instances of rules that were neither proved nor refuted.

    Most wrong laws of tensors and loops show there, where the solver finds no values.
    """
    verdicts = {r: [found[c].decision.verdict for c in work[r] if c in found] for r in rules}
    open_ones = [r for r in rules if OPEN in verdicts[r] and REFUTED not in verdicts[r]]
    return dict(zip(open_ones, _agreements(workers, open_ones)))


def _otherwise(rule: Rule, found: Agreement, obligations: tuple[Obligation, ...]) -> Result | None:
    """The verdict on a rule whose cases are proved, if the engine does not do what was proved."""
    if found.is_met:
        return None
    verdict = "refuted" if found.difference else "unknown"
    return Result(rule, verdict, f"{BUT}{found.reason}", obligations, agreement=found)


def _chunks(items: list[Case]) -> Iterator[list[Case]]:
    for start in range(0, len(items), CASES_A_TASK):
        yield items[start : start + CASES_A_TASK]


# -- cases ------------------------------------------------------------------------------------------

_CaseKey = tuple[str, tuple[tuple[str, str], ...]]
_OldCases = dict[_CaseKey, Entry]


def _old_cases(entry: Entry | None) -> _OldCases:
    if entry is None:
        return {}
    return {(o["domain"], tuple(o["types"].items())): o for o in entry["obligations"]}


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Cases of one rule to decide. Answers come with the position of their task.

    A rule that another process sends back would not do: with a NaN in it, it is not equal to ours.
    """

    position: int
    cases: list[Case]
    before: _OldCases
    witness: Witness | None = None


def _chunk_told(task: _Chunk) -> str:
    first, *others = task.cases
    return f"{first} and {len(others)} more cases" if others else str(first)


def _decide_all(task: _Chunk) -> tuple[int, list[tuple[Decision, Any]]]:
    """Decisions, and what the witness says; after a case that fails the others do not matter."""
    decided: list[tuple[Decision, Any]] = []
    forget_answers()
    for case in task.cases:
        decision = _decided_before(case, task.before) or decide(case, attempts(case))
        is_new = decision.verdict == PROVED and not decision.is_old
        testimony = task.witness(decision.texts) if task.witness and is_new else None
        decided.append((replace(decision, texts=()), testimony))
        if decision.verdict != PROVED:
            break
    return task.position, decided


def _decided_before(case: Case, old_cases: _OldCases) -> Decision | None:
    old = old_cases.get((case.domain, tuple([(name, dtype.name) for name, dtype in case.types])))
    if old is None:
        return None
    method = str(old["method"]).removeprefix(SOLVER)
    if not taken_over(case, attempts(case), method, old["goals"]):
        return None
    return Decision(PROVED, method, 0.0, goals=old["goals"], steps=old["steps"], is_old=True)


# -- rules ------------------------------------------------------------------------------------------


def _say_rest(
    workers: Workers,
    rules: Sequence[Rule],
    work: Mapping[Rule, list[Case]],
    found: Mapping[Case, Obligation],
    known: Mapping[str, Entry],
) -> dict[Rule, _Rest]:
    """Of the rules with proved cases: whether they can fire, need their conditions, and do what was proved."""
    told: dict[Rule, tuple[Needed, ...] | None] = {}
    tasks: list[_Question] = []
    for rule in rules:
        decisions = [found[case].decision for case in work[rule] if case in found]
        if len(decisions) < len(work[rule]) or any(d.verdict != PROVED for d in decisions):
            continue
        before = _conditions_told(known.get(rule.full_name))
        told[rule] = before if all(d.is_old for d in decisions) else None
        tasks.append(_Question(len(tasks), rule, AGREES))
        if told[rule] is None:
            tasks.append(_Question(len(tasks), rule, FIRES))
            tasks += [_Question(len(tasks) + k, rule, k) for k in range(len(rule.where))]
    positions = {(task.rule, task.about): task.position for task in tasks}
    answers = dict(workers.each(_answer, tasks, _question_told))
    rest: dict[Rule, _Rest] = {}
    for rule, needed in told.items():
        fires = needed is not None or answers[positions[rule, FIRES]]
        if needed is None:
            needed = tuple([answers[positions[rule, k]] for k in range(len(rule.where))])
        rest[rule] = _Rest(fires, needed, answers[positions[rule, AGREES]])
    return rest


AGREES, FIRES = "the engine does what was proved", "it can fire"


@dataclass(frozen=True, slots=True)
class _Question:
    """About a rule: AGREES, FIRES, or whether it needs the condition of that number."""

    position: int
    rule: Rule
    about: str | int


def _conditions_told(entry: Entry | None) -> tuple[Needed, ...] | None:
    """What an old entry says of the need of conditions; None if it does not say it of each."""
    told = [] if entry is None else [Needed.from_json(one) for one in entry["conditions"]]
    undecided = any(needed.verdict == UNDECIDED for needed in told)
    return None if entry is None or undecided else tuple(told)


def _question_told(task: _Question) -> str:
    about = task.about
    what = about if isinstance(about, str) else f"condition {about + 1} is needed"
    return f"{task.rule.full_name} (whether {what})"


def _answer(task: _Question) -> tuple[int, Any]:
    rule, about = task.rule, task.about
    forget_answers()
    if about == AGREES:
        return task.position, agreement(rule)
    if isinstance(about, int):
        return task.position, is_needed(rule, about)
    fires = not _has_conditions(rule) or any(can_fire(c, attempts(c)) for c in cases(rule))
    return task.position, fires


def _verdict(
    rule: Rule,
    claimed: list[Case],
    found: Mapping[Case, Obligation],
    rest: _Rest | None,
    tried: Agreement | None,
) -> Result:
    obligations = tuple([found[case] for case in claimed if case in found])
    if not claimed:
        return Result(rule, "unknown", "no types meet its conditions: it can never fire")
    for verdict, name in ((REFUTED, "refuted"), (OPEN, "unknown")):
        for obligation in obligations:
            if obligation.decision.verdict == verdict:
                why = f"{obligation.case}: {obligation.decision.reason or 'the sides differ'}"
                if tried is not None and tried.difference:
                    why = f"{tried.difference}\n  (the solver leaves it open, {why})"
                    return Result(rule, "refuted", f"over {why}", obligations, agreement=tried)
                return Result(rule, name, why, obligations)
    assert rest is not None
    if not rest.fires:
        return Result(rule, "unknown", "no values were found that meet its conditions", obligations)
    otherwise = _otherwise(rule, rest.agreement, obligations)
    if otherwise is not None:
        return otherwise
    for needed in rest.conditions:
        if needed.verdict == UNNEEDED:
            why = (
                f"condition `{needed.condition}` is not needed for soundness: drop it or mark it"
                " `when`"
            )
            return Result(rule, "unknown", why, obligations, rest.conditions, rest.agreement)
    return Result(rule, PROVED_VERDICT, "", obligations, rest.conditions, rest.agreement)


_ALWAYS_MET = frozenset({"independent", "loop_free"})  # by some term, whatever else is asked of it


def _has_conditions(rule: Rule) -> bool:
    """Whether there may be no values at all that a rule or a line of facts speaks of."""
    asked = [c for c in rule.where if not (isinstance(c, Apply) and c.function in _ALWAYS_MET)]
    numbers = [t for t in rule.right if isinstance(t, Calc) and t.mode == "exact"]
    return bool(asked) or (rule.kind is RuleKind.REWRITE and bool(numbers))
