"""OpenCL C for one operation: types, constants, and an expression or a function for each op.

Owns: the total meaning of every op (core/ir/ops.py, MEANING) in OpenCL C. Does not own: statements,
loops and memory (emit.py).

Conventions of the expressions: an infix expression comes in parentheses, so that it can stand
anywhere. Signed arithmetic that may wrap is done on the unsigned type, because signed overflow is
undefined in C. A float16 or bfloat16 value is held as its bits, in a ushort; only WHERE, casts and
bitcasts exist on it. What takes more than one expression is a function, printed before the kernel
that uses it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from proofgrad.core.compile.machine.target import CompileError
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import to_bits
from proofgrad.core.ir.ops import ELEMENTS, Ops

_TYPES: dict[DType, str] = {
    dtypes.bool: "bool",
    dtypes.int8: "char",
    dtypes.uint8: "uchar",
    dtypes.int16: "short",
    dtypes.uint16: "ushort",
    dtypes.int32: "int",
    dtypes.uint32: "uint",
    dtypes.int64: "long",
    dtypes.uint64: "ulong",
    dtypes.float16: "ushort",
    dtypes.bfloat16: "ushort",
    **dict.fromkeys(dtypes.fp8s, "uchar"),
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_SMALL_FLOATS = (dtypes.float16, dtypes.bfloat16)


def register_type(dtype: DType) -> str:
    """The C type of a value of `dtype` in a register. Raises: CompileError for a vector."""
    if dtype not in _TYPES:
        raise CompileError(f"OpenCL C is printed for scalars only, and this value is a {dtype!r}")
    return _TYPES[dtype]


def memory_type(dtype: DType) -> str:
    """The C type of an element of a buffer of `dtype`."""
    return "uchar" if dtype is dtypes.bool else register_type(dtype)


def constant(value: float, dtype: DType) -> str:
    """A constant as OpenCL C that means exactly `value`."""
    if dtype is dtypes.bool:
        return "true" if value else "false"
    if dtype in _SMALL_FLOATS or dtype.is_code:
        return f"0x{to_bits(value, dtype):04x}"
    if dtype.is_float:
        return _float_constant(float(value), dtype)
    if dtype.bits == 64:
        return _int_constant(int(value), dtype, "ul" if dtype.is_unsigned else "L")
    return _int_constant(int(value), dtype, "u" if dtype is dtypes.uint32 else "")


def _float_constant(value: float, dtype: DType) -> str:
    double = "(double)" if dtype is dtypes.float64 else ""
    if math.isnan(value):
        return f"{double}NAN"
    if math.isinf(value):
        return f"{double}INFINITY" if value > 0 else f"(-{double}INFINITY)"
    text = repr(value) + ("" if double else "f")  # the digits of a double name a float exactly
    return f"({text})" if text.startswith("-") else text


def _int_constant(value: int, dtype: DType, suffix: str) -> str:
    if value == dtype.lo and value < 0:  # C has no negative literals: -2147483648 is a long
        return f"({value + 1}{suffix} - 1)"
    return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"


class Functions:
    """The functions that a kernel needs, in the order in which they must be printed."""

    def __init__(self, called_bytes: int = 0) -> None:
        """`called_bytes`: of a vector that functions of the device are given, at most; 0: of any."""
        self.called_bytes = called_bytes
        self._texts: dict[str, str] = {}
        self._types: dict[str, str] = {}

    def declare(self, name: str, text: str) -> str:
        """Remember a type; returns its name. Types come before what uses them."""
        self._types.setdefault(name, text)
        return name

    def define(self, name: str, text: str) -> str:
        """Remember the function; returns its name. A function is defined after those it calls."""
        self._texts.setdefault(name, text)
        return name

    def __str__(self) -> str:
        types = "".join([f"{text}\n\n" for text in self._types.values()])
        return types + "".join([f"static {text}\n\n" for text in self._texts.values()])


# -- expressions ------------------------------------------------------------------------------------


def expression(
    op: Ops,
    dtype: DType,
    operands: Sequence[str],
    src_dtypes: Sequence[DType],
    functions: Functions,
) -> str:
    """The value of an elementwise op. Raises: CompileError where the op has no OpenCL C."""
    kind = src_dtypes[0]
    if op is Ops.WHERE:
        condition, if_true, if_false = operands
        return f"({condition} ? {if_true} : {if_false})"
    if op is Ops.CAST:
        return cast(operands[0], kind, dtype, functions)
    if op is Ops.BITCAST:
        return _bitcast(operands[0], kind, dtype)
    if kind in _SMALL_FLOATS:
        raise CompileError(f"{op.name} on {kind!r}: small floats are promoted to float32 first")
    if op is Ops.CMPLT:
        return f"({operands[0]} < {operands[1]})"
    if op is Ops.CMPEQ:
        return f"({operands[0]} == {operands[1]})"
    if kind.is_float and op in (Ops.FMA, Ops.MULACC):
        return rounded_once(dtype, register_type(dtype), operands, functions)
    table = _BOOL if kind.is_bool else _FLOAT if kind.is_float else _INT
    if op in table:
        return table[op](kind, *operands)
    builders = _FLOAT_FUNCTIONS if kind.is_float else {} if kind.is_bool else _INT_FUNCTIONS
    if op not in builders:
        raise CompileError(f"{op.name} on {kind!r} has no OpenCL C; it must be decomposed before")
    name = f"{op.name.lower()}_{kind.name}"
    functions.define(name, _fill(builders[op](kind), name, kind))
    return f"{name}({', '.join(operands)})"


def _infix(symbol: str) -> Callable[..., str]:
    return lambda _, x, y: f"({x} {symbol} {y})"


class _Wrapped(str):
    """A signed expression that is a cast of an unsigned one, which further sums take instead."""

    __slots__ = ("unsigned",)
    unsigned: str


def _wrapping(symbol: str) -> Callable[..., str]:
    """Ring arithmetic modulo 2**bits; types below int are computed as uint and cut."""

    def show(dtype: DType, x: str, y: str) -> str:
        ring = f"({_unsigned(x, dtype)} {symbol} {_unsigned(y, dtype)})"
        if _unsigned_type(dtype) is dtype:
            return ring
        wrapped = _Wrapped(_as_type(ring, dtype))
        wrapped.unsigned = ring
        return wrapped

    return show


def _as_type(text: str, dtype: DType) -> str:
    return f"({register_type(dtype)}){text}"


def _unsigned_type(dtype: DType) -> DType:
    return dtypes.uint64 if dtype.bits == 64 else dtypes.uint32


_LITERAL = re.compile(r"\(?(-?\d+)L?\)?")


def _unsigned(text: str, dtype: DType) -> str:
    """`text`, a value of type `dtype`, as its unsigned type: the same modulo 2**bits."""
    ring = _unsigned_type(dtype)
    if isinstance(text, _Wrapped):
        return text.unsigned
    literal = _LITERAL.fullmatch(text)
    if literal:
        return constant(int(literal.group(1)) & (2**ring.bits - 1), ring)
    return text if dtype is ring else _as_type(text, ring)


def _int_neg(dtype: DType, x: str) -> str:
    return _wrapping("-")(dtype, "0", x)


def _int_mulacc(dtype: DType, x: str, y: str, z: str) -> str:
    return _wrapping("+")(dtype, _wrapping("*")(dtype, x, y), z)


_BOOL: dict[Ops, Callable[..., str]] = {
    Ops.NOT: lambda _, x: f"(!{x})",
    Ops.AND: _infix("&"),
    Ops.OR: _infix("|"),
    Ops.XOR: _infix("^"),
}


def _call(function: str) -> Callable[..., str]:
    return lambda _, *operands: f"{function}({', '.join(operands)})"


_INT: dict[Ops, Callable[..., str]] = {
    Ops.NEG: _int_neg,
    Ops.NOT: lambda dtype, x: _as_type(f"(~{x})", dtype),
    Ops.ADD: _wrapping("+"),
    Ops.MUL: _wrapping("*"),
    Ops.AND: _infix("&"),
    Ops.OR: _infix("|"),
    Ops.XOR: _infix("^"),
    Ops.MULACC: _int_mulacc,
}

_FLOAT: dict[Ops, Callable[..., str]] = {
    **{op: _call(row.c) for op, row in ELEMENTS.items() if row.c},
    Ops.NEG: lambda _, x: f"(-{x})",
    Ops.ADD: _infix("+"),
    Ops.MUL: _infix("*"),
    Ops.FDIV: _infix("/"),
}


def rounded_once(dtype: DType, kind: str, operands: Sequence[str], functions: Functions) -> str:
    """fma() of values of the C type `kind`, which PoCL calls as a function: by its compiler's own name for the instruction, where the processor has that."""
    one = "__builtin_fma" if dtype.scalar is dtypes.float64 else "__builtin_fmaf"
    numbers = range(dtype.lanes if dtype.lanes > 1 else 0)
    lanes = [f"{one}({', '.join([f'{x}.s{k:x}' for x in 'xyz'])})" for k in numbers]
    value = f"({kind})({', '.join(lanes)})" if lanes else f"{one}(x, y, z)"
    name = f"fma_{kind}"
    text = f"""{kind} {name}({kind} x, {kind} y, {kind} z) {{
#ifdef __FMA__
  return {value};
#else
  return fma(x, y, z);
#endif
}}"""
    return f"{functions.define(name, text)}({', '.join(operands)})"


# -- functions ----------------------------------------------------------------------------------------
# In a template, T is the type, U its unsigned type, I the ints of its width, N the function's name.


def _fill(template: str, name: str, dtype: DType) -> str:
    unsigned = dtypes.uint64 if dtype.bits == 64 else dtypes.uint32
    same_width = {32: "int", 64: "long"}.get(dtype.bits, "int")
    words = {"T": register_type(dtype), "U": register_type(unsigned), "I": same_width, "N": name}
    words["BITS"] = str(dtype.bits)
    return re.sub(r"\b(T|U|I|N|BITS)\b", lambda match: words[match.group()], template)


def _for_sign(signed: str, unsigned: str) -> Callable[[DType], str]:
    return lambda dtype: unsigned if dtype.is_unsigned else signed


_NEGATED = "(T)(0u - (U)x)"
_FLOORDIV = f"""T N(T x, T y) {{
  if (y == 0) return 0;
  if (y == -1) return {_NEGATED};
  T quotient = x / y;
  return (x % y != 0 && (x < 0) != (y < 0)) ? quotient - 1 : quotient;
}}"""
_MOD = """T N(T x, T y) {
  if (y == 0 || y == -1) return 0;
  T rest = x % y;
  return (rest != 0 && (rest < 0) != (y < 0)) ? rest + y : rest;
}"""
_TRUNCDIV = f"""T N(T x, T y) {{
  if (y == 0) return 0;
  return y == -1 ? {_NEGATED} : (T)(x / y);
}}"""
_UNSIGNED_DIV = "T N(T x, T y) { return y == 0 ? 0 : x / y; }"
_UNSIGNED_MOD = "T N(T x, T y) { return y == 0 ? 0 : x % y; }"
_AMOUNT_IN_RANGE = "y >= 0 && y < BITS"
_SHR = f"T N(T x, T y) {{ return ({_AMOUNT_IN_RANGE}) ? x >> y : x < 0 ? -1 : 0; }}"


def _dot(dtype: DType) -> str:
    """Of words of two numbers: their halves, extended, multiplied modulo 2**bits."""
    half = dtype.bits // 2
    ones, sign = constant((1 << half) - 1, dtype), constant(1 << half - 1, dtype)
    lower = "({} & " + ones + ")" if dtype.is_unsigned else f"((({{}} & {ones}) ^ {sign}) - {sign})"
    products = (
        f"(U){lower.format('x')} * (U){lower.format('y')} + (U)(x >> {half}) * (U)(y >> {half})"
    )
    return f"T N(T x, T y) {{ return (T)({products}); }}"


_INT_FUNCTIONS: dict[Ops, Callable[[DType], str]] = {
    Ops.FLOORDIV: _for_sign(_FLOORDIV, _UNSIGNED_DIV),
    Ops.MOD: _for_sign(_MOD, _UNSIGNED_MOD),
    Ops.TRUNCDIV: _for_sign(_TRUNCDIV, _UNSIGNED_DIV),
    Ops.TRUNCMOD: _for_sign(
        "T N(T x, T y) { return (y == 0 || y == -1) ? 0 : x % y; }", _UNSIGNED_MOD
    ),
    Ops.MAX: lambda _: "T N(T x, T y) { return x < y ? y : x; }",
    Ops.MIN: lambda _: "T N(T x, T y) { return y < x ? y : x; }",
    Ops.SHL: _for_sign(
        f"T N(T x, T y) {{ return ({_AMOUNT_IN_RANGE}) ? (T)((U)x << y) : 0; }}",
        "T N(T x, T y) { return y < BITS ? (T)((U)x << y) : 0; }",
    ),
    Ops.SHR: _for_sign(_SHR, "T N(T x, T y) { return y < BITS ? x >> y : 0; }"),
    Ops.DOT: _dot,
}


def _float_order(test: str, zeros: str) -> Callable[[DType], str]:
    """MAX or MIN: NaN wins; of equal numbers, which differ at most in the sign of 0, join the bits."""
    template = f"""T N(T x, T y) {{
  if (x != x || y != y) return NAN;
  if (x == y) return as_T(as_I(x) {zeros} as_I(y));
  return {test} ? x : y;
}}"""
    return lambda dtype: template.replace("as_T", f"as_{register_type(dtype)}").replace(
        "as_I", "as_long" if dtype.bits == 64 else "as_int"
    )


_FLOAT_FUNCTIONS: dict[Ops, Callable[[DType], str]] = {
    Ops.MAX: _float_order("x > y", "&"),
    Ops.MIN: _float_order("x < y", "|"),
}

# -- casts --------------------------------------------------------------------------------------------

_WIDEN = {
    dtypes.float16: "float N(ushort x) { return vload_half(0, (const half *)&x); }",
    dtypes.bfloat16: "float N(ushort x) { return as_float((uint)x << 16); }",
}
_NARROW = {
    dtypes.float16: """ushort N(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (half *)&bits);
  return bits;
}""",
    dtypes.bfloat16: """ushort N(float x) {
  uint bits = as_uint(x);
  if (x != x) return 0x7fc0;
  return (ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}""",
}
# Rounded to odd: what is lost is kept as a last bit of 1, so that a second rounding to a narrower
# type gives what one rounding would. Source: Boldo and Melquiond, "Emulation of FMA", 2008.
_DOUBLE_TO_ODD = """float N(double x) {
  float near = (float)x;
  uint bits = as_uint(near);
  if (x != x || (double)near == x) return near;
  if (fabs((double)near) > fabs(x)) bits -= 1u;
  return as_float(bits | 1u);
}"""
_LONG_TO_ODD = """float N(long x) {
  ulong size = x < 0 ? 0ul - (ulong)x : (ulong)x;
  int spare = 40 - (int)clz(size);
  if (spare <= 0) return (float)x;
  ulong kept = size >> spare;
  kept |= (ulong)((kept << spare) != size);
  return copysign(ldexp((float)kept, spare), x < 0 ? -1.0f : 1.0f);
}"""
_ULONG_TO_ODD = """float N(ulong x) {
  int spare = 40 - (int)clz(x);
  if (spare <= 0) return (float)x;
  ulong kept = x >> spare;
  kept |= (ulong)((kept << spare) != x);
  return ldexp((float)kept, spare);
}"""
_SATURATE = "T N(S x) { return x != x ? 0 : convert_T_sat_rtz(x); }"


def cast(text: str, source: DType, dtype: DType, functions: Functions) -> str:
    """`text`, a value of type `source`, as a value of `dtype`, rounded once."""
    if source in _SMALL_FLOATS:
        return cast(_widen(text, source, functions), dtypes.float32, dtype, functions)
    if dtype.is_bool:
        return f"({text} != 0)"
    if dtype in _SMALL_FLOATS:
        name = functions.define(
            f"{dtype.name}_from_float32", _fill(_NARROW[dtype], f"{dtype.name}_from_float32", dtype)
        )
        return f"{name}({_before_narrowing(text, source, functions)})"
    if source.is_float and dtype.is_int:
        name = f"{dtype.name}_from_{source.name}"
        target = register_type(dtype)
        body = _SATURATE.replace("S x", f"{register_type(source)} x").replace("_T_", f"_{target}_")
        return f"{functions.define(name, _fill(body, name, dtype))}({text})"
    return text if source is dtype else f"({register_type(dtype)}){text}"


def _widen(text: str, source: DType, functions: Functions) -> str:
    name = f"float32_from_{source.name}"
    functions.define(name, _fill(_WIDEN[source], name, source))
    return f"{name}({text})"


def _before_narrowing(text: str, source: DType, functions: Functions) -> str:
    """A float32 that rounds to float16 or bfloat16 as `text` itself does."""
    if source is dtypes.float32:
        return text
    if source.is_int and source.bits >= 32:
        name, template = "odd_float32_from_int64", _LONG_TO_ODD
        if source.is_unsigned:
            name, template = "odd_float32_from_uint64", _ULONG_TO_ODD
        return f"{functions.define(name, _fill(template, name, source))}({text})"
    if source is dtypes.float64:
        name = "odd_float32_from_float64"
        return f"{functions.define(name, _fill(_DOUBLE_TO_ODD, name, source))}({text})"
    return f"(float){text}"


def _bitcast(text: str, source: DType, dtype: DType) -> str:
    if source.is_bool or dtype.is_bool:
        return cast(text, source, dtype, Functions())
    if register_type(source) == register_type(dtype):
        return text
    return f"as_{register_type(dtype)}(({register_type(source)}){text})"
