"""Operations on OpenCL's vectors compute in each lane what core/ir/evaluate.py says, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from linear_kernels import (
    edge_values,
    linear,
    operand_rows,
    ops_by_operands,
    pack,
    run,
    same,
    unpack,
)

from proofgrad.backends.opencl import backend
from proofgrad.backends.opencl.emit import emit
from proofgrad.core.compile.machine.target import Backend, CompileError, DeviceError
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

SMALL_FLOATS = [dtypes.float16, dtypes.bfloat16]
ARITHMETIC = [d for d in dtypes.all if d not in SMALL_FLOATS]
LANES = 4


@pytest.fixture(scope="module")
def device() -> Backend:
    try:
        return backend()
    except DeviceError as error:
        pytest.skip(f"no OpenCL here: {error}")


def vector_map(results: Sequence[tuple[Ops, DType]], sources: Sequence[DType], count: int) -> UOp:
    """out_k[i] = op_k(in_1[i], ...) for every (op, dtype), some elements at once, the last of `count` under masks."""
    size = UOp(Ops.CONST, dtypes.int32, (), -(-count // LANES))
    item = UOp(Ops.RANGE, dtypes.int32, (size,), (0, AxisRole.GLOBAL))
    wide = UOp(Ops.CONST, dtypes.int32, (), LANES)
    first = item * wide
    spread = UOp(Ops.BROADCAST, dtypes.int32.vec(LANES), (first,))
    steps = UOp(Ops.CONST, dtypes.int32.vec(LANES), (), tuple(range(LANES)))
    end = UOp(Ops.BROADCAST, dtypes.int32.vec(LANES), (UOp(Ops.CONST, dtypes.int32, (), count),))
    at = spread + steps
    mask = at < end
    inputs = [UOp(Ops.PARAM, d, (), (len(results) + k, count)) for k, d in enumerate(sources)]
    places = [UOp(Ops.INDEX, p.dtype, (p, first, mask)) for p in inputs]
    loads = [UOp(Ops.LOAD, p.dtype.vec(LANES), (p,)) for p in places]
    nodes = [*inputs, size, item, wide, first, spread, steps, end.src[0], end, at, mask]
    nodes += [*places, *loads]
    for slot, (op, dtype) in enumerate(results):
        out = UOp(Ops.PARAM, dtype, (), (slot, count))
        value = UOp(op, dtype.vec(LANES), tuple(loads))
        place = UOp(Ops.INDEX, dtype, (out, first, mask))
        nodes += [out, value, place, UOp(Ops.STORE, dtypes.void, (place, value))]
    return linear([*nodes, UOp(Ops.END, dtypes.void, (item,))])


def differences(
    device: Backend,
    results: Sequence[tuple[Ops, DType]],
    sources: Sequence[DType],
    rows: Sequence[tuple[Any, ...]],
) -> list[object]:
    """What a device gives that is not what an operation means."""
    kernel = vector_map(results, sources, len(rows))
    inputs = [pack(column, dtype) for column, dtype in zip(zip(*rows), sources)]
    outputs = run(device, kernel, inputs, [len(rows) * d.itemsize for _, d in results])
    wrong: list[object] = []
    for (op, dtype), output in zip(results, outputs):
        for row, got in zip(rows, unpack(output, dtype)):
            wanted = evaluate(op, dtype, row, sources)
            if not same(wanted, got):
                wrong.append((op.name, sources, row, got, wanted))
    return wrong


@pytest.mark.parametrize("dtype", ARITHMETIC, ids=lambda d: d.name)
def test_every_op_in_lanes_is_bitwise_the_reference(device: Backend, dtype: DType) -> None:
    wrong = []
    for sources, results in ops_by_operands(dtype).items():
        wrong += differences(device, results, sources, operand_rows(sources))
    assert wrong[:5] == []


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_casts_in_lanes_are_bitwise_the_reference(device: Backend, dtype: DType) -> None:
    rows = [(value,) for value in edge_values(dtype)]
    casts = [(Ops.CAST, target) for target in dtypes.all]
    assert differences(device, casts, (dtype,), rows)[:5] == []


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=lambda d: d.name)
def test_where_of_small_floats_in_lanes_selects(device: Backend, dtype: DType) -> None:
    sources = (dtypes.bool, dtype, dtype)
    assert differences(device, [(Ops.WHERE, dtype)], sources, operand_rows(sources)) == []


def test_vector_of_a_width_that_there_is_not_is_refused() -> None:
    value = UOp(Ops.CONST, dtypes.float32.vec(32), (), 1.0)
    with pytest.raises(CompileError, match="2, 4, 8 or 16 elements"):
        emit(linear([value]), "wide")
