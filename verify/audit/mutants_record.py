"""What is known of the mutants of each rule: proofs/mutants.json.

Owns: the file, which rules it says something about. Does not own: verdicts (judge_mutants.py), the
verdicts of people on what is open (proofs/survivors.json), the page (mutants_page.py).

A rule is known by a digest of itself and of its mutants, without prose: a changed rule, and one with
other mutants, has no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from proofgrad.core.rewrite.ledger import entry_key
from proofgrad.core.rewrite.rule import Rule
from proofgrad.verify.audit.judge_mutants import VERDICTS, Judged
from proofgrad.verify.audit.mutants import mutants
from proofgrad.verify.audit.obligations import digest
from proofgrad.verify.dsl.show import show_rule
from proofgrad.verify.prove.ledger import write_whole

FORMAT = 2
SHOWN = ("open", "idle", "equal")  # verdicts of which each mutant is listed
Told = Mapping[str, Any]  # of one rule


def digest_of_mutants(rule: Rule) -> str:
    """Covers a rule and each of its mutants, but no prose."""
    every = [rule, *[mutant.rule for mutant in mutants(rule)]]
    return digest("\n".join([entry_key(one, "", {}) for one in every]))


def told_of(rule: Rule, judged: Sequence[Judged]) -> dict[str, Any]:
    """What the file says of a rule."""
    told: dict[str, Any] = {"digest": digest_of_mutants(rule)}
    told["refuted"] = sum(one.verdict == "refuted" for one in judged)
    for verdict in SHOWN:
        told[verdict] = [_shown(one) for one in judged if one.verdict == verdict]
    return told


def _shown(one: Judged) -> dict[str, str]:
    shown = {"change": one.mutant.change, "mutant": show_rule(one.mutant.rule)}
    return shown | ({"reason": one.reason} if one.reason else {})


def counts(every: Iterable[Told]) -> dict[str, int]:
    """How many mutants of some rules have each verdict."""
    found = dict.fromkeys(VERDICTS, 0)
    for told in every:
        found["refuted"] += told["refuted"]
        for verdict in SHOWN:
            found[verdict] += len(told[verdict])
    return found


def decided(found: Mapping[str, int]) -> float:
    """The share of mutants that are not open."""
    total = sum(found.values())
    return (total - found["open"]) / total if total else 1.0


def open_mutants(record: Mapping[str, Told]) -> list[tuple[str, dict[str, str]]]:
    """The full name of a rule and its mutant, for each that is open."""
    return [(name, one) for name, told in record.items() for one in told["open"]]


class RecordError(ValueError):
    """A record that people write, and that cannot be read."""


@dataclass(frozen=True, slots=True)
class ByHand:
    """What people say of open mutants: patterns as of file names, for the rule and the change."""

    rule: str
    change: str
    verdict: str


def read_by_hand(path: Path) -> list[ByHand]:
    """Verdicts of people on open mutants. Raises: RecordError for what is no such file."""
    if not path.exists():
        return []
    try:
        return [ByHand(**one) for one in json.loads(path.read_bytes())]
    except (ValueError, TypeError) as error:
        raise RecordError(f"{path.name} is no list of verdicts by hand: {error}") from None


def verdict_by_hand(name: str, change: str, by_hand: Sequence[ByHand]) -> str | None:
    """The first verdict that is about a rule and a change of it; None if nobody gave one."""
    for one in by_hand:
        if fnmatchcase(name, one.rule) and fnmatchcase(change, one.change):
            return one.verdict
    return None


def read_record(path: Path) -> dict[str, Told]:
    """What is told of each rule, by full name; nothing if there is no file of this format."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    is_ours = isinstance(data, dict) and data.get("format") == FORMAT
    return dict(data["rules"]) if is_ours else {}


def write_record(path: Path, rules: Mapping[str, Told]) -> None:
    """Write the file, a line for each rule."""
    lines = [f"{json.dumps(n)}: {json.dumps(t, ensure_ascii=False)}" for n, t in rules.items()]
    body = ",\n".join(lines)
    write_whole(path, f'{{\n "format": {FORMAT},\n "rules": {{\n{body}\n}}\n}}\n')
