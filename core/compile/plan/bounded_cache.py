"""A dict that lets go: caches that a program which makes ever new kernels would fill without end.

Owns: that, and nothing else. A loop that multiplies by a Python number, another one in each step, makes
a kernel a step; each holds some 60 KB of text, nodes and machine code.
"""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Newest(dict[Key, Value]):
    """As many entries as `most`: one more, and the one that was put in longest ago is gone; put in again, one is new.

    Example:
        seen = Newest(2)
        seen["a"] = seen["b"] = seen["c"] = 1
        list(seen)  # ["b", "c"]
    """

    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self.most:
            del self[next(iter(self))]
