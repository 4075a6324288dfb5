"""Steps along the gradient: plain, with momentum, scaled by layer, orthogonalised.

Owns: SGD, LARS, Muon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proofgrad import ShapeError, Tensor
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.nn.optim.optimizer import Optimizer, in_state_type, less, norm_ratio, not_as_one


class SGD(Optimizer):
    """Gradient descent with momentum (Sutskever et al., 2013), as torch.optim.SGD.

    `classic`: the rate goes into the velocity, as in the first papers, so that a later change of
    the rate acts slowly. `weight_decay` is added to the gradient.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        if momentum < 0 or weight_decay < 0:
            raise ValueError(
                f"momentum and weight_decay must be 0 or more, not {momentum} and {weight_decay}"
            )
        if nesterov and not momentum:
            raise ValueError("nesterov=True changes nothing without a momentum; give momentum=0.9")
        super().__init__(params, lr, device, fused)
        self.momentum, self.weight_decay = momentum, weight_decay
        self.nesterov, self.classic = nesterov, classic
        self.b = self._state() if momentum else []  # velocities; the name is that of checkpoints

    def _advance(self) -> list[Tensor]:
        return self.b

    def _states(self, number: int) -> tuple[Tensor, ...]:
        return (self.b[number],) if self.b else ()

    def _next(self, number: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        velocity = self.b[number] if self.b else None
        return _sgd(
            value, gradient, self.lr, velocity,
            self.momentum, self.weight_decay, self.nesterov, self.classic,
        )  # fmt: skip


class LARS(SGD):
    """SGD whose rate is scaled for each parameter by |value| / |gradient| (You et al., 2017).

    `tcoef` is the trust coefficient; 0 leaves plain SGD. `ns_steps`: so many of Newton and Schulz make the step
    orthogonal. `pre_wd`: weight decay goes into the gradient, and so into the velocity; else it is apart from both.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        ns_steps: int = 0,
        ns_coefficients: Sequence[float] | None = None,
        nesterov: bool = False,
        classic: bool = True,
        pre_wd: bool = True,
        tcoef: float = 0.001,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        not_as_one("LARS", fused and bool(tcoef or ns_steps))
        super().__init__(params, lr, momentum, weight_decay, nesterov, classic, device, fused)
        self.pre_wd, self.tcoef, self.ns_steps = pre_wd, tcoef, ns_steps
        self.ns_coefficients = None if ns_coefficients is None else tuple(ns_coefficients)

    def _next(self, number: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        velocity = self.b[number] if self.b else None
        return _lars(
            value, gradient, self.lr, velocity,
            self.momentum, self.weight_decay, self.nesterov, self.classic,
            self.pre_wd, self.tcoef, self.ns_steps, self.ns_coefficients,
        )  # fmt: skip


class Muon(SGD):
    """SGD with momentum whose matrices become orthogonal before the step (Jordan et al., 2024).

    For parameters of 2 axes or more; the axes after the first count as columns. Weight decay is
    apart from the momentum. Source: https://kellerjordan.github.io/posts/muon
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_coefficients: Sequence[float] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        not_as_one("Muon", fused)
        super().__init__(params, lr, momentum, weight_decay, nesterov, False, device)
        for param in self.params:
            if param.ndim < 2:
                raise ShapeError(
                    f"Muon needs parameters of 2 axes or more, not of shape {param.shape}; give"
                    " the others to AdamW, in an OptimizerGroup"
                )
        self.ns_steps, self.ns_coefficients = ns_steps, tuple(ns_coefficients)

    def _next(self, number: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        velocity = self.b[number] if self.b else None
        return _muon(
            value, gradient, self.lr, velocity,
            self.momentum, self.weight_decay, self.nesterov, self.ns_steps, self.ns_coefficients,
        )  # fmt: skip


@made_once
def _sgd(
    value: Tensor, gradient: Tensor, lr: Tensor, velocity: Tensor | None,
    momentum: float, decay: float, nesterov: bool, classic: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """A parameter, and its velocity, one step further."""
    own, gradient = in_state_type(value), in_state_type(gradient)
    if decay:
        gradient = gradient + own * decay
    direction, *state = _faster(
        velocity, gradient * lr if classic else gradient, momentum, nesterov
    )
    return less(value, direction if classic else direction * lr), *state


@made_once
def _lars(
    value: Tensor, gradient: Tensor, lr: Tensor, velocity: Tensor | None,
    momentum: float, decay: float, nesterov: bool, classic: bool, pre_wd: bool, tcoef: float,
    steps: int, coefficients: tuple[float, ...] | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """As `_sgd`, at a rate by the norms of both."""
    own, gradient = in_state_type(value), in_state_type(gradient)
    rate = lr * norm_ratio(own, gradient, tcoef, decay) if tcoef else lr
    if decay and pre_wd:
        gradient = gradient + own * decay
    direction, *state = _faster(
        velocity, gradient * rate if classic else gradient, momentum, nesterov
    )
    if steps:
        direction = orthogonal(direction, steps, coefficients)
    change = direction if classic else direction * rate
    return less(value, change if pre_wd else change + own * decay * lr), *state


@made_once
def _muon(
    value: Tensor, gradient: Tensor, lr: Tensor, velocity: Tensor | None,
    momentum: float, decay: float, nesterov: bool, steps: int, coefficients: tuple[float, ...],
) -> tuple[Tensor, ...]:  # fmt: skip
    """As `_sgd`, by a matrix near an orthogonal one."""
    direction, *state = _faster(velocity, in_state_type(gradient), momentum, nesterov)
    change = orthogonal(direction, steps, coefficients)
    return less(value, (change + in_state_type(value) * decay) * lr), *state


def _faster(
    velocity: Tensor | None, gradient: Tensor, momentum: float, nesterov: bool
) -> tuple[Tensor, ...]:
    """The direction of a step, and the velocity behind it if there is one."""
    if velocity is None:
        return (gradient,)
    new = (velocity * momentum + gradient).cast(velocity.dtype)
    return gradient + new * momentum if nesterov else new, new


def orthogonal(direction: Tensor, steps: int, coefficients: Sequence[float] | None) -> Tensor:
    """A step as a matrix near an orthogonal one; the axes after the first count as columns."""
    matrix = direction.reshape((direction.shape[0], -1))
    wanted = (3.4445, -4.775, 2.0315) if coefficients is None else coefficients
    return matrix.newton_schulz(steps, wanted).reshape(direction.shape)
