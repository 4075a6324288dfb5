"""`verify-rules --update`: all that a changed rule owes, in one command.

Owns: the order, and stopping at what fails. Does not own: each part (prove.py, mutants.py, crosscheck.py, the pages).

In order: the layout of the rule files; proofs of rules and steps; the mutants of rules that are new or changed; other solvers
about each new goal; the pages of docs/ that are made of the records. What is fresh is taken over, so a single rule takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from proofgrad.rules.library import ROOT, library_names, rule_file
from proofgrad.verify.commands.complete import (
    check_records,
    crosscheck_problems,
    rules_without_verdict,
)
from proofgrad.verify.commands.crosscheck import crosscheck_library, library_entries
from proofgrad.verify.commands.mutants import judge_library
from proofgrad.verify.commands.pages import PAGES
from proofgrad.verify.dsl.layout import laid_out

DOCS = ROOT / "docs"


def update(prove: Callable[[], int], jobs: int | None) -> int:
    """Bring everything up to the rule files. 1 at the first part that fails; what was done before it stays.

    `prove`: proves rules and steps, and writes their ledgers.
    """
    parts: tuple[tuple[str, Callable[[], int]], ...] = (
        ("layout", lay_out_library),
        ("proofs", prove),
        ("mutants", lambda: judge_new(jobs)),
        ("other solvers", lambda: crosscheck_new(jobs)),
        ("pages", write_pages),
        ("records", check_records),
    )
    for name, part in parts:
        print(f"-- {name}")
        if part():
            print(f"stopped at: {name}")
            return 1
    return 0


def judge_new(jobs: int | None) -> int:
    """Judge the mutants of rules that have no verdict."""
    return judge_library((), jobs) if rules_without_verdict(library_entries(library_names())) else 0


def crosscheck_new(jobs: int | None) -> int:
    """Ask other solvers, which need not be installed where there is nothing to ask."""
    missing = any(crosscheck_problems(library_entries(library_names())))
    return crosscheck_library((), jobs) if missing else 0


def lay_out_library() -> int:
    """Bring the library's rule files into the one layout. 1 if one has no meaning."""
    for name in library_names():
        path = rule_file(name)
        text = path.read_text("utf-8")
        try:
            after = laid_out(text, path.name)
        except ValueError as error:
            print(error)
            return 1
        if after != text:
            path.write_text(after, "utf-8")
            print(f"{path.name}: laid out")
    return 0


def write_pages() -> int:
    """Write the pages that are made of the records, where they differ."""
    for name, page in PAGES.items():
        path, text = DOCS / f"{name}.md", page()
        if path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"docs/{path.name}: written")
    return 0
