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
from proofgrad.core.tensor.methods.linalg.blocks import (
    FEWEST_IN_BLOCKS,
    eliminated_in_blocks,
    factored_in_blocks,
    solved_upper,
)
from proofgrad.core.tensor.methods.linalg.steps_of_columns import (
    eliminated_columns,
    factored_columns,
    no_places,
    rows_at,
    rows_in_order,
    sign_of,
)
from proofgrad.core.tensor.methods.made_once import made_once

_T = TypeVar("_T", bound=Indexing)


def eliminated(a: _T, b: _T) -> tuple[_T, _T, _T]:
    """`x` with a @ x = b, the pivots (.., n), and 1 or -1 (..): whether rows were exchanged an even number of times.

    Shapes: a (.., n, n), b (.., n, m), of one type and one shape before the last two axes. Source: Gauss and Jordan's elimination
    with partial pivoting; Golub and Van Loan, Matrix Computations, 3.4.
    """
    size, width = a.shape[-1], b.shape[-1]
    if size >= FEWEST_IN_BLOCKS:
        return eliminated_in_blocks(a, b)
    first = a._iota(1) * 0
    both, places = eliminated_columns(a.cat(b, dim=-1), no_places(a), first, size, True)
    order = rows_at(places, a._iota(size))
    left, right = rows_in_order(both, order).split([size, width], -1)
    line = a._iota(size)
    pivots = line.unsqueeze(-1).eq(line).where(left, 0).sum(-1)
    return right / pivots.unsqueeze(-1), pivots, sign_of(places, a.dtype)


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
