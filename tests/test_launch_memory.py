"""CHECK=1 on what is launched: the memory of each launch, what is written over, the table of a replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from proofgrad import Context, Tensor, TinyJit
from proofgrad.core.compile.plan.plan import TOLD
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.jit import slots
from proofgrad.core.tensor.runtime import canonical as numbering
from proofgrad.core.tensor.runtime import execute, launches, realize
from proofgrad.core.tensor.runtime.memory import memory_of
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.verify.sampled.kernels import CheckError


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    """Every run of a test is checked, and nothing is kept of plans that faults have made."""
    compiler().forget()
    with Context(CHECK=1):
        yield
    compiler().forget()
    assert TOLD.launch is None


def data(*values: float) -> Tensor:
    return Tensor([*values]).realize()


def difference() -> list[float]:
    x, y = data(1, 2, 3), data(4, 5, 6)
    found: list[float] = (x * 2 - y).tolist()
    return found


def test_right_launches_pass() -> None:
    assert difference() == [-2, -1, 0]


def test_launch_on_the_memory_of_other_slots_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_step(step: Any, memory: list[Any], where: Any) -> None:
        step.kernel.launch([memory[slot] for slot in (step.slots[0], *step.slots[:0:-1])])

    x, y = data(1, 2, 3), data(4, 5, 6)
    monkeypatch.setattr(execute, "run_step", run_step)
    with pytest.raises(CheckError, match="other memory than before"):
        (x * 2 - y).realize()


def test_launches_that_are_left_out_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(1, 2, 3), data(4, 5, 6)
    monkeypatch.setattr(execute, "run_step", lambda *_: None)
    with pytest.raises(CheckError, match="0 of 1 steps have run"):
        (x * 2 - y).realize()


def test_results_in_the_memory_of_an_input_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(1, 2, 3), data(4, 5, 6)
    memory = memory_of(x.uop)
    monkeypatch.setattr(execute, "allocate", lambda made: memory)
    with pytest.raises(CheckError, match="is the memory of another"):
        (x * 2 - y.flip(0)).realize()


def test_inputs_in_another_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = numbering.numbered

    def numbered(roots: list[UOp], *more: Any, **options: Any) -> tuple[UOp, list[UOp]]:
        graph, inputs = right(roots, *more)
        return graph, inputs[::-1]

    x, y = data(1, 2, 3), data(4, 5, 6)
    monkeypatch.setattr(realize, "numbered", numbered)
    with pytest.raises(CheckError, match="in the numbered graph"):
        (x * 2 - y).realize()


def test_input_that_somebody_holds_is_not_written_over(
    no_known_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = data(1, 2, 3)
    monkeypatch.setattr(
        realize, "_unneeded", lambda given, kept, devices: frozenset(range(len(given)))
    )
    with pytest.raises(CheckError, match="somebody holds its buffer"):
        (x * 2).realize()


def test_results_of_other_slots_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = realize._results

    def results(plan: Any, asked: UOp, shapes: Any, memory: list[Any], *more: Any) -> list[UOp]:
        return right(plan, asked, shapes, memory[::-1], *more)

    x = data(1, 2, 3)
    first, second = x * 2, x.exp()
    monkeypatch.setattr(realize, "_results", results)
    with pytest.raises(CheckError, match="result 0 is other memory"):
        Tensor.realize(first, second)


# -- replays --------------------------------------------------------------------------------------


def replayed(times: int) -> list[list[float]]:
    """A function with an argument, and a Tensor that it reads and writes."""
    state = data(1, 2, 3)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return (state * 2).contiguous() - x.exp2()

    return [step(data(k, k, k)).tolist() for k in range(times)]


def test_right_replays_pass() -> None:
    assert replayed(5)[-1] == [6, 8, 10]


def test_table_of_a_replay_that_is_not_told_of_memory_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = launches.Launches.__init__

    def deaf(self: Any, *given: Any) -> None:
        right(self, *given)
        self.changed = lambda slot, handle: None

    monkeypatch.setattr(launches.Launches, "__init__", deaf)
    with pytest.raises(CheckError, match="table of the replay"):
        replayed(4)


def test_replay_without_some_of_its_launches_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = launches.Launches.__init__

    def fewer(self: Any, steps: Any, *more: Any) -> None:
        right(self, steps[1:], *more)

    monkeypatch.setattr(launches.Launches, "__init__", fewer)
    with pytest.raises(CheckError, match="other steps than those that were recorded"):
        replayed(4)


def test_result_of_a_replay_in_memory_that_somebody_holds_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = data(7, 8)

    @TinyJit
    def double(x: Tensor) -> Tensor:
        return x * 2

    double(data(1, 2)), double(data(3, 4))
    monkeypatch.setattr(slots, "allocate", lambda made: memory_of(other.uop))
    with pytest.raises(CheckError, match="memory that somebody holds"):
        double(data(5, 6))
    assert other.tolist() == [7, 8]


def test_tensor_that_is_read_as_it_was_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "proofgrad.core.tensor.jit.live_tensors.Holders.readers", lambda *_: iter(())
    )
    read = data(1, 2, 3)

    @TinyJit
    def scaled(x: Tensor) -> Tensor:
        return read * x

    scaled(data(1, 1, 1))
    with pytest.raises(CheckError, match="as it was when it was recorded"):
        scaled(data(2, 2, 2))


# -- parts of memory ------------------------------------------------------------------------------


def test_slices_of_one_size_are_one_plan() -> None:
    x = Tensor([float(k) for k in range(24)]).reshape(6, 4).realize()
    plans = realize.compiler()._plans
    seen = []
    for k in range(5):
        assert (x[k : k + 2] * 2).tolist() == [
            [8.0 * r + 2 * c for c in range(4)] for r in (k, k + 1)
        ]
        seen.append(len(plans))
    assert len(set(seen[1:])) == 1


def test_what_is_read_through_a_part_is_not_written_over() -> None:
    for k in range(3):
        x = Tensor([float(n) for n in range(8)]).reshape(4, 2).realize()
        total = x[k : k + 2] + x.sum()
        x.assign(x * 2)
        Tensor.realize(x, total)
        assert total.tolist() == [[28.0 + 2 * r + c for c in range(2)] for r in (k, k + 1)]
        assert x.flatten().tolist() == [2.0 * n for n in range(8)]


def test_a_slice_that_is_computed_has_memory_of_its_own() -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    part = x[1:3].realize()
    x.assign(x * 10).realize()
    assert part.tolist() == [2.0, 3.0] and x.tolist() == [10.0, 20.0, 30.0, 40.0]


def test_a_part_of_a_part_begins_where_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor([float(k) for k in range(12)]).realize()
    rows = x[2:10].reshape(4, 2)
    assert (rows[1] + rows[3] * 10).tolist() == [84.0, 95.0]
    monkeypatch.setattr(numbering, "_number_part", _wrong)
    with pytest.raises(CheckError, match="in the numbered graph"):
        (x[2:4] * 3).realize()


def _wrong(part: UOp, shape: tuple[int, ...], inputs: list[UOp], numbers: dict[UOp, int]) -> UOp:
    """The part one element further on."""
    (begin, end) = part.arg[0]
    right = numbering.UOp(Ops.SHRINK, part.dtype, part.src, ((begin + 1, end + 1),))
    inputs.append(right)
    unique = UOp(Ops.UNIQUE, dtypes.void, (), len(inputs) - 1)
    flat = UOp(Ops.BUFFER, part.dtype, (unique, part.src[0].src[1]), end - begin)
    return flat if shape == flat.shape else UOp(Ops.RESHAPE, part.dtype, (flat,), shape)
