"""OpenCL C for operations on vectors: types, constants, and an expression for each op.

Owns: the total meaning of every op (core/ir/ops.py, MEANING) in each lane. Does not own: scalars (functions.py),
statements (emit.py), memory (vector_memory.py).

OpenCL C has vectors of 2, 4, 8 and 16 elements, and none of bools: a vector of bools is one of chars that are 0 or -1, as
comparisons give them. What has no expression on vectors is computed lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proofgrad.backends.opencl.functions import Functions, constant, register_type, rounded_once
from proofgrad.backends.opencl.functions import expression as scalar_expression
from proofgrad.core.compile.machine.target import CompileError
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import ELEMENTS, Ops

VECTOR_LANES = (2, 4, 8, 16)
_STORED_AS_BITS = (dtypes.float16, dtypes.bfloat16, *dtypes.fp8s)


def vector_type(dtype: DType) -> str:
    """The OpenCL C type of a value in registers. Raises: CompileError for a vector that there is not."""
    if dtype.lanes == 1:
        return register_type(dtype)
    if dtype.lanes not in VECTOR_LANES:
        raise CompileError(f"OpenCL C has vectors of 2, 4, 8 or 16 elements, and this is {dtype!r}")
    return f"{'char' if dtype.is_bool else register_type(dtype.scalar)}{dtype.lanes}"


def lane(text: str, number: int) -> str:
    """One lane of a vector that has a name, or stands in parentheses."""
    return f"{text}.s{number:x}"


def scalar_lane(text: str, dtype: DType, number: int) -> str:
    """One lane of a vector of this type as a scalar."""
    one = lane(text, number)
    return f"({one} != 0)" if dtype.is_bool else one


def of_lanes(dtype: DType, lanes: Sequence[str]) -> str:
    """The vector of these scalars."""
    inside = [f"({x} ? -1 : 0)" for x in lanes] if dtype.is_bool else lanes
    return f"(({vector_type(dtype)})({', '.join(inside)}))"


def broadcast(text: str, dtype: DType) -> str:
    """A scalar in each lane."""
    return f"(({vector_type(dtype)})({f'{text} ? -1 : 0' if dtype.is_bool else text}))"


def vector_constant(value: object, dtype: DType) -> str:
    """A constant; `value`: of all lanes, or a tuple of one each."""
    if not isinstance(value, tuple):
        return broadcast(constant(value, dtype.scalar), dtype)  # type: ignore[arg-type]
    return of_lanes(dtype, [constant(each, dtype.scalar) for each in value])


def expression(
    op: Ops,
    dtype: DType,
    operands: Sequence[str],
    src_dtypes: Sequence[DType],
    functions: Functions,
) -> str:
    """The value of an elementwise op on vectors."""

    def write(kind: DType, these: Sequence[str], kinds: Sequence[DType]) -> str:
        return _whole(op, kind, these, kinds, functions)

    return in_parts(write, dtype, operands, src_dtypes, functions.called_bytes)


def in_parts(
    write: Callable[[DType, Sequence[str], Sequence[DType]], str],
    dtype: DType,
    operands: Sequence[str],
    src_dtypes: Sequence[DType],
    called_bytes: int,
) -> str:
    """What `write` makes of halves, and of theirs, until none is wider than a function is given; 0: of the whole."""
    widest = dtype.lanes * max([kind.scalar.itemsize for kind in (dtype, *src_dtypes)])
    if not called_bytes or widest <= called_bytes or dtype.lanes == VECTOR_LANES[0]:
        return write(dtype, operands, src_dtypes)
    half = dtype.scalar.vec(dtype.lanes // 2)
    kinds = [kind.scalar.vec(half.lanes) for kind in src_dtypes]
    halves = [
        in_parts(write, half, [f"{x}.{part}" for x in operands], kinds, called_bytes)
        for part in ("lo", "hi")
    ]
    return f"(({vector_type(dtype)})({', '.join(halves)}))"


def _whole(
    op: Ops,
    dtype: DType,
    operands: Sequence[str],
    src_dtypes: Sequence[DType],
    functions: Functions,
) -> str:
    kind = src_dtypes[0]
    if op is Ops.WHERE:
        condition, if_true, if_false = operands
        return choice(mask_of(condition, dtype), if_true, if_false)
    if op is Ops.CAST:
        return _cast(operands[0], kind, dtype, functions)
    if op is Ops.BITCAST:
        return _bitcast(operands[0], kind, dtype, functions)
    if kind.scalar not in _STORED_AS_BITS:
        if op in (Ops.CMPLT, Ops.CMPEQ):
            return _compare(op, operands, kind)
        if kind.is_float and op in (Ops.FMA, Ops.MULACC):
            return rounded_once(dtype, vector_type(dtype), operands, functions)
        table = _BOOL if kind.is_bool else _FLOAT if kind.is_float else _INT
        if op in table:
            return table[op](dtype, *operands)
        if kind.is_float and op in (Ops.MAX, Ops.MIN):
            return _float_order(op, dtype, operands, functions)
    return _lane_by_lane(op, dtype, operands, src_dtypes, functions)


def _lane_by_lane(
    op: Ops,
    dtype: DType,
    operands: Sequence[str],
    src_dtypes: Sequence[DType],
    functions: Functions,
) -> str:
    kinds = [kind.scalar for kind in src_dtypes]
    lanes = []
    for number in range(dtype.lanes):
        these = [scalar_lane(x, kind, number) for x, kind in zip(operands, src_dtypes)]
        lanes.append(scalar_expression(op, dtype.scalar, these, kinds, functions))
    return of_lanes(dtype, lanes)


# -- masks ------------------------------------------------------------------------------------------

_INTS = {8: "char", 16: "short", 32: "int", 64: "long"}


def _width(dtype: DType) -> int:
    return 8 if dtype.is_bool else dtype.bits


def mask_of(text: str, dtype: DType) -> str:
    """A vector of bools as ints of the width of `dtype`: what a choice takes and comparisons give."""
    if _width(dtype) == 8:
        return text
    return f"convert_{_INTS[dtype.bits]}{dtype.lanes}({text})"


def _truth(text: str, dtype: DType) -> str:
    """What a comparison of values of `dtype` gives, as a vector of bools."""
    return text if _width(dtype) == 8 else f"convert_char{dtype.lanes}({text})"


def choice(condition: str, if_true: str, if_false: str) -> str:
    """What select() is, which PoCL calls as a function each time."""
    return f"({condition} ? {if_true} : {if_false})"


def _compare(op: Ops, operands: Sequence[str], kind: DType) -> str:
    x, y = operands
    if kind.is_bool:
        return f"(~{x} & {y})" if op is Ops.CMPLT else f"(~({x} ^ {y}))"
    return _truth(f"({x} {'<' if op is Ops.CMPLT else '=='} {y})", kind)


# -- arithmetic -------------------------------------------------------------------------------------


def _infix(symbol: str) -> Callable[..., str]:
    return lambda _, x, y: f"({x} {symbol} {y})"


def _call(function: str) -> Callable[..., str]:
    return lambda _, *operands: f"{function}({', '.join(operands)})"


def _unsigned(text: str, dtype: DType) -> str:
    return text if dtype.is_unsigned else f"as_u{vector_type(dtype)}({text})"


def _as(text: str, dtype: DType) -> str:
    """`text`, of the unsigned type of `dtype`, as that."""
    return text if dtype.is_unsigned else f"as_{vector_type(dtype)}({text})"


def _wrapping(symbol: str) -> Callable[..., str]:
    """Ring arithmetic modulo 2**bits: signed arithmetic that wraps is undefined in C."""
    return lambda dtype, x, y: _as(f"({_unsigned(x, dtype)} {symbol} {_unsigned(y, dtype)})", dtype)


def _int_neg(dtype: DType, x: str) -> str:
    zero = f"(({_unsigned_type(dtype)})(0))"
    return _as(f"({zero} - {_unsigned(x, dtype)})", dtype)


def _unsigned_type(dtype: DType) -> str:
    return vector_type(dtype) if dtype.is_unsigned else f"u{vector_type(dtype)}"


def _int_mulacc(dtype: DType, x: str, y: str, z: str) -> str:
    return _wrapping("+")(dtype, _wrapping("*")(dtype, x, y), z)


def _shl(dtype: DType, x: str, y: str) -> str:
    """Amounts are taken modulo the width in OpenCL C; here a larger one gives 0."""
    amount, kind = _unsigned(y, dtype), _unsigned_type(dtype)
    shifted, zero = f"({_unsigned(x, dtype)} << {amount})", f"(({kind})(0))"
    is_inside = f"({amount} < ({kind})({dtype.bits}))"
    return _as(choice(is_inside, shifted, zero), dtype)


def _shr(dtype: DType, x: str, y: str) -> str:
    """A larger amount gives 0, or the sign: that of a shift by all bits but one."""
    amount, kind = _unsigned(y, dtype), _unsigned_type(dtype)
    if not dtype.is_unsigned:
        nearest = f"min({amount}, ({kind})({dtype.bits - 1}))"
        return f"({x} >> {_as(nearest, dtype)})"
    is_inside = f"({amount} < ({kind})({dtype.bits}))"
    return choice(is_inside, f"({x} >> {amount})", f"(({kind})(0))")


_BOOL: dict[Ops, Callable[..., str]] = {
    Ops.NOT: lambda _, x: f"(~{x})",
    Ops.AND: _infix("&"),
    Ops.OR: _infix("|"),
    Ops.XOR: _infix("^"),
}
_INT: dict[Ops, Callable[..., str]] = {
    Ops.NEG: _int_neg,
    Ops.NOT: lambda _, x: f"(~{x})",
    Ops.ADD: _wrapping("+"),
    Ops.MUL: _wrapping("*"),
    Ops.AND: _infix("&"),
    Ops.OR: _infix("|"),
    Ops.XOR: _infix("^"),
    Ops.MULACC: _int_mulacc,
    Ops.SHL: _shl,
    Ops.SHR: _shr,
    Ops.MAX: _call("max"),
    Ops.MIN: _call("min"),
}
_FLOAT: dict[Ops, Callable[..., str]] = {
    **{op: _call(row.c) for op, row in ELEMENTS.items() if row.c},
    Ops.NEG: lambda _, x: f"(-{x})",
    Ops.ADD: _infix("+"),
    Ops.MUL: _infix("*"),
    Ops.FDIV: _infix("/"),
}


def _float_order(op: Ops, dtype: DType, operands: Sequence[str], functions: Functions) -> str:
    """MAX or MIN: NaN wins; of equal numbers, which differ at most in the sign of 0, join the bits."""
    kind, bits = vector_type(dtype), f"{_INTS[dtype.bits]}{dtype.lanes}"
    test, join = (">", "&") if op is Ops.MAX else ("<", "|")
    name = f"{op.name.lower()}_{kind}"
    text = f"""{kind} {name}({kind} x, {kind} y) {{
  {kind} larger = x {test} y ? x : y;
  larger = x == y ? as_{kind}(as_{bits}(x) {join} as_{bits}(y)) : larger;
  return (x != x) | (y != y) ? x + y : larger;
}}"""
    return f"{functions.define(name, text)}({', '.join(operands)})"


# -- casts ------------------------------------------------------------------------------------------


def _cast(text: str, source: DType, dtype: DType, functions: Functions) -> str:
    if source is dtype:
        return text
    if source.scalar in _STORED_AS_BITS or dtype.scalar in _STORED_AS_BITS:
        return _lane_by_lane(Ops.CAST, dtype, [text], [source], functions)
    lanes, target = dtype.lanes, vector_type(dtype)
    if dtype.is_bool:
        return _truth(f"({text} != ({vector_type(source)})(0))", source)
    if source.is_bool:
        return f"convert_{target}({text} & (char{lanes})(1))"
    if not (source.is_float and dtype.is_int):
        return f"convert_{target}({text})"
    name, kind = f"{dtype.name}_from_{source.name}", vector_type(source)
    is_nan = f"convert_{_INTS[dtype.bits]}{lanes}(x != x)"
    body = choice(is_nan, f"({target})(0)", f"convert_{target}_sat_rtz(x)")
    functions.define(name, f"{target} {name}({kind} x) {{ return {body}; }}")
    return f"{name}({text})"


def _bitcast(text: str, source: DType, dtype: DType, functions: Functions) -> str:
    if source.is_bool or dtype.is_bool:
        return _cast(text, source, dtype, functions)
    same = vector_type(source) == vector_type(dtype)
    return text if same else f"as_{vector_type(dtype)}({text})"
