"""Orthogonal and triangular factors, by Householder's reflections.

Owns: the mirrors, a column each, and of large matrices what a block of them does to all other columns. Does not own: what is asked
of a matrix (matrices.py), how blocks lie in memory (blocks.py).

Every step reads its number as data, so that all of them run the same kernels.
"""

from __future__ import annotations

from typing import TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.data.arguments import Whole
from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.indexing.take import take
from proofgrad.core.tensor.methods.linalg.blocks import (
    BLOCK,
    FEWEST_IN_BLOCKS,
    columns_in_blocks,
    inverse_of_lower,
    joined_columns,
    part_of,
)
from proofgrad.core.tensor.methods.linalg.parts import identity, power_of_two, product, turned
from proofgrad.core.tensor.methods.linalg.steps_of_columns import numbers
from proofgrad.core.tensor.methods.made_once import made_once

_T = TypeVar("_T", bound=Indexing)
# The squares of digits below that are no normal numbers: the least one of these over the square of the step at 1.
_LEAST_SQUARE = {dtypes.float32: 2.0 ** (-126 + 46), dtypes.float64: 2.0 ** (-1022 + 104)}


def reflected(x: _T) -> tuple[_T, _T]:
    """Q and R. Shapes: (.., m, n) to (.., m, m) and (.., m, n)."""
    rows, columns = x.shape[-2:]
    r, q = _mirrored(x).split([columns, rows], -1)
    return turned(q), r


@made_once
def _mirrored(x: _T) -> _T:
    """R, and beside it the transpose of Q: what all mirrors make of the matrix and of the identity."""
    rows, columns = x.shape[-2:]
    size = power_of_two(x)
    one = identity(x, rows).expand((*x.shape[:-1], rows))
    count = min(rows - 1, columns)
    if count < FEWEST_IN_BLOCKS:
        both = (x / size).cat(one, dim=-1)
        for number in numbers(x, max(count, 0)):
            mirror = _mirror(take(both, both.ndim - 1, number), number)
            both = (both - mirror * product(turned(mirror), both)).contiguous()
    else:
        both = _mirrored_in_blocks(x / size, one, count)
    line, beside = x._iota(rows), x._iota(rows + columns)
    below = (line.unsqueeze(-1) > beside) & (beside < columns)
    return below.where(0, both) * (beside < columns).where(size, 1)


def _mirror(column: _T, number: _T) -> _T:
    """v of the mirror I - v v^T that brings a column to zero below its row of that number.

    It is 0 where the column is, or so small beside a matrix of size 1 that digits of its square are lost: it stays as it is, and counts as 0.
    """
    rows = column._iota(column.shape[-2]).unsqueeze(-1)
    lower = (rows >= number).where(column, 0)
    length = lower.square().sum(-2, keepdim=True).sqrt()
    head = take(lower, lower.ndim - 2, number)
    is_below = head < 0
    shift = is_below.where(-length, length)
    half = length * (length + is_below.where(-head, head))
    nothing = half < _LEAST_SQUARE[column.dtype]
    scale = nothing.where(0, nothing.where(1, half).rsqrt())
    return rows.eq(number).where(lower + shift, lower) * scale


# -- in blocks ---------------------------------------------------------------------------------------


def _mirrored_in_blocks(x: _T, one: _T, count: Whole) -> _T:
    """What so many mirrors make of a matrix and of another one, side by side.

    Mirrors one after the other are I - V T V^T of their columns V. Source: R. Schreiber and C. Van Loan, A storage-efficient WY
    representation for products of Householder transformations, 1989; T^-1 is upper triangular, with ones, and above them V^T V.
    """
    columns, rows = x.shape[-1], x.shape[-2]
    behind = [(0, 0)] * (x.ndim - 1)
    left = x._pad_zeros([*behind, (0, -columns % BLOCK)])
    right = one._pad_zeros([*behind, (0, -rows % BLOCK)])
    rest = columns_in_blocks(left.cat(right, dim=-1)).contiguous()
    for k, number in enumerate(numbers(x, -(-count // BLOCK))):
        mirrors = _mirrors(part_of(rest, k), number * BLOCK, count)
        seen = product(turned(mirrors), rest).contiguous()
        change = product(turned(_together(mirrors)), seen).contiguous()
        rest = (rest - product(mirrors, change)).contiguous()
    both = joined_columns([part_of(rest, k) for k in range(rest.shape[0])])
    width = left.shape[-1]
    return both._cut(both.ndim - 1, 0, columns).cat(
        both._cut(both.ndim - 1, width, width + rows), dim=-1
    )


def _mirrors(panel: _T, first: _T, count: Whole) -> _T:
    """The mirrors of the columns of a block, side by side; of those behind the last one zeros."""
    width = panel.shape[-1]
    columns = panel._iota(2 * width)
    both = panel.cat(panel._with(constant_node(0, panel.dtype, panel.shape)), dim=-1).contiguous()
    for local in numbers(panel, width):
        number = first + local
        column = (number < count).where(take(both, both.ndim - 1, local), 0)
        mirror = _mirror(column, number)
        changed = both - mirror * product(turned(mirror), both)
        noted = columns.eq(local + width).where(mirror, both)
        both = (columns < width).where(changed, noted).contiguous()
    return both._cut(both.ndim - 1, width, 2 * width).contiguous()


def _together(mirrors: _T) -> _T:
    """T, for which mirrors one after the other are I - V T V^T."""
    rows, columns = mirrors._iota(mirrors.shape[-1]).unsqueeze(-1), mirrors._iota(mirrors.shape[-1])
    seen = product(turned(mirrors), mirrors)
    inverse = rows.eq(columns).where(1, (rows < columns).where(seen, 0)).contiguous()
    return turned(inverse_of_lower(turned(inverse)))
