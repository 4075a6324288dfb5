"""What DEBUG prints: to stderr, or to the logger "proofgrad" where a program has set one up.

Owns: which of the two. Does not own: the lines (core/tensor/runtime/report.py, core/compile/compiler.py), warnings of mistakes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

NAME = "proofgrad"


def say(text: object) -> None:
    """Print for people who debug: to stderr, so that a program's own output stays clean; or log it, at the level INFO."""
    logger = _logger()
    if logger is None:
        print(text, file=sys.stderr)
    else:
        logger.info("%s", text)


def is_terminal() -> bool:
    """Whether what is said is seen on a terminal."""
    return _logger() is None and sys.stderr.isatty()


def _logger() -> Logger | None:
    """The logger, if it would show lines of the level INFO: else they are not lost."""
    logging = sys.modules.get("logging")  # a program that logs has imported it
    if logging is None:
        return None
    logger: Logger = logging.getLogger(NAME)
    return logger if logger.hasHandlers() and logger.isEnabledFor(logging.INFO) else None
