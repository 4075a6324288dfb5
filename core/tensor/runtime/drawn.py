"""Tensors of random numbers that get memory in the first run that reads them, and the keys that are drawn by.

Owns: which Tensors those are, while they live, and whether a run draws numbers for one. Does not own: the generator
(methods/creation/random.py), what is computed (realize.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.canonical import computed

# Tensors whose values may not have been drawn yet, by the number of the object.
_DRAWN: WeakValueDictionary[int, Any] = WeakValueDictionary()
_KEYS: WeakSet[UOp] = WeakSet()  # buffers of the host


def draw_once(holder: Any) -> None:
    """The value of `holder` gets memory in the first run that reads it, while `holder` lives."""
    _DRAWN[id(holder)] = holder


def mark_key(buffer: UOp) -> None:
    """`buffer`, on the host, is a key of random numbers."""
    _KEYS.add(buffer)


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


def draws_for_others(root: UOp, inputs: Sequence[UOp], is_memory: Callable[[UOp], bool]) -> bool:
    """Whether a run of `root` reads the key of numbers that a Tensor of another value waits for."""
    keys = {buffer for buffer in inputs if buffer in _KEYS} if _DRAWN else set()
    if not keys:
        return False
    values = [value for _, value in not_drawn(is_memory) if value is not root]
    return any([not keys.isdisjoint(value.toposort()) for value in values])
