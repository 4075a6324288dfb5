"""Steps scaled by a running mean of the squared gradient.

Owns: RMSprop.
"""

from __future__ import annotations

from collections.abc import Iterable

from proofgrad import Tensor
from proofgrad.nn.optim.optimizer import Optimizer


class RMSprop(Optimizer):
    """The gradient over the root of a running mean of its squares (Tieleman and Hinton, 2012), as torch.optim.RMSprop.

    `centered`: over the deviation instead. `weight_decay` is added to the gradient.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        if not (0 <= alpha < 1 and momentum >= 0 and weight_decay >= 0):
            raise ValueError(
                "alpha must be in [0, 1), momentum and weight_decay 0 or more, not"
                f" {alpha}, {momentum}, {weight_decay}"
            )
        super().__init__(params, lr, device, fused)
        self.alpha, self.eps, self.weight_decay = alpha, eps, weight_decay
        self.momentum = momentum
        self.v = self._state()  # means of squares
        self.b = self._state() if momentum else []  # velocities
        self.m = self._state() if centered else []  # means

    def _advance(self) -> list[Tensor]:
        return [*self.v, *self.b, *self.m]

    def _change(self, number: int, value: Tensor, gradient: Tensor) -> Tensor:
        if self.weight_decay:
            gradient = gradient + value * self.weight_decay
        square = self._moved(self.v[number], gradient.square())
        if self.m:
            square = square - self._moved(self.m[number], gradient).square()
        change = gradient / (square.sqrt() + self.eps)
        if self.momentum:
            velocity = self.b[number]
            change = velocity.assign((velocity * self.momentum + change).cast(velocity.dtype))
        return change * self.lr

    def _moved(self, mean: Tensor, seen: Tensor) -> Tensor:
        """A running mean, with what is seen now."""
        return mean.assign((mean * self.alpha + seen * (1 - self.alpha)).cast(mean.dtype))
