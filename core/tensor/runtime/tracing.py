"""Whether methods of Tensor note which nodes they make: while DEBUG asks for it, and within `profile`."""

from __future__ import annotations


class _Tracing:
    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = False


TRACING = _Tracing()
