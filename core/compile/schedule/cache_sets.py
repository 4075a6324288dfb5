"""Which sets of a cache what lies so many bytes apart falls into, and how much of it stays there.

Owns: the arithmetic of ways and sets. Does not own: the sizes (machine.py), what it costs when lines evict each other (cost_model.py, conflicts.py).
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import gcd

from proofgrad.core.compile.machine.machine import FirstCache
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.schedule.contraction import Contraction
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Ways of a set of the second cache: servers have 8 to 20.
LEAST_WAYS = 8


def columns_collide(contraction: Contraction, cache: FirstCache) -> bool:
    """Whether what a tile reads of the columns, step by step, is more than its sets of the first cache hold."""
    return _loads_collide(contraction.column_factor, contraction.reduction.src[-1], cache)


@lru_cache(maxsize=16)  # asked for each tile
def _loads_collide(factor: UOp, loop: UOp, cache: FirstCache) -> bool:
    loads = [n for n in toposort((factor,)) if n.op is Ops.LOAD]
    return any(collide(load, loop, cache) for load in loads)


def collide(load: UOp, loop: UOp, cache: FirstCache) -> bool:
    """Whether a loop reads more lines than the sets of the first cache hold in which they lie."""
    step = coefficient(load.src[0].src[1], loop)
    if not step:
        return False
    return size_of(loop) > cache.ways * sets_of(step * load.dtype.itemsize, cache)


def lines_that_stay(nbytes: int, target: Target) -> int:
    """How many lines, so many bytes apart, half of the second cache holds: fewer where they share sets."""
    way = target.cache_bytes // LEAST_WAYS
    return min(
        target.room_bytes // target.first_cache.line_bytes, LEAST_WAYS * way // gcd(nbytes, way)
    )


def sets_of(nbytes: int, cache: FirstCache) -> int:
    """How many sets of the first cache positions so many bytes apart lie in."""
    return cache.way_bytes // gcd(nbytes, cache.way_bytes)


def rows_that_stay(nbytes: int, most: int, cache: FirstCache) -> int:
    """Of how many rows, so many bytes apart and at most `most`, the first cache holds a line each: so many as no set has more of than ways."""
    sets, of_set, last = cache.way_bytes // cache.line_bytes, Counter[int](), -1
    for row in range(most):  # one more never has less in a set, so all are counted once
        line = row * nbytes // cache.line_bytes
        if line != last:
            last = line
            of_set[line % sets] += 1
            if of_set[line % sets] > cache.ways:
                return row
    return most


def lines_of_a_set(nbytes: int, count: int, cache: FirstCache) -> int:
    """How many of so many positions, so many bytes apart, lie in other lines of one set: as many as share most.

    Those that are nearly a multiple of all sets apart lie side by side in a few of them.
    """
    sets = cache.way_bytes // cache.line_bytes
    lines = {n * nbytes // cache.line_bytes for n in range(count)}
    return max(Counter([line % sets for line in lines]).values())
