"""Fourier transforms of few numbers, all their sums written out: what one kernel of a longer transform does to each line.

Owns: the sums. A complex number is two values side by side, so all here are pairs of lists. A length that is a product is done
factor by factor; of an odd prime, equal distances to both sides share their cosines and, but for the sign, their sines.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

Line = list[tuple[Any, Any]]


def turn(numerator: int, denominator: int) -> complex:
    """exp(2 pi i numerator / denominator); exact where that is 1, i, -1 or -i."""
    quarters, rest = divmod(4 * (numerator % denominator), denominator)
    if rest == 0:
        return (1 + 0j, 1j, -1 + 0j, -1j)[quarters]
    return cmath.exp(2j * math.pi * (numerator % denominator) / denominator)


def written_out(line: Line, sign: int) -> Line:
    """Sum over j of line[j] exp(sign 2 pi i j k / n) for each k."""
    size = len(line)
    ways = smallest_factor(size)
    if ways == size:
        return _of_prime(line, sign)
    inner, length = [written_out(line[k::ways], sign) for k in range(ways)], size // ways
    found: Line = [(0, 0)] * size
    for k in range(length):
        parts = [_turned(inner[j][k], turn(sign * j * k, size)) for j in range(ways)]
        found[k::length] = _of_prime(parts, sign)
    return found


@lru_cache(maxsize=1024)
def smallest_factor(size: int) -> int:
    """The smallest divisor above 1; of 1, 1."""
    return next((k for k in range(2, math.isqrt(size) + 1) if size % k == 0), size)


def _of_prime(line: Line, sign: int) -> Line:
    size = len(line)
    if size == 1:
        return line
    (re, im), rest = line[0], line[1:]
    if size == 2:
        ((other, turned),) = rest
        return [(re + other, im + turned), (re - other, im - turned)]
    near, far = rest[: size // 2], rest[: size // 2 - 1 : -1]
    sums = [(a + c, b + d) for (a, b), (c, d) in zip(near, far)]
    apart = [(a - c, b - d) for (a, b), (c, d) in zip(near, far)]
    found: Line = [(0, 0)] * size
    found[0] = (_total([re, *[a for a, _ in sums]]), _total([im, *[b for _, b in sums]]))
    for k in range(1, size // 2 + 1):
        turns = [turn(sign * j * k, size) for j in range(1, size // 2 + 1)]
        even = [
            _total([x, *[s[n] * w.real for s, w in zip(sums, turns)]])
            for n, x in ((0, re), (1, im))
        ]
        odd = [_total([d[n] * w.imag for d, w in zip(apart, turns)]) for n in (0, 1)]
        found[k] = (even[0] - odd[1], even[1] + odd[0])
        found[size - k] = (even[0] + odd[1], even[1] - odd[0])
    return found


def _total(terms: Sequence[Any]) -> Any:
    """Of neighbours, and then of what these come to: the sums of two halves do not wait for each other."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return _total(terms[:half]) + _total(terms[half:])


def _turned(number: tuple[Any, Any], by: complex) -> tuple[Any, Any]:
    re, im = number
    if by == 1:
        return number
    if by == -1:
        return -re, -im
    if by.real == 0:
        return (-im, re) if by.imag > 0 else (im, -re)
    return re * by.real - im * by.imag, re * by.imag + im * by.real
