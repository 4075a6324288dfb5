"""How many hold an object, as the interpreter counts them.

Owns: the count. Does not own: who may hold what (memory.py, result_pool.py), which each say what they expect.

Memory may be written over, or given out again, only where nobody can read it any more. Nodes hold nodes, and any script may
hold a node, an array or a Tensor, so the owners of memory are the interpreter's own references. A weak reference tells only whether
there are any. To let go of all, look, and make the nodes anew costs more than a small kernel: a replay of one took 27
instead of 12 us (Python 3.11).
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any


def owners_of_attribute(holder: object, name: str) -> int:
    """The references to `holder.name`, that one included."""
    return getrefcount(getattr(holder, name)) - _OF_THE_CALL


def owners_of_item(items: Any, key: Any) -> int:
    """The references to `items[key]`, that one included."""
    return getrefcount(items[key]) - _OF_THE_CALL


def is_result_free(result: Any) -> bool:
    """Whether nobody but `result`, and the table of all memory, holds its node, its buffer and its memory: no Tensor, graph, array or replay."""
    # The buffer is held by the node, too, unless it is the node, and the memory by the table of all memory.
    of_node = _TWO if result.node is result.buffer else _ONE
    return (
        getrefcount(result.node) == of_node
        and getrefcount(result.buffer) == _TWO
        and getrefcount(result.handle) == _TWO
    )


# Only a value on its way to the call is an argument here: whether a local variable adds one, versions of Python differ.
_OF_THE_CALL = getrefcount(object())
_ONE, _TWO = _OF_THE_CALL + 1, _OF_THE_CALL + 2
