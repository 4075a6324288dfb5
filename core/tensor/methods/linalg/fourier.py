"""Fourier transforms of complex numbers, given and returned as pairs: two floats on the last axis.

Owns: how a transform is made of small ones, and its tables. All is sums and products of tables; a gradient is a
transform, of the other sign.

Within, real and imaginary parts are planes, (.., 2, n, lanes): what lies beside the numbers, of other transforms, is lanes of vectors. A
length that is a product is done factor by factor (Cooley and Tukey, 1965): each factor is one kernel, that writes its results between those of
the factors before, so that all are in order in the end (Stockham, 1966). A large prime is a convolution whose length is a power of two
(Bluestein, 1970). Real numbers of an even count are half as many complex ones. Tables are worked out in float64, with the angle reduced exactly,
and kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.shapes import Shape, elements, is_plain
from proofgrad.core.tensor.data.errors import ModeError
from proofgrad.core.tensor.data.nodes import constant_node, stacked_node
from proofgrad.core.tensor.methods.custom_vjp import custom_vjp
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.linalg.butterflies import smallest_factor, turn, written_out
from proofgrad.core.tensor.methods.linalg.products import sum_of_products
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.runtime.realize import flat_buffer, gives_values

WRITTEN_OUT = 16  # numbers whose sums one kernel writes out: as many pairs as registers hold
LARGEST_MATRIX = 32  # up to here a transform without lanes is one product with a matrix
LARGEST_PRIME = 128  # up to here of a prime, too
# To read a number and to write it takes as long as so many more terms of each sum (both measured in a second cache).
MOVED = 8
# Bytes of neighbours that are written in one piece.
LINE_BYTES = 64
# Tables that are kept, and how many numbers one of them has at most.
MOST_TABLES, LARGEST_KEPT = 64, 1 << 20
_Name = tuple[Any, ...]
_TABLES: Newest[_Name, Any] = Newest(MOST_TABLES)
_T = TypeVar("_T", bound=Indexing)


# -- which transforms one is made of ---------------------------------------------------------------


def _factors(size: int, lanes: int) -> list[int]:
    """Small transforms whose lengths multiply to this one's, in turn. `lanes`: 0 if a variable says how many."""
    if size == 1 or (lanes == 1 and size <= LARGEST_MATRIX):
        return [size]
    small, large = size, []
    for prime in _primes(size):
        if prime > WRITTEN_OUT:
            small //= prime
            large.append(prime)
    return [*_written_out(small)[1], *large]


def _primes(size: int) -> list[int]:
    found = []
    while size > 1:
        found.append(smallest_factor(size))
        size //= found[-1]
    return found


@lru_cache(maxsize=1024)
def _written_out(size: int) -> tuple[int, tuple[int, ...]]:
    """The factors that take the least time, the largest first, and that time; of a size without large primes."""
    if size == 1:
        return 0, ()
    found = []
    for k in range(2, min(size, WRITTEN_OUT) + 1):
        if size % k == 0:
            time, others = _written_out(size // k)
            found.append((time + MOVED + k, tuple(sorted((k, *others), reverse=True))))
    return min(found)


def _is_matrix(size: int, lanes: int) -> bool:
    return size <= LARGEST_PRIME and (size > WRITTEN_OUT or lanes == 1)


def _is_convolution(size: int) -> bool:
    return size > LARGEST_PRIME


def _long(size: int) -> int:
    """The length of the convolution that a transform is."""
    return 1 << (2 * size - 2).bit_length()


def _names(size: int, lanes: int, sign: int) -> list[_Name]:
    """Of the tables that a transform reads."""
    found: list[_Name] = []
    rest = size
    for factor in _factors(size, lanes):
        rest //= factor
        if _is_convolution(factor):
            long = _long(factor)
            found += [("chirp", factor, sign), ("filter", factor, sign)]
            found += _names(long, lanes * rest, -1) + _names(long, lanes * rest, 1)
        elif size > 1 and _is_matrix(factor, lanes * rest):
            found.append(("matrix", factor, sign))
        if rest > 1:
            found.append(("turns", factor, rest, sign))
        lanes *= factor
    return list(dict.fromkeys(found))


# -- transforms of planes --------------------------------------------------------------------------


def _transformed(z: _T, tables: Mapping[_Name, _T], sign: int) -> _T:
    """Sum over j of z[j] exp(sign 2 pi i j k / n). Shapes: (.., 2, n, lanes), the same. `sign` is -1 or 1."""
    *before, _, rest, lanes = shape = z.shape
    if rest == 1:
        return z
    for factor in _factors(rest, _count(lanes)):
        rest //= factor
        z = z.reshape((*before, 2, factor, rest, lanes))
        turns = None if rest == 1 else tables["turns", factor, rest, sign]
        z = _small(z, tables, sign, turns)
        if rest > 1 and _count(lanes) * z.dtype.itemsize < LINE_BYTES:
            z = z.contiguous()
        # The results of this factor are digits below those of the next ones.
        z = z.transpose(-3, -2)
        z = z.contiguous() if rest > 1 else z
        lanes = factor * lanes
    return z.reshape(shape)


def _small(z: _T, tables: Mapping[_Name, _T], sign: int, turns: _T | None) -> _T:
    """A transform that is no product of others, along the axis behind that of the planes, and each result turned."""
    *before, _, size, rest, lanes = z.shape
    beside = _count(lanes) * rest
    if not _is_convolution(size) and not _is_matrix(size, beside):
        return _butterflies(z, sign, turns)
    flat = z.reshape((*before, 2, size, rest * lanes))
    if _is_convolution(size):
        found = _by_convolution(flat, tables, sign)
    else:
        found = _by_matrix(flat, tables["matrix", size, sign])
    return (
        found.reshape(z.shape)
        if turns is None
        else _product(found.contiguous().reshape(z.shape), turns)
    )


def _butterflies(z: _T, sign: int, turns: _T | None) -> _T:
    axis, size = z.ndim - 3, z.shape[-3]
    re, im = _parts(z, 4)
    line = [(re._cut(axis, k, k + 1), im._cut(axis, k, k + 1)) for k in range(size)]
    line = written_out(line, sign)
    if turns is not None:
        by, across = _parts(turns, 4)
        for k in range(1, size):
            (x, y), c, s = line[k], by._cut(1, k, k + 1), across._cut(1, k, k + 1)
            line[k] = x * c - y * s, x * s + y * c
    rows = [*[x for x, _ in line], *[y for _, y in line]]
    return z._with(stacked_node([row.squeeze(axis - 1)._uop for row in rows], axis - 1)).reshape(
        z.shape
    )


def _by_matrix(z: _T, matrix: _T) -> _T:
    """One real product: both parts of all numbers are one line of it."""
    *before, _, size, lanes = z.shape
    flat = z.reshape((*before, 2 * size, lanes)).transpose(-2, -1).unsqueeze(-2)
    found = sum_of_products(flat, matrix, z.dtype, (-1,))
    return found.transpose(-2, -1).reshape(z.shape)


def _by_convolution(z: _T, tables: Mapping[_Name, _T], sign: int) -> _T:
    """j k = (j^2 + k^2 - (k - j)^2) / 2: a convolution with a chirp."""
    axis, size = z.ndim - 2, z.shape[-2]
    chirp = tables["chirp", size, sign]
    start = _resized(_product(z, chirp).contiguous(), axis, _long(size))
    spread = _transformed(start, tables, -1).contiguous()
    filtered = _product(spread, tables["filter", size, sign]).contiguous()
    back = _transformed(filtered, tables, 1).contiguous()
    return _product(back._cut(axis, 0, size), chirp)


def _resized(z: _T, axis: int, size: int) -> _T:
    """With zeros behind, or cut off, to so many along an axis."""
    length = z.shape[axis]
    if size <= length:
        return z._cut(axis, 0, size)
    return z._pad_zeros([(0, size - length if k == axis else 0) for k in range(z.ndim)])


def _count(lanes: Any) -> int:
    """How many there are; 0 if a variable says it."""
    return lanes if is_plain((lanes,)) else 0


def _parts(z: _T, behind: int = 3) -> tuple[_T, _T]:
    """The real and the imaginary plane; their axis is so far from the end."""
    axis = z.ndim - behind
    return z._cut(axis, 0, 1), z._cut(axis, 1, 2)


def _product(z: _T, table: _T) -> _T:
    """Of complex numbers; a table has the axes of its numbers alone."""
    behind = table.ndim
    (re, im), (by, across) = _parts(z, behind), _parts(table, behind)
    return _together(re * by - im * across, re * across + im * by, behind)


def _together(re: _T, im: _T, behind: int = 3) -> _T:
    return re._with(stacked_node([re._uop, im._uop], re.ndim - behind))


# -- what users ask for ----------------------------------------------------------------------------


def complex_transform(z: _T, axis: int, size: int, norm: str, is_inverse: bool) -> _T:
    """Of `size` complex numbers of an axis, cut off or with zeros behind."""
    return _of_pairs(z, axis, size, _scale(size, norm, is_inverse), 1 if is_inverse else -1)


def half_transform(x: _T, axis: int, size: int, norm: str) -> _T:
    """Of `size` real numbers: the first n // 2 + 1 of the result, the others are their mirror images."""
    return _half(x, axis, size, _scale(size, norm, False))


def from_half(z: _T, axis: int, size: int, norm: str) -> _T:
    """The `size` real numbers of which `half_transform` makes z; the imaginary parts that must be 0 are not read."""
    return _of_half(z, axis, size, _scale(size, norm, True))


def real_type(x: _T) -> _T:
    """As float32, or float64 if it is that."""
    return x if x.dtype is dtypes.float64 else x.cast(dtypes.float32)


def _scale(size: int, norm: str, is_inverse: bool) -> float:
    """As `norm` says: "backward" the inverse is divided by n, "forward" the other, "ortho" both by sqrt(n)."""
    if norm not in ("backward", "ortho", "forward"):
        raise ModeError(f"norm is 'backward', 'ortho' or 'forward', not {norm!r}")
    if norm == "ortho":
        return 1 / math.sqrt(size)
    return 1 / size if is_inverse == (norm == "backward") else 1.0


# -- transforms, whose gradients are transforms ----------------------------------------------------


def _of_pairs(z: _T, axis: int, size: int, scale: float, sign: int) -> _T:
    names = _names(size, _lanes(z, axis, 1), sign)
    found: _T = _of_pairs_once(z, *_tables(z, names), axis, size, scale, sign)
    return found


@made_once
def _of_pairs_once(z: Any, *given: Any) -> Any:
    *tables, axis, size, scale, sign = given
    names = _names(size, _lanes(z, axis, 1), sign)

    def transform(z: Any) -> Any:
        planes = _planes_of_pairs(_resized(z, axis, size), axis)
        found = _scaled(_transformed(planes, dict(zip(names, tables)), sign), scale)
        return _as_pairs(found, z.shape, axis)

    def adjoint(gradient: Any, z: Any) -> Any:
        return _resized(_of_pairs(gradient, axis, size, scale, -sign), axis, z.shape[axis])

    return custom_vjp(transform, backward=adjoint)(z)


def _half(x: _T, axis: int, size: int, scale: float) -> _T:
    names = _half_names(size, _lanes(x, axis, 0), -1)
    found: _T = _half_once(x, *_tables(x, names), axis, size, scale)
    return found


@made_once
def _half_once(x: Any, *given: Any) -> Any:
    *tables, axis, size, scale = given
    known = dict(zip(_half_names(size, _lanes(x, axis, 0), -1), tables))

    def transform(x: Any) -> Any:
        x = _resized(x, axis, size)
        before, lanes = x.shape[:axis], elements(x.shape[axis + 1 :])
        if size % 2:
            line = x.reshape((*before, 1, size, lanes))
            nothing = x._with(constant_node(0, x.dtype, line.shape))
            whole = _transformed(_together(line, nothing), known, -1)
            found = whole._cut(axis + 1, 0, size // 2 + 1)
        else:  # neighbours are one complex number
            planes = x.reshape((*before, size // 2, 2, lanes)).transpose(axis, axis + 1)
            inner = _transformed(planes, known, -1).contiguous()
            inner = inner.cat(inner._cut(axis + 1, 0, 1), dim=-2)
            found = _mixed(inner, known["halves", size, -1], 0.5)
        return _as_pairs(_scaled(found, scale), (*x.shape, 2), axis)

    def adjoint(gradient: Any, x: Any) -> Any:
        once = _is_its_own_mirror_image(gradient, axis, size).where(gradient, gradient / 2)
        return _resized(_of_half(once, axis, size, scale), axis, x.shape[axis])

    return custom_vjp(transform, backward=adjoint)(x)


def _of_half(z: _T, axis: int, size: int, scale: float) -> _T:
    names = _half_names(size, _lanes(z, axis, 1), 1)
    found: _T = _of_half_once(z, *_tables(z, names), axis, size, scale)
    return found


@made_once
def _of_half_once(z: Any, *given: Any) -> Any:
    *tables, axis, size, scale = given
    known = dict(zip(_half_names(size, _lanes(z, axis, 1), 1), tables))
    half = size // 2

    def transform(z: Any) -> Any:
        shape = (*z.shape[:axis], size, *z.shape[axis + 1 : -1])
        z = _resized(z, axis, half + 1)
        own = _is_its_own_mirror_image(z, axis, size) & z._iota(2).eq(1)
        planes = _planes_of_pairs(own.where(0, z), axis)
        if size % 2:
            re, im = _parts(planes._cut(axis + 1, 1, half + 1).flip(-2))
            whole = planes.cat(_together(re, -im), dim=-2).contiguous()
            found, _ = _parts(_transformed(whole, known, 1))
            return _scaled(found, scale).reshape(shape)
        mixed = _mixed(planes, known["halves", size, 1], 1.0)._cut(axis + 1, 0, half)
        found = _scaled(_transformed(mixed.contiguous(), known, 1), scale)
        return found.transpose(axis, axis + 1).reshape(shape)

    def adjoint(gradient: Any, z: Any) -> Any:
        found = _half(gradient, axis, size, scale)
        twice = _is_its_own_mirror_image(found, axis, size).where(found, found * 2)
        return _resized(twice, axis, z.shape[axis])

    return custom_vjp(transform, backward=adjoint)(z)


def _is_its_own_mirror_image(z: _T, axis: int, size: int) -> _T:
    """Whether the number of a half of `size` along an axis of pairs is that of 0, or of the middle."""
    count = size // 2 + 1
    counter = z._iota(count).reshape([count if k == axis else 1 for k in range(z.ndim)])
    return counter.eq(0) | counter.eq(size - size // 2)


def _lanes(x: _T, axis: int, behind: int) -> int:
    """Transforms side by side: along the axes behind this one, but for the last `behind`."""
    sizes = x.shape[axis + 1 : x.ndim - behind]
    return math.prod(sizes) if is_plain(sizes) else 0


def _half_names(size: int, lanes: int, sign: int) -> list[_Name]:
    if size % 2:
        return _names(size, lanes, sign)
    return [("halves", size, sign), *_names(size // 2, lanes, sign)]


def _mixed(z: _T, table: _T, share: float) -> _T:
    """Of numbers and their mirror images, conjugate: share times the sum, and a table times the difference."""
    (re, im), (mirrored, across) = _parts(z), _parts(z.flip(-2))
    even, odd = (re + mirrored, im - across), (re - mirrored, im + across)
    c, s = _parts(table)
    return _together(
        even[0] * share + (odd[0] * c - odd[1] * s), even[1] * share + (odd[0] * s + odd[1] * c)
    )


def _scaled(z: _T, scale: float) -> _T:
    return (z if scale == 1 else z * scale).contiguous()


def _planes_of_pairs(z: _T, axis: int) -> _T:
    """(.., n, .., 2) as (.., 2, n, lanes)."""
    lanes = elements(z.shape[axis + 1 : -1])
    pairs = z.reshape((*z.shape[: axis + 1], lanes, 2))
    return pairs.permute((*range(axis), axis + 2, axis, axis + 1))


def _as_pairs(z: _T, shape: Shape, axis: int) -> _T:
    """Planes as pairs, of the other axes that `shape` has."""
    pairs = z.permute((*range(axis), axis + 1, axis + 2, axis))
    return pairs.reshape((*shape[:axis], z.shape[-2], *shape[axis + 1 :]))


# -- tables ----------------------------------------------------------------------------------------


def _tables(like: _T, names: Sequence[_Name]) -> list[_T]:
    return [_table(like, name) for name in names]


def _table(like: _T, name: _Name) -> _T:
    """Kept from call to call, in memory, unless this one only records or compiles."""
    key = type(like), like.device, like.dtype, *name
    found = _TABLES.get(key)
    if found is None:
        found = _made(like, name)
        if gives_values() and found.numel() <= LARGEST_KEPT:
            node = flat_buffer(found._uop, found.device)
            found = _TABLES[key] = type(like)._leaf(node, like.device, False).reshape(found.shape)
    made: _T = found
    return made


def _made(like: _T, name: _Name) -> _T:
    match name:
        case "turns", first, second, sign:
            numbers = [
                turn(sign * j * k, first * second) for k in range(first) for j in range(second)
            ]
            return _planes(like, numbers, (first, second, 1))
        case "matrix", size, sign:
            turns = [[turn(sign * j * k, size) for j in range(size)] for k in range(size)]
            real = [[*[w.real for w in row], *[-w.imag for w in row]] for row in turns]
            imaginary = [[*[w.imag for w in row], *[w.real for w in row]] for row in turns]
            return type(like)(real + imaginary, like.device, like.dtype)
        case "chirp", size, sign:
            numbers = [turn(sign * j * j, 2 * size) for j in range(size)]
            return _planes(like, numbers, (size, 1))
        case "filter", size, sign:
            long = _long(size)
            near = [min(j, long - j) for j in range(long)]
            around = [turn(-sign * j * j, 2 * size) / long if j < size else 0j for j in near]
            names = _names(long, 1, -1)
            given = dict(zip(names, _tables(like, names)))
            return _transformed(_planes(like, around, (long, 1)), given, -1).contiguous()
        case "halves", size, sign:
            share = 1j if sign == 1 else -0.5j
            numbers = [share * turn(sign * k, size) for k in range(size // 2 + 1)]
            return _planes(like, numbers, (len(numbers), 1))
    raise NotImplementedError(f"there is no table {name}")


def _planes(like: _T, numbers: Sequence[complex], shape: Shape) -> _T:
    flat = [w.real for w in numbers] + [w.imag for w in numbers]
    return type(like)(flat, like.device, like.dtype).reshape((2, *shape))
