"""Sums of products of small integers whose factors lie along the sum in memory: two neighbours are a word, and products are taken in pairs.

Owns: which sums. Does not own: the law (steps/pair.py), who splits the loop (tactics/pair_products.py), words in tables.
"""

from __future__ import annotations

from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.steps.pair import sums_small_products
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def sums_words(reduction: UOp, loop: UOp) -> bool:
    """Whether both factors of a sum of products of small integers are read along a loop of it, under no mask."""
    if loop not in reduction.src[1:] or not sums_small_products(reduction):
        return False
    factors = [x.src[0] if x.op is Ops.CAST else x for x in reduction.src[0].src]
    return all([_is_along(factor, loop) for factor in factors])


def _is_along(factor: UOp, loop: UOp) -> bool:
    """Whether a factor is an element of memory, under no mask, and the next iteration's the next one."""
    if factor.op is not Ops.LOAD or len(factor.src[0].src) > 2:
        return False
    memory, index = factor.src[0].src
    return memory.op is Ops.PARAM and coefficient(index, loop) == 1
