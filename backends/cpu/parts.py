"""Launches in a row that run part by part: what one writes is still in a cache when the next one reads it.

Owns: which launches, in how many parts. Does not own: what an iteration of a kernel has to itself (core/compile/lowering/own_bytes.py),
the native loop (replay.py).

    for k: for i < n(k): K(i)   =   for p < P: for k: for s(k) * p <= i < min(s(k) * (p + 1), n(k)): K(i)

if of every memory that one kernel writes and another one touches, an iteration of each has a piece to itself, and s(k) pieces are as many
bytes for all of them. Then what one part touches no other part writes; iterations of one kernel may run in any order as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import TypeAlias

# Parts are shared out among threads: of so many for each of them the last ones are not waited for long.
PARTS_A_THREAD = 4


@dataclass(frozen=True, slots=True)
class Job:
    """Native code that runs iterations: `address(table, first, last)`. `pieces`: of each memory the bytes that one has to itself, or 0."""

    address: int
    table: int
    size: int
    pieces: Mapping[Hashable, int]
    written: frozenset[Hashable]
    is_shared: bool  # among threads


# The address of what runs jobs in parts, and its table: of the jobs, with how many iterations of each are in a part.
GroupOf: TypeAlias = Callable[[Sequence[tuple[Job, int]]], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Chain:
    """Jobs in a row that may run part by part, each with its iterations for one of the first job.

    `pieces`: of each memory the bytes for one iteration of the first job; 0: what is read in other pieces, or in none. `total`: of all memories.
    `step`: so many iterations of the first job are whole ones of all.
    """

    jobs: tuple[tuple[Job, Fraction], ...] = ()
    pieces: Mapping[Hashable, Fraction] = field(default_factory=dict)
    written: frozenset[Hashable] = frozenset()
    total: Fraction = Fraction(0)
    step: int = 1
    is_shared: bool = False

    def followed_by(self, job: Job) -> _Chain | None:
        """None where the job touches what others write in other pieces, or writes what they touch so."""
        written = self.written | job.written
        both = [memory for memory in job.pieces if memory in self.pieces and memory in written]
        if not all([job.pieces[memory] and self.pieces[memory] for memory in both]):
            return None
        shares = {self.pieces[memory] / job.pieces[memory] for memory in both}
        if len(shares) > 1:
            return None
        natural = Fraction(job.size, self.jobs[0][0].size) if self.jobs else Fraction(1)
        share = next(iter(shares), natural)
        pieces, total = dict(self.pieces), self.total
        for memory, piece in job.pieces.items():
            own, known = piece * share, pieces.get(memory)
            pieces[memory] = own if known is None or known == own else Fraction(0)
            total += pieces[memory] - (known or 0)
        jobs, step = (*self.jobs, (job, share)), lcm(self.step, share.denominator)
        return _Chain(jobs, pieces, written, total, step, self.is_shared or job.is_shared)

    def of_part(self, room: int, threads: int) -> int:
        """Iterations of the first job in a part, of which all touch at most so many bytes; 0: not even the smallest part does."""
        most = int(room // (self.total * self.step or 1))
        steps = -(-self.jobs[0][0].size // self.step)
        fewest = threads * PARTS_A_THREAD if self.is_shared and threads > 1 else 1
        parts = max(-(-steps // most), min(fewest, steps)) if most else 0
        return -(-steps // parts) * self.step if parts else 0

    def joined(self, room: int, threads: int, group_of: GroupOf) -> Sequence[Job]:
        """One job of several; each by itself, where there is one part."""
        own = self.of_part(room, threads) if len(self.jobs) > 1 else 0
        in_part = [(job, int(share * own)) for job, share in self.jobs]
        parts = max([-(-job.size // size) for job, size in in_part]) if own else 1
        if parts == 1:
            return [job for job, _ in self.jobs]
        pieces = {memory: int(piece * own) for memory, piece in self.pieces.items()}
        return [Job(*group_of(in_part), parts, pieces, self.written, self.is_shared)]


def in_parts(jobs: Sequence[Job], room: int, threads: int, group_of: GroupOf) -> list[Job]:
    """The jobs, in order, those in a row as one that may run in parts which touch at most so many bytes."""
    if not any([any(job.pieces.values()) for job in jobs]):
        return list(jobs)
    found: list[Job] = []
    chain = _Chain()
    for job in jobs:
        longer = chain.followed_by(job)
        if longer is None or not longer.of_part(room, threads):
            found += chain.joined(room, threads, group_of) if chain.jobs else ()
            longer = _Chain().followed_by(job)
        chain = longer or _Chain()
    return [*found, *(chain.joined(room, threads, group_of) if chain.jobs else ())]
