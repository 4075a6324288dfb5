"""Columns of a matrix, one after the other: a step each.

Owns: Cholesky's factor and elimination with pivots of the columns of one block, and how columns lie while steps are taken. Does not own: how
a large matrix is made of blocks (blocks.py).

Columns lie one behind the other, so that rows are neighbours; small matrices of a batch lie side by side. What a step does to all of
a column is then done to whole vectors, and what it takes from the row of the pivot is one number for them. No row is moved: each has a
place, the number of the step that took it as its pivot, which is below 0 until then.
"""

from __future__ import annotations

from math import prod
from typing import TypeVar

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.tensor.data.arguments import Whole
from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.indexing.take import take_along

_T = TypeVar("_T", bound=Indexing)
# As many matrices as a vector has lanes lie side by side, if they have no more rows than that: more of them fill vectors as well.
LANES = 16


def numbers(a: _T, count: Whole) -> list[_T]:
    """0, 1, .. below `count`, each a part of one memory."""
    line = a._iota(count).contiguous()
    return [line._cut(0, k, k + 1) for k in range(count)]


# -- the layout ------------------------------------------------------------------------------------


def lies_side_by_side(a: _T) -> bool:
    """Whether the matrices of a batch are the lanes of vectors."""
    if not is_plain(a.shape):
        return False
    return bool(a.shape[-2] <= LANES <= prod(a.shape[:-2]))


def columns_first(a: _T, side_by_side: bool) -> _T:
    """(.., n, m) as (m, n, ..) side by side, else as (.., m, n)."""
    batch = range(a.ndim - 2)
    return a.permute(
        (a.ndim - 1, a.ndim - 2, *batch) if side_by_side else (*batch, a.ndim - 1, a.ndim - 2)
    )


def rows_first(state: _T, side_by_side: bool) -> _T:
    """What `columns_first` was made of."""
    batch = range(2, state.ndim) if side_by_side else range(state.ndim - 2)
    first = 0 if side_by_side else state.ndim - 2
    return state.permute((*batch, first + 1, first))


def line_along(state: _T, axis: Whole) -> _T:
    """The numbers of an axis, which all others share."""
    size = state.shape[axis]
    return state._iota(size).reshape([size if k == axis else 1 for k in range(state.ndim)])


def no_places(a: _T) -> _T:
    """The places of rows of which none was taken. Shapes: a (.., n, m) to (.., n)."""
    return a._with(constant_node(-1, dtypes.int32, a.shape[:-1]))


def rows_at(places: _T, wanted: _T) -> _T:
    """Which row has each of these places. Shapes: places (.., n), wanted (k) to (.., k)."""
    line = places._iota(places.shape[-1])
    is_there = places.unsqueeze(-2).eq(wanted.unsqueeze(-1))
    return is_there.where(line, 0).sum(-1, dtype=dtypes.int32).contiguous()


def rows_in_order(x: _T, order: _T) -> _T:
    """The rows of these numbers. Shapes: x (.., n, m), order (.., k), to which axes in front of x are added."""
    shape = (*x.shape[:-2], order.shape[-1], x.shape[-1])
    return take_along(x, order.unsqueeze(-1).expand(shape), x.ndim - 2)


def sign_of(places: _T, dtype: DType) -> _T:
    """1 or -1, as rows were brought to their places by an even number of exchanges or not. Shapes: (.., n) to (..)."""
    line = places._iota(places.shape[-1])
    is_behind = line.unsqueeze(-1) < line
    turned = is_behind & (places.unsqueeze(-1) > places.unsqueeze(-2))
    odd = turned.cast(dtypes.int32).sum((-2, -1), dtype=dtypes.int32) & 1
    return (1 - 2 * odd).cast(dtype)


# -- steps -----------------------------------------------------------------------------------------


def factored_columns(a: _T) -> _T:
    """The lower triangular L with L @ L^T equal to `a`, which is symmetric; its upper part is not read."""
    rows, columns = a._iota(a.shape[-1]).unsqueeze(-1), a._iota(a.shape[-1])
    side_by_side = lies_side_by_side(a)
    whole = (rows >= columns).where(a, a.transpose(-2, -1))
    rest = columns_first(whole, side_by_side).contiguous()
    across = 0 if side_by_side else a.ndim - 2
    row, column = line_along(rest, across + 1), line_along(rest, across)
    for number in numbers(a, a.shape[-1]):
        is_column = column.eq(number)
        own = is_column.where(rest, 0).sum(across, keepdim=True)
        root = row.eq(number).where(own, 0).sum(across + 1, keepdim=True).sqrt()
        scaled = (own / root).contiguous()
        behind = (column > number) & (row > number)
        below = behind.where(rest - scaled * scaled.transpose(across, across + 1), rest)
        rest = (is_column & (row >= number)).where(scaled, below).contiguous()
    return (rows >= columns).where(rows_first(rest, side_by_side), 0)


def eliminated_columns(
    panel: _T, places: _T, first: _T, count: Whole, above: bool
) -> tuple[_T, _T]:
    """Steps of elimination of the first so many columns: what they leave, and the places of rows, from `first` on.

    Below each pivot L, beside it U; `above`: other rows that were taken are changed like those that were not, and L is not kept.
    Shapes: panel (.., n, m), places (.., n). Of each step the row is found in one kernel, and others only read single elements.
    """
    side_by_side = lies_side_by_side(panel)
    state = columns_first(panel, side_by_side).contiguous()
    place = columns_first(places.unsqueeze(-1), side_by_side).contiguous()
    across = 0 if side_by_side else panel.ndim - 2
    row, column = line_along(state, across + 1), line_along(state, across)
    for local in numbers(panel, count):
        is_column, is_free = column.eq(local), place < 0
        own = is_column.where(state, 0).sum(across, keepdim=True)
        at = is_free.where(own.abs(), -1).argmax(across + 1, keepdim=True).contiguous()
        is_lead = row.eq(at)
        lead = is_lead.where(state, 0).sum(across + 1, keepdim=True)
        pivot = is_column.where(lead, 0).sum(across, keepdim=True)
        # Where the largest is 0 there is nothing to eliminate below it, and no solution above it.
        factor = own / (is_free & pivot.eq(0)).where(1, pivot)
        changes = ~is_lead if above else is_free & ~is_lead
        changed = (changes & (column > local)).where(state - factor * lead, state)
        state = changed if above else (changes & is_column).where(factor, changed)
        state = state.contiguous()
        place = is_lead.where(first + local, place).contiguous()
    return rows_first(state, side_by_side), rows_first(place, side_by_side).squeeze(-1)
