"""The Tensors that there are: each is known from when it is made until it is gone, and none is kept alive by it.

Owns: the register. Does not own: what is asked of them (jit/live_tensors.py).
"""

from __future__ import annotations

from typing import Any
from weakref import ref


class _Entry(ref):  # type: ignore[type-arg]
    """A weak reference that is equal to itself alone: Tensors compare element by element, and a subclass may have no hash."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


_REGISTER: dict[_Entry, None] = {}  # in the order in which they were made


def register(tensor: object) -> None:
    """From now on, until it is gone, `tensor` is one of `live_tensors`."""
    _REGISTER[_Entry(tensor, _REGISTER.pop)] = None


def live_tensors() -> list[Any]:
    """All Tensors there are, the oldest first; other threads may make some meanwhile."""
    found = [entry() for entry in list(_REGISTER)]
    return [tensor for tensor in found if tensor is not None]
