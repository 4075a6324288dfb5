"""`tensor[mask]`: the elements where a bool Tensor is true, whose number is computed at once.

Owns: who looks at the mask, the host or kernels; positions of what is true. Does not own: what else an index may be (selection.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress
from math import prod
from typing import Any, TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.shapes import is_plain, row_major_strides, show
from proofgrad.core.tensor.data.arguments import Whole
from proofgrad.core.tensor.data.errors import BroadcastError
from proofgrad.core.tensor.data.storage import flatten_nested
from proofgrad.core.tensor.methods.base import TensorBase, check_same_device
from proofgrad.core.tensor.methods.indexing.take import take
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.movement.room import shrunk
from proofgrad.core.tensor.methods.reduction.reduce import Reduction
from proofgrad.core.tensor.runtime import reading
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.first_rows import room_for
from proofgrad.core.tensor.runtime.memory import host_buffer

# So many elements of a mask are read by Python in less time than kernels are launched.
MOST_SEEN_BY_HOST = 1 << 12
_S = TypeVar("_S", bound=Reduction)


def mask_index(x: _S, index: Any) -> TensorBase | None:
    """The index as a bool Tensor over the first axes; None if it is something else. Raises: as check_mask."""
    if isinstance(index, (list, tuple)) or not hasattr(index, "dtype"):
        return None
    mask = index if isinstance(index, TensorBase) else x._as_tensor(index)
    if not mask.dtype.is_bool:
        return None
    check_mask(x, mask, 0)
    return mask


def check_mask(x: _S, mask: TensorBase, axis: Whole) -> None:
    """Raises: DeviceError, BroadcastError."""
    check_same_device("[]", x, mask)
    covered = x.shape[axis : axis + mask.ndim]
    if mask.shape != covered:
        raise BroadcastError(
            f"a mask of shape {show(mask.shape)} for axes of {show(covered)} in"
            f" {show(x.shape)}; the sizes must be equal"
        )


def where_true(x: _S, mask: TensorBase, flags: bytes | None) -> _S:
    """The elements of the first axes where the mask is true, which is computed now. A single bool takes all or nothing.

    They are the first of some more, so that kernels are the same for most numbers of them.
    """
    positions, count = positions_of_true(x._with(mask._uop), flags)
    rows = x.reshape((prod(mask.shape), *x.shape[mask.ndim :]))
    return first_rows(_rows_at(rows, positions), count)


def first_rows(x: _S, count: int) -> _S:
    """So many rows, of which there are some more: all are computed where these are, and are in one memory."""
    whole = x.contiguous()
    return x._new(shrunk(whole._uop, [(0, count), *[(0, n) for n in x.shape[1:]]]), x.device)


def positions_of_true(mask: _S, flags: bytes | None = None) -> tuple[_S, int]:
    """The positions of the true elements in row-major order, and how many there are, computed now; behind them others.

    `flags`: the elements, where they are known, as those of a list are, which nothing is computed for.
    """
    if flags is not None or not _is_seen_by_kernels(mask):
        flags = bytes(reading.read(mask._uop, mask.device)) if flags is None else flags
        positions = array("i", compress(range(len(flags)), flags))
        count = len(positions)
        data = positions.tobytes() + bytes(4 * (room_for(count) - count))
        return mask._with(host_buffer(data, dtypes.int32, mask.device)), count
    front, done = _positions_in_front(mask)
    nodes = machine.realize([front._uop, done._uop], mask.device)
    size = front.shape[0]
    last = done._with(nodes[1])._cut(0, size - 1, size)
    count = int.from_bytes(reading.read(last._uop, mask.device), "little")
    room = min(room_for(count), size)
    return front._with(nodes[0])._cut(0, 0, room), count


def _is_seen_by_kernels(mask: _S) -> bool:
    """Whether there are so many elements that kernels look at them sooner than the host; items of a GPU would not (tactics/scatter.py)."""
    if not is_plain(mask.shape) or Device[mask.device].target.work_items:
        return False
    return MOST_SEEN_BY_HOST < prod(mask.shape) < 1 << 31


def position_of_each_axis(positions: _S, shape: Sequence[int]) -> list[_S]:
    """Positions in row-major order as a position of each axis."""
    steps = [max(1, step) for step in row_major_strides(shape)]
    whole = [positions if step == 1 else positions // step for step in steps]
    return whole[:1] + [part % max(1, size) for part, size in zip(whole[1:], shape[1:])]


@made_once
def _rows_at(x: _S, positions: _S) -> _S:
    """The rows at these positions."""
    return take(x, 0, positions)


@made_once
def _positions_in_front(mask: _S) -> tuple[_S, _S]:
    """The positions of the true elements in row-major order, and behind them those of others; how many there are up to each."""
    flat = mask.flatten()
    done = flat.cumsum()
    return true_positions(flat, done, flat.shape[0]).contiguous(), done


def true_positions(mask: _S, done: _S, size: Whole) -> _S:
    """The positions of the first so many true elements of a line, and behind them others; `done`: how many there are up to each.

    What is false goes to the end, in turn: so whether an element is written does not depend on the mask, and no two go to one place, where
    the second would wait for the first.
    """
    line = mask._iota(mask.shape[0])
    place = mask.where(done - 1, mask.shape[0] - 1 - (line - done))
    return mask._iota(size).unsqueeze(-1).eq(place).where(line, 0).sum(-1)


def known_flags(mask: Any) -> bytes | None:
    """The elements of a mask that is a list or an array; None: it is a Tensor, or one of another library."""
    if isinstance(mask, (list, tuple)):
        return bytes(map(bool, flatten_nested(mask)[1]))
    return bytes(mask.tobytes()) if hasattr(mask, "tobytes") else None
