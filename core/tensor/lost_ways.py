"""Values whose derivation nobody has, though they were made of Tensors that gradients are asked of: results of recorded functions.

Owns: of which Tensors each was made, the search for such values below another. Does not own: derivatives (autograd.py), what becomes of
a way that is lost (tensor.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any
from weakref import WeakKeyDictionary, ref

from proofgrad.core.ir.op_names import BUFFER
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.autograd import passed_to
from proofgrad.core.tensor.runtime.memory import buffer_below, is_view

Origins = frozenset[ref[Any]]  # Tensors to which a gradient would pass

LOST: WeakKeyDictionary[UOp, Origins] = WeakKeyDictionary()  # by BUFFER
_NONE: Origins = frozenset()


def note_origins(value: UOp, origins: Origins) -> None:
    """`value`, in memory, was made of these Tensors; or of none, where its memory was that of another value before."""
    buffer = buffer_below(value)
    if buffer is not None and origins:
        LOST[buffer] = origins
    elif buffer is not None:
        LOST.pop(buffer, None)


def origins_below(root: UOp, leaves: Set[UOp | None] = frozenset()) -> Origins:
    """The Tensors to which the way of a gradient from `root` is lost. It ends at `leaves`."""
    found = _NONE
    for node in floats_reached(root) if LOST.data else ():  # type: ignore[attr-defined]
        if node.op is BUFFER and node not in leaves:
            more = LOST.get(node, _NONE)
            found = found | more if found else more
    return found


def origins_of_result(root: UOp) -> Origins | None:
    """What is to be said of the value that `root` comes to; None: nothing, for it is one that is there."""
    return None if is_view(root) else origins_below(root)


def floats_reached(root: UOp) -> Iterator[UOp]:
    """The nodes to which a gradient may pass from `root`, and it."""
    seen, stack = {root}, [root]
    while stack:
        node = stack.pop()
        yield node
        for source in () if node.op is BUFFER else passed_to(node):
            if source.dtype.is_float and source not in seen:
                seen.add(source)
                stack.append(source)
