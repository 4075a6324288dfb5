"""Products of small matrices by a warp, of which the reference runs one item at a time, or by one item.

Owns: what such a product is for one item. Does not own: all other operations (__init__.py), which item holds what
(core/ir/fragments.py).
"""

from __future__ import annotations

from typing import Any, Protocol

from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.fragments import (
    QUARTERS,
    WARP,
    column_holder,
    fragments_of,
    result_element,
    row_holder,
    square_of,
)
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


class Run(Protocol):
    """One item of a kernel: the values of its nodes so far, each a number or a tuple of lanes."""

    values: dict[UOp, Any]

    def value(self, node: UOp) -> Any:
        """That of a node, a constant included."""

    def step(self, node: UOp) -> None:
        """Compute the value of a node, whose sources have theirs."""


def product_of_warp(run: Run, node: UOp) -> tuple[Any, ...]:
    """The results of an MMA that this item gets, from what the items of its warp hold, which is computed for each of them."""
    if square_of(node) is not None:
        return _product_in_item(run, node)
    parts, dtype = fragments_of(node), node.dtype.scalar
    item = run.values[parts.item]
    first, total = item // WARP * WARP, list(run.value(parts.before))
    kind, known = parts.column.dtype.scalar, dict[tuple[UOp, int], tuple[Any, ...]]()

    def held(factor: UOp, lane: int) -> tuple[Any, ...]:
        if (factor, lane) not in known:
            known[factor, lane] = _held_by(run, factor, parts.item, first + lane)
        return known[factor, lane]

    for register in range(len(total)):
        row, column = result_element(item, register)
        for step in range(QUARTERS * parts.steps):
            lane, half, k = row_holder(row, step, parts.steps)
            one = held(parts.rows[half], lane)[k]
            lane, k = column_holder(step, column, parts.steps)
            both = one, held(parts.column, lane)[k]
            factors = [evaluate(Ops.CAST, dtype, (x,), (kind,)) for x in both]
            total[register] = evaluate(Ops.MULACC, dtype, (*factors, total[register]))
    return tuple(total)


def _product_in_item(run: Run, node: UOp) -> tuple[Any, ...]:
    """All results of an MMA whose elements one item holds."""
    parts, square, dtype = fragments_of(node), square_of(node), node.dtype.scalar
    assert square is not None
    total, factors = list(run.value(parts.before)), (*parts.rows, parts.column)
    rows, columns = [
        [evaluate(Ops.CAST, dtype, (x,), (factor.dtype.scalar,)) for x in run.value(factor)]
        for factor in factors
    ]
    for register in range(len(total)):
        row, column = square.result_element(register)
        for step in range(square.steps):
            one, other = square.row_holder(row, step), square.column_holder(step, column)
            taken = rows[one], columns[other], total[register]
            total[register] = evaluate(Ops.MULACC, dtype, taken)
    return tuple(total)


def _held_by(run: Run, factor: UOp, item: UOp, other: int) -> tuple[Any, ...]:
    """What another item of the group holds of a factor, in the same iterations of all loops but its own."""
    changing = {item: run.values[item]}
    for node in toposort((factor,), lambda n: n.op not in (Ops.FILLED, Ops.RESULT)):
        if not changing.keys().isdisjoint(node.src):
            changing[node] = run.values.get(node)
    run.values[item] = other
    for node in list(changing)[1:]:
        run.step(node)
    found: tuple[Any, ...] = run.value(factor)
    run.values.update(changing)
    return found
