"""Values that steps of a loop are joined in: several kernels that read one do not each ask for all steps."""

from __future__ import annotations

import numpy as np
import pytest

from proofgrad import Tensor
from proofgrad.core.compile.fusion.views import MOST_PLACED
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler

STEPS, WIDTH = 24, 7


def advantages(rewards: Tensor) -> Tensor:
    """Sums from the last step back to each, as a loop that people write."""
    last, found = Tensor.zeros(rewards.shape[1]), []
    for step in reversed(range(rewards.shape[0])):
        last = rewards[step] + 0.5 * last
        found.append(last)
    return Tensor.stack(*found[::-1])


def by_numpy(rewards: np.ndarray) -> np.ndarray:
    last, found = np.zeros(rewards.shape[1], np.float32), []
    for row in rewards[::-1]:
        last = row + np.float32(0.5) * last
        found.append(last)
    return np.stack(found[::-1])


def kernels_that_place(*results: Tensor) -> list[UOp]:
    """Those that read many parts in their places."""
    graph = compiler().kernel_graph(UOp.sink(*[r.uop for r in results]).replace(arg="CPU"))
    bodies = [call.src[0] for call in graph.src]
    return [b for b in bodies if sum(n.op is Ops.PAD for n in b.toposort()) >= MOST_PLACED]


def test_what_several_kernels_read_is_joined_once() -> None:
    joined = advantages(Tensor.empty(STEPS, WIDTH).realize())
    centred = joined - joined.mean()
    results = [centred / joined.std(), joined.max(axis=0), (joined.detach() * 2).sum(axis=1)]
    (only,) = kernels_that_place(*results)
    assert only.src[0].shape == (STEPS, WIDTH)


@pytest.mark.heuristics
def test_what_does_not_stay_near_is_read_in_its_parts() -> None:
    """A copy of many elements would go to the next cache and back."""
    parts = [Tensor.empty(1, 1 << 16).realize() for _ in range(STEPS)]
    joined = Tensor.cat(*parts)
    assert len(kernels_that_place(joined - joined.mean(), joined.max(axis=0))) != 1


@pytest.mark.parametrize(("steps", "width"), [(24, 7), (17, 1), (16, 16), (3, 5), (40, 33)])
def test_values_of_what_is_joined(steps: int, width: int) -> None:
    rewards = np.random.default_rng(steps).standard_normal((steps, width)).astype(np.float32)
    joined, wanted = advantages(Tensor(rewards).realize()), by_numpy(rewards)
    results = [joined - joined.mean(), joined.max(axis=0), joined[1:] * 2, joined.flip(0).sum(1)]
    Tensor.realize(*results)
    others = [wanted - wanted.mean(), wanted.max(0), wanted[1:] * 2, wanted[::-1].sum(1)]
    for result, other in zip(results, others):
        np.testing.assert_allclose(result.numpy(), other, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_what_is_joined_and_read_often() -> None:
    rewards = np.random.default_rng(0).standard_normal((STEPS, WIDTH)).astype(np.float32)
    x = Tensor(rewards, requires_grad=True)
    joined = advantages(x)
    (joined * joined + joined.mean() * joined.max()).sum().backward()
    steps, value = 1e-2, by_numpy

    def loss(at: np.ndarray) -> float:
        j = value(at).astype(np.float64)
        return float((j * j + j.mean() * j.max()).sum())

    for place in ((0, 0), (5, 3), (STEPS - 1, WIDTH - 1)):
        near = [rewards.copy(), rewards.copy()]
        near[0][place] += steps
        near[1][place] -= steps
        slope = (loss(near[0]) - loss(near[1])) / (2 * steps)
        assert x.grad is not None
        assert abs(slope - x.grad.numpy()[place]) < 2e-2 * max(1, abs(slope))
