"""What a run computes that another one before it has computed: from then on it is kept; where it is large, who wrote the loop is told.

    for k in range(1000): x = x * 0.99 + 0.1; print(x.sum().item())

asks in each step for what is made of `x`, and never for `x`: each run would be that of all steps so far, a kernel of its own. So of the values
that are computed a second time those of which others are made get memory. Then each is computed twice at most, and the runs of a loop are
alike. A value that is computed once gets none: most often nobody needs it any more.

Owns: which values those are, and when a loop is named. Does not own: the runs (realize.py).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakSet

from proofgrad.core.compile.passes.memory import changed_in_part
from proofgrad.core.ir.op_names import BUFFER, CONTIGUOUS, COPY, DETACH
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements, is_plain
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.messages import warn
from proofgrad.core.tensor.runtime.canonical import SHOWN, is_not_computed
from proofgrad.core.tensor.runtime.lent_memory import keep_value, reads_lent_memory

# A run of fewer nodes is over soon. So many runs after each other, each of which computes nearly all of the one before, are a loop.
LEAST_NODES, MOST_RUNS = 64, 16
# Of a value that is kept, and of all of them: they are there for as long as what was made of them, which may be a whole loop.
VALUE_BYTES, ALL_BYTES = 1 << 20, 1 << 25
MOST_VALUES = 8  # of a run: a gradient reads many that are computed faster than they are kept
_MARKS = frozenset({CONTIGUOUS, DETACH, Ops.COPY})


@dataclass(slots=True)
class _Runs:
    """The nodes of the last large run, and how many such runs before it each were part of the next."""

    nodes: WeakSet[UOp] = field(default_factory=WeakSet)
    count: int = 0


@dataclass(slots=True)
class _Kept:
    """The nodes that were computed, those whose values were kept, and the bytes of these: of all when they were looked at last, and those since."""

    seen: WeakSet[UOp] = field(default_factory=WeakSet)
    nodes: WeakSet[UOp] = field(default_factory=WeakSet)
    nbytes: int = 0


class _Program(threading.local):
    """Of each thread: whether what it runs now is no part of the program."""

    is_off = False


_LAST = _Runs()
_KEPT = _Kept()
_PROGRAM = _Program()


@contextmanager
def unnoted() -> Iterator[None]:
    """What is computed inside only checks the program, which is to have the runs and kernels that it has without."""
    before, _PROGRAM.is_off = _PROGRAM.is_off, True
    try:
        yield
    finally:
        _PROGRAM.is_off = before


def note_run(nodes: Collection[UOp]) -> None:
    """A run will compute these nodes. Warns, at the line that asked for it, when it is one of many that compute the same again."""
    if _PROGRAM.is_off:
        return
    _KEPT.seen.update(nodes)
    if len(nodes) < LEAST_NODES:
        return
    again = sum([node in _LAST.nodes for node in nodes])
    _LAST.count = _LAST.count + 1 if 10 * again >= 9 * len(nodes) else 0
    _LAST.nodes = WeakSet(nodes)
    if _LAST.count == MOST_RUNS:
        warn(
            f"{MOST_RUNS} runs, one after the other, each computed again what the one before had computed, here {again} operations:"
            " call .realize() on what the loop goes on with, so that it is kept; Tensor.realize(a, b) computes"
            " what shares work, as gradients do, in one run"
        )


def values_to_keep(roots: Sequence[UOp]) -> list[UOp]:
    """Of the nodes that a run of `roots` computes, those that were computed before and of which it makes others, in the order of the graph.

    No truths, which cost nothing and tell a kernel which elements it reads. None where the run writes to memory, or reads some that others may write to, where they would be many, and where all are too large.
    """
    if _PROGRAM.is_off or SHOWN.data or any([changed_in_part(root) is not None for root in roots]):  # type: ignore[attr-defined]
        return []
    seen, asked = _KEPT.seen, set(roots)
    found: dict[UOp, None] = {}
    reads = _reading(roots)
    for node in reads:
        for source in () if node in seen else _values_read(node):
            below = _below_movement(source)
            is_again = below in seen and below not in asked and below in reads
            if is_again and not below.dtype.is_bool and not _is_data(below):
                found[below] = None
    if not found or len(found) > MOST_VALUES or reads_lent_memory(roots):
        return []
    return [node for node in found if _is_to_be_kept(node)]


def keep_again(nodes: Sequence[UOp], values: Sequence[UOp]) -> None:
    """A run that was done before gave values to these nodes, which were to be kept then."""
    if not reads_lent_memory(nodes):
        for node, value in zip(nodes, values):
            if _is_to_be_kept(node):
                keep_value(node, value)


def _reading(roots: Sequence[UOp]) -> dict[UOp, None]:
    """The nodes that a run of `roots` computes of memory on its device, sources first; none where it computes what it copies from another."""
    reading: dict[UOp, None] = {}
    for node in toposort(roots, is_not_computed):
        if node.op is COPY and node.src[0].op is not BUFFER:
            return {}
        if (
            node.op is BUFFER
            or not is_not_computed(node)
            or any([source in reading for source in _values_read(node)])
        ):
            reading[node] = None
    return {node: None for node in reading if node.op is not BUFFER and is_not_computed(node)}


def _values_read(node: UOp) -> tuple[UOp, ...]:
    """The sources whose values an operation takes: others of a mark are for gradients."""
    return node.src[:1] if node.op is DETACH or node.op is CONTIGUOUS else node.src


def _below_movement(node: UOp) -> UOp:
    """What has the elements of `node`, before they are moved."""
    while node.op in MOVEMENT or node.op is DETACH:
        node = node.src[0]
    return node


def _is_data(node: UOp) -> bool:
    """Whether it is only what the host gave, or memory: to take that is no work, nor is it to subtract it.

    A loss has what is wanted subtracted in each step: kept by the first, it would have the second one planned anew.
    """
    node = _below_marks(node)
    return (_below_marks(node.src[0]) if node.op is Ops.NEG else node).op is BUFFER


def _below_marks(node: UOp) -> UOp:
    while node.op in MOVEMENT or node.op in _MARKS:
        node = node.src[0]
    return node


def _is_to_be_kept(node: UOp) -> bool:
    """Whether a value is small, and all that are kept are so, too. It is one of them then."""
    size = _bytes_of(node)
    if not 0 < size <= VALUE_BYTES:
        return False
    if _KEPT.nbytes + size > ALL_BYTES:
        _KEPT.nbytes = sum(map(_bytes_of, _KEPT.nodes.copy()))
    if _KEPT.nbytes + size > ALL_BYTES:
        return False
    _KEPT.nbytes += size
    _KEPT.nodes.add(node)
    return True


def _bytes_of(node: UOp) -> int:
    """Of its value; 0 of a size that varies."""
    return elements(node.shape) * node.dtype.itemsize if is_plain(node.shape) else 0
