"""Large matrices, a block of columns at a time: what is done to all of one is a product of matrices.

Owns: Cholesky's factor, elimination with pivots, and triangles, of more columns than a block has. Does not own: the steps within a block
(steps_of_columns.py), the gradients (solving.py).

Sizes need not divide: behind a matrix stands the identity, which takes part in nothing. Every step reads its number as data, so that all of
them run the same kernels; they are of the whole matrix, and what a step may not touch is masked.
"""

from __future__ import annotations

from typing import TypeVar

from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.indexing.take import take
from proofgrad.core.tensor.methods.linalg.parts import product, turned
from proofgrad.core.tensor.methods.linalg.steps_of_columns import (
    eliminated_columns,
    factored_columns,
    no_places,
    numbers,
    rows_at,
    rows_in_order,
    sign_of,
)

_T = TypeVar("_T", bound=Indexing)
# The steps within blocks are size * size * BLOCK of work that uses each element once; the products, which use each BLOCK times, are the rest.
BLOCK = 32
FEWEST_IN_BLOCKS = (
    2 * BLOCK
)  # columns: with fewer there is hardly a product, and what stands behind the matrix may be as large


# -- triangles -------------------------------------------------------------------------------------


def inverse_of_lower(lower: _T) -> _T:
    """The inverse of each lower triangular matrix, which has zeros above. Shapes: (.., n, n).

    Of a matrix of four parts [[A, 0], [C, B]] it is [[a, 0], [-b C a, b]] with the inverses a and b: from the diagonal on, all pairs of
    neighbours at once, in as many steps as the size has binary digits. Source: N. Higham, Accuracy and Stability of Numerical
    Algorithms, 14.2.
    """
    size = lower.shape[-1]
    rows, columns = lower._iota(size).unsqueeze(-1), lower._iota(size)
    is_diagonal = rows.eq(columns)
    # Not 1 / lower: above the triangle that is 1 / 0, whose slope is no number.
    inverse = is_diagonal.where(1 / is_diagonal.where(lower, 1), 0)
    width = 1
    while width < size:
        row, column = rows // width, columns // width
        is_corner = (row % 2).eq(1) & column.eq(row - 1)
        corner = product(product(inverse, is_corner.where(lower, 0)), inverse)
        inverse = is_corner.where(-corner, inverse).contiguous()
        width *= 2
    return inverse


def solved_lower(lower: _T, b: _T) -> _T:
    """`x` with lower @ x = b. Shapes: lower (.., n, n) with zeros above, b (.., n, m)."""
    size = lower.shape[-1]
    if size <= BLOCK:
        return product(inverse_of_lower(lower), b)
    lower, b = with_identity_behind(lower), _with_zeros_behind(b)
    inverses = inverse_of_lower(_blocks_of_diagonal(lower)).contiguous()
    panels, parts = _rows_in_blocks(lower).contiguous(), _rows_in_blocks(b).contiguous()
    block = lower._iota(lower.shape[-1]).unsqueeze(-1) // BLOCK
    x = b._with(constant_node(0, b.dtype, b.shape)).contiguous()
    for k, number in enumerate(numbers(lower, panels.shape[0])):
        rest = part_of(parts, k) - product(part_of(panels, k), x)
        found = product(part_of(inverses, k), rest.contiguous()).contiguous()
        x = block.eq(number).where(_in_each_block(found, panels.shape[0]), x).contiguous()
    return x._cut(x.ndim - 2, 0, size)


def solved_upper(upper: _T, b: _T) -> _T:
    """`x` with upper @ x = b: seen from the end a lower one. Shapes: upper (.., n, n) with zeros below, b (.., n, m)."""
    return solved_lower(upper.flip((-2, -1)), b.flip(-2)).flip(-2)


# -- the layout ------------------------------------------------------------------------------------


def with_identity_behind(a: _T) -> _T:
    """The matrix with ones behind its diagonal, up to whole blocks."""
    size, behind = a.shape[-1], -a.shape[-1] % BLOCK
    if not behind:
        return a
    whole = a._pad_zeros([(0, 0)] * (a.ndim - 2) + [(0, behind)] * 2)
    rows, columns = a._iota(size + behind).unsqueeze(-1), a._iota(size + behind)
    return (rows.eq(columns) & (rows >= size)).where(1, whole)


def _with_zeros_behind(b: _T) -> _T:
    return b._pad_zeros([(0, 0)] * (b.ndim - 2) + [(0, -b.shape[-2] % BLOCK), (0, 0)])


def _rows_in_blocks(a: _T) -> _T:
    """(.., count * BLOCK, m) as (count, .., BLOCK, m)."""
    parts = a.reshape((*a.shape[:-2], a.shape[-2] // BLOCK, BLOCK, a.shape[-1]))
    return _to_front(parts, parts.ndim - 3)


def columns_in_blocks(a: _T) -> _T:
    """(.., n, count * BLOCK) as (count, .., n, BLOCK)."""
    parts = a.reshape((*a.shape[:-1], a.shape[-1] // BLOCK, BLOCK))
    return _to_front(parts, parts.ndim - 2)


def _to_front(x: _T, axis: int) -> _T:
    return x.permute((axis, *[k for k in range(x.ndim) if k != axis]))


def _blocks_of_diagonal(a: _T) -> _T:
    """(.., count * BLOCK, count * BLOCK) to (count, .., BLOCK, BLOCK)."""
    parts = columns_in_blocks(a)
    count = parts.shape[0]
    blocks = parts.reshape((*parts.shape[:-2], count, BLOCK, BLOCK))
    line = a._iota(count)
    own = line.reshape((count, *[1] * (blocks.ndim - 1))).eq(line.reshape((count, 1, 1)))
    return own.where(blocks, 0).sum(-3).contiguous()


def part_of(parts: _T, k: int) -> _T:
    """Number k of what has their number in front: a part of one memory."""
    return parts._cut(0, k, k + 1).squeeze(0)


def _in_each_block(x: _T, count: int) -> _T:
    """(.., BLOCK, m) for each of the blocks of rows: (.., count * BLOCK, m)."""
    whole = x.unsqueeze(-3).expand((*x.shape[:-2], count, *x.shape[-2:]))
    return whole.reshape((*x.shape[:-2], count * BLOCK, x.shape[-1]))


def joined_columns(panels: list[_T]) -> _T:
    """Panels side by side: a matrix again."""
    return panels[0].cat(*panels[1:], dim=-1)


# -- factors ---------------------------------------------------------------------------------------


def factored_in_blocks(a: _T) -> _T:
    """The lower triangular L with L @ L^T equal to `a`, which is symmetric. Source: Golub and Van Loan, 4.2.9."""
    size = a.shape[-1]
    whole = with_identity_behind(a)
    rows = a._iota(whole.shape[-1]).unsqueeze(-1)
    rest = columns_in_blocks(whole).contiguous()
    found: list[_T] = []
    for k, number in enumerate(numbers(a, rest.shape[0])):
        panel = part_of(rest, k)
        own = take(panel, panel.ndim - 2, number * BLOCK + a._iota(BLOCK)).contiguous()
        factor = factored_columns(own)
        below = product(panel, turned(inverse_of_lower(factor)))
        block = rows // BLOCK
        mine = block.eq(number).where(_in_each_block(factor, rest.shape[0]), below)
        lines = (block >= number).where(mine, 0).contiguous()
        rest = (rest - product(lines, turned(_rows_in_blocks(lines)))).contiguous()
        found.append(lines)
    return joined_columns(found)._cut(a.ndim - 1, 0, size)._cut(a.ndim - 2, 0, size)


def eliminated_in_blocks(a: _T, b: _T) -> tuple[_T, _T, _T]:
    """As `eliminated`, which see: L and U by columns, their products by blocks. Source: Golub and Van Loan, 3.4.6.

    No row is moved: each has a place, and those of a block are read in their order.
    """
    size, width = a.shape[-1], b.shape[-1]
    whole, right = with_identity_behind(a), _with_zeros_behind(b)
    count = whole.shape[-1] // BLOCK
    right = right._pad_zeros([(0, 0)] * (b.ndim - 1) + [(0, -width % BLOCK)])
    rest = columns_in_blocks(whole.cat(right, dim=-1)).contiguous()
    places = no_places(whole)
    found: list[_T] = []
    corners: list[_T] = []
    for k, number in enumerate(numbers(a, count)):
        panel = part_of(rest, k)
        panel, places = eliminated_columns(panel, places, number * BLOCK, BLOCK, False)
        panel, places = panel.contiguous(), places.contiguous()
        order = rows_at(places, number * BLOCK + a._iota(BLOCK))
        corners.append(rows_in_order(panel, order).contiguous())
        rest, lines = _block_eliminated(rest, panel, corners[-1], places, order)
        found.append(lines)
    pivots = _diagonals(corners)._cut(a.ndim - 2, 0, size)
    sign = sign_of(places._cut(a.ndim - 2, 0, size), a.dtype)
    if not width:
        return b, pivots, sign
    lines = _stacked(found)
    upper = _with_corners(lines._cut(1, 0, count), corners)
    right = _of_lines(lines._cut(1, count, lines.shape[1]))._cut(a.ndim - 1, 0, width).contiguous()
    return solved_upper(upper, right)._cut(a.ndim - 2, 0, size), pivots, sign


def _block_eliminated(x: _T, panel: _T, corner: _T, places: _T, order: _T) -> tuple[_T, _T]:
    """What all columns are without the rows of a block, and those rows of U, of all columns.

    Shapes: x (count, .., n, BLOCK), panel (.., n, BLOCK), its rows of pivots, in order, as `corner` (.., BLOCK, BLOCK).
    """
    rows, columns = x._iota(BLOCK).unsqueeze(-1), x._iota(BLOCK)
    unit = rows.eq(columns).where(1, (rows > columns).where(corner, 0)).contiguous()
    below = (places < 0).unsqueeze(-1).where(panel, 0).contiguous()
    mine = product(inverse_of_lower(unit), rows_in_order(x, order).contiguous()).contiguous()
    return (x - product(below, mine)).contiguous(), mine


def _stacked(parts: list[_T]) -> _T:
    parts = [part.unsqueeze(0) for part in parts]
    return parts[0].cat(*parts[1:], dim=0)


def _diagonals(corners: list[_T]) -> _T:
    """The diagonal of a matrix with these blocks on its own: (.., count * BLOCK)."""
    line = corners[0]._iota(BLOCK)
    is_diagonal = line.unsqueeze(-1).eq(line)
    found = [is_diagonal.where(corner, 0).sum(-1) for corner in corners]
    return found[0].cat(*found[1:], dim=-1)


def _of_lines(lines: _T) -> _T:
    """Blocks (count, columns, .., BLOCK, BLOCK) as matrices (.., count * BLOCK, columns * BLOCK)."""
    batch = range(2, lines.ndim - 2)
    turned_ = lines.permute((*batch, 0, lines.ndim - 2, 1, lines.ndim - 1))
    size = lines.shape[0] * BLOCK, lines.shape[1] * BLOCK
    return turned_.reshape((*lines.shape[2:-2], *size))


def _with_corners(lines: _T, corners: list[_T]) -> _T:
    """The upper triangle of blocks, those of the diagonal as steps of columns left them."""
    line = lines._iota(lines.shape[0])
    blocks = line.reshape((-1, *[1] * (lines.ndim - 1)))
    own = blocks.eq(line.reshape((-1, *[1] * (lines.ndim - 2))))
    whole = _of_lines(own.where(_stacked(corners).unsqueeze(1), lines))
    rows, columns = whole._iota(whole.shape[-1]).unsqueeze(-1), whole._iota(whole.shape[-1])
    return (rows <= columns).where(whole, 0).contiguous()
