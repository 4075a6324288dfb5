"""Padded values that windows read often: whether they get a buffer, and in which type.

Owns: these choices, heuristics. Does not own: all others of what is stored (kernels.py).
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.fusion.narrow_values import Consumers, unit_takes
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.running_reductions import varying
from proofgrad.core.compile.schedule.cost_model import masks_are_vectors
from proofgrad.core.ir.ops import CONVERSIONS, MOVEMENT
from proofgrad.core.ir.shapes import elements, is_plain
from proofgrad.core.ir.uop import UOp

# A padded value is stored if a reduction reads each of its elements so often: as copies, without masks. Where masks are vectors, which take
# registers of a tile's sums, less often (measured with AVX2: 5 x 5 of one filter a channel take 0.6 of the time, of one filter 0.8).
READ_OFTEN, READ_OFTEN_BY_VECTORS = 32, 16


def is_read_often(pad: UOp, consumers: Consumers, target: Target) -> bool:
    """Whether windows over a padded value read it so often that asking each time costs more.

    Not where windows lie so far apart that all of them together have fewer elements, and masks are not vectors: more would be stored than is read, whatever the number
    of filters (measured: convolutions with strides beyond their windows take 0.7 to 1 times as long where masks are asked; with AVX2 0.8 to 1.1 times).
    """
    shown = _shown(pad, consumers)
    in_vectors = target.vector_bytes > 0 and not target.work_items
    by_vectors = in_vectors and masks_are_vectors(target)
    often = READ_OFTEN_BY_VECTORS if by_vectors else READ_OFTEN
    if in_vectors and not by_vectors and _elements_read(shown) < elements(pad.shape):
        return False
    return elements(shown.shape) >= often * elements(pad.shape) > 0


def _elements_read(shown: UOp) -> int:
    """How many elements are shown, without those that are shown again for each filter."""
    if not is_plain(shown.shape):
        return elements(shown.shape)
    return prod([shown.shape[axis] for axis in varying(shown)])


def as_it_is_multiplied(pad: UOp, consumers: Consumers, target: Target) -> UOp:
    """What is stored of a padded value that is read often.

    On cores, which convert floats before they multiply, it is converted once; but where a unit takes it as it is.
    """
    users = consumers[pad]
    is_converted = len(users) == 1 and users[0].op in CONVERSIONS and users[0].dtype.is_float
    if not is_converted or not pad.dtype.is_float or target.lockstep != 1:
        return pad
    return pad if unit_takes(pad, pad.dtype, consumers, target) else users[0]


def _shown(pad: UOp, consumers: Consumers) -> UOp:
    """What the one way of movement operations and conversions from a value shows of it."""
    end = pad
    while len(consumers[end]) == 1 and consumers[end][0].op in MOVEMENT | CONVERSIONS:
        (end,) = consumers[end]
    return end
