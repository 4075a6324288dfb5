"""Products of matrices: dot, matmul, linear, einsum.

Owns: how each is made of movement, one multiplication and one sum. There is no matmul op: the
scheduler finds the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_letters
from typing import Any, Self, TypeVar

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.shapes import ShapeError, show
from proofgrad.core.tensor.data.promotion import (
    accumulation_dtype,
    as_dtype,
    computed_dtype,
    promote,
)
from proofgrad.core.tensor.methods.base import check_same_device, describe
from proofgrad.core.tensor.methods.movement import broadcast_shapes
from proofgrad.core.tensor.methods.operands import Flag, Operand
from proofgrad.core.tensor.methods.random import Random

_T = TypeVar("_T", bound="Products")


def with_bias(y: _T, bias: _T | None, result: DType) -> _T:
    """A sum that runs in a wider type, plus the bias, rounded once to `result`."""
    if bias is None:
        return y.cast(result)
    if promote(result, bias.dtype) is not result:
        return y.cast(result) + bias
    return (y + bias.cast(y.dtype)).cast(result)


class Products(Random):
    """Sums of products over named or counted axes."""

    __slots__ = ()

    def dot(self, w: Operand, dtype: DType | str | None = None) -> Self:
        """The matrix product: last axis of this Tensor with the last but one of the other."""
        if isinstance(w, (bool, int, float)):
            raise ShapeError(f"@ takes Tensors with axes, not the number {w}; use *")
        if not isinstance(w, Products):
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
        result = computed_dtype(promote(self.dtype, w.dtype)) if dtype is None else as_dtype(dtype)
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
        first = x if isinstance(x, Products) else self._with(self._as_tensor(x)._uop)
        return first.dot(self, dtype)  # type: ignore[return-value]

    def __matmul__(self, other: Operand) -> Self:
        return self.dot(other)

    def __rmatmul__(self, other: Operand) -> Self:
        return self.matmul(other, reverse=True)

    def linear(
        self, weight: Self, bias: Self | None = None, dtype: DType | str | None = None
    ) -> Self:
        """x @ weight + bias, rounded once; weight has the shape (in, out), or (in,) to scale.

        `dtype`: all three are cast to it first.
        """
        if dtype is not None:
            added = None if bias is None else bias.cast(dtype)
            return self.cast(dtype).linear(weight.cast(dtype), added)
        result = computed_dtype(promote(self.dtype, weight.dtype))
        wide = accumulation_dtype(result)
        is_scale = weight.ndim == 1
        y = self.cast(wide) * weight.cast(wide) if is_scale else self.dot(weight, wide)
        return with_bias(y, bias, result)

    def sequential(self, ll: Sequence[Callable[[Any], Any]]) -> Self:
        """The layers one after the other."""
        result = self
        for layer in ll:
            result = layer(result)
        return result

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
            if not isinstance(part, Products):
                raise TypeError(f"einsum takes Tensors, not {describe(part)}")
        result: Self = _einsum(formula, parts, dtype)
        return result


def sum_of_products(x: _T, w: _T, dtype: DType, axes: tuple[int, ...]) -> _T:
    """(x * w) summed over the axes; bools are the any of ands."""
    broadcast_shapes("a product", x.shape, w.shape)
    return (x * w).any(axes) if dtype.is_bool else (x * w).sum(axes, dtype=dtype)


def _einsum(formula: str, operands: Sequence[Any], dtype: DType | str | None) -> Any:
    names, wanted = _letters(formula, operands)
    result = operands[0].dtype
    for operand in operands:
        check_same_device("einsum", operands[0], operand)
        result = promote(result, operand.dtype)
    result = computed_dtype(result) if dtype is None else as_dtype(dtype)
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
        raise ValueError(f"einsum {formula!r} is for {len(names)} operands, not {len(operands)}")
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
        raise ValueError(
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
            sizes[letter] = max(known, size) if size and known else min(known, size)
    return sizes


def _aligned(part: Any, named: str, order: Sequence[str]) -> Any:
    """With an axis for each letter of `order`; of size 1 where it has none."""
    present = [letter for letter in order if letter in named]
    moved = part.permute([named.index(letter) for letter in present])
    sizes = dict(zip(present, moved.shape))
    return moved.reshape(tuple([sizes.get(letter, 1) for letter in order]))
