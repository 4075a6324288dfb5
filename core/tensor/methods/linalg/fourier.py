"""Fourier transforms of pairs: a complex number is two floats on the last axis, its real and its imaginary part.

Owns: how a transform is made of small ones. All is sums and products of tables, so gradients and rules are those of these.

A length that is a product is done factor by factor (Cooley and Tukey, 1965); a large prime as a convolution whose length is
a power of two (Bluestein, 1970). Tables are worked out in float64, with the angle reduced exactly.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any, TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.data.errors import ModeError
from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.linalg.products import sum_of_products

LARGEST_MATRIX = 32  # up to here a transform is one product with a matrix
LARGEST_PRIME = 128  # up to here of a prime, too
_T = TypeVar("_T", bound=Indexing)


def transformed(z: _T, sign: int) -> _T:
    """Sum over j of z[j] exp(sign 2 pi i j k / n). Shapes: (.., n, 2), the same. `sign` is -1 or 1."""
    size = z.shape[-2]
    factor = _factor(size)
    if size <= 1:
        return z
    if size <= LARGEST_MATRIX or (factor == 1 and size <= LARGEST_PRIME):
        return _by_matrix(z, sign)
    return _by_convolution(z, sign) if factor == 1 else _by_factors(z, sign, factor)


def _factor(size: int) -> int:
    """The largest divisor that is no larger than the matrices, and no larger than its fellow."""
    most = min(LARGEST_MATRIX, math.isqrt(size))
    return next((k for k in range(most, 1, -1) if size % k == 0), 1)


def _by_matrix(z: _T, sign: int) -> _T:
    """One real product: of pairs by pairs."""
    size = z.shape[-2]
    rows = [_turn(sign * j * k, size) for k in range(size) for j in range(size)]
    # (k, q, j, p): what part p of element j adds to part q of result k
    table = [
        [[[w.real, -w.imag] for w in row], [[w.imag, w.real] for w in row]]
        for row in [rows[k * size : (k + 1) * size] for k in range(size)]
    ]
    matrix = _table(z, table).reshape((size * 2, size * 2))
    flat = z.reshape((*z.shape[:-2], 1, size * 2))
    return sum_of_products(flat, matrix, z.dtype, (-1,)).reshape(z.shape)


def _by_factors(z: _T, sign: int, first: int) -> _T:
    """Of n = a b: a transform of length a for each of b positions, a turn, one of length b."""
    size = z.shape[-2]
    second = size // first
    parts = z.reshape((*z.shape[:-2], first, second, 2)).transpose(-3, -2)
    inner = transformed(parts, sign)  # (.., b, a, 2)
    turns = [[_turn(sign * j * k, size) for j in range(second)] for k in range(first)]
    inner = _multiplied(inner.transpose(-3, -2), turns).contiguous()  # (.., a, b, 2)
    return transformed(inner, sign).transpose(-3, -2).reshape(z.shape)


def _by_convolution(z: _T, sign: int) -> _T:
    """j k = (j^2 + k^2 - (k - j)^2) / 2: a convolution with a chirp."""
    size = z.shape[-2]
    long = 1 << (2 * size - 2).bit_length()
    chirp = [_turn(sign * j * j, 2 * size) for j in range(size)]
    around = [
        chirp[min(j, long - j)].conjugate() if min(j, long - j) < size else 0j for j in range(long)
    ]
    start = _multiplied(z, chirp)
    spread = transformed(_padded(start, long), -1)
    filtered = _product(spread, transformed(_pairs(z, around), -1))
    back = transformed(filtered.contiguous(), 1) / long
    return _multiplied(back._cut(back.ndim - 2, 0, size), chirp)


def _turn(numerator: int, denominator: int) -> complex:
    """exp(2 pi i numerator / denominator); exact where that is 1, i, -1 or -i."""
    quarters, rest = divmod(4 * (numerator % denominator), denominator)
    if rest == 0:
        return (1 + 0j, 1j, -1 + 0j, -1j)[quarters]
    return cmath.exp(2j * math.pi * (numerator % denominator) / denominator)


def _padded(z: _T, size: int) -> _T:
    """With zeros behind, or cut off, to `size` complex numbers."""
    length = z.shape[-2]
    if size <= length:
        return z._cut(z.ndim - 2, 0, size)
    rest = z._with(constant_node(0, z.dtype, (*z.shape[:-2], size - length, 2)))
    return z.cat(rest, dim=-2)


def _table(z: _T, values: Any) -> _T:
    return type(z)(values, z.device, z.dtype)


def _pairs(z: _T, numbers: Any) -> _T:
    return _table(z, _nested(numbers, lambda w: [w.real, w.imag]))


def _multiplied(z: _T, numbers: Any) -> _T:
    """z times a table of complex numbers, of the shape of its last axes."""
    real = _table(z, _nested(numbers, lambda w: [w.real]))
    imaginary = _table(z, _nested(numbers, lambda w: [-w.imag, w.imag]))
    return z * real + z.flip(-1) * imaginary


def _product(a: _T, b: _T) -> _T:
    """Of two Tensors of pairs."""
    real, imaginary = b.split([1, 1], -1)
    return a * real + a.flip(-1) * (-imaginary).cat(imaginary, dim=-1)


def _nested(numbers: Any, change: Callable[[complex], Any]) -> Any:
    return [_nested(n, change) for n in numbers] if isinstance(numbers, list) else change(numbers)


# -- what users ask for ----------------------------------------------------------------------------


def scaled(z: _T, size: int, norm: str, is_inverse: bool) -> _T:
    """Divided as `norm` says: "backward" the inverse by n, "forward" the other, "ortho" both by sqrt(n)."""
    if norm not in ("backward", "ortho", "forward"):
        raise ModeError(f"norm is 'backward', 'ortho' or 'forward', not {norm!r}")
    if norm == "ortho":
        return z / math.sqrt(size)
    return z / size if is_inverse == (norm == "backward") else z


def complex_transform(z: _T, size: int, norm: str, is_inverse: bool) -> _T:
    """Of `size` complex numbers of the last but one axis, cut off or with zeros behind."""
    given = _padded(z, size).contiguous()
    return scaled(transformed(given, 1 if is_inverse else -1), size, norm, is_inverse)


def half_transform(x: _T, size: int, norm: str) -> _T:
    """Of `size` real numbers: the first n // 2 + 1 of the result, the others are their mirror images."""
    pairs = x.unsqueeze(-1)
    pairs = pairs.cat(x._with(constant_node(0, x.dtype, pairs.shape)), dim=-1)
    whole = complex_transform(pairs, size, norm, False)
    return whole._cut(whole.ndim - 2, 0, size // 2 + 1)


def from_half(z: _T, size: int, norm: str) -> _T:
    """The `size` real numbers of which `half_transform` makes z; the imaginary parts that must be 0 are not read."""
    half = _padded(z, size // 2 + 1)
    ends = [0j + 1] + [1j + 1] * ((size - 1) // 2) + ([0j + 1] if size % 2 == 0 else [])
    half = half * _table(z, _nested(ends, lambda w: [w.real, w.imag]))
    mirror = half._cut(half.ndim - 2, 1, (size + 1) // 2).flip(-2) * _table(z, [1.0, -1.0])
    whole = complex_transform(half.cat(mirror, dim=-2), size, norm, True)
    return whole._cut(whole.ndim - 1, 0, 1).squeeze(-1)


def real_type(x: _T) -> _T:
    """As float32, or float64 if it is that."""
    return x if x.dtype is dtypes.float64 else x.cast(dtypes.float32)
