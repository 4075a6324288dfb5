"""The gate: no step is taken without fresh evidence that its law is proved.

Owns: the format of proofs/steps.json, what an entry covers, every reason to refuse. Does not own: proving and writing
(verify/steps).

An entry covers the text of the law and the files that decide it: the file of its step, those of this folder that it imports, and
the claims and the prover in verify/steps. It is read once a process, when the first step is taken. As in the ledgers
of rules the seal finds accidents and careless edits, and is no signature.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

# EvidenceError: raised here, and caught by who asks.
from proofgrad.core.rewrite.ledger import COMMAND, MOST_BYTES, PROVED
from proofgrad.core.rewrite.ledger import EvidenceError as EvidenceError

ROOT = Path(__file__).resolve().parents[3]
STEPS_FOLDER = ROOT / "core" / "compile" / "steps"
CLAIMS_FOLDER = ROOT / "verify" / "steps"
EVIDENCE = ROOT / "proofs" / "steps.json"
FORMAT = 1

_PARTS = frozenset({"name", "module", "law", "decided", "files", "solver", "verdict", "claims"})
_PACKAGE = __name__.rpartition(".")[0]
_IMPORT = re.compile(rb"\bcompile\.steps(?:\.(\w+)| import)")
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)

Entry = Mapping[str, Any]


# -- what covers what -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sources:
    """The files that decide laws, as digests, and which modules of this folder each module names."""

    steps: Mapping[str, str]
    names: Mapping[str, frozenset[str]]
    claims: str

    def digest(self, module: str) -> str:
        """Of what decides the law of a step that is defined in a module of this folder."""
        told = [f"{name} {self.steps[name]}" for name in sorted(self.deciding(module))]
        return sha256("\n".join([self.claims, *told]).encode()).hexdigest()

    def deciding(self, module: str) -> set[str]:
        """The files of this folder that decide it: the module's, and those it imports."""
        reached, waiting = {"__init__"}, [module.rpartition(".")[2]]
        while waiting:
            name = waiting.pop()
            if name in self.steps and name not in reached:
                reached.add(name)
                waiting += self.names[name]
        return reached


def read_sources() -> Sources:
    """The files as they are now."""
    steps = _texts(STEPS_FOLDER)
    names = {module: _names(text, steps) for module, text in steps.items()}
    claims = "\n".join([f"{name} {_digest(text)}" for name, text in _texts(CLAIMS_FOLDER).items()])
    return Sources({name: _digest(text) for name, text in steps.items()}, names, claims)


def _names(text: bytes, modules: Mapping[str, bytes]) -> frozenset[str]:
    """The modules of the folder that one imports; all of them if it imports from the folder itself."""
    found = frozenset([name.decode() for name in _IMPORT.findall(text)])
    return frozenset(modules) if "" in found else found


def _texts(folder: Path) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.py"))}


def _digest(text: bytes) -> str:
    return sha256(text).hexdigest()


def seal(entry: Entry) -> str:
    """Covers every part of an entry but the seal."""
    parts = {part: value for part, value in entry.items() if part != "seal"}
    return sha256(_CANONICAL.encode(parts).encode()).hexdigest()


# -- the gate -------------------------------------------------------------------------------------


def require_evidence(name: str, law: str, module: str) -> None:
    """Raises: EvidenceError unless the law of this step, from this module, is proved."""
    if _proved().get(name) != (law, module):
        reason = problem(read_entries(EVIDENCE).get(name), name, law, module, read_sources())
        raise EvidenceError(refusal(name, reason or "it was proved after this process began"))


def refusal(name: str, reason: str) -> str:
    """What is said to whoever takes the step."""
    return f"the step {name} may not be taken: {reason}; run `{COMMAND}`"


def problem(entry: Entry | None, name: str, law: str, module: str, sources: Sources) -> str | None:
    """Why an entry is no evidence for a step; None if it is."""
    if entry is None:
        return f"there is no evidence for it in {EVIDENCE.name}"
    if entry.keys() != _PARTS | {"seal"} or entry["seal"] != seal(entry):
        return "its entry was edited by hand (the seal is broken)"
    if entry["name"] != name or entry["law"] != law:
        return "its law has changed since it was proved"
    if entry["module"] != module or module.rpartition(".")[0] != _PACKAGE:
        return f"it is not the step of {entry['module']}"
    if entry["verdict"] != PROVED:
        return f"its verdict is {entry['verdict']}"
    if entry["files"] != sources.digest(module):
        return "a file that decides its law has changed since it was proved"
    return None


def read_entries(path: Path) -> dict[str, Entry]:
    """The entries of a file by step. Raises: EvidenceError if it is no such file."""
    try:
        text = path.read_bytes()
        data = json.loads(text) if len(text) <= MOST_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        why = f"{path.name} cannot be read ({error})"
        raise EvidenceError(f"no step may be taken: {why}; run `{COMMAND}`") from None
    is_of_format = isinstance(data, dict) and data.get("format") == FORMAT
    entries = data.get("steps") if isinstance(data, dict) and is_of_format else None
    if not isinstance(entries, list):
        why = f"{path.name} is not of format {FORMAT}"
        raise EvidenceError(f"no step may be taken: {why}; run `{COMMAND}`")
    named = [e for e in entries if isinstance(e, dict) and e.keys() >= _PARTS]
    return {str(entry["name"]): entry for entry in named}


@cache
def _proved() -> dict[str, tuple[str, str]]:
    """Of each step whose entry is evidence, as the files are now, the law and the module."""
    found, sources = {}, read_sources()
    for name, entry in read_entries(EVIDENCE).items():
        law, module = entry["law"], entry["module"]
        if problem(entry, name, law, module, sources) is None:
            found[name] = law, module
    return found


def forget() -> None:
    """Read the evidence again when the next step is taken."""
    _proved.cache_clear()
