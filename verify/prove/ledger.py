"""Writing ledgers: results of the prover as the files that the engine trusts.

Owns: building entries, keeping entries that are still fresh, writing a file whole or not at all.
Does not own: the format, keys and seals (core/rewrite/ledger.py), proving (rules.py).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofgrad.core.rewrite.ledger import FORMAT, MOST_BYTES, PROVED, entry_key, seal
from proofgrad.core.rewrite.rule import Rule, rule_to_json
from proofgrad.verify.agreement.compare import Agreement
from proofgrad.verify.prove.rules import Result

Entry = dict[str, Any]


def entry_of(result: Result, fingerprint: str, solvers: dict[str, str]) -> Entry:
    """The ledger's entry for one result."""
    entry: Entry = {
        "name": result.rule.name,
        "rule": rule_to_json(result.rule),
        "verdict": result.verdict,
        "reason": result.reason,
        "obligations": [o.to_json() for o in result.obligations],
        "conditions": [needed.to_json() for needed in result.conditions],
        "instances": 0 if result.agreement is None else result.agreement.instances,
        "key": entry_key(result.rule, fingerprint, solvers),
    }
    return {**entry, "seal": seal(entry)}


def fresh_entries(
    path: Path, rules: Sequence[Rule], fingerprint: str, solvers: dict[str, str]
) -> dict[str, Entry]:
    """Proved entries of an old ledger that are about these very rules, by name of the rule.

    The prose of a rule (its text, its doc string) may have changed: it is taken from the file.
    """
    old = _read(path)
    kept: dict[str, Entry] = {}
    for rule in rules:
        entry = old.get(rule.name)
        key = entry_key(rule, fingerprint, solvers)
        if entry is None or entry.get("key") != key or entry.get("verdict") != PROVED:
            continue
        if entry.get("seal") != seal(entry) or not entry.get("instances"):
            continue
        entry = {**entry, "rule": rule_to_json(rule)}
        kept[rule.name] = {**entry, "seal": seal(entry)}
    return kept


def is_run_as_before(path: Path, fingerprint: str) -> bool:
    """Whether what executes rules is what it was when a ledger was written."""
    return bool(_head(path).get("fingerprint") == fingerprint)


def run_again(entry: Entry, agreement: Agreement) -> Entry:
    """An entry with what was found of the rule by what executes rules now."""
    entry = {**entry, "instances": agreement.instances}
    return {**entry, "seal": seal(entry)}


def old_entries(path: Path, rules: Sequence[Rule], solvers: dict[str, str]) -> dict[str, Entry]:
    """Proved entries of a ledger by these solvers, whatever the meanings were then, by full name.

    They are no evidence: only what they say of the text of a goal may be used, and of the need of
    conditions where the rule is the same.
    """
    if _solvers_of(path) != solvers:
        return {}
    old, found = _read(path), {}
    for rule in rules:
        entry = old.get(rule.name)
        if entry is None or entry.get("verdict") != PROVED or entry.get("seal") != seal(entry):
            continue
        if entry_key(entry["rule"], "", {}) == entry_key(rule, "", {}):
            found[rule.full_name] = entry
    return found


def write_whole(path: Path, text: str) -> None:
    """Write aside, then rename: a reader sees the old file or the new one, whatever happens."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read(path: Path) -> dict[str, Entry]:
    """The entries of a ledger by name; none if there is no readable one."""
    try:
        data = path.read_bytes()
        whole = json.loads(data) if len(data) <= MOST_BYTES else {}
        entries = whole["rules"] if whole.get("format") == FORMAT else []
        return {entry["name"]: entry for entry in entries if _is_entry(entry)}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _solvers_of(path: Path) -> Any:
    """By which solvers the entries of a ledger were proven."""
    return _head(path).get("solvers")


def _head(path: Path) -> dict[str, Any]:
    """What a ledger says of itself; nothing if there is no readable one."""
    try:
        whole = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return whole if isinstance(whole, dict) else {}


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)
