"""Memory for what lies between the inputs and the results of a recorded plan, laid out once.

Owns: which of these buffers share memory, and how many bytes that is. Does not own: inputs and
results (replay.py), memory itself (backends).

Large buffers choose first, each the first block that is free while it lives. So a block is as large
as its first buffer, and the blocks together are seldom much more than what lives at one time.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proofgrad.core.tensor.runtime.execute import claim

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import BufferInfo, Step


@dataclass(slots=True)
class Block:
    """Memory that buffers use one after the other."""

    device: str
    nbytes: int
    lives: list[tuple[int, int]] = field(default_factory=list)  # first and last step, in order
    slots: list[int] = field(default_factory=list)

    def takes(self, life: tuple[int, int]) -> bool:
        """Whether nobody uses it from the first to the last step of `life`."""
        position = bisect(self.lives, life)
        before = position == 0 or self.lives[position - 1][1] < life[0]
        return before and (position == len(self.lives) or life[1] < self.lives[position][0])

    def add(self, slot: int, life: tuple[int, int]) -> None:
        """Give this memory to the buffer `slot` from its first to its last step, both in `life`."""
        self.lives.insert(bisect(self.lives, life), life)
        self.slots.append(slot)


@dataclass(frozen=True, slots=True)
class Arena:
    """The memory of each slot, the bytes of all of it, and what they would be without sharing."""

    memory: dict[int, Any]
    nbytes: int
    unshared_nbytes: int
    room: dict[int, tuple[int, str]] = field(default_factory=dict)  # of each slot: bytes, device


def make_arena(
    steps: Sequence[Step], made: Sequence[BufferInfo], inputs: int, left_out: Collection[int]
) -> Arena:
    """Memory for all slots of `made`, which follow the inputs, that are not `left_out`.

    A buffer that no step writes has no elements, but may be read: it gets memory of its own.
    """
    lives: dict[int, tuple[int, int]] = {}
    for k, step in enumerate(steps):
        for slot in step.slots:
            lives[slot] = (lives.get(slot, (k, k))[0], k)
    slots = [slot for slot in range(inputs, inputs + len(made)) if slot not in left_out]
    sizes = {slot: max(1, made[slot - inputs].nbytes) for slot in slots}
    blocks: list[Block] = []
    for slot in sorted(slots, key=lambda slot: -sizes[slot]):
        life = lives.get(slot, (-1, len(steps)))
        device = made[slot - inputs].device
        block = next((b for b in blocks if b.device == device and b.takes(life)), None)
        if block is None:
            block = Block(device, sizes[slot])
            blocks.append(block)
        block.add(slot, life)
    memory, room = {}, {}
    for block in blocks:
        handle = claim(block.device, block.nbytes)
        memory.update(dict.fromkeys(block.slots, handle))
        room.update(dict.fromkeys(block.slots, (block.nbytes, block.device)))
    return Arena(memory, sum([block.nbytes for block in blocks]), sum(sizes.values()), room)
