"""Optimisers, schedules and clipping: against torch, and against the formulas of the papers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensors import numbers

from proofgrad import GlobalCounters, JitError, ShapeError, Tensor, TinyJit, dtypes, nn
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.nn import optim
from proofgrad.nn.state import get_parameters, get_state_dict, load_state_dict

Array = np.ndarray[Any, Any]
STEPS = 20
SHAPES = ((3, 4), (5,))


def targets() -> list[Array]:
    return [numbers(*shape, seed=k + 10) for k, shape in enumerate(SHAPES)]


def starts() -> list[Array]:
    return [numbers(*shape, seed=k) for k, shape in enumerate(SHAPES)]


def gradient(value: Array, target: Array) -> Array:
    """Of sum((value - target)^4): other than a square's, it is not linear."""
    return 4 * (value - target) ** 3


def trained(make: Callable[[list[Tensor]], optim.Optimizer], shapes: int = 2) -> list[Array]:
    """The parameters after STEPS steps."""
    params = [Tensor(start) for start in starts()[:shapes]]
    goals = [Tensor(target, requires_grad=False) for target in targets()[:shapes]]
    optimizer = make(params)
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses = [((p - goal) ** 4).sum() for p, goal in zip(params, goals, strict=True)]
        sum(losses[1:], losses[0]).backward()
        optimizer.step()
    return [param.numpy() for param in params]


Make = Callable[[Any, list[Any]], Any]
AGAINST_TORCH: dict[str, tuple[Make, Make]] = {
    "SGD": (lambda o, p: o.SGD(p, 0.003), lambda t, p: t.SGD(p, 0.003)),
    "SGD with decay": (
        lambda o, p: o.SGD(p, 0.003, weight_decay=0.05),
        lambda t, p: t.SGD(p, 0.003, weight_decay=0.05),
    ),
    "SGD with momentum": (
        lambda o, p: o.SGD(p, 0.001, momentum=0.9, weight_decay=0.01),
        lambda t, p: t.SGD(p, 0.001, momentum=0.9, weight_decay=0.01),
    ),
    "SGD with Nesterov": (
        lambda o, p: o.SGD(p, 0.001, momentum=0.9, nesterov=True),
        lambda t, p: t.SGD(p, 0.001, momentum=0.9, nesterov=True),
    ),
    "classic SGD at a constant rate": (
        lambda o, p: o.SGD(p, 0.001, momentum=0.9, classic=True),
        lambda t, p: t.SGD(p, 0.001, momentum=0.9),
    ),
    "Adam": (lambda o, p: o.Adam(p, 0.05), lambda t, p: t.Adam(p, 0.05)),
    "Adam with decay": (
        lambda o, p: o.Adam(p, 0.05, 0.8, 0.99, 1e-6, weight_decay=0.1),
        lambda t, p: t.Adam(p, 0.05, (0.8, 0.99), 1e-6, 0.1),
    ),
    "AdamW": (
        lambda o, p: o.AdamW(p, 0.05, weight_decay=0.1),
        lambda t, p: t.AdamW(p, 0.05, weight_decay=0.1),
    ),
    "fused SGD": (
        lambda o, p: o.SGD(p, 0.001, momentum=0.9, fused=True),
        lambda t, p: t.SGD(p, 0.001, momentum=0.9),
    ),
    "fused AdamW": (lambda o, p: o.AdamW(p, 0.05, fused=True), lambda t, p: t.AdamW(p, 0.05)),
}


@pytest.mark.parametrize("name", AGAINST_TORCH)
def test_twenty_steps_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    make, make_twin = AGAINST_TORCH[name]
    params = [torch.tensor(start, dtype=torch.float64, requires_grad=True) for start in starts()]
    twin = make_twin(torch.optim, params)
    for _ in range(STEPS):
        for param, target in zip(params, targets(), strict=True):
            param.grad = torch.tensor(gradient(param.detach().numpy(), target))
        twin.step()
    found = trained(lambda p: make(optim, p))
    for start, after, expected in zip(starts(), found, params, strict=True):
        np.testing.assert_allclose(after, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
        assert np.abs(after - start).max() > 1e-3


@pytest.mark.parametrize("name", AGAINST_TORCH)
def test_steps_of_float64_are_those_of_torch_to_its_last_digits(name: str) -> None:
    """The rate, the powers of b1 and b2 and the norm of gradients had the digits of float32."""
    torch = pytest.importorskip("torch")
    make, make_twin = AGAINST_TORCH[name]
    start, target = [values[0].astype(np.float64) for values in (starts(), targets())]
    param, twin_param = Tensor(start), torch.tensor(start, requires_grad=True)
    optimizer, twin = make(optim, [param]), make_twin(torch.optim, [twin_param])
    for _ in range(5):
        param.grad = Tensor(gradient(param.numpy(), target))
        twin_param.grad = torch.tensor(gradient(twin_param.detach().numpy(), target))
        optim.clip_grad_norm_([param], 0.7)
        torch.nn.utils.clip_grad_norm_([twin_param], 0.7)
        optimizer.step()
        twin.step()
    np.testing.assert_allclose(param.numpy(), twin_param.detach().numpy(), rtol=1e-12)


def test_muon_goes_where_the_one_of_torch_goes() -> None:
    torch = pytest.importorskip("torch")
    param = torch.tensor(starts()[0], requires_grad=True)
    twin = torch.optim.Muon([param], lr=0.02, weight_decay=0.1)
    for _ in range(STEPS):
        param.grad = torch.tensor(gradient(param.detach().numpy(), targets()[0]))
        twin.step()
    (found,) = trained(lambda p: optim.Muon(p, lr=0.02), shapes=1)
    # torch takes the Newton-Schulz steps, 15 products, in bfloat16, which has 8 bits
    np.testing.assert_allclose(found, param.detach().numpy(), atol=20 * 0.02 * 2**-5)


# -- formulas of the papers -----------------------------------------------------------------------


def norm(x: Array) -> float:
    return float(np.sqrt((x * x).sum()))


def by_lars(p: Array, target: Array) -> Array:
    velocity = np.zeros_like(p)
    for _ in range(STEPS):
        g = gradient(p, target)
        local = 0.02 * norm(p) / (norm(g) + 0.1 * norm(p))
        velocity = 0.9 * velocity + 0.5 * local * (g + 0.1 * p)
        p = p - velocity
    return p


def by_lars_decayed_beside(p: Array, target: Array) -> Array:
    velocity = np.zeros_like(p)
    for _ in range(STEPS):
        g = gradient(p, target)
        local = 0.02 * norm(p) / (norm(g) + 0.1 * norm(p))
        velocity = 0.9 * velocity + 0.5 * local * g
        p = p - velocity - 0.1 * 0.5 * p
    return p


def by_lamb(p: Array, target: Array) -> Array:
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t in range(1, STEPS + 1):
        g = gradient(p, target)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        r = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + 0.1 * p
        p = p - 0.05 * norm(p) / norm(r) * r
    return p


def by_muon(p: Array, target: Array) -> Array:
    velocity = np.zeros_like(p)
    for _ in range(STEPS):
        g = gradient(p, target)
        velocity = 0.95 * velocity + g
        x = g + 0.95 * velocity
        x = x / (norm(x) + 1e-7)
        x = x.T if len(x) > len(x[0]) else x
        for _ in range(5):
            y = x @ x.T
            x = 3.4445 * x + (-4.775 * y + 2.0315 * y @ y) @ x
        x = x if x.shape == p.shape else x.T
        p = p - 0.02 * (x + 0.1 * p)
    return p


FORMULAS: dict[str, tuple[Make, Callable[[Array, Array], Array]]] = {
    "LARS": (lambda o, p: o.LARS(p, 0.5, 0.9, 0.1, tcoef=0.02), by_lars),
    "LARS pre_wd": (
        lambda o, p: o.LARS(p, 0.5, 0.9, 0.1, tcoef=0.02, pre_wd=False),
        by_lars_decayed_beside,
    ),
    "LAMB": (lambda o, p: o.LAMB(p, 0.05, weight_decay=0.1), by_lamb),
    "Muon": (lambda o, p: o.Muon(p, 0.02), by_muon),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_twenty_steps_follow_the_formula_of_the_paper(name: str) -> None:
    make, formula = FORMULAS[name]
    shapes = 1 if name == "Muon" else 2
    found = trained(lambda p: make(optim, p), shapes)
    for after, start, target in zip(found, starts(), targets(), strict=False):
        expected = formula(start.astype(np.float64), target.astype(np.float64))
        np.testing.assert_allclose(after, expected, rtol=2e-4, atol=2e-5)


def test_layerwise_rates_of_zero_values_are_plain_rates() -> None:
    param = Tensor([0.0, 0.0], requires_grad=True)
    optimizer = optim.LARS([param], 0.5, momentum=0.0, weight_decay=0.0)
    (param * Tensor([1.0, 2.0], requires_grad=False)).sum().backward()
    optimizer.step()
    assert param.tolist() == [-0.5, -1.0]


def test_muon_takes_matrices_only() -> None:
    with pytest.raises(ShapeError, match=r"2 axes or more, not of shape \(3,\)"):
        optim.Muon([Tensor([1.0, 2.0, 3.0])])


# -- parameters, state, kernels -------------------------------------------------------------------


def test_lazy_expressions_become_parameters_that_are_updated() -> None:
    Tensor.manual_seed(0)
    weights = [Tensor.randn(4, 8) * 0.1, Tensor.randn(8, 1) * 0.1]
    optimizer = optim.Adam(weights, lr=0.05)
    x = Tensor(numbers(16, 4), requires_grad=False)
    y = x.sum(1, keepdim=True).detach().realize()
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (x.linear(weights[0]).tanh().linear(weights[1]) - y).pow(2).mean()
        loss.backward()
        loss.realize(*optimizer.schedule_step())
        losses.append(float(loss.item()))
    assert losses[-1] < 0.2 * losses[0]


def kernels_of_a_step(optimizer: optim.Optimizer) -> list[int]:
    counts = []
    for _ in range(3):
        optimizer.zero_grad()
        total = sum([(p * 2).sum() for p in optimizer.params[1:]], optimizer.params[0].sum())
        total.backward()
        Tensor.realize(*[param.grad for param in optimizer.params])
        before = GlobalCounters.kernel_count
        optimizer.step()
        counts.append(GlobalCounters.kernel_count - before)
    return counts


def test_a_step_runs_one_kernel_for_each_tensor_that_changes() -> None:
    def params() -> list[Tensor]:
        return [Tensor(numbers(3, 2)), Tensor(numbers(4)), Tensor(numbers(2, 2))]

    assert kernels_of_a_step(optim.SGD(params())) == [3] * 3
    assert kernels_of_a_step(optim.SGD(params(), momentum=0.9)) == [6] * 3
    # Of Adam four are of one element each: the powers of betas, and what they correct moments by.
    assert kernels_of_a_step(optim.Adam(params())) == [4 + 3 * 3] * 3
    assert kernels_of_a_step(optim.Adam(params(), fused=True)) == [4 + 2 + 3] * 3


def test_a_gradient_is_computed_in_the_kernel_of_the_velocity() -> None:
    """The parameter reads the velocity from its memory, and neither the gradient nor the old velocity."""
    optimizer = optim.SGD([Tensor(numbers(5000))], momentum=0.9)
    counts = []
    for _ in range(3):
        optimizer.zero_grad()
        (optimizer.params[0] * 3).sin().sum().backward()
        before = GlobalCounters.kernel_count
        optimizer.step()
        counts.append(GlobalCounters.kernel_count - before)
    assert counts == [2] * 3


def test_a_velocity_that_is_read_before_it_is_assigned_is_computed_once() -> None:
    gradient, velocity, weight = [Tensor(numbers(5000)).realize() for _ in range(3)]
    expected = [velocity.numpy(), weight.numpy()]

    @TinyJit
    def step(gradient: Tensor) -> None:
        new = velocity * 0.5 + (gradient * 3).sin()
        velocity.assign(new)
        weight.assign(weight - new * 0.5)
        Tensor.realize(velocity, weight)

    for _ in range(4):
        before = GlobalCounters.kernel_count
        step(gradient)
        assert GlobalCounters.kernel_count - before == 2
        expected[0] = expected[0] * 0.5 + np.sin(gradient.numpy() * 3)
        expected[1] = expected[1] - expected[0] * 0.5
    assert np.allclose(velocity.numpy(), expected[0], atol=1e-5)
    assert np.allclose(weight.numpy(), expected[1], atol=1e-5)


def test_a_value_under_several_names_is_written_to_under_one() -> None:
    source = Tensor(numbers(5000)).realize()
    value, first, second = source * 2 + 1, source.clone(), source.clone()
    first.assign(value)
    second.assign(value)
    Tensor.realize(value, first, second)
    known = source.numpy() * 2 + 1
    first.assign(first + 1).realize()
    second[0] = 7.0
    second.realize()
    assert (value.numpy() == known).all() and (first.numpy() == known + 1).all()
    assert second.numpy()[0] == 7 and (second.numpy()[1:] == known[1:]).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda params: optim.SGD(params, momentum=0.9),
        optim.Adam,
        optim.AdamW,
        optim.LAMB,
        optim.Adagrad,
        optim.Muon,
        lambda params: optim.RMSprop(params, momentum=0.9, centered=True),
        lambda params: optim.Adam(params, fused=True),
    ],
)
def test_the_second_step_is_compiled_with_the_first(
    make: Callable[[list[Tensor]], optim.Optimizer],
) -> None:
    param = Tensor(numbers(3, 4))
    optimizer = make([param])
    plans = []
    for _ in range(2):
        optimizer.zero_grad()
        (param**4).sum().backward()
        optimizer.step()
        plans.append(dict(compiler()._plans))
    assert plans[0] == plans[1]


@pytest.mark.parametrize("b1, b2", [(0.9, 0.999), (0.0, 0.99999)])
def test_first_steps_of_adam_in_float32_are_off_by_rounding_alone(b1: float, b2: float) -> None:
    """1 - b2 ** steps is 0.001 and less: of float32 numbers near 1 the difference keeps few digits."""
    slope, param = numbers(7, seed=3).astype(np.float32), Tensor.zeros(7).contiguous()
    optimizer = optim.Adam([param.requires_grad_()], lr=1.0, b1=b1, b2=b2, eps=0.0)
    for step in (1, 2, 3, 4):
        param.assign(Tensor.zeros(7)).grad = Tensor(slope)
        optimizer.step()
        np.testing.assert_allclose(param.numpy(), -np.sign(slope), rtol=1e-6, err_msg=str(step))


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW, optim.LAMB])
def test_steps_do_not_depend_on_the_default_float(
    kind: Callable[..., optim.Optimizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = trained(lambda params: kind(params, lr=0.1))
    monkeypatch.setattr(dtypes, "default_float", dtypes.float16)
    for found, value in zip(trained(lambda params: kind(params, lr=0.1)), expected):
        np.testing.assert_array_equal(found, value)


def test_state_has_the_names_of_checkpoints() -> None:
    names = list(get_state_dict(optim.Adam([Tensor([1.0])])))
    assert names == ["params.0", "lr", "b1_t", "b2_t", "m.0", "v.0"]
    assert list(get_state_dict(optim.SGD([Tensor([1.0])], momentum=0.9))) == [
        "params.0",
        "lr",
        "b.0",
    ]


def test_state_of_narrow_parameters_is_wide_and_of_wide_ones_wider() -> None:
    half = Tensor(numbers(3)).half().realize()
    double = Tensor(numbers(3).astype(np.float64))
    for param, wide in ((half, dtypes.float32), (double, dtypes.float64)):
        optimizer = optim.Adam([param], lr=0.01)
        before, kind = param.numpy(), param.dtype
        (param * 3).sum().backward()
        optimizer.step()
        assert optimizer.m[0].dtype is wide and param.dtype is kind
        np.testing.assert_allclose(param.numpy(), before - 0.01, rtol=2e-3)


def test_state_lives_on_another_device_if_asked() -> None:
    param = Tensor([1.0, 2.0], device="CPU")
    optimizer = optim.SGD([param], 0.5, momentum=0.9, device="REFERENCE")
    assert optimizer.b[0].device == "REFERENCE"
    (param * param).sum().backward()
    optimizer.step()
    assert (param.device, param.tolist()) == ("CPU", [0.0, 0.0])


def test_group_steps_all_and_gives_them_by_position() -> None:
    a, b = Tensor([1.0]), Tensor([1.0])
    group = optim.OptimizerGroup(optim.SGD([a], 0.5), optim.SGD([b], 0.25))
    (a + b).sum().backward()
    group.step()
    assert (a.tolist(), b.tolist()) == ([0.5], [0.75])
    assert group[1].params == [b] or group[1].params[0] is b
    group.zero_grad()
    assert a.grad is None and b.grad is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: optim.SGD(p, -0.1), "rate must be 0 or more, not -0.1"),
        (lambda p: optim.SGD(p, momentum=-1), "0 or more, not -1"),
        (lambda p: optim.Adam(p, b1=1.0), r"b1 and b2 must be in \[0, 1\)"),
        (lambda p: optim.SGD([Tensor([1])]), "a parameter that takes gradients"),
        (lambda p: optim.OptimizerGroup(), "needs an optimizer"),
        (lambda p: optim.Adam(p, fused=True).step(), "needs the gradient of each"),
        (lambda p: optim.clip_grad_norm_(p, 1.0), "none of 1 parameters has a gradient"),
        (lambda p: optim.clip_grad_value_(p, -1.0), "clip_value must be 0 or more, not -1.0"),
    ],
)
def test_misuse_of_an_optimizer_says_what_is_wrong(
    call: Callable[[list[Tensor]], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call([Tensor([1.0])])


def losses_of_training(jit: bool) -> tuple[list[float], list[Any]]:
    """Six steps of Adam with a falling rate and batch norm; the losses and all state after."""
    Tensor.manual_seed(0)
    layers = [nn.Linear(3, 4), nn.BatchNorm(4), nn.Linear(4, 1)]
    optimizer = optim.Adam(get_parameters(layers), lr=0.05)
    schedule = optim.ExponentialLR(optimizer, 0.9)

    def step(x: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = x.sequential(layers).square().mean()
            loss.backward()
            return loss.realize(*optimizer.schedule_step())

    run, losses = TinyJit(step) if jit else step, []
    for number in range(6):
        losses.append(run(Tensor(numbers(8, 3, seed=number), requires_grad=False).realize()).item())
        schedule.step()
    return losses, [tensor.tolist() for tensor in get_parameters([layers, optimizer])]


def test_recorded_steps_are_those_that_are_not_recorded() -> None:
    assert losses_of_training(jit=True) == losses_of_training(jit=False)


# -- clipping -------------------------------------------------------------------------------------


def with_gradients(*gradients: Array) -> list[Tensor]:
    params = [Tensor(np.zeros_like(g), requires_grad=True) for g in gradients]
    for param, g in zip(params, gradients, strict=True):
        param.grad = Tensor(g, requires_grad=False)
    return params


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("limit", [0.5, 1000.0])
def test_clipping_by_norm_scales_all_gradients_alike(p: float, limit: float) -> None:
    gradients = [numbers(3, 2), numbers(4, seed=1)]
    params = with_gradients(*gradients)
    total = optim.clip_grad_norm_(params, limit, p)
    line = np.concatenate([g.ravel() for g in gradients]).astype(np.float64)
    expected = np.linalg.norm(line, p)
    np.testing.assert_allclose(total.item(), expected, rtol=1e-5)
    scale = min(1.0, limit / expected)
    for param, g in zip(params, gradients, strict=True):
        assert param.grad is not None
        np.testing.assert_allclose(param.grad.numpy(), g * scale, rtol=1e-5)


def test_clipping_by_value_clips_each_element() -> None:
    (param,) = with_gradients(np.array([-3.0, -0.5, 0.25, 2.0], np.float32))
    optim.clip_grad_value_(param, 1.0)
    assert param.grad is not None and param.grad.tolist() == [-1.0, -0.5, 0.25, 1.0]


# -- schedules ------------------------------------------------------------------------------------

SCHEDULES: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any], list[float]]] = {
    "StepLR": (
        lambda o: optim.StepLR(o, 3, 0.5),
        lambda t, o: t.StepLR(o, 3, 0.5),
        [1, 1, 1, 0.5, 0.5, 0.5, 0.25],
    ),
    "MultiStepLR": (
        lambda o: optim.MultiStepLR(o, [5, 2], 0.1),
        lambda t, o: t.MultiStepLR(o, [2, 5], 0.1),
        [1, 1, 0.1, 0.1, 0.1, 0.01],
    ),
    "LambdaLR": (
        lambda o: optim.LambdaLR(o, lambda step: 0.9**step + step % 2),
        lambda t, o: t.LambdaLR(o, lambda step: 0.9**step + step % 2),
        [1, 1.9, 0.81, 1.729],
    ),
    "ExponentialLR": (
        lambda o: optim.ExponentialLR(o, 0.5),
        lambda t, o: t.ExponentialLR(o, 0.5),
        [1, 0.5, 0.25, 0.125],
    ),
    "CosineAnnealingLR": (
        lambda o: optim.CosineAnnealingLR(o, 4, 0.2),
        lambda t, o: t.CosineAnnealingLR(o, 4, 0.2),
        [1, 0.6 + 0.4 * 0.5**0.5, 0.6, 0.6 - 0.4 * 0.5**0.5, 0.2],
    ),
    "OneCycleLR": (
        lambda o: optim.OneCycleLR(o, 2.0, total_steps=21),
        lambda t, o: t.OneCycleLR(o, 2.0, total_steps=21, cycle_momentum=False),
        [0.08],
    ),
    "OneCycleLR, linear": (
        lambda o: optim.OneCycleLR(o, 2.0, 4, 10, 21, 0.5, "linear"),
        lambda t, o: t.OneCycleLR(
            o, 2.0, 21, pct_start=0.5, anneal_strategy="linear", cycle_momentum=False,
            div_factor=4, final_div_factor=10,
        ),
        [0.5, 0.5 + 1.5 / 9.5],
    ),
    "LinearWarmup": (
        lambda o: optim.LinearWarmup(o, 4, 0.2),
        lambda t, o: t.LinearLR(o, 0.2, 1.0, 4),
        [0.2, 0.4, 0.6, 0.8, 1, 1],
    ),
    "LinearWarmup, then StepLR": (
        lambda o: optim.LinearWarmup(o, 4, 0.2, optim.StepLR(o, 2, 0.5)),
        lambda t, o: t.SequentialLR(
            o, [t.LinearLR(o, 0.2, 1.0, 4), t.StepLR(o, 2, 0.5)], [4]
        ),
        [0.2, 0.4, 0.6, 0.8, 1, 1, 0.5, 0.5, 0.25],
    ),
}  # fmt: skip


def sgd() -> optim.SGD:
    return optim.SGD([Tensor([1.0])], 1.0)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_gives_the_rates_written_out(name: str) -> None:
    make, _, expected = SCHEDULES[name]
    optimizer = sgd()
    schedule = make(optimizer)
    rates = [optimizer.lr.item()]
    for _ in expected[1:]:
        schedule.step()
        rates.append(optimizer.lr.item())
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_gives_the_rates_of_torch_for_twenty_steps(name: str) -> None:
    torch = pytest.importorskip("torch")
    make, make_twin, _ = SCHEDULES[name]
    optimizer, twin = sgd(), torch.optim.SGD([torch.zeros(1)], 1.0)
    schedule, twin_schedule = make(optimizer), make_twin(torch.optim.lr_scheduler, twin)
    for _ in range(STEPS):
        np.testing.assert_allclose(
            optimizer.lr.item(), twin.param_groups[0]["lr"], rtol=1e-6, atol=1e-7
        )
        schedule.step()
        twin.step()
        twin_schedule.step()


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_in_a_recorded_function_gives_the_same_rates(name: str) -> None:
    make = SCHEDULES[name][0]
    optimizer, other = sgd(), sgd()
    schedule, outside = make(optimizer), make(other)

    @TinyJit
    def step() -> Tensor:
        schedule.step()
        return optimizer.lr.clone().realize()

    if "Lambda" in name:
        step()
        with pytest.raises(
            JitError, match=r"LambdaLR has no formula of Tensors.*call step\(\) outside"
        ):
            step()
        return
    for _ in range(STEPS):
        outside.step()
        np.testing.assert_allclose(step().item(), other.lr.item(), rtol=1e-6, atol=1e-9)
    assert schedule.last_epoch == STEPS


def test_a_cycle_that_is_over_keeps_its_rate_in_a_recorded_function() -> None:
    optimizer = sgd()
    schedule = optim.OneCycleLR(optimizer, 1.0, total_steps=3)
    step = TinyJit(lambda: (schedule.step(), optimizer.lr.clone().realize())[1])
    rates = [step().item() for _ in range(7)]
    assert rates[3:] == [rates[2]] * 4


PLATEAUS: list[dict[str, Any]] = [
    {"patience": 2, "factor": 0.5},
    {"patience": 1, "mode": "max", "threshold": 0.1, "cooldown": 2},
    {"patience": 0, "threshold_mode": "abs", "threshold": 0.05, "min_lr": 0.02},
    {"patience": 1, "mode": "max", "threshold_mode": "abs", "threshold": 0.2},
]


@pytest.mark.parametrize("options", PLATEAUS)
def test_plateau_lowers_the_rate_when_torch_does(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    optimizer, twin = sgd(), torch.optim.SGD([torch.zeros(1)], 1.0)
    schedule = optim.ReduceLROnPlateau(optimizer, **options)
    twin_schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(twin, **options)
    metrics = np.random.default_rng(3).uniform(-1, 1, 40) + np.linspace(1, 0, 40)
    lowered = 0
    for metric in metrics:
        before = optimizer.lr.item()
        schedule.step(Tensor([metric]) if lowered else float(metric))
        twin_schedule.step(float(np.float32(metric)) if lowered else float(metric))
        np.testing.assert_allclose(optimizer.lr.item(), twin.param_groups[0]["lr"], rtol=1e-6)
        lowered += optimizer.lr.item() < before
    assert lowered >= 2


def test_plateau_waits_for_patience_and_starts_over() -> None:
    optimizer = sgd()
    schedule = optim.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    rates = []
    for metric in [1.0, 1.0, 1.0, 0.5, 0.5, 0.5]:
        schedule.step(metric)
        rates.append(optimizer.lr.item())
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25]


def test_schedule_of_a_group_keeps_the_rates_apart() -> None:
    group = optim.OptimizerGroup(optim.SGD([Tensor([1.0])], 1.0), optim.SGD([Tensor([1.0])], 0.5))
    schedule = optim.ExponentialLR(group, 0.5)
    schedule.step()
    assert [part.lr.item() for part in group.optimizers] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda o: optim.StepLR(o, 0), "step_size must be 1 or more, not 0"),
        (lambda o: optim.OneCycleLR(o, 1.0), "total_steps must be 1 or more"),
        (lambda o: optim.OneCycleLR(o, 1.0, total_steps=1).lr_at(2, 1.0), "step 2 of a OneCycleLR"),
        (lambda o: optim.OneCycleLR(o, 1.0, total_steps=1, anneal_strategy="x"), "'cos' or 'lin"),
        (lambda o: optim.OneCycleLR(o, 1.0, total_steps=1, pct_start=2), "a share in 0 .. 1"),
        (lambda o: optim.ReduceLROnPlateau(o, mode="low"), "'min' or 'max'"),
        (lambda o: optim.ReduceLROnPlateau(o, factor=1.0), "factor must be below 1"),
        (lambda o: optim.LinearWarmup(o, 2, then=optim.StepLR(sgd(), 1)), "the same optimizer"),
    ],
)
def test_misuse_of_a_schedule_says_what_is_wrong(
    call: Callable[[optim.Optimizer], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call(sgd())


# -- going on from a checkpoint ----------------------------------------------------------------------


def _makes(kind: str) -> tuple[Any, Any, Any]:
    Tensor.manual_seed(0)
    layer = nn.Linear(2, 2)
    optimizer = nn.optim.Adam(get_parameters(layer), lr=0.1)
    schedules = {
        "cycle": lambda: nn.optim.OneCycleLR(optimizer, max_lr=1.0, total_steps=10),
        "step": lambda: nn.optim.StepLR(optimizer, 2),
        "plateau": lambda: nn.optim.ReduceLROnPlateau(optimizer, patience=1),
    }
    return layer, optimizer, schedules[kind]()


def _steps(made: tuple[Any, Any, Any], count: int) -> list[Any]:
    layer, optimizer, schedule = made
    found = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = (layer(Tensor.rand(4, 2)) - 1).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step(*([1.0] if isinstance(schedule, nn.optim.ReduceLROnPlateau) else []))
        found.append((optimizer.lr.item(), loss.item(), layer.weight.tolist()))
    return found


@pytest.mark.parametrize("kind", ["cycle", "step", "plateau"])
def test_training_that_goes_on_from_a_checkpoint_is_training_without_one(kind: str) -> None:
    whole = _steps(_makes(kind), 7)
    made = _makes(kind)
    _steps(made, 3)
    state = {name: tensor.numpy() for name, tensor in get_state_dict(list(made)).items()}
    random = Tensor.get_rng_state().numpy()
    again = _makes(kind)
    load_state_dict(list(again), {name: Tensor(value) for name, value in state.items()})
    Tensor.set_rng_state(Tensor(random))
    assert _steps(again, 4) == whole[3:]


@pytest.mark.parametrize("base", [optim.Optimizer, optim.SGD, optim.Adam])
@pytest.mark.parametrize("fused", [False, True])
def test_what_a_subclass_says_of_a_change_is_taken(base: Any, fused: bool) -> None:
    class Signs(base):  # type: ignore[misc]
        def _change(self, number: int, value: Tensor, gradient: Tensor) -> Tensor:
            return gradient.sign() * self.lr

    weights = [Tensor(numbers(3, 2)), Tensor(numbers(4))]
    before = [w.numpy() for w in weights]
    optimizer = Signs(weights, lr=0.5, fused=fused)
    sum([(w * -3).sum() for w in weights[1:]], (weights[0] * 2).sum()).backward()
    optimizer.step()
    assert (weights[0].numpy() == before[0] - 0.5).all()
    assert (weights[1].numpy() == before[1] + 0.5).all()
