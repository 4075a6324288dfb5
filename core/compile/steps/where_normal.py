"""A product of bfloat16 goes one way where none of its products and sums is denormal, and another way elsewhere.

    out[r] = f(r)   =   if c: out[r] = f(r);   if not c: out[r] = f(r)

    c = p >= 1 and q >= 1 and p + q >= 142: the exponents, as they are stored, of the smallest numbers but 0 of both factors' memory

A number of bfloat16 with the stored exponent e >= 1 is a multiple of 2**(e - 134), for it has 8 digits. So all products are multiples of
2**(p + q - 268), which is 2**-126 or more where c holds; and so is each sum of them, in any order, also after it was rounded, which leaves
multiples of a power of two what they are. But for 0 no multiple of 2**-126 is smaller, and so none is denormal: a unit for which denormal
numbers are 0 computes the first way exactly as it would without that.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.loops import output_loops
from proofgrad.core.compile.steps.bijection import masked
from proofgrad.core.compile.steps.loop_nest import LoopNest, fission, require, require_in
from proofgrad.core.compile.steps.tables import loaded, new_table, stored
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

MAGNITUDE, NUMBERS = (1 << 15) - 1, 1 << 16  # of the bits of a bfloat16; how many it has
FRACTIONS, DIGITS = 1 << 7, 7  # of one exponent
LEAST, BIAS = (
    -126,
    127,
)  # exponents of float32 and bfloat16: of the smallest normal number, of what is stored as 0


@fission(
    "out = f is if c: out = f; if not c: out = f; c: no product of its factors, nor sum of such, is denormal"
)
def where_normal(nest: LoopNest, reduction: UOp) -> tuple[UOp, ...]:
    """What finds out how small the numbers of each factor are, then the nest where none is too small, and where one is."""
    require_in(nest.graph, reduction)
    nodes = toposort((nest.graph,))
    sums = [n for n in nodes if n.op is Ops.REDUCE]
    require(sums == [reduction] and reduction.arg is Ops.ADD, "no one sum", reduction)
    require(len(nest.graph.src) == 1, "several stores", nest.graph)
    (store,) = nest.graph.src
    position, value, *in_order = store.src
    require(not in_order and store.arg is None, "a store that combines with what is there")
    roles = {loop.arg[1] for loop in output_loops(nest.graph)}
    require(roles <= {AxisRole.LOOP}, "loops of results that something was said of")
    memories = dict.fromkeys(memories_of(reduction) or ())
    require(bool(memories), "no product of two memories of bfloat16", reduction)
    first = new_table(nest, dtypes.uint16, 1)
    made, gaps = [], []
    for k, memory in enumerate(memories):
        table = first.replace(arg=(first.arg[0] + k, 1))
        made.append(stored(table, UOp.index(0), _largest_gap(memory)))
        gaps.append(loaded(table, UOp.index(0)).cast(dtypes.int32))
    condition = is_normal(exponent_of(gaps[0]), exponent_of(gaps[-1]))
    for truth in (condition, ~condition):
        made.append(UOp.sink(store.with_src((masked(position, truth), value))))
    return tuple(made)


def is_of_normal_numbers(nest: LoopNest) -> bool:
    """Whether a nest is, or came of, the one that runs where no product and no sum is denormal."""
    return any(
        [cut.step == where_normal.name and number == cut.parts - 2 for cut, number in nest.position]
    )


def memories_of(reduction: UOp) -> tuple[UOp, UOp] | None:
    """The memories of bfloat16 whose numbers a sum of float32 multiplies; None: it is no such sum."""
    term = reduction.src[0]
    if term.op is not Ops.MUL or reduction.dtype is not dtypes.float32:
        return None
    found = []
    for factor in term.src:
        number = factor.src[0] if factor.op is Ops.CAST else factor
        if number.op is not Ops.LOAD or number.dtype is not dtypes.bfloat16:
            return None
        found.append(number.src[0].src[0])
    is_memory = all([memory.op is Ops.PARAM for memory in found])
    return (found[0], found[1]) if is_memory else None


def _largest_gap(memory: UOp) -> UOp:
    """Of all elements of a memory."""
    loop = UOp.range(memory.arg[1], 0, AxisRole.REDUCE)
    bits = loaded(memory, loop).bitcast(dtypes.uint16) & MAGNITUDE
    return UOp(Ops.REDUCE, dtypes.uint16, (gap_of(bits), loop), Ops.MAX)


def gap_of(magnitude: Any) -> Any:
    """How far the bits of a magnitude are below 2**16, as a machine of 16 bits has it: 0 of 0, and the larger the smaller the number is."""
    return magnitude * (NUMBERS - 1)


def exponent_of(gap: Any) -> Any:
    """The stored exponent of the number of this gap; one that no number has where all are 0."""
    return (NUMBERS - gap) // FRACTIONS


def is_normal(one: Any, other: Any) -> Any:
    """Whether products of numbers whose stored exponents are at least these, and their sums, are not denormal."""
    return (one >= 1) & (other >= 1) & (one + other >= LEAST + 2 * (BIAS + DIGITS))
