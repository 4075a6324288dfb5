"""Random tensor programs on every machine: they and numpy agree, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from devices import opened
from hypothesis import HealthCheck, assume, given, settings
from oracle import evaluate_tensor, from_bytes, numpy_dtype, to_bytes
from programs import Program, over_buffers, programs

from proofgrad import Device
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.memory import host_buffer
from proofgrad.core.tensor.runtime.reading import read

RARE = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
EVERY = (dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.uint32,
         dtypes.int64, dtypes.uint64, dtypes.float16, dtypes.float32, dtypes.float64)  # fmt: skip
MACHINES = ("CPU", "REFERENCE", "CHECKED", "CHECKEDITEMS", "CL", "WEBGPU")


def cpu_programs_on_the_reference() -> ReferenceBackend:
    """Runs what was compiled for a CPU (vectors, threads, unrolled) with every access checked."""
    backend = ReferenceBackend()
    backend.target = Target("CHECKED", vector_bytes=32, threads=2)
    return backend


def gpu_programs_on_the_reference() -> ReferenceBackend:
    """Runs what was compiled for a GPU (work items, wide loads, tiles) with every access checked."""
    backend = ReferenceBackend()
    backend.target = Target(
        "CHECKEDITEMS", vector_bytes=16, vector_registers=40, work_items=True, lockstep=32
    )
    return backend


Device.register("CHECKED", cpu_programs_on_the_reference)
Device.register("CHECKEDITEMS", gpu_programs_on_the_reference)


@pytest.fixture(params=MACHINES)
def device(request: pytest.FixtureRequest) -> str:
    """The name of a machine that can be opened here."""
    return opened(request.param)


def run_on(device: str, program: Program) -> np.ndarray:
    """The program's elements, computed by a machine; a program of types that it has not is not drawn."""
    kinds = {node.dtype for node in toposort((program.value,))} - {dtypes.void, dtypes.index}
    assume(kinds <= Device[device].target.storage)
    buffers = {
        node: host_buffer(_bytes(program, node), node.dtype, device)
        for node in toposort((program.value,))
        if node.op is Ops.PARAM
    }
    value = program.value.substitute(buffers)
    return from_bytes(bytes(read(value, device)), value.dtype)


def expected_of(program: Program) -> np.ndarray:
    """The program's elements by the oracle."""
    value, elements = over_buffers(program)
    return evaluate_tensor(value, elements).ravel()


def _bytes(program: Program, node: UOp) -> bytes:
    with np.errstate(all="ignore"):
        elements = np.array(program.data[node.arg[0]]).astype(numpy_dtype(node.dtype))
    return to_bytes(elements, node.dtype)


def same_bits(got: np.ndarray, expected: np.ndarray) -> bool:
    """Equal with the signs of zeros; any NaN equals any NaN."""
    if not np.issubdtype(got.dtype, np.floating):
        return bool(np.array_equal(got, expected))
    equal = np.array_equal(got, expected, equal_nan=True)
    zeros = expected == 0
    return equal and bool(np.array_equal(np.signbit(got[zeros]), np.signbit(expected[zeros])))


def sums_floats(nodes: Sequence[UOp]) -> bool:
    return any(n.op is Ops.REDUCE_AXIS and n.dtype.is_float and n.arg[0] is Ops.ADD for n in nodes)


def test_random_programs_equal_numpy_bit_for_bit(device: str) -> None:
    @RARE
    @given(programs(dtypes_used=EVERY))
    def check(program: Program) -> None:
        assume(not sums_floats(toposort((program.value,))))
        got, expected = run_on(device, program), expected_of(program)
        assert same_bits(got, expected), (got, expected)

    check()


def test_float_sums_are_close_to_numpy(device: str) -> None:
    @RARE
    @given(programs(kinds=("movement", "reduce", "arithmetic"), dtypes_used=(dtypes.float32,)))
    def check(program: Program) -> None:
        small = {slot: [_tame(x) for x in xs] for slot, xs in program.data.items()}
        program = Program(program.value, small)
        got, expected = run_on(device, program), expected_of(program)
        assume(np.isfinite(expected).all() and np.abs(expected).max(initial=0) < 1e6)
        # A sum of n terms is off by at most n rounding errors of the largest partial sum.
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-2)

    check()


def _tame(x: float) -> float:
    return x if abs(x) < 10 and abs(x) > 1e-3 else 1.0
