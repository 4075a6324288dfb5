"""Numbers with digits of mixed radices, most significant first: what several laws of loops are made of.

number_of((a, b, c), (m, n))  =  (a * m + b) * n + c
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def product_of(sizes: Sequence[Any]) -> Any:
    """How many numbers have such digits; there is a digit at least."""
    total = sizes[0]
    for size in sizes[1:]:
        total = total * size
    return total


def number_of(digits: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The number of these digits. `sizes`: of all but the first, which may be any."""
    number = digits[0]
    for digit, size in zip(digits[1:], sizes, strict=True):
        number = number * size + digit
    return number
