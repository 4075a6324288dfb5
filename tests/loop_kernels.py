"""Linear graphs with loops and vectors, for tests of backends that run loops themselves.

Owns: kernels built by hand. Does not own: edge values, packing, running (linear_kernels.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linear_kernels import linear, pack, run, same, unpack

from proofgrad.core.compile.machine.target import Backend
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

VOID, INDEX = dtypes.void, dtypes.int64


def number(value: int) -> UOp:
    return UOp.const(INDEX, value)


def param(slot: int, dtype: DType, size: int) -> UOp:
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def loop(size: int, count: int = 0, role: AxisRole = AxisRole.LOOP) -> UOp:
    return UOp(Ops.RANGE, INDEX, (number(size),), (count, role))


def end(opened: UOp) -> UOp:
    return UOp(Ops.END, VOID, (opened,))


def position(buffer: UOp, index: UOp, *mask: UOp) -> UOp:
    return UOp(Ops.INDEX, buffer.dtype, (buffer, index, *mask))


def load(where: UOp, lanes: int = 1) -> UOp:
    return UOp(Ops.LOAD, where.dtype.vec(lanes), (where,))


def store(where: UOp, value: UOp) -> UOp:
    return UOp(Ops.STORE, VOID, (where, value))


def in_order(*roots: UOp) -> UOp:
    """A program without loops: everything below `roots`, sources first."""
    nodes: dict[UOp, None] = {}
    for root in roots:
        nodes.update(dict.fromkeys(root.toposort()))
    return linear(nodes)


def map_loop(
    results: Sequence[tuple[Ops, DType]],
    sources: Sequence[DType],
    count: int,
    lanes: int = 1,
    role: AxisRole = AxisRole.LOOP,
) -> UOp:
    """out_k[i] = op_k(in_1[i], ...), `lanes` elements at once; outputs first, as map_kernel."""
    inputs = [param(len(results) + k, dtype, count) for k, dtype in enumerate(sources)]
    step = loop(count // lanes, role=role)
    first = step * number(lanes)
    positions = [position(buffer, first) for buffer in inputs]
    loads = [load(p, lanes) for p in positions]
    nodes = [*inputs, step, first, *positions, *loads]
    for slot, (op, dtype) in enumerate(results):
        out = param(slot, dtype, count)
        value = UOp(op, dtype.vec(lanes), tuple(loads))
        nodes += [out, value, position(out, first), store(position(out, first), value)]
    return linear([*nodes, end(step)])


def lane_differences(
    backend: Backend,
    results: Sequence[tuple[Ops, DType]],
    sources: tuple[DType, ...],
    rows: Sequence[tuple[Any, ...]],
    lanes: int,
) -> list[str]:
    """Where a backend and core/ir/evaluate.py disagree about ops on `rows`, as text."""
    rows = [*rows, *[rows[0]] * (-len(rows) % lanes)]
    inputs = [pack(column, dtype) for column, dtype in zip(zip(*rows), sources)]
    sizes = [len(rows) * dtype.itemsize for _, dtype in results]
    kernel = map_loop(results, sources, len(rows), lanes)
    wrong = []
    for (op, dtype), output in zip(results, run(backend, kernel, inputs, sizes)):
        for row, value in zip(rows, unpack(output, dtype)):
            want = evaluate(op, dtype, row, sources)
            if not same(value, want):
                wrong.append(f"{op.name} {row} as {dtype.name}: {value!r}, not {want!r}")
    return wrong
