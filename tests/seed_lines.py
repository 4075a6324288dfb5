"""What the tests of the seeds share: the ids of all lines, snippets run as printed, verdicts.

The seeds are five documents about tinygrad that the project started from, S0 to S4. Their claims
are 219 lines, A01 to R07; each has one test in tests/seeds/, whose name starts with the id and whose
docstring says what the line asks for. docs/seeds.md has the table, made from a run by
tests/seeds/make_table.py.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from proofgrad import GlobalCounters

ROOT = Path(__file__).parent.parent
Test = TypeVar("Test", bound=Callable[..., None])

_COUNTS = {
    "A": 24, "B": 11, "C": 12, "D": 16, "E": 7, "F": 12, "G": 19, "H": 14, "I": 13, "J": 17,
    "K": 11, "L": 12, "Q": 7, "R": 7,
}  # fmt: skip
_TASKS = {"P1": 5, "P2": 5, "P3": 4, "P4": 6, "P5": 5, "P6": 5}
IDS: tuple[str, ...] = (
    *[f"{family}{k:02}" for family, count in _COUNTS.items() for k in range(1, count + 1)],
    "P00",
    *[f"{project}.{k}" for project, count in _TASKS.items() for k in range(1, count + 1)],
    *[f"P7.{part}" for part in "ABCDE"],
    "P8",
)

_NAME = re.compile(r"test_([A-R]\d\d|P\d_[\dA-E]|P8)_")
_IMPORT = re.compile(r"^(\s*(?:from|import) )tinygrad\b", re.MULTILINE)


def id_of(test_name: str) -> str | None:
    """The id that a test's name starts with; None for a test of something else."""
    found = _NAME.match(test_name)
    return None if found is None else found[1].replace("_", ".")


# -- verdicts -----------------------------------------------------------------------------------


def later(reason: str) -> pytest.MarkDecorator:
    """Mark a line that cannot pass yet. When it does, its test fails until the mark is taken off."""
    return pytest.mark.xfail(strict=True, reason=f"comes later: {reason}")


def differs(decision: str, how: str) -> Callable[[Test], Test]:
    """Mark a line where something else than the document's words was decided; the test checks it."""

    def mark(test: Test) -> Test:
        test.seed_decision = f"{decision}: {how}"  # type: ignore[attr-defined]
        return test

    return mark


# -- running ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ran:
    """A snippet after it ran: its names and the lines that it printed."""

    names: dict[str, Any]
    printed: list[str]

    def __getitem__(self, name: str) -> Any:
        return self.names[name]


def run_snippet(text: str, **names: Any) -> Ran:
    """Run a snippet as printed, with the import name changed and nothing else."""
    given = {"__name__": "__main__", **names}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(_IMPORT.sub(r"\1proofgrad", text), "<seed>", "exec"), given)
    return Ran(given, printed.getvalue().splitlines())


class Count:
    """How many kernels ran in a block: `with Count() as kernels: ...; kernels.count`."""

    def __enter__(self) -> Count:
        self._before = GlobalCounters.kernel_count
        return self

    def __exit__(self, *_: object) -> None:
        self.count = GlobalCounters.kernel_count - self._before


@contextlib.contextmanager
def everything_printed() -> Iterator[io.StringIO]:
    """Both streams of a block in one text."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        yield text


def debug_text(level: int, run: Callable[[], Any], **environment: str) -> str:
    """What `run` prints with DEBUG=level, on either stream, without colours."""
    wanted = {"DEBUG": str(level), "NO_COLOR": "1", **environment}
    with pytest.MonkeyPatch.context() as patch, everything_printed() as text:
        for name, value in wanted.items():
            patch.setenv(name, value)
        run()
    return text.getvalue()


def searched(size: int, width: int) -> str:
    """What DEBUG=2 prints while BEAM=width looks for the kernel of a product of square matrices."""
    from proofgrad import Tensor

    one, other = (Tensor.full((size, size), k).contiguous().realize() for k in (0.5, 2.0))
    limits = {"BEAM": str(width), "BEAM_SECONDS": "1"}
    return debug_text(2, lambda: (one @ other).realize(), **limits)


def in_new_process(*arguments: str, **environment: str) -> str:
    """What `python ARGUMENTS` prints, run from the root of the project. Asserts that it ends well."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def my_backend() -> ModuleType:
    """examples/07_custom_backend/my_backend.py, on a machine with a C compiler."""
    spec = importlib.util.spec_from_file_location(
        "my_backend", ROOT / "examples/07_custom_backend/my_backend.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.c_compiler() is None:
        pytest.skip("needs a C compiler")
    return module


def page(name: str) -> str:
    """The text of a page of the documentation."""
    return (ROOT / "docs" / name).read_text("utf-8")
