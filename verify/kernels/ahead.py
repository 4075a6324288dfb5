"""What must hold of memory that is filled for later iterations of a loop while the present one reads it.

Owns: these claims about one Linear, as terms. Does not own: deciding them (kernels/questions.py), waiting between (kernels/waiting.py).

Of P parts of the memory iteration s of the loop around fills part (s + P - 1) % P, the first one all others before. So the memory is what
its LOCAL_BUFFER says, all parts of it, if each other part would be filled with what the iteration before has left there. And an iteration
reads the part s % P alone, so that it may read while others are filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from proofgrad.core.compile.nests.weighted_sums import loops_of_blocks
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.verify.kernels.terms import is_known, loop_size

Claim = tuple[str, UOp, tuple[UOp, ...]]  # what it says, the term, what is given


def is_ahead(loop: UOp) -> bool:
    """Whether a loop goes over parts of memory of which those of later iterations are filled ahead."""
    return loop.arg[1] is AxisRole.AHEAD


def loops_around_parts(linear: UOp) -> dict[UOp, UOp]:
    """Each loop over parts, and the loop that it stands in; without one that runs one by one it has none here."""
    found: dict[UOp, UOp] = {}
    around: list[UOp] = []
    for node in linear.src:
        if node.op is Ops.RANGE:
            if is_ahead(node) and around and around[-1].arg[1] is AxisRole.REDUCE:
                found[node] = around[-1]
            around.append(node)
        elif node.op is Ops.END:
            around.remove(node.src[0])
    return found


def claims_of(linear: UOp, values: Sequence[UOp]) -> Iterator[Claim]:
    """What must hold of each memory that is filled ahead; `values`: what a Linear stores, read back as terms.

    Or what its nest stores before registers, where a loop that carries a maximum has another number.
    """
    around, carrying = loops_around_parts(linear), loops_of_blocks(UOp.sink(*values))
    nodes = toposort(values)
    kept = [n for n in nodes if n.op is Ops.LOCAL_BUFFER]
    memories = [n for n in kept if any([is_ahead(loop) for loop in n.src[1:]])]
    for memory in memories:
        value, part, *loops = memory.src
        loop = next((x for x in carrying if x in toposort((value,))), around[part])
        later, parts = loop + 1, loop_size(part)
        is_later = later < loop.src[0]
        for distance in range(parts - 1):  # the parts that iteration `later` does not fill
            other = UOp(Ops.MOD, loop.dtype, (later + distance, loop.const_like(parts)))
            for term in _plain_parts(value):
                left = term.substitute({part: other})
                filled = term.substitute({part: other, loop: later})
                same = UOp(Ops.CMPEQ, dtypes.bool, (left, filled))
                yield "another value than the iteration before has put there", same, (is_later,)
        size = prod(map(loop_size, loops))
        for index in [n for n in nodes if n.op is Ops.INDEX and n.src[0] is memory]:
            position = index.src[1]
            there = UOp(Ops.FLOORDIV, position.dtype, (position, position.const_like(size)))
            expected = UOp(Ops.MOD, loop.dtype, (loop, loop.const_like(parts)))
            yield "a part that is filled meanwhile", there.eq(expected), ()


def _plain_parts(value: UOp) -> Iterator[UOp]:
    """The positions and masks in a value: the largest terms of loops and integers. All else is a function of them."""
    plain: set[UOp] = set()
    for node in toposort((value,)):
        if is_known(node) and all([s in plain for s in node.src]):
            plain.add(node)
    above = [s for n in toposort((value,)) if n not in plain for s in n.src]
    yield from dict.fromkeys([n for n in (value, *above) if n in plain and n.op is not Ops.CONST])
