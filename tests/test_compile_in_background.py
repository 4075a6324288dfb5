"""Kernels that another thread compiles while the next ones are made."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proofgrad import Device, Tensor, wiring
from proofgrad.core.compile.machine.target import Binary, CompileError, DeviceError, Source
from proofgrad.core.compile.plan.background import LOCK_SECONDS, Background
from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.compile.plan.collector import MANY_OBJECTS, OBJECTS, rare_collection
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import realize as machine


def tensor(scale: float = 3.0) -> Tensor:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    return ((x @ x) * scale).contiguous().sum(0).contiguous().exp2()


def graph(scale: float = 3.0) -> UOp:
    return machine.graph_to_run([tensor(scale)._uop], "CPU")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that compiled, in order."""
    found: list[str] = []
    cpu = type(Device["CPU"])
    usual = cpu.compile

    def compile_(self: Any, source: Source) -> Binary:
        found.append(threading.current_thread().name)
        return usual(self, source)

    monkeypatch.setattr(cpu, "compile", compile_)
    return found


def test_all_kernels_of_a_plan_are_compiled_when_it_is_given(compiled: list[str]) -> None:
    plan = wiring._compiler().plan(graph())
    kernels = [step.kernel for step in plan.steps if step.kernel is not None]
    assert len(kernels) == len(compiled) == 3
    assert all(kernel.is_compiled and kernel.binary.data for kernel in kernels)
    assert {name.partition("_")[0] for name in compiled} == {"proofgrad-compile"}
    alive = [thread.name for thread in threading.enumerate()]
    assert not any(name.startswith("proofgrad-compile") for name in alive)


def test_cycles_are_looked_for_rarely_only_while_a_plan_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual, inside = gc.get_threshold(), []
    compiler = wiring._compiler()
    make = compiler._make_plan
    monkeypatch.setattr(
        compiler, "_make_plan", lambda *a: inside.append(gc.get_threshold()) or make(*a)
    )
    compiler.plan(graph(7.0))
    assert [threshold[0] for threshold in inside] == [OBJECTS]
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("asked", [0, 10 * OBJECTS])
def test_who_looks_for_cycles_more_rarely_is_left_alone(asked: int) -> None:
    usual = gc.get_threshold()
    gc.set_threshold(asked, *usual[1:])
    try:
        with rare_collection():
            assert gc.get_threshold()[0] == asked
        assert gc.get_threshold()[0] == asked
    finally:
        gc.set_threshold(*usual)


def test_cycles_are_looked_for_rarely_while_a_graph_becomes_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    usual, before = machine.numbered, gc.get_threshold()

    def numbered(*args: Any, **named: Any) -> Any:
        asked.append(gc.get_threshold()[0])
        return usual(*args, **named)

    waiting = tensor(2.625)
    monkeypatch.setattr(machine, "numbered", numbered)
    waiting.realize()
    assert asked == [OBJECTS]
    assert gc.get_threshold() == before


@pytest.mark.parametrize("count", [0, 2 * MANY_OBJECTS])
def test_what_a_large_plan_leaves_counts_as_old(count: int) -> None:
    gc.unfreeze()
    gc.collect()
    with rare_collection():
        made = [[] for _ in range(count)] + [[]]
    young = {id(one) for generation in (0, 1) for one in gc.get_objects(generation)}
    assert (id(made[-1]) in young) == (count == 0)
    assert gc.get_freeze_count() == 0


def test_what_the_user_keeps_out_of_searches_stays_out() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    with rare_collection():
        made = [[] for _ in range(2 * MANY_OBJECTS)]
    assert len(made) == 2 * MANY_OBJECTS
    assert before > 0
    assert gc.get_freeze_count() >= before - 100  # a few of them have gone


def test_the_lock_of_python_is_handed_over_sooner_only_while_a_plan_is_made() -> None:
    usual = sys.getswitchinterval()
    with Background(), Background():
        assert sys.getswitchinterval() == pytest.approx(LOCK_SECONDS)
    assert sys.getswitchinterval() == pytest.approx(usual)
    with pytest.raises(CompileError), Background():
        raise CompileError("refused")
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_a_plan_of_one_kernel_starts_no_thread(compiled: list[str]) -> None:
    x = Tensor([1.0, 2.0]).realize()
    wiring._compiler().plan(machine.graph_to_run([(x * 7)._uop], "CPU"))
    assert compiled == [threading.current_thread().name]


@pytest.mark.parametrize("error", [CompileError("refused"), KeyboardInterrupt(), MemoryError()])
def test_error_of_the_other_thread_is_raised_and_the_kernel_is_made_again(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    cpu = type(Device["CPU"])
    usual, calls = cpu.compile, []

    def compile_(self: Any, source: Source) -> Binary:
        calls.append(source.entry)
        if len(calls) == 2:
            raise error
        return usual(self, source)

    compiler, asked = wiring._compiler(), graph(5.0)
    monkeypatch.setattr(cpu, "compile", compile_)
    with pytest.raises(type(error)):
        compiler.plan(asked)
    assert isinstance(compiler._kernels.by_body, Newest)
    plan = compiler.plan(asked)
    kernels = [step.kernel for step in plan.steps if step.kernel is not None]
    assert all(kernel.is_compiled for kernel in kernels)
    assert len(calls) == 4  # three, and the refused one again


def test_error_of_several_kernels_at_once_is_raised_by_who_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(self: Any, sources: Any) -> Any:
        raise DeviceError("the machine was lost")

    monkeypatch.setattr(type(Device["CPU"]), "compile_together", lost)
    with pytest.raises(DeviceError, match="the machine was lost"):
        wiring._compiler().plan(graph(scale=29.0))


def test_error_of_a_stage_waits_for_the_other_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, asked = wiring._compiler(), graph(6.0)
    usual, calls = compiler._emit, []

    def emit(linear: UOp, device: str) -> Source:
        calls.append(device)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return usual(linear, device)

    monkeypatch.setattr(compiler, "_emit", emit)
    with pytest.raises(KeyboardInterrupt):
        compiler.plan(asked)
    assert not any(t.name.startswith("proofgrad-compile") for t in threading.enumerate())
    monkeypatch.undo()
    assert all(step.kernel.is_compiled for step in compiler.plan(asked).steps if step.kernel)


def test_threads_that_compile_at_once_get_the_same_values() -> None:
    expected = [tensor(scale).tolist() for scale in (8.0, 8.5, 9.0, 9.5)]
    compiler = wiring._compiler()
    graphs = [graph(scale) for scale in (8.0, 8.5, 9.0, 9.5)]
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(compiler.plan, graphs))
    assert all(step.kernel.is_compiled for plan in plans for step in plan.steps if step.kernel)
    assert [tensor(scale).tolist() for scale in (8.0, 8.5, 9.0, 9.5)] == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_child_compiles() -> None:
    tensor(11.0).realize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns: fork with threads
        child = os.fork()
    if child == 0:
        os._exit(0 if tensor(0.5).tolist() == [2.0**11, 2.0**16] else 1)
    assert os.waitpid(child, 0)[1] == 0


AT_THE_END = {
    "a thread that outlives the program": """
import threading, time
def late():
    threading.main_thread().join()
    print((a @ a).sum().item())
threading.Thread(target=late).start()
""",
    "a function that Python calls at its end": """
import atexit
atexit.register(lambda: print((a @ a).sum().item()))
""",
}


@pytest.mark.parametrize("program", AT_THE_END.values(), ids=AT_THE_END.keys())
def test_what_is_computed_while_python_ends_is_right(program: str, tmp_path: Path) -> None:
    first = "from proofgrad import Tensor\na = Tensor.ones(300, 300).contiguous().realize()\n"
    environment = {**os.environ, "PROOFGRAD_CACHE": str(tmp_path), "NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", first + program], env=environment, capture_output=True, text=True
    )
    assert (done.stderr, done.stdout.strip()) == ("", str(300.0**3))
