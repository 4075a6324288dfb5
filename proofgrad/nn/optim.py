"""Optimisers: from gradients to new parameters. Formulas as in torch.optim.

Owns: the update rules and their state. Everything that changes from step to step is a Tensor, so
that every step runs the kernels of the first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from proofgrad import Tensor


class Optimizer(ABC):
    """What all optimisers share. A subclass says what a step does to one parameter.

    Parameters are realised when the optimiser is made: then the first step is like all others.
    """

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        unique = list({id(param): param for param in params}.values())
        for param in unique:
            if param.requires_grad is None:
                param.requires_grad = True
        self.params = [param for param in unique if param.requires_grad]
        self.buffers = [param for param in unique if not param.requires_grad]
        if not self.params:
            raise ValueError("an optimizer needs a parameter that takes gradients")
        if lr < 0:
            raise ValueError(f"the learning rate must be 0 or more, not {lr}")
        self.lr = Tensor([float(lr)], self.params[0].device, requires_grad=False)
        Tensor.realize(*unique)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Take one step, now. Parameters without a gradient stay."""
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """Take one step, not computed yet: `loss.realize(*optimizer.schedule_step())`."""
        state = self._advance()
        for number, param in enumerate(self.params):
            if param.grad is not None:
                param.assign((param.detach() + self._change(number, param)).cast(param.dtype))
        return [*self.params, *self.buffers, *state]

    def _advance(self) -> list[Tensor]:
        """All state Tensors, after those that count steps have moved on."""
        return []

    @abstractmethod
    def _change(self, number: int, param: Tensor) -> Tensor:
        """What this step adds to a parameter."""

    def _zeros(self) -> list[Tensor]:
        """State for each parameter: data, not constants, for the same reason."""
        return [
            Tensor(bytes(p.nbytes()), p.device, p.dtype, requires_grad=False).reshape(p.shape)
            for p in self.params
        ]


def _gradient(param: Tensor) -> Tensor:
    if param.grad is None:
        raise ValueError("this parameter has no gradient; call backward first")
    return param.grad.detach()


class SGD(Optimizer):
    """Gradient descent with momentum (Sutskever et al., 2013)."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov
        self.velocity = self._zeros() if momentum else []

    def _advance(self) -> list[Tensor]:
        return self.velocity

    def _change(self, number: int, param: Tensor) -> Tensor:
        gradient = _gradient(param)
        if self.weight_decay:
            gradient = gradient + param.detach() * self.weight_decay
        if self.momentum:
            velocity = self.velocity[number]
            velocity.assign(velocity * self.momentum + gradient)
            gradient = gradient + velocity * self.momentum if self.nesterov else velocity
        return -(gradient * self.lr)


class Adam(Optimizer):
    """Steps scaled by running moments of the gradient (Kingma and Ba, 2015)."""

    decoupled = False

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.b1, self.b2, self.eps, self.weight_decay = b1, b2, eps, weight_decay
        device = self.params[0].device
        self.b1_power = Tensor([1.0], device, requires_grad=False)  # b1 ** steps
        self.b2_power = Tensor([1.0], device, requires_grad=False)
        self.first, self.second = self._zeros(), self._zeros()

    def _advance(self) -> list[Tensor]:
        self.b1_power.assign(self.b1_power * self.b1)
        self.b2_power.assign(self.b2_power * self.b2)
        return [self.b1_power, self.b2_power, *self.first, *self.second]

    def _change(self, number: int, param: Tensor) -> Tensor:
        gradient, value = _gradient(param), param.detach()
        if self.weight_decay and not self.decoupled:
            gradient = gradient + value * self.weight_decay
        first, second = self.first[number], self.second[number]
        first.assign(first * self.b1 + gradient * (1 - self.b1))
        second.assign(second * self.b2 + gradient.square() * (1 - self.b2))
        mean = first / (1 - self.b1_power)
        deviation = (second / (1 - self.b2_power)).sqrt()
        change = mean / (deviation + self.eps)
        if self.weight_decay and self.decoupled:
            change = change + value * self.weight_decay
        return -(change * self.lr)


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
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay)


class OptimizerGroup:
    """Several optimisers as one."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers: Sequence[Optimizer] = optimizers

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        Tensor.realize(*[t for optimizer in self.optimizers for t in optimizer.schedule_step()])
