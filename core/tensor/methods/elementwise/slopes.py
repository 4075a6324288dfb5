"""Functions of one number with a slope by a formula of its own.

Owns: the mark that such a function leaves, and slopes that more than one method has. Does not own: the formulas of values
(functions.py, nn/layers.py), the walk that finds the mark (autograd.py).

The derivative of a polynomial that is near a function may be further from that of the function, and takes longer. How far
each slope may be off is measured as values are (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.methods.base import TensorBase
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient
from proofgrad.core.tensor.methods.elementwise.series import NORMAL_ENDS_FLOAT32

Slope = Callable[[Any], Any]
_T = TypeVar("_T", bound=TensorBase)


def with_slope(value: _T, x: _T, slope: Slope) -> _T:
    """`value`, a function of each element of x, whose derivative is `slope(x)`."""
    # mypy takes the __hash__ of Tensors for that of their class.
    mark = _mark(type(x), x.device, slope)
    return x._with(UOp(Ops.DETACH, value.dtype, (value._uop, x._uop), mark))


@lru_cache(maxsize=256)
def _mark(kind: Any, device: str, slope: Slope) -> CustomGradient:
    """One for all uses of a function, so that equal graphs are one."""
    return CustomGradient(lambda gradient, x: gradient * slope(x), slope.__name__, kind, device)


def slope_of_steps(x: Any) -> Any:
    """0: a function of steps is flat between them."""
    return 0.0


@lru_cache(maxsize=256)
def slope_of_clamp(least: float, largest: float) -> Slope:
    """1 where the value stays, the bounds included; one function for equal bounds, so that equal graphs are one."""

    def slope_within(x: Any) -> Any:
        return ((x >= least) & (x <= largest)).cast(x.dtype)

    return slope_within


def slope_of_expm1(x: Any) -> Any:
    """e**x."""
    return x.exp()


def slope_of_atan(x: Any) -> Any:
    """1 / (1 + x**2), of the tangent or its reciprocal: no square overflows."""
    far = ~x._within(1)
    square = far.where(far.where(x, 1).reciprocal(), x).square()
    return far.where(square, 1) / (square + 1)


def slope_of_tan(x: Any) -> Any:
    """1 + tan(x)**2."""
    tangent = x.tan()
    return tangent._multiply_add(tangent, 1.0)


def slope_of_tanh(x: Any) -> Any:
    """4 e / (1 + e)**2 with e = exp(-2 |x|)."""
    return slope_of_sigmoid(x * 2) * 4


def slope_of_erf(x: Any) -> Any:
    """2 / sqrt(pi) exp(-x**2)."""
    return (-x.square()).exp() * _TWO_OVER_ROOT_PI


def slope_of_normal_gelu(x: Any) -> Any:
    """The chance that a normal number is below a float32, and x times its density."""
    beyond = x._size(NORMAL_ENDS_FLOAT32)._beyond()
    below = (x < 0).where(beyond, 1 - beyond)
    return x._multiply_add((x.square() * -0.5).exp() * _ONE_OVER_ROOT_TWO_PI, below)


def slope_of_sigmoid(x: Any) -> Any:
    """e / (1 + e)**2 with e = exp(-|x|)."""
    small = (x < 0).where(x, -x).exp()
    return small / (small + 1).square()


def slope_of_softplus(x: Any) -> Any:
    """sigmoid(x)."""
    return x.sigmoid()


def slope_of_mish_share(x: Any) -> Any:
    """4 e (1 + e) / (n + 2)**2 with n = e (e + 2), e = exp(x): that of tanh(softplus(x))."""
    power = x.exp()
    return power * (power + 1) * 4 / (power * (power + 2) + 2).square()


_ONE_OVER_ROOT_TWO_PI = 0.3989422804014327
_TWO_OVER_ROOT_PI = 1.1283791670955126
