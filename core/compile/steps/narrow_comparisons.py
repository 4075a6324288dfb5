"""Integers that lanes compare are those of fewer bits, of which a vector holds more.

    x < y   =   x' < y'   where x' is x in w bits, and the facts show that both are values of the w bits

    least ... x ... y ... most

An operation in w bits of values that fit, with a result that fits, is the operation in more bits. What is another operation,
as a counter or an element that was loaded, is converted.
"""

from __future__ import annotations

from collections.abc import Mapping

from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.steps.bounds import fits
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, step
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.core.rewrite.facts import Facts

COMPARISONS = frozenset({Ops.CMPLT, Ops.CMPEQ})
ALIKE_IN_FEWER_BITS = frozenset(
    {Ops.ADD, Ops.NEG, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR, Ops.TRUNCDIV, Ops.TRUNCMOD}
)  # fmt: skip


@step("x < y = (x of w bits < y of w bits), if both fit them", makes_loops=False)
def narrow_comparisons(nest: LoopNest, width: DType) -> UOp:
    """Comparisons that change with a loop of lanes, of integers of more bits, are of `width` where their terms fit it."""
    require(width.is_int, "no machine integer", width)
    chosen = set(fitting_comparisons(nest, width))
    require(bool(chosen), "no comparison of lanes that fits", width)
    done: dict[UOp, UOp] = {}
    for node in toposort((nest.graph,)):
        if node in chosen:
            one, other = [in_width(x, width, nest.facts, done) for x in node.src]
            done[node] = node.with_src((one, other))
        else:
            done[node] = node.with_src(tuple([done[x] for x in node.src]))
    return done[nest.graph]


def fitting_comparisons(nest: LoopNest, width: DType) -> list[UOp]:
    """Those of more bits than `width` whose terms fit it."""
    wide = [node for node in toposort((nest.graph,)) if is_wide(node, width)]
    return [node for node in wide if all([fits(x, width, nest.facts) for x in node.src])]


def is_wide(node: UOp, width: DType) -> bool:
    """Whether a node compares integers of more bits, with the same sign, and changes with a loop of lanes."""
    if node.op not in COMPARISONS:
        return False
    dtype = node.src[0].dtype
    if dtype.kind is not width.kind or dtype.bits <= width.bits:
        return False
    return any([loop.arg[1] is AxisRole.VECTOR for loop in loops_of(node)])


def in_width(term: UOp, width: DType, facts: Facts, done: Mapping[UOp, UOp]) -> UOp:
    """A term that fits `width`, as a value of that type, made of what `done` has for its parts.

    A part may hold another comparison that changes, as a sum of lanes does. Were it left as it was here, a register
    would be updated twice: by the sum as it was, and by the sum as it became elsewhere.
    """
    made: dict[UOp, UOp] = {}

    def goes_on(node: UOp) -> bool:
        return node.op in ALIKE_IN_FEWER_BITS and all([fits(x, width, facts) for x in node.src])

    for node in toposort((term,), goes_on):
        if node.op is Ops.CONST:
            made[node] = UOp.const(width, node.arg)
        elif goes_on(node):
            made[node] = UOp(node.op, width, tuple([made[x] for x in node.src]), node.arg)
        else:
            made[node] = done[node].cast(width)
    return made[term]
