"""Memory that was lent, to us or by us, so that others may write to it: what was computed from it once need not be what it holds now.

Equal graphs are one node, and the value of a node is kept for as long as somebody holds the node. That is right of memory of our own,
where a write makes another BUFFER. Memory of another library changes below the same BUFFER. So when a value that was read from it is kept,
all Tensors that show that memory name it anew: what is made of them from then on is another graph, which is computed from what is
there then. The former names stand for the new one, as a node does for the buffer that it was computed to.

Owns: which memory that is, its names. Does not own: who shares it (methods/interop.py), what graphs came to (canonical.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.canonical import (
    COMPUTED,
    computed,
    is_not_computed,
    note_computed,
)
from proofgrad.core.tensor.runtime.memory import buffer_below
from proofgrad.core.tensor.runtime.table import MEMORY, new_buffer

# Handles of memory of others, and of our own.
_LENT: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by the number of the object
_FORMER: WeakKeyDictionary[UOp, WeakSet[UOp]] = WeakKeyDictionary()  # names, by the one of now


@dataclass(slots=True)
class _Holders:
    """Where the Tensors that there are can be asked for."""

    all: Callable[[], list[Any]] = list


_HOLDERS = _Holders()


def use_holders(tensors: Callable[[], list[Any]]) -> None:
    """Say where all Tensors that there are can be asked for."""
    _HOLDERS.all = tensors


def note_lent(handle: Any) -> None:
    """Others may write to the memory of this handle from now on."""
    _LENT[id(handle)] = handle


def keep_value(node: UOp, value: UOp) -> None:
    """`value`, a buffer, is what `node` came to. The lent memory that was read for it is named anew."""
    read = _lent_buffers(node) if _LENT.data else ()  # type: ignore[attr-defined]
    note_computed(node, value)
    if read:
        _name_anew(read)


def reads_lent_memory(nodes: Sequence[UOp]) -> bool:
    """Whether others may write to what is read for these nodes."""
    return bool(_LENT.data) and any(map(_lent_buffers, nodes))  # type: ignore[attr-defined]


def _lent_buffers(node: UOp) -> set[UOp]:
    """The BUFFERs of lent memory below a node, by their names of now, but for what is below values that are kept."""
    found = [computed(below) for below in toposort([node], is_not_computed)]
    buffers = [buffer for one in found if (buffer := buffer_below(one)) is not None]
    return {buffer for buffer in buffers if _is_lent(MEMORY.get(buffer))}


def _is_lent(handle: Any) -> bool:
    return handle is not None and _LENT.get(id(handle)) is handle


def _name_anew(buffers: set[UOp]) -> None:
    """Each Tensor that shows one of these buffers shows another BUFFER of the same memory from now on."""
    done = {
        buffer: new_buffer(buffer.dtype, buffer.arg, buffer.src[1].arg, MEMORY[buffer])
        for buffer in buffers
    }
    for tensor in _HOLDERS.all():
        buffer = buffer_below(tensor._uop)
        if buffer in buffers:
            tensor._become(_renamed(tensor._uop, done))
    for former, name in done.items():
        _stand_for(former, name)


def _renamed(view: UOp, done: dict[UOp, UOp]) -> UOp:
    """The view over the new name. What the former view was is the new one."""
    name = done.get(view)
    if name is None:
        name = done[view] = view.with_src((_renamed(view.src[0], done), *view.src[1:]))
    return name


def _stand_for(former: UOp, name: UOp) -> None:
    """Who finds `former`, or a name before it, in a graph is to read `name`."""
    names = _FORMER.pop(former, None) or WeakSet()
    names.add(former)
    for one in names:
        COMPUTED[one] = name
    _FORMER[name] = names
