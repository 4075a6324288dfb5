"""Loops around each other become one loop, whose counter has theirs as digits.

    for a < m: for b < n: f(a, b)   =   for c < m * n: f(c // n, c % n)

    a: 0 0 0 1 1 1         c: 0 1 2 3 4 5
    b: 0 1 2 0 1 2

The outermost digit needs no remainder, the innermost no quotient.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.steps.bijection import Bijection, NewLoop, reindex
from proofgrad.core.compile.steps.bounds import lies_between
from proofgrad.core.compile.steps.digits import number_of, product_of
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_fixed, step
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts

MOST_LOOPS = 8  # for so many at once the law is proved


@cache
def collapse_law(loops: int) -> Bijection:
    """d1 < n1, ..., dk < nk as i < n1 * ... * nk."""
    assert 1 <= loops <= MOST_LOOPS
    return Bijection(
        parameters=tuple([f"n{k + 1}" for k in range(loops)]),
        before=lambda *sizes: sizes,
        after=lambda *sizes: (product_of(sizes),),
        old=lambda i, *sizes: digits_of(i, sizes),
        new=lambda *terms: (number_of(terms[:loops], terms[loops + 1 :]),),
        in_order=True,
    )


def digits_of(number: Any, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The digits of a number below the product of `sizes`, most significant first."""
    digits: list[Any] = []
    for k in reversed(range(len(sizes))):
        is_last = k + 1 == len(sizes)
        digit = number if is_last else number // product_of(sizes[k + 1 :])
        digits.append(digit if k == 0 else digit % sizes[k])
    return tuple(digits[::-1])


def digits_at(position: UOp, sizes: tuple[int, ...], facts: Facts) -> tuple[UOp, ...]:
    """The same of a term, which needs no quotients where it is a number of such digits as it stands."""
    found: tuple[UOp, ...] = ()
    left = len(sizes)
    while left > 1:
        for first in range(left - 1, 0, -1):
            if (parts := _last_digit(position, product_of(sizes[first:left]), facts)) is not None:
                position, digit = parts
                found = (*digits_of(digit, sizes[first:left]), *found)
                left = first
                break
        else:
            break
    return (*digits_of(position, sizes[:left]), *found)


def _last_digit(number: UOp, size: int, facts: Facts) -> tuple[UOp, UOp] | None:
    """high and low of high * size + low, where low is below the size."""
    if number.op is not Ops.ADD:
        return None
    high, low = number.src
    is_multiple = high.op is Ops.MUL and high.src[1].op is Ops.CONST and high.src[1].arg == size
    is_digit = is_multiple and lies_between(low, 0, size - 1, facts)
    return (high.src[0], low) if is_digit else None


@step("for a < m, b < n: f(a, b) = for c < m * n: f(c // n, c % n)")
def collapse(nest: LoopNest, loops: tuple[UOp, ...], made: NewLoop) -> UOp:
    """The loops, outermost first, as one."""
    require(1 <= len(loops) <= MOST_LOOPS, "so many loops at once", len(loops))
    require_fixed(loops)
    sizes = tuple([size_of(x) for x in loops])
    require(min(sizes) > 0, "a loop that never runs", sizes)
    return reindex(nest, collapse_law(len(loops)), sizes, loops, (made,))
