"""The choices of a kernel as a value: their text, and that no choice changes a result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from kernel_interpreter import run_kernel
from programs import Program, programs
from tactics import choose_axes, merge_loops, stage_operands, unroll_upcasts
from test_procedures import EXACT, oracle_of, same, stored, sums_floats
from test_tiles import kernel_of, matmul

from proofgrad import Context, Tensor
from proofgrad.core.compile.lowering.lower import lower_movement
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import (
    NO_COPIES,
    Blocks,
    Copies,
    Schedule,
    Staged,
    Tile,
    Vectors,
    read_schedule,
)
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

CPU = Target("test-cpu", vector_bytes=16, threads=2, cache_bytes=256)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def perhaps(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | values


SMALL = st.sampled_from([1, 2, 3, 4])
LOOP = perhaps(st.integers(0, 4))
ONE = st.builds(Vectors, LOOP, st.sampled_from([1, 2, 4, 8]), SMALL)
VECTORS = (
    st.just(())
    | st.tuples(ONE)
    | st.tuples(
        st.builds(Vectors, st.just(1), st.sampled_from([2, 4]), SMALL),
        st.builds(Vectors, st.sampled_from([0, 2, 3]), st.sampled_from([1, 2, 8]), SMALL),
    )
)
CHOICES = st.builds(
    Schedule,
    tiled=perhaps(st.booleans()),
    tile=perhaps(st.builds(Tile, SMALL, SMALL, st.sampled_from([1, 2, 4, 8]))),
    blocks=perhaps(st.builds(Blocks, SMALL, SMALL)),
    staged=perhaps(st.builds(Staged, st.booleans(), st.booleans())),
    reduction_block=perhaps(st.integers(0, 999)),
    depth=perhaps(SMALL),
    vectors=perhaps(VECTORS),
    copies=perhaps(st.just(NO_COPIES) | st.builds(Copies, LOOP, st.integers(2, 4))),
    buffered=perhaps(st.booleans()),
    deinterleaved=perhaps(st.booleans()),
    unroll=perhaps(st.integers(0, 9)),
    rows=perhaps(st.integers(0, 3)),
    columns=perhaps(st.integers(0, 3)),
    threads=perhaps(st.booleans()),
)


@given(CHOICES)
def test_choices_are_read_as_they_are_written(choices: Schedule) -> None:
    assert read_schedule(str(choices)) == choices


def test_text_of_choices_names_what_is_asked_only() -> None:
    choices = Schedule(tile=Tile(8, 3, 16), staged=Staged(True, False), threads=False)
    assert str(choices) == "tile=8x3x16 staged=rows threads=off"
    assert read_schedule("") == Schedule()


@pytest.mark.parametrize(
    "text, message",
    [
        ("tile=8x3", "tile must be ROWSxVECTORSxLANES"),
        ("tile=8x3x15", "LANES a power of two"),
        ("tile=99x9x16", "ROWS \\* VECTORS <= 64, not '99x9x16'"),
        ("vectors=0x0", "vectors must be none, or LOOPxLANES"),
        ("vectors=*x4+1x4", "vectors must be"),
        ("vectors=1x4+1x8", "vectors must be"),
        ("copies=3", "copies must be none, or LOOPxCOUNT"),
        ("depth=2 depth=4", "depth is given twice"),
        ("threads=1", "threads must be on or off"),
        ("titles=2", "there is no choice 'titles'; there are buffered, tiled, rows"),
    ],
)
def test_text_that_is_no_choice_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_schedule(text)


@QUICK
@example(
    sizes=(1, 4, 2, 1),
    turned=(False, False),
    override=read_schedule("reduction_block=2 vectors=0x1"),
)
@example(
    sizes=(1, 4, 1, 2),
    turned=(False, False),
    override=read_schedule("reduction_block=2 vectors=*x1"),
)
@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 3, st.integers(1, 2)),
    turned=st.tuples(st.booleans(), st.booleans()),
    override=CHOICES,
)
def test_any_choice_keeps_the_values_of_any_matmul(
    sizes: tuple[int, int, int, int], turned: tuple[bool, bool], override: Schedule
) -> None:
    rows, depth, columns, batch = sizes
    kernel = kernel_of(matmul(rows, depth, columns, turned, batch))
    rng = np.random.default_rng(0)
    one = rng.integers(-9, 9, batch * rows * depth).tolist()
    other = rng.integers(-9, 9, depth * columns).tolist()
    staged = stage_operands(kernel, CPU, override=override)
    parts = list(staged.src) if staged.src[0].op is Ops.SINK else [staged]
    chosen = UOp.sink(*[unroll_upcasts(choose_axes(part, CPU, None, override)) for part in parts])
    for part in chosen.src:
        check_form(Form.KERNEL, part)
    memory = {1: one, 2: other}
    assert run_kernel(chosen, memory)[0] == run_kernel(kernel, memory)[0]


@QUICK
@given(programs(dtypes_used=EXACT), CHOICES)
def test_any_choice_keeps_the_values_of_any_program(program: Program, override: Schedule) -> None:
    assume(not sums_floats(program))
    kernel = merge_loops(lower_movement(UOp.sink(program.value)))
    chosen = unroll_upcasts(choose_axes(kernel, CPU, None, override))
    check_form(Form.KERNEL, chosen)
    assert same(stored(chosen, program), oracle_of(program))


@pytest.mark.parametrize(
    "text",
    ["tiled=off", "tile=2x1x8", "tile=5x3x4 staged=rows+columns", "staged=columns depth=1",
     "tiled=on blocks=1x1 threads=on", "vectors=*x4x1 tiled=off"],
)  # fmt: skip
def test_what_the_environment_asks_is_done(text: str) -> None:
    rng = np.random.default_rng(1)
    one, other = (rng.standard_normal((37, 37)).astype(np.float32) for _ in range(2))
    with Context(CHOICES=text):
        got = (Tensor(one) @ Tensor(other)).relu().numpy()
    np.testing.assert_allclose(got, np.maximum(one @ other, 0), rtol=1e-4, atol=1e-4)


def test_a_tile_that_is_asked_for_is_seen_in_the_kernel() -> None:
    from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run

    def sizes(text: str) -> set[int]:
        x = Tensor.ones(32, 32).contiguous().realize()
        graph = compiler().kernel_graph(graph_to_run([(x @ x).uop], x.device))
        with Context(CHOICES=text):
            linears = compiler().linears(graph.src[-1].src[0], "CPU")
        return {n.dtype.lanes for n in linears[-1].src if n.op is Ops.LOAD}

    assert 4 in sizes("tile=2x2x4") and 8 not in sizes("tile=2x2x4")
    assert 8 in sizes("tile=2x2x8")


def test_machines_without_vectors_are_given_none_whatever_is_asked() -> None:
    kernel = kernel_of(matmul(8, 8, 8))
    scalars = Target("scalars")
    override = Schedule(
        tiled=True, tile=Tile(2, 2, 4), vectors=(Vectors(None, 4),), staged=Staged(True, True)
    )
    assert stage_operands(kernel, scalars, override=override) is kernel
    loops = choose_axes(kernel, scalars, None, override).toposort()
    assert not [n for n in loops if n.op is Ops.RANGE and n.arg[1] is AxisRole.VECTOR]
