"""Terms of a sum that are chosen by position: of a gradient of `x[position]`, or of counts.

    sum[j](where(position[j] == r, value[j], 0))

Owns: how such a term looks among tensor nodes, from which length on it is summed alone. Does not own: how it is summed
(schedule/scatters.py, tactics/scatter.py).
"""

from __future__ import annotations

from proofgrad.core.compile.nests.sums_of_products import below_views
from proofgrad.core.ir.op_names import IOTA, WHERE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp

# Steps of the one loop nest, in which each position looks at all values, from which more kernels may pay.
WORTH_STEPS = 1 << 18


def is_long_by_position(term: UOp) -> bool:
    """Whether a term compares positions with a counter so often that its sum is worth kernels of its own."""
    if term.op is not WHERE or elements(term.shape) < WORTH_STEPS:
        return False
    condition = below_views(term.src[0])
    is_equation = condition.op is Ops.CMPEQ
    return is_equation and any([below_views(side).op is IOTA for side in condition.src])
