"""Names of kernels: E_ (elementwise) or r_ (reduction), then the sizes of its loops, outermost first."""

from __future__ import annotations

from proofgrad.core.ir.op_names import ACCUMULATOR, CONST, HREDUCE, RANGE, STORE
from proofgrad.core.ir.uop import UOp

_REDUCES = frozenset({ACCUMULATOR, HREDUCE})


def kernel_name(linear: UOp) -> str:
    """A C identifier such as E_256_16 or r_64_10_128."""
    bounds = [n.src[0] for n in linear.src if n.op is RANGE]
    sizes = [str(bound.arg) if bound.op is CONST else "n" for bound in bounds]
    reduces = any([n.op in _REDUCES or (n.op is STORE and len(n.src) > 2) for n in linear.src])
    return "_".join(["r" if reduces else "E", *sizes[:8]])
