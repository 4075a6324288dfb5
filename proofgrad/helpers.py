"""Small tools around a program: settings for a while.

Owns: `Context`. Does not own: what the settings mean (core/settings.py).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from proofgrad.core import settings


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
