"""Elements that two parts of one kernel write: in place the second would read what the first has written.

Owns: how often stores run beside how many elements there are, and who else writes the elements at the ends of a part. Does not own: the search for
an iteration that writes an element (sampled/writers.py), elements that nobody writes (sampled/kernels.py).

Where no store has a mask the count says all: more writes than elements are two to one of them. With masks, parts that lie beside each other
overlap where one of them ends, so the first and the last element of each are looked for in all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy

from proofgrad.core.ir.uop import UOp
from proofgrad.verify.sampled.arithmetic import Values
from proofgrad.verify.sampled.linear import of_points
from proofgrad.verify.sampled.nesting import NotReadable
from proofgrad.verify.sampled.parts import Drawn, Part, Reader
from proofgrad.verify.sampled.writers import Loops, do_run


@dataclass(frozen=True, slots=True)
class _Stores:
    """Those of a part that run in the same loops."""

    part: Part
    loops: Loops
    stores: tuple[UOp, ...]


def check_writers(reader: Reader, last: Part) -> None:
    """The parts that write the memory that `last` does. Raises: NotReadable."""
    parts, is_new = _of_one_memory(last)
    if any([part.combines for part in parts]):
        return
    runs = sum([_times(part) for part in parts])
    is_masked = any([len(store.src[0].src) > 2 for part in parts for store in part.nests])
    if is_new and runs < last.size:
        raise NotReadable(f"not every element of {last.size} is written")
    if runs > last.size and not is_masked:
        raise NotReadable(f"one of {last.size} elements is written twice, by {runs} writes")
    groups = [group for part in parts for group in _grouped(part)]
    for group in groups if len(groups) > 1 else ():
        elements = _ends(reader, group)
        for other in groups:
            if other is group:
                continue
            search = reader.search(other.part, [(store, other.loops) for store in other.stores])
            for found in search.by_guess(elements, numpy.zeros(len(elements), numpy.int64)):
                raise NotReadable(f"element {elements[found.rows[0]]} is written twice")


def _of_one_memory(last: Part) -> tuple[list[Part], bool]:
    """A part, and those before it that write the same memory; whether nothing was there before all of them."""
    parts: list[Part] = []
    there: Drawn | Part | None = last
    while isinstance(there, Part):
        parts.append(there)
        there = there.before.get(there.written)
    return parts, there is None


def _times(part: Part) -> int:
    """How often its stores run, each lane counted, whatever their masks say."""
    return sum(
        [
            prod([loop.src[0].arg for loop in nest]) * store.src[1].dtype.lanes
            for store, nest in part.nests.items()
        ]
    )


def _grouped(part: Part) -> list[_Stores]:
    groups: dict[Loops, list[UOp]] = {}
    for store, loops in part.nests.items():
        if do_run(loops):
            groups.setdefault(loops, []).append(store)
    return [_Stores(part, loops, tuple(stores)) for loops, stores in groups.items()]


def _ends(reader: Reader, group: _Stores) -> Values:
    """The elements that the first store writes in the first iteration of all loops, and the last one in the last."""
    kind = numpy.zeros(2, numpy.int64)
    ends = {loop: numpy.array([0, loop.src[0].arg - 1]) for loop in group.loops}
    frame = reader.frame(group.part, kind, ends)
    found: list[Values] = []
    for which, store in ((0, group.stores[0]), (1, group.stores[-1])):
        lanes = store.src[1].dtype.lanes
        lane = numpy.array([0, lanes - 1]) if lanes > 1 else None
        position, mask = frame.address(store.src[0], lanes, lane)
        if of_points(mask, 2)[which]:
            found.append(of_points(position, 2)[which : which + 1])
    return numpy.concatenate(found) if found else numpy.zeros(0, numpy.int64)
