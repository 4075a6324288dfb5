"""Where numbers belong among numbers in order.

Owns: the search, all numbers side by side. Each step reads three elements for each number and leaves a quarter of the line,
so that few kernels do it, each of them as long as there are numbers to look for.
"""

from __future__ import annotations

from typing import TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.methods.indexing.take import take_along
from proofgrad.core.tensor.methods.reduction.reduce import Reduction

_T = TypeVar("_T", bound=Reduction)


def count_up_to(line: _T, wanted: _T) -> _T:
    """How many elements of each row of `line`, which is in order, are not above each element of the same row of `wanted`.

    Both are in memory, and no size is a variable.
    """
    size = line.shape[1]
    found = line._iota(1).expand(wanted.shape)
    step = 1 << (size.bit_length() - 1 & ~1) if size else 0
    while step:
        passed = [_is_up_to(line, found + k * step - 1, wanted) for k in (1, 2, 3)]
        found = (found + step * sum(part.cast(dtypes.int32) for part in passed)).contiguous()
        step //= 4
    return found


def _is_up_to(line: _T, position: _T, wanted: _T) -> _T:
    """Whether there is an element at the position, and it is not above the wanted one."""
    return (position < line.shape[1]) & (take_along(line, position, 1) <= wanted)
