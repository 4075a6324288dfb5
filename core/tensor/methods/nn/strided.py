"""The gradient of convolutions with strides, by products of elements alone.

Owns: what a cotangent becomes. Does not own: the phases (transposed.py), the convolution itself (windows.py).

By the laws of its movement the gradient for the input would be a table of all products, and then a sum over it: a stride's gradient puts
zeros between elements, and no sum runs through those in tiles. The phases of a transposed convolution are sums of products.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient
from proofgrad.core.tensor.methods.linalg.products import sum_of_products
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.nn.transposed import transposed_by_phases


def with_gradient_by_phases(
    y: Any, x: Any, w: Any, groups: int, steps: Sequence[int], holes: Sequence[int]
) -> Any:
    """`y`, which is the sum over each window of x times w, with its gradient for both."""
    # mypy takes the __hash__ of Tensors for that of their class.
    mark = _mark(type(x), x.device, groups, tuple(steps), tuple(holes))  # type: ignore[arg-type]
    return y._with(UOp(Ops.DETACH, y.dtype, (y._uop, x._uop, w._uop), mark))


@lru_cache(maxsize=256)
def _mark(
    kind: Any, device: str, groups: int, steps: tuple[int, ...], holes: tuple[int, ...]
) -> CustomGradient:
    """One for all convolutions alike, so that equal graphs are one."""

    def gradients(gradient: Any, x: Any, w: Any) -> tuple[Any, Any]:
        back = transposed_by_phases(gradient, w, groups, steps, holes)
        rest = [(0, n - found) for n, found in zip(x.shape[2:], back.shape[2:])]
        own = _of_weights(gradient, x, w.shape, groups, steps, holes)
        return back._pad_zeros([(0, 0), (0, 0), *rest]), own

    return CustomGradient(gradients, "a convolution with strides", kind, device)


@made_once
def transposed_with_gradient(
    x: Any, w: Any, groups: int, steps: Sequence[int], holes: Sequence[int]
) -> Any:
    """As `transposed_by_phases`, whose gradient for its input is the convolution that it is the gradient of."""
    y = transposed_by_phases(x, w, groups, steps, holes)
    if not y.dtype.is_float:
        return y
    mark = _transposed_mark(type(x), x.device, groups, tuple(steps), tuple(holes))  # type: ignore[arg-type]
    return y._with(UOp(Ops.DETACH, y.dtype, (y._uop, x._uop, w._uop), mark))


@lru_cache(maxsize=256)
def _transposed_mark(
    kind: Any, device: str, groups: int, steps: tuple[int, ...], holes: tuple[int, ...]
) -> CustomGradient:
    """One for all transposed convolutions alike, so that equal graphs are one."""

    def gradients(gradient: Any, x: Any, w: Any) -> tuple[Any, Any]:
        sizes = zip(x.shape[2:], w.shape[2:], steps, holes)
        reached = [(size - 1) * step + hole * (taps - 1) + 1 for size, taps, step, hole in sizes]
        beyond = [(0, n - found) for n, found in zip(reached, gradient.shape[2:])]
        own = gradient._pad_zeros([(0, 0), (0, 0), *beyond])
        back = own._correlated(w, groups, steps, holes)
        return back, _of_weights(x, own, w.shape, groups, steps, holes)

    return CustomGradient(gradients, "a transposed convolution", kind, device)


def _of_weights(
    gradient: Any,
    x: Any,
    shape: tuple[int, ...],
    groups: int,
    steps: tuple[int, ...],
    holes: tuple[int, ...],
) -> Any:
    """The sum over all windows of x of their elements times the cotangent of their results."""
    axes = len(steps)
    windows = x._of_windows(shape, groups, steps, holes)  # (n, groups, 1, *position, in, *inside)
    positions = windows.shape[3 : 3 + axes]
    results = gradient.reshape(
        (x.shape[0], groups, shape[0] // groups, *positions) + (1,) * (1 + axes)
    )
    total = sum_of_products(windows, results, x.dtype, (0, *range(3, 3 + axes)))
    return total.reshape(shape)
