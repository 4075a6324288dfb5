"""A transposed convolution with strides, as convolutions without: one for the results of each phase.

Owns: the parts. Does not own: the convolution itself, padding, types and biases (windows.py).

With stride s, result s * q + r reads the taps r, r + s, r + 2 * s, ... of the kernel, and no others:

    y[s * q + r]   =   sum over t of x[q - t] * w[r + s * t]

Zeros between the elements of x say the same and take s times as many products an axis.

    s = 2, three taps     r = 0: w0, w2 (two taps)     r = 1: w1 (one tap)

Taps that lie d = s * e apart are all of phase 0, and e elements of x apart; other such taps get zeros between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any


@dataclass(frozen=True, slots=True)
class _Phases:
    """The phases begin <= r < end of one axis, which have `taps` taps each, `hole` elements of x apart."""

    begin: int
    end: int
    taps: int
    hole: int = 1

    @property
    def count(self) -> int:
        return self.end - self.begin

    @property
    def reach(self) -> int:
        """How far apart the elements of x lie that the first and the last tap take."""
        return self.hole * (self.taps - 1)


def transposed_by_phases(
    x: Any, w: Any, groups: int, steps: Sequence[int], holes: Sequence[int]
) -> Any:
    """All results without padding: at least (size - 1) * step + hole * (kernel - 1) + 1 an axis, beyond those zeros.

    Shapes: x (n, in, *size) and w (in, out / groups, *kernel), of one type, all sizes 1 or more; (n, out, *result).
    """
    axes = len(steps)
    for k, (step, hole) in enumerate(zip(steps, holes)):
        w = w if hole % step == 0 else w._zeros_between(2 + k, hole)
    kernel = w.shape[2:]
    split = [_phases_of(*sizes) for sizes in zip(kernel, steps, holes)]
    lengths = [size + phases[0].reach for size, phases in zip(x.shape[2:], split)]
    parts = {some: _part(x, w, groups, some, steps, lengths) for some in product(*split)}
    y = _joined(parts, split, steps)  # (n, out, *phase, *q)
    order = [axis for k in range(axes) for axis in (2 + axes + k, 2 + k)]
    sizes = [length * step for length, step in zip(lengths, steps)]
    return y.permute((0, 1, *order)).reshape((*y.shape[:2], *sizes))


def _phases_of(kernel: int, step: int, hole: int) -> list[_Phases]:
    """The phases of an axis that have taps, those that reach furthest first."""
    if hole % step == 0:
        return [_Phases(0, 1, kernel, hole // step)]
    most, rest = -(-kernel // step), kernel % step
    found = [_Phases(0, rest or step, most)]
    return [*found, _Phases(rest, step, most - 1)] if rest and most > 1 else found


def _part(
    x: Any, w: Any, groups: int, phases: Sequence[_Phases], steps: Sequence[int], lengths: list[int]
) -> Any:
    """The results of some phases: (n, out, *phase, *q), with zeros behind the last q that a tap reaches."""
    axes = len(steps)
    for axis, (phase, step) in enumerate(zip(phases, steps)):
        w = _taps(w, 2 + 2 * axis, phase, step)
    counts = [p.count for p in phases]
    inner, outer = [3 + 2 * k for k in range(axes)], [4 + 2 * k for k in range(axes)]
    w = w.flip([axis - 1 for axis in inner])  # as `_reached` gives the taps
    w = w.unflatten(0, (groups, -1)).permute((0, 2, *outer, 1, *inner)).flatten(0, 1 + axes)
    own = [size + p.reach for size, p in zip(x.shape[2:], phases)]
    y = x._reached(w.shape, groups, [p.hole for p in phases], own)._weighted(w, groups)
    y = y.contiguous().unflatten(
        1, (-1, *counts)
    )  # sums of products in their own order run in tiles
    missing = [length - size for length, size in zip(lengths, own)]
    return y._pad_zeros([(0, 0)] * (2 + axes) + [(0, n) for n in missing])


def _taps(w: Any, axis: int, phase: _Phases, step: int) -> Any:
    """The axis of a kernel as two: taps of a phase, phases."""
    if phase.taps == w.shape[axis]:  # all of them
        return w.unsqueeze(axis + 1)
    reach = phase.begin + step * phase.taps
    around = [(0, 0)] * w.ndim
    around[axis] = (-phase.begin, reach - w.shape[axis])
    return w._pad_zeros(around).unflatten(axis, (phase.taps, step))._cut(axis + 1, 0, phase.count)


def _joined(
    parts: dict[tuple[_Phases, ...], Any], split: Sequence[list[_Phases]], steps: Sequence[int]
) -> Any:
    """All phases side by side along their axes; of those without taps the results are zeros."""
    for axis in reversed(range(len(split))):
        joined = {}
        for before in product(*split[:axis]):
            own = [parts[(*before, phases)] for phases in split[axis]]
            y = own[0] if len(own) == 1 else own[0].cat(*own[1:], dim=2 + axis)
            around = [(0, 0)] * y.ndim
            around[2 + axis] = (0, steps[axis] - y.shape[2 + axis])
            joined[before] = y._pad_zeros(around)
        parts = joined
    return parts[()]
