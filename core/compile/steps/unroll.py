"""Loops are written out: a copy of the body for each iteration.

    for i < n: f(i)              =   f(0); f(1); ...; f(n - 1)
    reduce[i < n, R](f(i))       =   reduce[R](f(0) + f(1) + ... + f(n - 1))

    i: 0 1 2 3             (f(0) + f(1)) + (f(2) + f(3))

for any operation `+` of a reduction, whose order is not specified. Copies are combined as a tree, so that no operation
waits for all others. Products of floats go into a sum one by one where several sums run side by side, as in a tile; else the
one sum would wait for itself, and its rounding errors would add up. A product of small matrices, which adds to what is there, starts from the
copy before it.
"""

from __future__ import annotations

import functools

from proofgrad.core.compile.nests.loops import BINDERS, output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.nests.sums_of_products import add_product, product_of
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    require,
    require_fixed,
    require_in,
    step,
)
from proofgrad.core.ir.op_names import LOCAL_BUFFER
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

MOST_COPIES = 1 << 12  # of one store: more would take minutes to compile


@step("for i < n: f(i) = f(0); f(1); ...; f(n - 1)", makes_loops=False)
def unroll(nest: LoopNest, loops: frozenset[UOp]) -> UOp:
    """Each of the loops is written out: copies of the stores, or of what a reduction combines."""
    require_fixed(loops)
    require_in(nest.graph, *loops)
    require(all([size_of(loop) for loop in loops]), "a loop that never runs", *loops)
    in_order = {loop for store in nest.graph.src for loop in store.src[2:]}
    require(loops.isdisjoint(in_order), "a loop that runs in order", *loops)
    require(
        loops.isdisjoint(_around_parts(nest.graph)), "loops around what is filled ahead", *loops
    )
    graph = _unroll_reductions(nest.graph, loops)
    for loop in [x for x in output_loops(graph) if x in loops]:
        require(len(graph.src) * size_of(loop) <= MOST_COPIES, "more copies than", MOST_COPIES)
        of_stores = _written_out(graph.src, loop)
        graph = UOp.sink(*[copy for copies in of_stores for copy in copies])
    return graph


def _around_parts(graph: UOp) -> frozenset[UOp]:
    """The loops that memory changes with of which the next iteration's part is filled ahead."""
    free = loops_below(graph)
    kept = [n for n in free if n.op is LOCAL_BUFFER]
    kept = [n for n in kept if any([loop.arg[1] is AxisRole.AHEAD for loop in n.src[1:]])]
    return frozenset().union(*[free[n] for n in kept])


def _written_out(terms: tuple[UOp, ...], loop: UOp) -> list[list[UOp]]:
    """Each of the terms at each value of `loop`; once, where it does not change with it. What they share is copied once."""
    changing: dict[UOp, None] = {loop: None}
    for node in toposort(terms):
        if not changing.keys().isdisjoint(node.src):
            changing[node] = None
    copies: list[list[UOp]] = [[] if term in changing else [term] for term in terms]
    for k in range(size_of(loop)):
        at = {loop: UOp.index(k)}
        for node in changing:
            if node is not loop:
                src = tuple([at.get(s, s) for s in node.src])
                at[node] = UOp(node.op, node.dtype, src, node.arg)
        for term, found in zip(terms, copies):
            if term in changing:
                found.append(at[term])
    return copies


def _copies(value: UOp, loop: UOp) -> list[UOp]:
    """As many as the loop has iterations, also of a value that does not change with it."""
    (copies,) = _written_out((value,), loop)
    return copies * (size_of(loop) // len(copies))


def _unroll_reductions(graph: UOp, loops: frozenset[UOp]) -> UOp:
    """The values at each iteration are combined, then with those of the other loops of the reduction."""
    done: dict[UOp, UOp] = {}
    free = loops_below(graph)
    for node in toposort((graph,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        if node.op in BINDERS and not loops.isdisjoint(node.src[1:]):
            require(node.op is Ops.REDUCE, "what is kept is filled by a loop")
            new = _unrolled(new, loops, is_beside_others=not loops.isdisjoint(free[node]))
        done[node] = new
    return done[graph]


def _unrolled(reduction: UOp, unrolled: frozenset[UOp], is_beside_others: bool) -> UOp:
    """A reduction without some of its loops."""
    (value, *loops), op = reduction.src, reduction.arg
    copied = [loop for loop in loops if loop in unrolled]
    rest = tuple([loop for loop in loops if loop not in unrolled])
    is_sum = op is Ops.ADD and value.dtype.is_float
    if is_sum and is_beside_others and product_of(value) is not None:
        values = [value]
        for loop in copied:
            values = [copy for value in values for copy in _copies(value, loop)]
        if not rest:
            return _one_by_one([value.const_like(0.0), *values])
        return reduction.replace(src=(_one_by_one(values), *rest))
    for loop in copied:
        copies = _copies(value, loop)
        are_products = op is Ops.ADD and value.op is Ops.MMA
        value = _onto_each_other(copies) if are_products else _combined(copies, op)
    return reduction.replace(src=(value, *rest)) if rest else _from_start(value, op)


def _one_by_one(products: list[UOp]) -> UOp:
    return functools.reduce(add_product, products)


def _onto_each_other(products: list[UOp]) -> UOp:
    """Products of small matrices, each of which starts from what those before it gave."""
    total, *rest = products
    for product in rest:
        item, _, *factors = product.src
        total = product.with_src((item, total, *factors))
    return total


def _from_start(total: UOp, op: Ops) -> UOp:
    """A sum of floats starts from 0.0, and is never -0.0: products of small matrices have started from it."""
    is_sum = op is Ops.ADD and total.dtype.is_float and total.op is not Ops.MMA
    return total + 0.0 if is_sum else total


def _combined(values: list[UOp], op: Ops) -> UOp:
    """A tree, so that no operation waits for all others."""
    while len(values) > 1:
        pairs = [UOp(op, a.dtype, (a, b)) for a, b in zip(values[::2], values[1::2])]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]
