"""The page docs/steps.md: each step as a law, how it was proved, and what each use decides.

Owns: the text of the page, made of proofs/steps.json and of the docstrings of the steps. Does not own: either of them.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proofgrad.core.compile.passes.stages import GraphTactic, Tactic
from proofgrad.core.compile.steps import evidence
from proofgrad.rules.procedures import code_lines, procedure_sizes, steps_called
from proofgrad.verify.steps.all_steps import all_steps

# In the order in which a program and its kernels meet them.
ORDER = (
    *("read_through", "reduce_in_parts", "store", "read_parts", "exchange"),
    *(
        "one_reduction",
        "join_sums",
        "read_inside",
        "unmask",
        "leave",
        "window",
        "align",
        "split_index_set",
        "pair",
        "offset_factor",
        "where_normal",
        "scatter",
        "overwrite",
        "sum_in_memory",
        "merge",
        "collapse",
        "split",
    ),
    *(
        "split_reading_inside",
        "reorder",
        "run_as",
        "stage",
        "stage_window",
        "deinterleave",
        "pad_rows",
        "local_buffer",
        "turn_rows",
        "keep_in_item",
        "fill_ahead",
        "mma",
        "mma_in_item",
        "unroll",
    ),
    *("narrow", "accumulate", "lanes"),
)

_HEAD = """# The steps

Written by `verify-rules --report steps` from `proofs/steps.json` and from the docstrings in `core/compile/steps`.

A program of tensors and its kernels are changed by rules, and by the steps on this page. Each is a law: an equation between values or
loops, proved once, for all programs, kernels, sizes and bodies. Why the goals that the solver decides are these laws is said in one place, `verify/steps/theory.py`; the goals are
in `verify/steps`, and are made by running the functions of the step itself. No step is taken without its evidence:

```sh
verify-rules                 # prove what has no fresh evidence: rules, and laws of steps
verify-rules --all -v        # everything from nothing; each claim with its time
verify-rules --check         # only say what is missing or stale
```

A law is *linear* if it was decided with products left open but for the lemmas about them, *polynomial* if the solver was told that they are products,
*run* if it was computed for each of a number of cases: of those the column on the right says what is left to tests. Before that each claim is computed for
small numbers, where a wrong one falls at once; how many are the *small cases*. *Goals* are what the solver decided, or what was computed, of all claims of a law; many laws
share some, and all the {lemmas} lemmas (`verify/steps/terms.py`).

"""

_LAST = """
What is decided at each use, and by what, is on the right. Where it cannot be decided, the step refuses, and a tactic does
something else. `core/compile/steps` also has {shared} lines that the steps share: what a program and a nest are, the one function that exchanges loops,
tables between nests, how loops may run together, and the gate.
"""


_TACTICS = """
## The tactics

| stage | in core/compile | lines | steps that it calls |
|---|---|---|---|
"""


def steps_report() -> str:
    """The page."""
    entries = evidence.read_entries(evidence.EVIDENCE)
    steps = all_steps()
    names = [*[n for n in ORDER if n in steps], *[n for n in steps if n not in ORDER]]
    files = {name: _file(steps[name]) for name in names}
    rows = [_row(steps[name], entries[name], files[name]) for name in names]
    head = [
        "| step | law | method | goals | small cases | lines | decided at each use |",
        "|---|---|---|---|---|---|---|",
    ]
    every = sorted(evidence.STEPS_FOLDER.glob("*.py"))
    shared = sum([_lines(path) for path in every if path not in files.values()])
    table = "\n".join([*head, *rows, _totals(entries, set(files.values()))]) + "\n"
    sections = [_section(steps[name], names, files) for name in names]
    lemmas = len([c for c in entries["split"]["claims"] if c["method"] == "lemma"])
    text = _HEAD.format(lemmas=lemmas) + table + _LAST.format(shared=shared)
    return text + _tactics() + "".join(sections)


def _tactics() -> str:
    """A table of the tactics, in the order in which they run."""
    rows = []
    for size in procedure_sizes(kinds=(GraphTactic, Tactic)):
        called = ", ".join([f"`{name}`" for name in steps_called(size, all_steps())])
        own = size.modules[0]
        rows.append(f"| {size.stage} | `{own.name}` | {_lines(own)} | {called} |")
    return _TACTICS + "\n".join(rows) + "\n"


def _row(step: Any, entry: Mapping[str, Any], file: Path) -> str:
    law = step.law.replace("|", "\\|")
    parts = [
        f"[{step.name}](#{step.name})",
        f"`{law}`",
        _methods(entry),
        f"{_sum(entry, 'goals'):,}",
        f"{_sum(entry, 'tried'):,}",
        str(_lines(file)),
        entry["decided"],
    ]
    return f"| {' | '.join(parts)} |"


def _totals(entries: Mapping[str, Mapping[str, Any]], files: set[Path]) -> str:
    different = {claim["claim"]: claim for e in entries.values() for claim in _claims(e)}
    goals = sum([claim["goals"] for claim in different.values()])
    cases = sum([claim["tried"] for claim in different.values()])
    lines = sum([_lines(path) for path in files])
    return f"| {len(entries)} steps | each claim once | {len(different)} claims | {goals:,} | {cases:,} | {lines} | |"


def _methods(entry: Mapping[str, Any]) -> str:
    counts = Counter([claim["method"] for claim in _claims(entry)])
    return ", ".join([f"{count} {method}" for method, count in sorted(counts.items())])


def _sum(entry: Mapping[str, Any], part: str) -> int:
    return sum([int(claim[part]) for claim in _claims(entry)])


def _claims(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """But for the lemmas, which all laws share."""
    return [claim for claim in entry["claims"] if claim["method"] != "lemma"]


def _section(step: Any, names: list[str], files: Mapping[str, Path]) -> str:
    """The docstring of a step's file, once; of a second step of the file, its own."""
    first = next(name for name in names if files[name] == files[step.name])
    if first != step.name:
        doc = inspect.getdoc(step.function) or ""
        return (
            f"\n## {step.name}\n\nIn the file of [{first}](#{first}).\n\n    {step.law}\n\n{doc}\n"
        )
    doc = inspect.getdoc(sys.modules[step.function.__module__]) or ""
    return f"\n## {step.name}\n\n{doc}\n"


def _file(step: Any) -> Path:
    return evidence.STEPS_FOLDER / f"{step.function.__module__.rpartition('.')[2]}.py"


def _lines(path: Path) -> int:
    return code_lines(path.read_text("utf-8"))
