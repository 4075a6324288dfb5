"""How many groups run on a unit of a machine at once: as many as its items, registers and memory of groups allow.

Owns: this number. Does not own: what a unit has (target.py), the tiles that are chosen by it (shared_tiles.py, warp_tiles.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.compile.machine.target import Target

# Words of 4 bytes of an item beside the sums that it holds: addresses, counters, operands.
OTHER_WORDS = 64
# That an item has at most; what needs more does with fewer beside its sums.
MOST_WORDS = 256
# A unit has its registers in so many parts, each for warps of its own.
PARTS = 4
# Groups of a unit of which nothing is known but the memory that one may have.
UNKNOWN = 2


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Items of a group, words of 4 bytes that each holds as sums, bytes that the group keeps; beside these those that it keeps once."""

    items: int
    held_words: int
    kept_bytes: int
    once_bytes: int = 0


def groups_of_unit(shape: GroupShape, target: Target) -> int:
    """Groups of this shape on a unit at once, at least one."""
    limits = []
    if target.unit_items:
        limits.append(target.unit_items // shape.items)
    if target.unit_registers:
        of_warp = target.lockstep * min(shape.held_words + OTHER_WORDS, MOST_WORDS)
        warps = PARTS * (target.unit_registers // PARTS // of_warp)
        limits.append(warps // -(-shape.items // target.lockstep))
    if target.unit_local_bytes:
        kept = shape.kept_bytes + shape.once_bytes
        limits.append(target.unit_local_bytes // (kept + target.lost_local_bytes))
    return max(1, min(limits, default=UNKNOWN))
