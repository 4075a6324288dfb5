"""How often kernels write each element of a memory: shown by the solver, or counted for all values of the loops.

Does not own: how often they should (kernels/proof.py), truths that memory holds, under which they write (kernels/truths.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy

from proofgrad.verify.kernels.loops import (
    digits_of_positions,
    map_by_position,
    map_by_stride,
    row_major,
)
from proofgrad.verify.kernels.questions import Questions, Verdict, all_of, every_point
from proofgrad.verify.kernels.readback import Written
from proofgrad.verify.kernels.terms import loop_size


def writes_each(stores: Sequence[Written], size: int, questions: Questions) -> bool:
    """As many writes as elements, and one to every element: shown by the solver."""
    if not stores:
        return False
    element = row_major(digits_of_positions([w.store.src[0].src[1] for w in stores], size)).term()
    writes, claims = 0, []
    for written in stores:
        address = written.store.src[0]
        terms = map_by_stride(address.src[1], element, written.loops)
        if terms is None:
            terms = map_by_position(address.src[1], element, written.loops)
        if terms is None or len(address.src) > 2:
            return False
        writes += prod(map(loop_size, written.loops))
        inside = [c for x, t in terms.items() for c in (~(t < 0), t < loop_size(x))]
        claims.append(all_of([address.src[1].substitute(terms).eq(element), *inside]))
    anyone = claims[0]
    for claim in claims[1:]:
        anyone = anyone | claim
    return writes == size and questions.seems(anyone).verdict is Verdict.PROVED


def times_written(stores: Sequence[Written], size: int, questions: Questions) -> numpy.ndarray:
    """How often each element is written, by trying every value of the loops."""
    times = numpy.zeros(size, numpy.int64)
    values = questions.terms.values
    for written in stores:
        _, index, *mask = written.store.src[0].src
        for points in every_point(written.loops):
            count = len(next(iter(points.values()))) if points else 1
            position = numpy.broadcast_to(values(index, points), (count,))
            if mask:
                position = position[numpy.broadcast_to(values(mask[0], points), (count,))]
            times += numpy.bincount(position, minlength=size)[:size]
    return times
