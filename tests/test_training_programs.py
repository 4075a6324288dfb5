"""Training as users of tinygrad write it: 22 programs, each against torch, numpy or a run that was not interrupted.

Loops by hand, accumulation, schedules with resume, clipping, mixed types, averages of weights, optimizers of one's own,
several models, penalties, recurrent layers, batches with threads, policies, experts, adapters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, Tensor, TinyJit, Variable, custom_vjp, dtypes, function, nn
from proofgrad.nn.datasets import Batches
from proofgrad.nn.optim import SGD, Adam, AdamW, OneCycleLR, Optimizer, OptimizerGroup
from proofgrad.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    resume_training,
    save_training,
)

torch = pytest.importorskip("torch")
Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    found = found.numpy() if isinstance(found, Tensor) else found
    wanted = wanted.detach().numpy() if isinstance(wanted, torch.Tensor) else wanted
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


class Net:
    """Two layers, and torch's of the same weights."""

    def __init__(self, inside: int = 5, hidden: int = 7, out: int = 3) -> None:
        self.l1, self.l2 = nn.Linear(inside, hidden), nn.Linear(hidden, out)

    def __call__(self, x: Tensor) -> Tensor:
        return self.l2(self.l1(x).relu())

    def twin(self) -> Any:
        made = torch.nn.Sequential(
            torch.nn.Linear(*self.l1.weight.shape[::-1]),
            torch.nn.ReLU(),
            torch.nn.Linear(*self.l2.weight.shape[::-1]),
        )
        ours = [p.numpy().copy() for p in get_parameters(self)]
        with torch.no_grad():
            for param, value in zip(made.parameters(), ours, strict=True):
                param.copy_(torch.tensor(value))
        return made


X, Y = numbers(24, 5), np.random.default_rng(1).integers(0, 3, 24)


def torch_loss(twin: Any, part: Any = slice(None)) -> Any:
    return torch.nn.functional.cross_entropy(twin(torch.tensor(X[part])), torch.tensor(Y[part]))


def test_a_loop_by_hand_takes_torch_s_steps() -> None:
    net = Net()
    twin = net.twin()
    for _ in range(4):
        loss = net(Tensor(X)).sparse_categorical_crossentropy(Tensor(Y.astype(np.int32)))
        for p in get_parameters(net):
            p.grad = None
        loss.backward()
        for p in get_parameters(net):
            assert p.grad is not None
            p.assign(p.detach() - 0.3 * p.grad).realize()
        wanted = torch_loss(twin)
        twin.zero_grad()
        wanted.backward()
        with torch.no_grad():
            for q in twin.parameters():
                q -= 0.3 * q.grad
        close(loss, wanted)
    for p, q in zip(get_parameters(net), twin.parameters(), strict=True):
        close(p, q)


def test_a_recorded_step_over_random_batches_learns() -> None:
    Tensor.manual_seed(3)
    net, xs = Net(), Tensor(X)
    ys = (xs[:, 0] > 0).cast("int32").realize()
    optimizer = Adam(get_parameters(net), lr=0.02)

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        optimizer.zero_grad()
        samples = Tensor.randint(12, high=24)
        loss = net(xs[samples]).sparse_categorical_crossentropy(ys[samples]).backward()
        return loss.realize(*optimizer.schedule_step())

    losses = [step().item() for _ in range(60)]
    assert len(set(losses)) > 50 and losses[-1] < 0.2 < losses[0]
    assert (net(xs).argmax(1) == ys).mean().item() > 0.9


@pytest.mark.parametrize("jit", (False, True))
def test_gradients_of_parts_add_up(jit: bool) -> None:
    net = Net()
    twin = net.twin()
    optimizer = SGD(get_parameters(net), lr=0.1, momentum=0.9)
    other = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)

    def whole_step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        total = Tensor([0.0])
        for k in range(3):
            loss = net(x[8 * k : 8 * k + 8]).sparse_categorical_crossentropy(y[8 * k : 8 * k + 8])
            (loss / 3).backward()
            total = total + loss / 3
        return total.realize(*optimizer.schedule_step())

    step = TinyJit(whole_step) if jit else whole_step
    with Context(TRAINING=1):
        for _ in range(4):
            found = step(Tensor(X).realize(), Tensor(Y.astype(np.int32)).realize())
            other.zero_grad()
            wanted = torch_loss(twin)
            wanted.backward()
            other.step()
            close(found.item(), wanted.item())


def test_frozen_layers_stay_and_others_learn() -> None:
    net = Net()
    twin = net.twin()
    for p in (net.l1.weight, net.l1.bias):
        assert p is not None
        p.requires_grad = False
    for q in twin[0].parameters():
        q.requires_grad = False
    before = net.l1.weight.numpy().copy()
    optimizer = AdamW(get_parameters(net), lr=0.05)
    other = torch.optim.AdamW(twin[2].parameters(), lr=0.05)
    assert len(optimizer.params) == 2
    with Tensor.train():
        for _ in range(3):
            optimizer.zero_grad()
            net(Tensor(X)).sparse_categorical_crossentropy(Tensor(Y)).backward()
            optimizer.step()
            other.zero_grad()
            torch_loss(twin).backward()
            other.step()
    assert (net.l1.weight.numpy() == before).all()
    close(net.l2.weight, twin[2].weight, rtol=1e-3)


def test_weights_of_half_precision_train_beside_masters_with_a_scaled_loss() -> None:
    net = Net()
    twin = net.twin()
    other = torch.optim.SGD(twin.parameters(), lr=0.5)
    masters = [p.float().clone().realize() for p in get_parameters(net)]
    for p in get_parameters(net):
        p.replace(p.half().realize())
    scale, losses = Tensor([1024.0]).realize(), []
    for _ in range(25):
        loss = net(Tensor(X).half()).float().sparse_categorical_crossentropy(Tensor(Y))
        gradients = (loss * scale).gradient(*get_parameters(net))
        unscaled = [g.float() / scale for g in gradients]
        finite = Tensor.stack(*[g.isfinite().all() for g in unscaled]).all()
        for master, p, g in zip(masters, get_parameters(net), unscaled, strict=True):
            master.assign(finite.where(master - 0.5 * g, master))
            p.assign(master.cast(dtypes.half))
        scale.assign(finite.where(scale, scale * 0.5))
        Tensor.realize(loss, scale, *masters, *get_parameters(net))
        other.zero_grad()
        wanted = torch_loss(twin)
        wanted.backward()
        other.step()
        losses.append((loss.item(), wanted.item()))
    close(*np.array(losses).T, rtol=0.02)
    assert losses[-1][0] < losses[0][0] - 0.2 and scale.item() == 1024.0
    assert all(p.dtype is dtypes.half for p in get_parameters(net))


def test_a_loss_that_overflows_halves_its_scale_and_changes_nothing() -> None:
    weight, scale = Tensor([1.0, 2.0]).realize(), Tensor([2.0**15]).realize()
    (gradient,) = ((weight.half() * 30000).sum() * scale.half()).gradient(weight)
    finite = gradient.isfinite().all()
    weight.assign(finite.where(weight - gradient, weight))
    scale.assign(finite.where(scale, scale / 2))
    Tensor.realize(weight, scale)
    assert (weight.tolist(), scale.tolist()) == ([1.0, 2.0], [2.0**14])


def test_an_average_of_weights_follows_them() -> None:
    net, average = Net(), Net()
    load_state_dict(average, {k: v.clone() for k, v in get_state_dict(net).items()}, verbose=False)
    wanted = {k: v.numpy().copy() for k, v in get_state_dict(net).items()}

    @TinyJit
    def update() -> None:
        for a, p in zip(get_parameters(average), get_parameters(net), strict=True):
            a.assign(a.detach() * 0.9 + p.detach() * 0.1).realize()

    for k in range(5):
        for name, p in get_state_dict(net).items():
            p.assign(p + k).realize()
            wanted[name] = wanted[name] * 0.9 + p.numpy() * 0.1
        update()
    for name, a in get_state_dict(average).items():
        close(a, wanted[name])


def test_a_run_goes_on_exactly_where_it_was_saved(tmp_path: Path) -> None:
    def run(steps: range, path: Path | None) -> list[float]:
        Tensor.manual_seed(5)
        net = Net()
        optimizer = Adam(get_parameters(net), lr=0.01)
        schedule = OneCycleLR(
            optimizer, max_lr=0.1, div_factor=10, final_div_factor=10, total_steps=12
        )
        batches = Batches(X, Y.astype(np.int32), size=8)
        parts = {"net": net, "optimizer": optimizer, "schedule": schedule, "batches": batches}
        if path is not None and path.exists():
            resume_training(path, **parts)

        @TinyJit
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = net(x.dropout(0.2)).sparse_categorical_crossentropy(y).backward()
            loss.realize(*optimizer.schedule_step())
            schedule.step()
            return loss

        losses = []
        with Tensor.train():
            for _ in steps:
                for x, y in batches:
                    losses.append(step(x.realize(), y.realize()).item())
        if path is not None:
            save_training(path, **parts)
        return losses

    whole = run(range(4), None)
    path = tmp_path / "run.safetensors"
    halves = run(range(2), path) + run(range(2), path)
    assert halves == whole and len(set(whole)) == 12


def test_gradients_are_clipped_by_hand_as_torch_clips_them() -> None:
    net = Net()
    twin = net.twin()
    optimizer, other = SGD(get_parameters(net), lr=1.0), torch.optim.SGD(twin.parameters(), lr=1.0)
    with Tensor.train():
        net(Tensor(X * 9)).sparse_categorical_crossentropy(Tensor(Y)).backward()
        norm = (
            Tensor.stack(*[p.grad.square().sum() for p in optimizer.params if p.grad is not None])
            .sum()
            .sqrt()
        )
        for p in optimizer.params:
            assert p.grad is not None
            p.grad.assign(p.grad * (0.5 / (norm + 1e-6)).minimum(1.0))
        optimizer.step()
    torch.nn.functional.cross_entropy(twin(torch.tensor(X * 9)), torch.tensor(Y)).backward()
    torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
    other.step()
    close(net.l1.weight, twin[0].weight)


class Lion(Optimizer):
    """An optimizer as a user of tinygrad writes one: the step of all parameters (Chen et al., 2023)."""

    def __init__(self, params: list[Tensor], lr: float, fused: bool = False) -> None:
        super().__init__(params, lr, None, fused)
        self.m = self._new_optim_param()

    def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        changes = []
        for k, (_, g) in enumerate(zip(params, grads)):
            changes.append((self.m[k] * 0.9 + g * 0.1).sign() * self.lr)
            self.m[k].assign(self.m[k] * 0.99 + g * 0.01)
        return changes, self.m


@pytest.mark.parametrize("fused", (False, True))
def test_an_optimizer_of_one_s_own_gives_the_change_of_every_parameter(fused: bool) -> None:
    values = [numbers(3, 2), numbers(4, seed=2)]
    params = [Tensor(v) for v in values]
    optimizer = Lion(params, 0.1, fused)
    means = [np.zeros_like(v) for v in values]
    with Tensor.train():
        for _ in range(3):
            optimizer.zero_grad()
            (params[0].square().sum() + params[1].exp().sum()).backward()
            optimizer.step()
            for k, g in enumerate((2 * values[0], np.exp(values[1]))):
                values[k] = values[k] - 0.1 * np.sign(means[k] * 0.9 + g * 0.1)
                means[k] = means[k] * 0.99 + g * 0.01
    for p, v in zip(params, values, strict=True):
        close(p, v)


def test_an_optimizer_that_says_no_change_is_refused() -> None:
    param = Tensor([1.0])
    optimizer = Optimizer([param], 0.1)
    param.sum().backward()
    with Tensor.train(), pytest.raises(NotImplementedError, match=r"_step\(params, grads\)"):
        optimizer.step()

    class Short(Optimizer):
        def _step(self, params: list[Tensor], grads: list[Tensor]) -> Any:
            return [], []

    with Tensor.train(), pytest.raises(ValueError, match="gives 0 changes for 1 parameters"):
        Short([param], 0.1).step()


def test_two_models_are_trained_against_each_other() -> None:
    Tensor.manual_seed(1)
    maker, judge = Net(2, 8, 2), Net(2, 8, 1)
    make, judging = Adam(get_parameters(maker), lr=0.02), Adam(get_parameters(judge), lr=0.02)
    before = [p.numpy().copy() for p in (*make.params, *judging.params)]

    @TinyJit
    @Tensor.train()
    def judge_step(real: Tensor, noise: Tensor) -> Tensor:
        judging.zero_grad()
        fake = maker(noise).detach()
        loss = judge(real).binary_crossentropy_logits(Tensor.ones(16, 1))
        loss = loss + judge(fake).binary_crossentropy_logits(Tensor.zeros(16, 1))
        return loss.backward().realize(*judging.schedule_step())

    @TinyJit
    @Tensor.train()
    def make_step(noise: Tensor) -> Tensor:
        make.zero_grad()
        loss = judge(maker(noise)).binary_crossentropy_logits(Tensor.ones(16, 1)).backward()
        return loss.realize(*make.schedule_step())

    for k in range(25):
        real = Tensor(numbers(16, 2, seed=k) * 0.1 + 2).realize()
        judged = judge_step(real, Tensor.randn(16, 2).realize())
        made = make_step(Tensor.randn(16, 2).realize())
    assert np.isfinite([judged.item(), made.item()]).all()
    after = [p.numpy() for p in (*make.params, *judging.params)]
    assert all((a != b).any() for a, b in zip(before, after))
    assert maker(Tensor.randn(64, 2)).mean().item() > 0.3  # on its way to 2


def test_gradients_of_noise_that_is_scaled_are_torch_s() -> None:
    mean, spread, noise = numbers(4, 3), numbers(4, 3, seed=1), numbers(4, 3, seed=2)
    m, s = Tensor(mean, requires_grad=True), Tensor(spread, requires_grad=True)
    z = m + (s / 2).exp() * Tensor(noise)
    kl = -0.5 * (1 + s - m.square() - s.exp()).sum(1).mean()
    (z.sigmoid().binary_crossentropy(Tensor((noise > 0).astype(np.float32))) + kl).backward()
    a, b = torch.tensor(mean, requires_grad=True), torch.tensor(spread, requires_grad=True)
    w = a + (b / 2).exp() * torch.tensor(noise)
    other = -0.5 * (1 + b - a.square() - b.exp()).sum(1).mean()
    wanted = torch.tensor((noise > 0).astype(np.float32))
    (torch.nn.functional.binary_cross_entropy(w.sigmoid(), wanted) + other).backward()
    close(m.grad, a.grad)
    close(s.grad, b.grad)


def test_a_small_change_of_large_weights_is_learned_and_merged() -> None:
    base = nn.Linear(6, 4)
    base.weight.requires_grad = False
    a, b = Tensor.uniform(2, 6), Tensor.zeros(4, 2).contiguous()

    def adapted(x: Tensor) -> Tensor:
        return base(x) + x @ a.T @ b.T

    wanted = numbers(12, 6) @ numbers(6, 4, seed=9)
    optimizer, x = Adam([a, b], lr=0.05), Tensor(numbers(12, 6))
    losses = []
    with Tensor.train():
        for _ in range(40):
            optimizer.zero_grad()
            losses.append((adapted(x) - Tensor(wanted)).square().mean().backward().item())
            optimizer.step()
    assert losses[-1] < 0.6 * losses[0]
    before = adapted(x).numpy()
    base.weight.assign(base.weight + b @ a).realize()
    close(base(x), before)


def test_a_penalty_on_a_gradient_is_derived_again() -> None:
    net = Net(5, 7, 1)
    twin = net.twin()
    x = Tensor(X)
    (g,) = net(x).sigmoid().sum().gradient(x)
    ((g.square().sum(1).sqrt() - 1).square().mean()).backward()
    t = torch.tensor(X, requires_grad=True)
    (h,) = torch.autograd.grad(twin(t).sigmoid().sum(), t, create_graph=True)
    ((h.square().sum(1).sqrt() - 1).square().mean()).backward()
    close(net.l1.weight.grad, twin[0].weight.grad)
    close(net.l2.weight.grad, twin[2].weight.grad)


@pytest.mark.parametrize("kind", ("LSTM", "GRU"))
def test_recurrent_layers_with_torch_s_weights_train_as_torch_s(kind: str) -> None:
    theirs = getattr(torch.nn, kind)(4, 6, num_layers=2, batch_first=True)
    ours = getattr(nn, kind)(4, 6, num_layers=2, batch_first=True)
    state = {k: Tensor(v.detach().numpy()) for k, v in theirs.state_dict().items()}
    load_state_dict(ours, state, verbose=False)
    x = numbers(3, 5, 4)
    found, wanted = ours(Tensor(x))[0], theirs(torch.tensor(x))[0]
    close(found, wanted)
    found.square().mean().backward()
    wanted.square().mean().backward()
    gradients = {k: v.grad for k, v in theirs.named_parameters()}
    Tensor.realize(*[param.grad for param in get_parameters(ours)])
    for name, param in get_state_dict(ours).items():
        close(param.grad, gradients[name])


def test_a_state_that_goes_from_call_to_call_is_kept_by_a_recorded_function() -> None:
    w, u = numbers(3, 4), numbers(4, 4, seed=1)
    h = Tensor.zeros(2, 4).contiguous().realize()
    weight, recurrent = Tensor(w).realize(), Tensor(u).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        h.assign((x @ weight + h @ recurrent).tanh())
        return h.sum(1).realize(h)

    wanted = np.zeros((2, 4), np.float32)
    for k in range(6):
        x = numbers(2, 3, seed=k)
        wanted = np.tanh(x @ w + wanted @ u)
        close(step(Tensor(x).realize()), wanted.sum(1))


@pytest.mark.parametrize("workers", (0, 3))
def test_batches_made_by_threads_come_in_one_order_with_the_rest_at_the_end(workers: int) -> None:
    rows = np.arange(22)
    made = Batches(
        rows,
        size=5,
        drop_last=False,
        seed=7,
        workers=workers,
        transform=lambda r: r.astype(np.float32) * 2,
    )
    seen = [b.tolist() for (b,) in made]
    assert [len(b) for b in seen] == [5, 5, 5, 5, 2]
    assert sorted(sum(seen, [])) == (rows * 2).tolist() != sum(seen, [])
    plain = Batches(rows, size=5, drop_last=False, seed=7)
    assert [(b * 2).tolist() for (b,) in plain] == seen


def test_a_last_batch_of_variable_size_uses_the_recorded_function() -> None:
    weight = Tensor(numbers(5, 2)).realize()
    n = Variable("n", 1, 10)
    step = TinyJit(lambda x: (x @ weight).sum(0).realize())
    data = Tensor(X).realize()
    for start in range(0, 24, 10):
        size = min(10, 24 - start)
        found = step(
            data[start : start + size]
            .pad(((0, 10 - size), (0, 0)))
            .contiguous()
            .realize()[: n.bind(size)]
        )
        close(found, (X[start : start + size] @ numbers(5, 2)).sum(0))


def test_a_policy_learns_from_rewards_kept_in_a_ring() -> None:
    Tensor.manual_seed(2)
    policy = Net(2, 8, 2)
    optimizer = Adam(get_parameters(policy), lr=0.05)
    seen, done, gained = (
        Tensor.zeros(32, 2).contiguous(),
        Tensor.zeros(32, dtype="int32").contiguous(),
        Tensor.zeros(32).contiguous(),
    )
    act = TinyJit(lambda s: policy(s).log_softmax().exp().multinomial().realize())
    rng = np.random.default_rng(0)
    for k in range(32):
        state = rng.standard_normal(2).astype(np.float32)
        action = act(Tensor(state).reshape(1, 2).realize()).item()
        seen[k], done[k], gained[k] = Tensor(state), action, float(action == (state[0] > 0))
    assert set(done.tolist()) == {0, 1}
    losses = []
    with Tensor.train():
        for _ in range(40):
            optimizer.zero_grad()
            chosen = policy(seen).log_softmax().gather(1, done.unsqueeze(1)).squeeze(1)
            losses.append((-chosen * (gained - 0.5)).mean().backward().item())
            optimizer.step()
    right = policy(seen).argmax(1) == (seen[:, 0] > 0)
    assert losses[-1] < losses[0] or right.mean().item() > 0.8
    assert right.mean().item() > 0.8


def test_experts_are_chosen_by_a_router() -> None:
    x, gate = numbers(6, 4), numbers(4, 3, seed=1)
    up = numbers(3, 4, 5, seed=2)
    scores, positions = Tensor(x @ gate).softmax().topk(2)
    weights = Tensor.zeros(6, 3).scatter(1, positions, scores / scores.sum(1, keepdim=True))
    found = (Tensor.einsum("td,edh->teh", Tensor(x), Tensor(up)) * weights.unsqueeze(-1)).sum(1)
    for k, row in enumerate(x):
        p = np.exp(row @ gate) / np.exp(row @ gate).sum()
        best = np.argsort(-p)[:2]
        wanted = sum(p[e] / p[best].sum() * (row @ up[e]) for e in best)
        close(found[k], wanted)


def test_rates_of_biases_and_others_differ_in_a_group() -> None:
    net = Net()
    twin = net.twin()
    named = get_state_dict(net)
    group = OptimizerGroup(
        SGD([p for k, p in named.items() if "bias" in k], lr=0.4, momentum=0.85, nesterov=True),
        SGD(
            [p for k, p in named.items() if "bias" not in k],
            lr=0.1,
            momentum=0.85,
            nesterov=True,
            weight_decay=0.01,
        ),
    )
    biases, others = [twin[0].bias, twin[2].bias], [twin[0].weight, twin[2].weight]
    other = torch.optim.SGD(
        [{"params": biases, "lr": 0.4}, {"params": others, "lr": 0.1, "weight_decay": 0.01}],
        lr=0.1,
        momentum=0.85,
        nesterov=True,
    )
    with Tensor.train():
        for _ in range(3):
            group.zero_grad()
            net(Tensor(X)).cross_entropy(Tensor(Y.astype(np.int32)), label_smoothing=0.1).backward()
            group.step()
            other.zero_grad()
            torch.nn.functional.cross_entropy(
                twin(torch.tensor(X)), torch.tensor(Y), label_smoothing=0.1
            ).backward()
            other.step()
    for p, q in zip(get_parameters(net), twin.parameters(), strict=True):
        close(p, q)


def test_blocks_are_functions_with_weights_and_a_rounding_passes_gradients_on() -> None:
    rounded = custom_vjp(lambda x: (x * 8).round() / 8, backward=lambda gradient, x: gradient)

    class Block:
        def __init__(self) -> None:
            self.linear = nn.Linear(5, 5)

        @function
        def __call__(self, x: Tensor) -> Tensor:
            return x + self.linear(rounded(x)).tanh()

    blocks = [Block(), Block()]
    Tensor(X).sequential(blocks).square().mean().backward()
    t = torch.tensor(X)
    params = []
    for block in blocks:
        w, b = (torch.tensor(p.numpy(), requires_grad=True) for p in get_parameters(block))
        params += [w, b]
        t = t + torch.tanh((t + ((t * 8).round() / 8 - t).detach()) @ w.T + b)
    t.square().mean().backward()
    for p, q in zip(get_parameters(blocks), params, strict=True):
        close(p.grad, q.grad)
