"""WGSL for one operation: an expression or a function for each.

Owns: the total meaning of every op (core/ir/ops.py, MEANING) in WGSL. Does not own: float32 (floats.py), statements, loops
and memory (emit.py).

What takes more than one expression is a function, printed before the kernel. Shifts and quotients are functions too: with
two constants WGSL would refuse what it can see to be out of range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from proofgrad.backends.webgpu import floats, transcendental
from proofgrad.backends.webgpu.types import WORD, constant, is_bits, register_type
from proofgrad.core.compile.machine.target import CompileError
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops

_FUNCTIONS = {**floats.FUNCTIONS, **transcendental.FUNCTIONS}


class Functions:
    """The functions that a kernel needs, in the order in which they must be printed."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def define(self, name: str, text: str) -> str:
        """Remember a function; returns its name."""
        self._texts.setdefault(name, text)
        return name

    def of_floats(self, name: str) -> str:
        """A function of floats.py, with what it calls."""
        text, called = _FUNCTIONS[name]
        for other in called:
            self.of_floats(other)
        return self.define(name, text)

    def __str__(self) -> str:
        texts = "".join([f"{text}\n" for text in self._texts.values()])
        return f"{floats.HIDDEN}\n{texts}"


def expression(
    op: Ops,
    dtype: DType,
    operands: Sequence[str],
    src_dtypes: Sequence[DType],
    functions: Functions,
) -> str:
    """The value of an elementwise op. Raises: CompileError where the op has no WGSL."""
    kind = src_dtypes[0]
    if op is Ops.WHERE:
        condition, if_true, if_false = operands
        return f"select({if_false}, {if_true}, {condition})"
    if op is Ops.CAST:
        return cast(operands[0], kind, dtype, functions)
    if op is Ops.BITCAST:
        return _bitcast(operands[0], kind, dtype, functions)
    if kind is dtypes.float32:
        return _of_floats(op, operands, functions)
    if is_bits(kind):
        raise CompileError(f"{op.name} on {kind!r}: small floats are promoted to float32 first")
    if op in (Ops.CMPLT, Ops.CMPEQ):
        return _compare(op, kind, *operands)
    if kind.is_bool:
        return _BOOL[op](*operands)
    if op in _RING:
        return in_width(_RING[op](*operands), kind, functions)
    template = _INT_FUNCTIONS.get(op)
    if template is None:
        raise CompileError(f"{op.name} on {kind!r} has no WGSL; it must be decomposed before")
    name = f"{op.name.lower()}_{kind.name}"
    text = (template[1] if kind.is_unsigned else template[0]).replace("NAME", name)
    functions.define(name, _filled(text, kind))
    return in_width(f"{name}({', '.join(operands)})", kind, functions)


def _compare(op: Ops, kind: DType, x: str, y: str) -> str:
    if op is Ops.CMPEQ:
        return f"({x} == {y})"
    return f"(!{x} && {y})" if kind.is_bool else f"({x} < {y})"


_BOOL: dict[Ops, Callable[..., str]] = {
    Ops.NOT: lambda x: f"(!{x})",
    Ops.AND: lambda x, y: f"({x} && {y})",
    Ops.OR: lambda x, y: f"({x} || {y})",
    Ops.XOR: lambda x, y: f"({x} != {y})",
}
_RING: dict[Ops, Callable[..., str]] = {
    Ops.ADD: lambda x, y: f"({x} + {y})",
    Ops.MUL: lambda x, y: f"({x} * {y})",
    Ops.AND: lambda x, y: f"({x} & {y})",
    Ops.OR: lambda x, y: f"({x} | {y})",
    Ops.XOR: lambda x, y: f"({x} ^ {y})",
    Ops.NOT: lambda x: f"(~{x})",
    Ops.MAX: lambda x, y: f"max({x}, {y})",
    Ops.MIN: lambda x, y: f"min({x}, {y})",
    Ops.MULACC: lambda x, y, z: f"({x} * {y} + {z})",
}
_FLOAT = {
    Ops.NEG: "negated",
    Ops.ADD: "sum",
    Ops.MUL: "product",
    Ops.FDIV: "divide",
    Ops.SQRT: "root",
    Ops.TRUNC: "towards_zero",
    Ops.FMA: "fused",
    Ops.MAX: "larger",
    Ops.MIN: "smaller",
    Ops.SIN: "sine",
    Ops.COS: "cosine",
    Ops.POW: "power",
    Ops.FMOD: "remainder",
    Ops.CMPLT: "is_less",
    Ops.CMPEQ: "is_same",
}


def _of_floats(op: Ops, operands: Sequence[str], functions: Functions) -> str:
    if op is Ops.MULACC:  # one or two roundings are both right
        return "({} * {} + {})".format(*operands)
    if op not in _FLOAT:
        raise CompileError(f"{op.name} on float32 has no WGSL; it must be decomposed before")
    return f"{functions.of_floats(_FLOAT[op])}({', '.join(operands)})"


# -- integers ---------------------------------------------------------------------------------------
# In a template, T is the type, U the unsigned one of its width in registers, BITS the width of the type, HALF half of it,
# REST what the register has more than half.

_SIGNED_TRUNC = "if (y == T(0)) { return T(0); } if (y == T(-1)) { return T(0) - x; }"
_SIGNED_REST = "if (y == T(0) || y == T(-1)) { return T(0); } let rest = x % y;"
_IN_RANGE = "U(y) < U(BITS)"
# (of signed integers, of unsigned ones)
_INT_FUNCTIONS: dict[Ops, tuple[str, str]] = {
    Ops.NEG: ("fn NAME(x: T) -> T { return T(0) - x; }",) * 2,
    Ops.FLOORDIV: (
        f"""fn NAME(x: T, y: T) -> T {{
  {_SIGNED_TRUNC}
  let quotient = x / y;
  return select(quotient, quotient - T(1), quotient * y != x && (x < T(0)) != (y < T(0)));
}}""",
        "fn NAME(x: T, y: T) -> T { if (y == T(0)) { return T(0); } return x / y; }",
    ),
    Ops.MOD: (
        f"""fn NAME(x: T, y: T) -> T {{
  {_SIGNED_REST}
  return select(rest, rest + y, rest != T(0) && (rest < T(0)) != (y < T(0)));
}}""",
        "fn NAME(x: T, y: T) -> T { if (y == T(0)) { return T(0); } return x % y; }",
    ),
    Ops.TRUNCDIV: (
        f"fn NAME(x: T, y: T) -> T {{ {_SIGNED_TRUNC} return x / y; }}",
        "fn NAME(x: T, y: T) -> T { if (y == T(0)) { return T(0); } return x / y; }",
    ),
    Ops.TRUNCMOD: (
        f"fn NAME(x: T, y: T) -> T {{ {_SIGNED_REST} return rest; }}",
        "fn NAME(x: T, y: T) -> T { if (y == T(0)) { return T(0); } return x % y; }",
    ),
    Ops.SHL: (
        f"fn NAME(x: T, y: T) -> T {{ if ({_IN_RANGE}) {{ return T(U(x) << u32(y)); }} return T(0); }}",
    )
    * 2,
    Ops.SHR: (
        f"fn NAME(x: T, y: T) -> T {{ if ({_IN_RANGE}) {{ return x >> u32(y); }} return x >> u32(U(BITS) - U(1)); }}",
        f"fn NAME(x: T, y: T) -> T {{ if ({_IN_RANGE}) {{ return x >> u32(y); }} return T(0); }}",
    ),
    Ops.DOT: (
        """fn NAME(x: T, y: T) -> T {
  let lower = ((x << REST) >> REST) * ((y << REST) >> REST);
  return lower + (x >> HALF) * (y >> HALF);
}""",
    )
    * 2,
}


def _filled(text: str, dtype: DType) -> str:
    wide = 64 if dtype.bits == 64 else WORD
    half = dtype.bits // 2
    words = {"T": register_type(dtype), "U": f"u{wide}", "BITS": str(dtype.bits)}
    words |= {"HALF": f"{half}u", "REST": f"{wide - half}u"}
    return re.sub(r"\b(T|U|BITS|HALF|REST)\b", lambda match: words[match.group()], text)


def in_width(text: str, dtype: DType, functions: Functions) -> str:
    """A result of arithmetic modulo 2**32 as one of a narrower type, extended again."""
    if dtype.bits >= WORD:
        return text
    if dtype.is_unsigned:
        return f"({text} & {(1 << dtype.bits) - 1:#x}u)"
    return f"extractBits({text}, 0u, {dtype.bits}u)"


# -- casts ------------------------------------------------------------------------------------------

_WIDEN = {
    dtypes.float16: """fn NAME(x: u32) -> f32 {
  let sign = (x & 0x8000u) << 16u;
  let size = x & 0x7fffu;
  if (size >= 0x7c00u) { return float_of(sign | 0x7f800000u | (size << 13u)); }
  if (size >= 0x0400u) { return float_of(sign | ((size << 13u) + 0x38000000u)); }
  return float_of(sign | bitcast<u32>(f32(size) * 5.9604644775390625e-8f));
}""",
    dtypes.bfloat16: "fn NAME(x: u32) -> f32 { return float_of(x << 16u); }",
}
# Adding 0.5, whose last bit is the unit of a half's denormals, rounds to them.
_NARROW = {
    dtypes.float16: """fn NAME(x: f32) -> u32 {
  let sign = (bitcast<u32>(x) >> 16u) & 0x8000u;
  let size = bitcast<u32>(x) & 0x7fffffffu;
  if (size > 0x7f800000u) { return sign | 0x7e00u; }
  if (size >= 0x477ff000u) { return sign | 0x7c00u; }
  if (size < 0x38800000u) { return sign | (bitcast<u32>(float_of(size) + 0.5f) - 0x3f000000u); }
  return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);
}""",
    dtypes.bfloat16: """fn NAME(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if (is_nan(x)) { return 0x7fc0u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}""",
}
# WGSL lets a conversion that is not exact go either way, so these are of numbers that a float32 holds: two of them, whose sum
# is rounded once, or one that was rounded to odd, so that a second rounding does no harm.
# Source: Boldo and Melquiond, "Emulation of FMA", 2008.
_OF_WORD = {
    "near": "fn near(x: u32) -> f32 { return hidden(f32(x & 0xffffff00u)) + hidden(f32(x & 0xffu)); }",
    "odd": """fn odd(x: u32) -> f32 {
  if (x < 0x01000000u) { return f32(x); }
  let spare = 8u - countLeadingZeros(x);
  let kept = x >> spare;
  return f32(kept | select(0u, 1u, (kept << spare) != x)) * f32(1u << spare);
}""",
}
_OF_LONG = """fn NAME_long(x: u64) -> f32 {
  let high = u32(x >> 32u);
  if (high == 0u) { return NAME(u32(x)); }
  let spare = 32u - countLeadingZeros(high);
  let kept = u32(x >> spare);
  let follows = (x & ((1lu << spare) - 1lu)) != 0lu;
  return NAME(kept | select(0u, 1u, follows)) * float_of((127u + spare) << 23u);
}"""


def cast(text: str, source: DType, dtype: DType, functions: Functions) -> str:
    """`text`, a value of type `source`, as a value of `dtype`, rounded once."""
    if source is dtype:
        return text
    if source in _WIDEN:
        name = f"float32_from_{source.name}"
        functions.define(name, _WIDEN[source].replace("NAME", name))
        return cast(f"{name}({text})", dtypes.float32, dtype, functions)
    if dtype.is_bool:
        if source is dtypes.float32:
            return f"((bitcast<u32>({text}) & 0x7fffffffu) != 0u)"
        return f"({text} != {constant(0, source)})"
    if dtype in _NARROW:
        name = f"{dtype.name}_from_float32"
        functions.define(name, _NARROW[dtype].replace("NAME", name))
        return f"{name}({_as_float(text, source, functions, is_odd=True)})"
    if dtype is dtypes.float32:
        return _as_float(text, source, functions)
    if source is dtypes.float32:
        return _saturated(text, dtype, functions)
    if dtype.bits == 64 and source.is_int:  # first wider as what it is
        kind = f"{register_type(source)[0]}64"
        text = f"{kind}({text})" if source.bits == 64 else widened(text, kind)
    return in_width(f"{register_type(dtype)}({text})", dtype, functions)


def widened(text: str, kind: str) -> str:
    """`text`, of at most 32 bits, as `kind`; of 64 bits by an operation that a driver does not look through.

    Lavapipe of Mesa 22.3 finds every i64(x) < 2li false: it compares what was widened with the constant in 32 bits, wrongly.
    """
    if not kind.endswith("64"):
        return f"{kind}({text})"
    return f"({kind}({text}) ^ {kind}({floats.NOTHING}))"


def _as_float(text: str, source: DType, functions: Functions, is_odd: bool = False) -> str:
    """As float32; `is_odd`: to be rounded to a narrower type afterwards."""
    if source is dtypes.float32:
        return text
    if source.is_bool or source.bits < WORD:
        return f"f32({text})"
    name = "odd" if is_odd else "near"
    functions.define(name, _OF_WORD[name])
    if source.bits == 64:
        name = functions.define(f"{name}_long", _OF_LONG.replace("NAME", name))
    if source.is_unsigned:
        return f"{name}({text})"
    kind, unsigned = register_type(source), register_type(source).replace("i", "u")
    signed = f"""fn {name}_{kind}(x: {kind}) -> f32 {{
  if (x < {kind}(0)) {{ return -{name}({unsigned}(0) - {unsigned}(x)); }}
  return {name}({unsigned}(x));
}}"""
    return f"{functions.define(f'{name}_{kind}', signed)}({text})"


def _saturated(text: str, dtype: DType, functions: Functions) -> str:
    """Towards zero; the ends of the type for what is beyond them, 0 for NaN."""
    kind, name = register_type(dtype), f"{dtype.name}_from_float32"
    low, high = dtype.lo or 0, dtype.hi or 0
    body = f"""fn {name}(x: f32) -> {kind} {{
  if (is_nan(x)) {{ return {constant(0, dtype)}; }}
  if (x <= {constant(float(low), dtypes.float32)}) {{ return {constant(low, dtype)}; }}
  if (x >= {constant(float(high + 1), dtypes.float32)}) {{ return {constant(high, dtype)}; }}
  return {kind}(x);
}}"""
    return f"{functions.define(name, body)}({text})"


def _bitcast(text: str, source: DType, dtype: DType, functions: Functions) -> str:
    if source.is_bool or dtype.is_bool or source.bits == 64:
        return cast(text, source, dtype, functions)
    if dtype is dtypes.float32:
        return f"float_of(u32({text}))" if source is not dtype else text
    kind = register_type(dtype)
    bits = f"bitcast<{kind}>({text})" if register_type(source) != kind else text
    return in_width(bits, dtype, functions) if not is_bits(dtype) else _lowest(bits, dtype)


def _lowest(text: str, dtype: DType) -> str:
    return f"({text} & {(1 << dtype.bits) - 1:#x}u)"
