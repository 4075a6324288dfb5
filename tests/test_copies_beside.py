"""Copies of a long computation run operation by operation, and only those of which each waits for itself."""

from __future__ import annotations

import pytest

from proofgrad.backends.llvm.beside import copies_beside
from proofgrad.core.compile.lowering.linearize import sources_before
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

AVX512 = Target("avx512", vector_bytes=64, vector_registers=32)


def linear_of(*functions: Ops) -> UOp:
    """The kernel of functions of functions of 64 floats."""
    value = UOp(Ops.PARAM, dtypes.float32, (), (1, 64))
    for function in functions:
        operands = (value, value) if function is Ops.FMOD else (value,)
        value = UOp(function, dtypes.float32, operands)
    (linear,) = parts_of(run_stages(KERNEL_STAGES, UOp.sink(value), compiler().library, AVX512))
    return linear


@pytest.mark.parametrize(("functions", "count"), [((Ops.EXP2,), 0), ((Ops.SIN, Ops.FMOD), 4)])
def test_vectors_of_long_chains_are_written_out(functions: tuple[Ops, ...], count: int) -> None:
    stores = [n for n in linear_of(*functions).src if n.op is Ops.STORE]
    assert len(stores) == max(1, count)


def test_copies_run_operation_by_operation_and_each_behind_what_it_needs() -> None:
    linear = linear_of(Ops.SIN, Ops.FMOD)
    order = list(copies_beside(linear).src)
    assert set(order) == set(linear.src) and order != list(linear.src)
    place = {node: k for k, node in enumerate(order)}
    assert all(place[s] < k for node, k in place.items() for s in sources_before(node))
    loads = [place[n] for n in order if n.op is Ops.LOAD]
    assert max(loads) < min([place[n] for n in order if n.op is Ops.TRUNC])


def test_short_computations_stay_as_they_were() -> None:
    linear = linear_of(Ops.NEG, Ops.SQRT)
    assert copies_beside(linear) is linear
