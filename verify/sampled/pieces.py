"""The loop that threads share out, in pieces: each by itself, in an order that is drawn.

Owns: where the loop is cut, what a piece may change. Does not own: memory and its bytes (sampled/launched.py).

Threads take pieces of any length in any order. Run as a whole, a kernel whose later items need what the first ones left, or that
takes one item too many, leaves the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy

from proofgrad.verify.sampled.arithmetic import Values

MOST_CUTS = 4


def pieces(size: int, seed: int) -> Iterator[tuple[int, int]]:
    """The items of each piece, from the first on and before the end, and one of a single item among them."""
    draw = numpy.random.default_rng([size, seed])
    one = int(draw.integers(0, size))
    cuts = {0, size, one, one + 1, *draw.integers(0, size, MOST_CUTS).tolist()}
    found = list(pairwise(sorted(cuts)))
    yield from [found[k] for k in draw.permutation(len(found))]


def changed_outside(before: Values, after: Values, own: int, first: int, end: int) -> int | None:
    """The first byte that a piece changed and that is none of its own, of `own` bytes an item."""
    changed = numpy.flatnonzero(before != after)
    outside = changed[(changed < first * own) | (changed >= end * own)]
    return int(outside[0]) if len(outside) else None


def run_in_pieces(
    size: int, own: int, piece: Callable[[int, int], None], written: Callable[[], Values], seed: int
) -> str:
    """Run all pieces of so many items; what one of them did to memory of others, or nothing.

    `own`: bytes that each item has to itself, or 0. `written`: the bytes that are there.
    """
    before = written() if own else None
    for first, end in pieces(size, seed):
        piece(first, end)
        if before is not None:
            after = written()
            byte = changed_outside(before, after, own, first, end)
            if byte is not None:
                return f"its items {first} to {end - 1} wrote byte {byte}, which belongs to others"
            before = after
    return ""
