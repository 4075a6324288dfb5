"""Convolutions with windows of 3x3 by Winograd's law: fewer products, and more rounding.

Owns: when the law is used, and the program that its matrices make. Does not own: the law and its
proof (rules/fastmath_winograd.rules), reading it (core/rewrite/bilinear.py), WINO, which asks for
it (core/settings.py).

The law is one of real numbers, so this is never done unasked: see docs/numerics.md for its error.

Channels are the last axis on the way: then every transform is a product of a small matrix and rows
that lie together in memory, and the products over channels are one batched product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import TypeAlias, TypeVar

from proofgrad.core.ir.origin import note_law
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.rewrite.bilinear import Correlation, correlation_of
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.tensor.methods.linalg.matrices import LinearAlgebra
from proofgrad.core.tensor.runtime.realize import compiler

_LEAST_SAVED = 2  # measured: with 1.8 times fewer multiplications it is as fast as without the law
_Table: TypeAlias = tuple[tuple[float, ...], ...]
_T = TypeVar("_T", bound=LinearAlgebra)


def takes_winograd(x: _T, w: _T) -> bool:
    """Does the law correlate a padded image with w by less than half the multiplications?

    Transforms count too; for they wait for memory, fewer saved would not pay. Integers are left out, for the law has fractions, and so are sizes that are variables.
    """
    if x.ndim != 4 or not x.dtype.is_float or not is_plain(x.shape + w.shape):
        return False
    law = _law(_rules())
    sizes = [size - law.taps + 1 for size in x.shape[2:]]
    if w.shape[2:] != (law.taps, law.taps) or min(sizes) < 1:
        return False
    n, filters, channels = x.shape[0], *w.shape[:2]
    tiles = n * prod([-(-size // law.results) for size in sizes])
    of_weights = law.taps**2 * filters * channels
    of_a_tile = law.inputs**2 * x.shape[1] + (channels + law.results**2) * filters
    by_law = law.products**2 * (of_weights + tiles * of_a_tile)
    return _LEAST_SAVED * by_law < of_weights * n * prod(sizes)


def correlated_by_law(image: _T, w: _T, groups: int) -> _T:
    """The sum over each window of a padded image times w, which is of the same type.

    Shapes: image (n, in, height, width), w (out, in / groups, taps, taps).
    """
    rules = _rules()
    law = _law(rules)
    sizes = [size - law.taps + 1 for size in image.shape[2:]]
    (rule,) = rules.rules
    of_results, of_weights, of_inputs = _tables(rules)
    x = _in_tiles(image, law, sizes)
    tiles = x.shape[1:4]
    x = _transformed(x, of_inputs).contiguous()
    x = x.reshape((x.shape[0], prod(tiles), groups, w.shape[1])).transpose(1, 2)
    w = w.permute((2, 3, 1, 0)).flatten(0, 1).contiguous()
    w = _transformed(w, of_weights).contiguous()
    w = w.reshape((*w.shape[:2], groups, -1)).transpose(1, 2)
    y = x.dot(w).contiguous().transpose(1, 2)
    y = _transformed(y.reshape((y.shape[0], *tiles, -1)), of_results)
    y = _out_of_tiles(y, law, sizes)
    compiler().library.journal.record(rule.full_name, rules.proven)
    note_law(y._uop, rule.full_name)
    return y


def _in_tiles(x: _T, law: Correlation, sizes: list[int]) -> _T:
    """Shape (positions of a tile, n, tiles down, tiles across, channels): overlapping tiles."""
    rest = [(0, -size % law.results) for size in sizes]
    x = x._pad_zeros([(0, 0), (0, 0), *rest]).permute((0, 2, 3, 1)).contiguous()
    for axis in (1, 3):
        x = x._windows(axis, law.inputs, law.results, 1)
    return x.permute((2, 4, 0, 1, 3, 5)).flatten(0, 1)


def _out_of_tiles(tiles: _T, law: Correlation, sizes: list[int]) -> _T:
    """Shape (n, channels, *sizes), of (positions of a tile, n, tiles down, across, channels)."""
    x = tiles.unflatten(0, (law.results, law.results)).permute((2, 3, 0, 4, 1, 5)).contiguous()
    x = x.flatten(3, 4).flatten(1, 2)
    for axis, size in enumerate(sizes, 1):
        x = x._cut(axis, 0, size)
    return x.permute((0, 3, 1, 2))


def _transformed(x: _T, table: _Table) -> _T:
    """The matrix times the first axis."""
    matrix = type(x)(table, device=x.device, dtype=x.dtype)
    matrix = matrix.reshape(matrix.shape + (1,) * (x.ndim - 1))
    return (matrix * x.unsqueeze(0)).sum(1, dtype=x.dtype)


def _rules() -> RuleSet:
    """The law with its evidence. Raises: EvidenceError."""
    return compiler().library.loose("winograd")


@lru_cache(maxsize=4)
def _law(rules: RuleSet) -> Correlation:
    (rule,) = rules.rules
    return correlation_of(rule)


@lru_cache(maxsize=4)
def _tables(rules: RuleSet) -> tuple[_Table, _Table, _Table]:
    """The matrices of the law over two axes: of results, of weights, of inputs."""
    law = _law(rules).over_two_axes()
    return _floats(zip(*law.of_results)), _floats(law.of_weights), _floats(law.of_inputs)


def _floats(matrix: Iterable[Iterable[Fraction]]) -> _Table:
    return tuple([tuple([float(entry) for entry in row]) for row in matrix])
