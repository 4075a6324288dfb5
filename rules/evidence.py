"""How each rule of the library was proved, read from the ledgers for people.

Owns: the proofs of a rule as rows, counts of them by set. Does not own: whether a rule may be used
(core/rewrite/ledger.py decides that when a set is loaded, and shows nothing).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proofgrad.rules.library import ledger_file

Proofs = Mapping[str, Sequence["Proof"]]  # by the full name of a rule


@dataclass(frozen=True, slots=True)
class Proof:
    """One case of a rule that was decided: where, how, and in how many steps of the solver."""

    domain: str
    types: tuple[str, ...]
    method: str
    steps: int

    def __str__(self) -> str:
        types = ", ".join(self.types)
        position = self.domain if types in ("", self.domain) else f"{self.domain} ({types})"
        return f"proved over {position}, {self.method}, {self.steps:,} steps"


def proof_from_json(data: Mapping[str, Any]) -> Proof:
    """The proof of a ledger's obligation."""
    types = tuple([str(name) for name in data["types"].values()])
    return Proof(str(data["domain"]), types, str(data["method"]), int(data["steps"]))


def proofs_of_set(name: str) -> dict[str, tuple[Proof, ...]]:
    """The proofs of each rule of a set that has a ledger."""
    entries = json.loads(ledger_file(name).read_bytes())["rules"]
    return {
        f"{name}.{entry['name']}": tuple([proof_from_json(o) for o in entry["obligations"]])
        for entry in entries
    }


@dataclass(frozen=True, slots=True)
class SetStatistics:
    """A set in numbers."""

    name: str
    rules: int
    proofs: int
    methods: Counter[str]
    steps: int


def statistics(name: str) -> SetStatistics:
    """How many rules and proofs a set has, by which methods, and the steps of all proofs."""
    found = proofs_of_set(name)
    every = [proof for proofs in found.values() for proof in proofs]
    methods = Counter([proof.method for proof in every])
    return SetStatistics(name, len(found), len(every), methods, sum([p.steps for p in every]))
