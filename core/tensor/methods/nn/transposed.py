"""A transposed convolution with strides, as convolutions without: one for the results of each phase.

Owns: the parts. Does not own: the convolution itself, padding, types and biases (windows.py).

With stride s, result s * q + r reads the taps r, r + s, r + 2 * s, ... of the kernel, and no others:

    y[s * q + r]   =   sum over t of x[q - t] * w[r + s * t]

Zeros between the elements of x say the same and take s times as many products an axis.

    s = 2, three taps     r = 0: w0, w2 (two taps)     r = 1: w1 (one tap)

Of taps that lie d apart, tap k reaches result s * q + d * k: with g = gcd(s, d) the taps k, k + s / g, k + 2 * s / g, ... are of one phase,
d * k mod s, take elements of x that lie d / g apart, and begin d * k // s results behind x.

    s = 2, d = 3, three taps     r = 0: w0, w2 (three elements apart)     r = 1: w1 (one result behind)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any


@dataclass(frozen=True, slots=True)
class _Phases:
    """The phases of one axis whose first taps are begin <= k < end, which have `taps` taps each, `apart` in the kernel and `hole` elements of x apart."""

    begin: int
    end: int
    taps: int
    apart: int
    hole: int

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
    split = [_phases_of(*sizes) for sizes in zip(w.shape[2:], steps, holes)]
    lengths = [
        -(-((size - 1) * step + hole * (taps - 1) + 1) // step)
        for size, step, hole, taps in zip(x.shape[2:], steps, holes, w.shape[2:])
    ]
    parts = {some: _part(x, w, groups, some) for some in product(*split)}
    y = _joined(parts, split, steps, holes, lengths)  # (n, out, *phase, *q)
    order = [axis for k in range(axes) for axis in (2 + axes + k, 2 + k)]
    sizes = [length * step for length, step in zip(lengths, steps)]
    return y.permute((0, 1, *order)).reshape((*y.shape[:2], *sizes))


def _phases_of(kernel: int, step: int, hole: int) -> list[_Phases]:
    """The phases of an axis that have taps, those that reach furthest first."""
    both = gcd(step, hole)
    apart, beside = step // both, hole // both
    most, rest = -(-kernel // apart), kernel % apart
    found = [_Phases(0, rest or apart, most, apart, beside)]
    return [*found, _Phases(rest, apart, most - 1, apart, beside)] if rest and most > 1 else found


def _part(x: Any, w: Any, groups: int, phases: Sequence[_Phases]) -> Any:
    """The results of some phases, as if the first tap of each began at x: (n, out, *phase, *q)."""
    axes = len(phases)
    for axis, phase in enumerate(phases):
        w = _taps(w, 2 + 2 * axis, phase)
    counts = [p.count for p in phases]
    inner, outer = [3 + 2 * k for k in range(axes)], [4 + 2 * k for k in range(axes)]
    w = w.flip([axis - 1 for axis in inner])  # as `_reached` gives the taps
    w = w.unflatten(0, (groups, -1)).permute((0, 2, *outer, 1, *inner)).flatten(0, 1 + axes)
    own = [size + p.reach for size, p in zip(x.shape[2:], phases)]
    y = x._reached(w.shape, groups, [p.hole for p in phases], own)._weighted(w, groups)
    # Sums of products in their own order run in tiles.
    return y.contiguous().unflatten(1, (-1, *counts))


def _taps(w: Any, axis: int, phase: _Phases) -> Any:
    """The axis of a kernel as two: taps of a phase, phases."""
    if phase.taps == w.shape[axis]:  # all of them
        return w.unsqueeze(axis + 1)
    reach = phase.begin + phase.apart * phase.taps
    around = [(0, 0)] * w.ndim
    around[axis] = (-phase.begin, reach - w.shape[axis])
    own = w._pad_zeros(around).unflatten(axis, (phase.taps, phase.apart))
    return own._cut(axis + 1, 0, phase.count)


def _joined(
    parts: dict[tuple[_Phases, ...], Any],
    split: Sequence[list[_Phases]],
    steps: Sequence[int],
    holes: Sequence[int],
    lengths: Sequence[int],
) -> Any:
    """All phases side by side along their axes; of those without taps the results are zeros."""
    for axis in reversed(range(len(split))):
        joined = {}
        for before in product(*split[:axis]):
            pieces = []
            for phases in split[axis]:
                y, dim = parts[(*before, phases)], 2 + axis
                for first, end in _runs(phases, steps[axis], holes[axis]):
                    behind, place = divmod(first * holes[axis], steps[axis])
                    piece = y._cut(dim, first - phases.begin, end - phases.begin)
                    pieces.append((place, behind, piece))
            joined[before] = _beside_each_other(pieces, axis, steps[axis], lengths[axis])
        parts = joined
    return parts[()]


def _runs(phases: _Phases, step: int, hole: int) -> list[tuple[int, int]]:
    """First taps, first <= k < end, whose results are of phases side by side, and as far behind x."""
    if hole == 1:
        return [(phases.begin, phases.end)]
    return [(k, k + 1) for k in range(phases.begin, phases.end)]


def _beside_each_other(
    pieces: list[tuple[int, int, Any]], axis: int, step: int, length: int
) -> Any:
    """Pieces (first phase, results that it begins behind x, y) in the order of their phases, with zeros where there are none."""
    pieces = sorted(pieces, key=lambda piece: piece[0])
    ends, found = [*[place for place, _, _ in pieces[1:]], step], []
    for (place, behind, y), end in zip(pieces, ends):
        dim, along = 2 + axis, 2 + (y.ndim - 2) // 2 + axis
        around = [(0, 0)] * y.ndim
        around[dim] = (0, end - place - y.shape[dim])
        around[along] = (behind, length - behind - y.shape[along])
        found.append(y._pad_zeros(around))
    return found[0] if len(found) == 1 else found[0].cat(*found[1:], dim=2 + axis)
