"""The times of docs/reading-list.md are those that its lines take at the speed that it names."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/reading-list.md").read_text()
STOPS = re.findall(r"^\| \d+ \| (.+) \| (\d+) \| ([\d.]+) hours? \|$", PAGE, re.MULTILINE)
LINES_AN_HOUR = 500
FOLDERS = {"about 66,000": ("core", "rules", "backends"), "about\n104,000": (
    "core", "rules", "backends", "verify", "proofgrad")}  # fmt: skip


def lines_of(path: Path) -> int:
    return sum(1 for line in path.read_text().splitlines() if line.strip())


def test_each_stop_has_the_lines_and_the_hours_that_it_says() -> None:
    for read, lines, hours in STOPS:
        counted = sum([lines_of(ROOT / file) for file in re.findall(r"`([^`]+)`", read)])
        assert abs(counted - int(lines)) <= 0.1 * counted, f"{read}: {counted} lines"
        assert abs(float(hours) - counted / LINES_AN_HOUR) <= 0.6, f"{read}: {counted} lines"


def test_the_list_has_its_stops() -> None:
    assert len(STOPS) >= 9


def test_all_lines_are_as_many_as_it_says() -> None:
    for said, folders in FOLDERS.items():
        assert said in PAGE
        counted = sum([
            lines_of(path)
            for folder in folders
            for kind in ("*.py", "*.rules")
            for path in (ROOT / folder).rglob(kind)
        ])  # fmt: skip
        stated = int(re.sub(r"\D", "", said))
        assert abs(counted - stated) <= 0.1 * stated, f"{counted} lines"


def test_the_front_page_says_what_the_list_says() -> None:
    front = (ROOT / "README.md").read_text()
    way, hours = re.search(r"is about ([\d,]+)\nlines, .* about (\d+) hours", front).groups()
    assert f"Together about {way} lines" in PAGE and f", {hours} hours;" in PAGE
