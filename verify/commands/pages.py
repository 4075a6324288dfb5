"""The pages of docs/ that are made of the records in proofs/.

Owns: which there are. Does not own: their text (evidence.py, mutants_page.py, steps_page.py).
"""

from __future__ import annotations

from collections.abc import Callable

from proofgrad.verify.commands.evidence import report
from proofgrad.verify.commands.mutants_page import mutants_report
from proofgrad.verify.commands.steps_page import steps_report

PAGES: dict[str, Callable[[], str]] = {
    "evidence": report,
    "mutants": mutants_report,
    "steps": steps_report,
}
