"""What is kept lies with the pieces of each row turned around, by a number that the row gives.

    k[r, p, c] for r < m, p < n, c < l   =   K[r, (p + t(r)) % n, c],   K[r, q, c] = k[r, (q - t(r)) % n, c]

    n = 4, t(r) = r      k: 0 1 2 3      K: 0 1 2 3
                            4 5 6 7         7 4 5 6
                            8 9 . .         . . 8 9

Pieces of a column of a matrix whose rows are a power of two long lie in the same banks of memory; where each row is turned they lie
in others. (p + t) % n for p < n are the numbers below n, each once, whatever t is: so the memory is as large as it was, and full.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.steps.bijection import Bijection
from proofgrad.core.compile.steps.collapse import collapse_law, digits_at
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_fixed, step
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


@cache
def turn_law() -> Bijection:
    """p < n as q < n, `by` < n further on, around the end."""
    return Bijection(
        parameters=("n", "by"),
        before=lambda n, by: (n,),
        after=lambda n, by: (n,),
        old=lambda q, n, by: ((q + (n - by)) % n,),
        new=lambda p, n, by: ((p + by) % n,),
        least=0,
        given=lambda n, by: by < n,
    )


def turn_of(row: Any, times: Any, each: Any, count: Any) -> Any:
    """By how many of its pieces a row is turned: `times` in `each` rows."""
    return row * times // each % count


@step("k[r, p] = K[r, (p + t(r)) % n] where K[r, q] = k[r, (q - t(r)) % n]")
def turn_rows(nest: LoopNest, row: UOp, piece: UOp, times: int, each: int) -> UOp:
    """What is kept along loops of rows and of their pieces, turned by row * times // each pieces."""
    require_fixed((row, piece))
    require(times > 0 and each > 0, "a turn by no number", times, each)
    nodes = toposort((nest.graph,))
    kept = [n for n in nodes if n.op is Ops.LOCAL_BUFFER and {row, piece} <= set(n.src[1:])]
    require(len(kept) == 1 and row is not piece, "nothing that is kept along both loops", row)
    (memory,) = kept
    value, *own = memory.src
    law, count = turn_law(), size_of(piece)
    (before,) = law.old(piece, count, turn_of(row, times, each, count))
    turned = memory.with_src((value.substitute({piece: before}), *own))
    sizes, done = tuple([size_of(x) for x in own]), {memory: turned}
    for node in nodes:
        if node in done:
            continue
        new = node.with_src(tuple([done[s] for s in node.src]))
        if node.op is Ops.INDEX and node.src[0] is memory:
            digits = dict(zip(own, digits_at(new.src[1], sizes, nest.facts)))
            by = turn_of(digits[row], times, each, count)
            (digits[piece],) = law.new(digits[piece], count, by)
            (position,) = collapse_law(len(own)).new(*[digits[x] for x in own], *sizes)
            new = new.with_src((new.src[0], position, *new.src[2:]))
        done[node] = new
    return done[nest.graph]
