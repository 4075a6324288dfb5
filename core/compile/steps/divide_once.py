"""Weights that are powers of a distance are divided, or multiplied, by what is the same for a whole sum once: behind it.

    sum[j](e(x(j), m) / s * v(j))   =   sum[j](e(x(j), m) * v(j)) / s

    j: 0 1 2             e0 / s * v0 + e1 / s * v1 + e2 / s * v2   =   (e0 * v0 + e1 * v1 + e2 * v2) / s

A law of the reals, for floats round otherwise: the step is taken where FASTMATH names `real`. As reals lose nothing, what an
exponential has for the rounding of its argument is left out, in the sum and in the sum of weights that it is divided by.
"""

from __future__ import annotations

from proofgrad.core.compile.nests.weighted_sums import Weighted, divisor_of
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, step
from proofgrad.core.compile.steps.rescale_blocks import required_weights
from proofgrad.core.ir.uop import UOp


@step("sum[j](e(x(j), m) / s * v(j)) = sum[j](e(x(j), m) * v(j)) / s, of reals")
def divide_once(nest: LoopNest, total: UOp) -> UOp:
    """The sum `total`, divided by what its weights are divided by."""
    above = required_weights(nest, total)
    require(bool(above.around), "weights that nothing divides", total)
    below = divisor_of(above)
    changes = {} if below is None else {below.total: _plain(below)}
    return nest.graph.substitute({total: above.whole(_plain(above)).substitute(changes)})


def _plain(sums: Weighted) -> UOp:
    """The sum of powers alone."""
    power = sums.power.of(sums.power.value, sums.power.reference)
    return sums.total.with_src((sums.term(power), *sums.total.src[1:]))
