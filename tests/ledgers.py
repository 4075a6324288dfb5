"""Ledgers with invented evidence, for tests of the gate. The prover is not asked.

Owns: that forgery, which exists in tests only. Does not own: real evidence (verify/).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from proofgrad.core.rewrite.ledger import FORMAT, PROVED, entry_key, seal, source_digest
from proofgrad.core.rewrite.rule import Rule, rule_to_json
from proofgrad.verify.dsl.parser import parse_rules

MEANINGS = "f" * 64
SOLVERS = {"z3": "5.4.0"}


def forged_entry(rule: Rule, verdict: str = PROVED, meanings: str = MEANINGS) -> dict[str, Any]:
    """An entry for `rule` that passes the gate."""
    entry = {
        "name": rule.name,
        "rule": rule_to_json(rule),
        "verdict": verdict,
        "reason": "invented for a test",
        "obligations": [
            {"types": {"T": "int8"}, "domain": "int", "method": "none", "goals": "0", "steps": 5}
        ],
        "conditions": [],
        "instances": 7,
        "key": entry_key(rule, meanings, SOLVERS),
    }
    return {**entry, "seal": seal(entry)}


def forged_ledger(
    text: str, rules: Sequence[Rule] | None = None, meanings: str = MEANINGS
) -> dict[str, Any]:
    """A ledger for the rule file `text`; `rules` if it shall hold other rules than that."""
    parsed = parse_rules(text)
    proven = parsed.rules if rules is None else rules
    return {
        "format": FORMAT,
        "ruleset": parsed.ruleset,
        "source": source_digest(text.encode()),
        "fingerprint": meanings,
        "solvers": SOLVERS,
        "rules": [forged_entry(rule, meanings=meanings) for rule in proven],
    }


def as_bytes(ledger: dict[str, Any]) -> bytes:
    return json.dumps(ledger).encode()
