"""Steps scaled by the sum of the squared gradients.

Owns: Adagrad.
"""

from __future__ import annotations

from collections.abc import Iterable

from proofgrad import Tensor
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.nn.optim.optimizer import Optimizer, in_state_type, less


class Adagrad(Optimizer):
    """The gradient over the root of the sum of its squares (Duchi, Hazan and Singer, 2011), as torch.optim.Adagrad.

    Step t takes lr / (1 + (t - 1) * lr_decay). `weight_decay` is added to the gradient.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.01,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        if min(lr_decay, weight_decay, initial_accumulator_value) < 0:
            raise ValueError(
                "lr_decay, weight_decay and initial_accumulator_value must be 0 or more, not"
                f" {lr_decay}, {weight_decay}, {initial_accumulator_value}"
            )
        super().__init__(params, lr, device, fused)
        self.lr_decay, self.weight_decay, self.eps = lr_decay, weight_decay, eps
        self.steps = self._number(0.0).realize()
        self.v = self._state()
        for total in self.v if initial_accumulator_value else []:
            total.assign(total + initial_accumulator_value).realize()

    def _advance(self) -> list[Tensor]:
        self.steps.assign(self.steps + 1)
        return [self.steps, *self.v]

    def _states(self, number: int) -> tuple[Tensor, ...]:
        return (self.v[number],)

    def _next(self, number: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        kinds = self.lr_decay, self.eps, self.weight_decay
        return _adagrad(value, gradient, self.lr, self.v[number], self.steps, *kinds)


@made_once
def _adagrad(
    value: Tensor, gradient: Tensor, lr: Tensor, total: Tensor, steps: Tensor,
    lr_decay: float, eps: float, decay: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A parameter, and the sum of its squares, one step further."""
    own, gradient = in_state_type(value), in_state_type(gradient)
    if decay:
        gradient = gradient + own * decay
    new_total = (total + gradient.square()).cast(total.dtype)
    rate = lr / (1 + (steps - 1) * lr_decay)
    return less(value, gradient / (new_total.sqrt() + eps) * rate), new_total
