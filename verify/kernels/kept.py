"""What two stages of a kernel keep alike: compared once, and from then on memory of which nothing else is known.

Owns: which of the values that are kept (LOCAL_BUFFER) are the same in both, and loads of them as loads of memory. Does not own: the
values of the others, which are put in place of their loads (kernels/tables.py), the comparison (kernels/match.py).

What is read where it is kept is as large as all ways to it: where items of a group take in what others hold, in rounds, each
of which takes two of the round before, 32 items are 32 times the value that one has. So a value that both stages keep at the same
positions is compared by itself, for all values of the loops around and for all positions. Then both may read it from memory that has an
element for each of them: two loads are the same where their loops around and their positions are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import prod

from proofgrad.core.compile.nests.loops import is_fixed
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.loops import common_loops, row_major, values_at
from proofgrad.verify.kernels.match import Matcher
from proofgrad.verify.kernels.readback import Written, free_loops
from proofgrad.verify.kernels.tables import Memories, without_kept
from proofgrad.verify.kernels.terms import loop_size

# The numbers of parameters that no kernel has.
ALIKE = 1 << 20


@dataclass(frozen=True, slots=True)
class Alike:
    """For each stage, of what it keeps as the other does, the memory that it is read from and the loops around it."""

    before: Memories
    after: Memories


def kept_alike(
    before: Sequence[Written], after: Sequence[Written], matcher: Matcher, strict: bool
) -> Alike:
    """What both keep, in the order in which it is computed, as far as it is the same, or, unless `strict`, made of the same elements."""
    found = Alike({}, {})
    old, new = _kept(before), _kept(after)
    if len(old) != len(new):
        return found
    for number, one, other in zip(count(ALIKE), old, new):
        around = _loops_around(one), _loops_around(other)
        loops = _loops_before(one, other, *around)
        if loops is None:
            continue
        value = without_kept(one.src[0], found.before).substitute(loops)
        now = without_kept(other.src[0], found.after)
        if matcher.made_of(value, now, (), strict) is None:
            size = prod(map(loop_size, (*around[1], *other.src[1:])))
            memory = UOp(Ops.PARAM, other.dtype, (), (number, size))
            found.before[one], found.after[other] = (memory, around[0]), (memory, around[1])
    return found


def _kept(stores: Sequence[Written]) -> list[UOp]:
    """What is kept; what another one is made of comes before it."""
    nodes = toposort(tuple([w.store for w in stores]))
    return [n for n in nodes if n.op is Ops.LOCAL_BUFFER]


def _loops_around(kept: UOp) -> tuple[UOp, ...]:
    """Those in which what is kept changes."""
    return tuple(sorted(free_loops(kept), key=lambda loop: int(loop.arg[0])))


def _loops_before(
    one: UOp, other: UOp, before: tuple[UOp, ...], after: tuple[UOp, ...]
) -> dict[UOp, UOp] | None:
    """The loops of and around what is kept before where those after fill the same position; None: they are not the same."""
    sizes = [prod(map(loop_size, x.src[1:])) for x in (one, other)]
    loops = (*before, *after, *one.src[1:], *other.src[1:])
    if not all(map(is_fixed, loops)) or sizes[0] != sizes[1] or one.dtype is not other.dtype:
        return None
    same = common_loops(before, after)
    if tuple(same) != before or tuple(same.values()) != after:
        return None
    return {**same, **values_at(row_major(other.src[1:]).term(), one.src[1:])}
