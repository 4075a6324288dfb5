"""Whether a core multiplies a product by its matrix unit, and how many matrices of results it sums at once.

Owns: the choice, a heuristic from what the machine has. Does not own: the steps (tactics/matrices.py), products and their operands
(shared_tiles.py), the units (target.py).

The unit keeps a few matrices of results: each matrix of a factor that it loads goes into as many products as there are matrices along the
other side. Both factors are copied into tables first, in the order in which the unit takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from proofgrad.core.compile.machine.target import Target, TileUnit
from proofgrad.core.compile.nests.kernel_schedule import NO_MATRICES, Matrices, Schedule
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.nests.sums_of_products import below_conversions
from proofgrad.core.compile.schedule.contraction import WORD_BYTES
from proofgrad.core.compile.schedule.operation_cycles import MEMORY_CYCLES
from proofgrad.core.compile.schedule.shared_tiles import GroupProduct, find_product, runs_along
from proofgrad.core.compile.schedule.table_cycles import PACKING_CYCLES
from proofgrad.core.compile.schedule.threads import shares_work
from proofgrad.core.compile.schedule.words import sums_words
from proofgrad.core.compile.steps.collapse import MOST_LOOPS
from proofgrad.core.compile.steps.mma_in_item import factors_of_unit, tile_units
from proofgrad.core.compile.steps.offset_factor import OTHER
from proofgrad.core.compile.steps.where_normal import memories_of
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

OPERATIONS_OF_GAPS = 4  # on a vector, to find how small its numbers are


def unit_of(product: GroupProduct, target: Target) -> TileUnit | None:
    """The unit that multiplies the factors of a product, and adds as it does."""
    factors = product.row_factor, product.column_factor
    for unit in tile_units(target.matrix_units):
        if factors_of_unit(factors, product.reduction.dtype, unit) is not None:
            return unit
    return None


@dataclass(frozen=True, slots=True)
class Way:
    """By which unit a product may go; the factor of bytes that gets the other type first, if one does (steps/offset_factor.py).

    `of_normals`: only where no product, and no sum of them, is denormal (steps/where_normal.py).
    """

    unit: TileUnit
    offset: UOp | None = None
    of_normals: bool = False


def way_of(product: GroupProduct, target: Target) -> Way | None:
    """With factors as they are, where numbers may be denormal or where none is; or else with that one in the other type beside which less is to be summed."""
    if (unit := unit_of(product, target)) is not None:
        return Way(unit)
    if target.units_of_normals and memories_of(product.reduction) is not None:
        unit = unit_of(product, target.for_normals())
        return None if unit is None else Way(unit, of_normals=True)
    factors = product.row_factor, product.column_factor
    if product.reduction.dtype is not dtypes.int32 or not all([_is_byte(x) for x in factors]):
        return None
    types = [factor.src[0].dtype for factor in factors]
    _, rows, columns, _ = product.sizes
    for place in (1, 0) if rows < columns else (0, 1):
        taken = [OTHER[kind][0] if k == place else kind for k, kind in enumerate(types)]
        for unit in tile_units(target.matrix_units):
            if [unit.rows, unit.columns, unit.total] == [*taken, dtypes.int32]:
                return Way(unit, factors[place])
    return None


def has_units(target: Target) -> bool:
    """Whether cores multiply matrices, all or some of them."""
    return bool(target.units_of_normals or tile_units(target.matrix_units))


def _is_byte(factor: UOp) -> bool:
    return factor.op is Ops.CAST and factor.src[0].dtype in OTHER


def choose_matrices(kernel: UOp, target: Target, override: Schedule) -> Schedule | None:
    """The schedule of a product by a unit; None: it is not multiplied so."""
    if not (has_units(target) and override.tiled is not False):
        return None
    if override.matrices == NO_MATRICES or (product := find_product(kernel)) is None:
        return None
    sides = product.rows, product.columns, product.reduction.src[1:]
    around = len(product.others) + 3  # with rows, and columns in two parts
    if max(around, *[len(loops) for loops in sides]) > MOST_LOOPS:
        return None
    way = way_of(product, target)
    if way is None or not _may_be_unmasked(product, way):
        return None
    unit = way.unit
    asked = override.rows, override.columns, override.tile, override.staged, override.blocks
    is_other = any([x is not None for x in asked]) or bool(override.reduction_block)
    if override.matrices is None and is_other:
        return None
    made = _fastest(product, way, target) if override.matrices is None else override.matrices
    if made.rows * made.columns > unit.sums or not _may_be(made, product, way):
        return None
    if override.matrices is None and not _pays(product, way, made, target):
        return None
    vectors = int(_cycles(product, unit, made)) * target.lanes(unit.total)
    return Schedule(
        tiled=True,
        rows=override.rows,
        columns=override.columns,
        matrices=made,
        reduction_block=0,
        threads=shares_work(vectors, target, override),
    )


@dataclass(frozen=True, slots=True)
class Window:
    """Of the columns' operand: the loop of channels, and how far apart these lie."""

    channel: UOp
    plane: int


def window_of(product: GroupProduct, unit: TileUnit) -> Window | None:
    """The windows that a sum reads in planes of channels, of which a matrix takes a group at once; None: it reads others, or each element once."""
    load, steps = below_conversions(product.column_factor), product.reduction.src[1:]
    if load.op is not Ops.LOAD or len(load.src[0].src) != 2 or unit.groups != 1:
        return None
    memory, index = load.src[0].src
    strides = {x: coefficient(index, x) or 0 for x in loops_of(index)}
    channel = max(steps, key=lambda x: strides.get(x, 0))
    plane = strides.get(channel, 0)
    inside = [x for x in strides if strides[x] < plane]
    outside = [x for x in strides if strides[x] >= plane]
    length = sum([strides[x] * (size_of(x) - 1) for x in inside])
    are_planes = 0 < min(strides.values(), default=0) and length < plane
    are_groups = size_of(channel) % unit.group == 0 and size_of(channel) > unit.group
    is_read_again = any([size_of(x) > 1 for x in steps if x in inside])
    copied = plane * prod([size_of(x) for x in outside])
    is_once = memory.op is Ops.PARAM and copied <= memory.arg[1] and len(outside) < MOST_LOOPS - 2
    is_in_lines = strides.get(product.columns[-1]) == 1
    if are_planes and are_groups and is_read_again and is_once and is_in_lines:
        return Window(channel, plane)
    return None


def ways_of_matrices(kernel: UOp, target: Target) -> list[Matrices]:
    """All that may be tried for a kernel."""
    product = find_product(kernel)
    way = None if product is None else way_of(product, target)
    return [] if product is None or way is None else _ways(product, way)


def _ways(product: GroupProduct, way: Way) -> list[Matrices]:
    may_cut = len(product.columns) < MOST_LOOPS  # cut, the last is two
    has_windows = way.offset is not product.column_factor and window_of(product, way.unit)
    forms = [(False, False)]
    forms += [(True, False)] if may_cut and len(product.columns) > 1 else []
    forms += [(True, True)] if may_cut and has_windows else []
    sizes, most = range(1, way.unit.sums + 1), way.unit.sums
    fitting = [(high, wide) for high in sizes for wide in sizes if high * wide <= most]
    return [Matrices(high, wide, *form) for form in forms for high, wide in fitting]


def columns_lie_in_lines(product: GroupProduct, made: Matrices) -> bool:
    """Whether the columns of each matrix lie side by side in memory."""
    is_line = made.lines or len(product.columns) == 1
    return is_line and runs_along(product.column_factor, product.columns[-1])


def tiles_along(size: int, unit: TileUnit, at_once: int) -> int:
    """Matrices along a side, in whole turns of so many."""
    return -(-size // (unit.side * at_once)) * at_once


def turns_of_columns(columns: int, steps: int, unit: TileUnit, at_once: int, target: Target) -> int:
    """So many turns of columns that all rows take before the next ones: their table, of so many steps, stays in half of the second cache."""
    turns = -(-columns // (unit.side * at_once))
    nbytes = turns * at_once * unit.side * steps * unit.columns.itemsize
    blocks = min(turns, -(-nbytes // target.room_bytes))
    return -(-turns // blocks)


def _may_be_unmasked(product: GroupProduct, way: Way) -> bool:
    """Whether steps beyond the end of the sum add nothing: there are none, or loads are 0 there."""
    is_whole = product.sizes[3] % (way.unit.groups * way.unit.group) == 0
    factors = [x for x in (product.row_factor, product.column_factor) if x is not way.offset]
    return is_whole or all([_as_loaded(x).op is Ops.LOAD for x in factors])


def _as_loaded(factor: UOp) -> UOp:
    return factor.src[0] if factor.op is Ops.CAST else factor


def _may_be(made: Matrices, product: GroupProduct, way: Way) -> bool:
    """Whether the columns may be cut in lines, or read in windows, as is wanted."""
    if made.windows:
        return made in _ways(product, way)
    return not (made.lines and len(product.columns) >= MOST_LOOPS)


def _fastest(product: GroupProduct, way: Way, target: Target) -> Matrices:
    """In lines of columns or not, from windows or not, whichever takes less with its tables; as many as the unit keeps, with which the fewest are loaded."""
    ways, unit = _ways(product, way), way.unit
    forms = dict.fromkeys([(made.lines, made.windows) for made in ways])
    squares = [
        min(
            [x for x in ways if (x.lines, x.windows) == one], key=lambda x: _loads(product, unit, x)
        )
        for one in forms
    ]
    return min(squares, key=lambda made: _with_tables(product, unit, made, target))


def _loads(product: GroupProduct, unit: TileUnit, made: Matrices) -> tuple[float, int]:
    """Products of matrices, and the loads for them; of the same the fewest matrices."""
    high, wide = _tiles(product, unit, made)
    return high * wide * (1 + 1 / made.rows + 1 / made.columns), made.rows * made.columns


def _pays(product: GroupProduct, way: Way, made: Matrices, target: Target) -> bool:
    """Whether the unit and the tables that it reads take fewer cycles than vectors do."""
    unit, launches = way.unit, 2 + (way.offset is not None) + 3 * way.of_normals
    by_unit = _with_tables(product, unit, made, target) + launches * target.core.launch_cycles
    by_unit += _cycles_beside(product, way, target)
    pairs = 2 if target.has_dot and unit.total.is_int else 1
    by_vectors = prod(product.sizes) / (pairs * target.multiply_adds(unit.total))
    has_words = sums_words(product.reduction, product.reduction.src[-1])
    is_of_lanes = has_words and 2 * min(product.sizes[1:3]) <= target.lanes(unit.total)
    for table in _tables(product, unit, made):
        if table.nbytes > target.room_bytes:  # it comes from memory in any case
            by_vectors += table.nbytes_below / target.core.memory_bytes_a_cycle
        if table.is_column and table.lies_across and not is_of_lanes:  # vectors gather it, or copy
            by_vectors += table.elements * target.core.copy_cycles
    return bool(by_unit < by_vectors)


def _cycles_beside(product: GroupProduct, way: Way, target: Target) -> float:
    """To sum the factor beside the one that gets another type, or to look for small numbers in both."""
    if way.of_normals:
        nbytes = sum([_bytes_below(x) for x in (product.row_factor, product.column_factor)])
        return nbytes * OPERATIONS_OF_GAPS / target.vector_bytes
    if way.offset is None:
        return 0.0
    batch, rows, columns, steps = product.sizes
    side = columns if way.offset is product.row_factor else rows
    return batch * side * steps / target.lanes(way.unit.total)


@dataclass(frozen=True, slots=True)
class _Table:
    """A copy of a factor for the unit: so many vectors and elements; whether these lie in its order in memory, or across."""

    is_column: bool
    vectors: int
    elements: int
    nbytes: int
    nbytes_below: int  # of what is copied, which windows may show several times
    lies_in_order: bool
    lies_across: bool


def _tables(product: GroupProduct, unit: TileUnit, made: Matrices) -> list[_Table]:
    """Of the rows, and of the columns."""
    depth = -(-product.sizes[3] // (unit.groups * unit.group))
    loops, found = product.reduction.src[1:], []
    factors = product.row_factor, product.column_factor
    for is_column, factor, tiles in zip((False, True), factors, _tiles(product, unit, made)):
        others = [size_of(x) for x in product.others if x in loops_of(factor)]
        vectors = prod(others) * tiles * depth * unit.side
        elements = vectors * unit.groups * unit.group
        nbytes = elements * unit.rows.itemsize
        along_steps = _runs_along_one(factor, loops)
        along_side = (
            columns_lie_in_lines(product, made)
            if is_column
            else _runs_along_one(factor, product.rows)
        )
        order = (along_side, along_steps) if is_column else (along_steps, along_side)
        if is_column and made.windows:  # lines of channels, put side by side
            elements, order = _bytes_below(factor) // unit.rows.itemsize, (False, True)
            vectors, nbytes = elements // (unit.side * unit.group), _bytes_below(factor)
        below = min(nbytes, _bytes_below(factor))
        found.append(_Table(is_column, vectors, elements, nbytes, below, *order))
    return found


def _with_tables(product: GroupProduct, unit: TileUnit, made: Matrices, target: Target) -> float:
    """Cycles of the unit, and of filling its tables."""
    cycles, core = _cycles(product, unit, made), target.core
    nbytes = unit.groups * unit.group * unit.rows.itemsize
    near = PACKING_CYCLES * nbytes / max(1, target.vector_bytes)
    for table in _tables(product, unit, made):
        if table.lies_in_order:
            cycles += table.vectors * max(core.copy_cycles, near)
        elif table.lies_across:  # words are transposed in registers
            across = near + core.transposed_cycles * nbytes / WORD_BYTES
            cycles += table.vectors * max(core.copy_apart_cycles, across)
        else:  # each element is gathered
            cycles += table.elements * core.copy_cycles
        if table.nbytes > target.room_bytes:
            cycles += table.nbytes / target.core.memory_bytes_a_cycle
    return cycles


def _cycles(product: GroupProduct, unit: TileUnit, made: Matrices) -> float:
    """Of the unit, and to store what it gives."""
    (high, wide), (batch, _, _, steps) = _tiles(product, unit, made), product.sizes
    depth = -(-steps // (unit.groups * unit.group))
    return batch * high * wide * (depth * unit.cycles + unit.side * MEMORY_CYCLES)


def _tiles(product: GroupProduct, unit: TileUnit, made: Matrices) -> tuple[int, int]:
    """Matrices along the rows, and along the columns, in whole turns of those that are summed at once."""
    *lines, last = product.columns
    columns = product.sizes[2]
    if made.lines:
        columns = (
            prod([size_of(x) for x in lines]) * tiles_along(size_of(last), unit, 1) * unit.side
        )
    return tiles_along(product.sizes[1], unit, made.rows), tiles_along(columns, unit, made.columns)


def _bytes_below(factor: UOp) -> int:
    """Of all memory that a factor reads."""
    loads = [n for n in toposort((factor,)) if n.op is Ops.LOAD]
    return sum([n.src[0].src[0].arg[1] * n.dtype.itemsize for n in loads])


def _runs_along_one(factor: UOp, loops: Sequence[UOp]) -> bool:
    """Whether what a factor reads lies side by side along these loops, of which there is one."""
    return len(loops) == 1 and runs_along(factor, loops[0])
