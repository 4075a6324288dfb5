"""Sums that select one term by a comparison with a counter: they are no loops in the end, if the rules can see the comparison.

Owns: which comparisons do so, what they compare, and which sums. Does not own: the rules that take the loop away, what gets a
buffer (kernels.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from proofgrad.core.compile.fusion.work import may_select_a_term
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.memory import changed_in_part
from proofgrad.core.compile.schedule.scatters import pays_scatter
from proofgrad.core.ir.op_names import IOTA
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp

_TRANSPARENT = (MOVEMENT | {Ops.DETACH}) - {Ops.PAD, Ops.SKEW}


def comparisons_with_counters(nodes: list[UOp]) -> set[UOp]:
    """Comparisons with a counter, and what is made of them. `nodes`: sources first."""
    counters: set[UOp] = set()  # made of counters and constants only
    found: set[UOp] = set()
    for node in nodes:
        if node.op is IOTA or (
            (node.op in ELEMENTWISE or node.op in MOVEMENT)
            and any([s in counters for s in node.src])
            and all([s in counters or not _shown(s).src for s in node.src])
        ):
            counters.add(node)
        elif node.op in COMPARE:
            if any([s in counters for s in node.src]):
                found.add(node)
        elif any([s in found for s in node.src]) and (
            node.dtype.is_bool or node.op in MOVEMENT or (node.op is Ops.CAST and node.dtype.is_int)
        ):
            found.add(node)
    return found


def with_what_is_compared(nodes: list[UOp], masks: set[UOp]) -> set[UOp]:
    """These comparisons and all that they compare."""
    compared = set(masks)
    for node in reversed(nodes):
        if node in compared and (node.op in ELEMENTWISE or node.op in MOVEMENT):
            compared.update(node.src)
    return compared


def selects(reduction: UOp, selecting: set[UOp]) -> bool:
    """Whether it is a sum that selects one term, which is no loop in the end."""
    return _compares(reduction, selecting) and may_select_a_term(reduction, frozenset())


def masks_of_selections(
    reductions: Iterable[UOp], masks: set[UOp], selecting: set[UOp]
) -> set[UOp]:
    """The comparisons, and what is made of them, by which these sums select one term.

    In memory they would be tables of all positions and all choices, and each sum a loop over its row: as many additions as there are choices.
    """
    waiting = [r.src[0] for r in reductions if selects(r, selecting)]
    found: set[UOp] = set()
    while waiting:
        node = waiting.pop()
        more = [source for source in (node, *node.src) if source in masks and source not in found]
        found.update(more)
        waiting += more
    return found


def combines_by_position(reduction: UOp, selecting: set[UOp], target: Target) -> bool:
    """Whether it combines by position, as `sum[j](where(position[j] == r, value[j], 0))` does: alone in its kernel it goes source by source, and
    several of a sum, as the gradients of `x[i] * x[j]`, are one kernel to compile."""
    if not _compares(reduction, selecting) or selects(reduction, selecting):
        return False
    results = elements(reduction.shape)
    values = elements(reduction.src[0].shape) // max(1, results)
    return pays_scatter(results, values, 1, target)


def last_writers(root: UOp) -> set[UOp]:
    """The extremes by which memory that changes in part knows the last value of each position: its kernel writes value by value
    (tactics/scatter.py)."""
    found: set[UOp] = set()
    for node in root.src:
        changes = changed_in_part(node) is not None
        while changes and node.op in (Ops.WHERE, Ops.RESHAPE):
            if node.op is Ops.WHERE:
                found |= {n for n in _asked(node.src[0]) if n.arg[0] is Ops.MAX}
            node = node.src[-1]
    return found


def _asked(condition: UOp) -> list[UOp]:
    """The reductions that a condition compares with constants."""
    found, waiting = [], [condition]
    while waiting:
        node = _shown(waiting.pop())
        if node.op is Ops.REDUCE_AXIS:
            found.append(node)
        elif node.op in COMPARE or node.op is Ops.NOT:
            waiting += node.src
    return found


def _compares(reduction: UOp, selecting: set[UOp]) -> bool:
    return not selecting.isdisjoint((reduction.src[0], *reduction.src[0].src))


def _shown(node: UOp) -> UOp:
    """What a node shows through movement operations that add no elements."""
    while node.op in _TRANSPARENT:
        node = node.src[0]
    return node
