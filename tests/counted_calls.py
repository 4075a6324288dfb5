"""How much work something is, as a number that no other process and no slow machine changes.

Owns: the count of calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable


def calls(work: Callable[[], object], events: tuple[str, ...] = ("call", "c_call")) -> int:
    """How many functions `work` calls, of Python or of C; of Python alone with `("call",)`."""
    before, count = sys.getprofile(), 0

    def seen(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in events

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
