"""What an instruction makes of an operand on the way: its magnitude, or its opposite.

Owns: which nodes are such a form of what is computed anyway. Does not own: the text (arithmetic.py), which machines have this (a dialect).

    -c < x and x < c   is   |x| < c          x * -c   is   -(x * c)

Bit for bit, but for the sign of NaN: products are rounded alike on both sides of 0, and comparisons with NaN are false.
"""

from __future__ import annotations

from proofgrad.core.ir.op_names import AND, BROADCAST, CMPLT, CONST, MUL
from proofgrad.core.ir.uop import UOp


def magnitude_below(node: UOp) -> tuple[UOp, UOp] | None:
    """x and c of what says that a float is between -c and c; None: it says something else."""
    if node.op is not AND or any([s.op is not CMPLT for s in node.src]):
        return None
    for one, other in (node.src, node.src[::-1]):
        (value, high), (low, same) = one.src, other.src
        bounds = number_of(low), number_of(high)
        is_both = value is same and value.dtype.is_float and None not in bounds
        if is_both and bounds[0] == -bounds[1]:  # type: ignore[operator]
            return value, high
    return None


def opposite_of(node: UOp) -> UOp | None:
    """The product by the opposite number; None: it is no product of a float by a number below 0."""
    if node.op is not MUL or not node.dtype.is_float:
        return None
    value, factor = node.src
    number = number_of(factor)
    if number is None or not number < 0:
        return None
    return node.with_src((value, _with_number(factor, -number)))


def number_of(node: UOp) -> float | None:
    """The float that a node has in every lane, or None."""
    if node.op is BROADCAST:
        node = node.src[0]
    is_number = node.op is CONST and node.dtype.is_float and not isinstance(node.arg, tuple)
    return float(node.arg) if is_number else None


def _with_number(node: UOp, number: float) -> UOp:
    if node.op is BROADCAST:
        return node.with_src((node.src[0].replace(arg=number),))
    return node.replace(arg=number)
