"""The closed set of functions that conditions and computed constants may use, and type classes.

Owns: each function's value on mathematical numbers and tuples. verify/ gives each the same meaning
in SMT. Does not own: facts about terms (facts.py). A function without a meaning there cannot be
used in a rule.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from proofgrad.core.ir.dtypes import DType, Kind, dtypes, wrap_int
from proofgrad.core.ir.ops import APPROXIMATED, ELEMENTWISE
from proofgrad.core.rewrite.rule import LOOSE_CLASSES


def _floordiv(a: int, b: int) -> int:
    return 0 if b == 0 else a // b


def _mod(a: int, b: int) -> int:
    return 0 if b == 0 else a % b


def _divides(a: int, b: int) -> bool:
    return b == 0 if a == 0 else b % a == 0


def _is_power_of_two(a: int) -> bool:
    return a > 0 and a & (a - 1) == 0


def _log2_exact(a: int) -> int:
    return max(a, 1).bit_length() - 1


# Numbers are mathematical, and so are their bits: a negative one begins with ones without end.
MOST_SHIFT = 64  # no type has more bits; a longer shift of a number is not known


def _shift_left(a: int, k: int) -> int | None:
    return a << k if 0 <= k <= MOST_SHIFT else None


def _shift_right(a: int, k: int) -> int | None:
    return a >> k if k >= 0 else None


def _fill(a: int) -> int:
    return (1 << a.bit_length()) - 1 if a >= 0 else -1


def _without(a: int, b: int) -> int:
    return a & ~b


NUMBER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": _floordiv,
    "%": _mod,
    "neg": operator.neg,
    "min": min,
    "max": max,
    "abs": abs,
    "gcd": math.gcd,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "and": lambda *values: all(values),
    "or": lambda *values: any(values),
    "not": operator.not_,
    "divides": _divides,  # divides(a, b): b is a multiple of a
    "is_power_of_two": _is_power_of_two,
    "log2_exact": _log2_exact,  # of a power of two
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": _shift_left,  # 1 << k is 2**k
    ">>": _shift_right,  # rounds down
    "without": _without,  # without(a, b): the bits of a that b does not have
    "fill": _fill,  # every bit below the highest of a set; all bits for a negative number
}

# What `{wrap: ...}` may compute: operations whose value is the same wherever they are done. The others
# are functions that each machine approximates in its own way (docs/numerics.md gives bounds only), so
# that a constant computed here would differ from what a kernel computes.
COMPUTABLE = ELEMENTWISE - APPROXIMATED

# Facts about terms. lo(x), hi(x): mathematical integers that x lies between, ends included; for a
# float, extended reals that it lies between if it is not NaN. ones(x), may(x): values of the type of
# x; every bit of the first is set in x, and every bit that is set in x is a bit of the second.
# divisor(x): 0 or more, and x is a multiple of it, which of 0 is only 0.
# finite(x): neither infinite nor NaN; not_nan(x). independent(x, R): x does not change with the
# ranges R, written Apply("independent", (Fact(x), Fact(Var(R, "ranges")))), and the same of one
# range; count(r): how many values the range r takes, unknown if it is no constant; loop_free(x):
# there is no reduction in x; shape(x): the sizes of a tensor's axes. Relations of types: below.
FACTS = (
    *("lo", "hi", "ones", "may", "divisor", "finite", "not_nan", "independent", "count"),
    *("loop_free", "shape"),
)


def _lossless(a: DType, b: DType) -> bool:
    """Every value of `a` is a value of `b`, so that a cast a -> b -> a gives it back."""
    if a is b:
        return True
    match a.kind, b.kind:
        case Kind.BOOL, _:
            return True
        case ((Kind.SIGNED | Kind.UNSIGNED), (Kind.SIGNED | Kind.UNSIGNED)):
            assert a.lo is not None and a.hi is not None and b.lo is not None and b.hi is not None
            return b.lo <= a.lo and a.hi <= b.hi
        case ((Kind.SIGNED | Kind.UNSIGNED), Kind.FLOAT):
            largest_run = PRECISION[b]
            return a.bits - (a.kind is Kind.SIGNED) <= largest_run
        case Kind.FLOAT, Kind.FLOAT:
            return PRECISION[a] <= PRECISION[b] and EXPONENT_BITS[a] <= EXPONENT_BITS[b]
        case _:
            return False


PRECISION = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}
EXPONENT_BITS = {dtypes.float16: 5, dtypes.bfloat16: 8, dtypes.float32: 8, dtypes.float64: 11}

TYPE_FUNCTIONS: dict[str, Callable[[DType, DType], bool]] = {
    "lossless": _lossless,
    "same_type": operator.is_,
    "same_width": lambda a, b: a.bits == b.bits and a is not dtypes.bool and b is not dtypes.bool,
    "narrower": lambda a, b: a.bits < b.bits,
}


def _wrapped(a: int, dtype: DType) -> int:
    """The value of a machine integer type that differs from `a` by a multiple of 2**bits."""
    return wrap_int(a, dtype)


# Numbers of a type, None where it has no such number: the ends of an integer type, its width, what a
# result that wraps differs by a multiple of (0 where nothing wraps).
# wrapped(a, T): a modulo 2**bits, in the range of T.
TYPE_NUMBERS: dict[str, Callable[..., int | None]] = {
    "least": lambda dtype: dtype.lo,
    "largest": lambda dtype: dtype.hi,
    "bits": lambda dtype: dtype.bits,
    "modulus": lambda dtype: 0 if dtype.kind is Kind.INDEX else 1 << dtype.bits,
    "wrapped": _wrapped,
}

TYPE_CLASSES: dict[str, tuple[DType, ...]] = {
    "bool": (dtypes.bool,),
    "int": dtypes.ints,
    "signed": tuple(d for d in dtypes.ints if d.kind is Kind.SIGNED),
    "unsigned": tuple(d for d in dtypes.ints if d.kind is Kind.UNSIGNED),
    "index": (dtypes.index,),
    "float": dtypes.floats,
    "any": dtypes.all,
}

# A domain says which types the type variable of the domain may take, and with which arithmetic the
# rule is proven. "tensor", "loop", "derivative", "bounds" have proofs of their own (docs/trust.md).
DOMAIN_TYPES: dict[str, tuple[DType, ...]] = {
    "bool": TYPE_CLASSES["bool"],
    "int": TYPE_CLASSES["int"],
    "signed": TYPE_CLASSES["signed"],
    "unsigned": TYPE_CLASSES["unsigned"],
    "index": TYPE_CLASSES["index"],
    "float": TYPE_CLASSES["float"],
    "cast": TYPE_CLASSES["any"],
}
DOMAIN_TYPES.update({loose: TYPE_CLASSES["float"] for loose in LOOSE_CLASSES})
for _d in (*dtypes.all, *dtypes.fp8s):
    TYPE_CLASSES.setdefault(_d.name, (_d,))
    DOMAIN_TYPES.setdefault(_d.name, (_d,))

# Functions on args (tuples) of movement and reduce operations, axis by axis where it says so.
ARG_FUNCTIONS: dict[str, Callable[..., Any]] = {
    # permute(permute(x, p), q) has axis k from axis p[q[k]] of x
    "compose": lambda p, q: tuple([p[k] for k in q]),
    "inverse": lambda p: tuple(sorted(range(len(p)), key=p.__getitem__)),
    "is_identity": lambda p: tuple(p) == tuple(range(len(p))),
    # axis by axis
    "add_pads": lambda a, b: tuple([(x[0] + y[0], x[1] + y[1]) for x, y in zip(a, b)]),
    "chain_shrinks": lambda a, b: tuple([(x[0] + y[0], x[0] + y[1]) for x, y in zip(a, b)]),
    "xor_flips": lambda a, b: tuple([x != y for x, y in zip(a, b)]),
    "is_full_shrink": lambda a, s: all(b == 0 and e == n for (b, e), n in zip(a, s)),
    "is_zero_pad": lambda a: all(b == 0 and e == 0 for b, e in a),
    "is_no_flip": lambda a: not any(a),
    "pads_to_shrinks": lambda a, s: tuple([(b, b + n) for (b, _), n in zip(a, s)]),
    "shrinks_to_pads": lambda a, s: tuple([(b, n - e) for (b, e), n in zip(a, s)]),
    # skew(g, skew_back(k, shape(x))) undoes the positions of skew(x, k): back, to the old size
    "skew_back": lambda k, s: (k[0], k[1], -k[2], s[k[0]]),
    # sets of axes
    "expanded_axes": lambda a, b: tuple([k for k in range(len(a)) if a[k] != b[k]]),
    "is_empty": lambda a: len(a) == 0,
    "union": lambda a, b: tuple(sorted(set(a) | set(b))),
    "disjoint": lambda a, b: not set(a) & set(b),
    # the arg of REDUCE_AXIS is pair(op, axes); on the left side a pair binds or tests both parts
    "pair": lambda a, b: (a, b),
}
