"""The instructions of each ALU op, with the total meaning that core/ir/ops.py states.

Owns: guards for what LLVM leaves undefined (division by zero, the one quotient that overflows,
oversized shifts). Does not own: casts (conversions.py), loops and memory (emit.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from proofgrad.backends.llvm.text import literal, register_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.backends.llvm.x86 import write_extreme
from proofgrad.core.compile.machine.target import CompileError
from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.op_names import BROADCAST, CONST, WHERE
from proofgrad.core.ir.ops import ELEMENTS, Ops
from proofgrad.core.ir.uop import UOp


def write_alu(writer: Writer, node: UOp, operands: Sequence[str]) -> str:
    """The register that holds the value of an ALU node. Raises: CompileError."""
    if node.op is WHERE:
        return _where(writer, node, operands)
    return write_op(writer, node.op, node.src[0].dtype, operands, node.src)


def write_op(
    writer: Writer, op: Ops, dtype: DType, operands: Sequence[str], src: Sequence[UOp] = ()
) -> str:
    """`op` on operands of type `dtype`; `src`, where given, shows which of them are constants."""
    if dtype.scalar is dtypes.bfloat16:
        raise CompileError(f"{op.name} on bfloat16: it must be promoted to float32 before")
    family = _family(dtype)
    simple = _SIMPLE.get((op, family))
    if simple is not None:
        operator = f"{simple} {register_type(dtype)}"
        return writer.let(f"{operator} {', '.join(operands)}")
    intrinsic = _INTRINSICS.get((op, family))
    if intrinsic is not None:
        return writer.call(intrinsic, dtype, operands)
    special = _SPECIAL.get((op, family))
    if special is None and op in writer.dialect.functions and dtype.scalar is dtypes.float32:
        return _of_each_lane(writer, f"@llvm.{writer.dialect.functions[op]}", dtype, operands[0])
    if special is None:
        raise CompileError(
            f"LLVM has no {op.name} on {dtype!r}; it must be rewritten before Linear"
        )
    constant = constant_value(src[1]) if len(src) == 2 else None
    return special(writer, op, dtype, operands, constant)


def _of_each_lane(writer: Writer, function: str, dtype: DType, operand: str) -> str:
    """A function of one float32, of each lane of a vector."""
    if dtype.lanes == 1:
        return writer.let(f"call float {function}(float {operand})")
    vector, total = register_type(dtype), "poison"
    for k in range(dtype.lanes):
        value = writer.let(f"call float {function}(float {writer.lane(operand, dtype, k)})")
        total = writer.let(f"insertelement {vector} {total}, float {value}, i64 {k}")
    return total


def constant_value(node: UOp) -> int | None:
    """The integer that `node` has in every lane, or None."""
    if node.op is BROADCAST:
        node = node.src[0]
    if node.op is not CONST or node.dtype.is_float:
        return None
    if isinstance(node.arg, tuple):
        return int(node.arg[0]) if len(set(node.arg)) == 1 else None
    return int(node.arg)


@cache
def _family(dtype: DType) -> str:
    match dtype.kind:
        case Kind.BOOL:
            return "bool"
        case Kind.FLOAT:
            return "float"
        case Kind.SIGNED:
            return "signed"
        case _:
            return "unsigned"


def _table(lines: dict[Ops, dict[str, str]]) -> dict[tuple[Ops, str], str]:
    return {(op, family): text for op, row in lines.items() for family, text in row.items()}


def _ints(text: str) -> dict[str, str]:
    return {"signed": text, "unsigned": text}


def _bits(text: str) -> dict[str, str]:
    return {"bool": text, **_ints(text)}


_SIMPLE = _table(
    {
        Ops.NEG: {"float": "fneg"},
        Ops.ADD: {"float": "fadd", **_ints("add")},
        Ops.MUL: {"float": "fmul", **_ints("mul")},
        Ops.FDIV: {"float": "fdiv"},
        Ops.AND: _bits("and"),
        Ops.OR: _bits("or"),
        Ops.XOR: _bits("xor"),
        Ops.CMPLT: {
            "float": "fcmp olt", "signed": "icmp slt", "unsigned": "icmp ult", "bool": "icmp ult",
        },
        Ops.CMPEQ: {"float": "fcmp oeq", **_bits("icmp eq")},
    }
)  # fmt: skip

_INTRINSICS = _table(
    {
        # FMA without the instruction: a call of the C library's, one a lane
        **{op: {"float": row.llvm} for op, row in ELEMENTS.items() if row.llvm},
        Ops.MAX: {"signed": "smax", "unsigned": "umax"},
        Ops.MIN: {"signed": "smin", "unsigned": "umin"},
    }
)


def _where(writer: Writer, node: UOp, operands: Sequence[str]) -> str:
    condition, if_true, if_false = operands
    if condition == literal(
        True, node.src[0].dtype
    ):  # in a loop that is written for masks that hold
        return if_true
    if writer.dialect.has_extremes and (extreme := _brought_to_bound(node)) is not None:
        return writer.call(extreme, node.dtype, (if_false, if_true))
    flag, llvm_type = register_type(node.src[0].dtype), register_type(node.dtype)
    choice = f"{llvm_type} {if_true}, {llvm_type} {if_false}"
    return writer.let(f"select {flag} {condition}, {choice}")


def write_unpredictable_choice(writer: Writer, node: UOp, operands: Sequence[str]) -> str:
    """A WHERE, MAX or MIN of integers of one lane, of which LLVM shall make no branch: the module has `UNPREDICTABLE`."""
    if node.op is Ops.WHERE:
        condition, first, second = operands
    else:
        (first, second), dtype = operands, node.dtype
        condition = write_op(writer, Ops.CMPLT, dtype, (first, second))
        if node.op is Ops.MAX:
            first, second = second, first
    kind = register_type(node.dtype)
    return writer.let(f"select i1 {condition}, {kind} {first}, {kind} {second}, !unpredictable !1")


def _brought_to_bound(node: UOp) -> str | None:
    """Whether a choice is x, or a constant c where x is beyond it: the larger or smaller of both, and a NaN if x is one.

    Not for 0: -0 is not beyond it.
    """
    condition, bound, value = node.src
    if condition.op is not Ops.CMPLT or node.dtype.scalar is not dtypes.float32:
        return None
    constant = bound.src[0] if bound.op is BROADCAST else bound
    is_number = constant.op is CONST and isinstance(constant.arg, float)
    if not is_number or constant.arg == 0.0 or math.isnan(constant.arg):
        return None
    names: dict[tuple[UOp, ...], str] = {(value, bound): "maximum", (bound, value): "minimum"}
    return names.get(condition.src)


def _negate(writer: Writer, op: Ops, dtype: DType, operands: Sequence[str], _: int | None) -> str:
    return writer.let(f"sub {register_type(dtype)} {literal(0, dtype)}, {operands[0]}")


def _flip(writer: Writer, op: Ops, dtype: DType, operands: Sequence[str], _: int | None) -> str:
    ones = literal(True if dtype.is_bool else -1, dtype)
    return writer.let(f"xor {register_type(dtype)} {operands[0]}, {ones}")


def _multiply_add(
    writer: Writer, op: Ops, dtype: DType, operands: Sequence[str], _: int | None
) -> str:
    if dtype.is_float and writer.dialect.has_fma:
        return writer.call("fma", dtype, operands)
    product = write_op(writer, Ops.MUL, dtype, operands[:2])
    return write_op(writer, Ops.ADD, dtype, (product, operands[2]))


def _to_tf32(writer: Writer, op: Ops, dtype: DType, operands: Sequence[str], _: int | None) -> str:
    """By an addition to the bits, which carries into the exponent; a NaN stays one."""
    lost = dtypes.finfo(dtype)[1] - 10
    whole = (dtypes.uint64 if dtype.bits == 64 else dtypes.uint32).vec(dtype.lanes)
    (value,), floats, bits = operands, register_type(dtype), register_type(whole)
    half, kept = (
        literal(1 << (lost - 1), whole),
        literal(((1 << dtype.bits) - 1) >> lost << lost, whole),
    )
    total = writer.let(f"add {bits} {writer.let(f'bitcast {floats} {value} to {bits}')}, {half}")
    rounded = writer.let(f"bitcast {bits} {writer.let(f'and {bits} {total}, {kept}')} to {floats}")
    is_number = writer.let(f"fcmp ord {floats} {value}, {value}")
    return writer.select(is_number, dtype, rounded, value)


# -- division ---------------------------------------------------------------------------------------


def _divide(
    writer: Writer, op: Ops, dtype: DType, operands: Sequence[str], constant: int | None
) -> str:
    signed = dtype.kind is Kind.SIGNED
    if constant is not None and constant > 0:
        return _divide_by_positive(writer, op, dtype, operands)
    if not signed:
        return _divide_unsigned(writer, op, dtype, operands)
    match op:
        case Ops.TRUNCDIV:
            return _truncating_quotient(writer, dtype, operands)
        case Ops.TRUNCMOD:
            return _remainder(writer, dtype, operands[0], _safe_divisor(writer, dtype, operands[1]))
        case Ops.FLOORDIV:
            return _flooring_quotient(writer, dtype, operands)
        case _:
            return _flooring_remainder(writer, dtype, operands)


def _divide_by_positive(writer: Writer, op: Ops, dtype: DType, operands: Sequence[str]) -> str:
    llvm_type = register_type(dtype)
    x, y = operands
    is_quotient = op in (Ops.FLOORDIV, Ops.TRUNCDIV)
    if dtype.kind is not Kind.SIGNED:
        return writer.let(f"{'udiv' if is_quotient else 'urem'} {llvm_type} {x}, {y}")
    if op in (Ops.TRUNCDIV, Ops.TRUNCMOD):
        return writer.let(f"{'sdiv' if is_quotient else 'srem'} {llvm_type} {x}, {y}")
    # floor(x / y) is ~(~x / y) for a negative x, and both divisions are of numbers of 0 or more
    sign = writer.let(f"ashr {llvm_type} {x}, {literal(dtype.bits - 1, dtype)}")
    size = writer.let(f"xor {llvm_type} {x}, {sign}")
    divided = writer.let(f"udiv {llvm_type} {size}, {y}")
    quotient = writer.let(f"xor {llvm_type} {divided}, {sign}")
    if is_quotient:
        return quotient
    product = writer.let(f"mul {llvm_type} {quotient}, {y}")
    return writer.let(f"sub {llvm_type} {x}, {product}")


def _divide_unsigned(writer: Writer, op: Ops, dtype: DType, operands: Sequence[str]) -> str:
    llvm_type = register_type(dtype)
    x, y = operands
    zero, one = literal(0, dtype), literal(1, dtype)
    by_zero = writer.let(f"icmp eq {llvm_type} {y}, {zero}")
    divisor = writer.select(by_zero, dtype, one, y)
    if op in (Ops.MOD, Ops.TRUNCMOD):  # by 0: the remainder by 1, which is 0
        return writer.let(f"urem {llvm_type} {x}, {divisor}")
    quotient = writer.let(f"udiv {llvm_type} {x}, {divisor}")
    return writer.select(by_zero, dtype, zero, quotient)


def _safe_divisor(writer: Writer, dtype: DType, y: str) -> str:
    """`y`, but 1 in place of 0 and -1: both remainders by these are 0, as by 1."""
    llvm_type = register_type(dtype)
    moved = writer.let(f"add {llvm_type} {y}, {literal(1, dtype)}")
    unsafe = writer.let(f"icmp ult {llvm_type} {moved}, {literal(2, dtype)}")
    return writer.select(unsafe, dtype, literal(1, dtype), y)


def _remainder(writer: Writer, dtype: DType, x: str, divisor: str) -> str:
    return writer.let(f"srem {register_type(dtype)} {x}, {divisor}")


def _has_other_sign(writer: Writer, dtype: DType, remainder: str, divisor: str) -> str:
    """Whether the remainder is not 0 and its sign is not the divisor's."""
    llvm_type = register_type(dtype)
    zero = literal(0, dtype)
    mixed = writer.let(f"xor {llvm_type} {remainder}, {divisor}")
    differs = writer.let(f"icmp slt {llvm_type} {mixed}, {zero}")
    nonzero = writer.let(f"icmp ne {llvm_type} {remainder}, {zero}")
    return writer.let(f"and {register_type(_bools(dtype))} {differs}, {nonzero}")


def _bools(dtype: DType) -> DType:
    return dtypes.bool.vec(dtype.lanes)


def _truncating_quotient(writer: Writer, dtype: DType, operands: Sequence[str]) -> str:
    x, y = operands
    quotient = writer.let(f"sdiv {register_type(dtype)} {x}, {_safe_divisor(writer, dtype, y)}")
    return _quotient_of_unsafe(writer, dtype, x, y, quotient)


def _quotient_of_unsafe(writer: Writer, dtype: DType, x: str, y: str, quotient: str) -> str:
    """`quotient`, but -x for a division by -1 and 0 for one by 0."""
    llvm_type = register_type(dtype)
    negated = writer.let(f"sub {llvm_type} {literal(0, dtype)}, {x}")
    by_minus_one = writer.let(f"icmp eq {llvm_type} {y}, {literal(-1, dtype)}")
    chosen = writer.select(by_minus_one, dtype, negated, quotient)
    by_zero = writer.let(f"icmp eq {llvm_type} {y}, {literal(0, dtype)}")
    return writer.select(by_zero, dtype, literal(0, dtype), chosen)


def _flooring_quotient(writer: Writer, dtype: DType, operands: Sequence[str]) -> str:
    x, y = operands
    llvm_type = register_type(dtype)
    divisor = _safe_divisor(writer, dtype, y)
    truncated = writer.let(f"sdiv {llvm_type} {x}, {divisor}")
    product = writer.let(f"mul {llvm_type} {truncated}, {divisor}")
    remainder = writer.let(f"sub {llvm_type} {x}, {product}")
    adjust = _has_other_sign(writer, dtype, remainder, divisor)
    step = writer.let(f"sext {register_type(_bools(dtype))} {adjust} to {llvm_type}")
    floored = writer.let(f"add {llvm_type} {truncated}, {step}")
    return _quotient_of_unsafe(writer, dtype, x, y, floored)


def _flooring_remainder(writer: Writer, dtype: DType, operands: Sequence[str]) -> str:
    divisor = _safe_divisor(writer, dtype, operands[1])
    remainder = _remainder(writer, dtype, operands[0], divisor)
    adjust = _has_other_sign(writer, dtype, remainder, divisor)
    step = writer.select(adjust, dtype, divisor, literal(0, dtype))
    return writer.let(f"add {register_type(dtype)} {remainder}, {step}")


# -- shifts -----------------------------------------------------------------------------------------


def _shift(
    writer: Writer, op: Ops, dtype: DType, operands: Sequence[str], constant: int | None
) -> str:
    llvm_type = register_type(dtype)
    x, amount = operands
    arithmetic = op is Ops.SHR and dtype.kind is Kind.SIGNED
    operator = "shl" if op is Ops.SHL else "ashr" if arithmetic else "lshr"
    if constant is not None and 0 <= constant < dtype.bits:
        return writer.let(f"{operator} {llvm_type} {x}, {amount}")
    if arithmetic:
        bounded = writer.call("umin", dtype, (amount, literal(dtype.bits - 1, dtype)))
        return writer.let(f"ashr {llvm_type} {x}, {bounded}")
    in_width = writer.let(f"icmp ult {llvm_type} {amount}, {literal(dtype.bits, dtype)}")
    if not writer.dialect.has_wide_shifts and dtype.bits > dtypes.int32.bits:
        amount = writer.let(f"and {llvm_type} {amount}, {literal(dtype.bits - 1, dtype)}")
    shifted = writer.let(f"{operator} {llvm_type} {x}, {amount}")
    return writer.select(in_width, dtype, shifted, literal(0, dtype))


# -- words of two numbers -----------------------------------------------------------------------------

# By the bits of a vector of int32.
_PAIRS_OF_X86 = {128: "sse2.pmadd.wd", 256: "avx2.pmadd.wd", 512: "avx512.pmaddw.d.512"}


def _dot(writer: Writer, op: Ops, dtype: DType, operands: Sequence[str], _: int | None) -> str:
    llvm_type, bits = register_type(dtype), dtype.lanes * dtype.bits
    if dtype.scalar is dtypes.int32 and bits in writer.dialect.dot_bits:
        halves = dtypes.int16.vec(2 * dtype.lanes)
        half_type = register_type(halves)
        x, y = [writer.let(f"bitcast {llvm_type} {word} to {half_type}") for word in operands]
        name = f"@llvm.x86.{_PAIRS_OF_X86[bits]}"
        return writer.let(f"call {llvm_type} {name}({half_type} {x}, {half_type} {y})")
    half = literal(dtype.bits // 2, dtype)
    extend = "ashr" if dtype.kind is Kind.SIGNED else "lshr"
    raised = [writer.let(f"shl {llvm_type} {word}, {half}") for word in operands]
    lower, upper = [
        writer.let(f"mul {llvm_type} {x}, {y}")
        for x, y in (
            [writer.let(f"{extend} {llvm_type} {word}, {half}") for word in words]
            for words in (raised, operands)
        )
    ]
    return writer.let(f"add {llvm_type} {lower}, {upper}")


_SPECIAL: dict[tuple[Ops, str], Callable[[Writer, Ops, DType, Sequence[str], int | None], str]] = {
    (op, family): function
    for function, ops, families in (
        (_negate, (Ops.NEG,), ("signed", "unsigned")),
        (_flip, (Ops.NOT,), ("bool", "signed", "unsigned")),
        (_multiply_add, (Ops.MULACC,), ("signed", "unsigned", "float")),
        (write_extreme, (Ops.MAX, Ops.MIN), ("float",)),
        (_divide, (Ops.FLOORDIV, Ops.MOD, Ops.TRUNCDIV, Ops.TRUNCMOD), ("signed", "unsigned")),
        (_shift, (Ops.SHL, Ops.SHR), ("signed", "unsigned")),
        (_dot, (Ops.DOT,), ("signed", "unsigned")),
        (_to_tf32, (Ops.TF32,), ("float",)),
    )
    for op in ops
    for family in families
}
