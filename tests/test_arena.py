"""The memory between the kernels of a recording: shared, and never by two that live at once."""

from __future__ import annotations

import random

import pytest

from proofgrad import Context, Tensor, TinyJit
from proofgrad.core.compile.plan.plan import BufferInfo, Step
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.runtime.arena import make_arena


def random_plan(seed: int) -> tuple[list[Step], list[BufferInfo], int]:
    """Steps that each write a buffer and read some of those before, two inputs among them."""
    choose = random.Random(seed)
    inputs, count = 2, choose.randint(1, 40)
    made = [BufferInfo(dtypes.float32, choose.choice([0, 1, 7, 64, 1000]), choose.choice(["CPU", "REFERENCE"]))
            for _ in range(count)]  # fmt: skip
    steps = []
    for slot in range(inputs, inputs + count):
        read = {choose.randint(max(0, slot - 9), slot - 1) for _ in range(choose.randint(1, 3))}
        if made[slot - inputs].size:
            steps.append(Step(None, (slot, *read), ()))
    return steps, made, inputs


@pytest.mark.parametrize("seed", range(60))
def test_buffers_that_live_at_once_have_memory_of_their_own(seed: int) -> None:
    steps, made, inputs = random_plan(seed)
    left_out = {inputs + len(made) - 1}
    arena = make_arena(steps, made, inputs, left_out)
    assert set(arena.memory) == set(range(inputs, inputs + len(made))) - left_out
    for slot, handle in arena.memory.items():
        info = made[slot - inputs]
        assert (handle.nbytes if info.device == "CPU" else len(handle)) >= info.nbytes
    uses = {
        slot: [k for k, step in enumerate(steps) if slot in step.slots] for slot in arena.memory
    }
    for k in range(len(steps)):
        alive = [arena.memory[slot] for slot, at in uses.items() if at and at[0] <= k <= at[-1]]
        assert len({id(handle) for handle in alive}) == len(alive)
    distinct = {id(handle): slot for slot, handle in arena.memory.items()}
    assert arena.nbytes <= arena.unshared_nbytes
    assert len(distinct) <= len(arena.memory)


def test_a_chain_of_kernels_needs_two_buffers() -> None:
    made = [BufferInfo(dtypes.float32, 100, "CPU")] * 10
    steps = [Step(None, (1 + k, k), ()) for k in range(10)]
    arena = make_arena(steps, made, 1, {10})
    assert (arena.nbytes, arena.unshared_nbytes) == (800, 3600)
    assert len({id(handle) for handle in arena.memory.values()}) == 2


def test_recording_tells_its_bytes(capfd: pytest.CaptureFixture[str]) -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(6):
            x = (x @ x).contiguous()
        return x

    x = Tensor.eye(8).contiguous().realize()
    recorded = TinyJit(chain)
    assert recorded.arena_bytes == 0
    with Context(DEBUG=1):
        for _ in range(2):
            recorded(x)
    text = capfd.readouterr().err
    assert "recorded chain: 6 kernels, 512 B between them (1.3 kB if none were shared)" in text
    assert recorded.arena_bytes == 512
    assert recorded(x).tolist() == x.tolist()
