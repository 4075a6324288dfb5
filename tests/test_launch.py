"""What a launch costs little for: nodes, memory, settings and results that are used again."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from proofgrad import Context, Device, GlobalCounters, JitError, Tensor, TinyJit
from proofgrad.core import settings
from proofgrad.core.compile import compiler
from proofgrad.core.ir import uop as nodes
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.methods.base import TensorBase
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.memory import buffer_of, memory_of
from proofgrad.core.tensor.runtime.result_pool import SPARE_BYTES


def line(*values: float) -> Tensor:
    return Tensor([float(value) for value in values]).realize()


def recorded(function: Any, *args: Any) -> Any:
    """A TinyJit of the function that replays from the next call on."""
    jitted = TinyJit(function)
    for _ in range(2):
        jitted(*args)
    return jitted


# -- results of replays -----------------------------------------------------------------------------


def address(tensor: Tensor) -> int:
    handle = memory_of(buffer_of(tensor._uop))
    found: int = handle.address
    return found


def test_memory_of_a_result_that_nobody_holds_is_used_again() -> None:
    f = recorded(lambda x: (x * 2).reshape(1, 2), line(1, 2))
    seen = {address(f(line(k, 0))) for k in range(20)}
    assert len(seen) <= 2


@pytest.mark.parametrize(
    "hold",
    [
        lambda r: r,
        lambda r: r + 0,  # a graph that reads it
        lambda r: r[1:],  # a view of it
        lambda r: r.reshape(2, 1),
        lambda r: r.detach(),
        lambda r: [r._uop],  # its node
        lambda r: [memory_of(buffer_of(r._uop))],  # its memory
    ],
)
def test_result_that_somebody_holds_keeps_its_values(hold: Any) -> None:
    f = recorded(lambda x: x * 2, line(1, 2))
    held = [hold(f(line(k, k + 1))) for k in range(6)]
    for k, kept in enumerate(held):
        if isinstance(kept, Tensor):
            expected = [2.0 * k, 2.0 * (k + 1)]
            assert kept.flatten().tolist() == expected[-kept.numel() :]
        elif isinstance(kept[0], UOp):
            assert Tensor._new(kept[0], "CPU").tolist() == [2.0 * k, 2.0 * (k + 1)]
        else:
            assert memoryview(kept[0].view).cast("f").tolist() == [2.0 * k, 2.0 * (k + 1)]


def test_array_that_shares_the_memory_of_a_result_keeps_its_values() -> None:
    numpy = pytest.importorskip("numpy")
    f = recorded(lambda x: x * 2, line(1, 2))
    arrays = [numpy.from_dlpack(f(line(k, 1))) for k in range(6)]
    assert [array.tolist() for array in arrays] == [[2.0 * k, 2.0] for k in range(6)]


def test_results_that_are_one_value_are_right_at_every_call() -> None:
    f = recorded(lambda x: (x + 1, [x + 1, x * 3]), line(1, 2))
    for k in range(6):
        a, (b, c) = f(line(k, 2))
        assert (a.tolist(), b.tolist(), c.tolist()) == ([k + 1, 3], [k + 1, 3], [k * 3, 6])


def test_result_fed_back_and_written_to_outside_is_right() -> None:
    f = recorded(lambda x: x + 1, line(0, 0))
    x = line(0, 10)
    for k in range(1, 8):
        x = f(x)
        assert x.tolist() == [k, 10 + k]
    y = f(x)
    y += 100
    y.realize()
    assert f(x).tolist() == [8, 18]
    assert y.tolist() == [108, 118]


def test_result_written_in_place_by_another_recording_does_not_come_back() -> None:
    make = recorded(lambda x: x + 1, line(0, 0))
    state = make(line(1, 1))

    def bump() -> Tensor:
        state.assign(state * 2)
        return state

    again = recorded(bump)
    for k in range(4, 8):  # the two calls that recorded it made 4 and 8 of the 2
        assert again().tolist() == [2**k, 2**k]
        assert make(line(5, 5)).tolist() == [6, 6]
    assert make(line(7, 7)).tolist() == [8, 8]


def test_large_results_are_not_kept_by_the_recording() -> None:
    size = SPARE_BYTES // 4 + 1
    f = recorded(lambda x: x + 1, Tensor.zeros(size).contiguous().realize())
    x = Tensor.zeros(size).contiguous().realize()
    gc.collect()
    before = GlobalCounters.mem_used
    for _ in range(3):
        f(x)
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_watched_replays_between_others_give_the_same_values() -> None:
    f = recorded(lambda x: x * 3, line(1, 2))
    for k in range(8):
        with Context(DEBUG=1 if k % 2 else 0):
            assert f(line(k, 1)).tolist() == [3.0 * k, 3.0]


def test_arguments_whose_memory_is_known_are_looked_at_again() -> None:
    """A replay remembers where its arguments were; what is there, and whether it is still they, it asks each time."""
    x, y = line(5, 7), line(1, 2)
    f = recorded(lambda a, b: a - b, line(0, 0), line(1, 1))
    for _ in range(2):
        assert f(x, y).tolist() == [4.0, 5.0]
        assert f(y, x).tolist() == [-4.0, -5.0]
        assert f(x, line(3, 3)).tolist() == [2.0, 4.0]
    x.assign(x + 1).realize()
    assert [f(x, y).tolist() for _ in range(2)] == [[5.0, 6.0]] * 2
    x += 1
    assert [f(x, y).tolist() for _ in range(2)] == [[6.0, 7.0]] * 2
    for k in range(4):  # memory, and the numbers of objects, are used again
        z = line(k, k)
        assert f(z, y).tolist() == [k - 1.0, k - 2.0]
        assert f(z * 2, y).tolist() == [2 * k - 1.0, 2 * k - 2.0]
        del z
    with pytest.raises(JitError):
        f(x, line(1, 2, 3))
    with pytest.raises(JitError):
        f(x, b=y)
    assert f(x, y).tolist() == [6.0, 7.0]


def test_threads_with_arguments_of_their_own_share_a_recording() -> None:
    def ones() -> Tensor:
        return Tensor.ones(64, 64).contiguous().realize()

    f = recorded(lambda a, b: a @ b, ones(), ones())

    def found(k: int) -> set[float]:
        a, b = (ones() * k).realize(), ones()
        return {f(a, b)[0, 0].item() for _ in range(200)}

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(found, (1, 2, 3))) == [{64.0 * k} for k in (1, 2, 3)]


# -- arguments ------------------------------------------------------------------------------------


def test_arguments_by_name_may_come_in_another_order() -> None:
    f = TinyJit(lambda *, a, b: a - b)
    assert [f(a=line(5), b=line(k)).item() for k in range(2)] == [5, 4]
    assert f(b=line(1), a=line(9)).item() == 8


def test_arguments_in_other_lists_are_refused_with_both_positions() -> None:
    f = recorded(lambda pair, n: pair[0] + pair[1] * n, [line(1), line(2)], 3)
    with pytest.raises(JitError, match=r"argument 0\[0\].*now gets argument 0\[0\]\[0\]"):
        f([[line(1)], line(2)], 3)
    with pytest.raises(JitError, match="argument 1: 3, and now gets argument 1: 3.0"):
        f([line(1), line(2)], 3.0)
    g = recorded(lambda x, more: x + len(more), line(1), [])
    with pytest.raises(JitError, match="other lists, tuples and dicts"):
        g(line(1), [[]])


# -- the environment, mid-script ------------------------------------------------------------------


def test_changes_of_the_environment_are_seen_by_the_next_launch(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def plain(x: Tensor) -> Tensor:
        calls.append(1)
        return x.log()

    f = recorded(plain, line(1, 2))
    monkeypatch.setenv("JIT", "0")
    f(line(1, 2))
    assert len(calls) == 3
    monkeypatch.delenv("JIT")
    f(line(1, 2))
    assert len(calls) == 3
    os.environ["DEBUG_NANS"] = "1"
    try:
        with pytest.raises(FloatingPointError, match="wrote 1 NaN"):
            f(line(-1, 2))
    finally:
        del os.environ["DEBUG_NANS"]
    assert f(line(-1, 1)).tolist()[1] == 0
    monkeypatch.setenv("DEBUG", "1")
    f(line(1, 2))
    assert "1 kernels" in capfd.readouterr().err
    monkeypatch.setenv("DEBUG", "zero")
    with pytest.raises(ValueError, match="DEBUG='zero' must be an integer"):
        f(line(1, 2))


def test_compile_choices_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan() -> Any:
        graph = machine.graph_to_run([(line(1, 2) * 5 + 1)._uop], "CPU")
        return machine.compiler().plan(graph)

    usual = plan()
    assert plan() is usual
    monkeypatch.setenv("NOALG", "1")
    assert plan() is not usual
    monkeypatch.setenv("NOALG", "0")
    assert plan() is usual
    monkeypatch.setenv("FASTMATH", "fast")
    with pytest.raises(ValueError, match="FASTMATH='fast' names fast"):
        plan()


def test_every_variable_that_changes_compiling_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    read = set()
    text = settings.text
    monkeypatch.setattr(settings, "text", lambda name: read.add(name) or text(name))
    compiler._settings_of.__wrapped__(())
    assert read <= set(settings.READ_BY_STAGES)


def test_settings_read_what_the_environment_holds_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JIT", raising=False)
    assert (settings.text("JIT"), settings.number("JIT", 7)) == ("", 7)
    before = settings.stored(settings.encoded("JIT", "PROVE"))
    monkeypatch.setenv("JIT", "3")
    assert (settings.text("JIT"), settings.number("JIT", 7)) == ("3", 3)
    assert settings.stored(settings.encoded("JIT", "PROVE")) != before
    monkeypatch.delenv("JIT")
    assert settings.stored(settings.encoded("JIT", "PROVE")) == before
    monkeypatch.setenv("PROOFGRAD_DATA", "/tmp/Zürich")
    assert str(settings.data_folder()) == "/tmp/Zürich"


def test_default_device_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "_chosen", None)
    for name in ("DEV", "DEVICE", "CPU", "CLANG", "LLVM", "REFERENCE"):
        monkeypatch.delenv(name, raising=False)
    assert Device.DEFAULT == "CPU"
    monkeypatch.setenv("REFERENCE", "0")
    assert Device.DEFAULT == "CPU"
    monkeypatch.setenv("REFERENCE", "1")
    assert Device.DEFAULT == "REFERENCE"
    monkeypatch.setenv("DEV", "CLANG")
    assert Device.DEFAULT == "CPU"
    assert Device["clang"] is Device["CPU"] is Device["CPU:0"]


# -- threads and forks ----------------------------------------------------------------------------


def test_threads_that_call_one_recording_get_their_own_results() -> None:
    x = line(*range(64))
    f = recorded(lambda x: (x @ x.reshape(64, 1)) + x.sum() - x, x)

    def many(seed: int) -> list[bool]:
        mine = line(*[(seed * 7 + k) % 11 for k in range(64)])
        expected = f.fxn(mine).tolist()
        return [f(mine).tolist() == expected for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        assert all(all(found) for found in pool.map(many, range(4)))


def test_threads_that_make_equal_nodes_get_the_same_one() -> None:
    start = threading.Barrier(4)

    def make(_: int) -> list[UOp]:
        start.wait()
        return [UOp(Ops.IOTA, dtypes.int32, (), 1_000_003 + k) for k in range(3000)]

    with ThreadPoolExecutor(4) as pool:
        for same in zip(*pool.map(make, range(4))):
            assert len({id(node) for node in same}) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_child_replays_though_another_thread_was_replaying() -> None:
    f = recorded(lambda x: x + 1, line(1, 2))
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with f.captured.lock:
            inside.set()
            go_on.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns: fork with threads
        child = os.fork()
    if child == 0:
        os._exit(0 if f(line(3, 4)).tolist() == [4, 5] else 1)
    go_on.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
    assert f(line(3, 4)).tolist() == [4, 5]


# -- nodes ----------------------------------------------------------------------------------------


def test_nodes_are_forgotten_when_nobody_holds_them() -> None:
    gc.collect()
    before = len(nodes._NODES)
    node = UOp(Ops.IOTA, dtypes.float32, (), 1_000_007)
    for _ in range(50_000):
        node = UOp(Ops.NEG, dtypes.float32, (node,))
    assert len(nodes._NODES) == before + 50_001
    del node
    assert len(nodes._NODES) == before


def test_nodes_stay_as_they_are() -> None:
    node = UOp(Ops.IOTA, dtypes.int32, (), 1_000_033)
    with pytest.raises(AttributeError, match="immutable; cannot set arg"):
        node.arg = 3
    assert type(node) is UOp
    assert UOp(Ops.IOTA, dtypes.int32, (), 1_000_033) is node


def test_parameters_are_known_while_they_ask_for_gradients() -> None:
    gc.collect()
    before = len(TensorBase._parameters)
    x = Tensor([1.0], requires_grad=True)
    y = Tensor([1.0])
    assert len(TensorBase._parameters) == before + 1
    y.requires_grad_(True)
    x.requires_grad = False
    assert len(TensorBase._parameters) == before + 1
    (y * 2).sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [2]
    del y
    gc.collect()
    assert len(TensorBase._parameters) == before
