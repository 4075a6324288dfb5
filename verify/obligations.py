"""The obligations of a proven rule, as SMT-LIB texts.

Owns: finding the goals that decided a case again, their text and its digest. Does not own: goals
(the encode_ files), which of them decides (portfolio.py), asking solvers.

An entry of a ledger names the types, the domain and the method of each case; they determine the
goals. z3 orders and shares the parts of a text as they were made before, so the texts of a rule are
the same only in a process that has made no other terms (crosscheck.py sees to that).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from proofgrad.core.ir.dtypes import dtype_named
from proofgrad.core.rewrite.rule import Rule
from proofgrad.verify.encode_types import Case
from proofgrad.verify.portfolio import Attempt, _attempts
from proofgrad.verify.prove_laws import attempts_for

_SOLVER = "z3: "
_NUMBERED = re.compile(r"(\?x|\$x|\bany!|reduction#\w+_)\d+")


def case_of(rule: Rule, obligation: Mapping[str, Any]) -> Case:
    """The case of an obligation of a ledger."""
    types = tuple([(name, dtype_named(dtype)) for name, dtype in obligation["types"].items()])
    return Case(rule, obligation["domain"], types)


def texts_of(rule: Rule, obligation: Mapping[str, Any]) -> list[str]:
    """The texts that are all unsatisfiable because this case holds. Raises: ValueError."""
    case = case_of(rule, obligation)
    attempt = _attempt(case, obligation["method"].removeprefix(_SOLVER))
    return [stable(goal.text()) for goal in attempt.plan(case)]


def _attempt(case: Case, method: str) -> Attempt:
    attempts = attempts_for(case)
    for attempt in attempts if attempts is not None else _attempts(case):
        if attempt.method == method and attempt.proves:
            return attempt
    raise ValueError(f"{case}: there is no method {method!r}")


def stable(text: str) -> str:
    """The same text with each name that z3 numbered, numbered by its first place in the text."""
    numbers: dict[str, str] = {}
    return _NUMBERED.sub(lambda name: numbers.setdefault(name[0], f"{name[1]}{len(numbers)}"), text)


def digest(text: str) -> str:
    """The digest of a text, by which proofs/crosscheck.json names it."""
    return sha256(text.encode()).hexdigest()


def evidence_digest(entry: Mapping[str, Any]) -> str:
    """Covers what determines the texts of an entry: its key, and each case and method."""
    cases: Sequence[Mapping[str, Any]] = entry["obligations"]
    told = [
        " ".join([o["domain"], o["method"], *[f"{n}={t}" for n, t in o["types"].items()]])
        for o in cases
    ]
    return digest("\n".join([entry["key"], *told]))
