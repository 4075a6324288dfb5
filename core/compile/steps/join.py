"""Nested sums of products, masked or not, become one sum, which can run in tiles.

    sum[a](where(p, sum[b](x), 0)) = sum[a, b](where(p, x, 0))

    a: 0     1             a: 0 0 0 1 1 1
    b: 0 1 2 (p is off)    b: 0 1 2 0 1 2
    x: + + +               x: + + + 0 0 0

Both add the same terms, and zeros; the order of a sum is not specified. The gradient of a convolution
for its input is such a sum: of its windows, those that lie inside; all of them, if it was padded as widely as they reach.
A load under a mask that is among the sum's needs it no longer if its position is inside of its memory whatever the loops are.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.steps.bounds import is_inside
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_in, step
from proofgrad.core.ir.op_names import REDUCE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.masks import conjuncts


@step("sum[a](where(p, sum[b](x), 0)) = sum[a, b](where(p, x, 0))")
def join_sums(nest: LoopNest, total: UOp) -> UOp:
    """The sum and those in it as one, down to a product."""
    require_in(nest.graph, total)
    joined = _joined(total, nest.facts)
    require(joined is not None, "no nested sums of products", total)
    assert joined is not None
    return nest.graph.substitute({total: joined})


def is_nested(total: UOp) -> bool:
    """Whether a node is a sum of sums, or of masks, that ends in a product."""
    if total.op is not REDUCE:
        return False
    value, _, masks, sums = _parts(total)
    return value.op is Ops.MUL and (sums > 1 or bool(masks))


def _parts(total: UOp) -> tuple[UOp, tuple[UOp, ...], list[UOp], int]:
    """What nested sums add, their loops and masks from outside to inside, and how many they are."""
    value, loops, masks, sums = total, tuple[UOp, ...](), list[UOp](), 0
    while True:
        if value.op is Ops.REDUCE and value.arg is Ops.ADD:
            loops += value.src[1:]
            value, sums = value.src[0], sums + 1
        elif loops and is_masked(value):
            masks.append(value.src[0])
            value = value.src[1]
        else:
            return value, loops, masks, sums


def _joined(total: UOp, facts: Facts) -> UOp | None:
    """The one sum; None where there is one already, without a mask, or no product is at the end."""
    if not is_nested(total):
        return None
    value, loops, masks, _ = _parts(total)
    require(len(set(loops)) == len(loops), "one loop of two sums", *loops)
    if not masks:
        return UOp(Ops.REDUCE, total.dtype, (value, *loops), Ops.ADD)
    mask = reduce(and_, masks)
    product = _without_masks(value, conjuncts(mask), facts)
    masked = mask.where(product, UOp.const(value.dtype, 0))
    return UOp(Ops.REDUCE, total.dtype, (masked, *loops), Ops.ADD)


def _without_masks(product: UOp, holding: frozenset[Any], facts: Facts) -> UOp:
    """Loads that stay in their buffer anyway need no mask that is asked of their product again."""
    changes: dict[UOp, UOp] = {}
    for load in toposort((product,)):
        if load.op is not Ops.LOAD or len(load.src[0].src) < 3:
            continue
        memory, index, mask = load.src[0].src
        if is_inside(index, memory, facts) and conjuncts(mask) <= holding:
            changes[load] = load.with_src((load.src[0].with_src((memory, index)),))
    return product.substitute(changes)
