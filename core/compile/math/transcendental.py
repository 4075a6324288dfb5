"""Procedure: EXP2, EXP, LOG2, SIN, COS, POW, FMOD become graphs of operations that IEEE rounds correctly.

Owns: 2**x, e**x and log2(x) of float32 and float64, and which type each function is computed in. Does not
own: sine and cosine (sine.py), powers (power.py), remainders (remainder.py), the published error bounds (docs/numerics.md), how the coefficients were
found (benchmarks/fit_polynomials.py).

Because every operation used is exact or correctly rounded, FMA too, and none else is contracted, the
results are the same bits on every machine that has FMA. Where it is a call (`Target.calls_fma`), steps whose second rounding is within
the bounds multiply and add. There is no branch and no table: the lanes of a vector stay lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import dataclass

from proofgrad.core.compile.math.polynomial import floats, fma, polynomial, settled, step
from proofgrad.core.compile.math.power import power
from proofgrad.core.compile.math.remainder import remainder
from proofgrad.core.compile.math.sine import cosine, sine
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

NONE: frozenset[Ops] = frozenset()


@dataclass(frozen=True, slots=True)
class _Format:
    """A float format, and the coefficients that are good enough for it."""

    integer: DType
    fraction_bits: int
    bias: int
    bits_of_lowest: int  # of the numbers 1 + r, whose logarithm is taken
    exp2_slope: tuple[float, ...]
    exp_tail: tuple[float, ...]
    ln_4: tuple[float, ...]  # the product of the first and an exponent is exact
    log2_sum: Callable[[UOp, UOp], UOp]  # of an exponent and a rest


def expand_transcendentals(
    root: UOp, native: Set[Ops] = NONE, approximate: Set[Ops] = NONE, calls_fma: bool = False
) -> UOp:
    """`root` with each of the seven that is not in `native`, or of float32 in `approximate`, written in simpler operations.

    Dtypes: float32 and float64 in their own format; float16 and bfloat16 through float32.
    `calls_fma`: steps for which two roundings are good enough are products and sums. Works on scalars and vectors. Doing it twice changes nothing more.
    """
    nodes = root.toposort()
    expansions = {op: way for op, way in EXPANSIONS.items() if op not in native}
    if not any(node.op in expansions for node in nodes):
        return root
    done: dict[UOp, UOp] = {}
    for node in nodes:
        same = node.with_src(tuple([done[s] for s in node.src]))
        is_kept = node.op in approximate and node.dtype.scalar is dtypes.float32
        expand = None if is_kept else expansions.get(node.op)
        if expand is exp and Ops.EXP2 in approximate and node.dtype.scalar is dtypes.float32:
            expand = _exp_by_exp2
        done[node] = same if expand is None else _through_float32(expand, *same.src)
    return settled(done[root], calls_fma)


def _through_float32(function: Callable[..., UOp], *args: UOp) -> UOp:
    dtype = args[0].dtype
    if dtype.bits >= 32:
        return function(*args)
    return function(*[x.cast(dtypes.float32.vec(dtype.lanes)) for x in args]).cast(dtype)


def exp2(x: UOp) -> UOp:
    """2**x = 2**n * 2**f, where n is the integer nearest to x.

    The sum of x and `magic` has n + 2 * bias in its last bits, so that half of it is the exponent
    field of a float. 2**n is applied as two factors, since n may lie outside of the exponents.
    What is far below them, as in a softmax with a mask, has two factors 0.0: no product of it is a denormal, for which
    processors stop (a masked softmax took three times as long).
    """
    form = _FORMATS[x.dtype.scalar]
    x = _within(x, -2.0 * form.bias, form.bias + 1.0)
    magic = 1.5 * 2.0**form.fraction_bits + 2 * form.bias
    sum_with_n = x + magic
    f = x - (sum_with_n + -magic)
    bits = sum_with_n.bitcast(form.integer.vec(x.dtype.lanes))
    half = bits >> 1
    first = (half << form.fraction_bits).bitcast(x.dtype)
    second = ((bits - half) << form.fraction_bits).bitcast(x.dtype)
    return step(f, polynomial(f, form.exp2_slope), 1.0) * first * second


def exp(x: UOp) -> UOp:
    """e**x = 2**n * 2**n * e**r, where n is the integer nearest to x / ln 4.

    As above, but that both factors are one, for which r is up to ln 2 from 0, where e**r has a polynomial of one power more.
    """
    form = _FORMATS[x.dtype.scalar]
    ln_4, ln_4_rest = form.ln_4
    x = _within(x, -form.bias * math.log(4), (form.bias + 1.5) * math.log(2))
    magic = 1.5 * 2.0**form.fraction_bits + form.bias
    sum_with_n = step(x, 1 / math.log(4), magic)
    n = sum_with_n + -magic
    r = step(n, -ln_4_rest, step(n, -ln_4, x))
    bits = sum_with_n.bitcast(form.integer.vec(x.dtype.lanes))
    factor = (bits << form.fraction_bits).bitcast(x.dtype)
    return polynomial(r, (1.0, 1.0, *form.exp_tail)) * factor * factor


def _exp_by_exp2(x: UOp) -> UOp:
    """e**x of float32 = 2**(x / ln 2) times 1 + what the rounding of the quotient has lost."""
    x = _within(x, -180.0, 90.0)  # beyond, the power is 0 or infinite
    power = x * _LOG2_E
    lost = fma(x, _LOG2_E_REST_FLOAT32, fma(x, _LOG2_E, -power))
    return power.alu(Ops.EXP2) * step(lost, math.log(2), 1.0)


def _within(x: UOp, lowest: float, highest: float) -> UOp:
    """x, or the end that it is beyond; a NaN passes both."""
    x = (x < lowest).where(x.const_like(lowest), x)
    return (x > highest).where(x.const_like(highest), x)


def log2(x: UOp) -> UOp:
    """log2(x) = e + log2(1 + r), where x = 2**e * (1 + r) and 1 + r is around 1.

    What is not a normal positive number is rare, and behind a branch on machines that have one (backends/llvm/two_ways.py).
    """
    form = _FORMATS[x.dtype.scalar]
    is_finite, is_tiny = x < math.inf, x < 2.0 ** (1 - form.bias)
    known = is_finite.where(form.log2_sum(*_exponent_and_rest(x)), x)  # infinity, NaN
    known = x.eq(0.0).where(x.const_like(-math.inf), known)
    known = (x < 0.0).where(x.const_like(math.nan), known)
    return (is_finite & is_tiny.alu(Ops.NOT)).where(form.log2_sum(*_of_normal(x)), known)


def _exponent_and_rest(x: UOp) -> tuple[UOp, UOp]:
    """e and r with x = 2**e * (1 + r), of any positive number."""
    form = _FORMATS[x.dtype.scalar]
    is_tiny = x < 2.0 ** (1 - form.bias)
    e, r = _of_normal(is_tiny.where(x * 2.0**form.fraction_bits, x))
    return e + is_tiny.where(x.const_like(-float(form.fraction_bits)), x.const_like(0.0)), r


def _of_normal(x: UOp) -> tuple[UOp, UOp]:
    """The same of a normal number; 1 + r is at least that of `bits_of_lowest`, and less than twice that."""
    form = _FORMATS[x.dtype.scalar]
    bits = x.bitcast(form.integer.vec(x.dtype.lanes))
    e = (bits + -form.bits_of_lowest) >> form.fraction_bits
    r = (bits - (e << form.fraction_bits)).bitcast(x.dtype) + -1.0
    # 64-bit ints convert slowly on many machines
    return e.cast(dtypes.int32.vec(x.dtype.lanes)).cast(x.dtype), r


def _log2_float32(e: UOp, r: UOp) -> UOp:
    """e + log2(1 + r), which is at most 1/2 from 0: where e is not 0, half of its error is lost in the sum.

    21/16 r is exact, and the rest of it small, so that the sum of both has little more than its own rounding.
    """
    return e + step(r, 21 / 16, r * polynomial(r, _LOG2_REST_FLOAT32))


def _log2_float64(e: UOp, r: UOp) -> UOp:
    """The same, from log(1 + r) = 2 atanh(s) = r - h + s * (h + tail(s * s)).

    Here s = r / (2 + r) and h = r * r / 2; the series of atanh needs half as many terms. The two largest terms, e and r / ln 2,
    are added without an error: what the product and the sum have rounded off is recovered (the sum's by Fast2Sum, Dekker 1971).
    """
    main = r * _LOG2_E
    total = e + main
    lost = main - (total - e)
    rest = step(r, _LOG2_E_REST, fma(r, _LOG2_E, -main))
    s = r / (r + 2.0)
    z = s * s
    h = r * r * 0.5
    tail = step(s, step(z, polynomial(z, _ATANH_TAIL_FLOAT64), h), -h)
    return total + (lost + step(tail, _LOG2_E, rest))


# 1 / ln 2 and what the double misses; what the float32 that is nearest to it misses.
_LOG2_E, _LOG2_E_REST = floats("0x1.71547652b82fep+0 0x1.777d0ffda0d24p-56")
_LOG2_E_REST_FLOAT32 = float.fromhex("0x1.4ae0cp-26")

# Source of the next eight: benchmarks/fit_polynomials.py, which prints them.
_EXP2_SLOPE_FLOAT32 = floats(
    "0x1.62e4300000000p-1 0x1.ebfbdc0000000p-3 0x1.c6af7a0000000p-5 0x1.3b2dd20000000p-7 "
    "0x1.5f094a0000000p-10 0x1.417ab80000000p-13"
)
_EXP2_SLOPE_FLOAT64 = floats(
    "0x1.62e42fefa39efp-1 0x1.ebfbdff82c59cp-3 0x1.c6b08d704a0d3p-5 0x1.3b2ab6fba11f3p-7 "
    "0x1.5d87fe78b3f70p-10 0x1.4309130c01a62p-13 0x1.ffcbfbf78d23ap-17 0x1.62bfcddd26290p-20 "
    "0x1.b52610372e6a8p-24 0x1.e611a26c99db5p-28 0x1.e80b0628dc70cp-32"
)
_EXP_TAIL_FLOAT32 = floats(
    "0x1.00000cp-1 0x1.555512p-3 0x1.5549ep-5 0x1.112726p-7 0x1.71c358p-10 0x1.9bad2cp-13"
)
_EXP_TAIL_FLOAT64 = floats(
    "0x1.ffffffffffff3p-2 0x1.55555555555b6p-3 0x1.5555555556947p-5 0x1.111111110831fp-7 "
    "0x1.6c16c169c0d2fp-10 0x1.a01a01b21ff76p-13 0x1.a01a0580eacf0p-16 0x1.71de2a14a6471p-19 "
    "0x1.27e1ca9953384p-22 0x1.ae71231f9afbfp-26 0x1.217a6095fd09dp-29 0x1.5e722edbde9eep-33"
)
_LN_4_FLOAT32 = floats("0x1.62e4000000000p+0 0x1.7f7d1c0000000p-19")
_LN_4_FLOAT64 = floats("0x1.62e42fefa3800p+0 0x1.ef35793c76730p-44")
_LOG2_REST_FLOAT32 = floats(
    "0x1.0aa3b20000000p-3 -0x1.7154720000000p-1 0x1.ec70cc0000000p-2 -0x1.71598a0000000p-2 "
    "0x1.27764c0000000p-2 -0x1.eadbd80000000p-3 0x1.a3ee700000000p-3 -0x1.871a8c0000000p-3 "
    "0x1.789f800000000p-3 -0x1.b967920000000p-4"
)
_ATANH_TAIL_FLOAT64 = floats(
    "0x1.555555555554fp-1 0x1.999999999c152p-2 0x1.24924921e7ebdp-2 0x1.c71c748bd00fep-3 "
    "0x1.745c4be57e6cbp-3 0x1.3b359c1ee65f4p-3 0x1.0dce20dcff05fp-3 0x1.1b6fa6e42cf78p-3"
)

_FORMATS: dict[DType, _Format] = {  # the lowest of numbers 1 + r are the root of 1/2, and 2/3
    dtypes.float32: _Format(dtypes.int32, 23, 127, 0x3F3504F3, _EXP2_SLOPE_FLOAT32, _EXP_TAIL_FLOAT32, _LN_4_FLOAT32, _log2_float32),
    dtypes.float64: _Format(dtypes.int64, 52, 1023, 0x3FE5555555555555, _EXP2_SLOPE_FLOAT64, _EXP_TAIL_FLOAT64, _LN_4_FLOAT64, _log2_float64),
}  # fmt: skip

EXPANSIONS: dict[Ops, Callable[..., UOp]] = {
    Ops.EXP2: exp2,
    Ops.EXP: exp,
    Ops.LOG2: log2,
    Ops.SIN: sine,
    Ops.COS: cosine,
    Ops.POW: lambda x, y: power(x, y, exp2, log2, _exponent_and_rest),
    Ops.FMOD: remainder,
}
