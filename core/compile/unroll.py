"""Kernel -> Kernel: loops of the role UPCAST are written out.

Owns: that change of the iteration space; tests/test_procedures.py validates that no value changes. Does
not own: which loops (axes.py).
"""

from __future__ import annotations

import functools

from proofgrad.core.compile.contraction import output_loops, size_of
from proofgrad.core.compile.linear_terms import loops_below
from proofgrad.core.compile.sums_of_products import add_product, product_of
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def unroll_upcasts(kernel: UOp) -> UOp:
    """Each UPCAST loop is written out: copies of the stores, or of what a reduction combines."""
    kernel = _unroll_reductions(kernel)
    while True:
        loops = [x for x in output_loops(kernel) if x.arg[1] is AxisRole.UPCAST]
        if not loops:
            return kernel
        kernel = UOp.sink(*[copy for store in kernel.src for copy in _copies(store, loops[0])])


def _copies(term: UOp, loop: UOp) -> list[UOp]:
    """`term` at each value of `loop`; what does not change with it is looked at once."""
    changing: dict[UOp, None] = {loop: None}
    for node in toposort((term,)):
        if not changing.keys().isdisjoint(node.src):
            changing[node] = None
    copies: list[UOp] = []
    for k in range(size_of(loop)):
        at = {loop: UOp.index(k)}
        for node in changing:
            if node is not loop:
                src = tuple([at.get(s, s) for s in node.src])
                at[node] = UOp(node.op, node.dtype, src, node.arg)
        copies.append(at.get(term, term))
    return copies


def _unroll_reductions(kernel: UOp) -> UOp:
    """The values of UPCAST loops of a reduction are combined, then with those of the other loops.

    Products of floats go into the sum one by one where several sums run side by side, as in a tile; else
    the one sum would wait for itself, and its rounding errors would add up.
    """
    done: dict[UOp, UOp] = {}
    free = loops_below(kernel)
    for node in toposort((kernel,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        if new.op is Ops.REDUCE:
            new = _unrolled(new, any(x.arg[1] is AxisRole.UPCAST for x in free[node]))
        done[node] = new
    return done[kernel]


def _unrolled(reduction: UOp, is_beside_others: bool) -> UOp:
    """A reduction without its UPCAST loops."""
    (value, *loops), op = reduction.src, reduction.arg
    copied = [loop for loop in loops if loop.arg[1] is AxisRole.UPCAST]
    if not copied:
        return reduction
    rest = tuple([loop for loop in loops if loop not in copied])
    is_sum = bool(rest) and op is Ops.ADD and value.dtype.is_float
    if is_sum and is_beside_others and product_of(value) is not None:
        values = [value]
        for loop in copied:
            values = [copy for value in values for copy in _copies(value, loop)]
        return reduction.replace(src=(_one_by_one(values), *rest))
    for loop in copied:
        value = _combined(_copies(value, loop), op)
    return reduction.replace(src=(value, *rest)) if rest else _from_start(value, op)


def _one_by_one(products: list[UOp]) -> UOp:
    return functools.reduce(add_product, products)


def _from_start(total: UOp, op: Ops) -> UOp:
    """A sum of floats starts from 0.0, and is never -0.0."""
    return total + 0.0 if op is Ops.ADD and total.dtype.is_float else total


def _combined(values: list[UOp], op: Ops) -> UOp:
    """A tree, so that no operation waits for all others."""
    while len(values) > 1:
        pairs = [UOp(op, a.dtype, (a, b)) for a, b in zip(values[::2], values[1::2])]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]
