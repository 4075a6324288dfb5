"""Factors of matrices: reflections (qr), rotations of pairs of columns (svd, eigh), and what follows from them.

Owns: the steps, all of them graphs; the gradients of eigh and pinv, which need no step again. Does not own: what is asked of a
matrix (matrices.py), elimination (solving.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.data.arguments import Flag, Real, Whole
from proofgrad.core.tensor.methods.custom_vjp import custom_vjp
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.indexing.take import take, take_along

# Jacobi's method converges quadratically once it is near: this many sweeps over all pairs of columns.
_SWEEPS = {dtypes.float64: 10}
_SWEEPS_OF_SINGLE = 7
_T = TypeVar("_T", bound=Indexing)


def product(x: _T, y: _T) -> _T:
    """The matrix product."""
    return (x.unsqueeze(-2) * turned(y).unsqueeze(-3)).sum(-1)


def turned(x: _T) -> _T:
    """The transpose of each matrix."""
    return x.transpose(-2, -1)


def identity(x: _T, size: Whole) -> _T:
    """One matrix of the type and on the device of `x`."""
    line = x._iota(size)
    one: _T = line.unsqueeze(-1).eq(line).cast(x.dtype)
    return one


# -- reflections -----------------------------------------------------------------------------------


def reflected(x: _T) -> tuple[_T, _T]:
    """Q and R of Householder's reflections. Shapes: (.., m, n) to (.., m, m) and (.., m, n)."""
    rows, columns = x.shape[-2:]
    line = x._iota(rows)
    r = x
    q = identity(x, rows).expand((*x.shape[:-2], rows, rows))
    for k in range(min(rows - 1, columns)):
        mirror, scale = _mirror(r._cut(r.ndim - 1, k, k + 1), line, k)
        r = (r - product(mirror * scale, product(turned(mirror), r))).contiguous()
        q = (q - product(product(q, mirror), turned(mirror * scale))).contiguous()
    below = line.unsqueeze(-1) > x._iota(columns)
    return q, below.where(0, r)


def _mirror(column: _T, line: _T, k: Whole) -> tuple[_T, _T]:
    """v and 2 / v.v of the mirror that brings a column to zero below position k."""
    rows = line.unsqueeze(-1)
    lower = (rows >= k).where(column, 0)
    length = lower.square().sum(-2, keepdim=True).sqrt()
    head = column._cut(column.ndim - 2, k, k + 1)
    shift = (head < 0).where(-length, length)
    mirror = rows.eq(k).where(lower + shift, lower)
    square = mirror.square().sum(-2, keepdim=True)
    nothing = square.eq(0)
    return mirror, nothing.where(0, 2 / nothing.where(1, square))


# -- rotations -------------------------------------------------------------------------------------


def singular(x: _T, full_matrices: Flag) -> tuple[_T, _T, _T]:
    """U, S, V^T of matrices (.., m, n), S in falling order; see LinearAlgebra.svd."""
    if x.shape[-2] < x.shape[-1]:
        u, s, v = singular(turned(x), full_matrices)
        return turned(v), s, turned(u)
    rows, size = x.shape[-2:]
    q, r = reflected(x)
    left, right = _orthogonal_columns(r._cut(r.ndim - 2, 0, size))
    lengths = left.square().sum(-2).sqrt()
    s, order = lengths.sort(-1, descending=True)
    left, right = _in_order(left, order), _in_order(right, order)
    scale = s.unsqueeze(-2)
    left = scale.eq(0).where(0, left / scale.eq(0).where(1, scale))
    u = product(q._cut(q.ndim - 1, 0, size), left)
    if full_matrices and rows > size:
        u = u.cat(q._cut(q.ndim - 1, size, rows), dim=-1)
    return u, s, turned(right)


def _orthogonal_columns(square: _T) -> tuple[_T, _T]:
    """X V and V, for which the columns of X V are orthogonal."""
    size = square.shape[-1]
    both = _rotated(square.cat(identity(square, size).expand(square.shape), dim=-2), size)
    left, right = both.split([size, size], -2)
    return left, right


def _in_order(x: _T, order: _T) -> _T:
    """The columns in an order that each matrix has for itself."""
    return take_along(x, order.unsqueeze(-2).expand(x.shape), x.ndim - 1)


def _rotated(x: _T, rows: Whole) -> _T:
    """With columns rotated in pairs until they are orthogonal in the first `rows` rows."""
    size, axis = x.shape[-1], x.ndim - 1
    result = x
    for _ in range(_SWEEPS.get(x.dtype, _SWEEPS_OF_SINGLE)):
        for first, second in _rounds(size):
            rest = [k for k in range(size) if k not in first + second]
            a, b = _pairs_turned(_columns(result, first), _columns(result, second), rows)
            order = [*first, *second, *rest]
            joined = a.cat(b, *([_columns(result, rest)] if rest else []), dim=axis)
            result = _columns(joined, [order.index(k) for k in range(size)]).contiguous()
    return result


def _columns(x: _T, positions: Sequence[int]) -> _T:
    """The named columns; their numbers are data, so that every round is the same kernel."""
    return take(x, x.ndim - 1, x._as_tensor(list(positions)))


def _pairs_turned(one: _T, other: _T, rows: Whole) -> tuple[_T, _T]:
    """Column k of both turned in their plane so that they become orthogonal."""
    a, b = one._cut(one.ndim - 2, 0, rows), other._cut(one.ndim - 2, 0, rows)
    mixed = (a * b).sum(-2, keepdim=True)
    apart = b.square().sum(-2, keepdim=True) - a.square().sum(-2, keepdim=True)
    none = mixed.eq(0)
    ratio = apart / (none.where(1, mixed) * 2)
    size = (ratio < 0).where(-ratio, ratio)
    tangent = 1 / (size + (ratio.square() + 1).sqrt())
    tangent = none.where(0, (ratio < 0).where(-tangent, tangent))
    cosine = (tangent.square() + 1).rsqrt()
    sine = cosine * tangent
    return one * cosine - other * sine, one * sine + other * cosine


def _rounds(size: Whole) -> list[tuple[list[int], list[int]]]:
    """Every pair of columns once, in rounds of pairs that share none (the circle method)."""
    positions = list(range(size)) + ([-1] if size % 2 else [])
    half = len(positions) // 2
    rounds = []
    for _ in range(len(positions) - 1):
        pairs = [(positions[k], positions[-1 - k]) for k in range(half)]
        pairs = [pair for pair in pairs if -1 not in pair]
        rounds.append(([a for a, _ in pairs], [b for _, b in pairs]))
        positions = [positions[0], positions[-1], *positions[1:-1]]
    return rounds


# -- symmetric matrices ----------------------------------------------------------------------------


def eigen(x: _T) -> tuple[_T, _T]:
    """Rising eigenvalues (.., n) and eigenvectors, the columns of (.., n, n), of symmetric matrices."""
    both = _EIGEN(x)
    size = x.shape[-1]
    values, vectors = both.split([1, size], -1)
    return values.squeeze(-1), vectors


def _eigen(x: _T) -> _T:
    """Values and vectors, side by side: (.., n, n + 1).

    With a multiple of the identity added no eigenvalue is negative, and then the columns that rotations make orthogonal
    belong to different ones. The values are read from the matrix itself.
    """
    size = x.shape[-1]
    length = x.square().sum((-2, -1), keepdim=True).sqrt()
    _, vectors = _orthogonal_columns(x + identity(x, size) * length)
    values, order = (product(x, vectors) * vectors).sum(-2).sort(-1)
    return values.unsqueeze(-1).cat(_in_order(vectors, order), dim=-1)


def _eigen_gradient(gradient: _T, x: _T) -> _T:
    """Source: M. Giles, Collected matrix derivative results for forward and reverse mode AD, 2008, 3.1.

    Vectors whose values are equal have no derivative: those parts count as 0.
    """
    size = x.shape[-1]
    values, vectors = eigen(x)
    of_values, of_vectors = gradient.split([1, size], -1)
    apart = values.unsqueeze(-2) - values.unsqueeze(-1)
    share = apart.eq(0).where(0, 1 / apart.eq(0).where(1, apart))
    inner = product(turned(vectors), of_vectors) * share + identity(x, size) * of_values
    whole = product(product(vectors, inner), turned(vectors))
    return (whole + turned(whole)) / 2


_EIGEN = custom_vjp(_eigen, backward=_eigen_gradient)


# -- pseudo-inverses -------------------------------------------------------------------------------


def pseudo_inverse(x: _T, share: Real) -> _T:
    """Of matrices (.., m, n): (.., n, m). Singular values below `share` of the largest count as 0."""

    def found(x: _T) -> _T:
        u, s, v = singular(x, False)
        least = s.max(-1, keepdim=True) * share
        scale = (s > least).where(1 / (s > least).where(s, 1), 0)
        return product(turned(v) * scale.unsqueeze(-2), turned(u))

    def gradient(gradient: _T, x: _T) -> _T:
        """Source: G. Golub and V. Pereyra, The differentiation of pseudo-inverses, 1973."""
        inverse = pseudo_inverse(x, share)
        back, far = turned(gradient), turned(inverse)
        around = product(back, inverse)
        right = product(around, far)
        first = right - product(product(x, inverse), right)
        second = product(product(far, inverse), back - product(around, x))
        return first + second - turned(product(inverse, around))

    result: _T = custom_vjp(found, backward=gradient)(x)
    return result
