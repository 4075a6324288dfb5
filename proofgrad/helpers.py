"""Small tools around a program: settings for a while, a schedule written by hand.

Owns: `Context`, `schedule`. Does not own: what the settings mean (core/settings.py), what a schedule is
(core/compile/nests/kernel_schedule.py).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from proofgrad.core import settings
from proofgrad.core.compile.nests.kernel_schedule import Schedule, read_schedule


@contextmanager
def Context(**variables: int | str) -> Iterator[None]:
    """Environment variables of proofgrad set within the block, as they were after it.

    Raises: KeyError for a name that no part of proofgrad reads.

    Example:
        with Context(DEBUG=2):
            model(x).realize()
    """
    unknown = sorted(set(variables) - set(settings.MEANING))
    if unknown:
        near = difflib.get_close_matches(unknown[0], settings.MEANING, 1)
        raise KeyError(
            f"{unknown[0]} is no setting{f'; is {near[0]} meant?' if near else ''}"
            f" (`python -m proofgrad env` lists them)"
        )
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def schedule(asked: Schedule | str) -> Iterator[None]:
    """Every kernel that is compiled within the block does what `asked` says; a step that does not fit is refused.

    `asked`: as `explain` and DEBUG=2 print it; what it does not name, the heuristics choose. A schedule is applied
    by proven steps, so a kernel computes the same, or there is an error.

    Raises: TypeError, ValueError for what is no schedule; ScheduleError (a ValueError), where a kernel is compiled, if
    that kernel cannot do what is asked.

    Example:
        with schedule("tile=4x2x8 staged=none threads=off"):
            (a @ b).realize()
    """
    if not isinstance(asked, (Schedule, str)):
        raise TypeError(f"a schedule is text or a Schedule, not {type(asked).__name__}")
    override = read_schedule(str(asked))  # a Schedule made by hand may hold what no text says
    with Context(SCHEDULE=str(override)):
        yield
