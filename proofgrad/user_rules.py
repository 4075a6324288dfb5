"""`load_rules`: a user's rule file, proven first and then used by the compiler of this process.

Owns: that nothing of a file is loaded unless all of it is proven, and nothing loose that was not asked
for. Does not own: proving (verify/).
"""

from __future__ import annotations

from collections.abc import Collection
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from proofgrad.core import settings
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import LOOSE_CLASSES, RuleKind
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.library import library_names

if TYPE_CHECKING:
    from proofgrad.verify.prove.rules import Result


class UnprovenRuleError(ValueError):
    """A rule that was not proven: carries the counterexample or the reason."""


def load_rules(path: str | PathLike[str], loose: Collection[str] | None = None) -> tuple[str, ...]:
    """Prove every rule of the file, then let the compiler use them; their full names.

    All of a file is loaded, or nothing. Kernels compiled before are compiled again when needed.
    Rules that are not exact to the bit, of the classes "nsz", "finite" and "real", are refused but
    where `loose` names their class: then they are used from now on; or where FASTMATH does: then while
    it does. `explain` counts them.

    Raises: UnprovenRuleError with a smallest counterexample; ValueError with line, column and caret
    for a file that cannot be read as rules, for rules that are loose and were not asked for; OSError.

    Example:
        proofgrad.load_rules("mine.rules")
        proofgrad.load_rules("reals.rules", loose=["real"])
    """
    always = _classes(loose)
    results = prove_all(Path(path), always)
    rules = tuple([result.rule for result in results])
    name = rules[0].ruleset if rules else ""
    if name in library_names():
        raise ValueError(f"the library has a rule set {name!r}; choose another name")
    compiler().use_rules(RuleSet(name, rules, proven=True), always)
    return tuple([rule.full_name for rule in rules])


def _classes(loose: Collection[str] | None) -> frozenset[str]:
    """Raises: ValueError for what is no class of loose laws."""
    asked = frozenset([loose] if isinstance(loose, str) else loose or ())
    unknown = asked.difference(LOOSE_CLASSES)
    if unknown:
        raise ValueError(
            f"loose={sorted(map(str, asked))} names {', '.join(sorted(map(str, unknown)))}; there are"
            f" {', '.join(LOOSE_CLASSES)}"
        )
    return asked


def prove_all(path: Path, loose: Collection[str] = ()) -> list[Result]:
    """The proofs of the rules of a file, which are rewrites and all proved. Raises: as load_rules."""
    from proofgrad.verify.commands.prove import prove_file
    from proofgrad.verify.explain.counterexample import explain

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
    _refuse_loose(path, results, {*loose, *settings.fastmath()})
    return results


def _refuse_loose(path: Path, results: list[Result], asked: set[str]) -> None:
    """Raises: ValueError for rules that are not exact to the bit, of classes not asked for."""
    missing = {r.rule.full_name: r.rule.loose_classes - asked for r in results}
    named = [f"{name} ({', '.join(sorted(lacks))})" for name, lacks in missing.items() if lacks]
    if named:
        classes = sorted(frozenset().union(*missing.values()))
        raise ValueError(
            f"nothing of {path} was loaded: {', '.join(named)} is not exact to the bit. Loose laws are"
            f" asked for by name: load_rules(path, loose={classes}), or FASTMATH={','.join(classes)}"
        )
