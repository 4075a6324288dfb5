"""Products of matrices, factors over the last two axes, systems of equations, Fourier transforms, Newton-Schulz iterations.

Owns: what is asked of a Tensor, types of results. Does not own: the language of einsum (products.py), reflections and rotations
(factors.py), elimination (solving.py), how a transform is made of small ones (fourier.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.shapes import ShapeError, show
from proofgrad.core.tensor.data.arguments import (
    Flag,
    Operand,
    Real,
    Whole,
    plain_number,
    resolve_axis,
)
from proofgrad.core.tensor.data.nodes import broadcast_shapes, constant_node
from proofgrad.core.tensor.data.promotion import as_dtype, promote
from proofgrad.core.tensor.methods.base import check_same_device, describe
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.linalg.factors import eigen, pseudo_inverse, singular
from proofgrad.core.tensor.methods.linalg.fourier import (
    complex_transform,
    from_half,
    half_transform,
    real_type,
)
from proofgrad.core.tensor.methods.linalg.parts import identity
from proofgrad.core.tensor.methods.linalg.products import product_of_matrices, sum_by_letters
from proofgrad.core.tensor.methods.linalg.reflections import reflected
from proofgrad.core.tensor.methods.linalg.solving import (
    FACTORED,
    SOLVED,
    determinant,
    log_determinant,
)


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
        own, other = self._uop.shape, w._uop.shape
        if not own or not other:
            raise ShapeError(f"@ needs 1 axis or more: {show(own)} @ {show(other)}")
        inner = -2 if len(other) > 1 else -1
        if own[-1] != other[inner]:
            raise ShapeError(
                f"cannot multiply {show(own)} @ {show(other)}: axis -1 of the first"
                f" has {own[-1]} elements, axis {inner} of the second {other[inner]}"
            )
        result = promote(self.dtype, w.dtype) if dtype is None else as_dtype(dtype)
        product: Self = product_of_matrices(self, w, result)
        return product

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
        if not isinstance(formula, str):
            raise TypeError(
                f"einsum takes a formula first, as in 'ij,jk->ik', not {describe(formula)}"
            )
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

    def qr(self) -> tuple[Self, Self]:
        """Q and R with Q @ R equal to this: Q orthogonal (m, m), R upper triangular (m, n).

        By Householder's reflections.
        """
        q, r = reflected(self._matrix("qr"))
        return q.cast(self._as_float().dtype), r.cast(self._as_float().dtype)

    def svd(self, full_matrices: Flag = True) -> tuple[Self, Self, Self]:
        """U, S and V^T with U @ diag(S) @ V^T equal to this; S in falling order.

        By Jacobi's rotations of pairs of columns, after qr. Without `full_matrices` U and V^T have
        as many columns and rows as S. Columns of U that belong to a singular value 0 are 0.
        """
        u, s, v = singular(self._matrix("svd"), full_matrices)
        kind = self._as_float().dtype
        return u.cast(kind), s.cast(kind), v.cast(kind)

    def eigh(self) -> tuple[Self, Self]:
        """Eigenvalues in rising order, and eigenvectors as columns, of symmetric matrices. Shapes: (.., n, n) to (.., n), (.., n, n).

        The upper part of the matrix is not read. A vector is one of two, v or -v; of equal values those that rotations find.
        By Jacobi's rotations. Raises: ShapeError.

        Example:
            Tensor([[2.0, 0.0], [0.0, -1.0]]).eigh()[0].tolist()  # [-1.0, 2.0]
        """
        x = self._square("eigh")
        rows, columns = x._iota(x.shape[-1]).unsqueeze(-1), x._iota(x.shape[-1])
        values, vectors = eigen((rows >= columns).where(x, x.transpose(-2, -1)))
        kind = self._as_float().dtype
        return values.cast(kind), vectors.cast(kind)

    def pinv(self, rtol: Real | None = None) -> Self:
        """The pseudo-inverse of each matrix, by svd. Shapes: (.., m, n) to (.., n, m).

        Singular values below `rtol` times the largest count as 0; None is max(m, n) times the step of the type at 1. Raises: ShapeError.
        """
        x = self._matrix("pinv")
        if 0 in x.shape[-2:]:
            return x.transpose(-2, -1).cast(self._as_float().dtype)
        step = 2.0**-52 if x.dtype is dtypes.float64 else 2.0**-23
        share = max(x.shape[-2:]) * step if rtol is None else rtol
        return pseudo_inverse(x, share).cast(self._as_float().dtype)

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
        a, b = self._square("solve"), self._given("b", b)
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
        found: Self = SOLVED(x, identity(x, x.shape[-1]).expand(x.shape))
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
        """x for which self @ x is nearest to b, by qr; the shortest where several are. Shapes: (.., m, n) and (.., m, k) or (.., m).

        The matrix has the rank min(m, n); of others see pinv. Raises: ShapeError.
        """
        x, b = self._matrix("lstsq"), self._given("b", b)
        rows, columns = x.shape[-2:]
        is_line = b.ndim == 1 or b.shape == x.shape[:-1]
        right = b.unsqueeze(-1) if is_line else b
        if right.ndim < 2 or right.shape[-2] != rows:
            raise ShapeError(
                f"lstsq of {show(self.shape)} takes (.., {rows}, k) or (.., {rows}), not {show(b.shape)}"
            )
        if rows < columns:
            q, r = x.transpose(-2, -1).qr()
            square = r._cut(r.ndim - 2, 0, rows).transpose(-2, -1)
            found = q._cut(q.ndim - 1, 0, rows) @ square.solve(right)
        else:
            q, r = x.qr()
            right = q.transpose(-2, -1) @ right
            found = r._cut(r.ndim - 2, 0, columns).solve(right._cut(right.ndim - 2, 0, columns))
        found = found.squeeze(-1) if is_line else found
        return found.cast(promote(self._as_float().dtype, b._as_float().dtype))

    # -- Fourier transforms --------------------------------------------------------------------------

    def _pairs_along(self, axis: Whole, name: str) -> tuple[Self, int]:
        """Complex numbers, as pairs; and which of their axes it is."""
        if self.ndim < 2 or self.shape[-1] != 2:
            raise ShapeError(
                f"{name} takes complex numbers as pairs, (.., n, 2), not {show(self.shape)}; of real numbers see rfft"
            )
        position = resolve_axis(axis, self.ndim - 1)
        return real_type(self), position

    def fft(self, n: Whole | None = None, axis: Whole = -1, norm: str = "backward") -> Self:
        """The Fourier transform of complex numbers, given and returned as pairs. Shapes: (.., n, 2).

        `n`: how many numbers of the axis, cut off or with zeros behind. `axis` counts without that of the pairs. `norm` as in numpy
        and torch: "backward", "ortho", "forward". In float32, or float64. Raises: ShapeError.
        """
        z, position = self._pairs_along(axis, "fft")
        return complex_transform(z, position, _length("fft", z.shape[position], n), norm, False)

    def ifft(self, n: Whole | None = None, axis: Whole = -1, norm: str = "backward") -> Self:
        """What fft makes this of; see there. Shapes: (.., n, 2). Raises: ShapeError."""
        z, position = self._pairs_along(axis, "ifft")
        return complex_transform(z, position, _length("ifft", z.shape[position], n), norm, True)

    def rfft(self, n: Whole | None = None, axis: Whole = -1, norm: str = "backward") -> Self:
        """The Fourier transform of real numbers: n // 2 + 1 complex ones, as pairs. Shapes: (.., n) to (.., n // 2 + 1, 2).

        The others would be the mirror images of these. Arguments as of fft. Raises: ShapeError.

        Example:
            Tensor([1.0, 2.0, 3.0, 4.0]).rfft().tolist()  # [[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]
        """
        if not self.ndim:
            raise ShapeError("rfft takes 1 axis or more")
        position = resolve_axis(axis, self.ndim)
        return half_transform(
            real_type(self), position, _length("rfft", self.shape[position], n), norm
        )

    def irfft(self, n: Whole | None = None, axis: Whole = -1, norm: str = "backward") -> Self:
        """The real numbers of which rfft makes this. Shapes: (.., m, 2) to (.., n), by default n = 2 (m - 1). Raises: ShapeError."""
        z, position = self._pairs_along(axis, "irfft")
        size = _length("irfft", 2 * (z.shape[position] - 1), n)
        return from_half(z, position, size, norm)

    # -- iterations ----------------------------------------------------------------------------------

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


def _length(name: str, size: Whole, wanted: Whole | None) -> int:
    """How many numbers a transform is of."""
    length = size if wanted is None else plain_number(wanted)
    if not isinstance(length, int):
        raise TypeError(f"{name} is of a whole number of numbers, not of {length!r}")
    if length < 1:
        raise ShapeError(f"{name} is of 1 number or more, not of {length}")
    return length
