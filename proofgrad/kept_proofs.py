"""Proofs of users' rule files, kept between processes: a file that was proven is used again without the solver.

Owns: under which key they lie. Does not own: the format of ledgers and the gate, which are those of the library
(core/rewrite/ledger.py): what is kept is a ledger of the very bytes of a file, and nothing else passes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from proofgrad.core import settings
from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.rewrite.ledger import MOST_BYTES, EvidenceError, ledger_text, read_ledger
from proofgrad.core.rewrite.rule import Rule
from proofgrad.rules.library import fingerprint

if TYPE_CHECKING:
    from proofgrad.verify.prove.rules import Result


def kept_rules(source: bytes) -> tuple[Rule, ...] | None:
    """The rules of a file with these bytes, if all of them were proven by these meanings of the operations."""
    now = fingerprint()
    ledger = _files().get(_key(source, now))
    if ledger is None or len(ledger) > MOST_BYTES:
        return None
    try:
        return read_ledger(json.loads(ledger)["ruleset"], source, ledger, now)
    except (EvidenceError, ValueError, KeyError, TypeError, RecursionError):
        return None  # it is proven again


def keep(source: bytes, results: Sequence[Result]) -> None:
    """Keep these proofs of all rules of a file."""
    from proofgrad.verify.commands.prove import solver_versions
    from proofgrad.verify.prove.ledger import entry_of

    now, solvers = fingerprint(), solver_versions()
    entries = [entry_of(result, now, solvers) for result in results]
    text = ledger_text(results[0].rule.ruleset, source, now, solvers, entries)
    _files().put(_key(source, now), text.encode())


def _files() -> DiskCache:
    return DiskCache(settings.cache_folder() / "proofs")


def _key(source: bytes, now: str) -> str:
    return sha256(now.encode() + b"\n" + source).hexdigest()
