"""Procedure: arithmetic of float16 and bfloat16 is computed in float32, one rounding an operation.

Owns: which operations are widened. Does not own: how EXP2, EXP, LOG2, SIN, COS, POW and FMOD are
computed (transcendental.py), the conversions between the formats (backends).

Rounding the float32 result to the small format gives the bits of an operation of the small format:
float32 has 24 >= 2 * 11 + 2 digits, so for + * / and the square root two roundings are one
(S. Figueroa, When is double rounding innocuous?, 1995). Negation, truncation, the larger, the
smaller, remainders and comparisons are exact. FMA goes through float64, where the product is exact, and the sum
rounded to odd: the second rounding cannot tell that from the exact number (S. Boldo and G. Melquiond,
Emulation of FMA and correctly rounded sums, 2008).

A procedure and no rules: of float16 z3 proves the square root in 7 seconds and + in 128, and decides neither * nor / in
420; MULACC, which may round once or twice, and HREDUCE are no equations.
"""

from __future__ import annotations

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.ops import COMPARE, ELEMENTS, Ops
from proofgrad.core.ir.uop import UOp

SMALL_FLOATS = frozenset({dtypes.float16, dtypes.bfloat16})

# Rounded results of float32, rounded again, are those of one rounding: of these alone it is shown (above).
ROUNDED_TWICE = frozenset({Ops.ADD, Ops.MUL, Ops.FDIV, Ops.SQRT})
ROUNDED_OTHERWISE = frozenset({Ops.MULACC, Ops.FMA})  # as `_promoted` does
_ON_FLOATS = frozenset([op for op, row in ELEMENTS.items() if Kind.FLOAT in row.kinds])
_WIDENED = (_ON_FLOATS - {Ops.WHERE}) | {Ops.HREDUCE}


def promote_small_floats(root: UOp) -> UOp:
    """`root` with the arithmetic on float16 and bfloat16 done in float32, rounded each time.

    MULACC becomes a product and a sum, each rounded; FMA is rounded once. HREDUCE combines in float32,
    rounded once. WHERE, casts, memory and accumulators keep their types. Doing it twice changes nothing.
    """
    nodes = root.toposort()
    if not any(kind.scalar in SMALL_FLOATS for kind in {node.dtype for node in nodes}):
        return root
    done: dict[UOp, UOp] = {}
    for node in nodes:
        same = node.with_src(tuple([done[s] for s in node.src]))
        is_small = same.op in _WIDENED and same.src[0].dtype.scalar in SMALL_FLOATS
        done[node] = _promoted(same) if is_small else same
    return done[root]


def _promoted(node: UOp) -> UOp:
    if node.op is Ops.MULACC:
        x, y, z = node.src
        return _promoted(_promoted(x.alu(Ops.MUL, y)).alu(Ops.ADD, z))
    if node.op is Ops.FMA:
        x, y, z = [s.cast(dtypes.float64.vec(s.dtype.lanes)) for s in node.src]
        return _sum_rounded_to_odd(x * y, z).cast(node.dtype)
    wide = tuple([s.cast(_wide(s.dtype)) for s in node.src])
    if node.op in COMPARE:
        return node.with_src(wide)
    return UOp(node.op, _wide(node.dtype), wide, node.arg).cast(node.dtype)


def _sum_rounded_to_odd(x: UOp, y: UOp) -> UOp:
    """x + y of float64: of the two doubles around it the odd one, where it is none itself."""
    total = x + y
    part = total - x
    lost = (x - (total - part)) + (y - part)  # exact (D. Knuth, TAOCP 2, 4.2.2); NaN at infinities
    bits = total.bitcast(dtypes.int64.vec(x.dtype.lanes))
    is_below = (lost < 0.0) ^ (total < 0.0)
    neighbour = bits + is_below.where(bits.const_like(-1), bits.const_like(1))
    is_inexact = (lost < 0.0) | (lost > 0.0)
    odd = (is_inexact & (bits & 1).eq(0)).where(neighbour, bits)
    return odd.bitcast(x.dtype)


def _wide(dtype: DType) -> DType:
    return dtypes.float32.vec(dtype.lanes)
