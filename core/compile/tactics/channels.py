"""Tactic: images whose windows a product by matrix units reads are copied with the channels of a pixel side by side.

Owns: the order of the steps. Does not own: whether that pays (schedule/warp_tables.py), the law of the copy (steps/deinterleave.py), the
kernel that multiplies (warp_tiles.py).

    out[o, y, x] = sum[c, a, b](w[o, c, a, b] * image[c, y + a, x + b])

is sum[a, b, c](w[o, c, a, b] * copy[y + a, x + b, c]): where whole loads of channels fill a row, each is copied as it lies to memory of a
group, while others are multiplied. An image has a row of the copy for each pixel; windows have it as often as they overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core.compile.nests.loops import fresh_number, size_of
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.shared_tiles import find_product
from proofgrad.core.compile.schedule.warp_tables import choose_tables, images_of
from proofgrad.core.compile.schedule.warp_tiles import choose_warps, unit_of
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.deinterleave import deinterleave
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.mma import read_by_unit
from proofgrad.core.compile.steps.split import split
from proofgrad.core.compile.tactics.shared_tiles import as_one
from proofgrad.core.ir.uop import AxisRole, UOp


def channels_inside(nest: LoopNest, context: Context) -> LoopNest | tuple[LoopNest, ...]:
    """Copy images with channels innermost where a product takes windows of them; the kernels, in order."""
    target, override = context.target, context.override
    way = choose_warps(nest.graph, target, override)
    if way is None:
        return nest
    product = find_product(nest.graph)
    unit = None if product is None else unit_of(product, target)
    assert product is not None and unit is not None
    images = images_of(product, unit, target)
    if not any(images):
        return nest
    staged = choose_tables(nest.graph, way, target, override)
    factors = product.row_factor, product.column_factor
    for factor, image, is_copied in zip(factors, images, (staged.rows, staged.columns)):
        if image is not None and is_copied:
            fill, nest = deinterleave(nest, read_by_unit(factor, unit), image.loop, image.image)
            return fill, _innermost(nest, image.loop, product.reduction.src[1:])
    return nest


def _innermost(nest: LoopNest, loop: UOp, steps: Sequence[UOp]) -> LoopNest:
    """A loop of a sum inside of the others."""
    ordered = sorted(steps, key=lambda x: x is loop)
    if len(ordered) == 1:
        return nest
    nest, one = as_one(nest, ordered)
    number = fresh_number(nest.graph)
    made = [NewLoop(number + k, AxisRole.REDUCE) for k in range(len(ordered))]
    return split(nest, one, tuple([size_of(x) for x in ordered[1:]]), tuple(made))
