"""Every step keeps what small kernels store, or refuses: every so many kernels of the scope, others each day.

`python tests/steps_exhaustively.py` tries all of them.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from kernel_interpreter import run_kernel
from programs_of_kernels import LAST
from small_kernels import OUT, SmallKernel, graphs, load, loops, small_kernels, store
from step_arguments import ARGUMENTS
from steps_exhaustively import (
    Checked,
    Tally,
    WrongStep,
    check_graph,
    facts,
    run,
    run_pairs,
    try_beside,
)

from proofgrad.core.compile.steps.loop_nest import STEPS
from proofgrad.core.ir.uop import UOp

STRIDE = 60
PAIRS = 400
ALWAYS = 0  # of the kernels that are the same each day


def today() -> int:
    """Which kernels, and which pairs, are drawn; STEPS_SEED asks for those of another day."""
    return int(os.environ.get("STEPS_SEED", time.strftime("%Y%m%d")))


@pytest.fixture(scope="module")
def every() -> list[tuple[str, UOp]]:
    return graphs()


def test_every_step_has_arguments() -> None:
    assert {*ARGUMENTS, *LAST} == set(STEPS)


@pytest.mark.long
def test_steps_keep_what_small_kernels_store(every: list[tuple[str, UOp]]) -> None:
    """Always the same ones, in which each step is made and refused; then those of the day."""
    tally = Tally()
    run(every[ALWAYS :: 2 * STRIDE], ARGUMENTS, tally)
    run(every[today() % STRIDE :: 2 * STRIDE], ARGUMENTS, tally)
    try_beside(tally)
    never = [name for name, count in tally.steps.items() if not count.made or not count.refused]
    assert never == [], f"STEPS_SEED={today()}\n{tally.table()}"


def test_steps_one_after_the_other_keep_what_small_kernels_store(
    every: list[tuple[str, UOp]],
) -> None:
    draw = random.Random(today())
    assert run_pairs(draw.sample(every, PAIRS), draw, 2) > PAIRS // 2, f"STEPS_SEED={today()}"


# -- what is asked finds what is wrong ------------------------------------------------------------


def _copy() -> SmallKernel:
    (a,) = loops(4)
    (kernel,) = small_kernels([("copy", UOp.sink(store(a, load(1, a))))])
    return kernel


def test_a_kernel_that_stores_another_value_is_found() -> None:
    kernel = _copy()
    (first,) = kernel.graph.src
    wrong = UOp.sink(first.with_src((first.src[0], first.src[1] + 1)))
    with pytest.raises(WrongStep, match="1 workers store"):
        Checked(kernel, facts()).check((wrong,), ("nothing", (), {}))


def test_an_element_that_is_read_beyond_the_end_is_found() -> None:
    kernel = _copy()
    (a,) = loops(4)
    where = kernel.graph.src[0].src[1].src[0]
    wrong = kernel.graph.substitute({where: where.with_src((where.src[0], a + 1))})
    with pytest.raises(AssertionError, match="outside"):
        run_kernel(wrong, kernel.buffers)


def test_a_loop_that_two_workers_share_wrongly_is_found() -> None:
    """Each of two loops that are shared out gives a worker the elements of its part of both only."""
    from proofgrad.core.ir.uop import AxisRole

    rows, columns = UOp.range(2, 2, AxisRole.THREAD), UOp.range(2, 4, AxisRole.THREAD)
    position = rows * 2 + columns
    (kernel,) = small_kernels([("shared", UOp.sink(store(position, load(1, position))))])
    assert None in run_kernel(kernel.graph, kernel.buffers, 2)[OUT]


def test_two_loops_of_one_number_are_found() -> None:
    a, b = UOp.range(2, 2), UOp.range(3, 2)
    (kernel,) = small_kernels([("numbers", UOp.sink(store(a * 3 + b, load(1, b))))])
    with pytest.raises(AssertionError, match="one number"):
        check_graph(kernel.graph)
