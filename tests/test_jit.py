"""TinyJit: what a replay gives, what it leaves alone, and what it refuses."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import numpy as np
import pytest
from counted_calls import calls

from proofgrad import Device, GlobalCounters, JitError, Tensor, TinyJit, nn


def line(*values: float) -> Tensor:
    return Tensor([float(value) for value in values]).realize()


# -- the same values as without -------------------------------------------------------------------


def test_ten_calls_give_what_the_function_gives() -> None:
    def plain(x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return (x * y + 1).relu(), {"sum": (x + y).sum(), "max": x.max()}

    jitted = TinyJit(plain)
    results = []
    for k in range(10):
        x, y = line(k, 2, 3), line(2, -k, 1)
        results.append((jitted(x, y), plain(x, y)))
    for (a, more), (b, expected) in results:  # read at the end: no result is written over
        assert a.tolist() == b.tolist()
        assert {name: t.item() for name, t in more.items()} == {
            name: t.item() for name, t in expected.items()
        }
    assert jitted.kernel_count == 3


def test_a_recording_with_laws_of_reals_is_not_replayed_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the other way round: 1.5 + 1e8 - 1e8 is 0.0 in float32, and 1.5 in reals."""
    calls = []

    @TinyJit
    def there_and_back(x: Tensor) -> Tensor:
        calls.append(x)
        return (x + 1e8) + -1e8

    x = line(1.5)
    for classes, expected in [("real", 1.5), ("", 0.0), ("real", 1.5), ("", 0.0)]:
        if classes:
            monkeypatch.setenv("FASTMATH", classes)
        else:
            monkeypatch.delenv("FASTMATH")
        for _ in range(3):
            assert there_and_back(x).tolist() == [expected]
    assert len(calls) == 3  # a plain call, and a recording for each


def test_second_call_records_and_the_third_runs_no_python_of_the_function() -> None:
    calls = []

    @TinyJit
    def f(x: Tensor) -> Tensor:
        calls.append(1)
        return x + 1

    assert [f(line(k)).item() for k in range(4)] == [1, 2, 3, 4]
    assert len(calls) == 2
    assert f.cnt == 2
    f.reset()
    assert [f(line(k)).item() for k in range(3)] == [1, 2, 3]
    assert len(calls) == 4


def test_arguments_may_be_lazy_views_and_nested() -> None:
    @TinyJit
    def f(pair: list[Tensor], *, scale: Tensor) -> Tensor:
        return (pair[0] + pair[1]) * scale

    base = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    for k in range(4):
        got = f([base[k % 2], base.T[0] * k], scale=Tensor(2.0))
        want = (base[k % 2] + base.T[0] * k) * 2
        assert got.tolist() == want.tolist()


def test_python_numbers_in_results_stay() -> None:
    @TinyJit
    def f(x: Tensor) -> tuple[str, int, Tensor, None]:
        return "a", 3, x * 2, None

    for k in range(4):
        name, number, doubled, nothing = f(line(k))
        assert (name, number, doubled.item(), nothing) == ("a", 3, 2 * k, None)


def test_result_that_is_an_argument_or_a_view_has_memory_of_its_own() -> None:
    weight = line(1, 2, 3)

    @TinyJit
    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x, x[1:], weight.reshape(3, 1)

    kept = []
    for k in range(4):
        x = line(k, k + 1)
        same, view, shown = f(x)
        assert same is x
        kept.append((k, view, shown))
    for k, view, shown in kept:
        assert (view.tolist(), shown.tolist()) == ([k + 1], [[1], [2], [3]])


# -- state -----------------------------------------------------------------------------------------


def test_tensor_that_is_assigned_goes_on_in_replays() -> None:
    count = Tensor([0.0]).realize()

    @TinyJit
    def f(x: Tensor) -> Tensor:
        count.assign(count + x)
        return count * 10

    assert [f(line(k)).item() for k in range(6)] == [0, 10, 30, 60, 100, 150]
    assert count.item() == 15


def test_reader_of_state_built_before_a_replay_keeps_the_old_value() -> None:
    count = Tensor([0.0, 0.0]).realize()

    @TinyJit
    def f(x: Tensor) -> None:
        count.assign(count + x)

    readers = []
    for _ in range(6):
        f(line(1))
        readers += [(count.detach(), count.item), (count + 0, count.item)]
    assert [reader.tolist()[0] for reader, _ in readers[::2]] == [1, 2, 3, 4, 5, 6]
    assert [reader.tolist()[1] for reader, _ in readers[1::2]] == [1, 2, 3, 4, 5, 6]


def test_state_that_is_changed_between_calls_is_read_again() -> None:
    """tinygrad #7637 and #14044: inputs frozen at the recording."""
    weight, bias = line(1, 1), line(0, 0)

    @TinyJit
    def f(x: Tensor) -> Tensor:
        return x * weight + bias

    got = []
    for k in range(5):
        if k >= 3:
            weight.assign(Tensor([float(k), 1.0]))
            bias.assign(bias + 1)
        got.append(f(line(1, 1)).tolist())
    assert got == [[1, 1]] * 3 + [[4, 2], [6, 3]]


def test_state_is_written_in_place_while_nobody_else_holds_it() -> None:

    from proofgrad.core.tensor.runtime.memory import buffer_of, memory_of

    count = Tensor([0.0, 1.0]).realize()

    @TinyJit
    def f(x: Tensor) -> None:
        count.assign(count * x)

    def address() -> Any:
        return memory_of(buffer_of(count._uop)).address

    for _ in range(3):
        f(line(2))
    first = address()
    held = GlobalCounters.mem_used
    f(line(2))
    assert (address(), GlobalCounters.mem_used) == (first, held)
    alias = count.detach().realize()
    f(line(2))
    assert address() != first
    assert (alias.tolist(), count.tolist()) == ([0.0, 16.0], [0.0, 32.0])


def test_state_given_as_an_argument_is_written() -> None:
    @TinyJit
    def f(cache: Tensor, x: Tensor) -> Tensor:
        cache[1:] = x
        return cache.sum()

    caches = [line(1, 2, 3), line(4, 5, 6)]
    for k in range(6):
        assert f(caches[k % 2], line(k, k)).item() == [1, 4][k % 2] + 2 * k
        assert caches[k % 2].tolist() == [[1, 4][k % 2], k, k]


def test_argument_that_is_also_the_state() -> None:
    total = line(1, 2)

    @TinyJit
    def f(x: Tensor) -> Tensor:
        total.assign(total + x.flip(0))
        return total * 1

    assert [f(line(0, 1)).tolist() for _ in range(3)] == [[2, 2], [3, 2], [4, 2]]
    assert f(total).tolist() == [6, 6]
    assert total.tolist() == [6, 6]


@pytest.mark.parametrize(
    ("index", "expected"),
    (
        ([True, False, True], [[1.0, 2.0], [5.0, 6.0]]),
        (np.array([True, False, True]), [[1.0, 2.0], [5.0, 6.0]]),
        (([[True, False], [False, True], [True, True]],), [1.0, 4.0, 5.0, 6.0]),
        ((slice(1, None), [np.True_, False]), [[3.0], [5.0]]),
        ([False] * 3, []),
    ),
)
def test_a_list_or_array_of_bools_is_an_index_as_one_of_ints_is(index: Any, expected: Any) -> None:
    picked = TinyJit(lambda x: (x[index] * 1).realize())
    x = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).realize()
    assert [picked((x + k).realize()).tolist() for k in (7, 8, 0)][2] == expected


def test_random_numbers_go_on() -> None:
    def draw() -> Tensor:
        return Tensor.rand(3)

    Tensor.manual_seed(7)
    want = [draw().tolist() for _ in range(6)]
    Tensor.manual_seed(7)
    jitted = TinyJit(draw)
    assert [jitted().tolist() for _ in range(6)] == want


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_training_steps_are_those_without_jit(optimizer: str) -> None:
    def train(jit: bool) -> list[list[float]]:
        Tensor.manual_seed(3)
        model = nn.Linear(3, 2)
        opt = {"SGD": nn.optim.SGD, "Adam": nn.optim.Adam}[optimizer](
            [model.weight, model.bias], lr=0.1
        )

        def step(x: Tensor, y: Tensor) -> Tensor:
            opt.zero_grad()
            loss = (model(x) - y).square().mean().backward()
            opt.step()
            return loss

        run = TinyJit(step) if jit else step
        losses = []
        for k in range(6):
            x = Tensor([[1.0, k, 2.0], [0.0, 1.0, -k]])
            losses.append([run(x, Tensor([[1.0, 0.0], [0.0, 1.0]])).item()])
        return [*losses, *model.weight.tolist()]

    for a, b in zip(train(True), train(False), strict=True):
        assert a == pytest.approx(b, rel=1e-5, abs=1e-6)


def test_statistics_and_dropout_of_training_go_on_as_without_jit() -> None:
    def train(jit: bool) -> list[float]:
        Tensor.manual_seed(5)
        norm, last = nn.BatchNorm(3), nn.Linear(3, 2)
        opt = nn.optim.SGD([norm.weight, norm.bias, last.weight], lr=0.1, momentum=0.9)

        def step(x: Tensor) -> Tensor:
            with Tensor.train():
                opt.zero_grad()
                loss = last(norm(x).dropout(0.3)).square().mean().backward()
                opt.step()
                return loss

        run = TinyJit(step) if jit else step
        data = [Tensor([[1.0, k, 2.0], [0.5, 1.0, -k], [k, k, 3.0]]) for k in range(6)]
        losses = [run(x).item() for x in data]
        return [*losses, *norm.running_mean.tolist(), float(norm.num_batches_tracked.item())]

    assert train(True) == pytest.approx(train(False), rel=1e-4, abs=1e-5)


def test_gradients_left_by_a_replay_are_those_of_its_arguments() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)

    @TinyJit
    def f(x: Tensor) -> Tensor:
        return (w * x).sum().backward()

    for k in range(4):
        w.grad = None
        f(line(k, 1))
        assert w.grad is not None and w.grad.tolist() == [k, 1]
    with pytest.raises(JitError, match="with no gradient, which now has one"):
        f(line(1, 1))


def test_gradients_of_replays_add_up_where_they_did_when_recorded() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)

    @TinyJit
    def f(x: Tensor) -> Tensor:
        return (w * x).sum().backward()

    for k in range(1, 6):
        f(line(k, 1))
        assert w.grad is not None and w.grad.tolist() == [k * (k + 1) / 2, k]


def test_methods_have_a_recording_for_each_object() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.weight = line(scale)

        @TinyJit
        def __call__(self, x: Tensor) -> Tensor:
            return x * self.weight

    a, b = Model(2), Model(3)
    assert [(a(line(k)).item(), b(line(k)).item()) for k in range(4)] == [
        (2 * k, 3 * k) for k in range(4)
    ]


# -- refusals ----------------------------------------------------------------------------------------


def recorded() -> TinyJit[Tensor]:
    @TinyJit
    def double(x: Tensor, factor: int = 2) -> Tensor:
        return x * factor

    for _ in range(2):
        double(line(1, 2), factor=2)
    return double


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f(line(1), factor=2), r"of shape \(2,\), .*now gets .* of shape \(1,\)"),
        (lambda f: f(Tensor([1, 2]), factor=2), r"dtypes.float, on .*now gets .*dtypes.int, on"),
        (lambda f: f(Tensor([1.0, 2.0], device="REFERENCE"), factor=2), "on CPU, .*on REFERENCE"),
        (lambda f: f(line(1, 2), factor=3), r"argument factor: 2, and now gets argument factor: 3"),
        (lambda f: f(line(1, 2)), "2 arguments, and now gets 1"),
        (lambda f: f([line(1, 2)], factor=2), r"argument 0: .*argument 0\[0\]"),
    ],
)
def test_arguments_unlike_the_recorded_ones_are_refused(call: Any, message: str) -> None:
    double = recorded()
    with pytest.raises(JitError, match=message):
        call(double)
    assert double(line(4, 5), factor=2).tolist() == [8, 10]


def test_reading_a_value_while_recording_is_refused() -> None:
    """tinygrad #6803: the value of the recording would be used for ever."""

    @TinyJit
    def f(x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 0 else x * 3

    f(line(1))
    with pytest.raises(JitError, match="reads a value while it is recorded"):
        f(line(1))


def test_tensors_kept_outside_are_refused() -> None:
    class Counter:
        def __init__(self) -> None:
            self.state = line(0)

    counter = Counter()

    @TinyJit
    def f(x: Tensor) -> Tensor:
        counter.state = counter.state + x
        return counter.state * 1

    f(line(1))
    with pytest.raises(JitError, match=r"somebody holds after it \(\(1,\) dtypes.float\)"):
        f(line(1))


def test_results_that_are_no_tensors_are_refused() -> None:
    @TinyJit
    def f(x: Tensor) -> Any:
        return {x.sum()}

    with pytest.raises(JitError, match="gives a set at the top"):
        [f(line(1)) for _ in range(2)]


def test_error_of_the_function_leaves_its_arguments_as_they_were() -> None:
    @TinyJit
    def f(x: Tensor) -> Tensor:
        if f.cnt:
            raise KeyError("mine")
        return x

    x = line(1, 2)
    f(x)
    with pytest.raises(KeyError, match="mine"):
        f(x)
    assert x.tolist() == [1, 2]


# -- how ---------------------------------------------------------------------------------------------


def test_jit_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    @TinyJit
    def f(x: Tensor) -> Tensor:
        calls.append(1)
        return x + 1

    monkeypatch.setenv("JIT", "0")
    assert [f(line(k)).item() for k in range(4)] == [1, 2, 3, 4]
    assert len(calls) == 4


def test_pickle_holds_the_function() -> None:
    jitted = TinyJit(_doubled)
    again = pickle.loads(pickle.dumps(jitted))
    assert [again(line(k)).item() for k in range(4)] == [0, 2, 4, 6]


def _doubled(x: Tensor) -> Tensor:
    return x * 2


@TinyJit
def _tripled(x: Tensor) -> Tensor:
    return x * 3


class _Scaled:
    factor = 4

    @TinyJit
    def scaled(self, x: Tensor) -> Tensor:
        return x * self.factor


def test_pickle_of_a_decorated_function_is_its_name() -> None:
    again = pickle.loads(pickle.dumps(_tripled))
    assert again is _tripled
    assert [again(line(k)).item() for k in range(4)] == [0, 3, 6, 9]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(_Scaled.scaled, protocol)) is _Scaled.scaled


def test_pickle_of_a_local_function_names_it() -> None:
    @TinyJit
    def local(x: Tensor) -> Tensor:
        return x

    with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
        pickle.dumps(local)


@pytest.mark.parametrize("device", ["REFERENCE", "CL"])
def test_backends_without_native_replay_run_step_by_step(device: str) -> None:
    if device not in Device.get_available_devices():
        pytest.skip(f"{device} does not run here")
    count = Tensor([0.0], device=device).realize()

    @TinyJit
    def f(x: Tensor) -> Tensor:
        count.assign(count + x.sum())
        return (x + Tensor.rand(2, device=device) * 0 + count).realize()

    got = [f(Tensor([float(k), 1.0], device=device)).tolist() for k in range(4)]
    assert got == [[1, 2], [4, 4], [8, 7], [13, 11]]


def test_debug_shows_the_kernels_of_replays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    double = recorded()
    monkeypatch.setenv("DEBUG", "2")
    assert double(line(4, 5), factor=2).tolist() == [8, 10]
    assert "*** CPU" in capsys.readouterr().err


def test_replays_take_a_tenth_of_the_calls_of_python_and_leak_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHECK", "0")
    weights = [Tensor.ones(8, 8).contiguous().realize() for _ in range(20)]

    def net(x: Tensor) -> Tensor:
        for w in weights:
            x = (x @ w).relu() * 0.1
        return x.realize()

    jitted = TinyJit(net)
    x = Tensor.ones(8, 8).contiguous().realize()
    for _ in range(3):
        net(x), jitted(x)

    gc.collect()
    before = GlobalCounters.mem_used
    slow, fast = calls(lambda: net(x)), calls(lambda: jitted(x))
    gc.collect()
    assert slow / fast > 10, (slow, fast)
    assert GlobalCounters.mem_used == before


def test_state_that_an_array_shares_is_not_written_over() -> None:
    np = pytest.importorskip("numpy")
    count = line(0, 1)

    @TinyJit
    def f(x: Tensor) -> None:
        count.assign(count + x)

    for _ in range(3):
        f(line(1, 1))
    array = np.from_dlpack(count)
    f(line(1, 1))
    assert (array.tolist(), count.tolist()) == ([3, 4], [4, 5])


@pytest.mark.parametrize("is_realized", [False, True])
def test_views_of_a_tensor_that_is_only_read_are_given_as_copies(is_realized: bool) -> None:
    """Its data was brought to the device by the first call, and its graph does not say so."""
    table = Tensor([1.0, 2.0, 3.0, 4.0])
    if is_realized:
        table.realize()

    @TinyJit
    def step(x: Tensor) -> tuple[Tensor, ...]:
        whole = table.reshape(2, 2)
        return whole, whole.unsqueeze(1), whole.int(), x + 1

    given = [step(Tensor([float(k)]).realize()) for k in range(6)]
    table[:] = 10.0
    table.realize()
    for k, (whole, more, whole_ints, sum_) in enumerate(given):
        assert whole.tolist() == whole_ints.tolist() == [[1, 2], [3, 4]]
        assert more.tolist() == [[[1, 2]], [[3, 4]]]
        assert sum_.tolist() == [k + 1]
