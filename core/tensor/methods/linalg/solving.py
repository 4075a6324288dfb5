"""Systems of equations: elimination with pivots, and Cholesky's factor.

Owns: the steps, and the gradients, which need no step again. Does not own: what is asked of a matrix (matrices.py).

Each of the n steps reads its number as data, so that all of them run the same kernels. Nothing is looked at on the way: of a
matrix that has no inverse, or no such factor, the result has infinities and NaN.
"""

from __future__ import annotations

from typing import TypeVar

from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.methods.custom_vjp import custom_vjp
from proofgrad.core.tensor.methods.indexing import Indexing

_T = TypeVar("_T", bound=Indexing)


def eliminated(a: _T, b: _T) -> tuple[_T, _T, _T]:
    """`x` with a @ x = b, the pivots (.., n), and 1 or -1 (..): whether rows were exchanged an even number of times.

    Shapes: a (.., n, n), b (.., n, m), of one type and one shape before the last two axes. Source: Gauss and Jordan's elimination
    with partial pivoting; Golub and Van Loan, Matrix Computations, 3.4.
    """
    size, width = a.shape[-1], b.shape[-1]
    both = a.cat(b, dim=-1)
    rows, columns = a._iota(size).unsqueeze(-1), a._iota(size + width)
    sign = a._with(constant_node(1, a.dtype, (*a.shape[:-2], 1, 1)))
    pivots = a._with(constant_node(1, a.dtype, (*a.shape[:-1], 1)))
    for number in _numbers(a):
        is_row, is_column = rows.eq(number), columns.eq(number)
        column = is_column.where(both, 0).sum(-1, keepdim=True)
        at = (rows >= number).where(column.abs(), -1).argmax(-2, keepdim=True)
        row, lead = _row(both, is_row), _row(both, rows.eq(at))
        both = is_row.where(lead, rows.eq(at).where(row, both))
        pivot = is_column.where(lead, 0).sum(-1, keepdim=True)
        # Where the largest is 0 there is nothing to eliminate below it, and no solution above it.
        divisor = ((rows > number) & pivot.eq(0)).where(1, pivot)
        factor = is_column.where(both, 0).sum(-1, keepdim=True) / divisor
        both = (both - is_row.where(0, factor) * lead).contiguous()
        pivots = is_row.where(pivot, pivots).contiguous()
        sign = at.eq(number).where(sign, -sign).contiguous()
    _, result = both.split([size, width], -1)
    return result / pivots, pivots.squeeze(-1), sign.reshape(a.shape[:-2])


def _numbers(a: _T) -> list[_T]:
    """0, 1, .. of the rows, each a part of one memory."""
    size = a.shape[-1]
    line = a._as_tensor(list(range(size))) if size else a._iota(0)
    return [a._with(line._uop)._cut(0, k, k + 1) for k in range(size)]


def _row(both: _T, is_row: _T) -> _T:
    return is_row.where(both, 0).sum(-2, keepdim=True)


def factored(a: _T) -> _T:
    """The lower triangular L with L @ L^T equal to `a`, which is symmetric; its upper part is not read."""
    size = a.shape[-1]
    rows, columns = a._iota(size).unsqueeze(-1), a._iota(size)
    rest = a
    found = a._with(constant_node(0, a.dtype, a.shape))
    for number in _numbers(a):
        is_column = columns.eq(number)
        column = (rows >= number).where(is_column.where(rest, 0).sum(-1, keepdim=True), 0)
        pivot = rows.eq(number).where(column, 0).sum(-2, keepdim=True)
        column = (column / pivot.sqrt()).contiguous()
        rest = (rest - column * column.transpose(-2, -1)).contiguous()
        found = is_column.where(column, found).contiguous()
    return found


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
    half = SOLVED(turned, lower)
    whole = SOLVED(turned, half.transpose(-2, -1))
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
    _, pivots, sign = _pivots(a.detach())
    negative = (pivots < 0).where(-1, 1).prod(-1).cast(a.dtype)
    size: _T = _LOG_SIZE(a)
    return pivots.eq(0).any(-1).where(0, sign * negative), size


def _pivots(a: _T) -> tuple[_T, _T, _T]:
    return eliminated(a, a._with(constant_node(0, a.dtype, (*a.shape[:-1], 0))))


def _product_of_pivots(a: _T) -> _T:
    _, pivots, sign = _pivots(a)
    return pivots.prod(-1) * sign


def _inverse_turned(a: _T) -> _T:
    size = a.shape[-1]
    one = a._iota(size).unsqueeze(-1).eq(a._iota(size)).cast(a.dtype).expand(a.shape)
    inverse: _T = SOLVED(a, one)
    return inverse.transpose(-2, -1)


def _whole(gradient: _T) -> _T:
    return gradient.unsqueeze(-1).unsqueeze(-1)


_DETERMINANT = custom_vjp(
    _product_of_pivots,
    backward=lambda gradient, a: _whole(gradient * determinant(a)) * _inverse_turned(a),
)
_LOG_SIZE = custom_vjp(
    lambda a: _pivots(a)[1].abs().log().sum(-1),
    backward=lambda gradient, a: _whole(gradient) * _inverse_turned(a),
)
SOLVED = custom_vjp(lambda a, b: eliminated(a, b)[0], backward=_solve_gradient)
FACTORED = custom_vjp(factored, backward=_factor_gradient)
