"""docs/add-an-op.md adds an operation: its edits, applied to a copy of the project, do what the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/add-an-op.md").read_text()
FOLDERS = ("core", "rules", "proofs", "verify", "backends")
MOST_FILES = 8

USE = """
from proofgrad import Tensor
print(Tensor([0.5, 1.5, 2.5, -0.5, -3.7]).round().tolist())
x = Tensor([0.4, 1.6], requires_grad=True)
(x.round() * x).sum().backward()
print(x.grad.tolist())
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def edits() -> list[tuple[str, str, str]]:
    """File, what stands there, and what shall; in the order of the page."""
    found = []
    for block in blocks("diff"):
        for file, hunk in re.findall(
            r"^--- (\S+)\n((?:[ +-].*\n|\n)+?)(?=--- |\Z)", block, re.MULTILINE
        ):
            lines = hunk.splitlines()
            before, after = [
                "".join([f"{line[1:]}\n" for line in lines if line[:1] not in other])
                for other in ("+", "-")
            ]
            found.append((file, before, after))
    return found


class Copy:
    """The project in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "proofgrad"
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "proofgrad", self.package, ignore=skip)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self.package / name, ignore=skip)
        self.environment = {
            **os.environ, "PYTHONPATH": str(folder), "PROOFGRAD_CACHE": str(folder / "cache"),
        }  # fmt: skip

    def edit(self, file: str, before: str, after: str) -> None:
        path = self.package / file
        text = path.read_text()
        assert text.count(before) == 1, (file, before)
        path.write_text(text.replace(before, after))

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of Python with these arguments."""
        done = subprocess.run(
            [sys.executable, *arguments], env=self.environment, cwd=self.package, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
        )  # fmt: skip
        return done.returncode, done.stdout

    def verify(self, *arguments: str) -> tuple[int, str]:
        return self.run(
            "-c",
            "import sys; from proofgrad.verify.cli import main; sys.exit(main(sys.argv[1:]))",
            *arguments,
        )


def test_the_page_names_at_most_eight_files_and_every_file_that_it_edits() -> None:
    table = re.findall(r"^\| \d+ \| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert len(table) <= MOST_FILES
    assert {file for file, _, _ in edits()} <= set(table)
    assert all([(ROOT / file).exists() for file in table])


@pytest.mark.timeout(600)
@pytest.mark.long
def test_the_operation_of_the_page_is_added_by_its_edits_alone(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    assert copy.verify("--check")[0] == 0
    steps = edits()
    for edit in [e for e in steps if e[0] == "core/ir/ops.py"]:
        copy.edit(*edit)
    missing, shown = blocks("text")
    status, told = copy.verify()
    assert (status, told[: len(missing)]) == (1, missing), told

    for edit in [e for e in steps if e[0] not in ("core/ir/ops.py", "rules/cotangent.rules")]:
        copy.edit(*edit)
    assert copy.verify("--check")[0] == 0  # nothing names it, and every proof is still fresh
    sums = "from proofgrad import Tensor; print((Tensor([1.5, 2.0]) + 1).trunc().sum().item())"
    assert copy.run("-c", sums) == (0, "5.0\n")

    for edit in [e for e in steps if e[0] == "rules/cotangent.rules"]:
        copy.edit(*edit)
    status, told = copy.verify()
    assert status == 0, told
    proved, rest = re.search(r"^(\d+) proved .*?(\d+) fresh before", told, re.MULTILINE).groups()
    assert int(proved) < 60 < 600 < int(rest)  # the set that names it, and no other
    assert copy.verify("--check")[0] == 0
    assert copy.run("-c", USE) == (0, shown.splitlines()[1] + "\n[0.0, 2.0]\n")

    copy.edit("core/ir/evaluate.py", "float(round(x))", "float(round(x + 1))")
    status, told = copy.verify("--check")
    assert status == 1 and "cotangent" in told and "1 problem in" in told
