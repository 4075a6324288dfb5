"""Ctrl-C at any line of what computes, writes and replays: no Tensor loses its value, none gets a wrong one.

Each program runs again and again, interrupted at its first line, its second, and so on. After that each Tensor
has its value from before the program or the one that the program gives it, and the program still works.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from proofgrad import Tensor, TinyJit
from proofgrad.core.tensor.runtime import realize
from proofgrad.core.tensor.runtime.interrupts import Interrupts
from proofgrad.nn.optim import Adam

# Lines of the checker are no lines of what users run.
pytestmark = pytest.mark.usefixtures("unchecked", "others_can_work")

_NAMES = frozenset(
    {
        "realize", "reading", "execute", "replay", "jit", "assign", "tensor", "aliasing", "launches", "result_pool", "interrupts",
        "canonical", "arena", "known_runs", "known_writes", "likeness", "positions", "same_call",
    }
)  # fmt: skip
_FOLDER = Path(realize.__file__).parents[1]
TRACED = {path.stem: str(path) for path in sorted(_FOLDER.rglob("*.py")) if path.stem in _NAMES}
assert TRACED.keys() == _NAMES
TRACED_FILES = frozenset(TRACED.values())


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECK", "0")


@pytest.fixture
def others_can_work() -> Iterator[None]:
    """No lock is left with the thread that was interrupted: it would not notice, another thread would wait for ever."""
    yield
    found: list[list[float]] = []

    def record_and_replay() -> None:
        double = TinyJit(lambda x: (x * 2).realize())
        found.extend([double(line(1, 2)).tolist() for _ in range(4)])

    other = threading.Thread(target=record_and_replay, daemon=True)
    other.start()
    other.join(60)
    assert not other.is_alive() and found == [[2, 4]] * 4


class Interrupted:
    """Within, SIGINT comes at line number `at` of the modules above."""

    def __init__(self, at: int, opcodes: bool = False) -> None:
        self.at, self.seen, self.opcodes = at, 0, opcodes

    def __enter__(self) -> Interrupted:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in TRACED_FILES:
            return None
        frame.f_trace_opcodes = self.opcodes
        return self._line

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == ("opcode" if self.opcodes else "line"):
            self.seen += 1
            if self.seen == self.at:
                signal.raise_signal(signal.SIGINT)
        return self._line


def line(*values: float) -> Tensor:
    return Tensor([float(value) for value in values]).realize()


def is_interrupted(program: Callable[[], object], at: int, opcodes: bool = False) -> bool | None:
    """Run the program with an interrupt at one line. None: it has fewer lines."""
    here = Interrupted(at, opcodes)
    try:
        with here:
            program()
    except KeyboardInterrupt:
        return True
    return False if here.seen >= at else None


# -- programs: each makes what it works on, says how to go on, and what may be there -------------------


class Program:
    positions = 150  # at which it is interrupted: of more lines, each so many of them is one


class Computing(Program):
    """A value that nobody has yet: the graph, or what it was computed to."""

    def __init__(self) -> None:
        self.x, self.y = line(1, 2) * 5, line(3, 4)
        self.tensors = [self.x, self.y]

    def run(self) -> None:
        self.x.realize()

    before = after = ([5, 10], [3, 4])


class WritingToAPart(Program):
    """A known write in place, which would give another value if it were done twice."""

    def __init__(self) -> None:
        self.x = line(1, 2, 3)
        self.tensors = [self.x]

    def run(self) -> None:
        self.x[1:] *= 2
        self.x.realize()

    before, after = ([1, 2, 3],), ([1, 4, 6],)


class WritingInPlace(Program):
    """Values that are written over the memory that their graphs read."""

    def __init__(self) -> None:
        self.x, self.y = line(1, 2), line(3, 4)
        self.x.assign(self.x * 2 + self.y)
        self.y.assign(self.y + 1)
        self.z = self.x.sum() + 1
        self.tensors = [self.x, self.y, self.z]

    def run(self) -> None:
        Tensor.realize(self.x, self.z, self.y)

    before = after = ([5, 8], [4, 5], 14)


class WritingThroughAView(Program):
    def __init__(self) -> None:
        self.x = line(1, 2, 3)
        self.view = self.x[1:]
        self.tensors = [self.x, self.view]

    def run(self) -> None:
        self.view.assign(self.view * 2).realize()

    before, after = ([1, 2, 3], [2, 3]), ([1, 4, 6], [4, 6])


class Training(Program):
    positions = 60

    def __init__(self) -> None:
        self.weight = Tensor([1.0, 2.0], requires_grad=True).realize()
        self.optimizer = Adam([self.weight], lr=0.5)
        self.weight.grad = line(3, 4)
        self.tensors = [self.weight]

    def run(self) -> None:
        self.optimizer.step()

    before, after = ([1, 2],), ([0.5, 1.5],)


class Recording(Program):
    """The call that records; state is written to, and an argument."""

    calls, positions = 1, 40

    def __init__(self) -> None:
        state = line(10, 20)

        def step(x: Tensor) -> Tensor:
            state.assign(state + x)
            x += 1
            return state * 2

        self.step, self.state, self.x = TinyJit(step), state, line(1, 2)
        for _ in range(self.calls):
            self.step(self.x)
        self.tensors = [self.state, self.x]

    def run(self) -> None:
        self.step(self.x)

    before, after = ([11, 22], [2, 3]), ([13, 25], [3, 4])


class Replaying(Recording):
    calls = 4
    before, after = ([20, 34], [5, 6]), ([25, 40], [6, 7])


class ReplayingWithAHolder(Replaying):
    """Somebody else holds the memory of the state, so that it is written to elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.state.detach()
        self.tensors.append(self.held)

    before, after = ([20, 34], [5, 6], [20, 34]), ([25, 40], [6, 7], [20, 34])


class ReplayingForAnother(Replaying):
    """The memory of another argument is told to the native program."""

    def __init__(self) -> None:
        super().__init__()
        self.step(line(0, 0))  # recorded once more, as the argument before is still there
        self.y, self.old = line(100, 200), self.x
        self.x = self.y
        self.tensors = [self.state, self.y, self.old]

    before, after = ([20, 34], [100, 200], [5, 6]), ([120, 234], [101, 201], [5, 6])


PROGRAMS = [
    Computing, WritingToAPart, WritingInPlace, WritingThroughAView, Training, Recording, Replaying,
    ReplayingWithAHolder, ReplayingForAnother,
]  # fmt: skip


def close(found: Any, wanted: Any) -> bool:
    return bool(found == pytest.approx(wanted, rel=1e-4))


def interrupted_everywhere(kind: Any, opcodes: bool = False) -> int:
    """How often it was interrupted. Asserts what the head of this file says."""
    kind().run()
    warm, counted = kind(), Interrupted(-1, opcodes)
    with counted:
        warm.run()
    step = -(-counted.seen // kind.positions)
    assert all(
        close(tensor.tolist(), v) for tensor, v in zip(warm.tensors, kind.after, strict=True)
    )
    at, count = 1, 0
    while True:
        program = kind()
        came = is_interrupted(program.run, at, opcodes)
        if came is None:
            return count
        count += came
        for tensor, before, after in zip(program.tensors, kind.before, kind.after, strict=True):
            values = tensor.tolist()
            assert close(values, before) or close(values, after), f"line {at}: {values}"
        if hasattr(program, "step"):
            state, x = program.state.tolist(), line(1000, 0)
            assert program.step(x).tolist() == [2 * (state[0] + 1000), 2 * state[1]], f"line {at}"
            assert program.state.tolist() == [state[0] + 1000, state[1]]
            assert x.tolist() == [1001, 1]
        at += step


@pytest.mark.parametrize("kind", PROGRAMS)
def test_an_interrupt_at_any_line_loses_no_value(kind: Any) -> None:
    assert interrupted_everywhere(kind) > 10


def test_an_interrupt_at_any_line_around_a_recording_leaves_others_to_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every line of the module that takes the lock, of which the programs above see some."""
    monkeypatch.setattr(sys.modules[__name__], "TRACED_FILES", frozenset({TRACED["jit"]}))
    at = 1
    while is_interrupted(Recording().run, at) is not None:
        at += 1
    assert at > 10


def test_an_interrupt_that_is_held_back_comes_at_the_end() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)
        reached.append("held")
    assert reached == ["held"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_is_let_through_comes_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        interrupts.let_through()
        raise AssertionError("not reached")


def test_a_handler_of_the_user_is_called_and_stays() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    mine = signal.getsignal(signal.SIGINT)
    try:
        with Interrupts() as interrupts:
            interrupts.let_through()
            interrupts.hold()
            signal.raise_signal(signal.SIGINT)
            assert not came
        assert came == [signal.SIGINT]
        (line(1, 2) * 2).realize()
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)
