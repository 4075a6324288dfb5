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
from proofgrad.core.tensor.methods.linalg.contraction_order import contraction_order, letters_left
from proofgrad.core.tensor.methods.linalg.rounding import (
    are_rounded,
    rounded,
    with_rounded_gradient,
)
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.reduction.reduce import Reduction

_T = TypeVar("_T", bound=Reduction)


def sum_of_products(x: _T, w: _T, dtype: DType, axes: tuple[int, ...]) -> _T:
    """(x * w) summed over the axes; bools are the any of ands."""
    broadcast_shapes("a product", x.shape, w.shape)
    return (x * w).any(axes) if dtype.is_bool else (x * w).sum(axes, dtype=dtype)


@made_once
def product_of_matrices(x: Any, w: Any, dtype: DType) -> Any:
    """The last axis of x with the last but one of w, in this type; factors and gradient rounded where that is asked for."""
    wide = accumulation_dtype(dtype)
    is_rounded = min(x.ndim, w.ndim) > 1 and are_rounded(wide, x.dtype, w.dtype)
    x, w = x._in_type(wide), w._in_type(wide)
    if is_rounded:
        x, w = rounded(x), rounded(w)
    if x.ndim > 1 and w.ndim > 1:
        x = x.unsqueeze(-2)
        w = w.transpose(-1, -2).unsqueeze(-3)
    elif w.ndim > 1:
        w = w.transpose(-1, -2)
    total = sum_of_products(x, w, wide, (-1,))
    return (with_rounded_gradient(total) if is_rounded else total)._in_type(dtype)


def sum_by_letters(formula: str, operands: Sequence[Any], dtype: DType | str | None) -> Any:
    """What `einsum` names by a formula: axes as letters, those that the right side lacks summed over."""
    names, wanted = _letters(formula, operands)
    result = operands[0].dtype
    for operand in operands:
        check_same_device("einsum", operands[0], operand)
        result = promote(result, operand.dtype)
    result = result if dtype is None else as_dtype(dtype)
    wide = accumulation_dtype(result)
    is_rounded = are_rounded(wide, *[operand.dtype for operand in operands])
    given = [operand._in_type(wide) for operand in operands]
    options = (formula, tuple(names), wanted, result, is_rounded)
    # Of one operand it may be a view.
    return (_combined_once if len(given) > 1 else _combined)(*given, options)


def _combined(*given: Any) -> Any:
    """The sum of products of operands of one type; the last argument says of which axes."""
    *operands, (formula, names, wanted, result, is_rounded) = given
    parts, letters = [], []
    for operand, named in zip(operands, names):
        part, own = _diagonals(operand, named)
        parts.append(part)
        letters.append(own)
    sizes = _sizes(formula, parts, letters)
    total = _contracted(parts, letters, wanted, sizes, operands[0].dtype, is_rounded)
    return total.cast(result).expand(tuple([sizes[letter] for letter in wanted]))


_combined_once = made_once(_combined)


def _contracted(
    parts: list[Any],
    letters: list[str],
    wanted: str,
    sizes: dict[str, Any],
    dtype: DType,
    is_rounded: bool,
) -> Any:
    """The product of all operands with the axes `wanted`, the others summed over, in the cheapest order."""
    for k, (part, own) in enumerate(zip(parts, letters)):
        left = letters_left([own], letters[:k] + letters[k + 1 :], wanted)
        parts[k], letters[k] = _summed(part, own, left, dtype), left
    longest = {x: size if isinstance(size, int) else size.vmax for x, size in sizes.items()}
    for pair in contraction_order(letters, wanted, longest):
        (one, own), (other, others) = [(parts[k], letters[k]) for k in pair]
        parts = [part for k, part in enumerate(parts) if k not in pair]
        letters = [named for k, named in enumerate(letters) if k not in pair]
        left = letters_left([own, others], letters, wanted)
        parts.append(_product(one, own, other, others, left, dtype, is_rounded))
        letters.append(left)
    return _aligned(parts[0], letters[0], wanted)


def _summed(part: Any, own: str, left: str, dtype: DType) -> Any:
    """With the axes that are not `left` summed over; of bools, whether any is true."""
    axes = tuple([k for k, letter in enumerate(own) if letter not in left])
    if not axes:
        return part
    return part.any(axes) if dtype.is_bool else part.sum(axes, dtype=dtype)


def _product(
    one: Any, own: str, other: Any, others: str, left: str, dtype: DType, is_rounded: bool
) -> Any:
    """The product of two operands, summed over the axes that are not `left`, whose order the result has.

    `is_rounded`: of matrices, whose rows and columns it has, the factors are rounded.
    """
    order = left + "".join([x for x in dict.fromkeys(own + others) if x not in left])
    is_rounded &= not set(left) <= set(own) and not set(left) <= set(others) and order != left
    if is_rounded:
        one, other = rounded(one), rounded(other)
    x, y = _aligned(one, own, order), _aligned(other, others, order)
    axes = tuple(range(len(left), len(order)))
    if not axes:
        return x * y
    total = sum_of_products(x, y, dtype, axes)
    return with_rounded_gradient(total) if is_rounded else total


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
