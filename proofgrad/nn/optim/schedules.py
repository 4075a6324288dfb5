"""Learning rates that change from step to step. Formulas as in torch.optim.lr_scheduler.

Owns: the rate at each step, and giving it to the optimiser. A rate is worked out on the host in
float64 and written to `optimizer.lr`, which kernels read: a change of rate compiles nothing. While
TinyJit records, it is the same formula of the count of steps, which is a Tensor.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from proofgrad import JitError, Tensor, dtypes
from proofgrad.core.tensor.runtime.recording import recorder
from proofgrad.nn.optim.optimizer import Optimizer, OptimizerGroup
from proofgrad.nn.options import KnownOptions


class LRScheduler(KnownOptions, ABC):
    """A rate for each step of one optimiser, or of each in a group.

    Made with the rate of step 0; each `step()` goes on by one. `get_state_dict` has its position, and
    the Tensors of the optimiser: make all as at first, then load.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.parts = list(
            optimizer.optimizers if isinstance(optimizer, OptimizerGroup) else [optimizer]
        )
        self.base_lrs = [float(part.lr.item()) for part in self.parts]
        self.epoch = Tensor([0], "CPU", dtypes.int64, requires_grad=False)  # part of the state
        self._set()

    @property
    def last_epoch(self) -> int:
        """The number of steps so far: what `get_state_dict` has as `epoch`."""
        return int(self.epoch.item())

    @last_epoch.setter
    def last_epoch(self, step: int) -> None:
        self.epoch.assign(Tensor([step], "CPU", dtypes.int64)).realize()

    @abstractmethod
    def lr_at(self, step: int, base: float) -> float:
        """The rate after `step` steps of an optimiser that was made with the rate `base`."""

    def lr_of(self, step: Tensor, base: float) -> Tensor:
        """`lr_at` of a count that is a Tensor of float64. Raises: JitError for a schedule that has no such formula."""
        raise JitError(
            f"{type(self).__name__} has no formula of Tensors for its rate, so a recorded function cannot"
            " step it: call step() outside of it, or define lr_of(step, base) with Tensors"
        )

    def get_lr(self) -> list[float]:
        """The rates of this step, one for each optimiser."""
        return [self.lr_at(self.last_epoch, base) for base in self.base_lrs]

    def step(self) -> None:
        """Go on by one step, in a recorded function, too."""
        if recorder() is None:
            self.last_epoch += 1
            self._set()
        else:
            self._record_step()

    def _record_step(self) -> None:
        self.epoch.assign(self.epoch + 1).realize()
        step = self.epoch.cast(dtypes.float64)
        for part, base in zip(self.parts, self.base_lrs, strict=True):
            rate = self.lr_of(step, base).cast(part.lr.dtype)
            part.lr.assign(rate.to(part.lr.device)).realize()

    def _set(self) -> None:
        for part, rate in zip(self.parts, self.get_lr(), strict=True):
            _give(part, rate)


class StepLR(LRScheduler):
    """Times `gamma` every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        _check_count("step_size", step_size)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def lr_at(self, step: int, base: float) -> float:
        return base * self.gamma ** (step // self.step_size)

    def lr_of(self, step: Tensor, base: float) -> Tensor:
        return base * self.gamma ** (step / self.step_size).floor()


class MultiStepLR(LRScheduler):
    """Times `gamma` at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def lr_at(self, step: int, base: float) -> float:
        return base * self.gamma ** sum(milestone <= step for milestone in self.milestones)

    def lr_of(self, step: Tensor, base: float) -> Tensor:
        passed = step * 0
        for milestone in self.milestones:
            passed = passed + (step >= milestone)
        return base * self.gamma**passed


class ExponentialLR(LRScheduler):
    """Times `gamma` every step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def lr_at(self, step: int, base: float) -> float:
        return float(base * self.gamma**step)

    def lr_of(self, step: Tensor, base: float) -> Tensor:
        return base * self.gamma**step


class LambdaLR(LRScheduler):
    """Times what a function gives for the step. The function is no part of the state."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        if not callable(lr_lambda):
            raise TypeError(f"lr_lambda is a function of the step, not {lr_lambda!r}")
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def lr_at(self, step: int, base: float) -> float:
        return base * float(self.lr_lambda(step))


class CosineAnnealingLR(LRScheduler):
    """Down to `eta_min` in `T_max` steps along half a cosine, and up again after."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        _check_count("T_max", T_max)
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def lr_at(self, step: int, base: float) -> float:
        return _cosine(base, self.eta_min, step / self.T_max)

    def lr_of(self, step: Tensor, base: float) -> Tensor:
        return _cosine_of(base, self.eta_min, step / self.T_max)


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to max_lr, then down to that start / final_div_factor.

    `pct_start` is the share of steps that go up; `anneal_strategy` "cos" or "linear" (Smith and
    Topin, 2018). `step()` past `total_steps` raises ValueError; in a recorded function the rate stays then.
    The momentum stays as it is: as torch's with cycle_momentum=False.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        total_steps: int = 0,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
    ) -> None:
        _check_count("total_steps", total_steps)
        if anneal_strategy not in _BETWEEN:
            raise ValueError(f"anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"pct_start is a share in 0 .. 1, not {pct_start}")
        self.max_lr, self.total_steps = max_lr, total_steps
        self.initial_lr = max_lr / div_factor
        self.final_lr = self.initial_lr / final_div_factor
        self.top = pct_start * total_steps - 1  # the step of the largest rate
        self.between, self.between_tensors = _BETWEEN[anneal_strategy]
        super().__init__(optimizer)

    def lr_at(self, step: int, base: float) -> float:
        if step > self.total_steps:
            raise ValueError(f"step {step} of a OneCycleLR of {self.total_steps} steps")
        if step <= self.top:
            return self.between(self.initial_lr, self.max_lr, step / self.top if self.top else 1.0)
        share = (step - self.top) / max(self.total_steps - 1 - self.top, 1e-12)
        return self.between(self.max_lr, self.final_lr, share)

    def lr_of(self, step: Tensor, base: float) -> Tensor:
        step = step.minimum(self.total_steps)
        up = step / self.top if self.top else step * 0 + 1
        down = (step - self.top) / max(self.total_steps - 1 - self.top, 1e-12)
        rising = self.between_tensors(self.initial_lr, self.max_lr, up)
        falling = self.between_tensors(self.max_lr, self.final_lr, down)
        return (step <= self.top).where(rising, falling)


class LinearWarmup(LRScheduler):
    """From start_factor * rate to the rate in `steps` steps along a line; `then` takes over after.

    `then` is a schedule of the same optimiser, whose step 0 is step `steps` of this one.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        steps: int,
        start_factor: float = 0.0,
        then: LRScheduler | None = None,
    ) -> None:
        _check_count("steps", steps)
        if then is not None and then.optimizer is not optimizer:
            raise ValueError("LinearWarmup and the schedule after it need the same optimizer")
        self.steps, self.start_factor, self.then = steps, start_factor, then
        super().__init__(optimizer)
        if then is not None:
            self.base_lrs = then.base_lrs
            self._set()

    def lr_at(self, step: int, base: float) -> float:
        if step >= self.steps and self.then is not None:
            return self.then.lr_at(step - self.steps, base)
        share = min(step, self.steps) / self.steps
        top = base if self.then is None else self.then.lr_at(0, base)
        return top * (self.start_factor + (1 - self.start_factor) * share)

    def lr_of(self, step: Tensor, base: float) -> Tensor:
        share = step.minimum(self.steps) / self.steps
        top = base if self.then is None else self.then.lr_at(0, base)
        rising = top * (self.start_factor + (1 - self.start_factor) * share)
        if self.then is None:
            return rising
        after = self.then.lr_of((step - self.steps).maximum(0), base)
        return (step >= self.steps).where(after, rising)


class ReduceLROnPlateau(KnownOptions):
    """Times `factor` when the metric given to `step` has not become better for `patience` steps.

    Better is less for mode "min", more for "max", by `threshold`: a share of the best so far
    (threshold_mode "rel") or an amount ("abs"). After a cut, `cooldown` steps do not count. A rate
    that would fall by no more than `eps` stays.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                "mode is 'min' or 'max' and threshold_mode 'rel' or 'abs', not"
                f" {mode!r} and {threshold_mode!r}"
            )
        if factor >= 1:
            raise ValueError(f"factor must be below 1, not {factor}")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.min_lr, self.eps = cooldown, min_lr, eps
        best = math.inf if mode == "min" else -math.inf
        # The best metric, steps that were not better, steps that do not count: part of the state.
        self.progress = Tensor([best, 0, 0], "CPU", dtypes.float64, requires_grad=False)

    def step(self, metric: float | Tensor) -> None:
        """Take note of the metric of this step; lower the rate if it is time."""
        value = float(metric.item()) if isinstance(metric, Tensor) else float(metric)
        best, bad, cooling = self.progress.tolist()
        best, bad = (value, 0) if self._is_better(value, best) else (best, bad + 1)
        if cooling > 0:
            cooling, bad = cooling - 1, 0
        if bad > self.patience:
            self._lower()
            cooling, bad = self.cooldown, 0
        self.progress.assign(Tensor([best, bad, cooling], "CPU", dtypes.float64)).realize()

    def _is_better(self, value: float, best: float) -> bool:
        relative = self.threshold_mode == "rel"
        if self.mode == "min":
            scaled, moved = best * (1 - self.threshold), best - self.threshold
            return value < (scaled if relative else moved)
        scaled, moved = best * (1 + self.threshold), best + self.threshold
        return value > (scaled if relative else moved)

    def _lower(self) -> None:
        group = self.optimizer
        for part in group.optimizers if isinstance(group, OptimizerGroup) else [group]:
            before = float(part.lr.item())
            rate = max(before * self.factor, self.min_lr)
            if before - rate > self.eps:
                _give(part, rate)


def _give(part: Optimizer, rate: float) -> None:
    part.lr.assign(Tensor([rate], part.lr.device, part.lr.dtype)).realize()


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def _linear(start: float, end: float, share: float) -> float:
    return start + (end - start) * share


def _cosine_of(start: float, end: float, share: Tensor) -> Tensor:
    return end + (start - end) * (1 + (math.pi * share).cos()) / 2


def _linear_of(start: float, end: float, share: Tensor) -> Tensor:
    return start + (end - start) * share


_BETWEEN = {"cos": (_cosine, _cosine_of), "linear": (_linear, _linear_of)}


def _check_count(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be 1 or more, not {value}")
