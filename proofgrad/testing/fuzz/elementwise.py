"""Methods on each element: how operands are drawn, and what each means in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from proofgrad.testing.fuzz.operation import (
    Drawing,
    Drawn,
    NothingFits,
    Operation,
    Rounding,
    as_bool,
    as_float,
    common_type,
    compared,
    pair,
    pair_of_floats,
    same,
)
from proofgrad.testing.fuzz.values import CODES, FLOATS, INTS, Array, least_float

CLOSE = Rounding.CLOSE


# -- meanings where numpy has none, or another one -------------------------------------------------


def ordered(x: Array, y: Array, larger: bool) -> Array:
    """The larger or the smaller; NaN if either is; -0.0 is below 0.0."""
    if x.dtype.kind != "f":
        return np.maximum(x, y) if larger else np.minimum(x, y)
    zero = (x == 0) & (y == 0)
    signs = np.signbit(x) & np.signbit(y) if larger else np.signbit(x) | np.signbit(y)
    return np.where(
        zero,
        np.where(signs, -0.0, 0.0).astype(x.dtype),
        (np.maximum if larger else np.minimum)(x, y),
    )


def maximum(x: Array, y: Array) -> Array:
    """`Tensor.maximum`: NaN if either is; 0.0 is above -0.0."""
    return ordered(x, y, True)


def minimum(x: Array, y: Array) -> Array:
    """`Tensor.minimum`: NaN if either is; -0.0 is below 0.0."""
    return ordered(x, y, False)


def clamp(x: Array, min_: Any = None, max_: Any = None) -> Array:
    """`Tensor.clamp`: first at least `min_`, then at most `max_`."""
    above = x if min_ is None else maximum(x, np.asarray(min_, x.dtype))
    return above if max_ is None else minimum(above, np.asarray(max_, x.dtype))


def _by(quotient: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Of integers: by 0 it is 0."""

    def meaning(x: Array, y: Array) -> Array:
        if x.dtype.kind == "f":
            return quotient(x, y)
        x, y = np.broadcast_arrays(x, y)
        return np.where(y == 0, 0, quotient(x, np.where(y == 0, 1, y).astype(y.dtype))).astype(
            x.dtype
        )

    return meaning


floordiv, mod, fmod = _by(np.floor_divide), _by(np.mod), _by(np.fmod)


def divided(x: Array, y: Array, rounding_mode: str | None = None) -> Array:
    """`Tensor.div`: exact, or rounded down ("floor") or towards 0 ("trunc")."""
    match rounding_mode:
        case None:
            return np.divide(x, y)
        case "floor":
            return floordiv(x, y)
    if x.dtype.kind == "f":
        return np.trunc(x / y)
    whole = floordiv(x, y)
    result: Array = whole + ((fmod(x, y) != 0) & ((x < 0) != (y < 0))).astype(x.dtype)
    return result


def shifted(x: Array, y: Array, left: bool) -> Array:
    """A shift by the width or more, or by less than 0, shifts everything out."""
    x, y = np.broadcast_arrays(x, y)
    inside = (y >= 0) & (y < x.dtype.itemsize * 8)
    by = np.where(inside, y, 0).astype(x.dtype)
    if left:
        return np.where(inside, np.left_shift(x, by), 0).astype(x.dtype)
    return np.where(inside, np.right_shift(x, by), np.where(x < 0, -1, 0).astype(x.dtype))


def power(x: Array, y: Array) -> Array:
    """Of integers: modulo 2**bits, and 0 for negative exponents."""
    if x.dtype.kind == "f":
        return np.power(x, y)
    x, y = np.broadcast_arrays(x, y)
    modulus = 1 << (8 * x.dtype.itemsize)
    found = [pow(int(a), int(b), modulus) if b >= 0 else 0 for a, b in zip(x.ravel(), y.ravel())]
    whole = np.array(found, dtype=object).reshape(x.shape)
    half = modulus // 2
    signed = [v - modulus if x.dtype.kind == "i" and v >= half else v for v in whole.ravel()]
    return np.array(signed, dtype=object).reshape(x.shape).astype(x.dtype)


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z, rounded twice: one rounding more than the operation has."""
    return x * y + z


def erf(x: Array) -> Array:
    """The error function, from the standard library, in float64."""
    result: Array = np.vectorize(math.erf, otypes=[np.float64])(x)
    return result


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    result: Array = np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))
    return result


def softplus(x: Array, beta: float = 1.0) -> Array:
    """log(1 + exp(beta * x)) / beta, without overflow."""
    return np.logaddexp(x * beta, 0) / beta


def gelu(x: Array) -> Array:
    """The approximation by tanh, written with a sigmoid."""
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def softsign(x: Array) -> Array:
    """x / (1 + |x|), and the sign of an infinity, to which that tends."""
    return np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x)))


def elu(x: Array, alpha: float = 1.0) -> Array:
    """x above 0, else alpha * (exp(x) - 1)."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def celu(x: Array, alpha: float = 1.0) -> Array:
    """x above 0, else alpha * (exp(x / alpha) - 1)."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


def selu(x: Array) -> Array:
    """`elu` with alpha 1.67326, times 1.0507."""
    return 1.0507 * elu(x, 1.67326)


def isclose(
    x: Array, y: Array, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    """`Tensor.isclose`, by numpy."""
    return np.isclose(x, y, rtol, atol, equal_nan)


def relu(x: Array) -> Array:
    """x above 0, else 0; NaN stays."""
    return np.where(x <= 0, np.zeros((), x.dtype), x)


# -- draws ----------------------------------------------------------------------------------------


def one(*kinds: str) -> Callable[[Drawing], Drawn]:
    """A draw of one Tensor of one of these kinds."""
    return lambda d: ((d.any(*kinds),), {})


def two(*kinds: str) -> Callable[[Drawing], Drawn]:
    """A draw of a Tensor and a partner: a number, or a Tensor that broadcasts with it."""

    def draw(d: Drawing) -> Drawn:
        x = d.any(*kinds)
        return (x, d.partner(x, *kinds)), {}

    return draw


def two_tensors(*kinds: str) -> Callable[[Drawing], Drawn]:
    """A draw of two Tensors of one type and shape."""

    def draw(d: Drawing) -> Drawn:
        x = d.any(*kinds)
        return (x, d.like(x)), {}

    return draw


def _with_number(*kinds: str) -> Callable[[Drawing], Drawn]:
    def draw(d: Drawing) -> Drawn:
        x = d.any(*kinds)
        return (x, d.number(d.value(x).dtype)), {}

    return draw


def _shift(d: Drawing) -> Drawn:
    x = d.any("int")
    if d.random.random() < 0.6:
        return (x, d.random.choice([0, 1, 2, 3, 5, 7])), {}
    return (x, d.leaf(d.value(x).dtype, d.value(x).shape, "small")), {}


def _power(d: Drawing) -> Drawn:
    x = d.any("int", "float")
    return (x, d.random.choice([0, 1, 2, 3, 3])), {}


def _float_power(d: Drawing) -> Drawn:
    x = d.any("float")
    return (x, d.random.choice([0.5, -1, -2, 1.5, 2.5])), {}


def _base(d: Drawing) -> Drawn:
    return (d.any("float"), d.random.choice([2, 0.5, 3.0, 1.25])), {}


def _where(d: Drawing) -> Drawn:
    condition = d.any("bool")
    x = d.leaf(d.random.choice(["int32", "float32"]), d.value(condition).shape)
    for _ in range(5):
        candidate = d.any("bool", "int", "float")
        if d.value(candidate).shape == d.value(condition).shape:
            x = candidate
    return (condition, x, d.partner(x, *ANY)), {}


def _masked_fill(d: Drawing) -> Drawn:
    x = d.any("int", "float")
    mask = d.leaf("bool", d.value(x).shape)
    return (x, mask, d.number(d.value(x).dtype)), {}


def _clamp(d: Drawing) -> Drawn:
    x = d.any("int", "float")
    low, high = sorted([d.number(d.value(x).dtype), d.number(d.value(x).dtype)])
    if isinstance(low, bool) or not isinstance(high, type(low)):
        raise NothingFits
    return (x,), d.random.choice([{"min_": low, "max_": high}, {"min_": low}, {"max_": high}])


def _clamp_types(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    found = common_type([types[0], *options.values()])
    return found, found


def _cast(d: Drawing) -> Drawn:
    x = d.any("bool", "int", "float", "code")
    return (x, d.random.choice(["bool", *INTS, *FLOATS, *CODES])), {}


def _cast_types(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    return types[1], types[1]


def _bitcast(d: Drawing) -> Drawn:
    x = d.any("int", "float")
    same_width = {
        "float32": ["int32", "uint32"], "int32": ["uint32"], "uint32": ["int32"], "int8": ["uint8"],
        "float64": ["int64", "uint64"], "float16": ["int16", "uint16"], "int64": ["uint64"],
        "uint8": ["int8"], "int16": ["uint16"], "uint16": ["int16"], "uint64": ["int64"],
    }  # fmt: skip
    choices = same_width.get(d.value(x).dtype)
    if not choices or np.isnan(d.value(x).estimate).any():  # the bits of a NaN are not defined
        raise NothingFits
    return (x, d.random.choice(choices)), {}


def _to(dtype: str) -> Callable[..., tuple[str | None, str]]:
    return lambda types, options: (dtype, dtype)


def _where_types(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    found = common_type(types[1:])
    return found, found


def _choose(condition: Array, x: Any, y: Any) -> Array:
    result: Array = np.where(condition, x, y)
    return result


def _unfilled(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    return None, common_type([types[0], types[2]])


def _many(d: Drawing) -> Drawn:
    x = d.any("int", "float")
    return (x, d.like(x), d.like(x)), {}


def _lerp(d: Drawing) -> Drawn:
    x = d.any("float")
    return (x, d.like(x), d.random.choice([0.5, 0.25, 0.3])), {}


def _unary(
    names: dict[str, Callable[..., Array]], kinds: tuple[str, ...], **more: Any
) -> list[Operation]:
    return [
        Operation(name, one(*kinds), f, is_elementwise=True, **more) for name, f in names.items()
    ]


def _binary(
    names: dict[str, Callable[..., Array]], kinds: tuple[str, ...], **more: Any
) -> list[Operation]:
    more.setdefault("types", pair)
    return [
        Operation(name, two(*kinds), f, data=2, is_elementwise=True, **more)
        for name, f in names.items()
    ]


def turned(f: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """`f` with its operands exchanged: the meaning of a reflected operator."""
    return lambda x, y: f(y, x)


NUMBERS = ("int", "float")
ANY = ("bool", "int", "float")
BITS = ("bool", "int")
_ARITHMETIC: dict[str, Callable[..., Array]] = {
    "add": np.add, "mul": np.multiply, "__add__": np.add, "__mul__": np.multiply,
    "maximum": maximum, "minimum": minimum, "usum": np.add, "uprod": np.multiply,
}  # fmt: skip
_SUBTRACT: dict[str, Callable[..., Array]] = {"sub": np.subtract, "__sub__": np.subtract}
_REMAINDERS: dict[str, Callable[..., Array]] = {
    "floordiv": floordiv, "mod": mod, "fmod": fmod, "__floordiv__": floordiv, "__mod__": mod,
}  # fmt: skip
_LOGIC: dict[str, Callable[..., Array]] = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "__and__": np.bitwise_and, "__or__": np.bitwise_or, "__xor__": np.bitwise_xor,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[..., Array]] = {
    "__lt__": np.less, "__le__": np.less_equal, "__gt__": np.greater, "__ge__": np.greater_equal,
    "__eq__": np.equal, "__ne__": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_EXACT: dict[str, Callable[..., Array]] = {
    "abs": np.abs, "__abs__": np.abs, "sign": np.sign, "square": np.square, "trunc": np.trunc,
    "floor": np.floor, "ceil": np.ceil, "round": np.round, "relu": relu,
    "relu6": lambda x: minimum(relu(x), np.asarray(6, x.dtype)),
}  # fmt: skip
_CLOSE: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": erf,
    "sigmoid": sigmoid, "softplus": softplus, "logsigmoid": lambda x: -softplus(-x),
    "silu": lambda x: x * sigmoid(x), "swish": lambda x: x * sigmoid(x), "gelu": gelu,
    "quick_gelu": lambda x: x * sigmoid(1.702 * x), "mish": lambda x: x * np.tanh(softplus(x)),
    "softsign": softsign, "elu": elu, "celu": celu, "selu": selu,
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip

OPERATIONS = [
    *_unary(_EXACT, NUMBERS, types=same),
    *_unary({"neg": np.negative, "__neg__": np.negative}, NUMBERS, types=same),
    *_unary({"__pos__": lambda x: x}, NUMBERS, types=same, is_plain=False),
    *_unary({"bitwise_not": np.invert, "__invert__": np.invert}, BITS, types=same),
    *_unary({"sqrt": np.sqrt, "reciprocal": lambda x: 1 / x}, NUMBERS, types=as_float),
    *_unary(_CLOSE, NUMBERS, types=as_float, rounding=CLOSE),
    *_unary({"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
             "logical_not": np.logical_not}, ANY, types=as_bool),
    *_unary({"hardtanh": lambda x: clamp(x, -1, 1)}, ("float",), types=same),
    *_unary({"leaky_relu": lambda x: np.where(x < 0, x * 0.01, x)}, ("float",), types=same, rounding=CLOSE),
    *_binary(_ARITHMETIC, ANY),
    *_binary(_SUBTRACT, NUMBERS),
    *_binary({"div": divided, "__truediv__": divided}, NUMBERS, types=pair_of_floats),
    *_binary(_REMAINDERS, NUMBERS, is_smooth=False),
    *_binary(_LOGIC, BITS),
    *_binary(_COMPARISONS, ANY, types=compared),
    *[Operation(f"__r{name}__", _with_number(*kinds), turned(f), types, data=2, is_elementwise=True,
                is_smooth=name not in ("floordiv", "mod"))
      for name, kinds, f, types in (
        ("add", NUMBERS, np.add, pair), ("sub", NUMBERS, np.subtract, pair), ("mul", NUMBERS, np.multiply, pair),
        ("truediv", NUMBERS, np.divide, pair_of_floats), ("floordiv", NUMBERS, floordiv, pair),
        ("mod", NUMBERS, mod, pair), ("and", ("int",), np.bitwise_and, pair),
        ("or", ("int",), np.bitwise_or, pair), ("xor", ("int",), np.bitwise_xor, pair))],
    *[Operation(name, _shift, lambda x, y, left=left: shifted(x, y, left), pair, data=2, is_elementwise=True)
      for name, left in (("lshift", True), ("__lshift__", True), ("rshift", False), ("__rshift__", False))],
    *[Operation(name, _with_number("int"), lambda x, y, left=left: shifted(y, x, left), pair, data=2,
                is_elementwise=True) for name, left in (("__rlshift__", True), ("__rrshift__", False))],
    Operation("pow", _power, power, pair, CLOSE, data=2, is_elementwise=True),
    Operation("__pow__", _float_power, power, pair, CLOSE, data=2, is_elementwise=True, noise=12),
    Operation("__rpow__", _base, lambda x, y: np.power(y, x), pair, CLOSE, data=2, noise=12),
    Operation("copysign", two_tensors(*NUMBERS), np.copysign, pair_of_floats, data=2, is_elementwise=True,
              is_smooth=False),
    Operation("logaddexp", two_tensors("float"), np.logaddexp, pair_of_floats, CLOSE, data=2),
    Operation("isclose", two_tensors(*NUMBERS), isclose, lambda t, o: (least_float(common_type(t)), "bool"),
              CLOSE, data=2),
    Operation("allclose", two_tensors(*NUMBERS), lambda x, y: np.isclose(x, y).all(),
              lambda t, o: (least_float(common_type(t)), "bool"), CLOSE, data=2),
    Operation("where", _where, _choose, _where_types, data=3, first=1, is_elementwise=True),
    Operation("masked_fill", _masked_fill, lambda x, mask, y: np.where(mask, y, x), _unfilled,
              is_elementwise=True),
    Operation("clamp", _clamp, clamp, _clamp_types, is_elementwise=True),
    Operation("clip", _clamp, clamp, _clamp_types, is_elementwise=True),
    Operation("fma", _many, fma, pair_of_floats, CLOSE, data=3),
    Operation("lerp", _lerp, lambda x, y, w: x + (y - x) * w, pair_of_floats, CLOSE, data=3),
    Operation("cast", _cast, lambda x, to: x, _cast_types, is_elementwise=True, is_plain=False),
    Operation("bitcast", _bitcast, lambda x, to: x.view(to), lambda t, o: (None, t[1]), is_smooth=False,
              is_elementwise=True, is_plain=False),
    *[Operation(name, one(*ANY, "code"), lambda x: x, _to(dtype), is_elementwise=True, is_plain=False)
      for name, dtype in (("float", "float32"), ("half", "float16"), ("bfloat16", "bfloat16"), ("int", "int32"),
                          ("long", "int64"), ("short", "int16"), ("double", "float64"), ("bool", "bool"))],
]  # fmt: skip
