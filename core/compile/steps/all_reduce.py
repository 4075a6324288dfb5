"""What the items of a group have of a sum, they exchange in rounds, until each has all of it.

    sum[t < n](k[n * b + t])   =   K[n * b]     where K is what k becomes in rounds, of m = n / 2, n / 4, ..., 1:

    k'[i] = k[i] + k[p],   p = i // 2m * 2m + (i % 2m + m) % 2m

    n = 4      k:   0    1    2    3
    m = 2      k':  02   13   20   31
    m = 1      K:   0213 1302 2031 3120

Behind the round of m, element i has taken in once each element of its n whose number differs from i by a multiple of m; behind the last
one, all of them. In a round each item takes in what one other has, whose number differs from its own in one bit: as the items of a
warp may read what others of them hold, up to that many need neither memory nor waits (lowering/held_by_warps.py). To steps and proofs
what each item has is memory of the group, anew in each round.

Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations in MPICH, 2005, "recursive doubling".
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.steps.collapse import digits_at
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    require,
    require_fixed,
    require_in,
    step,
)
from proofgrad.core.compile.steps.tables import loaded, require_room
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp


def taken_from(item: Any, part: Any, distance: Any) -> Any:
    """Whose element an item takes in, as part 0 and 1 of a round: its own, and that so far away, around the end of twice as many."""
    both = distance + distance
    return item // both * both + (item % both + part * distance) % both


@step(
    "sum[t < n](k[n * b + t]) = K[n * b] where k'[i] = k[i] + k[i // 2m * 2m + (i % 2m + m) % 2m]"
)
def all_reduce(nest: LoopNest, reduction: UOp, number: int) -> UOp:
    """A reduction of what items keep, n side by side, n a power of two, as rounds in which they exchange it.

    `number`: from here on loops have no numbers.
    """
    require_in(nest.graph, reduction)
    is_one = reduction.op is Ops.REDUCE and len(reduction.src) == 2
    require(is_one, "no reduction over one loop", reduction)
    value, loop = reduction.src
    require_fixed([loop])
    count = size_of(loop)
    require(count > 1 and count & (count - 1) == 0, "no power of two", count)
    is_kept = value.op is Ops.LOAD and value.src[0].src[0].op is Ops.LOCAL_BUFFER
    require(is_kept and len(value.src[0].src) == 2, "no element of what is kept", value)
    kept, position = value.src[0].src
    require(len(kept.src) == 2, "what is kept along several loops", kept)
    size, role = size_of(kept.src[1]), kept.src[1].arg[1]
    require(size % count == 0, "so many, of which others are apart", size, count)
    blocks, digit = digits_at(position, (size // count, count), nest.facts)
    is_whole = position is loop and size == count
    require(is_whole or digit is loop, "elements that do not lie side by side", position)
    first = UOp.index(0) if is_whole else blocks * count
    for distance in [count >> k for k in range(1, count.bit_length())]:
        item, part = UOp.range(size, number, role), UOp.range(2, number + 1, AxisRole.UPCAST)
        both = loaded(kept, taken_from(item, part, distance))
        taken = UOp(Ops.REDUCE, reduction.dtype, (both, part), reduction.arg)
        kept, number = UOp(Ops.LOCAL_BUFFER, reduction.dtype, (taken, item)), number + 2
    changed = nest.graph.substitute({reduction: loaded(kept, first)})
    require_room(nest, changed)
    return changed
