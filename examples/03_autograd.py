"""Derivatives: by hand, by backward, by differences; a small network learns XOR by heart.

Run: python examples/03_autograd.py
"""

from __future__ import annotations

from proofgrad import Tensor, gradcheck, nn
from proofgrad.nn.optim import Adam
from proofgrad.nn.state import get_parameters
from proofgrad.testing import assert_close


def by_hand() -> None:
    """Three derivatives that a formula gives."""
    x = Tensor([-1.5, 0.5, 2.0], requires_grad=True)
    w = Tensor([3.0, -2.0, 0.25], requires_grad=True)
    s = x.sigmoid()
    assert_close(x.pow(2).sum().gradient(x)[0], 2 * x.detach())
    assert_close((x * w).sum().gradient(w)[0], x.detach())
    assert_close(s.sum().gradient(x)[0], (s * (1 - s)).detach())
    print("by hand: 2x, x, sigmoid(x) (1 - sigmoid(x)) hold")


class Network:
    """Two layers, which XOR needs."""

    def __init__(self) -> None:
        self.first, self.last = nn.Linear(2, 16), nn.Linear(16, 1)

    def __call__(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).tanh())


def learn_xor(steps: int = 150) -> float:
    """The loss after training on ten points; noise sets those with equal corners apart."""
    Tensor.manual_seed(1)
    corners = [[0, 0], [0, 1], [1, 0], [1, 1]] * 2 + [[0, 1], [1, 1]]
    points = Tensor([[float(a), float(b)] for a, b in corners]) + Tensor.randn(10, 2) * 0.05
    points = points.detach().realize().requires_grad_(False)
    labels = Tensor([[float(a ^ b)] for a, b in corners], requires_grad=False)
    network = Network()
    optimizer = Adam(get_parameters(network), lr=0.05)
    loss = Tensor([0.0])
    for _ in range(steps):
        optimizer.zero_grad()
        loss = network(points).binary_crossentropy_logits(labels)
        loss.backward()
        loss.realize(*optimizer.schedule_step())
    return float(loss.item())


def huber(x: Tensor, delta: float = 1.0) -> Tensor:
    """A square near 0, a line beyond `delta` (Huber, 1964)."""
    size = x.abs()
    return (size < delta).where(x.square() / 2, (size - delta / 2) * delta)


def main() -> None:
    """By hand, by training, by differences."""
    by_hand()
    print(f"XOR of ten points: loss {learn_xor():.4f}")
    points = Tensor([-3.0, -0.7, 0.1, 0.9, 2.5])
    print("Huber:", [round(value, 3) for value in huber(points).tolist()])
    print("its derivative is that of differences:", gradcheck(huber, points))


if __name__ == "__main__":
    main()
