"""Settings of the whole test-suite, and the report on rules that never fired."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings
from rule_coverage import MADE_FOR_RULES, Coverage
from rules_from_text import unproven_library

# In CI the same examples every time; elsewhere new ones, and a failing one is printed as a graph.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

COVERAGE = Coverage()
COVERAGE.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Instances that are made from the rules themselves do not count as use."""
    if item.path.name != MADE_FOR_RULES:
        return (yield)
    with COVERAGE.paused():
        return (yield)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """How many rules fired, and after the whole suite which did not."""
    if (compared := sys.modules.get("op_table")) is not None and compared.COUNT.values:
        count = compared.COUNT
        terminalreporter.section("operations on edge values")
        terminalreporter.write_line(
            f"{count.values} values of {count.pairs} pairs of operation and type as numpy says,"
            f" {count.by_torch} values as torch says, {count.gradients} gradients as differences"
        )
    terminalreporter.section("rules of the library")
    library = [rule.full_name for rules in unproven_library().values() for rule in rules.rules]
    for line in COVERAGE.report(library, with_names=_is_whole(config)):
        terminalreporter.write_line(line)


def _is_whole(config: pytest.Config) -> bool:
    return bool(config.args == config.getini("testpaths"))
