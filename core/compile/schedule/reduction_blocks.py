"""Which reductions of rows are summed block by block, and how many rows a block has.

Owns: the choice, a heuristic. Does not own: the kernels of blocks (tactics/block_reductions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule
from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_below, loops_of
from proofgrad.core.compile.schedule.contraction import Contraction
from proofgrad.core.compile.schedule.copies import MOST_COPIES
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.operands import LEAST_ITEMSIZE, choose_reduction_block
from proofgrad.core.compile.schedule.operation_cycles import SHORT_CYCLES
from proofgrad.core.compile.schedule.vector_loops import cycles_along
from proofgrad.core.ir.op_names import REDUCE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Rows read side by side, of the pages that a processor foresees the reading of: other threads read as well. Fewer than so many do not pay for
# the sums, which are loaded and stored for each block (measured, 16 pages: 4 rows of 5000 x 3001 take a quarter longer than 8).
SHARE_OF_PAGES, FEWEST_ROWS = 1 / 4, 8
# More rows in a page are foreseen as they are read.
ROWS_IN_A_PAGE = 8
# So many blocks that reading and writing the sums counts little.
FEWEST_BLOCKS = 4
# Of so many times as many rows as there are pages foreseen, blocks pay even where the last one has a mask (measured, 32 pages: of 131 rows of 50,021
# they take as long on one thread, and half as long on two, of 67 rows of 100,003 half as long again; 16 pages: of 53 and 67 rows 0.5 to 0.9 times as long).
WORTH_A_MASK = 3
# Of a matrix that threads read side by side, each a part of its rows, a part has so many pages, and all of them are so many second caches long: around the ends
# of short parts each thread is given lines that another one writes (measured, two threads, 2 to 8 rows by matrices of 6 MB and more: parts of 12 to 17 KB take 0.3 to 0.9
# times as long as tiles, of 2 to 5 KB 0.9 to 1.8 times; of 12 KB of 2.5 MB 1.5 times): from 1.5 to 4 pages the same is chosen in 275 drawn cases.
PAGES_OF_A_PART, CACHES_OF_A_PART = 2.5, 4
# Rows that lie apart, which together are so many times longer than the second cache.
WORTH_CACHES = 1


@dataclass(frozen=True, slots=True)
class Rows:
    """A reduction over rows, the loop along them, and how many are read side by side."""

    reduction: UOp
    along: UOp
    steps: int


def find_rows(kernel: UOp, target: Target, override: Schedule = AUTOMATIC) -> Rows | None:
    """The reduction of a kernel with one store that goes to another row at each step.

    None for work items, which run at once: the sums of a block would have to wait for those before.
    """
    if (
        override.reduction_block == 0
        or target.work_items
        or len(kernel.src) != 1
        or len(kernel.src[0].src) != 2
    ):
        return None
    reductions = [n for n in toposort((kernel,)) if n.op is REDUCE]
    if len(reductions) != 1 or len(reductions[0].src) != 2 or not is_fixed(reductions[0].src[1]):
        return None
    reduction, position = reductions[0], kernel.src[0].src[0].src[1]
    outputs, size = output_loops(kernel), size_of(reduction.src[1])
    along = next((x for x in outputs if coefficient(position, x) == 1), None)
    if along is None or size == 0 or reduction.dtype.itemsize < LEAST_ITEMSIZE:
        return None
    if loops_of(reduction) != set(outputs):  # the kernel runs over more than its results
        return None
    most = override.reduction_block or _most_steps(target)
    steps = largest_divisor(size, most)
    if steps < _least_steps(target) and (
        override.reduction_block
        or size > WORTH_A_MASK * target.core.foreseen_pages
        or _waits_for_rows(reduction, kernel, along, target)
    ):
        # The last block has fewer, and a mask.
        steps = override.reduction_block or min(most, size // FEWEST_BLOCKS)
    if override.reduction_block is None and not (
        _least_steps(target) <= steps <= size // FEWEST_BLOCKS
        and _lie_apart(reduction, along, target)
    ):
        return None
    return Rows(reduction, along, steps) if 1 < steps < size else None


def sums_without_tiles(
    contraction: Contraction, kernel: UOp, target: Target, override: Schedule
) -> bool:
    """Whether a product has so few rows that they wait for memory, all side by side: then its other matrix is read in order, a few of its rows at
    a time, and not tile by tile (measured, 16 pages: 2 to 8 rows by 1000 x 2003 and 3062 x 527 take 0.4 to 0.9 times as long, of 16 1.1 to 1.3 times)."""
    core, count = target.core, contraction.row_count
    multiplying = count / core.multiply_adds_a_cycle
    is_waiting = multiplying < target.vector_bytes / core.memory_bytes_a_cycle
    if not is_waiting or count > MOST_COPIES or override.says_how_tiles_run:
        return False
    if not choose_reduction_block(contraction, target, override):
        return False
    if target.threads > 1 and not _has_long_parts(contraction, target):
        return False
    rows = find_rows(kernel, target, override)
    return rows is not None and rows.along is contraction.columns


def _has_long_parts(contraction: Contraction, target: Target) -> bool:
    """Whether threads that share the columns of a matrix have long parts of its rows each."""
    part = size_of(contraction.columns) * contraction.itemsize / target.threads
    is_far = part * contraction.depth > CACHES_OF_A_PART * target.cache_bytes
    return is_far and part >= PAGES_OF_A_PART * target.page_bytes


def _most_steps(target: Target) -> int:
    """Rows that are read side by side."""
    return max(FEWEST_ROWS, int(SHARE_OF_PAGES * target.core.foreseen_pages))


def _least_steps(target: Target) -> float:
    """Rows that are worth being read side by side."""
    return _most_steps(target) / 2


def _waits_for_rows(reduction: UOp, kernel: UOp, along: UOp, target: Target) -> bool:
    """Whether a step computes more than a core looks ahead over, and the next goes to another page of what half of the second cache does not hold: rows
    that nothing foresees are waited for, one by one, where a plain sum asks for many.

    Measured: exponentials of 29 rows of 130,003 take four times as long as in blocks, of 31 rows of 1697 0.75 times as long.
    """
    loop = reduction.src[1]
    positions = [n.src[0] for n in toposort((reduction.src[0],)) if n.op is Ops.LOAD]
    steps = [abs(coefficient(p.src[1], loop) or 0) * p.dtype.itemsize for p in positions]
    farthest = max(steps, default=0)
    is_far = farthest >= target.page_bytes and size_of(loop) * farthest >= target.cache_bytes / 2
    cycles = cycles_along(along, loops_below(kernel)) * target.core.sums_at_once
    return is_far and cycles > target.core.foreseen_instructions * SHORT_CYCLES


def _lie_apart(reduction: UOp, along: UOp, target: Target) -> bool:
    """Whether a few steps of the reduction go to another page of memory that is long."""
    value, loop = reduction.src
    positions = [n.src[0] for n in toposort((value,)) if n.op is Ops.LOAD]
    rows = [p for p in positions if {loop, along} <= loops_of(p.src[1])]
    in_rows = all(coefficient(p.src[1], along) == 1 for p in rows)
    steps = [(coefficient(p.src[1], loop) or 0) * p.dtype.itemsize for p in rows]
    is_apart = all(ROWS_IN_A_PAGE * abs(step) >= target.page_bytes for step in steps)
    length = prod(size_of(x) for x in loops_of(value)) * reduction.dtype.itemsize
    return bool(rows) and in_rows and is_apart and length >= WORTH_CACHES * target.cache_bytes
