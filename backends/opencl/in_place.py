"""Which values have no name: their text stands inside of the statement that uses them.

Owns: for which that is right, and parentheses that are not needed. Does not own: whether a text is short enough (emit.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def used_once_in_place(nodes: Sequence[UOp]) -> set[UOp]:
    """The nodes whose text may stand where they are used, instead of in a statement.

    Used once, in the loop in which they are computed; and if they read an accumulator, right after,
    before an UPDATE could change it.
    """
    uses = Counter([s for node in nodes for s in node.src])
    loop_of: dict[UOp, int] = {}
    user: dict[UOp, tuple[int, int]] = {}
    loops = [0]
    for position, node in enumerate(nodes):
        if node.op is Ops.END:
            loops.pop()
        loop_of[node] = loops[-1]
        for source in node.src:
            user[source] = (position, loops[-1])
        if node.op is Ops.RANGE:
            loops.append(position + 1)
    alone: set[UOp] = set()
    reads: set[UOp] = set()  # nodes of `alone` whose text reads an accumulator
    for position, node in enumerate(nodes):
        if uses[node] != 1:
            continue
        used_at, used_in = user[node]
        reads_now = any(s.op is Ops.ACCUMULATOR or s in reads for s in node.src)
        if used_in == loop_of[node] and (not reads_now or used_at == position + 1):
            alone.add(node)
            if reads_now:
                reads.add(node)
    return alone


def bare(text: str) -> str:
    """`text` without parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text
