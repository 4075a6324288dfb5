"""Tactic: loops that no index tells apart become one, and so do short ones that choose among computed values.

Does not own: the laws (steps/merge.py, steps/collapse.py), how loops run (axes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod

from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of, unshared_reductions
from proofgrad.core.compile.nests.strides import coefficient, conditions_of_choices, loops_below
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.copies import MOST_CHOSEN
from proofgrad.core.compile.schedule.vector_loops import LEAST_LANES
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.merge import is_one_number, merge, reads_as_one
from proofgrad.core.ir.ops import COMPARE
from proofgrad.core.ir.uop import AxisRole, UOp


def merge_loops(nest: LoopNest, context: Context) -> LoopNest:
    """Two loops a, b become one where every index needs only a * size(b) + b."""
    while (pair := _mergeable_pair(nest.graph)) is not None:
        nest = merge(nest, *pair)
    digits = _digits_of_a_choice(nest.graph) or _choosing_digits(nest.graph)
    return collapse(nest, digits, NewLoop(digits[0].arg[0])) if len(digits) > 1 else nest


def _mergeable_pair(kernel: UOp) -> tuple[UOp, UOp] | None:
    for group in (output_loops(kernel), *unshared_reductions(kernel)):
        for outer in group:
            for inner in group:
                if outer is not inner and reads_as_one(kernel, outer, inner):
                    return outer, inner
    return None


def _digits_of_a_choice(kernel: UOp) -> tuple[UOp, ...]:
    """Short output loops that decide as one number which of several computed values an element is, as behind a `stack` that is given several axes."""
    free = loops_below(kernel)
    loops = [x for x in output_loops(kernel) if x.arg[1] is AxisRole.LOOP and is_fixed(x)]
    short = [x for x in loops if 1 < size_of(x) <= MOST_CHOSEN // 2]
    chosen = conditions_of_choices(free)
    asked = [c for c in chosen if c.op in COMPARE and not free[c].isdisjoint(short)]
    if len(short) < 2 or not asked:
        return ()
    next_digit: dict[UOp, UOp] = {}
    for outer, inner in permutations(short, 2):
        own = [c for c in asked if outer in free[c] or inner in free[c]]
        is_bounded = not any([free[c.src[1]] for c in own])
        if is_bounded and _are_digits([c.src[0] for c in own], outer, inner):
            next_digit[outer] = inner
    for first in [x for x in next_digit if x not in next_digit.values()]:
        digits = [first]
        while digits[-1] in next_digit:
            digits.append(next_digit[digits[-1]])
        if prod([size_of(x) for x in digits]) <= MOST_CHOSEN:
            return tuple(digits)
    return ()


def _are_digits(terms: Sequence[UOp], outer: UOp, inner: UOp) -> bool:
    """Whether terms have loops as one number, or the outer one alone, which says where the number is below a multiple of the other's size."""
    steps = [(coefficient(term, outer), coefficient(term, inner)) for term in terms]
    if any([a is None or b is None for a, b in steps]):
        return False
    below = [(a, b) for a, b in steps if b != 0]
    return bool(below) and all([is_one_number(a, b, size_of(inner)) for a, b in below])


def _choosing_digits(kernel: UOp) -> tuple[UOp, ...]:
    """Output loops too short for vectors, each of which alone decides which of two computed values an element is.

    As one loop they are written out together: what an iteration computes, as the other end of a comparator, another one needs too.
    """
    free = loops_below(kernel)
    chosen = conditions_of_choices(free)
    alone = {next(iter(free[c])) for c in chosen if c.op in COMPARE and len(free[c]) == 1}
    loops = [x for x in output_loops(kernel) if x in alone and is_fixed(x)]
    short = [x for x in loops if x.arg[1] is AxisRole.LOOP and size_of(x) < LEAST_LANES]
    return tuple(short) if prod([size_of(x) for x in short]) <= MOST_CHOSEN else ()
