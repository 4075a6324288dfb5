"""Products of matrices, factors over the last two axes, systems of equations, and Newton-Schulz iterations.

Owns: which steps, all of them graphs, so that gradients pass where the results are smooth. Does not own:
sums of products, the language of einsum (products.py), elimination (solving.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.shapes import ShapeError, show
from proofgrad.core.tensor.data.arguments import Flag, Operand, Real, Whole
from proofgrad.core.tensor.data.nodes import broadcast_shapes, constant_node
from proofgrad.core.tensor.data.promotion import accumulation_dtype, as_dtype, promote
from proofgrad.core.tensor.methods.base import check_same_device, describe
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.indexing.take import take, take_along
from proofgrad.core.tensor.methods.linalg.products import sum_by_letters, sum_of_products
from proofgrad.core.tensor.methods.linalg.solving import (
    FACTORED,
    SOLVED,
    determinant,
    log_determinant,
)

# Jacobi's method converges quadratically once it is near: this many sweeps over all pairs of columns.
_SWEEPS = {dtypes.float64: 10}
_SWEEPS_OF_SINGLE = 7


class LinearAlgebra(Indexing):
    """Products of matrices, and their factors."""

    __slots__ = ()

    # -- products ------------------------------------------------------------------------------------

    def dot(self, w: Operand, dtype: DType | str | None = None) -> Self:
        """The matrix product: last axis of this Tensor with the last but one of the other."""
        if isinstance(w, (bool, int, float)):
            raise ShapeError(f"@ takes Tensors with axes, not the number {w}; use *")
        if not isinstance(w, LinearAlgebra):
            w = self._as_tensor(w)
        check_same_device("@", self, w)
        if not self.ndim or not w.ndim:
            raise ShapeError(f"@ needs 1 axis or more: {show(self.shape)} @ {show(w.shape)}")
        inner = -2 if w.ndim > 1 else -1
        if self.shape[-1] != w.shape[inner]:
            raise ShapeError(
                f"cannot multiply {show(self.shape)} @ {show(w.shape)}: axis -1 of the first"
                f" has {self.shape[-1]} elements, axis {inner} of the second {w.shape[inner]}"
            )
        result = promote(self.dtype, w.dtype) if dtype is None else as_dtype(dtype)
        wide = accumulation_dtype(result)
        x = self.cast(wide)
        y: Self = w.cast(wide)
        if self.ndim > 1 and w.ndim > 1:
            x = x.unsqueeze(-2)
            y = y.transpose(-1, -2).unsqueeze(-3)
        elif w.ndim > 1:
            y = y.transpose(-1, -2)
        return sum_of_products(x, y, wide, (-1,)).cast(result)

    def matmul(self, x: Operand, reverse: Flag = False, dtype: DType | str | None = None) -> Self:
        """`self @ x`, or `x @ self` with `reverse`; see dot."""
        if not reverse:
            return self.dot(x, dtype)
        first = x if isinstance(x, LinearAlgebra) else self._with(self._as_tensor(x)._uop)
        return first.dot(self, dtype)  # type: ignore[return-value]

    def __matmul__(self, other: Operand) -> Self:
        return self.dot(other)

    def __rmatmul__(self, other: Operand) -> Self:
        return self.matmul(other, reverse=True)

    def __imatmul__(self, other: Any) -> Self:
        return self._in_place("@=", type(self).__matmul__, other)

    @classmethod
    def einsum(cls, formula: str, *operands: Any, dtype: DType | str | None = None) -> Self:
        """The sum of products that the formula names: `Tensor.einsum("ij,jk->ik", a, b)`.

        A letter names an axis. Letters that the right side lacks are summed over; a letter twice in
        one operand takes its diagonal; `...` stands for axes in front that are broadcast. Without
        `->` the result has the letters that occur once, in order.
        """
        parts = operands
        if len(parts) == 1 and isinstance(parts[0], (list, tuple)):
            parts = tuple(parts[0])
        for part in parts:
            if not isinstance(part, LinearAlgebra):
                raise TypeError(f"einsum takes Tensors, not {describe(part)}")
        result: Self = sum_by_letters(formula, parts, dtype)
        return result

    # -- factors -------------------------------------------------------------------------------------

    def _matrix(self, name: str) -> Self:
        if self.ndim < 2:
            raise ShapeError(f"{name} takes matrices on the last two axes, not {show(self.shape)}")
        x = self._as_float()
        return x.float() if x.dtype.bits < 32 else x

    def _identity(self, size: Whole) -> Self:
        line = self._iota(size)
        return line.unsqueeze(-1).eq(line).cast(self.dtype)

    def qr(self) -> tuple[Self, Self]:
        """Q and R with Q @ R equal to this: Q orthogonal (m, m), R upper triangular (m, n).

        By Householder's reflections.
        """
        x = self._matrix("qr")
        rows, columns = x.shape[-2:]
        line = x._iota(rows)
        r = x
        q = x._identity(rows).expand((*x.shape[:-2], rows, rows))
        for k in range(min(rows - 1, columns)):
            column = r._cut(r.ndim - 1, k, k + 1)
            mirror, scale = column._reflection(line, k)
            r = (r - (mirror * scale) @ (mirror.transpose(-2, -1) @ r)).contiguous()
            q = (q - (q @ mirror) @ (mirror * scale).transpose(-2, -1)).contiguous()
        below = line.unsqueeze(-1) > x._iota(columns)
        return q.cast(self._as_float().dtype), below.where(0, r).cast(self._as_float().dtype)

    def _reflection(self, line: Self, k: Whole) -> tuple[Self, Self]:
        """v and 2 / v.v of the mirror that brings this column to zero below place k."""
        rows = line.unsqueeze(-1)
        lower = (rows >= k).where(self, 0)
        length = lower.square().sum(-2, keepdim=True).sqrt()
        head = self._cut(self.ndim - 2, k, k + 1)
        shift = (head < 0).where(-length, length)
        mirror = rows.eq(k).where(lower + shift, lower)
        square = mirror.square().sum(-2, keepdim=True)
        nothing = square.eq(0)
        return mirror, nothing.where(0, 2 / nothing.where(1, square))

    # -- systems of equations ------------------------------------------------------------------------

    def _square(self, name: str) -> Self:
        x = self._matrix(name)
        if x.shape[-1] != x.shape[-2]:
            raise ShapeError(f"{name} takes square matrices, not {show(self.shape)}")
        return x

    def solve(self, b: Self) -> Self:
        """x with self @ x = b, by elimination with pivots. Shapes: (.., n, n) and (.., n, m) or (.., n).

        Of a matrix without an inverse the result has infinities and NaN. Raises: ShapeError.

        Example:
            Tensor([[2.0, 0.0], [1.0, 4.0]]).solve(Tensor([2.0, 5.0])).tolist()  # [1.0, 1.0]
        """
        a = self._square("solve")
        check_same_device("solve", self, b)
        is_line = b.ndim == 1 or b.shape == a.shape[:-1]
        right = b.unsqueeze(-1) if is_line else b
        if right.ndim < 2 or right.shape[-2] != a.shape[-1]:
            raise ShapeError(
                f"solve of {show(self.shape)} takes (.., {a.shape[-1]}, m), not {show(b.shape)}"
            )
        kind = promote(a.dtype, right._matrix("solve").dtype)
        before = broadcast_shapes("solve", a.shape[:-2], right.shape[:-2])
        left = a.cast(kind).expand((*before, *a.shape[-2:]))
        found: Self = SOLVED(left, right.cast(kind).expand((*before, *right.shape[-2:])))
        found = found.squeeze(-1) if is_line else found
        return found.cast(promote(self._as_float().dtype, b._as_float().dtype))

    def inverse(self) -> Self:
        """The inverse of each matrix (.., n, n); with infinities and NaN where there is none. Raises: ShapeError."""
        x = self._square("inverse")
        found: Self = SOLVED(x, x._identity(x.shape[-1]).expand(x.shape))
        return found.cast(self._as_float().dtype)

    def det(self) -> Self:
        """The determinant of each matrix (.., n, n): (..). Raises: ShapeError."""
        found: Self = determinant(self._square("det"))
        return found.cast(self._as_float().dtype)

    def slogdet(self) -> tuple[Self, Self]:
        """The sign of the determinant of each matrix, and the logarithm of its size. Raises: ShapeError."""
        sign, size = log_determinant(self._square("slogdet"))
        kind = self._as_float().dtype
        return sign.cast(kind), size.cast(kind)

    def cholesky(self, upper: Flag = False) -> Self:
        """L, lower triangular, with L @ L^T equal to each symmetric matrix; its transpose with `upper`. Raises: ShapeError.

        The upper part of the matrix is not read. Of one that is not positive definite the result has NaN.
        """
        factor: Self = FACTORED(self._square("cholesky"))
        return (factor.transpose(-2, -1) if upper else factor).cast(self._as_float().dtype)

    def lstsq(self, b: Self) -> Self:
        """x for which self @ x is nearest to b, by qr. Shapes: (.., m, n) of rank n, m at least n, and (.., m, k) or (.., m).

        Raises: ShapeError.
        """
        x = self._matrix("lstsq")
        rows, columns = x.shape[-2:]
        if rows < columns:
            raise ShapeError(
                f"lstsq takes at least as many rows as columns, not {show(self.shape)}"
            )
        q, r = x.qr()
        is_line = b.ndim == 1 or b.shape == x.shape[:-1]
        right = q.transpose(-2, -1) @ (b.unsqueeze(-1) if is_line else b)
        square = r._cut(r.ndim - 2, 0, columns)
        found = square.solve(right._cut(right.ndim - 2, 0, columns))
        found = found.squeeze(-1) if is_line else found
        return found.cast(promote(self._as_float().dtype, b._as_float().dtype))

    def svd(self, full_matrices: Flag = True) -> tuple[Self, Self, Self]:
        """U, S and V^T with U @ diag(S) @ V^T equal to this; S in falling order.

        By Jacobi's rotations of pairs of columns, after qr. Without `full_matrices` U and V^T have
        as many columns and rows as S. Columns of U that belong to a singular value 0 are 0.
        """
        x = self._matrix("svd")
        if x.shape[-2] < x.shape[-1]:
            u, s, v = x.transpose(-2, -1).svd(full_matrices)
            return v.transpose(-2, -1), s, u.transpose(-2, -1)
        rows, size = x.shape[-2:]
        q, r = x.qr()
        square = r._cut(r.ndim - 2, 0, size)
        both = square.cat(x._identity(size).expand(square.shape), dim=-2)._rotated(size)
        left, right = both.split([size, size], -2)
        lengths = left.square().sum(-2).sqrt()
        s, order = lengths.sort(-1, descending=True)
        places = order.unsqueeze(-2).expand(left.shape)
        left, right = (
            take_along(left, left.ndim - 1, places),
            take_along(right, right.ndim - 1, places),
        )
        scale = s.unsqueeze(-2)
        left = scale.eq(0).where(0, left / scale.eq(0).where(1, scale))
        u = q._cut(q.ndim - 1, 0, size) @ left
        if full_matrices and rows > size:
            u = u.cat(q._cut(q.ndim - 1, size, rows), dim=-1)
        kind = self._as_float().dtype
        return u.cast(kind), s.cast(kind), right.transpose(-2, -1).cast(kind)

    def _rotated(self, rows: Whole) -> Self:
        """With columns rotated in pairs until they are orthogonal in the first `rows` rows."""
        size = self.shape[-1]
        result = self
        axis = self.ndim - 1
        for _ in range(_SWEEPS.get(self.dtype, _SWEEPS_OF_SINGLE)):
            for first, second in _rounds(size):
                rest = [k for k in range(size) if k not in first + second]
                a, b = result._columns(first), result._columns(second)
                a, b = a._rotate_pairs(b, rows)
                order = [*first, *second, *rest]
                joined = a.cat(b, *([result._columns(rest)] if rest else []), dim=axis)
                result = joined._columns([order.index(k) for k in range(size)]).contiguous()
        return result

    def _columns(self, places: Sequence[int]) -> Self:
        """The named columns; their numbers are data, so that every round is the same kernel."""
        return take(self, self.ndim - 1, self._as_tensor(list(places)))

    def _rotate_pairs(self, other: Self, rows: Whole) -> tuple[Self, Self]:
        """Column k of both turned in their plane so that they become orthogonal."""
        a, b = self._cut(self.ndim - 2, 0, rows), other._cut(self.ndim - 2, 0, rows)
        mixed = (a * b).sum(-2, keepdim=True)
        apart = b.square().sum(-2, keepdim=True) - a.square().sum(-2, keepdim=True)
        none = mixed.eq(0)
        ratio = apart / (none.where(1, mixed) * 2)
        size = (ratio < 0).where(-ratio, ratio)
        tangent = 1 / (size + (ratio.square() + 1).sqrt())
        tangent = none.where(0, (ratio < 0).where(-tangent, tangent))
        cosine = (tangent.square() + 1).rsqrt()
        sine = cosine * tangent
        return self * cosine - other * sine, self * sine + other * cosine

    def newton_schulz(self, steps: Whole, params: Sequence[Real], eps: Real = 1e-7) -> Self:
        """Matrices with their singular values brought near 1, by an odd polynomial, `steps` times.

        One step is X (p0 + p1 X^T X + p2 (X^T X)^2 ...), after division by the Frobenius norm + eps.
        """
        if self.ndim < 2:
            raise ShapeError(f"newton_schulz takes matrices, not {show(self.shape)}")
        if self.shape[-2] > self.shape[-1]:
            turned = self.transpose(-2, -1).newton_schulz(steps, params, eps)
            return turned.transpose(-2, -1)
        wide = self._wide()  # squares of float16 overflow from 256 on
        length = wide.square().sum((-2, -1), keepdim=True)._length()
        x = (wide / (length + eps)).cast(self._as_float().dtype)
        for _ in range(steps):
            square = x @ x.transpose(-2, -1)
            power, total = x, self._with(constant_node(0, x.dtype, x.shape))
            for number, factor in enumerate(params):
                power = square @ power if number else x
                total = total + power * factor
            x = total
        return x


def _rounds(size: Whole) -> list[tuple[list[int], list[int]]]:
    """Every pair of columns once, in rounds of pairs that share none (the circle method)."""
    places = list(range(size)) + ([-1] if size % 2 else [])
    half = len(places) // 2
    rounds = []
    for _ in range(len(places) - 1):
        pairs = [(places[k], places[-1 - k]) for k in range(half)]
        pairs = [pair for pair in pairs if -1 not in pair]
        rounds.append(([a for a, _ in pairs], [b for _, b in pairs]))
        places = [places[0], places[-1], *places[1:-1]]
    return rounds
