"""Sums of products over counted or named axes, the language of einsum.

Owns: the one form in which the compiler sees a product of matrices or a convolution: there is no such op, the
scheduler finds the loops. Does not own: the methods (matrices.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any, TypeVar

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.shapes import ShapeError, show
from proofgrad.core.tensor.data.errors import ArgumentError
from proofgrad.core.tensor.data.nodes import broadcast_shapes
from proofgrad.core.tensor.data.promotion import accumulation_dtype, as_dtype, promote
from proofgrad.core.tensor.methods.base import check_same_device
from proofgrad.core.tensor.methods.reduction.reduce import Reduction

_T = TypeVar("_T", bound=Reduction)


def sum_of_products(x: _T, w: _T, dtype: DType, axes: tuple[int, ...]) -> _T:
    """(x * w) summed over the axes; bools are the any of ands."""
    broadcast_shapes("a product", x.shape, w.shape)
    return (x * w).any(axes) if dtype.is_bool else (x * w).sum(axes, dtype=dtype)


def sum_by_letters(formula: str, operands: Sequence[Any], dtype: DType | str | None) -> Any:
    """What `einsum` names by a formula: axes as letters, those that the right side lacks summed over."""
    names, wanted = _letters(formula, operands)
    result = operands[0].dtype
    for operand in operands:
        check_same_device("einsum", operands[0], operand)
        result = promote(result, operand.dtype)
    result = result if dtype is None else as_dtype(dtype)
    wide = accumulation_dtype(result)
    parts, letters = [], []
    for operand, named in zip(operands, names):
        part, own = _diagonals(operand.cast(wide), named)
        parts.append(part)
        letters.append(own)
    sizes = _sizes(formula, parts, letters)
    summed = [letter for letter in sizes if letter not in wanted]
    order = [*wanted, *summed]
    product = _aligned(parts[0], letters[0], order)
    axes = tuple(range(len(wanted), len(order)))
    for part, own in zip(parts[1:-1], letters[1:-1]):
        product = product * _aligned(part, own, order)
    if len(parts) == 1:
        total = product.any(axes) if wide.is_bool else product.sum(axes, dtype=wide)
    else:
        total = sum_of_products(product, _aligned(parts[-1], letters[-1], order), wide, axes)
    return total.cast(result).expand(tuple([sizes[letter] for letter in wanted]))


def _letters(formula: str, operands: Sequence[Any]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with `...` spelt out."""
    left, arrow, right = formula.replace(" ", "").partition("->")
    names = left.split(",")
    if len(names) != len(operands):
        raise ArgumentError(f"einsum {formula!r} is for {len(names)} operands, not {len(operands)}")
    free = [letter for letter in ascii_letters if letter not in formula]
    counts = [
        operand.ndim - len(named.replace("...", "")) if "..." in named else 0
        for named, operand in zip(names, operands)
    ]
    most = max(counts)
    spare = "".join(free[: max(0, most)])
    spelt = [
        named.replace("...", spare[most - count :] if count else "")
        for named, count in zip(names, counts)
    ]
    if arrow:
        wanted = right.replace("...", spare)
    else:
        whole = left.replace("...", "").replace(",", "")
        wanted = spare + "".join(sorted(c for c in set(whole) if whole.count(c) == 1))
    strange = set("".join(spelt) + wanted) - set(ascii_letters)
    if strange or not set(wanted) <= set("".join(spelt)) or len(set(wanted)) != len(wanted):
        raise ArgumentError(
            f"einsum {formula!r}: axes are letters, and each letter on the right stands there once"
            f" and on the left as well"
        )
    for named, operand in zip(spelt, operands):
        if len(named) != operand.ndim:
            raise ShapeError(
                f"einsum {formula!r} gives {len(named)} axes to an operand of {show(operand.shape)}"
            )
    return spelt, wanted


def _diagonals(operand: Any, named: str) -> tuple[Any, str]:
    """An operand in which no letter stands twice."""
    for letter in dict.fromkeys(named):
        while named.count(letter) > 1:
            first = named.index(letter)
            second = named.index(letter, first + 1)
            if operand.shape[first] != operand.shape[second]:
                raise ShapeError(f"einsum: axes {letter!r} of {show(operand.shape)} differ in size")
            operand = operand.diagonal(0, first, second)
            named = named.replace(letter, "") + letter * (named.count(letter) - 1)
    return operand, named


def _sizes(formula: str, parts: Sequence[Any], letters: Sequence[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for part, named in zip(parts, letters):
        for letter, size in zip(named, part.shape):
            known = sizes.get(letter, 1)
            if known not in (1, size) and size != 1:
                raise ShapeError(
                    f"einsum {formula!r}: axis {letter!r} has sizes {known} and {size}"
                )
            sizes[letter] = size if known == 1 else known
    return sizes


def _aligned(part: Any, named: str, order: Sequence[str]) -> Any:
    """With an axis for each letter of `order`; of size 1 where it has none."""
    present = [letter for letter in order if letter in named]
    moved = part.permute([named.index(letter) for letter in present])
    sizes = dict(zip(present, moved.shape))
    return moved.reshape(tuple([sizes.get(letter, 1) for letter in order]))
