"""`load_rules`: a user's rule file, proven first and then used by the compiler of this process.

Owns: that nothing of a file is loaded unless all of it is proven, and nothing loose that was not asked
for. Does not own: proving (verify/), what is kept of proofs (kept_proofs.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from proofgrad.core import settings
from proofgrad.core.messages import warn
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import LOOSE_CLASSES, Rule, RuleKind
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.kept_proofs import keep, kept_rules
from proofgrad.rules.library import library_names

if TYPE_CHECKING:
    from proofgrad.verify.prove.rules import Result


class UnprovenRuleError(ValueError):
    """A rule that was not proven: carries the counterexample or the reason."""


def load_rules(path: str | PathLike[str], loose: Collection[str] | None = None) -> tuple[str, ...]:
    """Prove every rule of the file, then let the compiler use them; their full names.

    All of a file is loaded, or nothing. Kernels compiled before are compiled again when needed. Proofs are kept in
    the cache folder, for the very bytes of the file. A set that was loaded before is replaced by one of its name.
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
    file = Path(path)
    source = file.read_bytes()
    rules = kept_rules(source)
    if rules is None:
        results = _proven(file, source)
        rules = tuple([result.rule for result in results])
        keep(source, results) if results else None
    _refuse_others(file, rules, {*always, *settings.fastmath()})
    name = rules[0].ruleset if rules else ""
    if name in library_names():
        raise ValueError(f"the library has a rule set {name!r}; choose another name")
    _warn_of_lost(name, rules)
    compiler().use_rules(RuleSet(name, rules, proven=True), always)
    return tuple([rule.full_name for rule in rules])


def _warn_of_lost(name: str, rules: Sequence[Rule]) -> None:
    """Two files may have taken one name without knowing of each other."""
    lost = compiler().library.added_rules(name).difference([rule.name for rule in rules])
    if lost:
        warn(
            f"the rule set {name!r} was loaded before and is replaced: {', '.join(sorted(lost))} is used no more;"
            " give one of them another name to have both"
        )


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
    """The proofs of the rules of a file, which are rewrites and all proved. Raises: as load_rules, but ValueError where it cannot be read."""
    from proofgrad.verify.dsl.files import read_source

    results = _proven(path, read_source(path))
    _refuse_others(path, [result.rule for result in results], {*loose, *settings.fastmath()})
    return results


def _proven(path: Path, source: bytes) -> list[Result]:
    from proofgrad.verify.commands.prove import prove_source
    from proofgrad.verify.explain.counterexample import explain

    results = prove_source(source, str(path))
    failed = [result for result in results if result.verdict != "proved"]
    if failed:
        reasons = "\n\n".join(explain(result) for result in failed)
        raise UnprovenRuleError(f"nothing of {path} was loaded:\n{reasons}")
    return results


def _refuse_others(path: Path, rules: Sequence[Rule], asked: set[str]) -> None:
    """Raises: ValueError for what is no rewrite, and for rules that are not exact to the bit, of classes not asked for."""
    other = [rule.full_name for rule in rules if rule.kind is not RuleKind.REWRITE]
    if other:
        raise ValueError(
            f"nothing of {path} was loaded: {', '.join(other)} is not a rewrite; bounds and"
            f" cotangents belong to the files in rules/"
        )
    missing = {rule.full_name: rule.loose_classes - asked for rule in rules}
    named = [f"{name} ({', '.join(sorted(lacks))})" for name, lacks in missing.items() if lacks]
    if named:
        classes = sorted(frozenset().union(*missing.values()))
        raise ValueError(
            f"nothing of {path} was loaded: {', '.join(named)} is not exact to the bit. Loose laws are"
            f" asked for by name: load_rules(path, loose={classes}), or FASTMATH={','.join(classes)}"
        )
