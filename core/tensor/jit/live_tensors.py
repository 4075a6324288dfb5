"""Which Tensors there are while a function is recorded, and which of them it reads and writes.

Owns: a picture of all live Tensors at the beginning of a recording, the changes until its end. It
holds no Tensor and no node, so that it keeps no memory alive. Does not own: what is made of it
(jit.py, replay.py).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import ref

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.methods.live import live_tensors
from proofgrad.core.tensor.runtime.canonical import computed
from proofgrad.core.tensor.runtime.device import HOST
from proofgrad.core.tensor.runtime.memory import is_view
from proofgrad.core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Source:
    """Where a replay finds a Tensor: an argument, a Tensor that is there, or the gradient of one."""

    argument: int | None = None
    tensor: ref[Tensor] | None = None
    gradient: bool = False

    def get(self, arguments: Sequence[Tensor]) -> Tensor | None:
        """The Tensor now; None if it is gone."""
        if self.argument is not None:
            found: Tensor | None = arguments[self.argument]
        else:
            found = None if self.tensor is None else self.tensor()
        return found._grad if self.gradient and found is not None else found


@dataclass(frozen=True, slots=True)
class Entry:
    """A Tensor at the beginning, its node then, and of a gradient whose it is."""

    tensor: ref[Tensor]
    node: ref[UOp]
    owner: ref[Tensor] | None


class Holders:
    """All live Tensors, as they are when this is made."""

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        numbered = reversed([*enumerate(arguments)])
        self._arguments = {id(tensor): k for k, tensor in numbered}  # the first of the same ones
        found = live_tensors()
        owners = {id(t._grad): ref(t) for t in found if t._grad is not None}
        self.entries = {id(t): Entry(ref(t), ref(t._uop), owners.get(id(t))) for t in found}
        self._written: dict[int, Entry] = {}
        self._grad_of = {id(t): id(t._grad) for t in found if t._grad is not None}
        self._accumulated: dict[int, tuple[Source, bool]] = {}

    def knows(self, tensor: Tensor) -> bool:
        """Was it there at the beginning?"""
        entry = self.entries.get(id(tensor))
        return entry is not None and entry.tensor() is tensor

    def note_write(self, tensor: Tensor) -> None:
        """Record that `tensor` is written to; a Tensor made during the recording is ignored."""
        if self.knows(tensor):
            self._written.setdefault(id(tensor), self.entries[id(tensor)])

    def note_accumulate(self, leaf: Tensor) -> None:
        """A gradient is about to be added to what `leaf` has, or to none."""
        at_first = self._grad_of.get(id(leaf))
        now = None if leaf._grad is None else id(leaf._grad)
        if self.knows(leaf) and at_first == now:
            self._accumulated.setdefault(id(leaf), (self.source_of(leaf), now is not None))

    def accumulated(self) -> list[tuple[Source, bool]]:
        """Tensors whose gradient at the beginning was added to, and whether there was one."""
        return list(self._accumulated.values())

    def source_of(self, tensor: Tensor) -> Source:
        """How to find it again. A gradient is found by its owner: each call may make a new one."""
        if id(tensor) in self._arguments:
            return Source(argument=self._arguments[id(tensor)])
        entry = self.entries.get(id(tensor))
        owner = None if entry is None or entry.owner is None else entry.owner()
        if owner is not None:
            return replace(self.source_of(owner), gradient=True)
        return Source(tensor=ref(tensor))

    def noted(self) -> Iterator[tuple[Tensor, Source]]:
        """The Tensors that were written to, if only with what they were: another call may write something else."""
        for entry in self._written.values():
            tensor = entry.tensor()
            if tensor is not None:
                yield tensor, self.source_of(tensor)

    def new_gradients(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Tensors with a `.grad` that was not there before, and that gradient."""
        for entry in self.entries.values():
            tensor = entry.tensor()
            if tensor is not None and tensor._grad is not None and not self.knows(tensor._grad):
                yield tensor, tensor._grad

    def kept(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """Tensors made since the beginning that somebody holds, other than `targets`."""
        wanted = {id(target) for target in targets}
        for attempt in range(2):
            found = [
                t for t in live_tensors()
                if id(t) not in wanted and not self.knows(t) and _reads_memory(t._uop)
            ]  # fmt: skip
            if not found:
                return []
            if attempt == 0:
                del found
                gc.collect()
        return found

    def readers(self, nodes: set[UOp]) -> Iterator[tuple[Source, UOp]]:
        """Where to find the Tensors whose node at the beginning is one of `nodes`, or came to one, and that node.

        A gradient may be gone by now: it was added to.
        """
        for entry in self.entries.values():
            node, tensor = entry.node(), entry.tensor()
            if node is None or (node not in nodes and computed(node) not in nodes):
                continue
            owner = None if entry.owner is None else entry.owner()
            if owner is not None:
                yield replace(self.source_of(owner), gradient=True), node
            elif tensor is not None:
                yield self.source_of(tensor), node


def _reads_memory(node: UOp) -> bool:
    """Does the value depend on memory of a device, and is it more than a view of some?"""
    if is_view(computed(node)):
        return False
    return any(part.op is Ops.BUFFER and part.src[1].arg != HOST for part in node.toposort())
