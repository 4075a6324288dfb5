"""Small Linear graphs and edge values, for tests of backends that start one work item an element.

Owns: kernels built by hand, so that a backend is tested without the compiler; packing of values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from proofgrad.core.compile.machine.target import Backend
from proofgrad.core.compile.math.transcendental import EXPANSIONS
from proofgrad.core.compile.passes.stages import RuleSets
from proofgrad.core.ir.dtypes import DType, dtypes, round_float
from proofgrad.core.ir.evaluate import evaluate, from_bits, to_bits
from proofgrad.core.ir.ops import BINARY, CASTS, COMPARE, ELEMENTS, UNARY, Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.rules.pipeline import KERNEL_STAGES

_LANES = 4
# Operations that rules write in others, for machines that do not print them.
BY_RULES = frozenset(
    [op for s in KERNEL_STAGES if isinstance(s.step, RuleSets) for op, _ in s.step.lacking]
)


def ops_of(dtype: DType) -> list[Ops]:
    """The ALU ops that a backend prints for `dtype`, in a stable order."""
    loose = {Ops.MULACC} if dtype.is_float else set()  # once or twice rounded: not to the bit
    mine = {op for op, row in ELEMENTS.items() if dtype.kind in row.kinds}
    return sorted(mine - EXPANSIONS.keys() - BY_RULES - loose)


def edge_values(dtype: DType) -> list[Any]:
    """Values where arithmetic goes wrong: ends, zeros, powers of two and their neighbours."""
    if dtype.is_bool:
        return [False, True]
    if dtype.is_float:
        return _float_edges(dtype)
    near = [0, 1, 2, 3, 7, 10, dtype.bits - 1, dtype.bits, dtype.bits + 1, 100, 2**24 + 1]
    large = [2**53 + 1, 2**62 + 2**38 + 1, 2**63 - 2**9, (2**9 + 1) * 2**22 + 1, dtype.hi - 1]
    both = {sign * value for value in [*near, *large, dtype.hi, dtype.lo] for sign in (1, -1)}
    return sorted(v for v in both if dtype.lo <= v <= dtype.hi)


def _float_edges(dtype: DType) -> list[float]:
    plain = [0.0, 1.0, 1.5, 0.1, 3.0, 255.5, 65504.0, 65520.0, 1e-7, 1e10, 2.0**31, 2.0**63, 1e300]
    odd = [1 + 2**-8 + 2**-40, 1 + 2**-11 + 2**-40, 1 + 2**-9, 2.0**-25 + 2.0**-60, 2.0**-133]
    tiny = [from_bits(1, dtype), from_bits(3, dtype), from_bits(2**7 - 1, dtype)]
    ends = [from_bits(to_bits(math.inf, dtype) - 1, dtype), math.inf]
    rounded = {round_float(v, dtype) for v in [*plain, *odd, *tiny, *ends]}
    return [math.nan, *sorted(rounded), *sorted(-v for v in rounded)]


def ops_by_operands(dtype: DType) -> dict[tuple[DType, ...], list[tuple[Ops, DType]]]:
    """The ops of `dtype` with their result types, grouped by the types of their operands."""
    groups: dict[tuple[DType, ...], list[tuple[Ops, DType]]] = {}
    for op in ops_of(dtype):
        result = dtypes.bool if op in COMPARE else dtype
        groups.setdefault(operand_types(op, dtype), []).append((op, result))
    return groups


def operand_types(op: Ops, dtype: DType) -> tuple[DType, ...]:
    if op is Ops.WHERE:
        return (dtypes.bool, dtype, dtype)
    return (dtype,) * (1 if op in UNARY | CASTS else 2 if op in BINARY else 3)


def operand_rows(sources: Sequence[DType]) -> list[tuple[Any, ...]]:
    """All combinations of edge values; for three number operands, a part of them."""
    values = [edge_values(d) for d in sources]
    if len(sources) == 3 and not sources[0].is_bool:
        values = [v[::3] for v in values]
    return list(itertools.product(*values))


def global_index(count: int, dtype: DType = dtypes.int32) -> list[UOp]:
    """[n, range]: one work item for each of `count` elements."""
    size = UOp(Ops.CONST, dtype, (), count)
    return [size, UOp(Ops.RANGE, dtype, (size,), (0, AxisRole.GLOBAL))]


def linear(nodes: Iterable[UOp]) -> UOp:
    return UOp(Ops.LINEAR, dtypes.void, tuple(nodes))


def map_kernel(results: Sequence[tuple[Ops, DType]], sources: Sequence[DType], count: int) -> UOp:
    """out_k[i] = op_k(in_1[i], in_2[i], ...) for every (op, dtype) of `results`.

    The outputs are the first slots, the inputs the slots after them.
    """
    size, item = global_index(count)
    first_input = len(results)
    inputs = [UOp(Ops.PARAM, d, (), (first_input + k, count)) for k, d in enumerate(sources)]
    positions = [UOp(Ops.INDEX, p.dtype, (p, item)) for p in inputs]
    loads = [UOp(Ops.LOAD, p.dtype, (p,)) for p in positions]
    nodes = [*inputs, size, item, *positions, *loads]
    for slot, (op, dtype) in enumerate(results):
        out = UOp(Ops.PARAM, dtype, (), (slot, count))
        value = UOp(op, dtype, tuple(loads))
        position = UOp(Ops.INDEX, dtype, (out, item))
        nodes += [out, value, position, UOp(Ops.STORE, dtypes.void, (position, value))]
    return linear([*nodes, UOp(Ops.END, dtypes.void, (item,))])


def vector_map_kernel(
    results: Sequence[tuple[Ops, DType]], sources: Sequence[DType], count: int
) -> UOp:
    """out_k[i] = op_k(in_1[i], ...) for every (op, dtype), some elements at once, the last of `count` under masks."""
    size = UOp(Ops.CONST, dtypes.int32, (), -(-count // _LANES))
    item = UOp(Ops.RANGE, dtypes.int32, (size,), (0, AxisRole.GLOBAL))
    wide = UOp(Ops.CONST, dtypes.int32, (), _LANES)
    first = item * wide
    spread = UOp(Ops.BROADCAST, dtypes.int32.vec(_LANES), (first,))
    steps = UOp(Ops.CONST, dtypes.int32.vec(_LANES), (), tuple(range(_LANES)))
    end = UOp(Ops.BROADCAST, dtypes.int32.vec(_LANES), (UOp(Ops.CONST, dtypes.int32, (), count),))
    at = spread + steps
    mask = at < end
    inputs = [UOp(Ops.PARAM, d, (), (len(results) + k, count)) for k, d in enumerate(sources)]
    positions = [UOp(Ops.INDEX, p.dtype, (p, first, mask)) for p in inputs]
    loads = [UOp(Ops.LOAD, p.dtype.vec(_LANES), (p,)) for p in positions]
    nodes = [*inputs, size, item, wide, first, spread, steps, end.src[0], end, at, mask]
    nodes += [*positions, *loads]
    for slot, (op, dtype) in enumerate(results):
        out = UOp(Ops.PARAM, dtype, (), (slot, count))
        value = UOp(op, dtype.vec(_LANES), tuple(loads))
        position = UOp(Ops.INDEX, dtype, (out, first, mask))
        nodes += [out, value, position, UOp(Ops.STORE, dtypes.void, (position, value))]
    return linear([*nodes, UOp(Ops.END, dtypes.void, (item,))])


def product_and_sum_kernel(count: int) -> UOp:
    """out[i] = a[i] * b[i] + a[i], as a MUL and an ADD: two roundings."""
    size, item = global_index(count)
    out, a, b = [UOp(Ops.PARAM, dtypes.float32, (), (slot, count)) for slot in range(3)]
    positions = [UOp(Ops.INDEX, dtypes.float32, (param, item)) for param in (out, a, b)]
    x, y = [UOp(Ops.LOAD, dtypes.float32, (position,)) for position in positions[1:]]
    product = x * y
    total = product + x
    store = UOp(Ops.STORE, dtypes.void, (positions[0], total))
    end = UOp(Ops.END, dtypes.void, (item,))
    return linear([out, a, b, size, item, *positions, x, y, product, total, store, end])


def row_sum_kernel(rows: int, columns: int) -> UOp:
    """out[i] = sum over k of in[i, k] * in[i, k], with the elements k >= 5 of each row masked out."""
    size, item = global_index(rows)
    out = UOp(Ops.PARAM, dtypes.float32, (), (0, rows))
    source = UOp(Ops.PARAM, dtypes.float32, (), (1, rows * columns))
    width = UOp(Ops.CONST, dtypes.int32, (), columns)
    k = UOp(Ops.RANGE, dtypes.int32, (width,), (1, AxisRole.REDUCE))
    zero = UOp.const(dtypes.float32, 0.0)
    total = UOp(Ops.ACCUMULATOR, dtypes.float32, (zero, k), 0)
    start = item * width
    position = start + k
    five = UOp(Ops.CONST, dtypes.int32, (), 5)
    mask = k < five
    element = UOp(Ops.INDEX, dtypes.float32, (source, position, mask))
    load = UOp(Ops.LOAD, dtypes.float32, (element,))
    added = UOp(Ops.MULACC, dtypes.float32, (load, load, total))
    update = UOp(Ops.UPDATE, dtypes.float32, (total, added))
    end_k = UOp(Ops.END, dtypes.void, (k,))
    result = UOp(Ops.RESULT, dtypes.float32, (update,))
    target = UOp(Ops.INDEX, dtypes.float32, (out, item))
    store = UOp(Ops.STORE, dtypes.void, (target, result))
    end = UOp(Ops.END, dtypes.void, (item,))
    return linear(
        [out, source, size, item, width, start, five, zero, total, k, position, mask, element, load]
        + [added, update, end_k, result, target, store, end]
    )


def constants_kernel(values: Sequence[Any], dtype: DType) -> UOp:
    """out[k] = values[k]."""
    out = UOp(Ops.PARAM, dtype, (), (0, len(values)))
    nodes = [out]
    for k, value in enumerate(values):
        at, constant = UOp(Ops.CONST, dtypes.int32, (), k), UOp(Ops.CONST, dtype, (), value)
        position = UOp(Ops.INDEX, dtype, (out, at))
        nodes += [at, constant, position, UOp(Ops.STORE, dtypes.void, (position, constant))]
    return linear(nodes)


def fibonacci_kernel(steps: int) -> UOp:
    """out[0] = the Fibonacci number `steps`: the sum is read before both accumulators change."""
    out = UOp(Ops.PARAM, dtypes.int32, (), (0, 1))
    zero, one, size = [UOp(Ops.CONST, dtypes.int32, (), v) for v in (0, 1, steps)]
    loop = UOp(Ops.RANGE, dtypes.int32, (size,), (0, AxisRole.REDUCE))
    low = UOp(Ops.ACCUMULATOR, dtypes.int32, (zero, loop), 0)
    high = UOp(Ops.ACCUMULATOR, dtypes.int32, (one, loop), 1)
    total = low + high
    new_low = UOp(Ops.UPDATE, dtypes.int32, (low, high))
    new_high = UOp(Ops.UPDATE, dtypes.int32, (high, total))
    end = UOp(Ops.END, dtypes.void, (loop,))
    result = UOp(Ops.RESULT, dtypes.int32, (new_low,))
    position = UOp(Ops.INDEX, dtypes.int32, (out, zero))
    store = UOp(Ops.STORE, dtypes.void, (position, result))
    return linear(
        [
            out,
            zero,
            one,
            size,
            low,
            high,
            loop,
            total,
            new_low,
            new_high,
            end,
            result,
            position,
            store,
        ]
    )


def pack(values: Sequence[Any], dtype: DType) -> bytes:
    """The values as the bytes of a buffer."""
    return b"".join([to_bits(v, dtype).to_bytes(dtype.itemsize, "little") for v in values])


def unpack(data: bytes, dtype: DType) -> list[Any]:
    size = dtype.itemsize
    numbers = [int.from_bytes(data[k : k + size], "little") for k in range(0, len(data), size)]
    return [from_bits(n, dtype) for n in numbers]


def run(
    backend: Backend,
    kernel: UOp,
    inputs: Sequence[bytes],
    out_sizes: Sequence[int],
    name: str = "kernel_0",
) -> list[bytes]:
    """Emit, compile, load and launch `kernel`; returns the bytes of its outputs, slots 0, 1, ..."""
    launch = backend.load(backend.compile(backend.emit(kernel, name)))
    handles = [backend.alloc(size) for size in out_sizes]
    for data in inputs:
        handles.append(backend.alloc(len(data)))
        backend.copyin(handles[-1], memoryview(data))
    launch(handles)
    backend.synchronize()
    results = [bytearray(size) for size in out_sizes]
    for result, handle in zip(results, handles):
        backend.copyout(memoryview(result), handle)
    return [bytes(result) for result in results]


def differences(
    backend: Backend,
    results: Sequence[tuple[Ops, DType]],
    sources: tuple[DType, ...],
    rows: Sequence[tuple[Any, ...]],
    kernel: Callable[[Sequence[tuple[Ops, DType]], Sequence[DType], int], UOp] = map_kernel,
) -> list[str]:
    """Where a device and the reference interpreter disagree about ops on `rows`, as text."""
    inputs = [pack(column, d) for column, d in zip(zip(*rows), sources)]
    sizes = [len(rows) * dtype.itemsize for _, dtype in results]
    outputs = run(backend, kernel(results, sources, len(rows)), inputs, sizes)
    wrong = []
    for (op, dtype), output in zip(results, outputs):
        for row, value in zip(rows, unpack(output, dtype)):
            want = evaluate(op, dtype, row, sources)
            if not same(value, want):
                wrong.append(f"{op.name} {row} as {dtype.name}: {value!r}, not {want!r}")
    return wrong


def negates_in_threads(backend: Backend) -> bool:
    """Four threads launch one kernel, 50 times each: does each find its own results?"""
    program = map_kernel([(Ops.NEG, dtypes.int32)], (dtypes.int32,), 4)
    launch = backend.load(backend.compile(backend.emit(program, "negate")))

    def work(seed: int) -> bool:
        for k in range(50):
            value = 1000 * seed + k
            source, out = backend.alloc(16), backend.alloc(16)
            backend.copyin(source, memoryview(pack([value] * 4, dtypes.int32)))
            launch([out, source])
            result = bytearray(16)
            backend.copyout(memoryview(result), out)
            if unpack(bytes(result), dtypes.int32) != [-value] * 4:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        return all(pool.map(work, range(4)))


def same(x: Any, y: Any) -> bool:
    """Equal with equal sign of zero; every NaN equals every NaN."""
    if isinstance(x, float) and isinstance(y, float):
        return (math.isnan(x) and math.isnan(y)) or (
            x == y and math.copysign(1, x) == math.copysign(1, y)
        )
    return bool(type(x) is type(y) and x == y)
