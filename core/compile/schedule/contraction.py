"""The sum of products of a kernel, as tiles may be laid over it.

Owns: finding it, its loops and operands, how they lie in memory. Does not own: which tile (tiles.py),
which operands are copied first (operands.py).

A contraction is a sum of products where one factor moves with the rows of a tile and the other with its
columns, as in a product of matrices or a convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import gcd, prod
from typing import Any, NamedTuple, TypeVar

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule, Tile
from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_below, loops_of
from proofgrad.core.compile.nests.sums_of_products import PRODUCTS, below_conversions, is_masked
from proofgrad.core.compile.schedule.ended_loops import ended_by_variables
from proofgrad.core.compile.schedule.words import sums_words
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import LOAD, PARAM, RANGE, REDUCE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Steps between the elements of a vector up to which memory is copied apart: as convolutions stride.
LARGEST_STEP = 4
# A table may be so much longer than what it is filled from: a gathered operand is read in place.
LARGEST_GROWTH = 2
# A table of columns that are turned around is worth it where the rows are so many times longer.
WORTH_TURNING = 16
# Up to so many vectors of columns bytes are sooner widened in every tile than copied to a table of words (measured: 12 rows of x @ w.T of int8 take
# .6 of the time with AVX2, 8 .6 with SSE, 200 1.2).
VECTORS_OF_WORDS = 2
# A kernel more, as one that fills a table, is worth it where the product takes so many times what launching one does.
WORTH_A_KERNEL = 4
# Below so many multiplications a contraction is not worth a tile: most of one would be empty.
WORTH_MULTIPLICATIONS = 1 << 9
# Rows of so many bytes are asked for ahead, line by line, where several steps at once read them.
LONG_ROW_BYTES = 1 << 10
# Steps of a sum that run at once, where there are more.
MOST_STEPS = 4
# Bytes of what is transposed in registers.
WORD_BYTES = 4

ANY_MACHINE = Target("any")


class Window(NamedTuple):
    """What a row reads in a step of the sum is read by the one `shift` rows before, or behind, `lag` steps later: the stride and the dilation of a
    convolution, without what they have in common."""

    lag: int
    shift: int

    def again(self, rows: int, steps: int) -> int:
        """Elements of so many rows and steps that were read in an earlier one of these."""
        return max(0, rows - self.shift) * max(0, steps - self.lag) if self.lag else 0


@dataclass(frozen=True)  # without slots: what is found once is asked for each tile
class Contraction:
    """The sum of products of a kernel. `rows` and `columns` are the output loops of its tile."""

    reduction: UOp
    rows: UOp
    columns: UOp
    row_factor: UOp  # moves with `rows`, not with `columns`
    column_factor: UOp
    others: tuple[UOp, ...]  # output loops outside of the tile
    is_apart: bool = False  # columns do not lie side by side where they are stored
    is_transposed: bool = False  # but rows do: they are transposed in registers, some at a time
    blocks: tuple[UOp, ...] = ()  # loops in order around the tiles: each adds a part of the sum
    beside: tuple[UOp, ...] = ()  # of the others those along which results of one line lie
    ended: frozenset[UOp] = frozenset()  # loops that a variable may end early

    @cached_property
    def found(self) -> dict[Any, tuple[Target, Any]]:
        """What was asked of its tiles (`once_a_tile`), each with the target that it was asked for."""
        return {}

    @cached_property
    def row_count(self) -> int:
        """Rows of the matrix that it computes, for each iteration of the loops outside."""
        return size_of(self.rows)

    @cached_property
    def column_count(self) -> int:
        """Columns of that matrix."""
        return size_of(self.columns)

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an element of the sums."""
        return self.reduction.dtype.itemsize

    @cached_property
    def loaded_itemsize(self) -> int:
        """Bytes of the longest element that factors read."""
        factors = self.row_factor, self.column_factor
        return max([load.dtype.itemsize for x in factors for load in _loads_of(x)])

    @cached_property
    def depth(self) -> int:
        """Products that a tile sums for one element."""
        return prod(size_of(loop) for loop in self.reduction.src[1:])

    @property
    def sum_loops(self) -> tuple[UOp, ...]:
        """All loops of the sum, outermost first."""
        return (*self.blocks, *self.reduction.src[1:])

    @cached_property
    def multiplications(self) -> int:
        """How many products of two factors the whole kernel adds up."""
        sums = self.row_count * self.column_count * self.other_tiles
        return sums * prod(size_of(loop) for loop in self.sum_loops)

    @cached_property
    def other_tiles(self) -> int:
        """The iterations of the loops outside of the tile: how often rows times columns are computed."""
        return prod(size_of(loop) for loop in self.others)

    @cached_property
    def repetitions(self) -> int:
        """How often all tiles of rows and columns are gone through: for each block of the sum anew."""
        return self.other_tiles * prod([size_of(loop) for loop in self.blocks])

    @cached_property
    def row_steps(self) -> list[int | None]:
        """How far each load of the rows' operand moves with `rows`."""
        return load_steps(self.row_factor, self.rows)

    @cached_property
    def has_ended_rows(self) -> bool:
        """Whether a variable says how many rows there are, or how long the sum is: a table of them would be filled for its largest value."""
        return not self.ended.isdisjoint(loops_of(self.row_factor))

    @cached_property
    def has_ended_columns(self) -> bool:
        """The same of columns."""
        return not self.ended.isdisjoint(loops_of(self.column_factor))

    @cached_property
    def has_masked_rows(self) -> bool:
        """Whether the mask of a product changes from row to row."""
        return self._is_masked_along(self.rows)

    @cached_property
    def has_masked_columns(self) -> bool:
        """Whether it changes from column to column."""
        return self._is_masked_along(self.columns)

    def _is_masked_along(self, loop: UOp) -> bool:
        value = self.reduction.src[0]
        return value.op is Ops.WHERE and loop in loops_of(value.src[0])

    def readers_of_rows(self, tile: Tile) -> int:
        """How many tiles read the same part of the rows' operand."""
        return self._copies_of_rows * -(-self.column_count // tile.columns)

    def readers_of_columns(self, tile: Tile) -> int:
        """How many tiles read the same part of the columns' operand."""
        return self._copies_of_columns * -(-self.row_count // tile.rows)

    @cached_property
    def _copies_of_rows(self) -> int:
        return self._without(self.row_factor)

    @cached_property
    def _copies_of_columns(self) -> int:
        return self._without(self.column_factor)

    def _without(self, factor: UOp) -> int:
        """The values of the loops outside of the tile that a factor does not change with."""
        free = loops_of(factor)
        return prod(size_of(loop) for loop in self.others if loop not in free)

    def pays_tables(self, target: Target) -> bool:
        """Whether it takes so long that kernels that fill tables count little."""
        return pays_a_kernel(self.multiplications, self.reduction.dtype, target)

    def has_vectors(self, target: Target) -> bool:
        """Whether columns lie side by side in memory, or can be put so in a table."""
        factor = self.column_factor
        steps = load_steps(factor, self.columns)
        return (
            all(step in (None, 0, 1) or 0 < step <= LARGEST_STEP for step in steps)
            or (self.pays_tables(target) and growth(factor) <= LARGEST_GROWTH)
            or self.may_transpose(target.lanes(self.reduction.dtype), target)
        )

    def may_sum_lanes(self, target: Target) -> bool:
        """Whether the sum may run in vectors, as columns are so few that half of a vector of them would be empty."""
        most = target.lanes(self.reduction.dtype)
        is_of_vectors = not target.work_items and 1 < lanes_of_sum(self, target)
        if is_of_vectors and self.sums_words:
            is_few = self.column_count <= VECTORS_OF_WORDS * most
            return is_few and target.has_dot and 2 < lanes_of_sum(self, target)
        if not is_of_vectors or 2 * self.column_count > most:
            return False
        return self.lies_along_sum or (self.pays_tables(target) and self.may_turn_columns)

    def shares_large_columns(self, cache_bytes: int) -> bool:
        """Whether the loops outside of the tile read the same columns, which fill much of the cache."""
        nbytes = table_elements(self.column_factor) * self.itemsize
        return 1 < self._copies_of_columns == self.other_tiles and nbytes > cache_bytes // 2

    @cached_property
    def rows_fit_a_table(self) -> bool:
        """Whether a table of the rows' operand is not much longer than the operand."""
        return self.growth_of_rows <= LARGEST_GROWTH

    @cached_property
    def rows_are_computed(self) -> bool:
        """Whether an element of the rows is more than a load: a tile that reads no table computes it for itself."""
        return self.row_factor.op is not LOAD

    @cached_property
    def growth_of_rows(self) -> float:
        """How many times longer than their operand a table of the rows is."""
        return self._growth(self.row_factor)

    @cached_property
    def growth_of_columns(self) -> float:
        """How many times longer than their operand a table of the columns is."""
        return self._growth(self.column_factor)

    def _growth(self, factor: UOp) -> float:
        """Of a sum in blocks that what the last has beyond the end of the sum is no part of: no window."""
        times, blocks = growth(factor), prod(size_of(loop) for loop in self.blocks)
        return min(times, 1.0) if blocks > 1 and times * (blocks - 1) < blocks else times

    @cached_property
    def columns_at_once(self) -> int:
        """Elements of the columns' operand that one iteration of the loops outside of the tile goes through."""
        free = loops_of(self.column_factor)
        loops = [x for x in self.reduction.src[1:] if x in free]
        return prod(size_of(loop) for loop in (self.columns, *loops))

    @cached_property
    def rows_at_once(self) -> int:
        """The same of the rows' operand."""
        free = loops_of(self.row_factor)
        return prod(size_of(x) for x in (self.rows, *self.reduction.src[1:]) if x in free)

    @cached_property
    def columns_lie_apart(self) -> bool:
        """Whether a vector of columns would be gathered from the operand as it lies."""
        steps = load_steps(self.column_factor, self.columns)
        return any(step not in (0, 1) for step in steps)

    @cached_property
    def columns_stay_apart(self) -> bool:
        """Whether they do in windows, which are no table, and too far for their memory to be copied apart."""
        steps = load_steps(self.column_factor, self.columns)
        is_near = all(step is not None and 0 <= step <= LARGEST_STEP for step in steps)
        return self.growth_of_columns > LARGEST_GROWTH and not is_near

    @cached_property
    def rows_lie_along_depth(self) -> bool:
        """Whether the rows' operand lies in memory along the innermost loop of the sum."""
        return set(load_steps(self.row_factor, self.reduction.src[-1])) <= {1}

    def steps_along_sum(self, factor: UOp) -> int:
        """So many steps of the sum read an operand, memory of words or of parts of words, from end to end."""
        steps, load = 1, below_conversions(factor)
        if load.op is not LOAD or load.dtype.itemsize > WORD_BYTES or load.dtype.is_bool:
            return steps
        for loop in reversed(self.sum_loops):
            if load_steps(factor, loop) != [steps]:
                break
            steps *= size_of(loop)
        return steps

    @cached_property
    def columns_lie_along_sum(self) -> bool:
        """Whether the columns' operand is memory that lies along the innermost loop of the sum."""
        return self.steps_along_sum(self.column_factor) >= size_of(self.reduction.src[-1]) > 1

    def may_transpose(self, columns: int, target: Target) -> bool:
        """Whether an item may pack so many columns that lie along the sum: some steps are transposed in registers."""
        nbytes = columns * self.depth * self.reduction.dtype.itemsize
        has_room = not target.work_items and nbytes <= target.scratch_bytes
        return has_room and self.columns_lie_along_sum and self.columns_lie_apart

    @cached_property
    def lies_along_sum(self) -> bool:
        """Whether both operands lie in memory along the innermost loop of the sum, and each step adds a product of floats."""
        columns = load_steps(self.column_factor, self.reduction.src[-1])
        return self._rows_lie_along_sum and set(columns) == {1}

    @cached_property
    def sums_words(self) -> bool:
        """The same of small integers, whose products are taken in pairs."""
        return not self.blocks and sums_words(self.reduction, self.reduction.src[-1])

    @cached_property
    def may_turn_columns(self) -> bool:
        """Whether rows of a matrix lie so, and a table of the columns that does is short beside it."""
        one, other = self.row_factor, self.column_factor
        is_short = WORTH_TURNING * table_elements(other) <= table_elements(one)
        is_plain = other.op is LOAD and loops_of(other) == {self.columns, *self.sum_loops}
        is_of_matrices = is_plain and len(self.sum_loops) == 1 and self.growth_of_rows <= 1
        return (
            is_of_matrices and is_short and self._rows_lie_along_sum and not self.has_ended_columns
        )

    @cached_property
    def _rows_lie_along_sum(self) -> bool:
        reduction = self.reduction
        is_plain = reduction.src[0].op is Ops.MUL and reduction.dtype.is_float
        rows = load_steps(self.row_factor, reduction.src[-1])
        return is_plain and not self.blocks and set(rows) == {1}

    @cached_property
    def window(self) -> Window:
        """How the windows of neighbouring rows overlap, along the innermost loop of the sum; none: (0, 0)."""
        loop = self.reduction.src[-1]
        steps, ways = [
            {abs(step or 0) for step in load_steps(self.row_factor, x)} for x in (self.rows, loop)
        ]
        step, way = [found.pop() if len(found) == 1 else 0 for found in (steps, ways)]
        both = gcd(step, way)
        is_window = step and way and step // both < size_of(loop) and way // both < self.row_count
        return Window(step // both, way // both) if is_window else Window(0, 0)

    @cached_property
    def shares_steps(self) -> bool:
        """Whether neighbouring steps of the sum share something: windows elements, long rows and parts of a sum the lines that are asked for ahead."""
        loop = self.reduction.src[-1]
        is_long = size_of(loop) * self.itemsize >= LONG_ROW_BYTES
        is_asked_for = bool(self.blocks) or (is_long and self.rows_lie_along_depth)
        return is_asked_for or 0 < self.window.lag < MOST_STEPS

    def rows_of_a_line(self, elements: int) -> int:
        """So many neighbouring rows have their elements of a step in one line of so many elements: windows of stride 2 every other one."""
        steps = set(load_steps(self.row_factor, self.rows)) - {1}
        if not steps:
            return elements
        step = steps.pop() if len(steps) == 1 else None
        return elements // step if step is not None and 0 < step <= elements else 1

    @cached_property
    def rows_are_of_a_matrix(self) -> bool:
        """Whether rows lie side by side, and are no windows, which overlap."""
        return self.rows_lie_side_by_side and self.growth_of_rows <= 1

    @cached_property
    def rows_lie_side_by_side(self) -> bool:
        """Whether one row's element of the operand lies beside the next row's."""
        return set(load_steps(self.row_factor, self.rows)) <= {1}


_T = TypeVar("_T")
_OfTile = Callable[[Contraction, Tile, Target], _T]


def once_a_tile(find: _OfTile[_T]) -> _OfTile[_T]:
    """A question about a tile that several others ask: it is answered once, and the answer kept with the contraction."""

    def of(contraction: Contraction, tile: Tile, target: Target) -> _T:
        key = find, tile
        known = contraction.found.get(key)
        if known is None or known[0] is not target:
            known = contraction.found[key] = target, find(contraction, tile, target)
        answer: _T = known[1]
        return answer

    return of


def pays_a_kernel(multiplications: int, dtype: DType, target: Target) -> bool:
    """Whether so many products take so long that one more launch counts little."""
    cycles = multiplications / max(1, target.multiply_adds(dtype))
    return cycles >= WORTH_A_KERNEL * target.core.launch_cycles


def pays_tiles(multiplications: int, dtype: DType, target: Target) -> bool:
    """Whether so many products, each of which loads both of its factors where there are no tiles, take longer than one more launch."""
    loads = 2 * multiplications / max(1, target.lanes(dtype))
    return loads >= target.core.loads_a_cycle * target.core.launch_cycles


def contractions(
    kernel: UOp, override: Schedule = AUTOMATIC, target: Target = ANY_MACHINE
) -> list[Contraction]:
    """The ways to lay tiles over the one sum of products of a kernel with one store."""
    nodes = toposort((kernel,))
    if not all(is_fixed(n) for n in nodes if n.op is RANGE):
        return []
    reductions = [n for n in nodes if n.op is REDUCE]
    if len(kernel.src) != 1 or len(reductions) != 1:
        return []
    (reduction,), (position, value, *blocks) = reductions, kernel.src[0].src
    if blocks and (value is not reduction or not loops_of(position).isdisjoint(blocks)):
        return []
    term = reduction.src[0].src[1] if is_masked(reduction.src[0]) else reduction.src[0]
    if reduction.arg is not Ops.ADD or term.op not in PRODUCTS:
        return []
    free = loops_below(kernel)
    outputs = output_loops(kernel)
    ended = ended_by_variables(position, reduction)
    found: list[Contraction] = []
    for one, other in (term.src, term.src[::-1]):
        rows = [x for x in outputs if x in free[one] and x not in free[other]]
        columns = [x for x in outputs if x in free[other] and x not in free[one]]
        for row, column in product(reversed(rows), columns):  # inner loops lie closer in memory
            if not _is_allowed(row, override.rows) or not _is_allowed(column, override.columns):
                continue
            others = tuple([x for x in outputs if x is not row and x is not column])
            is_apart = coefficient(position.src[1], column) != 1
            is_transposed = is_apart and coefficient(position.src[1], row) == 1
            across = (row, column, one, other, others, is_apart, is_transposed, tuple(blocks))
            beside = _in_a_line(position, row, column, others, target)
            found.append(Contraction(reduction, *across, beside, ended))
    least = 1 if override.tiled else WORTH_MULTIPLICATIONS
    return [
        c
        for c in found
        if c.multiplications >= least and (c.has_vectors(target) or c.may_sum_lanes(target))
    ]


def _in_a_line(
    position: UOp, row: UOp, column: UOp, others: tuple[UOp, ...], target: Target
) -> tuple[UOp, ...]:
    """The loops outside of a tile along which results lie nearer to each other than along its rows and columns, in a line."""
    itemsize, line = position.dtype.itemsize, target.first_cache.line_bytes
    steps = {x: coefficient(position.src[1], x) for x in (row, column, *others)}
    of_tile = min(steps[row] or 0, steps[column] or 0)
    return tuple([x for x in others if 0 < (steps[x] or 0) < min(of_tile, line // itemsize)])


def _is_allowed(loop: UOp, number: int | None) -> bool:
    return number is None or loop.arg[0] == number


def lanes_of_sum(contraction: Contraction, target: Target) -> int:
    """Steps of the innermost loop of a sum that are a vector: a full one, or a shorter one of few steps."""
    lanes, steps = target.lanes(contraction.reduction.dtype), size_of(contraction.reduction.src[-1])
    lanes *= 2 if contraction.sums_words and target.has_dot else 1
    while lanes > 1 and lanes >= 2 * steps:
        lanes //= 2
    return lanes


def growth(factor: UOp) -> float:
    """How many times longer a table of an operand is than the memory that it is filled from."""
    memory = {n for n in toposort((factor,)) if n.op is PARAM}
    elements: int = sum(parameter.arg[1] for parameter in memory)
    return table_elements(factor) / max(1, elements)


@lru_cache(maxsize=16)  # asked for each tile, as load_steps is
def table_elements(factor: UOp) -> int:
    """How many elements a table of an operand has."""
    return prod(size_of(loop) for loop in loops_of(factor))


def tiles_along(contraction: Contraction, tile: Tile) -> tuple[int, int]:
    """How many tiles cover the rows, and the columns."""
    rows, columns = contraction.row_count, contraction.column_count
    return -(-rows // tile.rows), -(-columns // tile.columns)


def tiles_of(contraction: Contraction, tile: Tile) -> int:
    """How many tiles the kernel goes through: those of each block of the sum count anew."""
    row_tiles, column_tiles = tiles_along(contraction, tile)
    return row_tiles * column_tiles * contraction.repetitions


@lru_cache(maxsize=32)
def load_steps(factor: UOp, loop: UOp) -> list[int | None]:
    """How far each load of an operand moves with a loop; None: not by the same step each time."""
    return [coefficient(load.src[0].src[1], loop) for load in _loads_of(factor)]


@lru_cache(
    maxsize=8
)  # the factors of the kernel at work, which are asked about along each of their loops
def _loads_of(factor: UOp) -> tuple[UOp, ...]:
    return tuple([n for n in toposort((factor,)) if n.op is LOAD])
