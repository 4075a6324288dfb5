"""Tensors that are joined, beside numpy: one kernel, or one for each of them where they are long."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from test_cpu_target import cpu

from proofgrad import GlobalCounters, Tensor, TinyJit, Variable, explain
from proofgrad.core.compile.steps import split_index_set
from proofgrad.core.tensor.methods.movement.joining import GROUP, MOST_BESIDE
from proofgrad.verify.sampled.kernels import CheckError


def arrays(sizes: list[int], rest: tuple[int, ...], axis: int) -> list[np.ndarray]:
    """Arrays that differ in one axis, each element another number."""
    made, start = [], 0.0
    for size in sizes:
        shape = (*rest[:axis], size, *rest[axis:])
        made.append((start + np.arange(np.prod(shape))).reshape(shape).astype(np.float32))
        start += 1e5
    return made


CASES = [
    ([70, 1, 33, 200], (300,), 0),
    ([70, 1, 33, 200], (300,), 1),
    ([3, 0, 5, 1, 7, 2], (61, 67), 1),
    ([997] * 40, (), 0),
    ([1] * 37, (512, 3), 0),
    ([1] * 37, (512, 3), 2),
    ([4099, 4093, 2, 4111], (), 0),
]


@pytest.mark.parametrize(("sizes", "rest", "axis"), CASES)
def test_arrays_that_are_joined(sizes: list[int], rest: tuple[int, ...], axis: int) -> None:
    parts = arrays(sizes, rest, axis)
    expected = np.concatenate(parts, axis)
    tensors = [Tensor(part).realize() for part in parts]
    np.testing.assert_array_equal(Tensor.cat(*tensors, dim=axis).numpy(), expected)
    changed = (Tensor.cat(*[t + 1 for t in tensors], dim=axis) * 2).flip(axis)
    np.testing.assert_array_equal(changed.numpy(), np.flip((expected + 1) * 2, axis))


def launches(value: Tensor) -> int:
    """How many kernels run."""
    (names,) = re.findall(r"^kernel 1: (.+) on ", explain(value), re.MULTILINE)
    return len(names.split(", "))


def test_long_ones_get_a_kernel_each_and_short_ones_one_together() -> None:
    long = [Tensor.full((300, 400), float(k)).contiguous().realize() for k in range(3)]
    short = [Tensor.full((3, 4), float(k)).contiguous().realize() for k in range(3)]
    assert (launches(Tensor.cat(*long)), launches(Tensor.cat(*short))) == (3, 1)


def test_a_part_of_one_element_is_no_reason_to_ask_at_all_others() -> None:
    x = Tensor.full((200_000,), 1.0).contiguous().realize().roll(90_000)
    assert launches(x[1:] - x[:-1]) == 3


def maxima(parts: list[Tensor]) -> Tensor:
    return Tensor.cat(*parts).max(1)


def sums_of_states(parts: list[Tensor]) -> Tensor:
    """As of a state-space model: each step adds to the state, and a sum of its product is what comes out."""
    state, found = parts[0] * 0, list[Tensor]()
    for part in parts:
        state = state * 0.5 + part
        found.append((state * parts[-1]).sum(1))
    return Tensor.stack(*found, dim=1)


@pytest.mark.heuristics
@pytest.mark.parametrize(("rows", "columns"), [(301, 67), (2, 3)], ids=["long", "short"])
@pytest.mark.parametrize("function", [maxima, sums_of_states])
def test_reductions_that_are_joined_each_read_their_own_memory(
    function: Callable[[list[Tensor]], Tensor], rows: int, columns: int
) -> None:
    """In one loop each result would reduce the rows of all of them, under masks: of nine nine times the work."""
    made = np.random.default_rng(4).standard_normal((9, rows, columns)).astype(np.float32)
    with cpu("haswell"):
        found = function([Tensor(part).realize() for part in made])
        count = launches(found)
        values = found.numpy()
    if function is maxima:
        np.testing.assert_array_equal(values, made.reshape(-1, columns).max(1))
    else:
        state, expected = np.zeros((rows, columns)), []
        for part in made.astype(np.float64):
            state = state * 0.5 + part
            expected.append((state * made[-1]).sum(1))
        np.testing.assert_allclose(values, np.stack(expected, 1), rtol=1e-4, atol=1e-4)
    assert (count >= 9) == (rows > 2)


@pytest.mark.heuristics
@pytest.mark.parametrize(
    ("columns", "count"), [((64, 64), 2), ((60, 61), 1)], ids=["whole lines", "across lines"]
)
def test_rows_that_share_lines_are_joined_by_one_kernel(
    columns: tuple[int, int], count: int
) -> None:
    """Where the results do not stay in the second cache, and each row would have a line that two kernels write."""
    with cpu("haswell"):  # where a line from memory costs more than it does elsewhere
        one, other = [Tensor.ones(16_000, n).contiguous().realize() for n in columns]
        assert launches(one.cat(other, dim=1)) == count


def test_a_replay_joins_what_it_is_given() -> None:
    join = TinyJit(lambda a, b, c: a.cat(b, c, dim=1).realize())
    for step in range(4):
        parts = [part + step for part in arrays([200, 100, 50], (211,), 1)]
        found = join(*[Tensor(part).realize() for part in parts])
        np.testing.assert_array_equal(found.numpy(), np.concatenate(parts, 1))


def test_the_gradient_of_what_is_joined_goes_to_each() -> None:
    parts = [Tensor(a, requires_grad=True) for a in arrays([70, 33, 200], (300,), 0)]
    weights = np.arange(303 * 300, dtype=np.float32).reshape(303, 300)
    (Tensor.cat(*parts) * Tensor(weights)).sum().backward()
    for part, expected in zip(parts, np.split(weights, [70, 103])):
        assert part.grad is not None
        np.testing.assert_array_equal(part.grad.numpy(), expected)


@pytest.mark.parametrize("check", ["CHECK", "PROVE"])
def test_a_part_that_is_too_short_is_found(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel alone is right: that all elements are written is seen of all of them together."""
    right = split_index_set.size_of_part
    monkeypatch.setattr(split_index_set, "size_of_part", lambda a, b: right(a, b) - (a > 0))
    monkeypatch.setenv("CHECK", "1")
    monkeypatch.setenv("PROVE", "1" if check == "PROVE" else "0")
    a, b = [Tensor.full((299, 401), float(k)).contiguous().realize() for k in range(2)]
    with pytest.raises((CheckError, RuntimeError), match="written|writes"):
        Tensor.cat(a, b).realize()


@pytest.mark.parametrize("check", ["CHECK", "PROVE"])
@pytest.mark.parametrize("overlap", [1, 5000])
def test_elements_that_two_parts_change_are_found(
    check: str, overlap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second would read what the first has written, be it of one element."""
    right = split_index_set.size_of_part
    monkeypatch.setattr(
        split_index_set, "size_of_part", lambda a, b: right(a, b) + (a == 0) * overlap
    )
    monkeypatch.setenv(check, "1")
    parts = [Tensor.full((20011,), float(k)).contiguous().realize() for k in range(2)]
    state = Tensor.full((40022,), 1.0).contiguous().realize()
    with pytest.raises((CheckError, RuntimeError), match="written|expected"):
        state.assign(state * 0.5 + Tensor.cat(*parts)).realize()


def test_parts_are_proved(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROVE", "1")
    a, b = [Tensor.full((97, 403), float(k)).contiguous().realize() for k in range(2)]
    Tensor.cat(a, b, a).realize()
    assert "none unknown" in capfd.readouterr().err


@pytest.mark.parametrize("check", ["CHECK", "PROVE"])
def test_state_in_one_memory_takes_what_is_joined(
    check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the moments of an optimizer that updates all parameters as one: a kernel for each of few, sixteen of many."""
    monkeypatch.setenv(check, "1")
    for sizes in ([9973, 10007, 4099], [1009] * 37):
        parts = arrays(sizes, (), 0)
        old = np.arange(sum(sizes), dtype=np.float32)
        state = Tensor(old).realize()
        tensors = [Tensor(part).realize() for part in parts]
        before = GlobalCounters.kernel_count
        state.assign(state * 0.5 + Tensor.cat(*tensors)).realize()
        assert GlobalCounters.kernel_count - before == min(len(sizes), 16)
        np.testing.assert_array_equal(state.numpy(), old * 0.5 + np.concatenate(parts))


@pytest.mark.parametrize("change", [lambda x: x.flip(0), lambda x: x.roll(1)])
def test_state_that_is_read_elsewhere_too(change: Callable[[Tensor], Tensor]) -> None:
    parts = arrays([9973, 10007], (), 0)
    old = np.arange(19980, dtype=np.float32)
    state = Tensor(old).realize()
    expected = change(Tensor(old)).numpy() + old + np.concatenate(parts)
    state.assign(change(state) + state + Tensor.cat(*[Tensor(p).realize() for p in parts]))
    np.testing.assert_array_equal(state.numpy(), expected)


def many(count: int, kind: str, shape: tuple[int, ...] = (2, 3)) -> list[Tensor]:
    """Tensors to join: memory of their own, rows or columns of one, computed ones, or of other sizes, some without elements."""
    numbers = np.arange(count * 6, dtype=np.float32).reshape(count, 2, 3)
    whole = Tensor(numbers).realize()
    match kind:
        case "rows":
            return [whole[k] for k in range(count)]
        case "columns":
            turned = whole.permute(1, 0, 2).contiguous().realize()
            return [turned[:, k] for k in range(count)]
        case "computed":
            return [whole[k] * 2 + 1 for k in range(count)]
        case "sizes":
            return [Tensor(numbers[k, :, : k % 4]).realize() for k in range(count)]
        case "integers":
            return [Tensor(numbers[k].astype(np.int64)).realize() for k in range(count)]
        case "types":
            types = [np.float32, np.int8, np.bool_]
            return [Tensor(numbers[k].astype(types[k % 3])).realize() for k in range(count)]
        case _:
            return [Tensor(numbers[k]).realize() for k in range(count)]


@pytest.mark.parametrize(
    ("kind", "axes", "count"),
    [
        ("own", (0, 1), MOST_BESIDE + 1),
        ("rows", (0,), MOST_BESIDE),
        ("rows", (0,), MOST_BESIDE + 1),
        ("columns", (1,), 2 * GROUP + 5),
        ("computed", (1,), 2 * GROUP + 5),
        ("sizes", (1,), 2 * GROUP + 5),
        ("integers", (0,), 2 * GROUP + 5),
        ("types", (0,), 2 * GROUP + 5),
    ],
)
def test_many_tensors(kind: str, axes: tuple[int, ...], count: int) -> None:
    parts = many(count, kind)
    values = [part.numpy() for part in parts]
    for axis in axes:
        joined = Tensor.cat(*parts, dim=axis)
        np.testing.assert_array_equal(joined.numpy(), np.concatenate(values, axis))
        if kind == "own":
            stacked = Tensor.stack(*parts, dim=axis + 1)
            np.testing.assert_array_equal(stacked.numpy(), np.stack(values, axis + 1))


def test_gradients_of_many_tensors_and_of_many_parts() -> None:
    count = MOST_BESIDE + 2
    parts = [Tensor(np.full((2,), float(k), np.float32), requires_grad=True) for k in range(count)]
    weights = Tensor(np.arange(count * 2, dtype=np.float32).reshape(count, 2))
    (Tensor.stack(*parts) ** 2 * weights).sum().backward()
    Tensor.realize(*[part.grad for part in parts])
    found = np.stack([part.grad.numpy() for part in parts])
    np.testing.assert_array_equal(found, 2.0 * np.arange(count)[:, None] * weights.numpy())
    whole = Tensor(np.ones((count, 2), np.float32), requires_grad=True)
    total = sum([a * b for a, b in zip(whole.split(1), weights.chunk(count))], Tensor(0.0))
    (gradient,) = total.sum().gradient(whole)
    np.testing.assert_array_equal(gradient.numpy(), weights.numpy())


def test_many_tensors_in_a_recorded_function() -> None:
    @TinyJit
    def joined(x: Tensor) -> Tensor:
        return Tensor.stack(*[x[k] + float(k) for k in range(MOST_BESIDE + 3)]).realize()

    for seed in range(4):
        x = np.random.default_rng(seed).random((MOST_BESIDE + 3, 2), np.float32)
        expected = x + np.arange(MOST_BESIDE + 3, dtype=np.float32)[:, None]
        np.testing.assert_array_equal(joined(Tensor(x).realize()).numpy(), expected)


def test_many_tensors_of_variable_size() -> None:
    size = Variable("size", 1, 4)
    whole = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3)).realize()
    for now in (2, 4):
        parts = [whole[: size.bind(now)] + float(k) for k in range(MOST_BESIDE + 1)]
        joined = Tensor.cat(*parts, dim=1)
        expected = np.concatenate([whole.numpy()[:now] + k for k in range(MOST_BESIDE + 1)], 1)
        np.testing.assert_array_equal(joined.numpy()[:now], expected)


@pytest.mark.heuristics
def test_groups_of_many_tensors_are_one_kernel() -> None:
    parts = many(4 * GROUP, "own")
    found = [item.ast for item in Tensor.stack(*parts).schedule()]
    assert len(found) == 5
    assert len(set(found)) == 2
