"""Columns of a matrix, one after the other: a step each.

Owns: Cholesky's factor and elimination with pivots of the columns of one block. Does not own: how a large matrix is made of blocks (blocks.py).
"""

from __future__ import annotations

from typing import TypeVar

from proofgrad.core.tensor.data.arguments import Whole
from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.methods.indexing import Indexing

_T = TypeVar("_T", bound=Indexing)


def numbers(a: _T, count: Whole) -> list[_T]:
    """0, 1, .. below `count`, each a part of one memory."""
    line = a._iota(count).contiguous()
    return [line._cut(0, k, k + 1) for k in range(count)]


def factored_columns(a: _T) -> _T:
    """The lower triangular L with L @ L^T equal to `a`, which is symmetric; its upper part is not read."""
    rows, columns = a._iota(a.shape[-1]).unsqueeze(-1), a._iota(a.shape[-1])
    rest = (rows >= columns).where(a, a.transpose(-2, -1)).contiguous()
    for number in numbers(a, a.shape[-1]):
        is_row, is_column = rows.eq(number), columns.eq(number)
        line = is_row.where(rest, 0).sum(-2, keepdim=True)
        column = is_column.where(rest, 0).sum(-1, keepdim=True)
        root = is_column.where(line, 0).sum(-1, keepdim=True).sqrt()
        below = ((rows > number) & (columns > number)).where(
            rest - (column / root) * (line / root), rest
        )
        rest = (is_column & (rows >= number)).where(column / root, below).contiguous()
    return (rows >= columns).where(rest, 0)


def eliminated_columns(panel: _T, first: _T) -> tuple[_T, _T, _T]:
    """L below and U above, in one; which row came to each place (.., n); 1 or -1 (..): whether they were exchanged an even number of times.

    Shapes: panel (.., n, m), whose pivots stand in the rows from `first` on. Of each step the row is found in one kernel, and all else is
    another one, that only reads single elements: behind the columns are one of the order and one of the sign.
    """
    size, width = panel.shape[-2:]
    rows, columns = panel._iota(size).unsqueeze(-1), panel._iota(width + 2)
    is_sign = columns.eq(width + 1)
    order = panel._iota(size).cast(panel.dtype).unsqueeze(-1).expand((*panel.shape[:-1], 1))
    one = panel._with(constant_node(1, panel.dtype, (*panel.shape[:-1], 1)))
    state = panel.cat(order, one, dim=-1).contiguous()
    for local in numbers(panel, width):
        number = first + local
        is_row, is_column = rows.eq(number), columns.eq(local)
        column = is_column.where(state, 0).sum(-1, keepdim=True)
        at = (rows >= number).where(column.abs(), -1).argmax(-2, keepdim=True).contiguous()
        is_lead = rows.eq(at)
        lead = is_lead.where(state, 0).sum(-2, keepdim=True)
        head = is_row.where(state, 0).sum(-2, keepdim=True)
        swapped = is_row.where(lead, is_lead.where(head, state))
        pivot = is_column.where(lead, 0).sum(-1, keepdim=True)
        # Where the largest is 0 there is nothing to eliminate below it.
        divisor = pivot.eq(0).where(1, pivot)
        own = is_lead.where(is_column.where(head, 0).sum(-1, keepdim=True), column)
        factor = own / divisor
        behind = (rows > number) & (columns > local) & (columns < width)
        changed = behind.where(swapped - factor * lead, swapped)
        changed = ((rows > number) & is_column).where(factor, changed)
        signed = at.eq(number).where(state, -state)
        state = is_sign.where(signed, changed).contiguous()
    result, places, signs = state.split([width, 1, 1], -1)
    sign = signs._cut(signs.ndim - 2, 0, 1).reshape(panel.shape[:-2])
    return result, places.squeeze(-1).cast(first.dtype).contiguous(), sign
