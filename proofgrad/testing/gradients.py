"""Derivatives checked against differences: for tests of new operations and cotangent rules.

Owns: `gradcheck`. Does not own: the derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.tensor import Tensor

STEP = 1e-5  # of a difference in float64: truncation (STEP^2) and rounding (1e-16 / STEP) balance
TOLERANCE = 1e-6  # what such a difference can be trusted to, for values near 1


class GradientError(AssertionError):
    """A derivative and the difference disagree: says where, and both values."""


def gradcheck(
    function: Callable[..., Tensor],
    inputs: Tensor | list[Tensor] | tuple[Tensor, ...],
    step: float = STEP,
    tolerance: float = TOLERANCE,
) -> bool:
    """Compare `function(*inputs).gradient` with central differences, each float input in float64.

    Inputs that are no floats (indices, masks, labels) stay as they are. A result of many elements
    is weighted, so that no error can cancel. Returns True.

    Raises: GradientError naming input, position and both values; ValueError without a float input.

    Example:
        gradcheck(lambda x: x.sin(), Tensor([0.5, 1.0]))
    """
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    floats = [number for number, tensor in enumerate(tensors) if tensor.dtype.is_float]
    if not floats:
        raise ValueError("gradcheck needs an input of floats; only they have derivatives")
    points = [
        tensor.cast(dtypes.float64).numpy() if number in floats else tensor
        for number, tensor in enumerate(tensors)
    ]
    positions = [
        Tensor(point, requires_grad=True) if number in floats else point
        for number, point in enumerate(points)
    ]
    result = function(*positions)
    weights = _weights(result.shape)
    total = (result * Tensor(weights)).sum()
    gradients = total.gradient(*[positions[number] for number in floats], materialize_grads=True)
    for number, gradient in zip(floats, gradients, strict=True):
        _compare(function, points, weights, number, gradient.numpy(), step, tolerance)
    return True


def _compare(
    function: Callable[..., Tensor],
    points: list[Any],
    weights: Any,
    number: int,
    derivative: Any,
    step: float,
    tolerance: float,
) -> None:
    import numpy

    for position in numpy.ndindex(points[number].shape):
        values = []
        for direction in (step, -step):
            moved = [*points]
            moved[number] = points[number].copy()
            moved[number][position] += direction
            result = function(*[m if isinstance(m, Tensor) else Tensor(m) for m in moved])
            values.append((result.numpy() * weights).sum())
        difference = (values[0] - values[1]) / (2 * step)
        found = derivative[position]
        if not abs(found - difference) <= tolerance * max(1.0, abs(difference)):
            raise GradientError(
                f"input {number} at {position}: the derivative is {found:.9g}, the difference"
                f" {difference:.9g} (step {step:g}, tolerance {tolerance:g})"
            )


def _weights(shape: tuple[int, ...]) -> Any:
    """Different numbers between 0.5 and 1.5."""
    import numpy

    return numpy.random.default_rng(0).uniform(0.5, 1.5, shape)
