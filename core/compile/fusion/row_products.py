"""Which products of matrices run inside the kernel of a product of what is made of their rows, as in attention.

Owns: the conditions. Does not own: other reductions by row (rows.py), how such a kernel runs (schedule/row_products.py).

    sum[j](w(i, j) * v(j, d)),   w(i, j) made of s(i, 0), s(i, 1), ...,   s(i, j) = sum[k](q(i, k) * c(j, k))

A softmax of scores is such a w. Some rows of s and w stay in the cache of the core that computes them, and no matrix of scores is
ever in memory. That pays where the matrix would not stay in the cache, and c and v do: each few rows read all of both.
"""

from __future__ import annotations

from collections.abc import Mapping

from proofgrad.core.compile.fusion.limits import MOST_REDUCTIONS
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.sums_of_products import is_contraction
from proofgrad.core.compile.schedule.row_products import Sizes as Sizes
from proofgrad.core.compile.schedule.row_products import pays, pays_in_blocks
from proofgrad.core.compile.schedule.warp_rows import pays_in_warps
from proofgrad.core.compile.steps.rescale_blocks import is_asked_for
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import REDUCE_AXIS
from proofgrad.core.ir.ops import CONVERSIONS, MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp

_NONE: frozenset[UOp] = frozenset()
_SAME_ELEMENTS = frozenset({Ops.RESHAPE, Ops.EXPAND, *CONVERSIONS})


def products_by_row(
    nodes: list[UOp],
    consumers: Mapping[UOp, list[UOp]],
    stored: set[UOp],
    kept: set[UOp],
    target: Target,
) -> set[UOp]:
    """Nodes of `stored` that need no buffer: the scores s and the weights w of such products.

    `kept` are those that must have one.
    """
    found: set[UOp] = set()
    totals = [n for n in nodes if is_contraction(n)]
    run = _reductions_run(nodes, stored) if totals else {}
    for total in totals:
        for factor in total.src[0].src:
            weights = _below(factor, stored)
            scores = None if weights is None else _scores_of(weights, stored, run)
            if weights is None or scores is None or not kept.isdisjoint((weights, scores)):
                continue
            is_alone = _kernels_with(scores, consumers, stored) == {weights}
            is_alone &= _is_last(total, _kernels_with(weights, consumers, stored), stored)
            if not is_alone or not leave_the_cache(scores, target):
                continue
            sizes = _sizes(total, weights, scores, stored)
            if sizes is not None and (
                pays(sizes, total.dtype, target)
                or (_are_of_softmax(weights, stored) and pays_in_blocks(sizes, total.dtype, target))
                or _by_units(sizes, total, weights, scores, stored, target)
            ):
                found |= {weights, scores}
    return found


def leave_the_cache(scores: UOp, target: Target) -> bool:
    """Whether the matrix is longer than what a kernel may count on of the second cache."""
    return elements(scores.shape) * scores.dtype.itemsize > target.room_bytes


def takes_keys_once(
    matrices: int, sizes: Sizes, types: tuple[DType, DType], is_rounded: bool, target: Target
) -> bool:
    """Whether attention of so many matrices, of factors and sums of these types, is one kernel in which keys go by once.

    It leaves out blocks of keys that a mask hides from a block of rows (steps/hidden_blocks.py).
    """
    _, total = types
    nbytes = matrices * sizes.rows * sizes.keys * total.itemsize
    if not is_asked_for() or nbytes <= target.room_bytes:
        return False
    holds_scores = target.row_part_bytes > 0 and pays_in_warps(sizes, types, is_rounded, 2, target)
    return holds_scores or pays_in_blocks(sizes, total, target)


def _are_of_softmax(weights: UOp, stored: set[UOp]) -> bool:
    """Whether the rows of weights are powers that a maximum and a sum of the row decide."""
    inside = _inside(weights, stored)
    reductions = [n.arg[0] for n in inside if n.op is Ops.REDUCE_AXIS]
    return sorted(reductions, key=lambda op: op.name) == [Ops.ADD, Ops.MAX]


def _by_units(
    sizes: Sizes, total: UOp, weights: UOp, scores: UOp, stored: set[UOp], target: Target
) -> bool:
    """Whether matrix units multiply both, of factors of one type, those of scores as memory holds them."""
    product = _product_in(scores, stored)
    assert product is not None
    factors = {_before_cast(x, stored) for x in product.src[0].src}
    both = *product.src[0].src, *total.src[0].src
    (dtype, *others) = {_before_cast(x, stored).dtype for x in both}
    (is_rounded, *also) = {_is_rounded(x, stored) for x in both}
    if others or also or not all([x in stored or x.op is Ops.BUFFER for x in factors]):
        return False
    reductions = [n for n in _inside(weights, stored) if n.op is Ops.REDUCE_AXIS]
    types = dtype, total.dtype
    return pays_in_warps(sizes, types, is_rounded, len(reductions), target)


def _is_rounded(factor: UOp, stored: set[UOp]) -> bool:
    """Whether it is rounded for units, below movement."""
    while factor not in stored and factor.op in MOVEMENT:
        factor = factor.src[0]
    return factor.op is Ops.TF32


def _before_cast(factor: UOp, stored: set[UOp]) -> UOp:
    """What a factor was before it was converted to the type of the sum, or rounded."""
    is_converted = False
    while factor not in stored and (factor.op in MOVEMENT or factor.op in CONVERSIONS):
        if factor.op in CONVERSIONS and is_converted:
            break
        is_converted |= factor.op in CONVERSIONS
        factor = factor.src[0]
    return factor


def _below(factor: UOp, stored: set[UOp]) -> UOp | None:
    """The value with a buffer whose elements, each perhaps many times, a factor has."""
    while factor not in stored and factor.op in _SAME_ELEMENTS:
        factor = factor.src[0]
    return factor if factor in stored else None


def _reductions_run(nodes: list[UOp], stored: set[UOp]) -> dict[UOp, frozenset[UOp]]:
    """For each node the reductions that its kernel runs to compute it; of one that runs more than the limit, some.

    Found once for all, as the kernel of a state of a recurrent network may go back to its beginning before limits.py cuts it.
    """
    found: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        run = frozenset((node,)) if node.op is REDUCE_AXIS else _NONE
        for source in node.src:
            more = _NONE if source in stored or len(run) > MOST_REDUCTIONS else found[source]
            if not more <= run:
                run = run | more if run else more
        found[node] = run
    return found


def _scores_of(weights: UOp, stored: set[UOp], run: Mapping[UOp, frozenset[UOp]]) -> UOp | None:
    """The one product of matrices that the kernel of `weights`, which reduces its rows, reads. `run`: of each node the reductions."""
    reductions, last = run[weights], (len(weights.shape) - 1,)
    if not reductions or any([is_contraction(n) or n.arg[1] != last for n in reductions]):
        return None
    inside = _inside(weights, stored)
    read = {s for n in inside for s in n.src if s in stored}
    products = [s for s in read if _product_in(s, stored) is not None]
    is_one = len(products) == 1 and products[0].shape == weights.shape
    return products[0] if is_one else None


def _product_in(value: UOp, stored: set[UOp]) -> UOp | None:
    """The sum of products that a kernel has, if it is the only reduction there."""
    reductions = [n for n in _inside(value, stored) if n.op is Ops.REDUCE_AXIS]
    return reductions[0] if len(reductions) == 1 and is_contraction(reductions[0]) else None


def _inside(value: UOp, stored: set[UOp]) -> list[UOp]:
    """The nodes of the kernel that computes a value."""

    def is_inside(node: UOp) -> bool:
        return node is value or node not in stored

    return [node for node in value.toposort(is_inside) if is_inside(node)]


def _kernels_with(value: UOp, consumers: Mapping[UOp, list[UOp]], stored: set[UOp]) -> set[UOp]:
    """The ends of the kernels that read a value."""
    ends, seen, stack = set[UOp](), {value}, [value]
    while stack:
        for user in consumers[stack.pop()]:
            if user in stored or not consumers[user]:
                ends.add(user)
            elif user not in seen:
                seen.add(user)
                stack.append(user)
    return ends


def _is_last(total: UOp, ends: set[UOp], stored: set[UOp]) -> bool:
    """Whether one kernel reads the weights, whose only reduction is the last sum."""
    inside = [node for end in ends for node in _inside(end, stored)]
    return len(ends) == 1 and [n for n in inside if n.op is Ops.REDUCE_AXIS] == [total]


def _sizes(total: UOp, weights: UOp, scores: UOp, stored: set[UOp]) -> Sizes | None:
    """The lengths of the loops i, j, k, d.

    None where the product does not go along the last axis of the weights, or c or v change with the row.
    """
    product, shape = _product_in(scores, stored), total.src[0].shape
    assert product is not None
    *around, keys = weights.shape
    rows = len(around) - 1
    ways = product.src[0].shape[: rows + 2] == weights.shape, shape[: rows + 1] == (*around,)
    if rows < 0 or not all(ways) or len(shape) != rows + 3 or total.arg[1] != (rows + 2,):
        return None
    others = [factor for factor in total.src[0].src if _below(factor, stored) is not weights]
    is_shared = [len(others) == 1 and _is_same_along(rows, *others)]
    is_shared += [_is_same_along(axis, *product.src[0].src) for axis in (rows, rows + 1)]
    depth = elements(product.src[0].shape) // max(1, elements(product.shape))
    return Sizes(around[rows], keys, depth, shape[rows + 1]) if all(is_shared) else None


def _is_same_along(axis: int, *factors: UOp) -> bool:
    """Whether one of some factors is expanded along an axis."""
    for factor in factors:
        while factor.op in CONVERSIONS:
            factor = factor.src[0]
        if factor.op is Ops.EXPAND and factor.src[0].shape[axis] == 1:
            return True
    return False
