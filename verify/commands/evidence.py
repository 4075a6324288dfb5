"""The page docs/evidence.md: what is proven, and by whom, in numbers.

Owns: the text of the page, made of the ledgers, of proofs/crosscheck.json and of the lines of the
procedures. Does not own: any of them (core/rewrite/ledger.py, crosscheck.py, rules/procedures.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from proofgrad.rules.library import ledger_file, library_names
from proofgrad.rules.procedures import lines_of, procedure_sizes
from proofgrad.verify.audit.crosscheck import goals_in, read_outcomes
from proofgrad.verify.audit.second_solver import BITWUZLA, CVC5
from proofgrad.verify.commands.crosscheck import CROSSCHECK, Entries, library_entries

_HEAD = """# What is proven, in numbers

Written by `verify-rules --report` from the ledgers in `proofs/` and from `proofs/crosscheck.json`. What the words
mean is in `docs/trust.md`.
"""

_PROCEDURES = """## Procedures

What the compiler does that is not a rule with a proof. Each has a validation test. `python -m proofgrad stages --sizes`
prints this list. Lines of code are those of the procedure's module and of the ones in `core/compile` that it uses; the last line
counts each module once.

"""

_FRACTION = """
Which fraction of all rewrites comes from rules with a proof is counted while the tests run: `python -m pytest` ends with
"N rewrite applications, of them P proven" under "rules of the library", and names the unproven ones if there are any.
"""


def report() -> str:
    """The page."""
    data = read_outcomes(CROSSCHECK)
    names = library_names()
    sets = {name: library_entries([name]) for name in names}
    parts = [
        _HEAD,
        _solvers(data),
        _sets(sets, data["rules"]),
        _methods(sets),
        _open(data["rules"]),
        _PROCEDURES + _procedures() + _FRACTION,
    ]
    return "\n".join(parts)


def _solvers(data: Mapping[str, Any]) -> str:
    versions = json.loads(ledger_file(library_names()[0]).read_bytes())["solvers"]
    told = [f"{name} {version}" for name, version in {**versions, **data["solvers"]}.items()]
    return f"Solvers: {', '.join(told)}.\n"


def _sets(sets: Mapping[str, Entries], checked: Mapping[str, Any]) -> str:
    """A line a set: verdicts, cases and steps of z3, goals and who agrees."""
    head = ["set", "rules", "verdicts", "cases", "z3, 1000 steps", "goals", BITWUZLA, CVC5]
    rows = [_row(name, entries, checked) for name, entries in sets.items()]
    rows.append(_row("together", [e for entries in sets.values() for e in entries], checked))
    return "## Sets of rules\n\n" + _table([*head, "not crosschecked"], rows)


def _row(name: str, entries: Entries, checked: Mapping[str, Any]) -> list[str]:
    verdicts = Counter([entry["verdict"] for _, entry in entries])
    cases = [case for _, entry in entries for case in entry["obligations"]]
    told = [checked[full_name] for full_name, _ in entries if full_name in checked]
    agreed: Counter[str] = Counter()
    for one in told:
        agreed.update({solver: len(goals) for solver, goals in one["agreed"].items()})
    return [
        name,
        str(len(entries)),
        ", ".join([f"{count} {verdict}" for verdict, count in sorted(verdicts.items())]),
        str(len(cases)),
        f"{sum(case['steps'] for case in cases) / 1000:,.0f}",
        str(sum(len(goals_in(one)) for one in told)),
        str(agreed[BITWUZLA]),
        str(agreed[CVC5]),
        str(sum(len(one["not crosschecked"]) for one in told)),
    ]


def _methods(sets: Mapping[str, Entries]) -> str:
    cases = [c for entries in sets.values() for _, entry in entries for c in entry["obligations"]]
    methods = Counter([case["method"] for case in cases])
    rows = [[method, str(count)] for method, count in methods.most_common()]
    return "## Methods\n\n" + _table(["method", "cases"], rows)


def _open(checked: Mapping[str, Any]) -> str:
    rows = [
        [goal["case"], goal["reason"]]
        for told in checked.values()
        for goal in told["not crosschecked"].values()
    ]
    if not rows:
        return "Another solver agrees with z3 on every goal.\n"
    text = "Goals that z3 proved and on which no other solver had an answer.\n\n"
    return "## Not crosschecked\n\n" + text + _table(["case", "why"], rows)


def _procedures() -> str:
    """A line a procedure: its lines of code, its modules, its purpose."""
    sizes = procedure_sizes()
    rows = [
        [f"`{size.name}`", str(size.lines), " ".join([p.name for p in size.modules]), size.purpose]
        for size in sizes
    ]
    every = {path for size in sizes for path in size.modules}
    rows.append(["together", str(lines_of(every)), f"{len(every)} modules", ""])
    return _table(["procedure", "lines of code", "modules", "what it is"], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join([f"| {' | '.join(line)} |\n" for line in lines])
