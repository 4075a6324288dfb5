"""Forms in which one reduction may stand: written out, nested, under masks, as multiply-adds; each equal to the others.

Owns: these forms, as far as the order of a reduction is not specified and zeros change no sum. Does not own: comparing what is
combined (kernels/match.py), reductions over parts of the iterations (kernels/unions.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.verify.kernels.linear_sums import linear_form
from proofgrad.verify.kernels.questions import all_of
from proofgrad.verify.kernels.terms import loop_size

# From a byte with a sign, or without, to the one of the other kind whose number is so far above it, as a machine that wraps adds it.
DISTANCES: dict[tuple[DType, DType], int] = {
    (dtypes.int8, dtypes.uint8): 128,
    (dtypes.uint8, dtypes.int8): -128,
}


def combined_by(op: Ops, node: UOp) -> list[UOp]:
    """What is combined; a masked sum is a sum of masked terms, as far as zeros change no sum."""
    if node.op is op:
        return [t for s in node.src for t in combined_by(op, s)]
    if op is Ops.ADD and is_masked(node):
        mask, value, zero = node.src
        return [mask.where(t, zero) for t in combined_by(op, value)]
    if op is Ops.ADD and (taken := _taken_in(node)) is not None:
        products, before = taken
        return [*products, *combined_by(op, before)]
    return [node]


def _taken_in(node: UOp) -> tuple[list[UOp], UOp] | None:
    """The products, under masks, that multiply-adds brought into a sum, and the sum before them."""
    products: list[UOp] = []
    if node.op is Ops.WHERE:
        mask, after, before = node.src
        while after is not before:
            taken = _taken_in(after)
            if taken is None:
                return None
            products += [mask.where(p, UOp.const(p.dtype, 0)) for p in taken[0]]
            after = taken[1]
        return products, before
    if node.op is not Ops.MULACC:
        return None
    return [UOp(Ops.MUL, node.dtype, node.src[:2])], node.src[2]


def choice_of(node: UOp) -> tuple[UOp, UOp, UOp] | None:
    """(condition, value if it is true, if it is false) of what chooses: a bool as a number is 1 or 0."""
    if node.op is Ops.WHERE:
        return node.src[0], node.src[1], node.src[2]
    if node.op is Ops.CAST and node.src[0].dtype.is_bool:
        return node.src[0], UOp.const(node.dtype, 1), UOp.const(node.dtype, 0)
    return None


def is_masked(node: UOp) -> bool:
    """Whether a value is 0 where a condition fails."""
    return node.op is Ops.WHERE and node.src[2].op is Ops.CONST and node.src[2].arg == 0


def is_written_out(before: UOp, after: UOp) -> bool:
    """Whether a reduction has a loop to be written out that the term after no longer runs over."""
    copied = [x for x in before.src[1:] if x.arg[1] is AxisRole.UPCAST]
    return bool(copied) and not (after.op is Ops.REDUCE and set(copied) & set(after.src[1:]))


def written_out(reduction: UOp) -> UOp:
    """The same reduction with the values of its UPCAST loops combined pair by pair."""
    loop = next(x for x in reduction.src[1:] if x.arg[1] is AxisRole.UPCAST)
    values = [reduction.src[0].substitute({loop: UOp.index(k)}) for k in range(loop_size(loop))]
    while len(values) > 1:
        couples = [values[k : k + 2] for k in range(0, len(values), 2)]
        values = [c[0] if len(c) == 1 else c[0].alu(reduction.arg, c[1]) for c in couples]
    rest = tuple([x for x in reduction.src[1:] if x is not loop])
    if not rest:
        is_float_sum = reduction.arg is Ops.ADD and reduction.dtype.is_float
        return values[0] + 0.0 if is_float_sum else values[0]
    less = reduction.replace(src=(values[0], *rest))
    return written_out(less) if any(x.arg[1] is AxisRole.UPCAST for x in rest) else less


def with_inner_sums(total: UOp) -> UOp:
    """sum[a](where(p, sum[b](x), 0)) as sum[a, b](where(p, x, 0)): zeros change no sum."""
    masks: list[UOp] = []
    loops, value = list(total.src[1:]), total.src[0]
    while total.arg is Ops.ADD:
        if value.op is Ops.REDUCE and value.arg is Ops.ADD:
            loops += value.src[1:]
            value = value.src[0]
        elif is_masked(value):
            masks.append(value.src[0])
            value = value.src[1]
        else:
            break
    if masks:
        value = all_of(masks).where(value, UOp.const(value.dtype, 0))
    return total.replace(src=(value, *loops))


def is_nested(total: UOp) -> bool:
    """Whether a reduction combines what another one by the same operation gives, over other loops."""
    value = total.src[0]
    is_inside = value.op is Ops.REDUCE and value.arg is total.arg
    return is_inside and set(value.src[1:]).isdisjoint(total.src[1:])


def in_one(total: UOp) -> UOp:
    """reduce[a](reduce[b](x)) as reduce[b, a](x): the order of a reduction is not specified."""
    while is_nested(total):
        inner = total.src[0]
        total = total.replace(src=(inner.src[0], *inner.src[1:], *total.src[1:]))
    return total


@dataclass(frozen=True, slots=True)
class OffsetSum:
    """sum[k]((a + d) * b) + sum[j](y) * -d of bytes: `plain` is sum[k](a * b), and equal to it if `wanted`, sum[k](b), is `beside`, sum[j](y)."""

    plain: UOp
    wanted: UOp
    beside: UOp


def offset_sum(node: UOp) -> OffsetSum | None:
    """A value as such a sum, where it is written as one."""
    if node.op is not Ops.ADD or not node.dtype.is_int:
        return None
    for total, off in (node.src, node.src[::-1]):
        if total.op is Ops.REDUCE:
            total = in_one(total)
        is_sum = total.op is Ops.REDUCE and total.arg is Ops.ADD and total.src[0].op is Ops.MUL
        if not is_sum or off.op is not Ops.MUL or off.src[1].op is not Ops.CONST:
            continue
        one, two = total.src[0].src
        for factor, other in ((one, two), (two, one)):
            if (byte := _at_distance(factor, -off.src[1].arg)) is not None:
                mask, number = byte
                beside = mask.where(other, other.const_like(0)) if mask is not None else other
                plain = total.with_src((number * beside, *total.src[1:]))
                return OffsetSum(plain, total.with_src((beside, *total.src[1:])), off.src[0])
    return None


def _at_distance(factor: UOp, distance: int) -> tuple[UOp | None, UOp] | None:
    """Of a byte of one kind, that is one of the other kind at the distance, under a mask: the mask, and the number of the other one."""
    if factor.op is not Ops.CAST:
        return None
    byte, mask = factor.src[0], None
    if is_masked(byte):
        mask, byte = byte.src[:2]
    if byte.op is not Ops.ADD or byte.src[0].op is not Ops.CAST:
        return None
    other, added = byte.src[0].src[0], byte.src[1]
    known = DISTANCES.get((other.dtype, byte.dtype))
    if known != distance or added.op is not Ops.CONST or added.arg != distance:
        return None
    return mask, other.cast(factor.dtype)


def by_stride(reduction: UOp) -> UOp:
    """The same reduction, whose order is not specified, with its loops as they lie in what it loads, the furthest apart first.

    Those of many parts of one loop are its digits in this order, most likely.
    """
    strides: dict[UOp, int] = {}
    addends = [n.src[1] for n in toposort((reduction.src[0],)) if n.op is Ops.INDEX]
    while addends:
        addend = addends.pop()
        form = linear_form(addend)
        if form is None:  # of a sum with a part that is nearest to something, the others
            addends += addend.src if addend.op is Ops.ADD else ()
            continue
        for part, stride in form.parts.items():
            while part.op is not Ops.RANGE:
                part = part.src[0]
            strides[part] = max(stride, strides.get(part, 0))
    loops = sorted(reduction.src[1:], key=lambda x: -strides.get(x, 0))
    return reduction.replace(src=(reduction.src[0], *loops))
