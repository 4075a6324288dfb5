"""Kernel -> Kernel: what several loops over one row compute alike is computed once, and kept.

Owns: which values are kept, and the KEEP. Does not own: the memory (accumulate.py, backends).

A softmax takes exp2 of each element of a row for the sum, and again for the result. Here a loop of its
own puts exp2 into memory of one row, and both read it there: v(i) is element i of KEEP(v(k), k).
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.contraction import is_fixed, output_loops, size_of
from proofgrad.core.compile.linear_terms import loops_below
from proofgrad.core.compile.target import Target
from proofgrad.core.compile.tiles import find_contraction
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import COMMUTATIVE, ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Operations that take longer than a store and a load.
COSTLY = frozenset({Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.POW, Ops.SQRT, Ops.FDIV, Ops.FMOD})


def keep_rows(kernel: UOp, target: Target) -> UOp:
    """Keep the costly values that several loops over a row compute alike."""
    nodes = toposort((kernel,))
    if not any(n.op in COSTLY for n in nodes) or not any(n.op is Ops.REDUCE for n in nodes):
        return kernel
    if target.scratch_bytes == 0 or find_contraction(kernel, target) is not None:
        return kernel
    room, number = target.scratch_bytes, 1 + max(n.arg[0] for n in nodes if n.op is Ops.RANGE)
    changes: dict[UOp, UOp] = {}
    for alike in _computed_alike(kernel):
        loop, value = alike[0]
        nbytes = size_of(loop) * value.dtype.itemsize
        if nbytes > room:
            continue
        room -= nbytes
        row = UOp.range(size_of(loop), number, AxisRole.REDUCE)
        kept = UOp(Ops.KEEP, value.dtype, (value.substitute({loop: row}), row))
        for counter, same in alike:
            place = UOp(Ops.INDEX, value.dtype, (kept, counter))
            changes[same] = UOp(Ops.LOAD, value.dtype, (place,))
        number += 1
    return kernel.substitute(changes)


def _computed_alike(kernel: UOp) -> list[list[tuple[UOp, UOp]]]:
    """Values that are the same function of different loops, each with its loop; the largest such."""
    free = loops_below(kernel)
    outer = output_loops(kernel)
    found: dict[UOp | int, list[tuple[UOp, UOp]]] = {}
    functions: dict[Any, int] = {}
    for loop in _loops_over_rows(free, outer):
        costly = _costly_along(loop, free, outer)
        names: dict[UOp, UOp | int] = {}
        for node in toposort(costly):
            function = _function(node, loop, names)
            moves = loop in free[node]
            names[node] = functions.setdefault(function, len(functions)) if moves else node
        for node in costly:
            found.setdefault(names[node], []).append((loop, node))
    alike = [group for group in found.values() if len({loop for loop, _ in group}) > 1]
    inside = {n for group in alike for _, value in group for n in toposort(value.src)}
    return [group for group in alike if group[0][1] not in inside]


def _loops_over_rows(free: dict[UOp, frozenset[UOp]], outer: list[UOp]) -> list[UOp]:
    """The loops of reductions that have one, and the loops of the output."""
    own = [n.src[1] for n in free if n.op is Ops.REDUCE and len(n.src) == 2]
    return [loop for loop in dict.fromkeys([*own, *outer]) if is_fixed(loop)]


def _costly_along(loop: UOp, free: dict[UOp, frozenset[UOp]], outer: list[UOp]) -> list[UOp]:
    """Values made by costly operations that change with `loop`, and beside it with outer loops only.

    Those are the first loops of the output, so that a row is kept in their body.
    """
    costly: dict[UOp, bool] = {}
    found = []
    for node, loops in free.items():
        moves = loop in loops and node.op in ELEMENTWISE and node.dtype is not dtypes.index
        costly[node] = moves and (node.op in COSTLY or any([costly[s] for s in node.src]))
        if costly[node]:
            first = outer[: len(loops) - 1]
            found += [node] if loop not in first and loops - {loop} == set(first) else []
    return found


def _function(node: UOp, loop: UOp, names: dict[UOp, UOp | int]) -> Any:
    """What is equal for nodes that make the same of a loop, each of its own."""
    if node is loop:
        return size_of(loop)
    sources = [names[s] for s in node.src]
    return (
        *(node.op, node.dtype, node.arg),
        frozenset(sources) if node.op in COMMUTATIVE else tuple(sources),
    )
