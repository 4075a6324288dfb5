"""Values whose derivation nobody has, though they were made of Tensors that gradients are asked of: results of recorded functions, and
what was assigned.

Owns: of which Tensors each was made, the search for such values below another. Does not own: derivatives (autograd.py), what becomes of
a way that is lost (gradients.py).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, ref

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import BUFFER, DETACH
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.autograd import leads_to, passed_to
from proofgrad.core.tensor.methods.base import TensorBase, alive, is_of_parameter
from proofgrad.core.tensor.runtime.canonical import computed
from proofgrad.core.tensor.runtime.memory import buffer_below, is_view

Origins = frozenset[ref[Any]]  # Tensors to which a gradient would pass

_NONE: Origins = frozenset()
# Each realize looks for them once a function was recorded; to ask `dtypes.is_float` takes twenty times as long.
_FLOATS = frozenset([*dtypes.floats, *dtypes.fp8s])


@dataclass(slots=True, eq=False)
class MadeOf:
    """Of which Tensors a value was made: what a function reads by names of its own, and what came from the arguments of a call."""

    known: Origins
    given: Sequence[ref[Any]] = ()


LOST: WeakKeyDictionary[UOp, MadeOf] = WeakKeyDictionary()  # by BUFFER, or the end of a gradient


def note_origins(value: UOp, known: Origins, given: Sequence[ref[Any]] = ()) -> None:
    """`value`, in memory, was made of these Tensors; or of none, where its memory was that of another value before."""
    buffer = buffer_below(value)
    if buffer is not None and (known or given):
        LOST[buffer] = MadeOf(known, given)
    elif buffer is not None:
        LOST.pop(buffer, None)


def origins_below(root: UOp, leaves: Set[UOp | None] = frozenset(), ends: bool = False) -> Origins:
    """The Tensors to which the way of a gradient from `root` is lost. It ends at `leaves`; `ends`: and at what was assigned, before it is data."""
    found = _NONE
    for node in floats_reached(root) if LOST.data else ():  # type: ignore[attr-defined]
        if (node.op is BUFFER or (ends and node.op is DETACH)) and node not in leaves:
            more = LOST.get(node)
            if more is not None:
                there = [one() for one in more.given]  # held while references to them are hashed
                found = found.union(more.known, [ref(one) for one in there if one is not None])
    return found


def note_end(end: UOp, given: UOp) -> None:
    """A gradient ends at `end`, which is `given` of no derivation: of which Tensors with requires_grad=True that was made."""
    if not leads_to(given, TensorBase._named, is_of_parameter):
        return
    reached = {computed(node) for node in floats_reached(given)}
    found = [p for p in alive(TensorBase._parameters) if computed(p._uop) in reached]
    LOST[end] = MadeOf(frozenset(map(ref, found)))


def origins_of_argument(one: TensorBase, known: Origins) -> list[ref[Any]]:
    """The Tensors, other than `known` ones, to which a gradient that came to an argument of a recorded function would pass.

    Of the result of another such function, what that was made of follows if it is a leaf: loops over states would note all that were.
    """
    found: list[ref[Any]] = [ref(one)]
    if one._base is not None:
        found += [link.tensor for link in one._base]
    leaves: dict[int, Any] = TensorBase._leaves.data  # type: ignore[attr-defined]
    if id(one) in leaves:
        return found
    buffer = buffer_below(one._uop)
    if buffer is None:
        reached = set(floats_reached(one._uop))
        return found + [ref(leaf) for leaf in alive(TensorBase._leaves) if leaf._uop in reached]
    before = LOST.get(buffer)
    if before is not None:
        others = _NONE if before.known is known else before.known - known
        found += [origin for origin in (*others, *before.given) if id(origin()) in leaves]
    return found


def origins_of_result(root: UOp) -> Origins | None:
    """What is to be said of the value that `root` comes to; None: nothing, for it is one that is there."""
    return None if is_view(root) else origins_below(root)


def floats_reached(root: UOp) -> list[UOp]:
    """The nodes to which a gradient may pass from `root`, and it."""
    found, seen = [root], {root}
    for node in found:  # which become more
        if node.op is BUFFER:
            continue
        for source in passed_to(node):
            if source.dtype in _FLOATS and source not in seen:
                seen.add(source)
                found.append(source)
    return found
