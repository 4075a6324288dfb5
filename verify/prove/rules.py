"""Proving rules: every case of every rule, in parallel, and one verdict a rule.

The engine runs a rule on instances before the solver is asked: that takes some hundredths of a second, and a solver may
look for the values at which a wrong rule fails for as long as it is let. Of a rule that differs on an instance values are only drawn.

Owns: the division of work, what may be taken over from an old ledger, verdicts. Does not own: how a
case is decided (prove/case.py, portfolio.py and encode/), whether the engine does what was
proved (agreement/), whether conditions are needed (prove/needed.py), processes (workers.py), files
(ledger.py), output (cli.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proofgrad.core.rewrite.rule import Apply, Calc, Rule, RuleKind
from proofgrad.core.rewrite.sorts import IllSorted, check_sorts
from proofgrad.verify.agreement.agree import agreement
from proofgrad.verify.agreement.compare import Agreement
from proofgrad.verify.agreement.library import read_facts
from proofgrad.verify.encode.types import Case, cases
from proofgrad.verify.prove.case import Decision, can_fire, decide, refuted_by_values, taken_over
from proofgrad.verify.prove.needed import UNDECIDED, UNNEEDED, Needed, is_needed
from proofgrad.verify.prove.portfolio import attempts
from proofgrad.verify.prove.shares import Shares
from proofgrad.verify.prove.solve import OPEN, PROVED, REFUTED, forget_answers
from proofgrad.verify.prove.workers import Late, TimeIsUp, Workers, process_count
from proofgrad.verify.sample.rules import can_sample

CASES_A_TASK = 6  # enough to keep processes busy, few enough to stop soon after a refutation
SOLVER = "z3: "
PROVED_VERDICT = "proved"
BUT = "the solver proves its cases, but "
NOT_DECIDED = "not decided: time was up; state it for fewer types, with numbers in place of constants, or give more with --seconds"

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
        return _first(REFUTED, self.obligations)

    @property
    def undecided(self) -> list[Needed]:
        """The conditions of which it is not known whether they are needed."""
        return [needed for needed in self.conditions if needed.verdict == UNDECIDED]

    @property
    def seconds(self) -> float:
        """The time that the solvers took for all obligations of the rule."""
        return sum(o.decision.seconds for o in self.obligations)

    @property
    def is_out_of_time(self) -> bool:
        """Whether nothing is known of the rule because the time for its file was up."""
        return self.reason == NOT_DECIDED


def prove_rules(
    rules: Sequence[Rule],
    processes: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    before: Mapping[str, Entry] | None = None,
    witness: Witness | None = None,
    on_result: Callable[[Result], None] | None = None,
    until: float | None = None,
) -> list[Result]:
    """The verdict on each rule, in the same order. `on_progress` gets cases done, cases in all.

    `before`: by full name, entries about the same rules by the same solvers. What they say of a case
    is taken over if the text of its goals is still the same.
    `witness`: gets the texts of each case that is proved anew, in the process that proved it.
    `on_result`: gets each verdict as soon as it and those on the rules before are known.
    `until`: the time, of `time.monotonic`, at which rules without a verdict are given up: they are "unknown", but
    for those of which it is known that they are wrong. Until then each gets a fair share (shares.py).

    Raises: WorkerDied.
    """
    processes = processes or process_count()
    known = before or {}
    claims = [_Claim(k, rule, known.get(rule.full_name), witness) for k, rule in enumerate(rules)]
    total = sum(len(claim.cases) for claim in claims)
    waiting = deque[_Task]([task for claim in claims for task in claim.first()])
    results: list[Result] = []

    def tell(claim: _Claim) -> None:
        results.append(claim.verdict())
        if on_result is not None:
            on_result(results[-1])

    shares, later = Shares(until, processes), list[_Task]()

    def most(task: _Task) -> float:
        return shares.left(task.number, len(claims) - len(results))

    read_facts()  # before the processes begin, so that they share them
    try:
        with Workers(processes) as workers:
            answers = workers.each_in_time(_find, waiting, _told, until, most)
            for claim in claims:
                while claim.awaited:
                    task, found = next(answers)
                    if isinstance(found, Late):
                        shares.put_off(task.number)
                        later += claims[task.number].put_off(task)
                        later += [one for one in waiting if one.number == task.number]
                        _leave_out(waiting, task.number)
                    else:
                        # What a rule lacks comes before other rules, whose verdicts are told after its own.
                        waiting.extendleft(reversed(claims[task.number].take(task, found)))
                    if not waiting:
                        waiting.extend(later)
                        later.clear()
                    if on_progress is not None:
                        on_progress(sum(len(one.found) for one in claims), total)
                tell(claim)
    except TimeIsUp:
        for claim in claims[len(results) :]:
            tell(claim)
    return results


def _leave_out(waiting: deque[_Task], number: int) -> None:
    left = [task for task in waiting if task.number != number]
    waiting.clear()
    waiting.extend(left)


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
    answers = {task.number: found for task, found in workers.each(_find, tasks, _told)}
    return [answers[position] for position in range(len(rules))]


def _otherwise(rule: Rule, found: Agreement, obligations: tuple[Obligation, ...]) -> Result | None:
    """The verdict on a rule whose cases are proved, if the engine does not do what was proved."""
    if found.is_met:
        return None
    verdict = "refuted" if found.difference else "unknown"
    return Result(rule, verdict, f"{BUT}{found.reason}", obligations, agreement=found)


# -- cases ------------------------------------------------------------------------------------------

_CaseKey = tuple[str, tuple[tuple[str, str], ...]]
_OldCases = dict[_CaseKey, Entry]


def _old_cases(entry: Entry | None) -> _OldCases:
    if entry is None:
        return {}
    return {(o["domain"], tuple(o["types"].items())): o for o in entry["obligations"]}


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Cases of one rule to decide."""

    number: int  # of the rule
    cases: list[Case]
    before: _OldCases
    witness: Witness | None


@dataclass(frozen=True, slots=True)
class _Wrong:
    """Cases of a rule that differs on an instance, of which one is to be refuted by values."""

    number: int  # of the rule
    cases: list[Case]


def _values_against(task: _Wrong) -> list[tuple[Decision, Any]]:
    """Of each case up to the first that values refute."""
    decided: list[tuple[Decision, Any]] = []
    for case in task.cases:
        decided.append((refuted_by_values(case, attempts(case)), None))
        if decided[-1][0].verdict == REFUTED:
            break
    return decided


def _decide_all(task: _Chunk) -> list[tuple[Decision, Any]]:
    """Decisions, and what the witness says; after a case that fails the others do not matter."""
    decided: list[tuple[Decision, Any]] = []
    for case in task.cases:
        decision = _decided_before(case, task.before) or decide(case, attempts(case))
        is_new = decision.verdict == PROVED and not decision.is_old
        testimony = task.witness(decision.texts) if task.witness and is_new else None
        decided.append((replace(decision, texts=()), testimony))
        if decision.verdict != PROVED:
            break
    return decided


def _decided_before(case: Case, old_cases: _OldCases) -> Decision | None:
    old = old_cases.get((case.domain, tuple([(name, dtype.name) for name, dtype in case.types])))
    if old is None:
        return None
    method = str(old["method"]).removeprefix(SOLVER)
    if not taken_over(case, attempts(case), method, old["goals"]):
        return None
    return Decision(PROVED, method, 0.0, goals=old["goals"], steps=old["steps"], is_old=True)


# -- rules ------------------------------------------------------------------------------------------


AGREES, FIRES = "the engine does what was proved", "it can fire"
_About = str | int


@dataclass(frozen=True, slots=True)
class _Question:
    """About a rule: AGREES, FIRES, or whether it needs the condition of that number."""

    number: int  # of the rule
    rule: Rule
    about: _About


_Task = _Chunk | _Wrong | _Question


class _Claim:
    """A rule on its way to a verdict. `awaited`: how many answers are missing until it is known.

    First the engine runs it on instances. If they agree its cases are decided; of a rule with proved cases is asked
    whether it can fire, and needs its conditions.
    """

    def __init__(
        self, number: int, rule: Rule, before: Entry | None, witness: Witness | None
    ) -> None:
        self.rule = rule
        self.refused = _ill_sorted(rule)
        self.cases = [] if self.refused else list(cases(rule))
        self.found: dict[Case, Obligation] = {}
        self.awaited = 0
        self._number = number
        self._before = before
        self._witness = witness
        self._answers: dict[_About, Any] = {}
        self._needed: tuple[Needed, ...] | None = (
            None  # as it was told before, where nothing changed
        )

    def first(self) -> list[_Task]:
        """What is asked first."""
        asked: list[_Task] = [self._question(AGREES)] if self.cases else []
        self.awaited = len(asked)
        return asked

    def take(self, task: _Task, answer: Any) -> list[_Task]:
        """Note an answer; gives what is to be asked because of it."""
        self.awaited -= 1
        asked: list[_Task] = []
        if isinstance(task, _Question):
            self._answers[task.about] = answer
            if task.about == AGREES:
                asked = self._after_instances(answer)
        else:
            for case, (decision, testimony) in zip(task.cases, answer):
                self.found[case] = Obligation(case, decision, testimony)
            if not self.awaited:
                asked = [self._question(about) for about in self._open_questions()]
        self.awaited += len(asked)
        return asked

    def put_off(self, task: _Task) -> list[_Task]:
        """What is to be asked again in place of a task that was not done: case by case, so that some will be."""
        if not isinstance(task, _Chunk) or len(task.cases) == 1:
            return [task]
        self.awaited += len(task.cases) - 1
        return [replace(task, cases=[case]) for case in task.cases]

    def _after_instances(self, agreed: Agreement) -> list[_Task]:
        """The cases to decide; of a rule that differs on an instance, if values can be drawn for it."""
        if agreed.difference:
            return [_Wrong(self._number, self.cases)] if can_sample(self.rule) else []
        old = _old_cases(self._before)
        starts = range(0, len(self.cases), CASES_A_TASK)
        each = [self.cases[start : start + CASES_A_TASK] for start in starts]
        return [_Chunk(self._number, chunk, old, self._witness) for chunk in each]

    def _question(self, about: _About) -> _Question:
        return _Question(self._number, self.rule, about)

    def _open_questions(self) -> list[_About]:
        decisions = [obligation.decision for obligation in self.found.values()]
        if {decision.verdict for decision in decisions} != {PROVED}:
            return []
        if all(decision.is_old for decision in decisions):
            self._needed = _conditions_told(self._before)
        return [] if self._needed is not None else [FIRES, *range(len(self.rule.where))]

    def verdict(self) -> Result:
        """What is known when no answer is awaited; while one is, that time was up."""
        if self.awaited and not self._is_wrong():
            return Result(self.rule, "unknown", NOT_DECIDED)
        if self.refused:
            return Result(self.rule, "unknown", self.refused)
        needed = self._needed
        if needed is None:
            conditions = range(len(self.rule.where))
            needed = tuple([self._answers[k] for k in conditions if k in self._answers])
        fires = self._answers.get(FIRES, True)  # as it did before, where it was not asked
        return _verdict(self.rule, self.cases, self.found, self._answers.get(AGREES), fires, needed)

    def _is_wrong(self) -> bool:
        """Whether an instance differs or a case is refuted, whatever else is asked."""
        agreed = self._answers.get(AGREES)
        decisions = [obligation.decision for obligation in self.found.values()]
        differs = agreed is not None and bool(agreed.difference)
        return differs or any([decision.verdict == REFUTED for decision in decisions])


def _conditions_told(entry: Entry | None) -> tuple[Needed, ...] | None:
    """What an old entry says of the need of conditions; None if it does not say it of each."""
    told = [] if entry is None else [Needed.from_json(one) for one in entry["conditions"]]
    undecided = any(needed.verdict == UNDECIDED for needed in told)
    return None if entry is None or undecided else tuple(told)


def _told(task: _Task) -> str:
    if not isinstance(task, _Question):
        first, *others = task.cases
        return f"{first} and {len(others)} more cases" if others else str(first)
    about = task.about
    what = about if isinstance(about, str) else f"condition {about + 1} is needed"
    return f"{task.rule.full_name} (whether {what})"


def _find(task: _Task) -> Any:
    forget_answers()
    if isinstance(task, _Chunk):
        return _decide_all(task)
    if isinstance(task, _Wrong):
        return _values_against(task)
    rule, about = task.rule, task.about
    if about == AGREES:
        return agreement(rule)
    if isinstance(about, int):
        return is_needed(rule, about)
    return not _has_conditions(rule) or any(can_fire(c, attempts(c)) for c in cases(rule))


def _verdict(
    rule: Rule,
    claimed: list[Case],
    found: Mapping[Case, Obligation],
    agreed: Agreement | None,
    fires: bool,
    needed: tuple[Needed, ...],
) -> Result:
    obligations = tuple([found[case] for case in claimed if case in found])
    if not claimed:
        return Result(rule, "unknown", "no types meet its conditions: it can never fire")
    assert agreed is not None  # the first that is asked
    failed = _first(REFUTED, obligations)
    if failed is None and agreed.difference:
        return Result(rule, "refuted", agreed.difference, obligations, agreement=agreed)
    failed = failed or _first(OPEN, obligations)
    if failed is not None:
        name = "refuted" if failed.decision.verdict == REFUTED else "unknown"
        why = f"{failed.case}: {failed.decision.reason or 'the sides differ'}"
        return Result(rule, name, why, obligations)
    if not fires:
        return Result(rule, "unknown", "no values were found that meet its conditions", obligations)
    otherwise = _otherwise(rule, agreed, obligations)
    if otherwise is not None:
        return otherwise
    for one in needed:
        if one.verdict == UNNEEDED:
            why = f"condition `{one.condition}` is not needed for soundness: drop it or mark it `when`"
            return Result(rule, "unknown", why, obligations, needed, agreed)
    return Result(rule, PROVED_VERDICT, "", obligations, needed, agreed)


def _first(verdict: str, obligations: Sequence[Obligation]) -> Obligation | None:
    return next((o for o in obligations if o.decision.verdict == verdict), None)


_ALWAYS_MET = frozenset({"independent", "loop_free"})  # by some term, whatever else is asked of it


def _has_conditions(rule: Rule) -> bool:
    """Whether there may be no values at all that a rule or a line of facts speaks of."""
    asked = [c for c in rule.where if not (isinstance(c, Apply) and c.function in _ALWAYS_MET)]
    numbers = [t for t in rule.right if isinstance(t, Calc) and t.mode == "exact"]
    return bool(asked) or (rule.kind is RuleKind.REWRITE and bool(numbers))
