"""How often a warp goes to the banks of shared memory for one access: read from the index terms of a kernel.

Owns: the positions that the items of a warp read or write at once, and what a GPU makes of them. Does not own: which accesses a kernel
has, and how often (ptx_kernels.py).

Shared memory has 32 banks of 4 bytes. A warp's access is made 128 bytes at a time: of 16 bytes an item, 8 items together. Words of one bank
take turns; one word for several items is read once. Source: CUDA C++ Programming Guide, "Shared Memory".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from proofgrad.backends.llvm.matrix_loads import Together
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.fragments import WARP
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

BANKS, WORD, WIDEST = 32, 4, 16


def turns(
    accesses: Sequence[UOp], rows: Mapping[UOp, Together] = MappingProxyType({})
) -> tuple[int, int, int]:
    """How many times one warp goes to the banks, how many it would without conflicts, and with how many instructions.

    `accesses`: LOADs and STOREs of one memory that follow each other. Loads of neighbours are made as one, as LLVM does.
    `rows`: loads that a warp makes together: of each instruction the position of the 16 bytes whose address an item gives.
    """
    parts = [
        [
            ((_positions(row.position, item, 1)[0] + row.behind) * n.dtype.scalar.itemsize, WIDEST)
            for item in range(WARP)
        ]
        for n in accesses
        if n in rows and rows[n].last is n
        for row in rows[n].rows
    ]
    parts += _together([n for n in accesses if n not in rows])
    return sum(map(_turns, parts)), sum(map(_least, parts)), len(parts)


def _together(accesses: Sequence[UOp]) -> Iterator[list[tuple[int, int]]]:
    """Start and bytes of each item, of each instruction."""
    single: dict[tuple[int, ...], set[int]] = defaultdict(set)
    size = WORD
    for access in accesses:
        value = access if access.op is Ops.LOAD else access.src[1]
        index, size = access.src[0].src[1], value.dtype.scalar.itemsize
        lanes = value.dtype.lanes
        positions = [_positions(index, item, lanes) for item in range(WARP)]
        if lanes == 1 and access.op is Ops.LOAD:
            first = positions[0][0]
            single[tuple([p[0] - first for p in positions])].add(first)
        elif index.dtype.lanes > 1:  # each element by itself
            yield from [[(p[k] * size, size) for p in positions] for k in range(lanes)]
        else:
            yield [(p[0] * size, lanes * size) for p in positions]
    for apart, starts in single.items():
        left = set(starts)
        for start in sorted(starts):
            if start in left:
                count = _neighbours(start, apart, left, size)
                left.difference_update(range(start, start + count))
                yield [((start + more) * size, count * size) for more in apart]


def _neighbours(start: int, apart: tuple[int, ...], left: set[int], size: int) -> int:
    """How many elements one load takes: a power of two, aligned in each item."""
    count = WIDEST // size
    while count > 1:
        is_aligned = all([(start + more) % count == 0 for more in apart])
        if is_aligned and left.issuperset(range(start, start + count)):
            return count
        count //= 2
    return 1


def _positions(index: UOp, item: int, lanes: int) -> list[int]:
    """Of one item, in the first iteration of all loops but its own."""
    known: dict[UOp, list[int]] = {}
    for node in toposort((index,)):
        if node.op is Ops.CONST:
            known[node] = list(node.arg) if isinstance(node.arg, tuple) else [node.arg] * lanes
        elif node.op is Ops.RANGE:
            known[node] = [item if node.arg[1] is AxisRole.LANE else 0] * lanes
        elif node.op is Ops.BROADCAST:
            known[node] = known[node.src[0]]
        elif node.op in ELEMENTWISE:
            types = [s.dtype.scalar for s in node.src]
            sources = zip(*[known[s] for s in node.src])
            known[node] = [int(evaluate(node.op, node.dtype.scalar, s, types)) for s in sources]
        else:
            known[node] = [0] * lanes
    return known[index]


def _turns(accesses: list[tuple[int, int]]) -> int:
    each = max(WORD, accesses[0][1])
    together = max(1, BANKS * WORD // each)
    total = 0
    for first in range(0, len(accesses), together):
        words: dict[int, set[int]] = defaultdict(set)
        for start, nbytes in accesses[first : first + together]:
            for word in range(start // WORD, (start + nbytes - 1) // WORD + 1):
                words[word % BANKS].add(word)
        total += max(map(len, words.values()))
    return total


def _least(accesses: list[tuple[int, int]]) -> int:
    """Each 128 bytes once."""
    return max(1, len(accesses) * max(WORD, accesses[0][1]) // (BANKS * WORD))
