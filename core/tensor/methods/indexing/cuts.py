"""What an index of ints, slices, None and Ellipsis cuts out of a shape: the same each time, and so found once.

Owns: such indices as keys, what is kept of them. Does not own: what an index means (selection.py).

A loop over `x[t]` and `gates[:, :n]` asks for a few cuts thousands of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.shapes import Shape, is_plain, names_variables

MOST_CUTS = 4096


class IndexCut(NamedTuple):
    """What is cut of each axis, None for all of each; which axes are read in steps; which are kept, None for a new one."""

    cuts: tuple[Any, ...] | None
    strides: tuple[tuple[int, Any], ...]
    kept: tuple[int | None, ...]
    shape: Shape | None  # of the result, where it is known before the steps are taken

    def shape_of(self, node: Any) -> Shape:
        """The shape of the axes that are kept of `node`."""
        if self.shape is not None:
            return self.shape
        return tuple([1 if k is None else node.shape[k] for k in self.kept])


CUTS: Newest[tuple[Shape, tuple[Any, ...]], IndexCut] = Newest(MOST_CUTS)


def index_cut(
    shape: Shape,
    cuts: Sequence[Any],
    strides: Sequence[tuple[int, Any]],
    kept: Sequence[int | None],
) -> IndexCut:
    """The cut of an index of an array of this shape."""
    whole = list(cuts) == [(0, size) for size in shape]
    known = None
    if is_plain(shape) and not strides and not names_variables(cuts):
        known = tuple([1 if k is None else cuts[k][1] - cuts[k][0] for k in kept])
    return IndexCut(None if whole else tuple(cuts), tuple(strides), tuple(kept), known)


def key_of_index(index: Any) -> tuple[Any, ...] | None:
    """An index of Python's ints, slices of them, None and Ellipsis as a key; None: there is something else in it."""
    found: list[Any] = []
    for part in index if type(index) is tuple else (index,):
        kind = type(part)
        if kind is slice:
            bounds = part.start, part.stop, part.step
            for bound in bounds:
                if bound is not None and type(bound) is not int:
                    return None
            found.append(bounds)
        elif kind is int or part is None or part is Ellipsis:
            found.append(part)
        else:
            return None
    return tuple(found)
