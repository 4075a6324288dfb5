"""Windows some steps apart, as runs of neighbouring blocks.

Owns: the choice of blocks, and the views that lay windows out by them. Does not own: windows one step apart (views.py).

By its laws of movement the gradient of windows cut from those one step apart looks at every element of a window for every
element of the axis; of rows of blocks it looks at the blocks that hold the element alone.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from proofgrad.core.ir.shapes import is_plain


def windows_by_blocks(x: Any, axis: int, size: int, step: int) -> Any:
    """Axis `axis` as two, the window and the position inside of it; None: there are no blocks of more than one element."""
    length = x.shape[axis]
    if not is_plain((length, size, step)) or not 0 < size <= length or step < 2:
        return None
    count = (length - size) // step + 1
    block = _block(length, size, step, count)
    if block == 1:
        return None
    blocks, apart = -(-size // block), step // block
    rows = (count - 1) * apart + blocks
    before, behind = x.shape[:axis], x.shape[axis + 1 :]
    cut = x.shrink([None] * axis + [(0, rows * block)] + [None] * len(behind))
    found = cut.reshape((*before, rows, block, *behind))
    if rows > count:
        found = found._windows(axis, blocks, apart, 1)
    found = found.reshape((*before, count, blocks * block, *behind))
    return found.shrink([None] * (axis + 1) + [(0, size)] + [None] * len(behind))


def _block(length: int, size: int, step: int, count: int) -> int:
    """The size of a block: a step, if whole ones cover the last window within the axis; else what divides step and size."""
    covered = (count - 1 - (-size // step)) * step
    return step if covered <= length else gcd(size, step)
