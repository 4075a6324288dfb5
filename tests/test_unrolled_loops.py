"""Loops over time as users write them: beside numpy, and without the work of earlier steps in each later one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from proofgrad import Tensor
from proofgrad.core.compile.fusion.carried_values import (
    LONG_KERNEL_CYCLES,
    _cycles_of_kernels,
    least_cycles,
)
from proofgrad.core.compile.fusion.limits import LONG_CHAIN_CYCLES
from proofgrad.core.compile.fusion.views import FEW_REDUCTIONS, MOST_PLACED
from proofgrad.core.compile.schedule.operation_cycles import OPERATION_CYCLES
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run


def real(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape, np.float32)).realize()


def bodies(value: Tensor) -> list[UOp]:
    return [item.ast for item in value.schedule() if not item.is_copy]


def lowered_operations(value: Tensor) -> int:
    """Elementwise operations of floats, with their loops: of all kernels that differ."""
    nests = [compiler().index_terms(body) for body in dict.fromkeys(bodies(value))]
    return sum([n.op in ELEMENTWISE and n.dtype.is_float for k in nests for n in k.toposort()])


def average(steps: int) -> Tensor:
    x = real(steps, 5)
    mean, states = x[0], [x[0]]
    for k in range(1, steps):
        mean = mean * 0.9 + x[k] * 0.1
        states.append(mean)
    return Tensor.stack(*states)


def sums_of_steps(steps: int) -> Tensor:
    x, sums = real(7), []
    for _ in range(steps):
        x = x + x.sin() * 0.1
        sums.append(x.sum())
    return Tensor.stack(*sums)


def forward_variables(steps: int) -> Tensor:
    """The recursion of a CTC loss, whose state is read as it is, and one and two places further."""
    scores, state = real(steps, 9), real(9, seed=1)
    for k in range(steps):
        one, two = state[:-1].pad(((1, 0),)), state[:-2].pad(((2, 0),))
        largest = state.maximum(one).maximum(two)
        total = (state - largest).exp() + (one - largest).exp() + (two - largest).exp()
        state = largest + total.log() + scores[k]
    return state


def pendulum(angle: Tensor, speed: Tensor, steps: int, pull: Tensor | float = 1.0) -> list[Tensor]:
    """The angles after each step of a Runge-Kutta method."""
    angles, h = [], 0.05
    for _ in range(steps):
        one, pulled = speed, -angle.sin() * pull
        two, pulled_two = speed + pulled * (h / 2), -(angle + one * (h / 2)).sin() * pull
        three, pulled_three = speed + pulled_two * (h / 2), -(angle + two * (h / 2)).sin() * pull
        four, pulled_four = speed + pulled_three * h, -(angle + three * h).sin() * pull
        angle = angle + (one + 2 * two + 2 * three + four) * (h / 6)
        speed = speed + (pulled + 2 * pulled_two + 2 * pulled_three + pulled_four) * (h / 6)
        angles.append(angle)
    return angles


def path(steps: int) -> Tensor:
    return Tensor.stack(*pendulum(real(9), real(9, seed=1), steps))


def gradients_of_path(steps: int) -> Tensor:
    start = real(9), real(9, seed=1)
    return Tensor.stack(*Tensor.stack(*pendulum(*start, steps)).square().sum().gradient(*start))


def gradient_of_pull(steps: int) -> Tensor:
    """A sum over all steps, each of which uses it four times."""
    pull = real(1, seed=2)
    last = pendulum(real(9), real(9, seed=1), steps, pull)[-1]
    return last.square().sum().gradient(pull)[0]


def euler(steps: int) -> Tensor:
    y = real(9)
    for _ in range(steps):
        y = y + (y.sin() - y * 0.5) * 0.01
    return y


@pytest.mark.heuristics
@pytest.mark.parametrize(
    "program",
    [average, sums_of_steps, forward_variables, euler, path, gradients_of_path, gradient_of_pull],
)
def test_work_of_a_loop_grows_no_faster_than_its_steps(program: Callable[[int], Tensor]) -> None:
    short, long = lowered_operations(program(8)), lowered_operations(program(32))
    assert long < 5 * short


@pytest.mark.parametrize("steps", [1, 2, 3, 17, 40])
def test_states_of_an_average_that_are_stacked(steps: int) -> None:
    x = real(steps, 5).numpy()
    expected = [x[0]]
    for k in range(1, steps):
        expected.append(expected[-1] * np.float32(0.9) + x[k] * np.float32(0.1))
    assert np.array_equal(average(steps).numpy(), np.stack(expected))


@pytest.mark.parametrize("steps", [1, 5, 23])
def test_sums_of_all_steps(steps: int) -> None:
    x, expected = real(7).numpy().astype(np.float64), []
    for _ in range(steps):
        x = x + np.sin(x) * 0.1
        expected.append(x.sum())
    assert np.allclose(sums_of_steps(steps).numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("places", [(0, 1), (1, 0), (0, 1, 2), (2, 0, 0)], ids=str)
@pytest.mark.parametrize("shape", [(5, 9, 7), (2, 3, 9, 1), (3, 9, 64)], ids=str)
def test_steps_that_read_those_beside_them_have_one_kernel(
    shape: tuple[int, ...], places: tuple[int, ...]
) -> None:
    x, axis = real(*shape), shape.index(9)
    values, steps = x.numpy(), range(1, 8 - max(places))
    made, expected = [], []
    for step in steps:
        taken = [x[(slice(None),) * axis + (step + place,)] for place in places]
        made.append(taken[0] * 0.5 - taken[1] + taken[-1].floor())
        rows = [values.take(step + place, axis) for place in places]
        expected.append(rows[0] * np.float32(0.5) - rows[1] + np.floor(rows[-1]))
    graph = compiler().kernel_graph(graph_to_run([value.uop for value in made], "CPU"))
    assert len(graph.src) == len(steps) and len({call.src[0] for call in graph.src}) == 1
    Tensor.realize(*made)
    assert np.array_equal([value.numpy() for value in made], expected)


@pytest.mark.parametrize("axes", [(1,), (2,), (0, 2), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("shape", [(4, 6, 10), (7, 9, 5), (6, 4, 12)], ids=str)
@pytest.mark.parametrize("kind", [np.float32, np.int16, np.float64])
def test_blocks_of_a_memory_have_one_kernel(
    shape: tuple[int, ...], axes: tuple[int, ...], kind: type
) -> None:
    values = np.arange(np.prod(shape)).reshape(shape).astype(kind)
    x, places = Tensor(values).realize(), range(min([shape[axis] for axis in axes]) - 1)
    blocks = [
        tuple([slice(k, k + 2) if axis in axes else slice(None) for axis in range(3)])
        for k in places
    ]
    made = [(x[block] * 2).sum(-1) for block in blocks]
    graph = compiler().kernel_graph(graph_to_run([value.uop for value in made], "CPU"))
    assert len(graph.src) == len(blocks) and len({call.src[0] for call in graph.src}) == 1
    Tensor.realize(*made)
    for value, block in zip(made, blocks):
        assert np.array_equal(value.numpy(), (values[block] * kind(2)).sum(-1, dtype=kind))


def test_a_block_that_no_other_kernel_takes_is_read_from_all_of_its_memory() -> None:
    """Vectors may then reach over the end of its last row."""
    x = real(6, 10)
    (body,) = bodies(x[2:5, 1:4] * 2)
    assert [n.arg for n in body.toposort() if n.op is Ops.PARAM] == [(1, 60)]
    assert np.array_equal((x[2:5, 1:4] * 2).numpy(), x.numpy()[2:5, 1:4] * 2)


def test_a_row_beside_a_block_is_a_part() -> None:
    """A loop over batches has one kernel, whatever else a batch is multiplied by."""
    x, weight = real(9, 5), real(5, 8, seed=1)
    (body,) = bodies(x[4:6] @ weight[:, 1:4])
    sizes = {n.arg[1] for n in body.toposort() if n.op is Ops.PARAM}
    assert 2 * 5 in sizes
    expected = x.numpy()[4:6] @ weight.numpy()[:, 1:4]
    assert np.allclose((x[4:6] @ weight[:, 1:4]).numpy(), expected, atol=1e-5)


def linear_attention(queries: Tensor, keys: Tensor, rows: int) -> Tensor:
    """Of some rows at a time: those before are in a matrix."""
    state, found = Tensor.zeros(2, 5, 5), list[Tensor]()
    for k in range(0, queries.shape[1], rows):
        query, key = queries[:, k : k + rows], keys[:, k : k + rows]
        found.append(query @ state + (query @ key.transpose(1, 2)).tril() @ key)
        state = state + key.transpose(1, 2) @ key
    return Tensor.cat(*found, dim=1)


def test_linear_attention_of_many_rows_has_the_kernels_of_few() -> None:
    """But for those that put the results together."""

    def kernels(rows: int) -> int:
        queries, keys = real(2, rows, 5), real(2, rows, 5, seed=1)
        loss = linear_attention(queries, keys, 3).square().sum()
        gradients = loss.gradient(queries, keys)
        graph = graph_to_run([value.uop for value in (loss, *gradients)], "CPU")
        return len({call.src[0] for call in compiler().kernel_graph(graph).src})

    assert kernels(3 * 14) <= kernels(3 * 8) + 2


def test_linear_attention_by_rows_is_that_of_all_rows() -> None:
    queries, keys = real(2, 21, 5), real(2, 21, 5, seed=1)
    whole = np.tril(queries.numpy() @ keys.numpy().swapaxes(1, 2)) @ keys.numpy()
    assert np.allclose(linear_attention(queries, keys, 3).numpy(), whole, atol=1e-3)


@pytest.mark.parametrize("places", [range(9), (0, 8)], ids=str)
def test_a_kernel_that_reads_from_the_first_to_the_last_step_has_all_of_the_memory(
    places: Sequence[int],
) -> None:
    x = real(4, 9, 5)
    total = x[:, places[0]]
    for k in places[1:]:
        total = total - x[:, k]
    (body,) = bodies(total)
    assert [n.arg for n in body.toposort() if n.op is Ops.PARAM] == [(1, 4 * 9 * 5)]
    first, *others = [x.numpy()[:, k] for k in places]
    assert np.array_equal(total.numpy(), functools.reduce(np.subtract, others, first))


@pytest.mark.heuristics
def test_a_long_chain_is_cut_where_a_step_ends_so_that_kernels_are_alike() -> None:
    steps = 4 * LONG_CHAIN_CYCLES // round(OPERATION_CYCLES[Ops.SIN])
    found = bodies(euler(steps))
    assert len(set(found)) < len(found)
    read = [sum([n.op is Ops.PARAM for n in body.toposort()]) for body in found]
    assert max(read) == 1  # the state alone
    y = real(9).numpy().astype(np.float64)
    for _ in range(steps):
        y = y + (np.sin(y) - y * 0.5) * 0.01
    assert np.allclose(euler(steps).numpy(), y, atol=1e-5)


@pytest.mark.heuristics
@pytest.mark.parametrize("program", [path, gradients_of_path])
def test_no_kernel_runs_all_steps_of_a_loop_that_carries_two_values(
    program: Callable[[int], Tensor],
) -> None:
    found = bodies(program(40))
    assert (
        max([sum([n.op in ELEMENTWISE for n in body.toposort()]) for body in found]) < 40 * 24 / 2
    )


@pytest.mark.heuristics
def test_a_sum_of_what_takes_long_is_taken_in_parts() -> None:
    x, terms = real(9), round(2 * LONG_KERNEL_CYCLES / OPERATION_CYCLES[Ops.SIN])
    total = sum([(x * k).sin() for k in range(1, terms)], x)
    found = bodies(total)
    assert max([[n.op for n in body.toposort()].count(Ops.SIN) for body in found]) < terms / 8


@pytest.mark.parametrize("steps", [1, 2, 3, 17, 40])
def test_a_loop_that_carries_two_values(steps: int) -> None:
    def moved(a: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.stack([v, -np.sin(a)])

    state, path_of_it, h = (
        np.stack([real(9).numpy(), real(9, seed=1).numpy()]).astype(float),
        [],
        0.05,
    )
    for _ in range(steps):
        one = moved(*state)
        two = moved(*state + one * h / 2)
        three = moved(*state + two * h / 2)
        state = state + (one + 2 * two + 2 * three + moved(*state + three * h)) * h / 6
        path_of_it.append(state[0])
    assert np.allclose(path(steps).numpy(), path_of_it, atol=1e-5)


@pytest.mark.heuristics
def test_a_chain_is_not_cut_where_what_was_before_is_used_behind() -> None:
    x, y = real(9), real(9, seed=1)
    for _ in range(4 * LONG_CHAIN_CYCLES // 100):
        x, y = x + y.sin() * 0.1, y - x.sin() * 0.1
    assert len(bodies(x + y)) == 1


@pytest.mark.heuristics
@pytest.mark.parametrize("count", [FEW_REDUCTIONS, FEW_REDUCTIONS + 4])
def test_few_reductions_compute_what_they_share(count: int) -> None:
    """As the maximum, the sum and the weights of a softmax do."""
    x = (real(8, 64).sin() + 1).sin()
    total = x.sum(1)
    for k in range(count - 1):
        total = total + (x * float(k)).max(1)
    kernels = bodies(total)
    assert (Ops.SIN in {n.op for n in kernels[-1].toposort()}) == (count == FEW_REDUCTIONS)


@pytest.mark.heuristics
@pytest.mark.parametrize("inner", [MOST_PLACED - 1, MOST_PLACED])
def test_many_that_are_joined_are_stored_before_they_are_joined_to_others(inner: int) -> None:
    rows = [Tensor.stack(*[real(3, seed=7 * k + j) for j in range(inner)]) for k in range(2)]
    joined = Tensor.cat(*rows)
    assert len(bodies(joined)) == (3 if inner == MOST_PLACED else 1)
    assert np.array_equal(joined.numpy(), np.concatenate([row.numpy() for row in rows]))


def of_columns(x: Tensor) -> Tensor:
    return sum([x[:, k].sin() * (k + 1.0) for k in range(40)], Tensor(0.0)).sum()


def of_rows(x: Tensor) -> Tensor:
    return Tensor.stack(*[x[k].exp() for k in range(40)]).sum()


def of_overlapping_windows(x: Tensor) -> Tensor:
    return sum([(x[k : k + 3, k : k + 2] ** 2).sum() for k in range(38)], Tensor(0.0))


def of_chunks_and_all(x: Tensor) -> Tensor:
    return sum([(part * part).sum() for part in x.split(1, dim=1)], x.sin().sum())


def squares_in_windows(x: np.ndarray) -> np.ndarray:
    counts = np.zeros_like(x)
    for k in range(38):
        counts[k : k + 3, k : k + 2] += 1
    return 2 * x * counts


@pytest.mark.heuristics
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (of_columns, lambda x: np.cos(x) * np.arange(1, 41)),
        (of_rows, np.exp),
        (of_overlapping_windows, squares_in_windows),
        (of_chunks_and_all, lambda x: 2 * x + np.cos(x)),
    ],
)
def test_gradient_of_many_slices_is_few_kernels(
    program: Callable[[Tensor], Tensor], expected: Callable[[np.ndarray], np.ndarray]
) -> None:
    x = real(40, 40)
    (found,) = program(x).gradient(x)
    assert len(bodies(found)) <= 3
    assert np.allclose(found.numpy(), expected(x.numpy()), atol=1e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("loop", [average, sums_of_steps, forward_variables])
def test_the_cheapest_kernels_are_found_without_those_that_all_choices_have(
    loop: Callable[[int], Tensor], seed: int
) -> None:
    random, nodes = np.random.default_rng(seed), UOp.sink(loop(8)._uop).toposort()
    computed = [n for n in nodes if n.op in ELEMENTWISE]

    def drawn(part: float) -> set[UOp]:
        return {n for n in computed if random.random() < part}

    stored = drawn(0.2)
    choices = [drawn(0.1) for _ in range(3)]
    choices.append(choices[0] | drawn(0.1))
    every = [_cycles_of_kernels(nodes, stored | ends, set(nodes)) for ends in choices]
    assert len(set(every)) > 1
    assert least_cycles(nodes, stored, choices) is choices[every.index(min(every))]
