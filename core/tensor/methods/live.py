"""The Tensors that there are: each is known from when it is made until it is gone, and none is kept alive by it.

Owns: the register. Does not own: what is asked of them (jit/live_tensors.py).

To be told of the end of each takes as long as all else that there is to do for a new one. So the references to those that
are gone stay until they are most of the register.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any
from weakref import ref

FEWEST = 256  # references, before any is looked at

_REGISTER: list[ref[Any]] = []  # in the order in which they were made


@dataclass(slots=True)
class _Looks:
    """When dead references are looked for next, and whether somebody does so now."""

    next_at: int = FEWEST
    is_now: bool = False


_LOOKS = _Looks()
_ONE_AT_A_TIME = threading.RLock()  # the collector may come in between, and make Tensors


def register(tensor: object) -> None:
    """From now on, until it is gone, `tensor` is one of `live_tensors`."""
    _REGISTER.append(ref(tensor))
    if len(_REGISTER) > _LOOKS.next_at:
        _forget_the_gone()


def live_tensors() -> list[Any]:
    """All Tensors there are, the oldest first; other threads may make some meanwhile."""
    found = [entry() for entry in list(_REGISTER)]
    return [tensor for tensor in found if tensor is not None]


def _forget_the_gone() -> None:
    """Leave references to those that there are; the next look is when there are twice as many."""
    with _ONE_AT_A_TIME:
        if _LOOKS.is_now:
            return
        _LOOKS.is_now = True
        try:
            count = len(_REGISTER)  # those that are made meanwhile come behind
            there = [entry for entry in _REGISTER[:count] if entry() is not None]
            _REGISTER[:count] = there
            _LOOKS.next_at = max(FEWEST, 2 * len(there))
        finally:
            _LOOKS.is_now = False
