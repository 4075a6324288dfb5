"""Steps scaled by a running mean of the squared gradient.

Owns: RMSprop.
"""

from __future__ import annotations

from collections.abc import Iterable

from proofgrad import Tensor
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.nn.optim.optimizer import Optimizer, in_state_type, less


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

    def _states(self, number: int) -> tuple[Tensor, ...]:
        return tuple([kind[number] for kind in (self.v, self.b, self.m) if kind])

    def _next(self, number: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        velocity, mean = [kind[number] if kind else None for kind in (self.b, self.m)]
        kinds = self.alpha, self.eps, self.weight_decay, self.momentum
        return _rmsprop(value, gradient, self.lr, self.v[number], velocity, mean, *kinds)


@made_once
def _rmsprop(
    value: Tensor, gradient: Tensor, lr: Tensor, square: Tensor, velocity: Tensor | None, mean: Tensor | None,
    alpha: float, eps: float, decay: float, momentum: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """A parameter, and its state, one step further."""
    own, gradient = in_state_type(value), in_state_type(gradient)
    if decay:
        gradient = gradient + own * decay
    spread = new_square = _moved_on(square, gradient.square(), alpha)
    state = [new_square]
    new_mean = None if mean is None else _moved_on(mean, gradient, alpha)
    if new_mean is not None:
        spread = spread - new_mean.square()
    change = gradient / (spread.sqrt() + eps)
    if velocity is not None:
        change = (velocity * momentum + change).cast(velocity.dtype)
        state.append(change)
    return less(value, change * lr), *state, *([] if new_mean is None else [new_mean])


def _moved_on(mean: Tensor, seen: Tensor, alpha: float) -> Tensor:
    """A running mean, with what is seen now."""
    return (mean * alpha + seen * (1 - alpha)).cast(mean.dtype)
