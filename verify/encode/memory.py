"""Accesses to memory: a right side reads no position that its left side does not read.

Where a load leaves its buffer a program crashes, or reads what belongs to another: it has no value that
a proof could speak of. So that a rule keeps the accesses of a program in their buffers, each read of
its right side, where its mask is true, is one of the reads of its left side. Both branches of a
selection are computed, whatever its condition is, so only the masks of accesses count.

Owns: what a read is, this claim. Does not own: values (encode/goal.py), which reads there are in a loop
(encode/ranges.py). A variable stands for any term, with accesses of its own: they stay what they are
wherever the variable is used, but for `v[r := x]`, which needs x to be a value that r takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import z3

Term = Any


@dataclass(frozen=True, slots=True)
class Read:
    """An access to the element `position` of a buffer, where `mask` is true."""

    buffer: str
    position: Term
    mask: Term


def covered(reads: Iterable[Read], others: Iterable[Read]) -> list[Term]:
    """For each of `reads` that it is one of `others`, where its mask is true."""
    known = list(others)
    return [z3.Implies(read.mask, _is_one_of(read, known)) for read in reads]


def _is_one_of(read: Read, others: list[Read]) -> Term:
    same = [
        z3.And(other.mask, other.position == read.position)
        for other in others
        if other.buffer == read.buffer
    ]
    return z3.Or(*same) if same else z3.BoolVal(False)
