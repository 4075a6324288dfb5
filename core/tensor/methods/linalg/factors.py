"""Factors of matrices by rotations of pairs of columns (svd, eigh), and what follows from them.

Owns: the steps, all of them graphs; the gradients of eigh and pinv, which need no step again. Does not own: what is asked of a
matrix (matrices.py), reflections (reflections.py), elimination (solving.py).
"""

from __future__ import annotations

from typing import TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.data.arguments import Flag, Real, Whole
from proofgrad.core.tensor.methods.custom_vjp import custom_vjp
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.indexing.take import take_along
from proofgrad.core.tensor.methods.linalg.parts import identity, power_of_two, product, turned
from proofgrad.core.tensor.methods.linalg.reflections import reflected
from proofgrad.core.tensor.methods.made_once import made_once

# Jacobi's method converges quadratically once it is near: this many sweeps over all pairs of columns. Of up to 2 and 4 columns fewer are enough
# (measured: one more than the most that any of thousands of matrices took).
_SWEEPS, _SWEEPS_OF_FEW = 7, (1, 3, 5)
_SWEEPS_OF_DOUBLE, _SWEEPS_OF_FEW_DOUBLE = 10, (1, 3, 6)
_T = TypeVar("_T", bound=Indexing)


# -- rotations -------------------------------------------------------------------------------------


def singular(x: _T, full_matrices: Flag) -> tuple[_T, _T, _T]:
    """U, S, V^T of matrices (.., m, n), S in falling order; see LinearAlgebra.svd.

    X is Q R, and R^T is P L^T: columns of L, which has nothing above its diagonal, are nearer to orthogonal than those of R or X, so that
    fewer sweeps are enough. Source: Z. Drmac and K. Veselic, New fast and accurate Jacobi SVD algorithm, 2008.
    """
    if x.shape[-2] < x.shape[-1]:
        u, s, v = singular(turned(x), full_matrices)
        return turned(v), s, turned(u)
    rows, size = x.shape[-2:]
    q, r = reflected(x)
    p, upper = reflected(turned(r._cut(r.ndim - 2, 0, size)))
    whole = power_of_two(x)
    left, right = _orthogonal_columns(turned(upper) / whole)
    lengths = left.square().sum(-2).sqrt()
    s, order = lengths.sort(-1, descending=True)
    left, right = _in_order(left, order), _in_order(right, order)
    scale = s.unsqueeze(-2)
    left = scale.eq(0).where(0, left / scale.eq(0).where(1, scale))
    u = product(q._cut(q.ndim - 1, 0, size), left)
    if full_matrices and rows > size:
        u = u.cat(q._cut(q.ndim - 1, size, rows), dim=-1)
    return u, s * whole.squeeze(-1), turned(product(p, right))


def _orthogonal_columns(square: _T) -> tuple[_T, _T]:
    """X V and V, for which the columns of X V are orthogonal."""
    size = square.shape[-1]
    both = square.cat(identity(square, size).expand(square.shape), dim=-2)
    left, right = _rotated(both, size).split([size, size], -2)
    return left, right


def _in_order(x: _T, order: _T) -> _T:
    """The columns in an order that each matrix has for itself."""
    return take_along(x, order.unsqueeze(-2).expand(x.shape), x.ndim - 1)


@made_once
def _rotated(x: _T, rows: Whole) -> _T:
    """With columns rotated in pairs until they are orthogonal in the first `rows` rows.

    All columns stand in a circle, of an odd number of places: each is beside the one as far behind the first place as it is before
    it. Then all go one place on, so that in a sweep each is beside each other once, and in its place again: every round is the same kernels.
    Columns lie one behind the other, and the matrices of a batch side by side: what rotates a pair is one number for all that a vector has.
    """
    size, before = x.shape[-1], tuple(range(x.ndim - 2))
    if size < 2:
        return x
    columns = x.permute((x.ndim - 1, x.ndim - 2, *before))
    behind = [(0, 1 - size % 2 if k == 0 else 0) for k in range(x.ndim)]
    columns = columns._pad_zeros(behind).contiguous()
    for _ in range(_sweeps(x) * columns.shape[0]):
        columns = _next_round(columns, rows).contiguous()
    found = columns._cut(0, 0, size).permute((*[k + 2 for k in before], 1, 0))
    return found.contiguous()


def _sweeps(x: _T) -> int:
    """So many for these columns: one more for each four times as many as 64."""
    is_double, digits = x.dtype is dtypes.float64, (x.shape[-1] - 1).bit_length()
    few = _SWEEPS_OF_FEW_DOUBLE if is_double else _SWEEPS_OF_FEW
    if digits < len(few):
        return few[digits]
    return (_SWEEPS_OF_DOUBLE if is_double else _SWEEPS) + max((digits - 5) // 2, 0)


def _next_round(columns: _T, rows: Whole) -> _T:
    """Pairs of columns turned in their plane so that they become orthogonal, one place on. Shapes: (n, m, ..)."""
    size = columns.shape[0]
    half = size // 2
    one, other = columns._cut(0, 1, half + 1), columns._cut(0, half + 1, size).flip(0)
    a, b = one._cut(1, 0, rows), other._cut(1, 0, rows)
    mixed = (a * b).sum(1, keepdim=True)
    apart = ((b - a) * (b + a)).sum(1, keepdim=True)
    none = mixed.eq(0)
    ratio = apart / none.where(1, mixed + mixed)
    root = (ratio * ratio + 1).sqrt()
    tangent = none.where(0, 1 / (ratio + (ratio < 0).where(-root, root)))
    cosine = (tangent * tangent + 1).rsqrt()
    first, second = cosine * (one - tangent * other), cosine * (other + tangent * one)
    return first.cat(second.flip(0), columns._cut(0, 0, 1), dim=0)


# -- symmetric matrices ----------------------------------------------------------------------------


def eigen(x: _T) -> tuple[_T, _T]:
    """Rising eigenvalues (.., n) and eigenvectors, the columns of (.., n, n), of symmetric matrices."""
    both = _EIGEN(x)
    size = x.shape[-1]
    values, vectors = both.split([1, size], -1)
    return values.squeeze(-1), vectors


def _eigen(x: _T) -> _T:
    """Values and vectors, side by side: (.., n, n + 1).

    With a multiple of the identity added all eigenvalues are above 0, and then the columns that rotations make orthogonal
    are the vectors, each as long as its value. The values are read from the matrix itself.
    """
    size = x.shape[-1]
    part = x / power_of_two(x)
    length = part.square().sum((-2, -1), keepdim=True).sqrt()
    shift = length.eq(0).where(1, length * 2)
    columns = _rotated(part + identity(x, size) * shift, size)
    vectors = columns / columns.square().sum(-2, keepdim=True).sqrt()
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


_EIGEN = made_once(custom_vjp(_eigen, backward=_eigen_gradient))


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
