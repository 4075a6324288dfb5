"""Run the tests of the seeds and write the table of docs/seeds.md from what happened.

Run: python tests/seeds/make_table.py        (with --check: write nothing, 1 if it would change)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from seed_lines import IDS, ROOT, id_of  # noqa: E402

PAGE = ROOT / "docs/seeds.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


class Record:
    """Collects, for each id, what its test asks for and how it ended."""

    def __init__(self) -> None:
        self.asked: dict[str, str] = {}
        self.decisions: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for item in items:
            line = id_of(item.originalname or item.name)
            if line is not None:
                self.asked[line] = summary_of(item.function)
                self.decisions[line] = getattr(item.function, "seed_decision", "")

    def pytest_runtest_logreport(self, report: Any) -> None:
        line = id_of(report.nodeid.rpartition("::")[2])
        if line is None or (report.when != "call" and report.passed):
            return
        reason = getattr(report, "wasxfail", "")
        if reason and report.skipped:
            outcome = reason.removeprefix("reason: ")
        elif report.skipped:
            outcome = "not run here"
        else:
            outcome = "passes" if report.passed else "FAILS"
        if self.outcomes.get(line, "passes") == "passes":
            self.outcomes[line] = outcome

    def verdict(self, line: str) -> str:
        outcome = self.outcomes.get(line, "MISSING")
        decision = self.decisions.get(line, "")
        return f"differs by {decision}" if outcome == "passes" and decision else outcome


def summary_of(test: Any) -> str:
    """The first paragraph of a docstring in one line, safe in a table."""
    text = (test.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


def table(record: Record) -> str:
    """The count of each kind of verdict, and a row for every id."""
    verdicts = {line: record.verdict(line) for line in IDS}
    passed = sum([v == "passes" for v in verdicts.values()])
    different = sum([v.startswith("differs") for v in verdicts.values()])
    later = sum([v.startswith("comes later") for v in verdicts.values()])
    head = (
        f"Of {len(IDS)} lines {passed} pass as written, {different} pass in the way that was"
        f" decided, {later} come later.\n\n| id | what is asked | verdict |\n|---|---|---|"
    )
    rows = [f"| {line} | {record.asked.get(line, '')} | {verdicts[line]} |" for line in IDS]
    return "\n".join([head, *rows])


def main() -> int:
    """Write the table. 1 if a test failed, or if --check finds another table."""
    record = Record()
    tests = [str(path) for path in sorted(HERE.glob("test_seeds_?_*.py"))]
    pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", *tests], plugins=[record])
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    new = f"{before}{BEGIN}\n{table(record)}\n{END}{rest.partition(END)[2]}"
    if "--check" in sys.argv:
        return int(new != text)
    PAGE.write_text(new)
    return int(any(record.verdict(line) in ("FAILS", "MISSING") for line in IDS))


if __name__ == "__main__":
    sys.exit(main())
