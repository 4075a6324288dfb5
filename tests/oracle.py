"""What a TensorGraph means, in numpy: the check of the compiler that shares no code with it.

Owns: the value of every tensor op, of the elementwise ops with the semantics of core/ir/ops.py.
Sums of floats are taken in float64, so compare them with a tolerance. bfloat16 values are held as
float32 numbers that a bfloat16 can hold.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import ELEMENTS, ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp

Array = np.ndarray[Any, Any]
Buffers = Mapping[UOp, Array] | Callable[[UOp], Array]


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy type that holds values of `dtype` here."""
    return np.dtype("float32" if dtype is dtypes.bfloat16 else dtype.name)


def from_bytes(data: bytes, dtype: DType) -> Array:
    """The elements stored in the bytes of a buffer."""
    if dtype is not dtypes.bfloat16:
        return np.frombuffer(data, numpy_dtype(dtype)).copy()
    upper = np.frombuffer(data, np.uint16).astype(np.uint32) << np.uint32(16)
    return upper.view(np.float32)


def to_bytes(values: Array, dtype: DType) -> bytes:
    """The bytes of a buffer that holds `values` in row-major order."""
    values = np.ascontiguousarray(values, numpy_dtype(dtype))
    if dtype is not dtypes.bfloat16:
        return values.tobytes()
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16).tobytes()


def evaluate_tensor(root: UOp, buffers: Buffers, arguments: Sequence[Array] = ()) -> Array:
    """The value of `root`; `buffers` gives the elements of each BUFFER node, `arguments` the value of each PARAM of a body."""
    values: dict[UOp, Array] = {}
    with np.errstate(all="ignore"):
        for node in root.toposort(lambda n: n.op is not Ops.BUFFER):
            if node.dtype is dtypes.void:
                continue
            if node.op is Ops.BUFFER:
                found = buffers(node) if callable(buffers) else buffers[node]
                values[node] = np.asarray(found).reshape(node.shape)
            elif node.op is Ops.PARAM:
                values[node] = arguments[node.arg[0]].reshape(node.shape)
            elif node.op is Ops.APPLY:
                values[node] = evaluate_tensor(node.arg, {}, [values[s] for s in node.src])
            else:
                values[node] = _value(node, [values[s] for s in node.src])
            assert values[node].shape == node.shape, (node.op, values[node].shape, node.shape)
    return values[root]


def _value(node: UOp, src: list[Array]) -> Array:
    if node.op in ELEMENTWISE:
        return elementwise(node, src)
    held = numpy_dtype(node.dtype)
    match node.op:
        case Ops.CONST:
            return np.array(node.arg, held)
        case Ops.IOTA:
            return np.arange(node.arg, dtype=np.int64).astype(held)
        case Ops.RESHAPE:
            return src[0].reshape(node.arg)
        case Ops.PERMUTE:
            return src[0].transpose(node.arg)
        case Ops.EXPAND:
            return np.broadcast_to(src[0], node.arg)
        case Ops.PAD:
            return np.pad(src[0], node.arg) if node.arg else src[0]
        case Ops.SHRINK:
            return src[0][tuple(slice(begin, end) for begin, end in node.arg)]
        case Ops.FLIP:
            return np.flip(src[0], [k for k, flipped in enumerate(node.arg) if flipped])
        case Ops.SKEW:
            return _skew(src[0], *node.arg)
        case Ops.REDUCE_AXIS:
            return _reduce(src[0], node.dtype, *node.arg)
        case Ops.CONTIGUOUS | Ops.DETACH | Ops.COPY:
            return src[0]
        case _:
            raise NotImplementedError(f"{node.op} is not an op of a TensorGraph")


def _skew(x: Array, axis: int, by: int, step: int, size: int) -> Array:
    shape = x.shape[:axis] + (size,) + x.shape[axis + 1 :]
    if 0 in shape or x.shape[axis] == 0:
        return np.zeros(shape, x.dtype)
    position = np.indices(shape, sparse=True)
    source = position[axis] + step * position[by]
    inside = (0 <= source) & (source < x.shape[axis])
    chosen = np.broadcast_to(np.where(inside, source, 0), shape)
    return np.where(inside, np.take_along_axis(x, chosen, axis), np.zeros((), x.dtype))


def _reduce(x: Array, dtype: DType, op: Ops, axes: tuple[int, ...]) -> Array:
    wide = np.float64 if dtype.is_float else numpy_dtype(dtype)
    function, start = {
        Ops.ADD: (np.add, 0),
        Ops.MUL: (np.multiply, 1),
        Ops.MAX: (np.maximum, dtypes.min(dtype)),
        Ops.MIN: (np.minimum, dtypes.max(dtype)),
    }[op]
    result = function.reduce(x.astype(wide), axis=axes, keepdims=True, dtype=wide, initial=start)
    return cast(result, dtypes.float64, dtype) if dtype.is_float else result


# -- elementwise --------------------------------------------------------------------------------


def elementwise(node: UOp, src: list[Array]) -> Array:
    """One elementwise op; each case says what core/ir/ops.py says, in numpy."""
    dtype = node.src[-1].dtype
    match node.op:
        case Ops.CAST:
            return cast(src[0], node.src[0].dtype, node.dtype)
        case Ops.BITCAST:
            return from_bytes(to_bytes(src[0], dtype), node.dtype).reshape(src[0].shape)
        case Ops.WHERE:
            return np.where(src[0], src[1], src[2])
        case Ops.CMPLT:
            return np.less(src[0], src[1])
        case Ops.CMPEQ:
            return np.equal(src[0], src[1])
    result = _ALU[node.op](*src)
    if dtype is dtypes.bfloat16:
        return _round_float(result, 8, -126, 127).astype(np.float32)
    return np.asarray(result).astype(numpy_dtype(node.dtype))


def cast(x: Array, source: DType, target: DType) -> Array:
    """Values of `source` as values of `target`."""
    held = numpy_dtype(target)
    if target.is_bool:
        return x != 0
    if source.is_float and target.is_int:
        return _saturate(np.trunc(x.astype(np.float64)), target)
    if target is dtypes.bfloat16:
        return _round_float(x, 8, -126, 127).astype(held)
    if target is dtypes.float16:
        return _round_float(x, 11, -14, 15).astype(held)
    return x.astype(held)


def _saturate(whole: Array, target: DType) -> Array:
    assert target.lo is not None and target.hi is not None
    held = numpy_dtype(target)
    inside = (whole > float(target.lo)) & (whole < float(target.hi + 1))
    result = np.where(inside, whole, 0.0).astype(held)
    result = np.where(whole >= float(target.hi + 1), held.type(target.hi), result)
    return np.where(whole <= float(target.lo), held.type(target.lo), result)


def _round_float(x: Array, precision: int, least: int, greatest: int) -> Array:
    """To nearest even in a binary format of `precision` bits and exponents least .. greatest."""
    exact = np.asarray(x).astype(np.longdouble)
    _, exponent = np.frexp(exact)
    unit = np.maximum(exponent - 1, least) - (precision - 1)
    rounded = np.ldexp(np.rint(np.ldexp(exact, -unit)), unit)
    largest = np.ldexp(np.longdouble(2) - np.ldexp(np.longdouble(1), 1 - precision), greatest)
    rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, exact), rounded)
    return np.where(np.isfinite(exact), rounded, exact)


def _to_tf32(x: Array) -> Array:
    """Half a unit of 11 digits added to the size, and what is behind the digits cut off."""
    exact = np.asarray(x).astype(np.longdouble)
    _, exponent = np.frexp(exact)
    unit = np.maximum(exponent - 1, {2: -14, 4: -126, 8: -1022}[x.itemsize]) - 10
    with np.errstate(all="ignore"):
        size = np.ldexp(np.floor(np.ldexp(np.abs(exact), -unit) + 0.5), unit)
        return np.where(np.isfinite(exact), np.copysign(size, exact), exact)


def _truncdiv(x: Array, y: Array) -> Array:
    floor = np.floor_divide(x, y)
    inexact = (y != 0) & (np.mod(x, y) != 0) & ((x < 0) != (y < 0))
    return floor + inexact.astype(x.dtype)


def _maximum(x: Array, y: Array) -> Array:
    if x.dtype.kind != "f":
        return np.maximum(x, y)
    return np.where((x == 0) & (y == 0), x + y, np.maximum(x, y))


def _minimum(x: Array, y: Array) -> Array:
    if x.dtype.kind != "f":
        return np.minimum(x, y)
    return np.where((x == 0) & (y == 0), -(-x + -y), np.minimum(x, y))


_C_FMA = ctypes.CDLL(ctypes.util.find_library("m")).fma
_C_FMA.restype, _C_FMA.argtypes = ctypes.c_double, [ctypes.c_double] * 3


def fma(x: Array, y: Array, z: Array) -> Array:
    """Rounded once: by the C library; of narrower types a double, rounded to odd."""
    if x.dtype == np.float64:
        return np.vectorize(_C_FMA, otypes=[np.float64])(x, y, z)
    product = x.astype(np.float64) * y
    total = product + z
    part = total - product
    lost = (product - (total - part)) + (z - part)
    is_even = total.view(np.uint64) % 2 == 0
    towards = np.where(lost > 0, np.inf, -np.inf)
    return np.where((np.abs(lost) > 0) & is_even, np.nextafter(total, towards), total)


def _too_far(x: Array, y: Array) -> Array:
    return y.view(np.dtype(f"u{y.dtype.itemsize}")) >= 8 * x.dtype.itemsize


def _shift_left(x: Array, y: Array) -> Array:
    far = _too_far(x, y)
    return np.where(far, np.zeros_like(x), np.left_shift(x, np.where(far, 0, y).astype(y.dtype)))


def _shift_right(x: Array, y: Array) -> Array:
    far = _too_far(x, y)
    sign = np.where(x < 0, -1, 0).astype(x.dtype) if x.dtype.kind == "i" else np.zeros_like(x)
    return np.where(far, sign, np.right_shift(x, np.where(far, 0, y).astype(y.dtype)))


def _dot(x: Array, y: Array) -> Array:
    """Of a remainder and a quotient by the size of half a word; the remainder has the sign of the type."""
    size = np.array(1, x.dtype) << (8 * x.itemsize // 2)
    upper = [word // size for word in (x, y)]
    lower = [word - size * above for word, above in zip((x, y), upper)]
    if x.dtype.kind == "i":
        lower = [np.where(part >= size // 2, part - size, part) for part in lower]
    return lower[0] * lower[1] + upper[0] * upper[1]


_ALU: dict[Ops, Callable[..., Array]] = {
    **{op: getattr(np, row.numpy) for op, row in ELEMENTS.items() if row.numpy},
    Ops.NOT: np.invert,
    Ops.FLOORDIV: np.floor_divide,
    Ops.MOD: np.mod,
    Ops.TRUNCDIV: _truncdiv,
    Ops.TRUNCMOD: lambda x, y: np.where(y == 0, np.zeros_like(x), x - _truncdiv(x, y) * y),
    Ops.MAX: _maximum,
    Ops.MIN: _minimum,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: _shift_left,
    Ops.SHR: _shift_right,
    Ops.MULACC: lambda x, y, z: x * y + z,
    Ops.FMA: fma,
    Ops.DOT: _dot,
    Ops.TF32: _to_tf32,
}

assert set(_ALU) | {Ops.CAST, Ops.BITCAST, Ops.WHERE, Ops.CMPLT, Ops.CMPEQ} == ELEMENTWISE
