"""Values that get memory in the first run that reads them, and keep it: numbers that are drawn, and data that the host gave.

Owns: which values those are, and whether a run computes one that others read. Does not own: the generator
(methods/creation/random.py), the data, what is computed (realize.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from proofgrad.core.ir.op_names import BUFFER, RESHAPE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.canonical import computed

COPY = Ops.COPY
# Tensors whose values may not have been drawn yet, by the number of the object.
_DRAWN: WeakValueDictionary[int, Any] = WeakValueDictionary()
_KEYS: WeakSet[UOp] = WeakSet()  # buffers of the host
# COPYs of buffers of the host that may not have been made yet.
_COPIED: WeakSet[UOp] = WeakSet()


def draw_once(holder: Any) -> None:
    """The value of `holder` gets memory in the first run that reads it, while `holder` lives."""
    _DRAWN[id(holder)] = holder


def mark_key(buffer: UOp) -> None:
    """`buffer`, on the host, is a key of random numbers."""
    _KEYS.add(buffer)


def copy_once(copied: UOp) -> None:
    """A COPY of a buffer of the host gets memory in the first run that reads it, for as long as some graph names it."""
    _COPIED.add(copied)


def copy_data_once(node: UOp) -> None:
    """Data of the host of which a part is taken is copied once: others will be taken, and where in memory a part begins is no other kernel."""
    while node.op is RESHAPE:
        node = node.src[0]
    if node.op is COPY and node.src[0].op is BUFFER and computed(node) is node:
        copy_once(node)


def not_drawn(is_memory: Callable[[UOp], bool]) -> list[tuple[Any, UOp]]:
    """The Tensors that wait, and the values that are to be drawn; `is_memory`: whether a value has been. Those that have are forgotten."""
    found: list[tuple[Any, UOp]] = []
    for reference in _DRAWN.valuerefs() if _DRAWN else ():
        holder = reference()
        if holder is None:
            continue
        value = computed(holder._uop)
        if is_memory(value):
            _DRAWN.pop(id(holder), None)
        else:
            found.append((holder, value))
    return found


def not_copied() -> set[UOp]:
    """The COPYs that wait. Those that were made are forgotten."""
    waiting = set(_COPIED.copy()) if _COPIED else set()
    made = {copied for copied in waiting if computed(copied) is not copied}
    for copied in made:
        _COPIED.discard(copied)
    return waiting - made


def computes_for_others(
    roots: Sequence[UOp], inputs: Sequence[UOp], is_memory: Callable[[UOp], bool]
) -> bool:
    """Whether a run of `roots` reads what a COPY waits for, or the key of numbers that a Tensor of another value waits for."""
    if any([copied.src[0] in inputs for copied in not_copied() if copied not in roots]):
        return True
    keys = {buffer for buffer in inputs if buffer in _KEYS} if _DRAWN else set()
    if not keys:
        return False
    values = [value for _, value in not_drawn(is_memory) if value not in roots]
    return any([not keys.isdisjoint(value.toposort()) for value in values])
