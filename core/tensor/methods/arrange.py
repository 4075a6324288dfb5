"""Views by name and by pattern: diagonals, windows, rearrange, grids. None of them computes anything.

Owns: what is built from the views of movement.py alone, and the language of `rearrange`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Self, TypeAlias

from proofgrad.core.ir.shapes import ShapeError, show
from proofgrad.core.tensor.methods.movement import (
    Movement,
    broadcast_node,
    broadcast_shapes,
    resolve_axis,
)

# One side of a `rearrange` formula: names, each alone or in a group that is one axis.
_Side: TypeAlias = list[tuple[str, ...]]
_TOKEN = re.compile(r"\s*(\(|\)|\.\.\.|…|[A-Za-z][A-Za-z0-9_]*|1)")
_ELLIPSIS, _JOINED = (
    "...",
    "(...)",
)  # any axes, each for itself; any axes in a group, which is one axis


class Arrange(Movement):
    """Views that take more than one step."""

    __slots__ = ()

    def _axis_last(self, axis: int) -> Self:
        """With axis `axis` moved behind all others."""
        if axis == self.ndim - 1:
            return self
        return self.permute([k for k in range(self.ndim) if k != axis] + [axis])

    def _axis_from_last(self, axis: int) -> Self:
        """With the last axis moved to place `axis`: undoes `_axis_last`."""
        last = self.ndim - 1
        if axis == last:
            return self
        return self.permute([*range(axis), last, *range(axis, last)])

    def diag(self) -> Self:
        """A square matrix with this line on its diagonal.

        Example:
            Tensor([1, 2]).diag()  # [[1, 0], [0, 2]]
        """
        if self.ndim != 1:
            raise ShapeError(f"diag takes one axis, not {show(self.shape)}; see diagonal")
        (size,) = self.shape
        rows = self.unsqueeze(-1)._pad_zeros([(0, 0), (0, size)]).flatten()
        return rows.shrink_to(size * size).reshape(size, size)._value()

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The elements [i, i + offset] of two axes, as a last axis."""
        first, second = resolve_axis(dim1, self.ndim), resolve_axis(dim2, self.ndim)
        if first == second:
            raise ShapeError(f"diagonal needs two axes, not {dim1} twice")
        others = [k for k in range(self.ndim) if k not in (first, second)]
        x = self.permute([*others, first, second])
        rows, columns = x.shape[-2:]
        top, left = max(0, -offset), max(0, offset)
        size = max(0, min(rows - top, columns - left))
        outer: list[tuple[int, int] | None] = [None] * len(others)
        if not size:
            return x.shrink([*outer, (0, 0), (0, 0)]).reshape((*x.shape[:-2], 0))
        square = x.shrink([*outer, (top, top + size), (left, left + size)])
        line = square.reshape((*x.shape[:-2], size * size))
        line = line._pad_zeros([(0, 0)] * len(others) + [(0, size)])
        steps = line.reshape((*x.shape[:-2], size, size + 1))
        return steps.shrink([*outer, None, (0, 1)]).reshape((*x.shape[:-2], size))

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Windows of `size` elements along `dim`, `step` apart; the place in a window is last.

        Example:
            Tensor([1, 2, 3, 4]).unfold(0, 2, 1)  # [[1, 2], [2, 3], [3, 4]]
        """
        axis = resolve_axis(dim, self.ndim)
        x = self._windows(axis, size, step, 1)
        return x._axis_last(axis + 1)

    def meshgrid(self, *args: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """Lines as grids: grid k varies along axis k (with "xy" the first two axes change places).

        Example:
            rows, columns = Tensor([0, 1]).meshgrid(Tensor([0, 1, 2]))  # both of shape (2, 3)
        """
        if indexing not in ("ij", "xy"):
            raise ValueError(f"indexing is 'ij' or 'xy', not {indexing!r}")
        lines: tuple[Self, ...] = (self, *args)
        if any(line.ndim > 1 for line in lines):
            raise ShapeError(f"meshgrid takes lines, not {[line.shape for line in lines]}")
        axes = list(range(len(lines)))
        if indexing == "xy":
            axes[:2] = [1, 0]
        placed = [
            line.reshape((-1,) + (1,) * (len(lines) - 1 - axis)) for line, axis in zip(lines, axes)
        ]
        shape = broadcast_shapes("meshgrid", *[line.shape for line in placed])
        return tuple([line._with(broadcast_node(line._uop, shape)) for line in placed])

    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Axes by name: "b c (h p) -> b (c p) h" splits, moves and joins them (as einops).

        A group in parentheses is one axis; all sizes of a group but one must be given. "..." stands
        for any axes, 1 for an axis of one element.

        Example:
            Tensor.ones(2, 12).rearrange("a (b c) -> c a b", c=3)  # shape (3, 2, 4)
        """
        left, right = _sides(formula)
        left, right = _without_ellipsis(left, right, self.ndim, formula)
        names = [name for group in left for name in group]
        wanted = [name for group in right for name in group]
        if len(set(names)) != len(names) or sorted(names) != sorted(wanted):
            raise ShapeError(
                f"rearrange {formula!r}: both sides must have the same names, each once"
            )
        unknown = set(sizes) - set(names)
        if unknown:
            raise ValueError(f"rearrange {formula!r} has no axis {', '.join(sorted(unknown))}")
        if len(left) != self.ndim:
            raise ShapeError(
                f"rearrange {formula!r} describes {len(left)} axes, and there are {self.ndim}:"
                f" {show(self.shape)}"
            )
        size_of: dict[str, int] = {}
        for group, total in zip(left, self.shape):
            size_of |= _group_sizes(group, total, sizes, formula)
        split = self.reshape(tuple([size_of[name] for name in names]))
        moved = split.permute([names.index(name) for name in wanted])
        return moved.reshape(tuple([prod(size_of[name] for name in group) for group in right]))


def _sides(formula: str) -> tuple[_Side, _Side]:
    parts = formula.split("->")
    if len(parts) != 2:
        raise ValueError(f"rearrange needs one '->', as in 'a b -> b a': {formula!r}")
    return _parse(parts[0], formula), _parse(parts[1], formula)


def _parse(text: str, formula: str) -> _Side:
    groups: _Side = []
    inner: list[str] | None = None
    position, text = 0, text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"rearrange {formula!r}: cannot read {text[position:].strip()!r}")
        position = found.end()
        token = found[1].replace("…", _ELLIPSIS)
        if token in "()":
            if (token == "(") is not (inner is None):
                raise ValueError(f"rearrange {formula!r}: parentheses do not match")
            if inner is not None:
                groups.append(tuple(inner))
            inner = [] if token == "(" else None
        elif inner is not None:
            inner += [] if token == "1" else [_JOINED if token == _ELLIPSIS else token]
        else:
            groups.append(() if token == "1" else (token,))
    if inner is not None:
        raise ValueError(f"rearrange {formula!r}: parentheses do not match")
    return groups


def _without_ellipsis(left: _Side, right: _Side, rank: int, formula: str) -> tuple[_Side, _Side]:
    """Both sides with "..." spelt out as names that no user can write."""
    if any(_JOINED in group for group in left):
        raise ValueError(f"rearrange {formula!r}: '...' on the left cannot be part of a group")
    if left.count((_ELLIPSIS,)) > 1:
        raise ValueError(f"rearrange {formula!r}: only one '...' a side")
    count = rank - len(left) + 1 if (_ELLIPSIS,) in left else 0
    names = [f"{_ELLIPSIS}{k}" for k in range(max(0, count))]

    def spelt(side: _Side) -> _Side:
        result: _Side = []
        for group in side:
            if group == (_ELLIPSIS,):
                result += [(name,) for name in names]
            else:
                place = [names if name == _JOINED else [name] for name in group]
                result.append(tuple([name for part in place for name in part]))
        return result

    stands = [name for group in right for name in group if name in (_ELLIPSIS, _JOINED)]
    if len(stands) != left.count((_ELLIPSIS,)):
        raise ShapeError(f"rearrange {formula!r}: both sides must have '...' once, or none")
    return spelt(left), spelt(right)


def _group_sizes(
    group: Sequence[str], total: int, given: dict[str, int], formula: str
) -> dict[str, int]:
    """The size of each name of one axis; at most one is not given."""
    known = {name: given[name] for name in group if name in given}
    missing = [name for name in group if name not in given]
    if len(missing) > 1:
        raise ValueError(
            f"rearrange {formula!r}: give the sizes of all but one of {', '.join(missing)}"
        )
    rest = prod(known.values())
    if missing and rest and total % rest == 0:
        known[missing[0]] = total // rest
    if len(known) != len(group) or prod(known.values()) != total:
        raise ShapeError(
            f"rearrange {formula!r}: an axis of {total} elements is no product of {known}"
        )
    return known
