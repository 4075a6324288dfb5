"""Gradients kept from growing too large.

Owns: clipping by norm and by value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from proofgrad import Tensor
from proofgrad.nn.optim.optimizer import state_dtype

MARGIN = 1e-6  # added to the norm, as torch does, so that a norm of 0 divides nothing by 0


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Scale all gradients so that their common norm is at most `max_norm`; the norm before.

    `norm_type` is the p of the norm, `math.inf` for the largest. Parameters without a gradient do
    not count. Nothing is computed yet.

    Raises: ValueError if no parameter has a gradient, or for a norm that is none.
    """
    params = _with_gradients(parameters)
    if not norm_type > 0 or max_norm < 0:
        raise ValueError(f"norm_type must be above 0 and max_norm 0 or more: {norm_type, max_norm}")
    gradients = [param.grad for param in params if param.grad is not None]
    total = _norm(gradients, norm_type)
    scale = (max_norm / (total + MARGIN)).minimum(1.0)
    for param, gradient in zip(params, gradients, strict=True):
        param.grad = (gradient * scale.to(gradient.device)).cast(gradient.dtype)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Every element of every gradient into -clip_value .. clip_value. Raises: ValueError."""
    if clip_value < 0:
        raise ValueError(f"clip_value must be 0 or more, not {clip_value}")
    for param in _with_gradients(parameters):
        assert param.grad is not None
        param.grad = param.grad.clamp(-clip_value, clip_value)


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    params = [param for param in given if param.grad is not None]
    if not params:
        raise ValueError(
            f"none of {len(given)} parameters has a gradient to clip; call backward first"
        )
    return params


def _norm(gradients: list[Tensor], p: float) -> Tensor:
    home = gradients[0].device
    if math.isinf(p):
        largest = [
            gradient.cast(state_dtype(gradient)).abs().max().to(home) for gradient in gradients
        ]
        return largest[0].stack(*largest[1:]).max()
    powers = [
        _power_sum(gradient.cast(state_dtype(gradient)), p).to(home) for gradient in gradients
    ]
    total = powers[0]
    for power in powers[1:]:
        total = total + power
    return total.sqrt() if p == 2 else total ** (1 / p)


def _power_sum(gradient: Tensor, p: float) -> Tensor:
    return (gradient.square() if p == 2 else gradient.abs() ** p).sum()
