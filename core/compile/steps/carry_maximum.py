"""A sum beside the maximum of its own loop runs in one loop with it: what was added so far is scaled where the maximum grows.

    sum[o](e(b(o), max[o](b(o))) * p(o))
        =   m = -inf; r = 0; for o, in order: n = m; m = max(n, b(o)); r = r * e(n, m) + e(b(o), m) * p(o); r

    e(x, m) = exp2((x - m) * c), c > 0        o: 0             1                       2
                                              b: 3             5                       4
                                              m: 3             5                       5
                                              r: p0            p0 * e(3, 5) + p1       ... + p2 * e(4, 5)

This is a law of the reals, e(n, m) * e(m, k) = e(n, k): M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, 2018.
The step is taken where FASTMATH names `real`. What is subtracted is never below the least finite number, so r stays 0 as long as all b
were -inf. Several sums beside one maximum have one loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proofgrad.core.compile.nests.loops import BINDERS, fresh_number
from proofgrad.core.compile.nests.weighted_sums import Power, beside_maximum
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, step
from proofgrad.core.compile.steps.narrow import require_widths
from proofgrad.core.compile.steps.rescale_blocks import is_asked_for, of_row
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def scaled(e: Any, total: Any, before: Any, now: Any, least: Any) -> Any:
    """What was added so far, where the maximum has grown."""
    return total * of_row(e, before, now, least)


@step(
    "sum[o](e(b(o), max[o](b(o))) * p(o)) is m = -inf, r = 0; for o, in order: n = m; m = max(n, b(o)); r = r * e(n, m) +"
    " e(b(o), m) * p(o); r, of reals",
    makes_loops=False,
)
def carry_maximum(nest: LoopNest) -> UOp:
    """Each sum beside the maximum of its own loop becomes a register that the loop carries beside one of the maximum."""
    kernel = nest.graph
    require_widths(kernel)
    nodes = toposort((kernel,))
    found = {n: beside for n in nodes if (beside := beside_maximum(n)) is not None}
    require(bool(found), "no sum beside the maximum of its own loop")
    require(is_asked_for(), "a law of the reals, which FASTMATH does not name")
    maxima = {power.reference.src[0]: None for power, _ in found.values()}
    others = [n for n in nodes if not maxima.keys().isdisjoint(n.src) and n.op is not Ops.MAX]
    require(not others, "a maximum that something else reads", *others)
    parts = toposort([part for _, part in found.values()])
    require(found.keys().isdisjoint(parts), "such a sum inside of another", *found)
    first = len([n for n in nodes if n.op in BINDERS])  # `accumulate` numbers the others
    loop_number = fresh_number(
        kernel
    )  # inside of all output loops, each run of which sets the registers
    loops = {
        loop: loop.replace(arg=(loop_number + k, loop.arg[1]))
        for k, loop in enumerate(dict.fromkeys([m.src[1] for m in maxima]))
    }
    registers = {
        node: _register(node, loops[node.src[1]], first + k)
        for k, node in enumerate([*maxima, *found])
    }
    return kernel.substitute(
        {
            node: _carried(
                power,
                part.substitute(loops),
                registers[node],
                registers[power.reference.src[0]],
                loops,
            )
            for node, (power, part) in found.items()
        }
    )


def _register(reduction: UOp, loop: UOp, number: int) -> UOp:
    start = UOp.const(reduction.dtype, identity(reduction.arg, reduction.dtype))
    return UOp(Ops.ACCUMULATOR, reduction.dtype, (start, loop), number)


def _carried(power: Power, part: UOp, register: UOp, maximum: UOp, loops: Mapping[UOp, UOp]) -> UOp:
    """What the register of a sum holds in the end."""
    block, least = power.value.substitute(loops), power.reference.src[1]
    larger = maximum.maximum(block)
    before = scaled(power.of, register, maximum, larger, least)
    # The register of the maximum is read before it is set: what is made of its old value is a source of the update.
    now = UOp(Ops.UPDATE, maximum.dtype, (maximum, larger, before.src[1]))
    added = UOp(Ops.MULACC, register.dtype, (of_row(power.of, block, now, least), part, before))
    return UOp(Ops.RESULT, register.dtype, (UOp(Ops.UPDATE, register.dtype, (register, added)),))
