"""Every procedure of the compiler keeps the values: checked by brute force on random programs."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kernel_interpreter import run_kernel
from oracle import evaluate_tensor, numpy_dtype
from programs import Program, movement_only, over_buffers, programs
from tactics import (
    choose_axes,
    choose_index_width,
    merge_loops,
    reductions_to_accumulators,
    share_out_work_items,
    unroll_upcasts,
    vectorize,
)

from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.lowering.lower import lower_movement
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import output_loops, size_of
from proofgrad.core.compile.nests.strides import at_start
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.compile.passes.stages import Procedure
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import GRAPH_STAGES, KERNEL_STAGES

CPU = Target("test-cpu", vector_bytes=16, threads=2)
GPU = Target("test-gpu", work_items=True)
QUICK = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
# Sums that meet infinities or round depend on the order, which is not specified.
EXACT = (dtypes.int32, dtypes.uint8, dtypes.bool)


def oracle_of(program: Program) -> list[object]:
    """The program's elements by the numpy oracle, which knows nothing of kernels."""
    value, elements = over_buffers(program)
    return evaluate_tensor(value, elements).ravel().tolist()


def stored(kernel: UOp, program: Program) -> list[object]:
    return run_kernel(kernel, dict(program.data))[0]


def same(got: list[object], expected: list[object]) -> bool:
    """Equal values; any NaN equals any NaN."""
    return [str(value) for value in got] == [str(value) for value in expected]


def sums_floats(program: Program) -> bool:
    """Whether the order of a sum, which is not specified, could show."""
    nodes = toposort((program.value,))
    return any(n.op is Ops.REDUCE_AXIS and n.dtype.is_float and n.arg[0] is Ops.ADD for n in nodes)


def test_axes_of_one_element_leave_the_kernel_as_it_is_without_them() -> None:
    """A gradient that is stored as its target is, or as the sum that it is: one kernel, compiled once."""
    read = UOp(Ops.RESHAPE, dtypes.float, (UOp(Ops.PARAM, dtypes.float, (), (1, 24)),), (6, 4))
    summed = UOp(Ops.REDUCE_AXIS, dtypes.float, (read,), (Ops.ADD, (0,)))
    shaped = [UOp(Ops.RESHAPE, dtypes.float, (summed,), shape) for shape in ((1, 4), (4, 1), (4,))]
    assert len({compiler().index_terms(UOp.sink(value)) for value in shaped}) == 1


@QUICK
@given(movement_only())
def test_lower_movement_reads_the_right_element(program: Program) -> None:
    kernel = lower_movement(UOp.sink(program.value))
    check_form(Form.KERNEL, kernel)
    assert same(stored(kernel, program), oracle_of(program))


@QUICK
@given(programs(dtypes_used=EXACT))
def test_axis_procedures_keep_the_values(program: Program) -> None:
    assume(not sums_floats(program))
    kernel = lower_movement(UOp.sink(program.value))
    expected = oracle_of(program)
    merged = merge_loops(kernel)
    chosen = choose_axes(merged, CPU)
    for changed in (
        kernel,
        merged,
        chosen,
        unroll_upcasts(chosen),
        share_out_work_items(merged, GPU),
    ):
        check_form(Form.KERNEL, changed)
        assert same(stored(changed, program), expected)


@QUICK
@given(programs(dtypes_used=EXACT), st.sampled_from([1, 4, 64]))
def test_vectors_from_stretches_apart_keep_the_values(program: Program, stretch: int) -> None:
    assume(not sums_floats(program))
    target = replace(CPU, page_bytes=stretch)
    chosen = unroll_upcasts(
        choose_axes(merge_loops(lower_movement(UOp.sink(program.value))), target)
    )
    check_form(Form.KERNEL, chosen)
    assert same(stored(chosen, program), oracle_of(program))


@pytest.mark.parametrize(("beyond", "apart"), [(False, 1 << 12), (True, 16)])
def test_a_long_sum_reads_eight_stretches_of_memory_or_one(beyond: bool, apart: int) -> None:
    """As the core says: whether what it reads in order is foreseen beyond the end of a page."""
    whole = UOp(Ops.PARAM, dtypes.float32, (), (1, 1 << 15))
    total = UOp(Ops.REDUCE_AXIS, dtypes.float32, (whole,), (Ops.ADD, (0,)))
    core = Core(foreseen_beyond_pages=beyond)
    target = Target("test-cpu", vector_bytes=64, vector_registers=32, core=core)
    kernel = unroll_upcasts(choose_axes(lower_movement(UOp.sink(total)), target))
    loads = [n.src[0].src[1] for n in toposort((kernel,)) if n.op is Ops.LOAD]
    assert sorted(map(at_start, loads)) == [k * apart for k in range(8)]


def test_a_short_sum_is_written_out_once_beside_a_loop_over_vectors() -> None:
    """128 sums of 10 numbers: eight vectors at once would be eight times the code, and no faster."""
    rows = UOp(
        Ops.RESHAPE, dtypes.float32, (UOp(Ops.PARAM, dtypes.float32, (), (1, 1280)),), (128, 10)
    )
    sums = UOp(Ops.REDUCE_AXIS, dtypes.float32, (rows,), (Ops.ADD, (1,)))
    target = Target("test-cpu", vector_bytes=64, vector_registers=32)
    kernel = unroll_upcasts(choose_axes(lower_movement(UOp.sink(sums)), target))
    assert len([n for n in toposort((kernel,)) if n.op is Ops.LOAD]) == 10
    assert len(kernel.src) == 1


def test_loops_merge_over_positions_that_are_loaded() -> None:
    """out[i, j, k] = rows[positions[i, j], k]: i and j are one loop; over positions[j, i] they are two."""
    i, j, k = UOp.range(3, 0), UOp.range(4, 1), UOp.range(5, 2)
    data = {1: list(range(100, 135)), 2: [6, 0, 3, 3, 1, 2, 5, 4, 6, 0, 0, 2]}

    def load(slot: int, size: int, position: UOp) -> UOp:
        memory = UOp(Ops.PARAM, dtypes.int32, (), (slot, size))
        return UOp(Ops.LOAD, dtypes.int32, (UOp(Ops.INDEX, dtypes.int32, (memory, position)),))

    for position, loops in ((i * 4 + j, [12, 5]), (j * 3 + i, [3, 4, 5])):
        row = load(2, 12, position).cast(dtypes.index)
        out = UOp(Ops.PARAM, dtypes.int32, (), (0, 60))
        there = UOp(Ops.INDEX, dtypes.int32, (out, i * 20 + j * 5 + k))
        value = load(1, 35, row * 5 + k)
        kernel = UOp.sink(UOp(Ops.STORE, dtypes.void, (there, value)))
        merged = merge_loops(kernel)
        assert [size_of(loop) for loop in output_loops(merged)] == loops
        assert run_kernel(merged, data)[0] == run_kernel(kernel, data)[0]


class _Wide:
    """Bounds that fit every width: the sizes here are small."""

    def lo(self, node: UOp) -> int:
        return -(1 << 20)

    def hi(self, node: UOp) -> int:
        return 1 << 20


@QUICK
@given(programs(dtypes_used=EXACT))
def test_from_kernel_to_linear_keeps_the_values(program: Program) -> None:
    """Widths, accumulators, vectors and order, run by the reference machine, accesses checked."""
    assume(not sums_floats(program))
    kernel = unroll_upcasts(choose_axes(merge_loops(lower_movement(UOp.sink(program.value))), CPU))
    scalar = reductions_to_accumulators(choose_index_width(kernel, CPU, _Wide()))
    check_form(Form.PROGRAM, scalar)
    vector = vectorize(scalar, facts=compiler().library.facts())
    check_form(Form.PROGRAM, vector)
    linear = linearize(vector)
    check_form(Form.LINEAR, linear)
    assert same(run_linear(linear, program), oracle_of(program))


def run_linear(linear: UOp, program: Program) -> list[object]:
    machine = ReferenceBackend()
    memory: list[bytearray] = []
    for slot in range(1 + max(n.arg[0] for n in linear.src if n.op is Ops.PARAM)):
        types = [n.dtype for n in linear.src if n.op is Ops.PARAM and n.arg[0] == slot]
        if slot == 0:
            memory.append(machine.alloc(prod(program.value.shape) * program.value.dtype.itemsize))
        else:
            dtype = types[0] if types else dtypes.int32
            values = np.array(program.data[slot]).astype(numpy_dtype(dtype))
            memory.append(bytearray(values.tobytes()))
    machine.load(machine.compile(machine.emit(linear, "test")))(memory)
    return np.frombuffer(memory[0], numpy_dtype(program.value.dtype)).tolist()


def test_every_procedure_has_a_validation_test() -> None:
    tests = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
    stages = (*GRAPH_STAGES, *KERNEL_STAGES)
    names = {stage.step.name for stage in stages if isinstance(stage.step, Procedure)}
    assert len(names) <= 18
    assert not [name for name in names if f"{name}(" not in tests]
