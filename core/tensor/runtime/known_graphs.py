"""Graphs that were numbered before, found by what they are made of: no node is made for a graph that is known.

Owns: the form of a graph as a key, the table. Does not own: the numbers (canonical.py).

A loop makes the same graph over other buffers in each of its steps. To number it takes a node for each of its own, to look at it a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from proofgrad.core.compile.passes.memory import changed_in_part
from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.op_names import BUFFER, CONTIGUOUS, DETACH, RESHAPE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.positions import is_of_memory

MOST_GRAPHS = 4096
MOST_NODES = 1 << 16  # of a graph that is kept here, as of a loop over a thousand steps
Form = tuple[Any, ...]
SHRINK = Ops.SHRINK

_GRAPHS: Newest[Form, UOp] = Newest(MOST_GRAPHS, lambda form, _: len(form))


def known_graph(form: Form) -> UOp | None:
    """The numbered graph of this form, if there was one before."""
    return _GRAPHS.get(form)


def keep_graph(form: Form, graph: UOp) -> None:
    """The numbered graph of all graphs of this form, none of which has variables."""
    _GRAPHS[form] = graph


def form_of(
    roots: Sequence[UOp],
    device: str,
    computed: WeakKeyDictionary[UOp, UOp],
    part_of: Callable[[UOp], UOp | None],
) -> tuple[Form, list[UOp]] | None:
    """What graphs of one form have in common, and the buffers of this one, or parts of them, in the order of their numbers.

    What was `computed` stands for its graph. `part_of` a SHRINK: the part of a buffer that it shows, wherever that begins. None for a large
    graph, and for one that cuts or writes to memory otherwise, where positions may be variables.
    """
    if any(map(_takes_part, roots)):
        return None
    known = computed if computed.data else None  # type: ignore[attr-defined]
    numbers: dict[UOp, int] = {}
    parts: dict[UOp, int] = {}
    form: list[Any] = [device]
    inputs: list[UOp] = []
    stack = [*roots]
    stack.reverse()
    while stack:
        node = stack[-1]
        if node in numbers:
            stack.pop()
            continue
        op, src = node.op, node.src
        if op is BUFFER:
            inputs.append(node)
            form.append((BUFFER, node.dtype, node.arg, src[1]))
        elif known is not None and (value := known.get(node)) is not None:
            if value not in numbers:
                stack.append(value)
                continue
            numbers[node] = numbers[value]
            stack.pop()
            continue
        elif not src:
            form.append(node)
        elif op is SHRINK and (part := part_of(node)) is not None:
            if part not in parts:
                parts[part] = len(inputs)
                inputs.append(part)
            form.append((SHRINK, node.dtype, node.shape, part.src[0].src[1], parts[part]))
        elif op is SHRINK and is_of_memory(node, computed):
            return None
        else:
            missing = [source for source in src if source not in numbers]
            if missing:
                stack += missing[::-1]
                continue
            arg = None if op is DETACH or op is CONTIGUOUS else node.arg
            form.append((op, node.dtype, arg, *[numbers[source] for source in src]))
        if len(numbers) > MOST_NODES:
            return None
        numbers[node] = len(form) - 1
        stack.pop()
    form.append(tuple([numbers[root] for root in roots]))
    return tuple(form), inputs


def _takes_part(root: UOp) -> bool:
    """Whether a value is a slice, which gets memory of its own, or changes a part of memory."""
    if changed_in_part(root) is not None:
        return True
    while root.op is RESHAPE or root.op is DETACH:
        root = root.src[0]
    return root.op is SHRINK
