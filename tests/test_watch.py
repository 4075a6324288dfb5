"""`verify-rules --watch`: verdicts follow the file, and Ctrl-C is a normal end."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SECONDS = 60.0
WRONG = "ruleset mine over uint8\nrule halve: x // 2 * 2 => x\n"
RIGHT = "ruleset mine over uint8\nrule absorb: (x | y) & x => x\n"


class Watcher:
    """A running `verify-rules --watch`, whose lines are read as they come."""

    def __init__(self, file: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "proofgrad.verify.cli", "--watch", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def lines_until(self, wanted: str) -> list[str]:
        """The lines up to one that starts with `wanted`."""
        found: list[str] = []
        end = time.monotonic() + SECONDS
        while not found or not found[-1].startswith(wanted):
            found.append(self._lines.get(timeout=max(end - time.monotonic(), 0.01)))
        return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.rules"
    path.write_text(WRONG)
    return path


@pytest.fixture
def watcher(file: Path) -> Iterator[Watcher]:
    watcher = Watcher(file)
    yield watcher
    watcher.process.kill()
    watcher.process.communicate()


@pytest.mark.timeout(180)
def test_watch_proves_again_when_the_file_changes_and_ends_well(
    watcher: Watcher, file: Path
) -> None:
    first = watcher.lines_until("not everything is proved")
    assert any(line.startswith("refuted  mine.halve") for line in first)
    file.write_text(RIGHT)
    second = watcher.lines_until("everything is proved")
    assert any(line.startswith("proved   mine.absorb") for line in second)
    watcher.process.send_signal(signal.SIGINT)
    assert watcher.process.wait(timeout=SECONDS) == 0
    assert watcher.process.stderr is not None
    assert "Traceback" not in watcher.process.stderr.read()


@pytest.mark.timeout(180)
def test_watch_waits_for_a_file_that_is_not_there(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path / "later.rules")
    watcher.lines_until("not everything is proved")
    (tmp_path / "later.rules").write_text(RIGHT)
    watcher.lines_until("everything is proved")
    watcher.process.send_signal(signal.SIGINT)
    assert watcher.process.wait(timeout=SECONDS) == 0
