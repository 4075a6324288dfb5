"""What a sum of products looks like: as a tensor node, and as the term of a kernel's loop.

Does not own: what is done with one (split_reductions.py, fusion/kernels.py, nested_sums.py, tiles.py,
accumulate.py).
"""

from __future__ import annotations

from typing import NamedTuple

from proofgrad.core.ir.op_names import ADD, EXPAND, MUL, MULACC, REDUCE_AXIS
from proofgrad.core.ir.ops import CONVERSIONS, MOVEMENT, Ops
from proofgrad.core.ir.uop import UOp

# One product of two factors, or of two words the products of their numbers.
PRODUCTS = frozenset({Ops.MUL, Ops.DOT})


def is_contraction(node: UOp) -> bool:
    """A sum of products whose factors are each used for many results, as in a product of matrices."""
    return node.op is REDUCE_AXIS and node.arg[0] is ADD and is_product(node.src[0])


def is_product(node: UOp) -> bool:
    """The terms of such a sum: a product of values that are both expanded."""
    return node.op is MUL and all([_is_expanded(factor) for factor in node.src])


def operands(contraction: UOp) -> list[UOp]:
    """What the factors of a contraction read, below the movement operations."""
    return [below_views(factor) for factor in contraction.src[0].src]


def below_views(node: UOp) -> UOp:
    """What movement operations show."""
    while node.op in MOVEMENT:
        node = node.src[0]
    return node


def is_masked(term: UOp) -> bool:
    """Whether a term of a sum is a choice between a value and 0, which changes no sum."""
    return term.op is Ops.WHERE and term.src[2].op is Ops.CONST and term.src[2].arg == 0


def below_conversions(factor: UOp) -> UOp:
    """What a factor is before it is converted."""
    while factor.op in CONVERSIONS:
        factor = factor.src[0]
    return factor


class Product(NamedTuple):
    """A product of two factors where all masks hold, outermost first; elsewhere 0."""

    factors: tuple[UOp, ...]
    masks: tuple[UOp, ...]
    op: Ops = Ops.MUL


def product_of(term: UOp) -> Product | None:
    """The product that a term of a sum is, under its masks; None for another term."""
    masks: list[UOp] = []
    while is_masked(term):
        masks.append(term.src[0])
        term = term.src[1]
    return Product(term.src, tuple(masks)) if term.op is Ops.MUL else None


def added(before: UOp, product: Product) -> UOp:
    """A sum that took in one more product. The sum starts from 0.0, so adding 0 changes nothing: it is never -0.0."""
    if product.op is MUL:
        after = UOp(MULACC, before.dtype, (*product.factors, before))
    else:
        after = before + UOp(product.op, before.dtype, product.factors)
    for mask in reversed(product.masks):
        after = mask.where(after, before)
    return after


def add_product(before: UOp, term: UOp) -> UOp:
    """A sum that took in one more term, multiplied and added at once if it is a product."""
    product = product_of(term)
    return before + term if product is None else added(before, product)


def products_added(total: UOp) -> list[Product] | None:
    """The products that a reduction adds in one iteration; None if it adds something else.

    Of floats those that `add_product` put together, each an element of the reduction: where a body adds
    `a * b + c * d`, the element is the rounded sum. Of integers, where no order of additions shows, any parts.
    """
    found: list[Product] = []
    waiting: list[tuple[UOp, tuple[UOp, ...], UOp | None]] = [(total, (), None)]
    while waiting:
        part, masks, before = waiting.pop()  # what was added to `before`, where the masks hold
        if part is before:
            continue
        match part.op:
            case Ops.MULACC:
                found.append(Product(part.src[:2], masks))
                waiting.append((part.src[2], masks, before))
            case Ops.WHERE if before is None and is_masked(part):
                waiting.append((part.src[1], (*masks, part.src[0]), None))
            case Ops.WHERE:
                mask, after, otherwise = part.src
                waiting += [(otherwise, masks, before), (after, (*masks, mask), otherwise)]
            case Ops.MUL | Ops.DOT if before is None:
                found.append(Product(part.src, masks, part.op))
            case Ops.ADD if before is None and not part.dtype.is_float:
                waiting += [(source, masks, None) for source in part.src]
            case _:
                return None
    return found[::-1]


def _is_expanded(node: UOp) -> bool:
    while node.op in MOVEMENT:
        if node.op is EXPAND and node.shape != node.src[0].shape:
            return True
        node = node.src[0]
    return False
