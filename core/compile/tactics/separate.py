"""Tactic: a loop that indexes take apart becomes loops of its digits, the opposite of coalescing.

A reshape that joins axes behind a convolution leaves one loop where the sum of products needs one for each axis: no tile
lies over `i // 256` and `i % 16`. Nor do lanes: where no product is summed, as in `repeat`, or in the sum of a slice, elements whose position is a remainder are read one by one.
Does not own: the law (steps/split.py), which loops become one again (coalesce.py).

    for i < 1024: f(i // 256, i // 16 % 16, i % 16)   =   for a < 4: for b < 16: for c < 16: f(a, b, c)
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import fresh_number, is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, conditions_of_choices, loops_below
from proofgrad.core.compile.nests.sums_of_products import product_of
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.split import MOST_PARTS, split
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, counters_in, toposort

_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.MOD})


def separate_loops(nest: LoopNest, context: Context) -> LoopNest:
    """Loops are split where indexes divide them: those around and in a sum of products, those of which a digit fills vectors, or chooses among values."""
    if not any([node.op in _DIVISIONS for node in toposort((nest.graph,))]):
        return nest
    found = _of_products(nest.graph) or _of_lanes(nest.graph, context.target)
    for loop in found or _of_choices(nest.graph):
        sizes = _digits(nest.graph, loop)
        if sizes:
            nest = _split_in_place(nest, loop, sizes)
    return nest


def _split_in_place(nest: LoopNest, loop: UOp, sizes: tuple[int, ...]) -> LoopNest:
    """The loop as its digits, in its place among the others: loops of larger numbers run inside.

    Of more digits than the law of a split is proved for the last ones are a loop at first, which is split again.
    """
    inside = [x for x in _loops(nest.graph) if x.arg[0] > loop.arg[0]]
    number, role = fresh_number(nest.graph), loop.arg[1]
    left = sizes[MOST_PARTS:]
    taken = (*sizes[: MOST_PARTS - 1], prod(sizes[MOST_PARTS - 1 :])) if left else sizes
    parts = [NewLoop(number + k, role) for k in range(len(taken))]
    nest = split(nest, loop, taken, (NewLoop(*loop.arg), *parts))
    if role is AxisRole.LOOP:
        for other in inside:
            if other.arg[1] is AxisRole.LOOP:
                nest = reorder(nest, other, fresh_number(nest.graph))
    for last in [x for x in _loops(nest.graph) if left and x.arg[0] == parts[-1].number]:
        nest = _split_in_place(nest, last, left)
    return nest


def _of_products(kernel: UOp) -> list[UOp]:
    """The loops that sums of products change with, and those that they run over, inner ones first.

    So a loop is still there when its turn comes: to split one gives those inside of it other numbers.
    """
    free = loops_below(kernel)
    found: dict[UOp, None] = {}
    for node in toposort((kernel,)):
        is_sum = node.op is Ops.REDUCE and node.arg is Ops.ADD
        if is_sum and product_of(node.src[0]) is not None:
            found.update(dict.fromkeys((*free[node], *node.src[1:])))
    loops = [x for x in found if is_fixed(x) and x.arg[1] in (AxisRole.LOOP, AxisRole.REDUCE)]
    return sorted(loops, key=lambda loop: -loop.arg[0])


def _of_lanes(kernel: UOp, target: Target) -> list[UOp]:
    """The loops whose last digit fills a vector, inner ones first: of what is reduced, or else of results."""
    lanes = min([target.lanes(store.src[1].dtype) for store in kernel.src])
    if target.work_items or lanes == 1:
        return []
    reduced = [node.src[1:] for node in toposort((kernel,)) if node.op is Ops.REDUCE]
    of_results = [x for x in output_loops(kernel) if x.arg[1] is AxisRole.LOOP]
    loops = {x for group in reduced for x in group if is_fixed(x)} if reduced else of_results
    found = [x for x in loops if (sizes := _digits(kernel, x)) and sizes[-1] >= lanes]
    return sorted(found, key=lambda loop: -loop.arg[0])


def _of_choices(kernel: UOp) -> list[UOp]:
    """The loops of results whose first digit decides which of several computed values an element is, as where a `stack` was joined with another axis.

    It is short then, and may be written out: else all of the values are computed for each element (loop_that_chooses in schedule/copies.py).
    """
    free = loops_below(kernel)
    chosen = conditions_of_choices(free)
    conditions = [c for c in chosen if c.op is Ops.CMPLT and c.src[1].op is Ops.CONST]
    found = list[UOp]()
    for loop in [x for x in output_loops(kernel) if x.arg[1] is AxisRole.LOOP and is_fixed(x)]:
        own, digit = [c for c in conditions if loop in free[c]], prod(_digits(kernel, loop))
        if digit > 1 and own and all([_asks_above(c, loop, digit, free[c]) for c in own]):
            found.append(loop)
    return sorted(found, key=lambda loop: -loop.arg[0])


def _asks_above(condition: UOp, loop: UOp, digit: int, loops: Collection[UOp]) -> bool:
    """Whether a sum of a loop, and of multiples of a number, is below another multiple: whatever the loop's remainder is."""
    term, bound = condition.src
    others = [coefficient(term, x) for x in loops if x is not loop]
    is_multiple = not any([c is None or c % digit for c in (*others, bound.arg)])
    return is_multiple and coefficient(term, loop) == 1


def _digits(kernel: UOp, loop: UOp) -> tuple[int, ...]:
    """The sizes of the digits of a loop but for the first; none where quotients do not nest in each other, those of digits left out perhaps."""
    size = size_of(loop)
    divisions = [node for node in toposort((kernel,)) if node.op in _DIVISIONS]
    for of_digits in (True, False):
        cuts = {cut for node in divisions if 0 < (cut := _cut(node, loop, of_digits)) < size}
        chain = [size, *sorted(cuts, reverse=True), 1]
        if not any([outer % inner for outer, inner in zip(chain, chain[1:])]):
            return tuple([outer // inner for outer, inner in zip(chain[1:], chain[2:])])
    return ()


def _cut(node: UOp, loop: UOp, of_digits: bool) -> int:
    """d where the node is a quotient by d of the loop, counted up or down, or what is left of one; 0: neither.

    Or of a digit of it, as where a window runs along an axis of 4 that was joined with others: `(k + i // 6 % 4) // 2` takes i apart at 12.
    """
    if node.src[1].op is not Ops.CONST:
        return 0
    term, divisor = node.src[0], node.src[1].arg
    while divisor > 1 and coefficient(term, loop) not in (1, -1):
        own = [part for part in term.src if loop in counters_in(part)]
        if len(own) != 1:
            return 0
        if term.op in _DIVISIONS and term.src[1].op is Ops.CONST:
            inner = term.src[1].arg
            if term.op is Ops.MOD and (inner % divisor or not of_digits):
                return 0
            divisor *= 1 if term.op is Ops.MOD else inner
        elif term.op is not Ops.ADD or not of_digits:
            return 0
        (term,) = own
    return divisor if divisor > 1 else 0


def _loops(kernel: UOp) -> list[UOp]:
    loops = [node for node in toposort((kernel,)) if node.op is Ops.RANGE]
    return sorted(loops, key=lambda loop: loop.arg[0])
