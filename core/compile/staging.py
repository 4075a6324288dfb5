"""Kernel -> Kernels: operands of a contraction are copied into tables, in the order of its tile.

Owns: the layout of a table, the kernel that fills it. Does not own: the tile (tiles.py), which operands are
worth a table (operands.py), its memory (the plan's, compiler.py).

A term that depends on the loops x, k is written once into table[g(x, k)] and read back from there,
where g puts every (x, k) on a place of its own: so the values stay. g is the mixed radix number
(x // size, k, x % size), and the table is as long as whole tiles need, so that the tile that reads it
needs no gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from proofgrad.core.compile.axes import gate_accesses
from proofgrad.core.compile.choices import NO_WISH, Choices
from proofgrad.core.compile.contraction import (
    LARGEST_STEP,
    Contraction,
    load_steps,
    output_loops,
    size_of,
    tiles_along,
)
from proofgrad.core.compile.divisors import largest_divisor
from proofgrad.core.compile.linear_terms import coefficient, loops_of
from proofgrad.core.compile.operands import choose_staged, may_stage
from proofgrad.core.compile.tables import loaded, new_table
from proofgrad.core.compile.target import Target
from proofgrad.core.compile.tiles import choose_blocks, find_contraction
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Steps of the sum that are copied for all rows or columns before the next ones are.
STEPS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Table:
    """The layout of a table: `loop` in groups of `size`, around the loops `depth`."""

    outer: tuple[UOp, ...]
    loop: UOp
    size: int
    depth: tuple[UOp, ...]
    groups: int  # as many as blocks of whole tiles reach over

    @property
    def length(self) -> int:
        length = self.groups * self.size
        for loop in (*self.outer, *self.depth):
            length *= size_of(loop)
        return length

    def place(self, group: UOp, inside: UOp, outer: Sequence[UOp], depth: Sequence[UOp]) -> UOp:
        """The position of an element in the table."""
        position = UOp.index(0)
        for value, loop in zip(outer, self.outer):
            position = position * size_of(loop) + value
        position = position * self.groups + group
        for value, loop in zip(depth, self.depth):
            position = position * size_of(loop) + value
        return position * self.size + inside


def stage_operands(kernel: UOp, target: Target, asked: Choices = NO_WISH) -> UOp:
    """Copy operands of a contraction into tables laid out for its tile; the kernels, in order."""
    found = None if target.work_items else find_contraction(kernel, target, asked)
    if found is None or not may_stage(found[0], asked):
        return kernel
    filling: list[UOp] = []
    before, kernel = kernel, _with_neighbours(kernel, found[0], filling)
    found = found if kernel is before else find_contraction(kernel, target, asked)
    assert found is not None
    contraction, tile = found
    blocks = choose_blocks(contraction, tile, target, asked)
    row_tiles, column_tiles = tiles_along(contraction, tile)
    groups = {
        contraction.rows: -(-row_tiles // blocks.row_tiles) * blocks.row_tiles,
        contraction.columns: -(-column_tiles // blocks.column_tiles) * blocks.column_tiles,
    }
    staged = choose_staged(contraction, tile, target, asked)
    operands: list[tuple[UOp, UOp, int]] = []
    if staged.rows:
        operands.append((contraction.row_factor, contraction.rows, tile.rows))
    if staged.columns:
        operands.append((contraction.column_factor, contraction.columns, tile.columns))
    for factor, loop, size in operands:
        table = _layout(kernel, contraction, factor, loop, size, groups[loop])
        memory = new_table((kernel,), factor.dtype, table.length)
        filling.append(_fill(factor, table, memory))
        kernel = kernel.substitute({factor: _read(table, memory)})
    return UOp.sink(*filling, kernel) if filling else kernel


def _layout(
    kernel: UOp, contraction: Contraction, factor: UOp, loop: UOp, size: int, groups: int
) -> Table:
    free = loops_of(factor)
    outer = tuple([x for x in output_loops(kernel) if x in free and x is not loop])
    depth = tuple([x for x in contraction.sum_loops if x in free])
    return Table(outer, loop, size, depth, groups)


def _with_neighbours(kernel: UOp, contraction: Contraction, filling: list[UOp]) -> UOp:
    """Memory that columns read in steps of a few elements, copied so that they read neighbours.

    Element i goes to the place (i % step, i // step).
    """
    for load in [n for n in toposort((contraction.column_factor,)) if n.op is Ops.LOAD]:
        memory, index, *gate = load.src[0].src
        step = coefficient(index, contraction.columns)
        if step is None or not 1 < step <= LARGEST_STEP:
            continue
        length = -(-memory.arg[1] // step)
        table = new_table((kernel,), memory.dtype, step * length)
        phase, position = UOp.range(step, 0), UOp.range(length, 1)
        source = position * step + phase
        inside = (source < memory.arg[1],) if memory.arg[1] % step else ()
        value = loaded(memory, source, *inside)
        place = UOp(Ops.INDEX, memory.dtype, (table, phase * length + position))
        filling.append(UOp.sink(UOp(Ops.STORE, dtypes.void, (place, value))))
        rest = index.substitute({contraction.columns: UOp.index(0)})
        there = (rest % step) * length + rest // step + contraction.columns
        kernel = kernel.substitute({load: loaded(table, there, *gate)})
    return kernel


def _read(table: Table, memory: UOp) -> UOp:
    place = table.place(table.loop // table.size, table.loop % table.size, table.outer, table.depth)
    return loaded(memory, place)


def _inside(factor: UOp, table: Table) -> UOp:
    """An operand that is 0 in the places of a table beyond its loop."""
    if size_of(table.loop) == table.groups * table.size:
        return factor
    return gate_accesses(factor, table.loop, UOp.index(size_of(table.loop)))


def _fill(factor: UOp, table: Table, memory: UOp) -> UOp:
    """The kernel that writes every element of the table.

    Where groups lie side by side in memory, it copies some steps of the sum for all of them before the next
    steps: it reads and writes long enough pieces of memory.
    """
    around, last = table.depth[:-1], prod([size_of(x) for x in table.depth[-1:]])
    side_by_side = all(step in (0, 1) for step in load_steps(factor, table.loop))
    at_once = largest_divisor(last, STEPS_AT_ONCE) if side_by_side else last
    sizes = [size_of(x) for x in (*table.outer, *around)]
    sizes += [last // at_once, table.groups, at_once, table.size]
    loops = [UOp.range(n, k, AxisRole.LOOP) if n > 1 else UOp.index(0) for k, n in enumerate(sizes)]
    *loops, steps, group, step, inside = loops
    outer = loops[: len(table.outer)]
    depth = [*loops[len(table.outer) :], steps * at_once + step]
    factor = _inside(factor, table)
    changes = {table.loop: group * table.size + inside}
    changes.update(zip((*table.outer, *table.depth), (*outer, *depth)))
    value = factor.substitute(changes)
    place = UOp(Ops.INDEX, memory.dtype, (memory, table.place(group, inside, outer, depth)))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (place, value)))
