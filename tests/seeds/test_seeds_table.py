"""Every line of the seeds has one test and one row of docs/seeds.md, and the two agree."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from make_table import BEGIN, END, summary_of
from seed_lines import IDS, id_of, page

HERE = Path(__file__).parent


def lines_tested() -> dict[str, list[Callable[..., Any]]]:
    """The tests of each id."""
    found: dict[str, list[Callable[..., Any]]] = {}
    for path in sorted(HERE.glob("test_seeds_?_*.py")):
        module = importlib.import_module(path.stem)
        for name, value in vars(module).items():
            line = id_of(name)
            if line is not None:
                found.setdefault(line, []).append(value)
    return found


def rows() -> list[tuple[str, str, str]]:
    table = page("seeds.md").partition(BEGIN)[2].partition(END)[0]
    return re.findall(r"^\| ([A-R][\w.]+) \| (.*) \| ([^|]*) \|$", table, re.MULTILINE)


def verdict_asked(test: Callable[..., Any]) -> str:
    """What the marks of a test say that its verdict is."""
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "xfail":
            return str(mark.kwargs["reason"])
    decision = getattr(test, "seed_decision", "")
    return f"differs by {decision}" if decision else "passes"


def test_every_line_has_one_test() -> None:
    assert len(IDS) == len(set(IDS)) == 219
    found = lines_tested()
    assert sorted(found) == sorted(IDS)
    assert [line for line, made in found.items() if len(made) != 1] == []


def test_every_line_has_a_row_that_says_what_its_test_says() -> None:
    assert [line for line, _, _ in rows()] == list(IDS), "run python tests/seeds/make_table.py"
    found = lines_tested()
    for line, asked, verdict in rows():
        (test,) = found[line]
        assert asked == summary_of(test), f"{line}: run python tests/seeds/make_table.py"
        assert verdict == verdict_asked(test), f"{line}: run python tests/seeds/make_table.py"


def test_every_unfinished_line_must_fail_until_it_passes() -> None:
    for line, (test,) in lines_tested().items():
        for mark in getattr(test, "pytestmark", []):
            if mark.name == "xfail":
                assert mark.kwargs["strict"] is True, line
