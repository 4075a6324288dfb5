"""Schedules that a person writes: what is printed can be asked for, and a kernel is right or refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seed_lines import debug_text
from test_kernel_schedule import CHOICES

from proofgrad import Context, Schedule, ScheduleError, Tensor, Variable, explain, schedule
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, read_schedule
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run

pytestmark = pytest.mark.heuristics  # of schedules that nothing else forces

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype(np.float32)).realize()


A, B, C = normal(37, 53), normal(53, 71), normal(1, 53)
IMAGES, WEIGHTS = normal(2, 3, 13, 13), normal(5, 3, 3, 3)

PROGRAMS: dict[str, Callable[[], Tensor]] = {
    "product": lambda: A @ B,
    "one row": lambda: C @ B,
    "with an end": lambda: (A @ B + 1).relu(),
    "rows": lambda: A.sum(1),
    "columns": lambda: A.sum(0),
    "all": lambda: A.sum(),
    "elements": lambda: A * 2 + C,
    "transposed": lambda: A.T.contiguous(),
    "softmax": lambda: A.softmax(),
    "convolution": lambda: IMAGES.conv2d(WEIGHTS, padding=1),
    "pool": lambda: IMAGES.max_pool2d(3, 2),
    "running sum": lambda: A.cumsum(1),
    "one element": lambda: C[:, :1] + 1,
}


def bodies(tensor: Tensor) -> list[UOp]:
    graph = compiler().kernel_graph(graph_to_run([tensor.uop], tensor.device))
    found = [call.src[0] for call in graph.src]
    return [body for body in found if body.src[0].op is not Ops.COPY]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_decided_gives_the_same_kernel_when_asked_for(name: str) -> None:
    for body in bodies(PROGRAMS[name]()):
        decided: dict[UOp, Schedule] = {}
        made = compiler().linears(body, "CPU", None, decided)
        assert set(made) <= set(decided)
        if len(made) > 1:  # each has a schedule of its own
            continue
        override = decided[made[0]]
        assert read_schedule(str(override)) == override
        with schedule(override):
            again = compiler().linears(body, "CPU")
        assert again == made


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(PROGRAMS)), CHOICES)
def test_a_kernel_is_right_or_refused(name: str, override: Schedule) -> None:
    expected = PROGRAMS[name]().numpy()
    try:
        with schedule(override):
            got = PROGRAMS[name]().numpy()
    except ScheduleError as error:
        assert str(override) in str(error)
        return
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        "tile=4x2x8 staged=none threads=off",
        "tile=3x1x4 staged=rows+columns blocks=2x1 depth=1",
        "reduction_block=5 threads=off",
        "tiled=off vectors=1x8x2 copies=none",
        "tiled=off vectors=none unroll=60",
    ],
)
def test_what_is_asked_is_done(text: str) -> None:
    one, other = A[:, :50].contiguous().realize(), B[:50, :64].contiguous().realize()
    (body,) = bodies(one @ other)
    decided: dict[UOp, Schedule] = {}
    override = read_schedule(text)
    with schedule(text):
        made = compiler().linears(body, "CPU", None, decided)
    done = [decided[linear] for linear in made]
    for field in Schedule.__slots__:
        expected = getattr(override, field)
        assert expected is None or expected in [getattr(one, field) for one in done]


@pytest.mark.parametrize(
    "text, program, message",
    [
        ("tile=4x2x8", "elements", r"cannot have tile=4x2x8; it would take: .*tiled=off"),
        ("tile=4x2x8 blocks=99x1", "product", r"cannot have blocks=99x1"),
        ("vectors=7x8", "elements", r"cannot have vectors=7x8x1"),
        ("vectors=0x8+1x8", "elements", r"cannot have vectors=0x8x1\+1x8x1"),
        ("reduction_block=1000", "product", r"cannot have reduction_block=1000"),
        ("rows=5", "product", r"cannot have rows=5"),
        ("copies=0x5", "product", r"cannot have copies=0x5"),
        ("buffered=on", "elements", r"cannot have buffered=on"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, program: str, message: str) -> None:
    with schedule(text), pytest.raises(ScheduleError, match=message):
        PROGRAMS[program]().realize()
    PROGRAMS[program]().realize()


def test_text_that_is_no_schedule_is_refused_where_it_stands() -> None:
    with pytest.raises(ValueError, match="tile must be ROWSxVECTORSxLANES"), schedule("tile=big"):
        pass


@pytest.mark.parametrize("text", [3, None, ["tile=2x2x4"]])
def test_what_is_no_text_is_refused_where_it_stands(text: object) -> None:
    message = "a schedule is text or a Schedule, not"
    with pytest.raises(TypeError, match=message), schedule(text):  # type: ignore[arg-type]
        pass


def test_a_schedule_with_a_value_that_no_text_has_is_refused_where_it_stands() -> None:
    message = "rows must be the number of a loop, not '-1'"
    with pytest.raises(ValueError, match=message), schedule(Schedule(rows=-1)):
        pass


def test_machines_that_choose_nothing_refuse_a_schedule() -> None:
    x = Tensor([1.0, 2.0], device="REFERENCE").realize()
    with schedule("vectors=*x4"), pytest.raises(ScheduleError, match=r"cannot have vectors=\*x4x1"):
        (x + 1).tolist()
    with Context(NOSCHED=1), schedule("threads=off"), pytest.raises(ScheduleError):
        (A + 1).realize()


def test_a_block_ends_where_it_ends() -> None:
    expected = A.numpy() + 3
    with pytest.raises(ZeroDivisionError), schedule("tile=4x2x8"):
        raise ZeroDivisionError
    with schedule("vectors=none"), schedule("vectors=*x4"):
        np.testing.assert_array_equal((A + 3).numpy(), expected)
    np.testing.assert_array_equal((A + 3).numpy(), expected)


def test_vectors_behind_the_end_of_a_loop_do_not_fit() -> None:
    x, size = Tensor(np.arange(8.0).reshape(2, 4)).realize(), Variable("n", 1, 8)
    text = "tiled=off vectors=*x4x2"
    with schedule(text), pytest.raises(ScheduleError, match=r"would take: .*vectors=1x4x1"):
        (x[: size.bind(2)] + 1).realize()
    np.testing.assert_array_equal((x[: size.bind(2)] + 1).numpy()[:2], x.numpy() + 1)


def test_a_kernel_that_is_compiled_already_is_compiled_again() -> None:
    (A @ B).realize()
    with schedule("blocks=99x99"), pytest.raises(ScheduleError):
        (A @ B).realize()
    (A @ B).realize()


def test_kernels_are_proved_and_checked_under_a_schedule_too() -> None:
    for name in ("PROVE", "CHECK"):
        with Context(**{name: 1}), schedule("tile=3x2x8 staged=columns"):
            got = (A @ B).numpy()
        np.testing.assert_allclose(got, A.numpy() @ B.numpy(), rtol=1e-4, atol=1e-4)


def test_explain_and_debug_show_the_schedule() -> None:
    text = explain(A @ B)
    (line,) = [line for line in text.splitlines() if "schedule of" in line]
    override = read_schedule(line.partition(": ")[2])
    assert override.tile is not None and override != AUTOMATIC
    compiler().forget()
    shown = debug_text(2, lambda: (A @ B).realize())
    assert f": {override}" in shown and shown.count("schedule r_") == 1
    assert "schedule of" in explain(A.softmax())
    (line,) = [line for line in explain(A + 1).splitlines() if "choose axes" in line]
    assert "steps split" in line
