"""The words of the text of loop nests, which its printer and its reader share.

Owns: names of types, signs and precedences of operators, the type that an operation gives where none is written,
how literals get theirs. Does not own: printing (show.py), reading (reader.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from proofgrad.core.ir.dtypes import DType, Kind, as_constant, dtypes
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.uop import AxisRole, UOp

TYPES: dict[str, DType] = {
    "void": dtypes.void, "idx": dtypes.index, "bool": dtypes.bool,
    "i8": dtypes.int8, "u8": dtypes.uint8, "i16": dtypes.int16, "u16": dtypes.uint16,
    "i32": dtypes.int32, "u32": dtypes.uint32, "i64": dtypes.int64, "u64": dtypes.uint64,
    "f16": dtypes.float16, "bf16": dtypes.bfloat16, "f32": dtypes.float32, "f64": dtypes.float64,
    "e4m3": dtypes.fp8e4m3, "e5m2": dtypes.fp8e5m2,
    "e4m3fnuz": dtypes.fp8e4m3fnuz, "e5m2fnuz": dtypes.fp8e5m2fnuz,
}  # fmt: skip
_TYPE_NAMES = {dtype: name for name, dtype in TYPES.items()}
MOST_LANES = 1 << 12

# Operators between operands, and how tightly they bind: as in Python.
SIGNS: dict[Ops, tuple[str, int]] = {
    Ops.CMPLT: ("<", 1), Ops.CMPEQ: ("==", 1), Ops.OR: ("|", 2), Ops.XOR: ("^", 3),
    Ops.AND: ("&", 4), Ops.SHL: ("<<", 5), Ops.SHR: (">>", 5), Ops.ADD: ("+", 6),
    Ops.MUL: ("*", 7), Ops.FDIV: ("/", 7), Ops.FLOORDIV: ("//", 7), Ops.MOD: ("%", 7),
}  # fmt: skip
OP_OF_SIGN = {sign: (op, precedence) for op, (sign, precedence) in SIGNS.items()}
COMPARISON, SUM, SIGNED, ATOM = 1, 6, 8, 9  # precedences
PREFIXES = {Ops.NEG: "-", Ops.NOT: "~"}

# A reduction, with its loops in brackets; the lanes of a vector; a STORE that combines.
REDUCTIONS = {Ops.ADD: "sum", Ops.MUL: "product", Ops.MAX: "max", Ops.MIN: "min"}
COMBINED = {op: f"{name}_of_lanes" for op, name in REDUCTIONS.items()}
STORES = {None: "=", Ops.ADD: "+=", Ops.MUL: "*=", Ops.MAX: "max=", Ops.MIN: "min="}

OPS = {op.name.lower(): op for op in Ops}
ROLES = {role.value: role for role in AxisRole}
KEYWORDS = frozenset(
    {
        "kernel", "program", "linear", "graph", "term", "param", "scratch", "variable", "buffer",
        "for", "over", "let", "run", "return", "from", "if", "in", "on", "as", "order", "indices", "none",
        "true", "false", "inf", "nan", "local", *REDUCTIONS.values(), *COMBINED.values(),
    }
)  # fmt: skip
# Names that the printer gives by what a node is, and reads back: r3, acc0, acc0_5.
LOOP_NAME = re.compile(r"r(0|[1-9]\d{0,17})([a-z]*)")
REGISTER_NAME = re.compile(r"acc(0|[1-9]\d{0,17})((?:_(?:0|[1-9]\d{0,17}))*)([a-z]*)")

_LIKE_FIRST = MOVEMENT | {
    Ops.REDUCE, Ops.LOCAL_BUFFER, Ops.ACCUMULATOR, Ops.UPDATE, Ops.RESULT, Ops.INDEX, Ops.LOAD,
    Ops.REDUCE_AXIS, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY, Ops.ASSIGN, Ops.BIND,
}  # fmt: skip


def type_name(dtype: DType) -> str:
    """f32, idx, i64x8. Raises: ValueError for lanes of what has no machine width."""
    if dtype.lanes > 1 and dtype.kind is Kind.INDEX:
        raise ValueError("a vector of index terms has no text")
    name = _TYPE_NAMES[dtype.scalar]
    return name if dtype.lanes == 1 else f"{name}x{dtype.lanes}"


def type_named(name: str) -> DType | None:
    """The type of such a name; None if there is none."""
    if name in TYPES:
        return TYPES[name]
    scalar, _, lanes = name.rpartition("x")
    if (
        scalar not in TYPES
        or scalar in ("void", "idx")
        or re.fullmatch(r"[1-9]\d{0,3}", lanes) is None
    ):
        return None
    count = int(lanes)
    return TYPES[scalar].vec(count) if 1 < count <= MOST_LANES else None


def is_reserved(name: str) -> bool:
    """Whether a name has a meaning of its own."""
    return name in KEYWORDS or name in OPS or type_named(name) is not None


def plain_type(op: Ops, src: Sequence[UOp], arg: Any) -> DType:
    """The type of a node of these parts, where the text says none."""
    if op in COMPARE and src:
        return dtypes.bool.vec(src[0].dtype.lanes)
    if op in ELEMENTWISE and src:
        return src[-1].dtype
    if op in _LIKE_FIRST and src:
        return src[0].dtype
    if op is Ops.FILLED and src and len(src[0].src) > 1:
        return src[0].src[1].dtype
    if op is Ops.HREDUCE and src:
        return src[0].dtype.scalar
    return dtypes.void


def natural_type(value: Any, index: DType) -> DType | None:
    """The type of a literal that nothing around it tells."""
    if isinstance(value, tuple):
        natural = natural_type(value[0], index) if value else None
        has_lanes = natural is not None and natural is not dtypes.index
        return natural.vec(len(value)) if natural is not None and has_lanes else None
    if isinstance(value, bool):
        return dtypes.bool
    return index if isinstance(value, int) else dtypes.float32


def is_literal(node: UOp) -> bool:
    """A constant, or one in all lanes: what takes its type from its neighbours."""
    if node.op is Ops.BROADCAST and node.arg is None and len(node.src) == 1 < node.dtype.lanes:
        (scalar,) = node.src
        return is_literal(scalar) and scalar.dtype is node.dtype.scalar
    return node.op is Ops.CONST and not node.src


def type_around(src: Sequence[Any]) -> DType | None:
    """The type that operands of one type have, as those say that are no literals; None: all are."""
    return next((s.dtype for s in src if isinstance(s, UOp) and not is_literal(s)), None)


def constant(value: Any, dtype: DType) -> UOp:
    """The literal as a constant, in all lanes of a vector type. Raises: ValueError, OverflowError."""
    if isinstance(value, tuple):
        if len(value) != dtype.lanes:
            raise ValueError(f"{len(value)} values for {type_name(dtype)}")
        lanes = tuple([_converted(one, dtype.scalar) for one in value])
        return UOp(Ops.CONST, dtype, (), lanes)
    scalar = UOp(Ops.CONST, dtype.scalar, (), _converted(value, dtype.scalar))
    return scalar if dtype.lanes == 1 else UOp(Ops.BROADCAST, dtype, (scalar,))


def _converted(value: Any, dtype: DType) -> Any:
    if dtype.is_bool != isinstance(value, bool) or (dtype.is_int and isinstance(value, float)):
        raise ValueError(f"{value!r} is no {type_name(dtype)}")
    return as_constant(value, dtype)


def is_plain_loop(node: UOp) -> bool:
    """Whether a node is a loop as `r0 < 5 as vector` says it."""
    if node.op is not Ops.RANGE or len(node.src) != 1 or type(node.arg) is not tuple:
        return False
    is_named = len(node.arg) == 2 and type(node.arg[1]) is AxisRole
    return is_named and LOOP_NAME.fullmatch(f"r{node.arg[0]!r}") is not None


def free_loops(node: UOp, known: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """The loops that one node runs in, by those of its sources: a STORE also in its own."""
    op, src = node.op, node.src
    below = frozenset[UOp]()
    for source in src[:1] if op is Ops.ACCUMULATOR else src:
        more = known[source]
        if more is not below and not more <= below:
            below = below | more if below else more
    if is_plain_loop(node):
        return below | {node}
    if op in (Ops.REDUCE, Ops.LOCAL_BUFFER, Ops.FILLED):
        return below.difference(src[1:])
    if (
        op is Ops.RESULT
        and src
        and src[0].op is Ops.UPDATE
        and (src[0].src and src[0].src[0].op is Ops.ACCUMULATOR)
    ):
        return below.difference(src[0].src[0].src[1:])
    return below


def nest_of(loops: frozenset[UOp]) -> list[UOp]:
    """Loops as they stand around each other, outermost first."""
    first = (AxisRole.THREAD, AxisRole.GLOBAL, AxisRole.BLOCK)
    return sorted(loops, key=lambda x: (x.arg[1] not in first, x.arg[0], loop_order(x)))


def loop_order(loop: UOp) -> tuple[str, str, str]:
    """Tells loops of one number apart, the same way in every process."""
    bound = loop.src[0]
    return (loop.arg[1].value, loop.dtype.name, f"{bound.op.name} {bound.arg!r:.40}")
