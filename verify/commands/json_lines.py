"""Results as lines of JSON, one a rule or mistake: what `--json` prints, for programs that read a CI log.

Does not own: verdicts (prove/rules.py), the text for people (prove.py, explain/).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proofgrad.verify.dsl.files import RuleFileError
from proofgrad.verify.explain.counterexample import explain, smallest, values_of
from proofgrad.verify.explain.hint import SECONDS, hint
from proofgrad.verify.prove.rules import PROVED_VERDICT, Result
from proofgrad.verify.prove.workers import seconds_left


def print_result(path: Path, result: Result, until: float | None = None) -> None:
    """A rule: its verdict, and of one that is not proved the values, the explanation and the hint that people get.

    `until`: the time, of `time.monotonic`, after which values and explanations are left out.
    """
    line: dict[str, Any] = {
        "file": str(path),
        "line": result.rule.line,
        "rule": result.rule.full_name,
        "verdict": result.verdict,
        "cases": len(result.obligations),
        "seconds": round(result.seconds, 3),
    }
    left = seconds_left(until)
    if result.is_out_of_time or (result.verdict != PROVED_VERDICT and not left):
        line |= {"explanation": result.reason or "not explained: time was up", "hint": None}
    elif result.verdict != PROVED_VERDICT:
        failed = result.refutation
        if failed is not None and failed.decision.outcome is not None:
            outcome = smallest(failed.case, failed.decision.outcome)
            line["domain"] = failed.case.domain
            line["types"] = {name: dtype.name for name, dtype in failed.case.types}
            line["counterexample"] = values_of(outcome)
        line |= {"explanation": explain(result), "hint": hint(result, min(SECONDS, left)) or None}
    print(json.dumps(line), flush=True)


def print_mistakes(path: Path, error: Exception) -> None:
    """A file that cannot be read as rules: each mistake, with its position where there is one."""
    for mistake in error.mistakes if isinstance(error, RuleFileError) else (error,):
        place = {"line": getattr(mistake, "line", None), "column": getattr(mistake, "column", None)}
        reason = getattr(mistake, "reason", None)
        told = reason if isinstance(reason, str) and place["line"] else str(mistake)
        print(json.dumps({"file": str(path), **place, "error": told}), flush=True)
