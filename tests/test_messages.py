"""What DEBUG prints goes to stderr, or to the logger of a program."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proofgrad import Context, Tensor
from proofgrad.core import messages
from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.messages import Progress

LOGGER = logging.getLogger("proofgrad")


class Kept(logging.Handler):
    """Keeps the lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """A handler of the logger "proofgrad" alone."""
    handler = Kept()
    monkeypatch.setattr(LOGGER, "handlers", [handler])
    monkeypatch.setattr(LOGGER, "propagate", False)
    return handler


def run() -> None:
    with Context(DEBUG=2):
        assert (Tensor([1.0, 2.0]).realize() + 1).tolist() == [2.0, 3.0]


def test_lines_go_to_a_logger_that_shows_them(
    kept: Kept, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "level", logging.INFO)
    LOGGER.manager._clear_cache()  # type: ignore[attr-defined]
    run()
    assert [line for line in kept.lines if "1 kernels" in line]
    assert "kernels" not in capsys.readouterr().err
    assert not [line for line in kept.lines if "\033" in line]


def test_lines_are_not_lost_where_a_logger_would_not_show_them(
    kept: Kept, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "level", logging.WARNING)
    LOGGER.manager._clear_cache()  # type: ignore[attr-defined]
    run()
    assert kept.lines == [] and "1 kernels" in capsys.readouterr().err


def test_lines_go_to_stderr_without_a_logger(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "propagate", False)
    run()
    assert "1 kernels" in capsys.readouterr().err


# -- how far a long first call is -------------------------------------------------------------------


def shown(patience_seconds: float) -> None:
    with Progress("compiles", 20, patience_seconds) as progress:
        for k in range(20):
            progress.done(k)


def test_progress_is_a_line_that_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "is_terminal", lambda: True)
    monkeypatch.setattr(messages, "REFRESH_SECONDS", 0)
    shown(0)
    lines = capsys.readouterr().err.split("\r")
    assert lines[1] == "compiles 0 of 20" and lines[20] == "compiles 19 of 20"
    assert lines[21:] == [" " * len("compiles 20 of 20"), ""]


def test_nothing_is_said_of_what_is_soon_done_or_where_nobody_looks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(0)
    monkeypatch.setattr(messages, "is_terminal", lambda: True)
    shown(1000)
    assert capsys.readouterr().err == ""


def test_whether_anybody_looks_is_not_asked_for_each_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(messages, "is_terminal", lambda: bool(asked.append(1)))
    monkeypatch.setattr(messages, "REFRESH_SECONDS", 1000)
    shown(0)
    assert len(asked) == 1


def test_a_cache_that_cannot_be_used_is_warned_of_at_the_line_of_the_program(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    within = {"__name__": "proofgrad.core.anywhere", "cache": DiskCache(file)}
    exec("def keep():\n    cache.put('ab', b'1')", within)
    with pytest.warns(UserWarning, match=r"cache in .*file") as told:
        within["keep"]()  # type: ignore[operator]
    assert told[0].filename == __file__


def test_a_warning_of_a_thread_of_ours_is_given_as_well() -> None:
    within = {"__name__": "proofgrad.core.anywhere", "warn": messages.warn}
    exec("def told():\n    warn('here')", within)
    with pytest.warns(UserWarning, match="here"), ThreadPoolExecutor(1) as pool:
        pool.submit(within["told"]).result()  # type: ignore[arg-type]
