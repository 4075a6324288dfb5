"""Sums weighted by powers of a distance from a maximum, as softmax weighs: what they look like in a nest.

Owns: finding powers, weighted sums, and what is summed beside a maximum of its own loops. Does not own: what is done with them
(steps/rescale_blocks.py, steps/carry_maximum.py).

    e(x, m) = exp2((x - m) * c), c > 0         sum[j](e(x(j), max[i](x(i))) / s * v(j)), s = sum[i](e(x(i), ...))

The law that both steps use, e(x, b) * e(b, m) = e(x, m), is one of the reals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

from proofgrad.core.compile.nests.loops import BINDERS
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.ir.op_names import REDUCE
from proofgrad.core.ir.ops import CONVERSIONS, Ops
from proofgrad.core.ir.uop import UOp, toposort

POWERS = frozenset({Ops.EXP2, Ops.EXP})


@dataclass(frozen=True, slots=True)
class Power:
    """`node` is exp2((`value` - `reference`) * `factor`), of which `reference` is a maximum; `factor` is above 0."""

    node: UOp
    value: UOp
    reference: UOp
    factor: UOp | None

    def of(self, value: UOp, reference: UOp) -> UOp:
        """The same function of another value and reference."""
        distance = value - reference
        exponent = distance if self.factor is None else distance * self.factor
        return UOp(Ops.EXP2, self.node.dtype, (exponent,))


def power_of(node: UOp, reference: Ops) -> Power | None:
    """The power that a node is, if what is subtracted is an operation of this kind. One of e is one of 2."""
    if node.op not in POWERS:
        return None
    distance, factor = _scaled(node.src[0])
    if (difference := _difference(distance, reference)) is None:
        return None
    if node.op is Ops.EXP:
        factor = distance.const_like((1.0 if factor is None else factor.arg) / log(2))
    return Power(node, *difference, factor)


def _scaled(exponent: UOp) -> tuple[UOp, UOp | None]:
    """A distance, and the constant above 0 that it is multiplied by; None: by nothing."""
    for distance, factor in (exponent.src, exponent.src[::-1]) if exponent.op is Ops.MUL else ():
        if factor.op is Ops.CONST and 0 < factor.arg < inf:
            return distance, factor
    return exponent, None


def _difference(distance: UOp, reference: Ops) -> tuple[UOp, UOp] | None:
    """What is subtracted from what, if the first is an operation of this kind; the latter may be a product."""
    if distance.op is Ops.MULACC and _is_negative_of(distance.src[2], reference):
        return UOp(Ops.MUL, distance.dtype, distance.src[:2]), distance.src[2].src[0]
    for value, other in (distance.src, distance.src[::-1]) if distance.op is Ops.ADD else ():
        if _is_negative_of(other, reference):
            return value, other.src[0]
    return None


def _is_negative_of(node: UOp, op: Ops) -> bool:
    return node.op is Ops.NEG and node.src[0].op is op


@dataclass(frozen=True, slots=True)
class Weighted:
    """A sum over one row, or the blocks of one and the elements of a block, of a power times `rest`, under a mask perhaps.

    `around` are the factors and divisors of the power that do not change with the loops, inner first: they may be those of the
    sum. `casts` convert the power, or a product of it, to other types, or round it for matrix units.
    """

    total: UOp
    mask: UOp | None
    power: Power
    casts: tuple[UOp, ...]
    around: tuple[UOp, ...]
    rest: UOp | None

    def term(self, power: UOp) -> UOp:
        """The term of the sum with another power, and nothing around it."""
        for cast in self.casts:
            power = cast.with_src((power,))
        term = power if self.rest is None else power * self.rest
        return term if self.mask is None else self.mask.where(term, term.const_like(0))

    def whole(self, total: UOp) -> UOp:
        """What is around the power, around another sum."""
        for node in self.around:
            src = [total if _has_power(s, self.power.node) else s for s in node.src]
            total = UOp(node.op, total.dtype, tuple(src))
        return total


def weighted_sum(total: UOp) -> Weighted | None:
    """The sum that a reduction is; None for another."""
    if total.op is not Ops.REDUCE or total.arg is not Ops.ADD or not total.dtype.is_float:
        return None
    term, mask = total.src[0], None
    if is_masked(term):
        mask, term = term.src[:2]
    for weight, rest in ((term, None), *_factors(term)):
        found = _weight(weight, total)
        if found is not None:
            power, casts, around = found
            types_agree = all([s.dtype is total.dtype for node in around for s in node.src])
            if types_agree and (rest is None or not _has_power(rest, power.node)):
                return Weighted(total, mask, power, casts, around, rest)
    return None


def _factors(term: UOp) -> list[tuple[UOp, UOp | None]]:
    return [(term.src[0], term.src[1]), (term.src[1], term.src[0])] if term.op is Ops.MUL else []


def _weight(node: UOp, total: UOp) -> tuple[Power, tuple[UOp, ...], tuple[UOp, ...]] | None:
    """The power below casts, and below products and quotients by what is the same for the whole sum; inner first."""
    own, casts, around = frozenset(total.src[1:]), list[UOp](), list[UOp]()
    while (power := power_of(node, Ops.REDUCE)) is None:
        inner = None
        if node.op in CONVERSIONS:
            casts.append(node)
            inner = node.src[0]
        elif node.op is Ops.MUL or node.op is Ops.FDIV:
            moving = [s for s in node.src if loops_of(s) & own]
            if len(moving) == 1 and (node.op is Ops.MUL or moving[0] is node.src[0]):
                (inner,) = moving
            around.append(node)
        if inner is None:
            return None
        node = inner
    maximum = power.reference
    is_maximum = maximum.arg is Ops.MAX and not loops_of(maximum) & own
    return (power, tuple(casts[::-1]), tuple(around[::-1])) if is_maximum else None


def divisor_of(above: Weighted) -> Weighted | None:
    """The sum of the same powers by which the weights of a sum are divided; None if there is none, or more is made of it."""
    found = []
    for node in (*above.around, *[s for n in above.around for s in n.src]):
        sums = weighted_sum(node.src[1]) if node.op is Ops.FDIV else None
        if sums is not None and sums not in found:
            found.append(sums)
    is_one = len(found) == 1 and found[0].power.reference is above.power.reference
    is_plain = is_one and found[0].rest is None and not found[0].around and not found[0].casts
    return found[0] if is_plain else None


def _has_power(node: UOp, power: UOp) -> bool:
    return power in toposort((node,), lambda n: n.op not in BINDERS)


def is_divided_inside(total: UOp) -> bool:
    """Whether the weights of a sum are each divided by what is the same for all of it."""
    found = weighted_sum(total)
    return found is not None and bool(found.around)


def loops_over_row(total: UOp) -> tuple[UOp, ...]:
    """The loops over one row of a sum, of the sum that its weights are divided by, and of the maximum; none if it has none."""
    above = weighted_sum(total)
    below = None if above is None else divisor_of(above)
    if above is None or below is None:
        return ()
    reductions = total, below.total, above.power.reference
    loops = [loop for n in reductions for loop in n.src[1:]]
    return tuple(loops) if len(set(loops)) == len(loops) == 3 else ()


# -- beside a maximum of the same loops ---------------------------------------------------------


def own_maximum(reduction: UOp) -> UOp | None:
    """The maximum over the loops of a sum, of which it takes in powers: e(b, m) * p. None if it takes in something else."""
    found = beside_maximum(reduction)
    return None if found is None else found[0].reference.src[0]


def beside_maximum(reduction: UOp) -> tuple[Power, UOp] | None:
    """The power of a distance from the maximum over the reduction's own loops, and what it is multiplied by."""
    if reduction.op is not Ops.REDUCE or reduction.arg is not Ops.ADD or len(reduction.src) != 2:
        return None
    value, loop = reduction.src
    if value.op is not Ops.MUL:
        return None
    for scale, part in (value.src, value.src[::-1]):
        power = power_of(scale, Ops.MAX)
        if power is None:
            continue
        maximum = power.reference.src[0]
        is_own = maximum.op is Ops.REDUCE and maximum.arg is Ops.MAX and maximum.src[1:] == (loop,)
        if is_own and maximum.src[0] is power.value and maximum not in toposort((part,)):
            return power, part
    return None


def loops_of_blocks(kernel: UOp) -> frozenset[UOp]:
    """The loops over which sums are taken beside a maximum of their own."""
    sums = [n for n in toposort((kernel,)) if n.op is REDUCE and own_maximum(n) is not None]
    return frozenset([n.src[1] for n in sums])


def run_together(readers: Sequence[UOp]) -> bool:
    """Whether these are sums beside one maximum of their own loop, and that maximum: one loop carries them all."""
    maxima = {own_maximum(n) for n in readers if n.arg is not Ops.MAX}
    return len(maxima) == 1 and maxima == {n for n in readers if n.arg is Ops.MAX}
