"""Systems of equations: elimination with pivots, and Cholesky's factor.

Owns: elimination of small matrices, and the gradients, which need no step again. Does not own: what is asked of a matrix (matrices.py),
large ones (blocks.py), the steps of columns (steps_of_columns.py).

Each of the n steps reads its number as data, so that all of them run the same kernels. Nothing is looked at on the way: of a
matrix that has no inverse, or no such factor, the result has infinities and NaN.
"""

from __future__ import annotations

from typing import TypeVar

from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.methods.custom_vjp import custom_vjp
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.indexing.take import take_along
from proofgrad.core.tensor.methods.linalg.blocks import (
    FEWEST_IN_BLOCKS,
    eliminated_in_blocks,
    factored_in_blocks,
    solved_upper,
)
from proofgrad.core.tensor.methods.linalg.steps_of_columns import factored_columns, numbers
from proofgrad.core.tensor.methods.made_once import made_once

_T = TypeVar("_T", bound=Indexing)


def eliminated(a: _T, b: _T) -> tuple[_T, _T, _T]:
    """`x` with a @ x = b, the pivots (.., n), and 1 or -1 (..): whether rows were exchanged an even number of times.

    Shapes: a (.., n, n), b (.., n, m), of one type and one shape before the last two axes. Source: Gauss and Jordan's elimination
    with partial pivoting; Golub and Van Loan, Matrix Computations, 3.4. Of each step the row is found in one kernel, and all else is
    another one, that only reads single elements: behind both matrices are a column of the pivots and one of the sign.
    """
    size, width = a.shape[-1], b.shape[-1]
    if size >= FEWEST_IN_BLOCKS:
        return eliminated_in_blocks(a, b)
    ones = a._with(constant_node(1, a.dtype, (*a.shape[:-1], 2)))
    both = a.cat(b, ones, dim=-1).contiguous()
    rows, columns = a._iota(size).unsqueeze(-1), a._iota(size + width + 2)
    is_pivots, is_sign = columns.eq(size + width), columns.eq(size + width + 1)
    for number in numbers(a, size):
        is_row, is_column = rows.eq(number), columns.eq(number)
        column = is_column.where(both, 0).sum(-1, keepdim=True)
        at = (rows >= number).where(column.abs(), -1).argmax(-2, keepdim=True).contiguous()
        came_from = is_row.where(at, rows.eq(at).where(number, rows))
        swapped = take_along(both, came_from.expand(both.shape), both.ndim - 2)
        lead = rows.eq(at).where(both, 0).sum(-2, keepdim=True)
        pivot = is_column.where(lead, 0).sum(-1, keepdim=True)
        # Where the largest is 0 there is nothing to eliminate below it, and no solution above it.
        divisor = ((rows > number) & pivot.eq(0)).where(1, pivot)
        factor = is_column.where(swapped, 0).sum(-1, keepdim=True) / divisor
        changed = swapped - is_row.where(0, factor) * lead
        sign = at.eq(number).where(both, -both)
        noted = is_sign.where(sign, is_row.where(pivot, both))
        both = (is_pivots | is_sign).where(noted, changed).contiguous()
    _, result, pivots, signs = both.split([size, width, 1, 1], -1)
    if not size:
        signs = a._with(constant_node(1, a.dtype, (*a.shape[:-2], 1, 1)))
    sign = signs._cut(signs.ndim - 2, 0, 1).reshape(a.shape[:-2])
    return result / pivots, pivots.squeeze(-1), sign


def factored(a: _T) -> _T:
    """The lower triangular L with L @ L^T equal to `a`, which is symmetric; its upper part is not read."""
    if a.shape[-1] < FEWEST_IN_BLOCKS:
        return factored_columns(a)
    rows, columns = a._iota(a.shape[-1]).unsqueeze(-1), a._iota(a.shape[-1])
    return factored_in_blocks((rows >= columns).where(a, a.transpose(-2, -1)))


def _solve_gradient(gradient: _T, a: _T, b: _T) -> tuple[_T, _T]:
    """Of x = a^-1 b: a^-T g for b, and minus that times x^T for a."""
    of_b = SOLVED(a.transpose(-2, -1), gradient)
    return -(of_b.unsqueeze(-2) * SOLVED(a, b).unsqueeze(-3)).sum(-1), of_b


def _factor_gradient(gradient: _T, a: _T) -> _T:
    """Source: I. Murray, Differentiation of the Cholesky decomposition, 2016, (8) to (10)."""
    factor = FACTORED(a)
    size = a.shape[-1]
    rows, columns = a._iota(size).unsqueeze(-1), a._iota(size)
    turned = factor.transpose(-2, -1)
    product = (turned.unsqueeze(-2) * gradient.transpose(-2, -1).unsqueeze(-3)).sum(-1)
    lower = (rows > columns).where(product, rows.eq(columns).where(product / 2, 0))
    half = solved_upper(turned, lower)
    whole = solved_upper(turned, half.transpose(-2, -1))
    both = (whole + whole.transpose(-2, -1)) / 2
    # Only the lower part is read: what belongs to the upper one goes to its mirror image.
    result: _T = (rows > columns).where(both * 2, rows.eq(columns).where(both, 0))
    return result


def determinant(a: _T) -> _T:
    """Of each matrix."""
    found: _T = _DETERMINANT(a)
    return found


def log_determinant(a: _T) -> tuple[_T, _T]:
    """The sign of each determinant, and the logarithm of its size."""
    both = _SIGN_AND_LOG(a)
    sign, size = both.split([1, 1], -1)
    return sign.detach().squeeze(-1), size.squeeze(-1)


def _pivots(a: _T) -> tuple[_T, _T]:
    _, pivots, sign = eliminated(a, a._with(constant_node(0, a.dtype, (*a.shape[:-1], 0))))
    return pivots, sign


def _product_of_pivots(a: _T) -> _T:
    pivots, sign = _pivots(a)
    return pivots.prod(-1) * sign


def _sign_and_log(a: _T) -> _T:
    pivots, sign = _pivots(a)
    negative = (pivots < 0).where(-1, 1).prod(-1).cast(a.dtype)
    sign = pivots.eq(0).any(-1).where(0, sign * negative)
    return sign.unsqueeze(-1).cat(pivots.abs().log().sum(-1, keepdim=True), dim=-1)


def _log_gradient(gradient: _T, a: _T) -> _T:
    of_size = gradient._cut(gradient.ndim - 1, 1, 2).unsqueeze(-1)
    return of_size * _inverse_turned(a)


def _inverse_turned(a: _T) -> _T:
    size = a.shape[-1]
    one = a._iota(size).unsqueeze(-1).eq(a._iota(size)).cast(a.dtype).expand(a.shape)
    inverse: _T = SOLVED(a, one)
    return inverse.transpose(-2, -1)


_DETERMINANT = made_once(
    custom_vjp(
        _product_of_pivots,
        backward=lambda gradient, a: (
            (gradient * determinant(a)).unsqueeze(-1).unsqueeze(-1) * _inverse_turned(a)
        ),
    )
)
_SIGN_AND_LOG = made_once(custom_vjp(_sign_and_log, backward=_log_gradient))
SOLVED = made_once(custom_vjp(lambda a, b: eliminated(a, b)[0], backward=_solve_gradient))
FACTORED = made_once(custom_vjp(factored, backward=_factor_gradient))
