"""`load_rules`: a user's rule file, proven first and then used by the compiler of this process.

Owns: that nothing of a file is loaded unless all of it is proven. Does not own: proving (verify/).
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import RuleKind
from proofgrad.core.tensor.realize import compiler

if TYPE_CHECKING:
    from proofgrad.verify.prove import Result


class UnprovenRuleError(ValueError):
    """A rule that was not proven: carries the counterexample or the reason."""


def load_rules(path: str | PathLike[str]) -> tuple[str, ...]:
    """Prove every rule of the file, then let the compiler use them; their full names.

    All of a file is loaded, or nothing. Kernels compiled before are compiled again when needed.

    Raises: UnprovenRuleError with a smallest counterexample; ValueError with line, column and caret
    for a file that cannot be read as rules; OSError.

    Example:
        proofgrad.load_rules("mine.rules")
    """
    results = prove_all(Path(path))
    rules = tuple([result.rule for result in results])
    compiler().use_rules(RuleSet(rules[0].ruleset if rules else "", rules, proven=True))
    return tuple([rule.full_name for rule in rules])


def prove_all(path: Path) -> list[Result]:
    """The proofs of the rules of a file, which are rewrites and all proved. Raises: as load_rules."""
    from proofgrad.verify.commands import prove_file
    from proofgrad.verify.counterexample import explain

    results = prove_file(path)
    failed = [result for result in results if result.verdict != "proved"]
    if failed:
        reasons = "\n\n".join(explain(result) for result in failed)
        raise UnprovenRuleError(f"nothing of {path} was loaded:\n{reasons}")
    other = [r.rule.full_name for r in results if r.rule.kind is not RuleKind.REWRITE]
    if other:
        raise ValueError(
            f"nothing of {path} was loaded: {', '.join(other)} is not a rewrite; bounds and"
            f" cotangents belong to the files in rules/"
        )
    return results
