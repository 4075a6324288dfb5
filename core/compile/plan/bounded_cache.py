"""A dict that lets go: caches that a program which makes ever new kernels would fill without end.

Owns: that, and nothing else. A loop over lengths, another one in each step, makes
a kernel a step; each holds some 60 KB of text, nodes and machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

# Of entries that hold a large graph, as of a loop over many steps, which takes megabytes.
MOST_LARGE = 8
LARGE_NODES = 1000


class Newest(dict[Key, Value]):
    """As many entries as `most`: one more, and the one that was put in longest ago is gone; put in again, one is new.

    Example:
        seen = Newest(2)
        seen["a"] = seen["b"] = seen["c"] = 1
        list(seen)  # ["b", "c"]

    `nodes` of an entry: of those that hold a large graph the newest few are kept.
    """

    __slots__ = ("most", "nodes")

    def __init__(self, most: int, nodes: Callable[[Key, Value], int] | None = None) -> None:
        super().__init__()
        self.most, self.nodes = most, nodes

    def __setitem__(self, key: Key, value: Value) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self.most:
            del self[next(iter(self))]
        if self.nodes is not None and self.nodes(key, value) > LARGE_NODES:
            large = [k for k, v in list(self.items()) if self.nodes(k, v) > LARGE_NODES]
            for old in large[:-MOST_LARGE]:
                self.pop(old, None)
