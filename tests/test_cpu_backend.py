"""The CPU backend computes every op as core/ir/evaluate.py says, bit for bit; loops, memory, cache."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import re
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from linear_kernels import (
    constants_kernel,
    edge_values,
    fibonacci_kernel,
    linear,
    map_kernel,
    operand_rows,
    ops_by_operands,
    pack,
    run,
    same,
    unpack,
)
from loop_kernels import (
    end,
    in_order,
    lane_differences,
    load,
    loop,
    map_loop,
    number,
    param,
    position,
    store,
)

from proofgrad.backends import reference
from proofgrad.backends.cpu import backend
from proofgrad.backends.cpu.backend import CpuBackend
from proofgrad.backends.cpu.codegen import Host
from proofgrad.backends.cpu.memory import LARGE_BYTES, Pool
from proofgrad.backends.cpu.threads import ThreadPool, available_cpus
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.core.compile.machine.target import Backend, CompileError, Source
from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

SMALL_FLOATS = [dtypes.float16, dtypes.bfloat16]
ARITHMETIC = [d for d in dtypes.all if d not in SMALL_FLOATS]
WIDTHS = [1, 3, 8, 16]
FLOAT, INT = dtypes.float32, dtypes.int32


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> CpuBackend:
    opened = backend()
    opened.cache = DiskCache(tmp_path_factory.mktemp("kernels"))
    return opened


@pytest.fixture(scope="module")
def plain_cpu(tmp_path_factory: pytest.TempPathFactory) -> CpuBackend:
    """This host without its vector extensions: what an old machine would run."""
    new = [f for f in Host().features if f.startswith(("avx", "amx", "fma", "f16c", "v", "sse4"))]
    if not new:
        pytest.skip("the features of this processor have no names that are known here")
    opened = CpuBackend(Host(without=new))
    opened.cache = DiskCache(tmp_path_factory.mktemp("kernels"))
    return opened


@pytest.fixture(scope="module", params=["reference", "cpu"])
def machine(request: pytest.FixtureRequest, cpu: CpuBackend) -> Backend:
    return cpu if request.param == "cpu" else reference.backend()


# -- the value of each op ---------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("dtype", ARITHMETIC, ids=lambda d: d.name)
def test_every_op_on_edge_values_is_bitwise_the_reference(
    cpu: CpuBackend, dtype: DType, lanes: int
) -> None:
    wrong = []
    for sources, results in ops_by_operands(dtype).items():
        wrong += lane_differences(cpu, results, sources, operand_rows(sources), lanes)
    assert wrong[:5] == []


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_cast_of_edge_values_is_bitwise_the_reference(
    cpu: CpuBackend, dtype: DType, lanes: int
) -> None:
    rows = [(value,) for value in edge_values(dtype)]
    casts = [(Ops.CAST, target) for target in dtypes.all]
    assert lane_differences(cpu, casts, (dtype,), rows, lanes)[:5] == []


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_old_machine_computes_the_same_bits(
    plain_cpu: CpuBackend, dtype: DType, lanes: int
) -> None:
    groups = {} if dtype in SMALL_FLOATS else ops_by_operands(dtype)
    groups[dtype,] = [*groups.get((dtype,), []), *[(Ops.CAST, target) for target in dtypes.all]]
    wrong = []
    for sources, results in groups.items():
        wrong += lane_differences(plain_cpu, results, sources, operand_rows(sources), lanes)
    assert wrong[:5] == []


def test_old_machine_converts_every_float16(plain_cpu: CpuBackend) -> None:
    every = unpack(b"".join([n.to_bytes(2, "little") for n in range(2**16)]), dtypes.float16)
    rows = [(value,) for value in every]
    source = (dtypes.float16,)
    assert lane_differences(plain_cpu, [(Ops.CAST, FLOAT)], source, rows, 4)[:5] == []
    near = [(v * (1 + s * 2.0**-12) if abs(v) < 1e4 else v,) for v in every for s in (-1, 0, 1)]
    to_half = [(Ops.CAST, dtypes.float16)]
    assert lane_differences(plain_cpu, to_half, (FLOAT,), near, 4)[:5] == []


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=lambda d: d.name)
def test_cast_of_every_small_float_is_bitwise_the_reference(cpu: CpuBackend, dtype: DType) -> None:
    every = unpack(b"".join([n.to_bytes(2, "little") for n in range(2**16)]), dtype)
    rows = [(value,) for value in every]
    casts = [(Ops.CAST, FLOAT), (Ops.CAST, dtypes.int16)]
    assert lane_differences(cpu, casts, (dtype,), rows, 16)[:5] == []


@pytest.mark.parametrize("target", SMALL_FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "source", [dtypes.float64, dtypes.int64, dtypes.uint64], ids=lambda d: d.name
)
def test_cast_near_halfway_rounds_once(cpu: CpuBackend, source: DType, target: DType) -> None:
    bits = 11 if target is dtypes.float16 else 8
    rows = []
    for exponent, offset in itertools.product((10, 15, 30, 50, 60), (-1, 0, 1)):
        unit = max(1, 2**exponent >> bits)
        rows += [(2**exponent + k * unit + offset,) for k in range(6)]
    if source.is_float:
        rows = [(float(value),) for (value,) in rows]
        rows += [(math.nextafter(value * 2.0**-40, math.inf),) for (value,) in rows]
    assert lane_differences(cpu, [(Ops.CAST, target)], (source,), rows, 1)[:5] == []


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_bitcast_keeps_the_bits(cpu: CpuBackend, dtype: DType) -> None:
    rows = [(value,) for value in edge_values(dtype) if not math.isnan(value)]
    targets = [(Ops.BITCAST, d) for d in dtypes.all if d.bits == dtype.bits and d is not dtype]
    assert lane_differences(cpu, targets, (dtype,), rows, 1) == []
    assert lane_differences(cpu, targets, (dtype,), rows, 8) == []


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=lambda d: d.name)
def test_every_pair_of_8_bit_ints_is_bitwise_the_reference(cpu: CpuBackend, dtype: DType) -> None:
    values = range(dtype.lo, dtype.hi + 1)
    rows = [(x, y) for x in values for y in values]
    for sources, results in ops_by_operands(dtype).items():
        if len(sources) == 2:
            assert lane_differences(cpu, results, sources, rows, 16)[:5] == []


@pytest.mark.parametrize("dtype", [dtypes.int8, INT, dtypes.uint32], ids=lambda d: d.name)
def test_op_with_a_constant_operand_is_bitwise_the_reference(cpu: CpuBackend, dtype: DType) -> None:
    ops = [Ops.FLOORDIV, Ops.MOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.SHL, Ops.SHR]
    values = [v for v in edge_values(dtype) if abs(v) < 2**31]
    divisors = [UOp.const(dtype, v) for v in [0, 1, 2, 3, 7, 31, dtype.hi, dtype.lo]]
    source, step = param(0, dtype, len(values)), loop(len(values))
    element = load(position(source, step))
    results = [UOp(op, dtype, (element, d)) for op in ops for d in divisors]
    outs = [param(1 + k, dtype, len(values)) for k in range(len(results))]
    nodes = [source, step, element.src[0], element]
    for out, value in zip(outs, results):
        nodes += [out, value.src[1], value, position(out, step), store(position(out, step), value)]
    program = linear([*nodes, end(step)])
    outputs = [_run_into(m, program, values, dtype) for m in (cpu, reference.backend())]
    assert outputs[0] == outputs[1]


def _run_into(machine: Backend, program: UOp, values: list[int], dtype: DType) -> list[bytes]:
    """Slot 0 is the input here; the other slots come back."""
    data = pack(values, dtype)
    launch = machine.load(machine.compile(machine.emit(program, "divide")))
    count = sum(node.op is Ops.PARAM for node in program.src)
    handles = [machine.alloc(len(data)) for _ in range(count)]
    machine.copyin(handles[0], memoryview(data))
    launch(handles)
    results = [bytearray(len(data)) for _ in handles[1:]]
    for result, handle in zip(results, handles[1:]):
        machine.copyout(memoryview(result), handle)
    return [bytes(result) for result in results]


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_every_constant_keeps_its_value(cpu: CpuBackend, dtype: DType) -> None:
    values = edge_values(dtype)
    (output,) = run(cpu, constants_kernel(values, dtype), [], [len(values) * dtype.itemsize])
    got = unpack(output, dtype)
    assert [(x, y) for x, y in zip(values, got) if not same(x, y)] == []


def test_multiply_and_add_outside_of_mulacc_rounds_twice(cpu: CpuBackend) -> None:
    x = 1.0 + 2.0**-12
    source, out = param(1, FLOAT, 1), param(0, FLOAT, 1)
    element = load(position(source, number(0)))
    value = element * element + UOp.const(FLOAT, -1.0)
    (output,) = run(cpu, in_order(store(position(out, number(0)), value)), [pack([x], FLOAT)], [4])
    assert unpack(output, FLOAT) == [2.0**-11]  # an FMA gives 2**-11 + 2**-24


def test_fma_is_one_instruction_where_the_machine_has_it(cpu: CpuBackend) -> None:
    if not cpu.target.has_fma:
        pytest.skip("this processor multiplies and adds in two steps")
    for lanes in (1, cpu.target.lanes(FLOAT)):
        source = cpu.emit(map_loop([(Ops.FMA, FLOAT)], (FLOAT,) * 3, 64, lanes), "fused")
        text = cpu.assembly(source)
        assert len(re.findall(r"\bv?fn?madd|\bfmadd|\bfmla", text)) == 1


def test_small_float_arithmetic_is_refused(cpu: CpuBackend) -> None:
    with pytest.raises(CompileError, match="ADD on bfloat16: it must be promoted"):
        cpu.emit(map_loop([(Ops.ADD, dtypes.bfloat16)], (dtypes.bfloat16,) * 2, 4), "bad")


def test_transcendental_that_was_not_decomposed_is_refused(cpu: CpuBackend) -> None:
    with pytest.raises(CompileError, match="LLVM has no EXP2 on dtypes.float"):
        cpu.emit(map_loop([(Ops.EXP2, FLOAT)], (FLOAT,), 4), "bad")


# -- loops and accumulators -------------------------------------------------------------------------


def sum_of_squares(rows: int, columns: int, lanes: int, role: AxisRole) -> UOp:
    """out[r] = sum of in[r, c] ** 2, in vectors that are combined at the end of each row."""
    out, source = param(0, FLOAT, rows), param(1, FLOAT, rows * columns)
    row, column = loop(rows, 0, role), loop(columns // lanes, 1, AxisRole.REDUCE)
    zero = UOp.const(FLOAT, 0.0)
    first = zero if lanes == 1 else UOp(Ops.BROADCAST, FLOAT.vec(lanes), (zero,))
    total = UOp(Ops.ACCUMULATOR, FLOAT.vec(lanes), (first, column), 0)
    start, step = row * number(columns), column * number(lanes)
    element = load(position(source, start + step), lanes)
    update = UOp(
        Ops.UPDATE, total.dtype, (total, UOp(Ops.MULACC, total.dtype, (element, element, total)))
    )
    result = UOp(Ops.RESULT, total.dtype, (update,))
    whole = result if lanes == 1 else UOp(Ops.HREDUCE, FLOAT, (result,), Ops.ADD)
    return linear(
        [out, source, row, start, total, column, step, start + step, element.src[0], element]
        + [update.src[1], update, end(column), result, whole]
        + [position(out, row), store(position(out, row), whole), end(row)]
    )


@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
@pytest.mark.parametrize("role", [AxisRole.LOOP, AxisRole.THREAD])
def test_sum_over_a_loop_is_exact_on_small_integers(
    machine: Backend, lanes: int, role: AxisRole
) -> None:
    rows, columns = 5, 48
    values = [float(k % 11) for k in range(rows * columns)]
    program = sum_of_squares(rows, columns, lanes, role)
    (output,) = run(machine, program, [pack(values, FLOAT)], [4 * rows])
    expected = [sum(v * v for v in values[columns * r : columns * (r + 1)]) for r in range(rows)]
    assert unpack(output, FLOAT) == expected


def test_kernel_text_is_the_golden_file() -> None:
    text = emit(sum_of_squares(5, 48, 16, AxisRole.THREAD), "row_sum", Dialect()).text
    assert text == (Path(__file__).parent / "golden" / "row_sum.ll").read_text()


def test_value_read_before_an_update_keeps_what_it_read(machine: Backend) -> None:
    (output,) = run(machine, fibonacci_kernel(10), [], [4])
    assert unpack(output, INT) == [55]


def test_accumulator_over_two_loops_goes_through_both(machine: Backend) -> None:
    out, outer, inner = param(0, INT, 1), loop(3, 0, AxisRole.REDUCE), loop(4, 1, AxisRole.REDUCE)
    total = UOp(Ops.ACCUMULATOR, INT, (UOp.const(INT, 100), outer, inner), 0)
    product = (outer * number(10) + inner).cast(INT)
    update = UOp(Ops.UPDATE, INT, (total, total + product))
    result = UOp(Ops.RESULT, INT, (update,))
    where = position(out, number(0))
    program = linear(
        [out, total, outer, outer * number(10), inner, product.src[0], product, update.src[1]]
        + [update, end(inner), end(outer), result, where, store(where, result)]
    )
    (output,) = run(machine, program, [], [4])
    assert unpack(output, INT) == [100 + sum(10 * i + j for i in range(3) for j in range(4))]


def test_inner_loop_of_a_row_starts_from_the_accumulator_of_the_row(machine: Backend) -> None:
    """Softmax in small: the maximum of a row is read inside of the loop that sums up."""
    out, source = param(0, INT, 2), param(1, INT, 6)
    row, first, second = loop(2, 0), loop(3, 1, AxisRole.REDUCE), loop(3, 2, AxisRole.REDUCE)
    start = row * number(3)
    highest = UOp(Ops.ACCUMULATOR, INT, (UOp.const(INT, INT.lo), first), 0)
    one, two = [load(position(source, start + k)) for k in (first, second)]
    top = UOp(Ops.UPDATE, INT, (highest, highest.maximum(one)))
    peak = UOp(Ops.RESULT, INT, (top,))
    total = UOp(Ops.ACCUMULATOR, INT, (UOp.const(INT, 0), second), 1)
    add = UOp(Ops.UPDATE, INT, (total, total + (peak - two)))
    result = UOp(Ops.RESULT, INT, (add,))
    program = linear(
        [out, source, row, start, highest, first, start + first, one.src[0], one, top.src[1], top]
        + [end(first), peak, total, second, start + second, two.src[0], two, two.alu(Ops.NEG)]
        + [peak - two, add.src[1], add, end(second), result, position(out, row)]
        + [store(position(out, row), result), end(row)]
    )
    (output,) = run(machine, program, [pack([3, 9, 4, -5, -7, -6], INT)], [8])
    assert unpack(output, INT) == [11, 3]


def test_loop_of_no_steps_leaves_the_first_value(machine: Backend) -> None:
    out, step = param(0, INT, 1), loop(0, 0, AxisRole.REDUCE)
    total = UOp(Ops.ACCUMULATOR, INT, (UOp.const(INT, 7), step), 0)
    update = UOp(Ops.UPDATE, INT, (total, total + UOp.const(INT, 1)))
    result = UOp(Ops.RESULT, INT, (update,))
    where = position(out, number(0))
    program = linear(
        [out, total, step, update.src[1], update, end(step), result, where, store(where, result)]
    )
    assert unpack(run(machine, program, [], [4])[0], INT) == [7]


def test_horizontal_maximum_of_vectors_sees_every_lane(machine: Backend) -> None:
    for lanes in (2, 3, 7, 8):
        source, out = param(1, INT, lanes), param(0, INT, 1)
        vector = load(position(source, number(0)), lanes)
        highest = UOp(Ops.HREDUCE, INT, (vector,), Ops.MAX)
        program = in_order(store(position(out, number(0)), highest))
        for peak in range(lanes):
            values = [9 if k == peak else k - 4 for k in range(lanes)]
            (output,) = run(machine, program, [pack(values, INT)], [4])
            assert unpack(output, INT) == [9]


def test_loop_that_is_not_closed_is_refused(cpu: CpuBackend) -> None:
    out, step = param(0, INT, 1), loop(3)
    where = position(out, number(0))
    with pytest.raises(CompileError, match="ends inside of 1 loops"):
        cpu.emit(linear([out, step, where, store(where, UOp.const(INT, 0))]), "bad")


# -- memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_copy_with_a_false_mask_reads_zero_and_touches_nothing(
    machine: Backend, dtype: DType, lanes: int
) -> None:
    """The masked-out elements are far outside of the buffer: reading them would fault."""
    count = 3 * lanes
    out, source, step = param(0, dtype, count), param(1, dtype, count), loop(3)
    mask = step < number(2)
    far = mask.where(step * number(lanes), number(2**40))
    element = load(position(source, far, mask), lanes)
    target = position(out, step * number(lanes))
    program = linear(
        [out, source, step, mask, step * number(lanes), far, element.src[0], element]
        + [target, store(target, element), end(step)]
    )
    values = (edge_values(dtype) * count)[:count]
    data = pack(values, dtype)
    (output,) = run(machine, program, [data], [len(data)])
    kept = 2 * lanes * dtype.itemsize
    assert output == data[:kept] + bytes(len(data) - kept)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_masked_load_and_store_leave_the_other_lanes(machine: Backend, dtype: DType) -> None:
    count, lanes = 6, 4
    out, source = param(0, dtype, count), param(1, dtype, count)
    lane = UOp(Ops.CONST, INT.vec(lanes), (), (0, 1, 2, 3))
    two = UOp(Ops.BROADCAST, INT.vec(lanes), (UOp.const(INT, 2),))
    mask = lane.alu(Ops.CMPLT, two)
    element = load(position(source, number(4), mask), lanes)
    program = in_order(store(position(out, number(4), mask), element))
    values = (edge_values(dtype) * count)[1 : count + 1]
    data = pack(values, dtype)
    before = bytes([1]) * len(data)
    launch = machine.load(machine.compile(machine.emit(program, "masked")))
    handles = [machine.alloc(len(data)), machine.alloc(len(data))]
    machine.copyin(handles[0], memoryview(before))
    machine.copyin(handles[1], memoryview(data))
    launch(handles)
    after = bytearray(len(data))
    machine.copyout(memoryview(after), handles[0])
    start = 4 * dtype.itemsize
    assert bytes(after) == before[:start] + data[start:]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [dtypes.bool, dtypes.int8, FLOAT, dtypes.float64, dtypes.float16])
def test_gather_and_scatter_go_lane_by_lane(machine: Backend, dtype: DType, masked: bool) -> None:
    lanes = 4
    out, source = param(0, dtype, 8), param(1, dtype, 8)
    wide = dtypes.int64.vec(lanes)
    from_positions = UOp(Ops.CONST, wide, (), (5, 0, 7, 2))
    to_positions = UOp(Ops.CONST, wide, (), (1, 3, 0, 6))
    mask = UOp(Ops.CONST, dtypes.bool.vec(lanes), (), (True, True, False, True))
    given = (mask,) if masked else ()
    element = load(position(source, from_positions, *given), lanes)
    zero = UOp.const(dtype, 0)
    fill = store(position(out, number(0)), UOp(Ops.BROADCAST, dtype.vec(8), (zero,)))
    program = in_order(fill, store(position(out, to_positions, *given), element))
    values = [bool(k % 2) if dtype.is_bool else type(dtypes.min(dtype))(k + 1) for k in range(8)]
    (output,) = run(machine, program, [pack(values, dtype)], [8 * dtype.itemsize])
    expected = [type(values[0])(0)] * 8
    for lane, (a, b) in enumerate(zip((5, 0, 7, 2), (1, 3, 0, 6))):
        if not masked or lane != 2:
            expected[b] = values[a]
    assert unpack(output, dtype) == expected


def test_scalar_mask_of_a_store_writes_only_behind_it(machine: Backend) -> None:
    out, step = param(0, INT, 6), loop(6)
    mask = (step % number(2)).eq(number(1))
    where = position(out, step, mask)
    program = linear(
        [out, step, step % number(2), mask, where, step.cast(INT), store(where, step.cast(INT))]
        + [end(step)]
    )
    launch = machine.load(machine.compile(machine.emit(program, "odd")))
    handle = machine.alloc(24)
    machine.copyin(handle, memoryview(pack([-1] * 6, INT)))
    launch([handle])
    after = bytearray(24)
    machine.copyout(memoryview(after), handle)
    assert unpack(bytes(after), INT) == [-1, 1, -1, 3, -1, 5]


def test_reference_refuses_an_element_outside_of_the_buffer() -> None:
    out = param(0, INT, 2)
    program = in_order(store(position(out, number(2)), UOp.const(INT, 1)))
    with pytest.raises(IndexError, match="element 2 of slot 0, which has 2 elements"):
        run(reference.backend(), program, [], [8])


def test_dropped_block_is_used_again() -> None:
    pool = Pool()
    first = pool.take(1 << 20)
    address = first.address
    del first
    assert pool.take((1 << 20) - 5).address == address


def test_blocks_in_use_do_not_overlap() -> None:
    pool = Pool()
    blocks = [pool.take(100) for _ in range(50)]
    for number_, block in enumerate(blocks):
        assert block.address % 64 == 0
        block.view[:] = bytes([number_]) * 100
    assert [bytes(b.view) for b in blocks] == [bytes([n]) * 100 for n in range(50)]


@pytest.mark.parametrize("nbytes", [1 << 16, (1 << 18) + 5, 1 << 21])
def test_large_blocks_begin_at_other_lines_of_a_page_each(nbytes: int) -> None:
    """All began where a page does: a load from one seemed to a core what was just stored in another."""
    pool = Pool()
    blocks = [pool.take(nbytes) for _ in range(16)]
    for number_, block in enumerate(blocks):
        block.view[:] = bytes([number_]) * nbytes
    assert all([set(block.view) == {n} for n, block in enumerate(blocks)])
    assert all([block.address % 64 == 0 for block in blocks])
    assert len({block.address % 4096 for block in blocks}) > 8


def test_pool_keeps_no_more_than_its_limit() -> None:
    pool = Pool(limit_bytes=1 << 20)
    for _ in range(3):
        blocks = [pool.take(1 << 19) for _ in range(4)]
        del blocks
        assert pool.free_bytes <= 1 << 20


def test_blocks_that_nobody_asks_for_make_room_for_those_in_use() -> None:
    """Else a process that goes on to other sizes would get new pages in every call."""
    pool = Pool(limit_bytes=1 << 20)
    for size in (1 << 19, 1 << 18, 3 << 18, 1 << 21):
        addresses = set()
        for _ in range(3):
            block = pool.take(size)
            addresses.add(block.address)
            del block
        assert len(addresses) == 1 or size > pool.limit_bytes
        assert pool.free_bytes <= pool.limit_bytes
    assert pool.free_bytes == sum(size * len(found) for size, found in pool._free.items())


# -- threads ----------------------------------------------------------------------------------------


def parallel_program(size: int) -> UOp:
    return map_loop([(Ops.ADD, INT)], (INT, INT), size, lanes=16, role=AxisRole.THREAD)


def check_parallel(cpu: CpuBackend, size: int = 1 << 18) -> None:
    data = memoryview(bytearray(size * 4)).cast("i")
    for k in range(0, size, 7):
        data[k] = k
    (output,) = run(cpu, parallel_program(size), [bytes(data), bytes(data)], [size * 4])
    result = memoryview(output).cast("i")
    assert all(result[k] == 2 * data[k] for k in range(0, size, 7))
    assert sum(result) == 2 * sum(data)


def test_threads_share_out_every_item_once(cpu: CpuBackend) -> None:
    for _ in range(20):
        check_parallel(cpu)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_each_item_runs_once_however_many_threads_there_are(cpu: CpuBackend, count: int) -> None:
    taken: list[range] = []
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        lambda _, first, last: taken.append(range(first, last))
    )
    pool = ThreadPool(cpu.host, count, cpu.object_code)
    for size in (1, 2, 3, 7, 16, 41, 1000, 10_000):
        taken.clear()
        pool.run(ctypes.cast(kernel, ctypes.c_void_p).value or 0, 0, size)
        assert sorted(item for part in taken for item in part) == list(range(size))
        end_of_a_part = max(taken, key=lambda part: part.start)  # the last one to be waited for
        assert len(end_of_a_part) <= max(1, size // (100 * count))
    pool.stop()


@pytest.mark.skipif(
    len(available_cpus()) < 2 or sys.platform != "linux", reason="one CPU, or none can be chosen"
)
def test_no_worker_is_kept_on_the_cpu_of_the_caller(cpu: CpuBackend) -> None:
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        lambda *_: None
    )
    cpus, before = available_cpus(), set(threading.enumerate())
    pool = ThreadPool(cpu.host, min(len(cpus), 4), cpu.object_code)

    def run() -> None:
        pool.run(ctypes.cast(kernel, ctypes.c_void_p).value or 0, 0, 100)

    try:
        run()
        workers = [w.native_id or 0 for w in threading.enumerate() if w not in before]
        while sum(map(bool, pool._worker_on)) < len(workers):
            pass  # until they have started
        for here in [cpus[0], *cpus[:4], *reversed(cpus[:4]), cpus[-1]]:
            os.sched_setaffinity(0, {here})
            run()
            kept = set.union(*[os.sched_getaffinity(worker) for worker in workers])
            assert len(kept) == len(workers) == pool.count - 1
            assert here not in kept
    finally:
        os.sched_setaffinity(0, cpus)
        pool.stop()


def test_thread_range_of_32_bits_runs_over_all_items(machine: Backend) -> None:
    out = param(0, INT, 9)
    step = UOp(Ops.RANGE, INT, (UOp.const(INT, 9),), (0, AxisRole.THREAD))
    square = step * step
    where = position(out, step)
    program = linear([out, step, square, where, store(where, square), end(step)])
    assert unpack(run(machine, program, [], [36])[0], INT) == [k * k for k in range(9)]


def test_work_items_are_refused(cpu: CpuBackend) -> None:
    with pytest.raises(CompileError, match="llvm has no work items"):
        cpu.emit(map_kernel([(Ops.ADD, INT)], (INT, INT), 4), "bad")


def test_launches_from_several_threads_do_not_mix(cpu: CpuBackend) -> None:
    with ThreadPoolExecutor(4) as callers:
        running = [callers.submit(check_parallel, cpu) for _ in range(20)]
    assert [r.exception() for r in running] == [None] * 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_child_writes_into_pages_of_its_own(cpu: CpuBackend) -> None:
    block = cpu.alloc(LARGE_BYTES)
    block.view[:4] = b"mine"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns about fork with threads
        child = os.fork()
    if child == 0:
        block.view[:4] = b"his!"
        os._exit(0)
    os.waitpid(child, 0)
    assert bytes(block.view[:4]) == b"mine"


@pytest.mark.timeout(60)
def test_forked_child_runs_parallel_kernels(cpu: CpuBackend) -> None:
    check_parallel(cpu)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns about fork with threads
        child = os.fork()
    if child == 0:
        try:
            check_parallel(cpu)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# -- the cache of object code -----------------------------------------------------------------------


def test_second_compilation_comes_from_the_disk(cpu: CpuBackend, tmp_path: Path) -> None:
    source = cpu.emit(map_loop([(Ops.ADD, FLOAT)], (FLOAT, FLOAT), 8), "sum")
    cpu.cache = DiskCache(tmp_path)
    code = cpu.compile(source).data
    (file,) = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert code in file.read_bytes()
    assert cpu.compile(source).data == code


def test_damaged_file_is_made_again_with_one_warning(cpu: CpuBackend, tmp_path: Path) -> None:
    source = cpu.emit(map_loop([(Ops.MUL, FLOAT)], (FLOAT, FLOAT), 8), "product")
    cpu.cache = DiskCache(tmp_path)
    code = cpu.compile(source).data
    (file,) = [p for p in tmp_path.rglob("*") if p.is_file()]
    file.write_bytes(file.read_bytes()[:-9])
    cpu.cache = DiskCache(tmp_path)
    with pytest.warns(UserWarning, match="is damaged and is not used"):
        assert cpu.compile(source).data == code
    assert code in file.read_bytes()


def test_cache_folder_that_cannot_be_made_costs_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(tmp_path / "file" / "cache")
    with pytest.warns(UserWarning, match="cache in .*continuing without it"):
        cache.put("ab12", b"code")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put("cd34", b"more")
        assert cache.get("ab12") == b"code"
        assert cache.get("ef56") is None


def test_two_kernels_of_one_name_are_different_functions(cpu: CpuBackend) -> None:
    programs = [map_loop([(op, INT)], (INT, INT), 1) for op in (Ops.ADD, Ops.MUL)]
    data = [pack([6], INT), pack([7], INT)]
    assert [unpack(run(cpu, p, data, [4])[0], INT) for p in programs] == [[13], [42]]


def test_text_that_llvm_refuses_is_shown(cpu: CpuBackend) -> None:
    with pytest.raises(CompileError, match="LLVM refused the IR"):
        cpu.compile(Source("llvm", "broken", "define void @broken() { nonsense }", ()))


def test_cold_import_of_the_front_door_loads_no_llvm() -> None:
    program = "import proofgrad, sys; print([m for m in ('llvmlite', 'numpy') if m in sys.modules])"
    run_ = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run_.stdout == "[]\n"


def test_stopped_workers_are_started_again(cpu: CpuBackend) -> None:
    check_parallel(cpu)
    cpu.threads.stop()
    check_parallel(cpu)
    assert all(worker.is_alive() for worker in cpu.threads._workers)
