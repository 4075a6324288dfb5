"""Random tensor programs for property tests: graphs of the TensorGraph form with data."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from oracle import numpy_dtype

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.ops import APPROXIMATED, ELEMENTS, TERNARY, UNARY, Ops
from proofgrad.core.ir.uop import UOp, toposort

MAX_ELEMENTS = 400


@dataclass(frozen=True)
class Program:
    """A graph over PARAMs 1, 2, ... of a kernel body, and the elements of each."""

    value: UOp
    data: dict[int, list[Any]]

    def __repr__(self) -> str:
        return f"Program(data={self.data!r}, value={self.value!r})"


def over_buffers(program: Program) -> tuple[UOp, dict[UOp, np.ndarray]]:
    """The program's graph over BUFFERs in place of PARAMs, and the elements of each."""
    buffers: dict[UOp, UOp] = {}
    elements: dict[UOp, np.ndarray] = {}
    for node in toposort((program.value,)):
        if node.op is Ops.PARAM:
            slot, size = node.arg
            unique = UOp(Ops.UNIQUE, dtypes.void, (), slot)
            device = UOp(Ops.DEVICE, dtypes.void, (), "TEST")
            buffer = buffers[node] = UOp(Ops.BUFFER, node.dtype, (unique, device), size)
            with np.errstate(all="ignore"):
                elements[buffer] = np.array(program.data[slot]).astype(numpy_dtype(node.dtype))
    return program.value.substitute(buffers), elements


INT_EDGES = [0, 1, -1, 2, 3, 7, 100, -100, 127, -128]
FLOAT_EDGES = [0.0, -0.0, 1.0, -1.5, 0.1, 3.0e38, -3.0e38, 1e-40, float("inf"), -float("inf"),
               float("nan"), 2.0**-126, 255.5]  # fmt: skip

ARITHMETIC = {
    "int": [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.FLOORDIV, Ops.MOD, Ops.TRUNCDIV, Ops.TRUNCMOD,
            Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.DOT],
    "float": [Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.MIN, Ops.FMA],
    "bool": [Ops.AND, Ops.OR, Ops.XOR],
}  # fmt: skip


def family(dtype: DType) -> str:
    return "float" if dtype.is_float else "bool" if dtype.is_bool else "int"


@st.composite
def movement_only(draw: st.DrawFn) -> Program:
    """A chain of movement operations on numbered elements: what index terms are made of."""
    return draw(programs(kinds=("movement",), dtypes_used=(dtypes.int32,), max_steps=6))


@st.composite
def programs(
    draw: st.DrawFn,
    kinds: tuple[str, ...] = ("movement", "unary", "arithmetic", "reduce", "compare", "cast"),
    dtypes_used: tuple[DType, ...] = (dtypes.int32, dtypes.uint8, dtypes.float32, dtypes.bool),
    max_steps: int = 8,
) -> Program:
    data: dict[int, list[Any]] = {}
    pool: list[UOp] = []
    for slot in range(1, draw(st.integers(1, 2)) + 1):
        shape = draw(shapes())
        dtype = draw(st.sampled_from(dtypes_used))
        data[slot] = draw(elements(dtype, prod(shape)))
        parameter = UOp(Ops.PARAM, dtype, (), (slot, prod(shape)))
        pool.append(UOp(Ops.RESHAPE, dtype, (parameter,), shape))
    for _ in range(draw(st.integers(1, max_steps))):
        pool.append(draw(step(pool, kinds)))
    return Program(pool[-1], data)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 8]), min_size=1, max_size=3)))


@st.composite
def elements(draw: st.DrawFn, dtype: DType, count: int) -> list[Any]:
    """Edge values among plain ones, from a drawn seed (drawing each one would be slow)."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype.is_bool:
        return [bool(b) for b in rng.integers(0, 2, count)]
    if dtype.is_float:
        plain = [float(np.float32(x)) for x in rng.normal(size=count)]
        edges = [
            float(np.float32(FLOAT_EDGES[k])) for k in rng.integers(0, len(FLOAT_EDGES), count)
        ]
        return [e if rng.random() < 0.2 else p for e, p in zip(edges, plain)]
    assert dtype.lo is not None and dtype.hi is not None
    edges = [e for e in INT_EDGES if dtype.lo <= e <= dtype.hi] + [dtype.lo, dtype.hi]
    return [int(edges[k]) for k in rng.integers(0, len(edges), count)]


@st.composite
def step(draw: st.DrawFn, pool: list[UOp], kinds: tuple[str, ...]) -> UOp:
    source = pool[draw(st.integers(max(0, len(pool) - 3), len(pool) - 1))]
    match draw(st.sampled_from(kinds)):
        case "movement":
            return draw(movement(source))
        case "unary":
            return draw(unary(source))
        case "arithmetic":
            return draw(arithmetic(source, pool))
        case "compare":
            return draw(choice(source, pool))
        case "cast":
            target = draw(st.sampled_from([dtypes.int32, dtypes.float32, dtypes.int8, dtypes.bool]))
            return source.cast(target)
        case _:
            return draw(reduction(source))


FLOAT_UNARY = sorted([op for op in UNARY - APPROXIMATED if Kind.FLOAT in ELEMENTS[op].kinds])


@st.composite
def unary(draw: st.DrawFn, source: UOp) -> UOp:
    match family(source.dtype):
        case "float":
            return source.alu(draw(st.sampled_from(FLOAT_UNARY)))
        case "int":
            return source.alu(draw(st.sampled_from([Ops.NEG, Ops.NOT])))
        case _:
            return source.alu(Ops.NOT)


@st.composite
def partner(draw: st.DrawFn, source: UOp, pool: list[UOp]) -> UOp:
    """Another operand: a node of the same kind, or a constant spread over the shape."""
    same = [p for p in pool if p.shape == source.shape and p.dtype is source.dtype]
    if draw(st.booleans()):
        return draw(st.sampled_from(same))
    value: Any = draw(st.sampled_from([0, 1, 2, 3, 7]))
    constant = UOp.const(source.dtype, value)
    ones = UOp(Ops.RESHAPE, source.dtype, (constant,), (1,) * len(source.shape))
    return UOp(Ops.EXPAND, source.dtype, (ones,), source.shape)


@st.composite
def arithmetic(draw: st.DrawFn, source: UOp, pool: list[UOp]) -> UOp:
    op = draw(st.sampled_from(ARITHMETIC[family(source.dtype)]))
    others = 2 if op in TERNARY else 1
    return source.alu(op, *[draw(partner(source, pool)) for _ in range(others)])


@st.composite
def choice(draw: st.DrawFn, source: UOp, pool: list[UOp]) -> UOp:
    other = draw(partner(source, pool))
    test = source.alu(draw(st.sampled_from([Ops.CMPLT, Ops.CMPEQ])), other)
    return test.where(source, other) if draw(st.booleans()) else test


@st.composite
def reduction(draw: st.DrawFn, source: UOp) -> UOp:
    if source.dtype.is_bool or not source.shape:
        return source
    axes = draw(st.lists(st.integers(0, len(source.shape) - 1), unique=True, min_size=1))
    op = draw(st.sampled_from([Ops.ADD, Ops.MAX, Ops.MIN]))
    return UOp(Ops.REDUCE_AXIS, source.dtype, (source,), (op, tuple(sorted(axes))))


@st.composite
def movement(draw: st.DrawFn, source: UOp) -> UOp:
    shape, dtype = source.shape, source.dtype
    op = draw(st.sampled_from(["reshape", "permute", "expand", "pad", "shrink", "flip", "skew"]))
    node = source
    match op:
        case "reshape":
            node = UOp(Ops.RESHAPE, dtype, (source,), draw(factorings(prod(shape))))
        case "permute":
            node = UOp(
                Ops.PERMUTE, dtype, (source,), tuple(draw(st.permutations(range(len(shape)))))
            )
        case "expand":
            extra = draw(st.integers(2, 3))
            spread = UOp(Ops.RESHAPE, dtype, (source,), (1, *shape))
            node = UOp(Ops.EXPAND, dtype, (spread,), (extra, *shape))
        case "pad":
            pads = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape)
            node = UOp(Ops.PAD, dtype, (source,), pads)
        case "shrink":
            cuts = []
            for size in shape:
                begin = draw(st.integers(0, max(0, size - 1)))
                cuts.append((begin, draw(st.integers(min(begin + 1, size), size))))
            node = UOp(Ops.SHRINK, dtype, (source,), tuple(cuts))
        case "flip":
            node = UOp(Ops.FLIP, dtype, (source,), tuple(draw(st.booleans()) for _ in shape))
        case "skew" if len(shape) >= 2:
            axis, by = draw(st.permutations(range(len(shape))))[:2]
            how = (axis, by, draw(st.integers(-2, 2)), draw(st.integers(1, 6)))
            node = UOp(Ops.SKEW, dtype, (source,), how)
    return node if 0 < prod(node.shape) <= MAX_ELEMENTS else source


@st.composite
def factorings(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    sizes: list[int] = []
    while count > 1 and len(sizes) < 3:
        size = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
        sizes.append(size)
        count //= size
    return tuple(draw(st.permutations([*sizes, count])))
