"""Where the items of a group wait for each other, so that what one puts into memory of the group others find there.

Owns: behind which nodes of a Linear. Does not own: that this is enough, which `PROVE=1` shows (verify/kernels/waiting.py), the
instruction (backends).

Behind a loop that fills memory items wait before any of them reads it. Where it is filled ahead, they wait before what is filled for the
furthest iteration ahead: then all have left the part that is filled, and have filled the one that is read. What is filled for iterations between
may still be on its way: of P parts the last P - 2 fills. Where it is filled again, in each iteration of a loop, they
wait at the end of that loop's body as well: until then others may read what is there. Fills next to each other need
one wait, behind the last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from proofgrad.core.compile.nests.loops import runs_alike
from proofgrad.core.ir.op_names import END, FILLED, LOAD, RANGE
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group


def waits(linear: UOp, alone: Collection[UOp] = ()) -> dict[UOp, int]:
    """The FILLED nodes behind which all items of a group wait, and the END nodes before which they do.

    A RANGE with the role AHEAD: they wait before its last iteration. Of each the last so many fills of parts, each an iteration of
    such a loop, may be on their way. `alone`: memory for which nobody waits, as each item reads only what itself, or its warp, has put there.
    """
    nodes = linear.src
    of_group = {n: None for n in nodes if n.op is FILLED and is_of_group(n.src[1:])}
    if alone:
        of_group = {n: None for n in of_group if n.src[0].src[0].src[0] not in alone}
    ahead = {n.src[1] for n in of_group if n.src[1].arg[1] is AxisRole.AHEAD}
    waited = [n for n in of_group if n.src[1] not in ahead]  # for others where they begin
    filled = [at for at, n in enumerate(nodes) if n in waited]
    found, pending = set[UOp](), set[UOp]()
    for at in filled:
        pending.add(nodes[at])
        if not _waits_later(nodes, at, pending, waited):
            found.add(nodes[at])
            pending.clear()
    open_loops: list[UOp] = []
    refilled: set[UOp] = set()
    for node in nodes if of_group else ():
        if node.op is RANGE:
            open_loops.append(node)
        elif node.op is END:
            open_loops.remove(node.src[0])
            if node.src[0] in refilled:
                found.add(node)
        elif node in of_group:
            alike = [loop for loop in open_loops if runs_alike(loop)]
            refilled.update(alike[-2:-1] if node.src[1] in ahead else alike[-1:])
    return {**dict.fromkeys(found, 0), **{loop: int(loop.src[0].arg) - 2 for loop in ahead}}


def _waits_later(
    nodes: Sequence[UOp], at: int, pending: set[UOp], of_group: Collection[UOp]
) -> bool:
    """Whether another fill follows the one that ends here, in the same loops, before anybody reads what is pending.

    `pending`: what this fill and those before it filled since the last wait.
    """
    depth = 0
    for node in nodes[at + 1 :]:
        if node.op is LOAD and node.src[0].src[0] in pending:
            return False
        depth += (node.op is RANGE) - (node.op is END)
        if depth < 0:
            return False
        if node in of_group and depth == 0:
            return True
    return False
