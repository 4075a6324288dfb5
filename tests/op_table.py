"""Every operation on elements and along axes: what numpy says of it, on which types, how exactly.

Owns: the table, the values at the edges of each type, the comparison, the count of what was compared.
A reference gets numpy arrays; of float16, bfloat16 and float32 in float64, of float64 in the 80 bits of
x87 where the C library has them. Results are rounded to the type, and may then be `ulp` units in the
last place away: 0 means the bits of IEEE arithmetic, -0.0 and NaN included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from oracle import fma

from proofgrad import Tensor, dtypes
from proofgrad.core.ir.dtypes import DType

Array = Any
FLOATS = dtypes.floats
WITHOUT_BFLOAT16 = (dtypes.float16, dtypes.float32, dtypes.float64)
INTS = dtypes.ints
NUMBERS = (*FLOATS, *INTS)
ALL = (dtypes.bool, *NUMBERS)
BITS = (dtypes.bool, *INTS)


@dataclass(frozen=True, slots=True)
class Op:
    """One row. `same`: integers stay what they are; else they become the default float."""

    name: str
    ours: Callable[..., Tensor]
    reference: Callable[..., Array]
    types: tuple[DType, ...]
    ulp: float = 0.0
    same: bool = True
    gives_bool: bool = False
    arguments: int = 1
    absolute: float = 0.0  # errors allowed beside `ulp`, in units in the last place of 1
    lost: float = 0.0  # and in denormals, where a factor is one


@dataclass(slots=True)
class Count:
    """What has been compared in this run."""

    pairs: int = 0
    values: int = 0
    by_torch: int = 0
    gradients: int = 0


COUNT = Count()


def edge_values(dtype: DType) -> Array:
    """Zeros, ones, halves, ends of the type, denormals, infinities, NaN; as numpy holds the type."""
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_int:
        low, high = dtypes.min(dtype), dtypes.max(dtype)
        near = [0, 1, 2, 3, 5, 7, 8, 31, 63, high, high - 1, high // 2, low, low + 1]
        return np.array(near + ([-1, -2, -3, -7] if low else []), dtype.name)
    held = np.float32 if dtype is dtypes.bfloat16 else np.dtype(dtype.name)
    info = np.finfo(held)
    largest = 3.3895313892515355e38 if dtype is dtypes.bfloat16 else float(info.max)
    sizes = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 0.25, 0.375, 20.0, 100.5, float(info.tiny), largest,
             math.inf, float(info.smallest_subnormal) * (1 << 16 if dtype is dtypes.bfloat16 else 1)]  # fmt: skip
    return np.array([*sizes, *[-size for size in sizes], math.nan], held)


def as_tensor(values: Array, dtype: DType) -> Tensor:
    """numpy's values as a Tensor of the type."""
    return Tensor(values).cast(dtype) if dtype is dtypes.bfloat16 else Tensor(values)


def wide(op: Op, values: Array, dtype: DType) -> Array:
    """What a reference computes in: the type itself where results are exact."""
    if dtype.is_int and not op.same:
        return values.astype(np.float64)
    if not dtype.is_float or op.ulp == 0:
        return values
    return values.astype(np.longdouble if dtype is dtypes.float64 else np.float64)


def result_type(op: Op, dtype: DType) -> DType:
    if op.gives_bool:
        return dtypes.bool
    return dtype if op.same or dtype.is_float else dtypes.default_float


def rounded(exact: Array, dtype: DType) -> Array:
    """A reference's result in the type, bfloat16 as float32."""
    if dtype is not dtypes.bfloat16:
        return exact.astype(dtype.name)
    single = exact.astype(np.float32)
    bits = single.view(np.uint32)
    near = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(single), single, near.view(np.float32))


def compare(op: Op, dtype: DType, found: Array, exact: Array) -> None:
    """Count, and raise an AssertionError that names a value that is too far away."""
    kind = result_type(op, dtype)
    expected = rounded(np.asarray(exact), kind)
    assert found.shape == expected.shape, (op.name, dtype, found.shape, expected.shape)
    assert found.dtype == expected.dtype, (op.name, dtype, found.dtype, expected.dtype)
    COUNT.pairs += 1
    COUNT.values += found.size
    with np.errstate(all="ignore"):
        same = (found == expected) | (
            np.isnan(found) & np.isnan(expected) if kind.is_float else False
        )
        if kind.is_float:
            if op.ulp == 0:
                same &= (found != 0) | (np.signbit(found) == np.signbit(expected))
            digits = {dtypes.bfloat16: 16}.get(kind, 0)
            unit = np.spacing(np.abs(expected)) * np.float32(1 << digits)
            info = np.finfo(expected.dtype)
            allowed = op.ulp * unit + op.absolute * info.eps + op.lost * info.smallest_subnormal
            same |= np.abs(found.astype(np.longdouble) - expected.astype(np.longdouble)) <= allowed
    if not np.all(same):
        position = tuple(int(k) for k in np.argwhere(~np.asarray(same))[0])
        raise AssertionError(
            f"{op.name} of {dtype} at {position}: {found[position]!r}, expected {expected[position]!r}"
        )


# -- references where numpy has none, or means something else ---------------------------------------


def _divided(x: Array, y: Array, quotient: Callable[[Array, Array], Array]) -> Array:
    """Of integers; by 0 it is 0."""
    return np.where(y == 0, 0, quotient(x, np.where(y == 0, 1, y))).astype(x.dtype)


def floordiv(x: Array, y: Array) -> Array:
    return np.floor(x / y) if x.dtype.kind == "f" else _divided(x, y, np.floor_divide)


def truncdiv(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.trunc(x / y)
    whole = _divided(x, y, np.floor_divide)
    return whole + ((_divided(x, y, np.fmod) != 0) & ((x < 0) != (y < 0)) & (y != 0)).astype(
        x.dtype
    )


def mod(x: Array, y: Array) -> Array:
    return _divided(x, y, np.mod)


def fmod(x: Array, y: Array) -> Array:
    return _divided(x, y, np.fmod)


def shifted(x: Array, y: Array, left: bool) -> Array:
    """A shift by the width or more shifts everything out; y is read as unsigned."""
    bits = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < bits)
    by = np.where(inside, y, 0).astype(x.dtype)
    if left:
        return np.where(inside, np.left_shift(x, by), 0).astype(x.dtype)
    return np.where(inside, np.right_shift(x, by), np.where(x < 0, -1, 0).astype(x.dtype))


def ordered(x: Array, y: Array, larger: bool) -> Array:
    """The larger or the smaller, NaN if either is, with -0.0 below 0.0."""
    if x.dtype.kind != "f":
        return np.maximum(x, y) if larger else np.minimum(x, y)
    zero = (x == 0) & (y == 0)
    signs = np.signbit(x) & np.signbit(y) if larger else np.signbit(x) | np.signbit(y)
    plain = np.maximum(x, y) if larger else np.minimum(x, y)
    return np.where(zero, np.where(signs, -0.0, 0.0), plain)


def softsign(x: Array) -> Array:
    """x / (1 + |x|), which tends to -1 and 1."""
    return np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x)))


def whole_power(x: Array) -> Array:
    return x * x * x


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)


def softplus(x: Array) -> Array:
    return np.logaddexp(x, 0)


def expanding(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _unary(
    name: str, reference: Callable[[Array], Array], types: tuple[DType, ...], **options: Any
) -> Op:
    return Op(name, lambda x: getattr(x, name)(), reference, types, **options)


def _binary(name: str, ours: Any, reference: Any, types: tuple[DType, ...], **options: Any) -> Op:
    return Op(name, ours, reference, types, arguments=2, **options)


# -- the table ----------------------------------------------------------------------------------------
# ulp: docs/numerics.md measures each function; small floats are rounded once from float32, which
# costs another half unit at most. Where a formula has several roundings the reason stands beside it.

EXACT_OF_ONE = [
    _unary("neg", np.negative, NUMBERS),
    _unary("abs", np.abs, ALL),
    _unary("sign", np.sign, NUMBERS),
    _unary("square", np.square, NUMBERS),
    _unary("trunc", np.trunc, NUMBERS),
    _unary("floor", np.floor, NUMBERS),
    _unary("ceil", np.ceil, NUMBERS),
    _unary("round", np.round, NUMBERS),
    _unary("relu", lambda x: np.where(x <= 0, x.dtype.type(0), x), NUMBERS),
    _unary("relu6", lambda x: np.minimum(np.where(x <= 0, 0, x), 6), NUMBERS),
    _unary("hardtanh", lambda x: np.clip(x, -1, 1), FLOATS),
    _unary("isnan", np.isnan, ALL, gives_bool=True),
    _unary("isinf", np.isinf, ALL, gives_bool=True),
    _unary("isfinite", np.isfinite, ALL, gives_bool=True),
    _unary("logical_not", np.logical_not, ALL, gives_bool=True),
    _unary("bitwise_not", np.invert, BITS),
    _unary("sqrt", np.sqrt, NUMBERS, same=False),
    _unary("reciprocal", lambda x: 1 / x, NUMBERS, same=False),
]
CLOSE_OF_ONE = [
    _unary("rsqrt", lambda x: 1 / np.sqrt(x), NUMBERS, ulp=1.5, same=False),  # two roundings
    _unary("exp", np.exp, NUMBERS, ulp=2.5, same=False),
    _unary("exp2", np.exp2, NUMBERS, ulp=1.5, same=False),
    _unary("expm1", np.expm1, NUMBERS, ulp=3.5, same=False),
    _unary("log", np.log, NUMBERS, ulp=2.5, same=False),
    _unary("log2", np.log2, NUMBERS, ulp=1.5, same=False),
    _unary("log10", np.log10, NUMBERS, ulp=2.5, same=False),
    _unary("log1p", np.log1p, NUMBERS, ulp=3, same=False),
    _unary("sin", np.sin, FLOATS, ulp=2),
    _unary("cos", np.cos, FLOATS, ulp=2.5, absolute=3),
    _unary("asin", np.arcsin, FLOATS, ulp=4.5, lost=64),
    _unary("acos", np.arccos, FLOATS, ulp=4),
    _unary("atan", np.arctan, FLOATS, ulp=3.5),
    _unary("sinh", np.sinh, FLOATS, ulp=6.5),
    _unary("cosh", np.cosh, FLOATS, ulp=6.5),
    _unary("tanh", np.tanh, FLOATS, ulp=3.5),
    _unary("asinh", np.arcsinh, FLOATS, ulp=3.5),
    _unary("acosh", np.arccosh, FLOATS, ulp=3.5),
    _unary("atanh", np.arctanh, FLOATS, ulp=4),
    _unary("erf", erf, FLOATS, ulp=4),
    _unary("sigmoid", sigmoid, FLOATS, ulp=4),
    _unary("softplus", softplus, FLOATS, ulp=4),
    _unary("logsigmoid", lambda x: -softplus(-x), FLOATS, ulp=4),
    _unary("silu", lambda x: x * sigmoid(x), FLOATS, ulp=4.5, lost=64),
    _unary("swish", lambda x: x * sigmoid(x), FLOATS, ulp=4.5, lost=64),
    _unary(
        "mish", lambda x: x * np.tanh(softplus(x)), FLOATS, ulp=8, lost=64
    ),  # two functions and a product
    _unary("softsign", softsign, FLOATS, ulp=1.5),  # two roundings
    _unary("elu", lambda x: expanding(x, 1.0), FLOATS, ulp=3.5),
    _unary("celu", lambda x: expanding(x, 1.0), FLOATS, ulp=3.5),
    _unary("selu", lambda x: 1.0507 * expanding(x, 1.67326), FLOATS, ulp=5),  # and two constants
    _unary(
        "leaky_relu", lambda x: np.where(x < 0, x * 0.01, x), FLOATS, ulp=1.5
    ),  # 0.01 is rounded
    _unary(
        "hardsigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), FLOATS, ulp=2, absolute=1
    ),  # 1/6 is rounded
    _unary("hardswish", lambda x: x * (np.clip(x + 3, 0, 6)) / 6, FLOATS, ulp=2),  # three roundings
]
OF_TWO = [
    _binary("add", lambda a, b: a + b, np.add, NUMBERS),
    _binary("sub", lambda a, b: a - b, np.subtract, NUMBERS),
    _binary("mul", lambda a, b: a * b, np.multiply, NUMBERS),
    _binary("div", lambda a, b: a / b, lambda a, b: a / b, FLOATS),
    _binary("maximum", Tensor.maximum, lambda a, b: ordered(a, b, True), ALL),
    _binary("minimum", Tensor.minimum, lambda a, b: ordered(a, b, False), ALL),
    _binary("floordiv", lambda a, b: a // b, floordiv, INTS),
    _binary("truncdiv", lambda a, b: a.div(b, rounding_mode="trunc"), truncdiv, INTS),
    _binary("mod", lambda a, b: a % b, mod, INTS),
    _binary("fmod", Tensor.fmod, fmod, INTS),
    _binary("and", lambda a, b: a & b, np.bitwise_and, BITS),
    _binary("or", lambda a, b: a | b, np.bitwise_or, BITS),
    _binary("xor", lambda a, b: a ^ b, np.bitwise_xor, BITS),
    _binary("lshift", lambda a, b: a << b, lambda a, b: shifted(a, b, True), INTS),
    _binary("rshift", lambda a, b: a >> b, lambda a, b: shifted(a, b, False), INTS),
    _binary("lt", lambda a, b: a < b, np.less, ALL, gives_bool=True),
    _binary("le", lambda a, b: a <= b, np.less_equal, ALL, gives_bool=True),
    _binary("gt", lambda a, b: a > b, np.greater, ALL, gives_bool=True),
    _binary("ge", lambda a, b: a >= b, np.greater_equal, ALL, gives_bool=True),
    _binary("eq", lambda a, b: a == b, np.equal, ALL, gives_bool=True),
    _binary("ne", lambda a, b: a != b, np.not_equal, ALL, gives_bool=True),
    _binary("pow", lambda a, b: a**b, np.power, FLOATS[:3], ulp=0.6),
    # of float64 there is nothing wider: the error of log2 times the exponent of the result
    _binary("pow", lambda a, b: a**b, np.power, FLOATS[3:], ulp=3),
    _binary("copysign", Tensor.copysign, np.copysign, FLOATS),
    _binary("fma", lambda a, b: a.fma(b, a), lambda a, b: fma(a, b, a), WITHOUT_BFLOAT16),
    _binary("where", lambda a, b: (a < b).where(a, b), lambda a, b: np.where(a < b, a, b), ALL),
    _binary("logaddexp", Tensor.logaddexp, np.logaddexp, (dtypes.float32, dtypes.float64), ulp=4, absolute=4),
    _binary("isclose", Tensor.isclose, np.isclose, (dtypes.float64, *INTS[:6]), gives_bool=True),
]  # fmt: skip
OPS = [*EXACT_OF_ONE, *CLOSE_OF_ONE, *OF_TWO]
