"""Kernel -> Kernel: sums of sums of products, gated or not, become one sum, which can run in tiles.

Owns: which sums are joined, and which gates of loads are then no longer needed. Does not own: tiles
(tiles.py), and registers that skip what a gate leaves out (accumulate.py).

    sum[a](where(p, sum[b](x * y), 0)) = sum[a, b](where(p, x * y, 0))

Both add the same terms, and zeros; the order of a sum is not specified. The gradient of a convolution
for its input is such a sum: of its windows, those that lie inside; all of them, if it was padded as widely as they reach.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

from proofgrad.core.compile.index_width import Bounds
from proofgrad.core.compile.sums_of_products import is_gated
from proofgrad.core.compile.target import Target
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.gates import conjuncts


def join_sums(kernel: UOp, target: Target, bounds: Bounds) -> UOp:
    """Join nested sums that end in a product, on machines that run such sums in tiles."""
    if target.work_items:
        return kernel
    for node in reversed(toposort((kernel,))):
        if node.op is Ops.REDUCE and (joined := _joined(node, bounds)) is not None:
            return kernel.substitute({node: joined})
    return kernel


def _joined(total: UOp, bounds: Bounds) -> UOp | None:
    """The one sum; None where there is one already, without a gate, or no product is at the end."""
    value, loops, gates, sums = total, tuple[UOp, ...](), list[UOp](), 0
    while True:
        if value.op is Ops.REDUCE and value.arg is Ops.ADD:
            loops += value.src[1:]
            value, sums = value.src[0], sums + 1
        elif loops and is_gated(value):
            gates.append(value.src[0])
            value = value.src[1]
        else:
            break
    if value.op is not Ops.MUL or (sums < 2 and not gates):
        return None
    if not gates:
        return UOp(Ops.REDUCE, total.dtype, (value, *loops), Ops.ADD)
    gate = reduce(and_, gates)
    product = _without_gates(value, conjuncts(gate), bounds)
    return UOp(
        Ops.REDUCE, total.dtype, (gate.where(product, UOp.const(value.dtype, 0)), *loops), Ops.ADD
    )


def _without_gates(product: UOp, holding: frozenset[Any], bounds: Bounds) -> UOp:
    """Loads that stay in their buffer anyway need no gate that is asked of their product again."""
    changes: dict[UOp, UOp] = {}
    for load in toposort((product,)):
        if load.op is not Ops.LOAD or len(load.src[0].src) < 3:
            continue
        memory, index, gate = load.src[0].src
        low, high = bounds.lo(index), bounds.hi(index)
        stays = low is not None and high is not None and 0 <= low and high < memory.arg[1]
        if stays and conjuncts(gate) <= holding:
            changes[load] = load.with_src((load.src[0].with_src((memory, index)),))
    return product.substitute(changes)
