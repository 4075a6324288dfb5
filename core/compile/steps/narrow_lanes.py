"""Integers that lanes compare or divide are those of fewer bits, of which a vector holds more.

    x < y   =   x' < y'   where x' is x in w bits, and the facts show that both are values of the w bits
    x / y   =   x' / y'   where they show it of the quotient too; so with the remainder

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
# Machines have no such instruction of vectors: of few bits a quotient by a constant is made of products, of many it is taken lane by lane.
DIVISIONS = frozenset({Ops.TRUNCDIV, Ops.TRUNCMOD})
ALIKE_IN_FEWER_BITS = frozenset(
    {Ops.ADD, Ops.NEG, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR, Ops.TRUNCDIV, Ops.TRUNCMOD}
)  # fmt: skip


@step("x op y = (x of w bits op y of w bits), if both and the result fit them", makes_loops=False)
def narrow_lanes(nest: LoopNest, width: DType) -> UOp:
    """Comparisons and divisions that change with a loop of lanes, of integers of more bits, are of `width` where their terms fit it."""
    require(width.is_int, "no machine integer", width)
    chosen = set(fitting_operations(nest, width))
    require(bool(chosen), "no comparison or division of lanes that fits", width)
    done: dict[UOp, UOp] = {}
    for node in toposort((nest.graph,)):
        if node in chosen:
            one, other = [in_width(x, width, nest.facts, done) for x in node.src]
            if node.op in DIVISIONS:
                done[node] = UOp(node.op, width, (one, other)).cast(node.dtype)
            else:
                done[node] = node.with_src((one, other))
        else:
            done[node] = node.with_src(tuple([done[x] for x in node.src]))
    return done[nest.graph]


def fitting_operations(nest: LoopNest, width: DType) -> list[UOp]:
    """Comparisons and divisions of more bits than `width` whose terms fit it, and whose result does."""
    wide = [node for node in toposort((nest.graph,)) if is_wide(node, width)]
    return [node for node in wide if all([fits(x, width, nest.facts) for x in _terms(node)])]


def _terms(node: UOp) -> tuple[UOp, ...]:
    return (node, *node.src) if node.op in DIVISIONS else node.src


def is_wide(node: UOp, width: DType) -> bool:
    """Whether a node compares or divides integers of more bits, with the same sign, and changes with a loop of lanes."""
    if node.op not in COMPARISONS and node.op not in DIVISIONS:
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
