"""Every command and every piece of Python printed in the documentation runs and says what it shows.

Owns: how pages are run. A page is README.md or docs/*.md; its blocks run from top to bottom.

    ```console   each line after `$ ` runs in bash, in a scratch folder in which the project's own
                 folders are linked, so `python benchmarks/x.py` works. Lines after `> ` continue a
                 command. The lines below it, if any, are the output expected: `...` stands for any
                 text, and alone on a line for any lines. A last line `[exit 1]` is the exit status.
    ```python    runs with the names of the blocks above it; what `# prints:` at the end of a line
                 says must be what has been printed.

Blocks of other kinds (sh, text, rules) are not run; neither is one below `<!-- not run: why -->`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("README.md"), *(ROOT / "docs").glob("*.md")])
LINKED = ("benchmarks", "examples", "rules", "docs", "tests")
SECONDS_PER_BLOCK = 120
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
PRINTS = re.compile(r"#\s*prints:\s?(.*)$")

# Runs blocks that arrive as lines of JSON, one after the other in the same names.
PYTHON_RUNNER = """
import contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
for request in map(json.loads, sys.stdin):
    printed, error = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(request["code"], request["page"], "exec"), names)
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps({"printed": printed.getvalue(), "error": error}), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line of the page that it starts on."""

    language: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command with the output and the exit status that the page shows."""

    text: str
    expected: str
    status: int


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_runs_as_printed(page: Path, tmp_path: Path) -> None:
    for name in LINKED:
        if (ROOT / name).is_dir():
            (tmp_path / name).symlink_to(ROOT / name)
    with PythonSession(tmp_path) as session:
        for block in blocks(page.read_text()):
            where = f"{page.relative_to(ROOT)}:{block.line}"
            if block.language == "python":
                session.run(block, where)
            elif block.language == "console":
                run_console(block, where, tmp_path)


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page that are not marked as not run."""
    lines = text.splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
            continue
        above = lines[start - 1] if start else ""
        if not NOT_RUN.fullmatch(above.strip()):
            yield Block(lines[start][3:].strip(), "\n".join(lines[start + 1 : number]), start + 1)
        start = None


def commands(text: str) -> Iterator[Command]:
    """The commands of a console block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        first, *rest = part.splitlines()
        while rest and rest[0].startswith("> "):
            first += "\n" + rest.pop(0)[2:]
        status = 0
        if rest and (found := re.fullmatch(r"\[exit (\d+)\]", rest[-1])):
            status = int(found[1])
            rest.pop()
        yield Command(first, "\n".join(rest), status)


def run_console(block: Block, where: str, folder: Path) -> None:
    for command in commands(block.text):
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_PER_BLOCK,
            check=False,
        )
        shown = f"{where}: $ {command.text}\nprinted:\n{done.stdout}"
        assert done.returncode == command.status, f"{shown}\nexit {done.returncode}"
        if command.expected.strip():
            assert is_as_shown(done.stdout, command.expected), f"{shown}\npage:\n{command.expected}"


def is_as_shown(output: str, expected: str) -> bool:
    """Whether `output` is `expected`, spaces at the ends of lines aside; see the top for `...`.

    Nor do lines of progress count, which appear where a machine is slow.
    """
    output = re.sub(r"^proving: \d+ of \d+ cases$\n", "", output, flags=re.MULTILINE)
    pattern = ""
    for line in expected.strip("\n").splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pieces = [re.escape(piece) for piece in line.rstrip().split("...")]
            pattern += ".*".join(pieces) + r"[ \t]*\n"
    return re.fullmatch(pattern + r"\s*", output.strip("\n") + "\n") is not None


def environment(folder: Path) -> dict[str, str]:
    """This process's, with the Python that runs the tests first in the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TMPDIR": str(folder)}
    return {**os.environ, **own, "CHECK": "0"}  # pages show what users see


class PythonSession:
    """One Python process for all blocks of a page, started with the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def run(self, block: Block, where: str) -> None:
        answer = self._answer(block, where)
        assert answer["error"] is None, f"{where}:\n{answer['error']}"
        shown = [
            found[1].rstrip() for line in block.text.splitlines() if (found := PRINTS.search(line))
        ]
        if shown:
            assert is_as_shown(answer["printed"], "\n".join(shown)), (
                f"{where} printed:\n{answer['printed']}\npage:\n" + "\n".join(shown)
            )

    def _answer(self, block: Block, where: str) -> dict[str, str]:
        process = self._process = self._process or subprocess.Popen(
            [sys.executable, "-c", PYTHON_RUNNER],
            cwd=self._folder,
            env=environment(self._folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        code = "\n" * block.line + block.text  # so that tracebacks name the line of the page
        process.stdin.write(json.dumps({"code": code, "page": where.rpartition(":")[0]}) + "\n")
        process.stdin.flush()
        reply = process.stdout.readline()
        assert reply, f"{where}: Python ended with status {process.wait()}"
        return json.loads(reply)


# -- the runner itself --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "expected", "is_same"),
    [
        ("a\nb\n", "a\nb", True),
        ("a\nb\n", "a", False),
        ("a\nb\nc\n", "a\n...", True),
        ("a\nb\nc\n", "a\n...\nc", True),
        ("time 3.2 ms\n", "time ... ms", True),
        ("time 3.2 s\n", "time ... ms", False),
        ("a  \n\n", "a", True),
    ],
)
def test_output_is_compared_as_the_page_says(output: str, expected: str, is_same: bool) -> None:
    assert is_as_shown(output, expected) is is_same


def test_blocks_below_a_not_run_mark_are_left_out() -> None:
    page = "```console\n$ true\n```\n\n<!-- not run: needs a GPU -->\n```console\n$ false\n```\n"
    assert [block.text for block in blocks(page)] == ["$ true"]


def test_commands_have_continuations_output_and_status() -> None:
    text = "$ cat <<END\n> a\n> END\na\n$ false\n[exit 1]"
    assert list(commands(text)) == [Command("cat <<END\na\nEND", "a", 0), Command("false", "", 1)]


def test_python_blocks_share_names_and_errors_name_the_line(tmp_path: Path) -> None:
    with PythonSession(tmp_path) as session:
        session.run(Block("python", "x = 2", 1), "page.md:1")
        session.run(Block("python", "print(x + 1)  # prints: 3", 5), "page.md:5")
        with pytest.raises(AssertionError, match=r'page.md", line 10'):
            session.run(Block("python", "y = 1\nx / 0", 8), "page.md:8")


# -- the glossary -------------------------------------------------------------------------------


def glossary_rows() -> list[list[str]]:
    lines = (ROOT / "docs/glossary.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:]]


def test_glossary_has_each_word_once_in_order() -> None:
    words = [row[0].lower() for row in glossary_rows()]
    assert words == sorted(set(words))


def test_glossary_names_files_that_exist() -> None:
    for row in glossary_rows():
        assert (ROOT / row[2].strip("`")).is_file(), row
