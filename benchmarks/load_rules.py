"""How long loading rules with their evidence takes: the library, and one with many more.

Usage: python benchmarks/load_rules.py [--rules N] [--rounds N]

Rules are copied under new names until there are N, in a scratch folder, with ledgers written as
verify-rules writes them. Each figure is processor time, the median of fresh processes, after the
package itself has been imported: `gate` is what a start waits for; `ready` is when index terms can
be rewritten, with code kept from an earlier process; `decoded` is when every rule is there as data
(a rule is decoded when it is first needed). The parser and the solver must not be imported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proofgrad.core.compile.passes.stages import RuleSets
from proofgrad.core.rewrite.ledger import entry_key, ledger_text, seal
from proofgrad.core.rewrite.rule import rule_from_json, rule_to_json
from proofgrad.rules import library
from proofgrad.rules.pipeline import FACTS, KERNEL_STAGES

LOADER = """
import json, sys, time
from pathlib import Path
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.index_terms import index_program
from proofgrad.rules import library
library.RULES, library.PROOFS = Path(sys.argv[1]), Path(sys.argv[1])
FACTS, NAMES = json.loads(sys.argv[2])
start = time.process_time()
sets = library.load_library()
gate = time.process_time() - start
index_program([sets[name] for name in NAMES]).make
Facts(*[sets[name] for name in FACTS])
ready = time.process_time() - start
count = sum(len(rules.rules) for rules in sets.values())
decoded = time.process_time() - start
imported = [name for name in ("lark", "z3", "proofgrad.verify") if name in sys.modules]
print(json.dumps([count, gate, ready, decoded, imported]))
"""


@dataclass(frozen=True, slots=True)
class Loading:
    """Medians in seconds."""

    rules: int
    gate: float
    ready: float
    decoded: float
    imported: list[str]


def grow(folder: Path, wanted: int) -> None:
    """Write rule files and ledgers with `wanted` rules, or those of the library if it has more."""
    names, meanings = list(library.load_library()), library.fingerprint()
    ledgers = {n: json.loads(library.ledger_file(n).read_text()) for n in names}
    total = sum(len(ledger["rules"]) for ledger in ledgers.values())
    for name, ledger in ledgers.items():
        entries = ledger["rules"]
        text = library.rule_file(name).read_text()
        share = len(entries) * max(wanted - total, 0) // total + 1 if wanted > total else 0
        for k in range(share):
            copy, line = _copy(entries[k % len(entries)], k, ledger, meanings)
            entries.append(copy)
            text += line
        source = text.encode()
        (folder / f"{name}.rules").write_bytes(source)
        content = ledger_text(name, source, meanings, ledger["solvers"], entries)
        (folder / f"{name}.json").write_text(content)


def _copy(
    entry: dict[str, Any], number: int, ledger: dict[str, Any], meanings: str
) -> tuple[dict[str, Any], str]:
    """An entry about the same rule under another name, and its text."""
    rule = rule_from_json(entry["rule"])
    name = f"copy_{number}_of_{rule.name}"
    rule = replace(rule, name=name, text=rule.text.replace(rule.name, name, 1))
    key = entry_key(rule, meanings, ledger["solvers"])
    made = {**entry, "name": name, "rule": rule_to_json(rule), "key": key}
    made["seal"] = seal(made)
    return made, f"\n{rule.text}\n"


def load(folder: Path, rounds: int) -> Loading:
    """Load the sets of a folder in fresh processes; the first one fills the cache."""
    names = json.dumps([FACTS, _index_sets()])
    command = [sys.executable, "-c", LOADER, str(folder), names]
    environment = {**os.environ, "PROOFGRAD_CACHE": str(folder / "cache")}
    runs = []
    for _ in range(rounds + 1):
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        runs.append(json.loads(done.stdout))
    gate, ready, decoded = [statistics.median([run[k] for run in runs[1:]]) for k in (1, 2, 3)]
    return Loading(runs[0][0], gate, ready, decoded, runs[0][4])


def _index_sets() -> tuple[str, ...]:
    """The sets of the first rule stage of kernels."""
    return next(stage.step.names for stage in KERNEL_STAGES if isinstance(stage.step, RuleSets))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rules", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(
        f"{'rules':>6} {'gate ms':>8} {'ready ms':>9} {'decoded ms':>11}  parser or solver imported"
    )
    for wanted in (0, options.rules):
        with tempfile.TemporaryDirectory() as folder:
            grow(Path(folder), wanted)
            found = load(Path(folder), options.rounds)
        print(
            f"{found.rules:>6} {found.gate * 1e3:>8.1f} {found.ready * 1e3:>9.1f} {found.decoded * 1e3:>11.1f}"
            f"  {', '.join(found.imported) or 'no'}"
        )


if __name__ == "__main__":
    main()
