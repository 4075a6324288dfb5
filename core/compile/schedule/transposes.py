"""Whether a kernel that reads along one loop and stores along another goes through memory of a group, tile by tile.

Owns: which loops, the choice, a heuristic. Does not own: the steps (tactics/transposes.py), what a group has (target.py).

    out[c, r] = x[r, c]

Whichever of r and c neighbours have, on one side each of them goes to another line of memory. A group copies a tile of x into its own
memory with neighbours along c, and stores from there with neighbours along r: both sides are whole lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import NO_TRANSPOSED, Schedule, Transposed
from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Bytes of a line of memory, which a tile has along each of both loops, and elements that it has at least and at most.
LINE_BYTES, SIDES = 128, (32, 64)
# Elements along one loop, of a tile that is short along the other.
LONGEST_SIDE = 128
# Elements that lie side by side in a sector, the least that memory gives at once: shorter stretches lose nothing.
LEAST_SIDE = 8
# Tiles with fewer elements in all are as fast from the second cache.
WORTH_TILES = 1 << 14


@dataclass(frozen=True, slots=True)
class Turned:
    """The loop along which memory is read, the one along which it is stored, and the loads that are so."""

    along: UOp
    across: UOp
    loads: tuple[UOp, ...]


def find_turned(kernel: UOp) -> Turned | None:
    """The two loops of a kernel of one store, without reductions, some of whose loads lie along another loop than the store."""
    nodes = toposort((kernel,))
    if len(kernel.src) != 1 or len(kernel.src[0].src) != 2:
        return None
    if any([n.op in BINDERS or (n.op is Ops.RANGE and not is_fixed(n)) for n in nodes]):
        return None
    outputs, position = [x for x in output_loops(kernel) if size_of(x) > 1], kernel.src[0].src[0]
    across = next((x for x in outputs if coefficient(position.src[1], x) == 1), None)
    if across is None:
        return None
    loads = [n for n in nodes if n.op is Ops.LOAD]
    ways = [(x, tuple([n for n in loads if _is_turned(n, x, across)])) for x in outputs]
    return next((Turned(x, across, turned) for x, turned in ways if turned), None)


def _is_turned(load: UOp, along: UOp, across: UOp) -> bool:
    """Whether neighbours along one loop are read side by side, and those along the other each from elsewhere."""
    index = load.src[0].src[1]
    is_read_alone = not any([n.op is Ops.LOAD for n in toposort((load.src[0],))])
    return (
        along is not across
        and is_read_alone
        and {along, across} <= loops_of(index)
        and coefficient(index, along) == 1
        and abs(coefficient(index, across) or 0) > 1
    )


def choose_transposed(kernel: UOp, target: Target, override: Schedule) -> Transposed | None:
    """The tile of a group; NO_TRANSPOSED: items read for themselves; None: the machine has no groups."""
    if not target.group_items or not target.local_bytes:
        return None
    turned = find_turned(kernel)
    if turned is None or override.vectors or override.copies:
        return NO_TRANSPOSED
    if override.transposed is not None:
        fits = _bytes(override.transposed, turned, target) <= target.local_bytes
        return override.transposed if fits else NO_TRANSPOSED
    sizes = size_of(turned.along), size_of(turned.across)
    elements = prod([size_of(x) for x in output_loops(kernel)])
    if target.lockstep == 1 or min(sizes) < LEAST_SIDE or elements < WORTH_TILES:
        return NO_TRANSPOSED
    widest = max([n.dtype.itemsize for n in turned.loads])
    side = max(SIDES[0], min(SIDES[1], LINE_BYTES // widest))
    along, across = [min(side, size) for size in sizes]
    longest = [min(LONGEST_SIDE, size) for size in sizes]
    tile = Transposed(min(longest[0], side * side // across), min(longest[1], side * side // along))
    room = target.local_bytes_of(2 * target.unit_groups)
    return tile if _bytes(tile, turned, target) <= room else NO_TRANSPOSED


def _bytes(tile: Transposed, turned: Turned, target: Target) -> int:
    """Memory of a group that a tile of every load needs, with room between its rows, and for whole turns of all items."""
    elements = (tile.along + 1) * tile.across + target.group_items
    return elements * sum([n.dtype.itemsize for n in turned.loads])
