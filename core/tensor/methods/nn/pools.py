"""The gradient of pools whose windows begin more than one element apart, by phases.

Owns: what a cotangent becomes. Does not own: the windows, the pools themselves (windows.py).

With windows that begin s apart, element s * q + r is in the windows q - t, at the tap r + s * t, for all t for which there is
such a tap. So each element adds up what it has of a few windows:

    dx[s * q + r]   =   sum over t of share[q - t], where r + s * t is a tap (and x[s * q + r] is the largest of window q - t)

By the laws of its movement the gradient would put zeros between elements, once for each tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient

# Windows that an element is in, each of which is written out.
MOST_WINDOWS = 32


def with_gradient_of_pool(
    y: Any, x: Any, kernels: Sequence[int], steps: Sequence[int], kind: str
) -> Any:
    """`y`, the "max", "mean" or "sum" of each window over the last axes of x, with its gradient.

    As it is where windows begin at each element, lie side by side, or are so long that each element is in many.
    """
    is_fixed = is_plain((*x.shape, *kernels, *steps)) and all(x.shape) and y.dtype.is_float
    if not is_fixed or max(steps) == 1 or tuple(kernels) == tuple(steps):
        return y
    if prod([-(-kernel // step) for kernel, step in zip(kernels, steps)]) > MOST_WINDOWS:
        return y
    # mypy takes the __hash__ of Tensors for that of their class.
    mark = _mark(type(x), x.device, tuple(kernels), tuple(steps), kind)  # type: ignore[arg-type]
    return y._with(UOp(Ops.DETACH, y.dtype, (y._uop, x._uop), mark))


@lru_cache(maxsize=256)
def _mark(
    kind: Any, device: str, kernels: tuple[int, ...], steps: tuple[int, ...], what: str
) -> CustomGradient:
    """One for all pools alike, so that equal graphs are one."""

    def gradients(gradient: Any, x: Any) -> Any:
        if what != "max":
            share = gradient / prod(kernels) if what == "mean" else gradient
            return _summed(share, None, x, kernels, steps)
        windows, inside = x, tuple(range(1 - 2 * len(steps), 0, 2))
        for k, (kernel, step) in enumerate(zip(kernels, steps)):
            windows = windows._windows(x.ndim - len(steps) + 2 * k, kernel, step, 1)
        largest = windows.max(inside).detach()
        ties = windows.eq(windows.max(inside, keepdim=True)).cast(x.dtype).sum(inside)
        share = largest.eq(largest).where(gradient / ties, largest)
        return _summed(share, largest, x, kernels, steps)

    return CustomGradient(gradients, f"a pool ({what})", kind, device)


def _summed(
    share: Any, largest: Any, x: Any, kernels: tuple[int, ...], steps: tuple[int, ...]
) -> Any:
    """For each element of x the sum of the shares of its windows; only of those whose `largest` it is, if that is given.

    All elements of a window with a NaN have its share, which is NaN.
    """
    first = x.ndim - len(steps)
    outer, sizes = x.shape[:first], x.shape[first:]
    counts = [-(-size // step) for size, step in zip(sizes, steps)]
    split = (*outer, *[n for pair in zip(counts, steps) for n in pair])
    behind = [count * step - size for count, step, size in zip(counts, steps, sizes)]
    whole = x._pad_zeros([(0, 0)] * first + [(0, n) for n in behind]).reshape(split)
    back: Any = None
    for shift in product(*[range(-(-kernel // step)) for kernel, step in zip(kernels, steps)]):
        is_read = _has_tap(x, shift, kernels, steps)
        if largest is not None:
            is_hit = (whole < _shifted(largest, shift, counts)).logical_not()
            is_read = is_hit if is_read is None else is_hit & is_read
        own = _shifted(share, shift, counts)
        own = own.expand(split) if is_read is None else is_read.where(own, 0).expand(split)
        back = own if back is None else back + own
    back = back.reshape((*outer, *[count * step for count, step in zip(counts, steps)]))
    return back._pad_zeros([(0, 0)] * first + [(0, -n) for n in behind])


def _has_tap(x: Any, shift: Sequence[int], kernels: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    """For which phases r + s * t is a tap, (*(1, phase)); None: for all."""
    found = None
    for k, (t, kernel, step) in enumerate(zip(shift, kernels, steps)):
        if kernel - step * t < step:
            shape = [1] * 2 * len(steps)
            shape[2 * k + 1] = step
            part = (x._iota(step) < kernel - step * t).reshape(tuple(shape))
            found = part if found is None else found & part
    return found


def _shifted(x: Any, shift: Sequence[int], counts: Sequence[int]) -> Any:
    """x[q - t] for so many q, zeros where there is none: (..., *(q, 1))."""
    first = x.ndim - len(shift)
    around = [(t, n - size - t) for t, n, size in zip(shift, counts, x.shape[first:])]
    x = x._pad_zeros([(0, 0)] * first + around)
    return x.reshape((*x.shape[:first], *[n for count in counts for n in (count, 1)]))
