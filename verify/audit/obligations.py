"""The obligations of a proven rule, as SMT-LIB texts.

Owns: finding the goals that decided a case again, their text and its digest. Does not own: goals
(encode/), which of them decides (portfolio.py), asking solvers.

An entry of a ledger names the types, the domain and the method of each case; they determine the
goals, whose digest it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from proofgrad.core.ir.dtypes import dtype_named
from proofgrad.core.rewrite.rule import Rule
from proofgrad.verify.encode.types import Case
from proofgrad.verify.prove import case as prove_case
from proofgrad.verify.prove.case import Attempt
from proofgrad.verify.prove.portfolio import attempts

SOLVER = "z3: "


def case_of(rule: Rule, obligation: Mapping[str, Any]) -> Case:
    """The case of an obligation of a ledger."""
    types = tuple([(name, dtype_named(dtype)) for name, dtype in obligation["types"].items()])
    return Case(rule, obligation["domain"], types)


def texts_of(rule: Rule, obligation: Mapping[str, Any]) -> list[str]:
    """The texts that are all unsatisfiable because this case holds. Raises: ValueError."""
    case = case_of(rule, obligation)
    return prove_case.texts_of(case, _attempt(case, obligation["method"].removeprefix(SOLVER)))


def _attempt(case: Case, method: str) -> Attempt:
    for attempt in attempts(case):
        if attempt.method == method and attempt.proves:
            return attempt
    raise ValueError(f"{case}: there is no method {method!r}")


def digest(text: str) -> str:
    """The digest of a text, by which proofs/crosscheck.json names it."""
    return sha256(text.encode()).hexdigest()


def evidence_digest(entry: Mapping[str, Any]) -> str:
    """Covers what determines the texts of an entry: each case, its method and its goals."""
    cases: Sequence[Mapping[str, Any]] = entry["obligations"]
    told = [
        " ".join(
            [o["domain"], o["method"], o["goals"], *[f"{n}={t}" for n, t in o["types"].items()]]
        )
        for o in cases
    ]
    return digest("\n".join(told))
