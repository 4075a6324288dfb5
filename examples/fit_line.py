"""Fit a line to noisy points: the whole of a training loop in one screen.

Run: python examples/fit_line.py
"""

from __future__ import annotations

from proofgrad import Tensor
from proofgrad.nn.optim import SGD


def main() -> None:
    """Points near y = 3 x - 1; the slope and the offset come back."""
    Tensor.manual_seed(0)
    x = Tensor.uniform(256, low=-1.0, high=1.0, requires_grad=False).realize()
    y = (3 * x - 1 + Tensor.randn(256) * 0.05).detach().realize()
    slope, offset = Tensor([0.0], requires_grad=True), Tensor([0.0], requires_grad=True)
    optimizer = SGD([slope, offset], lr=0.5)
    for step in range(40):
        optimizer.zero_grad()
        loss = (slope * x + offset).mse_loss(y)
        loss.backward()
        loss.realize(*optimizer.schedule_step())
        if step % 10 == 0:
            print(f"step {step:2}  loss {loss.item():.4f}")
    print(f"y = {slope.item():.1f} x {offset.item():+.1f}")


if __name__ == "__main__":
    main()
