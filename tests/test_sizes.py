"""The lines of code of procedures: how they are counted, and that the lists have all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofgrad.__main__ import main
from proofgrad.core.compile.passes.stages import Procedure
from proofgrad.rules.pipeline import GRAPH_STAGES, KERNEL_STAGES
from proofgrad.rules.procedures import code_lines, lines_of, procedure_sizes
from proofgrad.verify.commands.evidence import report

NAMES = [s.step.name for s in (*GRAPH_STAGES, *KERNEL_STAGES) if isinstance(s.step, Procedure)]
FOUR = '''\
"""A docstring,
of two lines."""

# A comment.
def f(a,
      b):
    """Another."""

    return """a text
# that is returned"""  # with a comment
'''


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    assert code_lines(FOUR) == 4
    assert code_lines('"""Nothing."""\n\n# at all\n') == 0


def test_every_file_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n\ny = 2\n")
    assert lines_of([file, file]) == 2


def test_procedures_are_few_lines() -> None:
    """What is neither a proven rule nor a proven step is to be read by people: what grows goes into rules and steps."""
    assert lines_of({path for size in procedure_sizes() for path in size.modules}) <= 840


def test_each_procedure_has_its_module_and_what_it_imports() -> None:
    sizes = {size.name: size for size in procedure_sizes()}
    assert list(sizes) == NAMES
    assert all(size.lines > 10 and size.purpose for size in sizes.values())
    found = {name: [path.stem for path in size.modules] for name, size in sizes.items()}
    assert found["linearize"] == ["linearize"]
    assert found["expand_transcendentals"] == [
        "transcendental",
        "polynomial",
        "power",
        "remainder",
        "sine",
    ]
    lines = [code_lines(path.read_text()) for path in sizes["linearize"].modules]
    assert sizes["linearize"].lines == sum(lines)


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "--sizes"]) == 0
    head, *rows, total = capsys.readouterr().out.splitlines()
    sizes = procedure_sizes()
    assert head.split()[:2] == ["procedure", "lines"]
    assert [row.split()[:2] for row in rows] == [[size.name, str(size.lines)] for size in sizes]
    assert all(size.purpose in row for size, row in zip(sizes, rows))
    every = {path for size in sizes for path in size.modules}
    assert f"{len(sizes)} procedures in {len(every)} modules: {lines_of(every)} lines" in total


def test_the_page_about_evidence_has_them() -> None:
    rows = [line for line in report().splitlines() if line.startswith("| `")]
    wanted = [f"| `{size.name}` | {size.lines} |" for size in procedure_sizes()]
    assert [row[: len(start)] for row, start in zip(rows, wanted, strict=True)] == wanted
