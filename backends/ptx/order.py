"""Which launches of a recorded function wait for which: those of memory that both touch, and that one of them writes.

Owns: which memory overlaps, and the order that follows from it. Does not own: launches and addresses (graph.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Extent = tuple[int, int]  # the first byte of memory, and one behind its last


def overlapping(extents: Mapping[int, Extent]) -> dict[int, int]:
    """A number for each slot; those whose memory overlaps have the same."""
    number, end = -1, -1
    found: dict[int, int] = {}
    for slot, (begin, behind) in sorted(extents.items(), key=lambda item: item[1]):
        number += begin >= end
        end = max(end, behind)
        found[slot] = number
    return found


def is_within(finer: Mapping[int, int], coarser: Mapping[int, int]) -> bool:
    """Whether slots with one number have one in the other table, too: an order for that one is an order for this one."""
    others: dict[int, int | None] = {}
    return all(
        others.setdefault(n, coarser.get(slot)) == coarser.get(slot) for slot, n in finer.items()
    )


def waits(launches: Sequence[Sequence[int]]) -> list[list[int]]:
    """Of each launch the earlier ones that it waits for, but for those that one of these waits for.

    `launches`: the number of each one's memory, of what it writes first.
    """
    writer: dict[int, int] = {}  # of memory, the last one
    readers: dict[int, list[int]] = {}  # and those behind it
    behind: list[int] = []  # of each launch all that end before it begins, as bits
    found: list[list[int]] = []
    for k, (written, *read) in enumerate(launches):
        needed = {writer[n] for n in (written, *read) if n in writer}
        needed.update(readers.get(written, ()))
        direct, known = list[int](), 0
        for earlier in sorted(needed, reverse=True):
            if not known >> earlier & 1:
                direct.append(earlier)
                known |= behind[earlier] | 1 << earlier
        found.append(direct)
        behind.append(known)
        writer[written], readers[written] = k, []
        for n in read:
            if n != written:
                readers.setdefault(n, []).append(k)
    return found
