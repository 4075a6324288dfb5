"""Parts of equal size."""

from __future__ import annotations


def largest_divisor(size: int, at_most: int) -> int:
    """The largest number up to `at_most` that divides `size`."""
    return next(n for n in range(min(size, at_most), 0, -1) if size % n == 0)
