"""Random orders: each position goes where a cipher says, so that nothing is sorted and nothing is written twice.

Owns: the cipher, a network of Feistel over any number of positions: the rows and columns of a rectangle are moved in turn, each by a hash of
the other (J. Black and P. Rogaway, Ciphers with arbitrary finite domains, 2002; the rounds are those of FF1, NIST SP 800-38G).
The rectangle has fewer than a row's worth of places beyond the positions: what would go there goes on from there, until
it is among them. Does not own: keys (random.py).
"""

from __future__ import annotations

import math
from typing import TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.indexing.take import take

_T = TypeVar("_T", bound=Indexing)
ROUNDS = 10
MOST = 1 << 32  # positions: rows and columns are numbers of 16 bits
# Factors and shifts that let each bit of a number change half of the others (A. Appleby, MurmurHash3).
_FACTORS, _SHIFTS = (0x85EBCA6B, 0xC2B2AE35), (16, 13)


def in_random_order(keys: _T, count: int) -> _T:
    """The numbers 0 .. count-1 as uint32, in the order of `ROUNDS` keys in memory."""
    rows = math.isqrt(count - 1) + 1
    columns = -(-count // rows)
    beyond = rows * columns - count
    places = _moved(keys._iota(count, dtypes.uint32), keys, rows, columns)
    if not beyond:
        return places
    ends = _moved(keys._iota(beyond, dtypes.uint32) + count, keys, rows, columns).contiguous()
    for _ in range((beyond - 1).bit_length()):  # from each place twice as far as before
        ends = _among(ends, ends, count).contiguous()
    return _among(places, ends, count)


def _among(places: _T, ends: _T, count: int) -> _T:
    """The places that are positions, and where the others lead to."""
    return (places < count).where(places, take(ends, 0, places - count))


def _moved(places: _T, keys: _T, rows: int, columns: int) -> _T:
    """Where the places of a rectangle go: each to another one."""
    row, column = places // columns, places % columns
    for number in range(0, ROUNDS, 2):
        row = _turned(row, column, keys._cut(0, number, number + 1), rows)
        column = _turned(column, row, keys._cut(0, number + 1, number + 2), columns)
    return row * columns + column


def _turned(line: _T, other: _T, key: _T, size: int) -> _T:
    """Numbers below `size` further round, by as much as the key makes of the other ones."""
    mixed = other ^ key
    for factor, shift in zip(_FACTORS, _SHIFTS):
        mixed = (mixed ^ (mixed >> shift)) * factor
    moved = line + ((mixed >> 16) * size >> 16)
    return moved.minimum(moved - size)
