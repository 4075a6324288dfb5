"""Asking solvers other than z3, bitwuzla and cvc5, about the text of an obligation.

Owns: which of them answers which text, time limits, what their answers mean. Does not own: the
texts (obligations.py), what follows from an answer (crosscheck.py).

Both are optional (`pip install proofgrad[crosscheck]`) and imported when they are asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import count

from proofgrad.verify.audit.second_steps import can_take_steps, decide_in_steps
from proofgrad.verify.prove.solve import OPEN, PROVED, REFUTED

Options = Mapping[str, str]
BITWUZLA, CVC5 = "bitwuzla", "cvc5"
FIRST_MS, LONG_MS = 200, 20_000
# Limits are numbers of steps, so that answers do not depend on how busy a machine is: of cvc5 its own, of
# bitwuzla the times that it asks whether it is to stop.
CVC5_STEPS_A_MS, BITWUZLA_STEPS_A_MS = 300, 20
LATEST = 60  # times the limit, for a step that does not end
EXTRA = "pip install 'proofgrad[crosscheck]'"

# bitwuzla reads bit-vectors, floats, arrays and functions; it has no unbounded numbers.
_NUMBERS = re.compile(r"\b(?:Int|Real|declare-sort|declare-datatypes?)\b")

# For these cvc5 has another way, which it does not take by itself.
_REAL, _FOR_ALL = re.compile(r"\bReal\b"), re.compile(r"\bforall\b")
COVERINGS, ENUMERATION = {"nl-cov": "true"}, {"enum-inst": "true"}

# cvc5 has functions of these names; in a goal each is one of which nothing is known but its premises.
_OF_CVC5 = re.compile(r"(?<=[( ])(sqrt|sin|cos)(?=[ )])")


class NoSecondSolver(RuntimeError):
    """A solver that is not installed. The message says how to install it."""


@dataclass(frozen=True, slots=True)
class Second:
    """What the solver `solver` says: a verdict of solve.py, and why it says no more."""

    verdict: str
    solver: str
    reason: str = ""


def second_versions() -> dict[str, str]:
    """The other solvers and their versions. Raises: NoSecondSolver."""
    try:
        return {name: version(name) for name in (BITWUZLA, CVC5)}
    except PackageNotFoundError as error:
        raise NoSecondSolver(f"{error.name} is not installed: {EXTRA}") from None


def ask_second(text: str) -> Second:
    """The answer of the solver that fits the text; of the other one where that one has none."""
    order = (CVC5, BITWUZLA) if _NUMBERS.search(text) else (BITWUZLA, CVC5)
    readable = order[:1] if order[0] == CVC5 else order
    reasons = []
    for solver in readable:
        answer = _first_answer(solver, text)
        if answer.verdict != OPEN:
            return answer
        reasons.append(f"{solver}: {answer.reason}")
    return Second(OPEN, readable[-1], "; ".join(reasons))


def _first_answer(solver: str, text: str) -> Second:
    """The answer of the first way that has one."""
    try:
        for verdict in _ANSWERS[solver](text):
            if verdict in (PROVED, REFUTED):
                return Second(verdict, solver)
    except (RuntimeError, ValueError) as error:
        return Second(OPEN, solver, f"unsupported ({_first_line(error)})")
    return Second(OPEN, solver, f"no answer in {LONG_MS / 1000:g} s")


def _answers_of_bitwuzla(text: str) -> Iterator[str]:
    yield _ask_bitwuzla(text, LONG_MS)


def _answers_of_cvc5(text: str) -> Iterator[str]:
    """Most goals take it milliseconds; where there is another way, that is next."""
    options, has_steps = _other_way(text), can_take_steps(text)
    if options or has_steps:
        yield _ask_cvc5(text, FIRST_MS, {})
    if has_steps:
        yield decide_in_steps(text, _ask_for_steps)
    yield _ask_cvc5(text, LONG_MS, options)


def _other_way(text: str) -> Options:
    if _FOR_ALL.search(text):
        return ENUMERATION
    return COVERINGS if _REAL.search(text) else {}


def _ask_bitwuzla(text: str, limit_ms: int) -> str:
    import bitwuzla

    options = bitwuzla.Options()
    options.set(bitwuzla.Option.TIME_LIMIT_PER, limit_ms * LATEST)
    parser = bitwuzla.Parser(bitwuzla.TermManager(), options)
    try:
        parser.parse(text, True, False)
    except bitwuzla.BitwuzlaException as error:
        raise ValueError(str(error)) from error
    solver, steps = parser.bitwuzla(), count(1)
    solver.configure_terminator(lambda: next(steps) > limit_ms * BITWUZLA_STEPS_A_MS)
    return str(solver.check_sat()).rpartition(".")[2].lower()


def _ask_cvc5(text: str, limit_ms: int, options: Options) -> str:
    return _cvc5_answers(text, limit_ms, options)[-1]


def _ask_for_steps(text: str, limit_ms: int) -> list[str]:
    """cvc5 knows nothing of a product of variables but that it is a number."""
    return _cvc5_answers(text, limit_ms, {"incremental": "true", "nl-ext": "none"})


def _cvc5_answers(text: str, limit_ms: int, options: Options) -> list[str]:
    """What cvc5 says to each `check-sat`."""
    import cvc5

    solver = cvc5.Solver(cvc5.TermManager())
    solver.setOption("rlimit-per", str(limit_ms * CVC5_STEPS_A_MS))
    solver.setOption("tlimit-per", str(limit_ms * LATEST))
    solver.setOption("fp-exp", "true")  # bfloat16 is none of the formats of IEEE
    for option, value in options.items():
        solver.setOption(option, value)
    solver.setLogic("ALL")
    parser = cvc5.InputParser(solver)
    own_names = _OF_CVC5.sub(r"\1_", text)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, own_names, "goal")
    told = []
    while not (command := parser.nextCommand()).isNull():
        if answer := str(command.invoke(solver, parser.getSymbolManager())).strip():
            told.append(answer)
    if told and told[-1].startswith("(error"):
        raise ValueError(told[-1])
    return told


_ANSWERS: dict[str, Callable[[str], Iterator[str]]] = {
    BITWUZLA: _answers_of_bitwuzla,
    CVC5: _answers_of_cvc5,
}


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:60] if lines else type(error).__name__
