"""Gradients of a graph like one that was derived before are what its own derivation gives, and no rule runs for them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import GlobalCounters, Tensor, TinyJit, custom_vjp, nn
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor import known_gradients
from proofgrad.core.tensor.autograd import node_gradients
from proofgrad.core.tensor.data import bodies
from proofgrad.core.tensor.data.bodies import parameter_below
from proofgrad.core.tensor.runtime import changing

Function = Callable[[Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def derived(monkeypatch: pytest.MonkeyPatch) -> list[UOp]:
    """The results of graphs that were derived; none is known at first."""
    found: list[UOp] = []

    def noted(order: Any, *given: Any) -> dict[UOp, UOp]:
        found.append(order[-1])
        return node_gradients(order, *given)

    monkeypatch.setattr(known_gradients, "_GRADIENTS", {})
    monkeypatch.setattr(known_gradients, "node_gradients", noted)
    return found


def data(*shape: int, seed: int) -> Tensor:
    return Tensor(np.random.default_rng(seed).uniform(0.2, 2, shape).astype(np.float32)).realize()


PROGRAMS: dict[str, Function] = {
    "product": lambda a, b: a @ b,
    "one twice": lambda a, b: a * a + b,
    "both": lambda a, b: a * b + b,
    "difference": lambda a, b: a - b,
    "turned": lambda a, b: b - a,
    "quotient": lambda a, b: a / b,
    "times two": lambda a, b: a * 2 + b,
    "times three": lambda a, b: a * 3 + b,
    "chosen": lambda a, b: (a < b).where(a * a, b),
    "largest": lambda a, b: a.max(1) * b.min(0),
    "softmax": lambda a, b: (a @ b).softmax(-1),
    "norm": lambda a, b: a.layernorm() * b,
    "taken": lambda a, b: (a * b)[Tensor([0, 2, 2])],
    "part": lambda a, b: (a * b)[1:3, ::-2],
    "joined": lambda a, b: a.cat(b * 2, dim=1),
    "padded": lambda a, b: (a * b).pad(((1, 0), (0, 2))),
    "running": lambda a, b: (a * b).cumsum(0) + a.cumprod(1),
    "in order": lambda a, b: (a * b).sort(1)[0] * a,
    "solved": lambda a, b: (a + 4 * Tensor.eye(4)).solve(b),
    "convolved": lambda a, b: a.reshape(1, 1, 4, 4).conv2d(
        b.reshape(1, 1, 4, 4)[:, :, :2, :2], stride=2
    ),
    "detached": lambda a, b: (a * b).detach() * a + b.detach() * b,
    "contiguous": lambda a, b: (a * b).contiguous() * a + b,
    "of both": lambda a, b: (a * b).relu().square().sum(1).exp().log(),
    "a row": lambda a, b: a[1] * b[2],
    "parts": lambda a, b: a[:2] * b[2:] + a[2:] * a[1:3] + a.T[1:3] * b.sum(),
    "parts of parts": lambda a, b: (
        a[1:].T[:, 1:].reshape(8)[3:5] * b[1, 1:3] * a[1:].sum() * a.sum()
    ),
    "convolved turned": lambda a, b: a.reshape(1, 1, 4, 4).conv_transpose2d(
        b.reshape(1, 1, 4, 4)[:, :, :3, :2], stride=2, padding=1
    ),
    "transformed": lambda a, b: (a * b).rfft().square() * 2,  # by tables, which are memory
    "derived again": lambda a, b: (a * b * b).sum().gradient(b)[0] * a,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_known_gradients_are_those_of_the_graph(name: str, derived: list[UOp]) -> None:
    program = PROGRAMS[name]
    for seed in range(3):
        a, b = data(4, 4, seed=seed), data(4, 4, seed=seed + 9)
        weights = data(*program(a, b).shape, seed=seed + 20)
        loss = (program(a, b) * weights).sum()
        found = loss.gradient(a, b, materialize_grads=True)
        order = loss._uop.toposort()
        wanted = node_gradients(order, loss._seed_node(None), [a._uop, b._uop])
        for one, target in zip(found, (a, b)):
            expected = target._with(wanted[target._uop]) if target._uop in wanted else one * 0
            assert np.array_equal(one.numpy(), expected.numpy()), seed


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n != "transformed"])
def test_a_graph_like_one_before_is_not_derived(name: str, derived: list[UOp]) -> None:
    for seed in range(3):
        a, b = data(4, 4, seed=seed), data(4, 4, seed=seed + 9)
        PROGRAMS[name](a, b).sum().gradient(a, b, materialize_grads=True)
        if not seed:
            count = len(derived)
    assert len(derived) == count


def test_a_loop_of_more_than_a_thousand_nodes_is_derived_once(derived: list[UOp]) -> None:
    for seed in range(2):
        state, weight = data(4, seed=seed), data(4, seed=seed + 9)
        value = state
        for _ in range(600):
            value = value * weight + state
        assert len(value.uop.toposort()) > 1000
        value.sum().gradient(state, weight)
    assert len(derived) == 1


def test_programs_that_differ_have_their_own_gradients(derived: list[UOp]) -> None:
    a, b = data(4, 4, seed=1), data(4, 4, seed=2)
    first = {
        name: [g.numpy() for g in program(a, b).sum().gradient(a, b, materialize_grads=True)]
        for name, program in PROGRAMS.items()
    }
    known_gradients._GRADIENTS.clear()
    for name, program in reversed(PROGRAMS.items()):
        for one, before in zip(
            program(a, b).sum().gradient(a, b, materialize_grads=True), first[name]
        ):
            assert np.array_equal(one.numpy(), before), name


def test_parts_of_what_is_no_target_are_arguments(derived: list[UOp]) -> None:
    images, w = data(12, 3, seed=1), data(3, 2, seed=2)
    for k in range(4):
        batch = images[3 * k : 3 * k + 3]
        (found,) = (batch @ w).square().sum().gradient(w)
        x = images.numpy()[3 * k : 3 * k + 3]
        assert np.allclose(found.numpy(), 2 * x.T @ (x @ w.numpy()), rtol=1e-5)
    assert len(derived) == 1


@pytest.mark.parametrize("power", [1.0, 1.75])
def test_numbers_that_change_are_arguments(power: float, derived: list[UOp]) -> None:
    a = data(3, 4, seed=0)
    values = a.numpy().astype(np.float64)
    for k in range(7):
        loss = ((a * (k + 0.5)) ** power).sum() / (k + 3)
        (found,) = loss.gradient(a)
        expected = power * (k + 0.5) ** power * values ** (power - 1) / (k + 3)
        assert np.allclose(found.numpy(), expected, rtol=1e-5), k
    assert len(derived) == changing.MOST_OWN + 1


def test_what_a_user_says_is_asked_each_time(derived: list[UOp]) -> None:
    slope = [2.0]
    own = custom_vjp(lambda x: x * 1, backward=lambda gradient, x: gradient * slope[0])
    for k in range(3):
        x = data(4, seed=k)
        slope[0] = k + 2.0
        assert own(x).sum().gradient(x)[0].tolist() == [k + 2.0] * 4


def test_a_value_that_was_computed_is_not_computed_again() -> None:
    counts = []
    for is_there in (False, True, False):
        w = data(4, 4, seed=1).requires_grad_()
        z = w @ w
        if is_there:
            z.realize()
        GlobalCounters.reset()
        z.exp().sum().gradient(w)[0].realize()
        counts.append(GlobalCounters.global_ops)
    assert counts[1] < counts[0] == counts[2]


def test_a_graph_is_derived_once_though_values_of_it_were_computed(derived: list[UOp]) -> None:
    for seed in range(3):
        w, x = data(4, seed=seed).requires_grad_(), data(4, seed=seed + 9)
        between = (w * x).exp().realize()
        loss = (between * between + w).sum()
        loss.item()
        loss.backward()
        assert w.grad is not None
        e = np.exp(w.numpy() * x.numpy())
        assert np.allclose(w.grad.numpy(), 2 * e * e * x.numpy() + 1, rtol=1e-5)
        (again,) = w.grad.sum().gradient(w)
        assert np.allclose(again.numpy(), 4 * (e * x.numpy()) ** 2, rtol=1e-5)
        if not seed:
            count = len(derived)
    assert len(derived) == count


def test_gradients_of_a_target_a_part_of_it_and_what_is_made_of_it(derived: list[UOp]) -> None:
    for seed in range(2):
        w = data(4, seed=seed)
        part, seen = w[1:3], w.reshape(2, 2)
        made = (w * 3).reshape(2, 2)
        loss = (part * part[1:]).sum() + (seen[0] * seen).sum() + (made[0] * made[1]).sum()
        found = loss.gradient(w, part, seen, made)
        wanted = node_gradients(
            loss._uop.toposort(), loss._seed_node(None), [t._uop for t in (w, part, seen, made)]
        )
        for one, target in zip(found, (w, part, seen, made)):
            expected = target._with(wanted[target._uop])
            assert np.allclose(one.numpy(), expected.numpy(), rtol=1e-6)


def test_gradient_of_what_was_realised_between_two_uses_has_both() -> None:
    for asks in (True, None):
        p = Tensor([1.0, 2.0], requires_grad=asks)
        first = p * p
        p.realize()
        assert (first * p).sum().gradient(p)[0].tolist() == [3.0, 12.0]


def test_a_gradient_holds_what_it_reads_alone() -> None:
    for _ in range(2):
        a, b, c = data(4, seed=1), data(4, seed=2), data(4, seed=3)
        (found,) = (a * b + c.exp()).sum().gradient(a)
        held = weakref.ref(c._uop)
        del c
        gc.collect()
        assert held() is None
        assert np.array_equal(found.numpy(), b.numpy())


def test_a_recorded_function_reads_the_values_that_lie_between_as_they_are_then() -> None:
    w = data(4, seed=1)
    between = (w * 2).realize()

    @TinyJit
    def slope(x: Tensor) -> Tensor:
        return (between * x * x).sum().gradient(x)[0].realize()

    for k in range(5):
        between.assign(Tensor([k + 1.0] * 4))
        x = data(4, seed=k)
        assert np.allclose(slope(x).numpy(), 2 * (k + 1) * x.numpy())


def test_gradients_within_no_grad_and_outside_are_two() -> None:
    for _ in range(2):
        x = data(4, seed=1)
        with Tensor.no_grad():
            assert not any(x.square().sum().gradient(x, materialize_grads=True)[0].tolist())
        (first,) = (x * x * x).sum().gradient(x)
        assert np.allclose(first.sum().gradient(x)[0].numpy(), 6 * x.numpy())


def test_a_training_loop_that_is_not_recorded_ends_where_a_recorded_one_does(
    derived: list[UOp],
) -> None:
    images, labels = data(64, 8, seed=1), Tensor(np.arange(64) % 3).realize()

    def train(is_recorded: bool) -> list[Any]:
        Tensor.manual_seed(7)
        layers = [nn.Linear(8, 16), nn.Linear(16, 3)]
        optimizer = nn.optim.Adam(nn.state.get_parameters(layers), 0.01)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = layers[1](layers[0](x).relu().dropout(0.2)).cross_entropy(y).backward()
            return loss.realize(*optimizer.schedule_step())

        run = TinyJit(step) if is_recorded else step
        with Tensor.train():
            losses = [
                run(images[k : k + 16].contiguous(), labels[k : k + 16].contiguous()).item()
                for k in (0, 16, 32, 48, 0, 16)
            ]
        return [losses, *[p.numpy() for p in nn.state.get_parameters(layers)]]

    plain = train(False)
    assert len(derived) == 1
    for one, other in zip(plain, train(True)):
        assert np.allclose(one, other, rtol=1e-5, atol=1e-7)


def test_gradients_of_many_layers_are_made_of_what_they_have_in_common(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    visits = [0]

    def counted(node: UOp) -> UOp | None:
        visits[0] += 1
        return parameter_below(node)

    monkeypatch.setattr(bodies, "parameter_below", counted)
    scales = [data(2, seed=k).requires_grad_() for k in range(40)]
    x = data(2, seed=40)
    for scale in scales:
        x = (x * scale).sin()
    gradients = x.sum().gradient(*scales)
    shown = bodies.without_bodies(UOp.sink(*[gradient._uop for gradient in gradients]))
    assert visits[0] < 4 * len(shown.toposort()), visits
