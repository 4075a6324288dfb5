"""Writing through views: what an array becomes when a view of it is written to.

Owns: the elements that the steps of a view, or cuts, show, as a mask, and values put back where a
view shows them. Does not own: which Tensors a write changes (assign.py).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import ArgumentError
from proofgrad.core.tensor.data.nodes import constant_node, reshape_node
from proofgrad.core.tensor.data.variables import has_values
from proofgrad.core.tensor.data.widths import reinterpreted_node
from proofgrad.core.tensor.methods.base import NOBODY, Link

_Step = tuple[Ops, Any, Shape]  # of a view: the fields of a Link, but for the Tensor


def written(base: UOp, links: Sequence[Link], value: UOp) -> UOp:
    """`base` with `value` in the positions that a view shows; `links` lead from `base` to the view.

    Raises: ValueError if the view repeats elements or has some that are not of `base`.
    """
    for k, link in enumerate(links):
        if link.op is Ops.BITCAST and link.arg[0].itemsize != link.arg[1].itemsize:
            below = base
            for step in links[:k]:
                below = step.of(below)
            inner = written(link.of(below), links[k + 1 :], value)
            return written(base, links[:k], reinterpreted_node(inner, link.arg[1]))
    whole = _placed(links, value)
    if not any(link.op is Ops.SHRINK for link in links):
        return whole
    return _elements_of_view(tuple([link[1:] for link in links]), value.shape).alu(
        Ops.WHERE, whole, base
    )


def written_to_cuts(base: UOp, cuts: tuple[tuple[int, int], ...], value: UOp) -> UOp:
    """`base` with `value` in the positions that these cuts show in the shape of `value`."""
    whole = _among_zeros(value, base.shape, cuts)
    return _elements_of_cuts(base.shape, cuts, value.shape).alu(Ops.WHERE, whole, base)


def _among_zeros(value: UOp, shape: Shape, cuts: tuple[tuple[int, int], ...]) -> UOp:
    """A value in the place of an array that these cuts show in another shape, zeros around."""
    part = reshape_node(value, tuple([end - begin for begin, end in cuts]))
    around = tuple([(begin, size - end) for (begin, end), size in zip(cuts, shape)])
    return UOp(Ops.PAD, value.dtype, (part,), around)


@functools.lru_cache(maxsize=1024)
def _elements_of_cuts(shape: Shape, cuts: tuple[tuple[int, int], ...], seen: Shape) -> UOp:
    """Which elements of an array are among those that these cuts show in the shape `seen`."""
    return _among_zeros(constant_node(True, dtypes.bool, seen), shape, cuts)


@functools.lru_cache(maxsize=1024)
def _elements_of_view(steps: tuple[_Step, ...], seen: Shape) -> UOp:
    """Which elements of an array are among those that these steps show in the shape `seen`."""
    links = [Link(NOBODY, *step) for step in steps]
    return _placed(links, constant_node(True, dtypes.bool, seen))


def _placed(links: Sequence[Link], value: UOp) -> UOp:
    """The elements of a view back where they came from, zeros around."""
    for k in range(len(links) - 1, -1, -1):
        _, op, arg, before = links[k]
        match op:
            case Ops.DETACH:
                continue
            case Ops.BITCAST:  # a mask of positions stays one
                value = value if value.dtype.is_bool else value.bitcast(arg[1])
            case Ops.RESHAPE:
                value = reshape_node(value, before)
            case Ops.PERMUTE:
                order = tuple([arg.index(axis) for axis in range(len(arg))])
                value = UOp(Ops.PERMUTE, value.dtype, (value,), order)
            case Ops.FLIP:
                value = UOp(Ops.FLIP, value.dtype, (value,), arg)
            case Ops.SHRINK:
                around = tuple([(b, size - e) for (b, e), size in zip(arg, before)])
                value = UOp(Ops.PAD, value.dtype, (value,), around)
            case Ops.PAD if _only_fills_a_stride(links[k : k + 3]) or _only_makes_room(links, k):
                cuts = tuple([(b, b + size) for (b, _), size in zip(arg, before)])
                value = UOp(Ops.SHRINK, value.dtype, (value,), cuts)
            case _:
                raise ArgumentError(
                    f"cannot write to this view: {_WHY_NOT.get(op, op.name)}; write to the Tensor"
                    f" that it is a view of"
                )
    return value


_WHY_NOT = {
    Ops.EXPAND: "it shows an element several times (expand)",
    Ops.SKEW: "it shows an element several times (windows)",
    Ops.PAD: "it has elements that are no memory (pad)",
}


def _only_makes_room(links: Sequence[Link], k: int) -> bool:
    """PAD k, and a cut that shows nothing of it now: for other values of variables it would (movement/room.py)."""
    if k + 1 == len(links) or links[k + 1].op is not Ops.SHRINK:
        return False
    ends = [end for cut in links[k + 1].arg for end in cut]
    if not all(map(has_values, [*ends, *links[k].shape])):
        return False
    now = sizes().value_of_shape
    return all(
        before <= begin and end <= before + size
        for (before, _), (begin, end), size in zip(
            links[k].arg, map(now, links[k + 1].arg), now(links[k].shape)
        )
    )


def _only_fills_a_stride(links: Sequence[Link]) -> bool:
    """PAD, RESHAPE, SHRINK as `x[::step]` makes them: what was added is cut off again."""
    if [link.op for link in links] != [Ops.PAD, Ops.RESHAPE, Ops.SHRINK]:
        return False
    pad, _, cut = links
    padded = [k for k, (before, after) in enumerate(pad.arg) if before or after]
    if len(padded) != 1 or pad.arg[padded[0]][0]:
        return False
    axis, added = padded[0], pad.arg[padded[0]][1]
    filled, split = links[1].shape, cut.shape
    if split[:axis] + split[axis + 2 :] != filled[:axis] + filled[axis + 1 :]:
        return False
    is_filled: bool = added < split[axis + 1] and cut.arg[axis + 1] == (0, 1)
    return is_filled
