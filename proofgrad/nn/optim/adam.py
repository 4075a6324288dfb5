"""Steps scaled by running moments of the gradient.

Owns: Adam, AdamW, LAMB.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log

from proofgrad import Tensor
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.nn.optim.optimizer import Optimizer, in_state_type, less, norm_ratio, not_as_one


class Adam(Optimizer):
    """Mean of the gradients over the root of the mean of their squares (Kingma and Ba, 2015).

    As torch.optim.Adam: `weight_decay` is added to the gradient. `betas`: b1 and b2 by torch's name.
    """

    decoupled, is_scaled = False, False  # weight decay apart from the moments; a rate by norms

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        device: str | None = None,
        fused: bool = False,
        *,
        weight_decay: float = 0.0,
        betas: tuple[float, float] | None = None,
    ) -> None:
        if isinstance(b1, (tuple, list)):
            raise TypeError(f"b1 is a number, not {b1}; torch's pair is betas={tuple(b1)}")
        b1, b2 = (b1, b2) if betas is None else betas
        if not (0 <= b1 < 1 and 0 <= b2 < 1 and weight_decay >= 0 and eps >= 0):
            raise ValueError(
                "b1 and b2 must be in [0, 1), weight_decay and eps 0 or more, not"
                f" {b1}, {b2}, {weight_decay}, {eps}"
            )
        super().__init__(params, lr, device, fused)
        self.b1, self.b2, self.eps, self.weight_decay = b1, b2, eps, weight_decay
        # The names of state are those of checkpoints: powers b ** steps, mean, mean of squares.
        self.b1_t, self.b2_t = self._number(1.0).realize(), self._number(1.0).realize()
        self.m, self.v = self._state(), self._state()

    def _advance(self) -> list[Tensor]:
        self.b1_t.assign(self.b1_t * self.b1)
        self.b2_t.assign(self.b2_t * self.b2)
        return [self.b1_t, self.b2_t, *self.m, *self.v]

    def _states(self, number: int) -> tuple[Tensor, ...]:
        return self.m[number], self.v[number]

    def _next(self, number: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        return _adam(
            value, gradient, self.m[number], self.v[number], self.b1_t, self.b2_t, self.lr,
            self.b1, self.b2, self.eps, self.weight_decay, self.decoupled, self.is_scaled,
        )  # fmt: skip


class AdamW(Adam):
    """Adam with weight decay apart from the moments (Loshchilov and Hutter, 2019)."""

    decoupled = True

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        device: str | None = None,
        fused: bool = False,
        *,
        betas: tuple[float, float] | None = None,
    ) -> None:
        decay = weight_decay
        super().__init__(params, lr, b1, b2, eps, device, fused, weight_decay=decay, betas=betas)


class LAMB(AdamW):
    """AdamW whose rate is scaled for each parameter by |value| / |change| (You et al., 2020)."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        not_as_one("LAMB", fused and not adam)
        super().__init__(params, lr, b1, b2, eps, weight_decay, device, fused)
        self.is_scaled = not adam


@made_once
def _adam(
    value: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    b1_t: Tensor,
    b2_t: Tensor,
    lr: Tensor,
    b1: float,
    b2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    is_scaled: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """A parameter, and its moments, one step further."""
    own, gradient = in_state_type(value), in_state_type(gradient)
    if decay and not decoupled:
        gradient = gradient + own * decay
    new_mean = (mean * b1 + gradient * (1 - b1)).cast(mean.dtype)
    new_square = (square * b2 + gradient.square() * (1 - b2)).cast(square.dtype)
    # Both are corrected for their start at zero; a factor for all elements is divided by once: of each element there is one quotient.
    of_mean, of_deviation = 1 / _one_without(b1_t, b1), (1 / _one_without(b2_t, b2)).sqrt()
    change = new_mean * of_mean / (new_square.sqrt() * of_deviation + eps)
    if decay and decoupled:
        change = change + own * decay
    rate = lr * norm_ratio(own, change) if is_scaled else lr
    return less(value, change * rate), new_mean, new_square


def _one_without(power: Tensor, factor: float) -> Tensor:
    """1 - factor ** steps, for `power`, which is factor ** steps rounded.

    In the first steps little is left of 1 - power but what was rounded: 1 - 0.999 in float32 is 13 millionths off. The number of steps is exact.
    """
    if not factor:
        return 1 - power
    rate = log(factor)
    steps = (power.log() / rate).round()
    return -(steps * rate).expm1()
