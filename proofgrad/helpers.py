"""Small tools around a program: settings for a while.

Owns: `Context`. Does not own: what the settings mean (core/settings.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def Context(**variables: int | str) -> Iterator[None]:
    """Environment variables of proofgrad set within the block, as they were after it.

    Example:
        with Context(DEBUG=2):
            model(x).realize()
    """
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
