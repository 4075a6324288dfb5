"""A mask around the terms of a sum goes where the factors are 0 without it.

    sum[i](where(g(i), a(i) * b(i), 0))   =   sum[i](a(i) * b(i))     if a(i) = b(i) = 0 where g(i) does not hold

    g:   1  1  1  0        a: 3 1 2 0      b: 5 4 1 0        both: 15 + 4 + 2 + 0

A split whose parts reach beyond the end of a sum masks what is loaded, which then is 0, and once more what is added. 0 * 0 is 0 in
every type, and adding it changes no sum: one that starts from 0.0 is never -0.0. A factor that is something else there is masked itself:

    where(g(i), a(i) * b(i), 0)   =   where(g(i), where(g(i), a(i), 0) * b(i), 0)
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.sums_of_products import below_conversions, is_masked
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_in, step
from proofgrad.core.ir.ops import CONVERSIONS, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.masks import conjuncts


@step(
    "sum[i](where(g, a * b, 0)) = sum[i](a * b) if a and b are 0 where g does not hold",
    makes_loops=False,
)
def unmask(nest: LoopNest, reduction: UOp) -> UOp:
    """The sum of products without its mask, which the loads of both factors have, or the one factor that is no such load gets."""
    require_in(nest.graph, reduction)
    is_sum = reduction.op is Ops.REDUCE and reduction.arg is Ops.ADD
    require(is_sum and is_masked(reduction.src[0]), "no masked sum", reduction)
    mask, term, nothing = reduction.src[0].src
    require(term.op is Ops.MUL, "no sum of products", term)
    open_factors = [factor for factor in term.src if not _is_masked_by(factor, mask)]
    is_one = len(open_factors) < 2 and not any([_is_load(factor) for factor in open_factors])
    require(is_one, "a factor that is not 0 where the mask does not hold", *open_factors)
    one, other = [_under(mask, x) if x in open_factors else x for x in term.src]
    bare = unmasked(mask, one, other, nothing)
    return nest.graph.substitute({reduction: reduction.with_src((bare, *reduction.src[1:]))})


def unmasked(mask: Any, one: Any, other: Any, nothing: Any) -> Any:
    """The product of two factors, for where(mask, one * other, nothing)."""
    return one * other


def _under(mask: UOp, factor: UOp) -> UOp:
    """The factor where the mask holds, else 0: before it is converted."""
    kinds = {x.is_float for x in (factor.dtype, factor.src[0].dtype)} if factor.src else set()
    if factor.op in CONVERSIONS and len(kinds) == 1 and not factor.src[0].dtype.is_bool:
        return factor.with_src((_under(mask, factor.src[0]),))
    return mask.where(factor, factor.const_like(0))


def _is_load(factor: UOp) -> bool:
    return below_conversions(factor).op is Ops.LOAD


def _is_masked_by(factor: UOp, mask: UOp) -> bool:
    """Whether a factor is a load, converted or not, of nothing where the mask does not hold."""
    factor = below_conversions(factor)
    if factor.op is not Ops.LOAD or len(factor.src[0].src) < 3:
        return False
    return conjuncts(mask) <= conjuncts(factor.src[0].src[2])
