"""What DEBUG prints goes to stderr, or to the logger of a program."""

from __future__ import annotations

import logging

import pytest

from proofgrad import Context, Tensor

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
