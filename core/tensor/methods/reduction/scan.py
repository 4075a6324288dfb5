"""Running sums, products, extremes along an axis.

Owns: the work. Element i of a block of BLOCK is a reduction over the first i + 1 of it; the last
ones of the blocks are scanned in turn and put in front of the next block. So n elements take about
BLOCK * n steps at every size, in 2 log(n) / log(BLOCK) kernels, and not n * n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import at_least
from proofgrad.core.tensor.data.arguments import Scalar, normal_size, resolve_axis
from proofgrad.core.tensor.methods.movement.joining import Movement

BLOCK = 32
_T = TypeVar("_T", bound=Movement)


@dataclass(frozen=True, slots=True)
class Combination:
    """An associative operation on Tensors: of two, of all on the last axis, and what changes none."""

    of_two: Callable[[Any, Any], Any]
    of_last_axis: Callable[[Any], Any]
    identity: Scalar


SUM = Combination(lambda a, b: a + b, lambda x: x._reduce(Ops.ADD, -1, False), 0)
PRODUCT = Combination(lambda a, b: a * b, lambda x: x._reduce(Ops.MUL, -1, False), 1)
LOG_SUM_EXP = Combination(
    lambda a, b: a.logaddexp(b), lambda x: x.logsumexp(-1), -math.inf
)  # fmt: skip


def running_extreme(x: _T, axis: int, op: Ops) -> tuple[_T, _T]:
    """The extreme element up to each, and where it is first found."""
    if x.dtype.is_bool:
        values, positions = running_extreme(x.cast(dtypes.uint8), axis, op)
        return values.bool(), positions
    limit = dtypes.min(x.dtype) if op is Ops.MAX else dtypes.max(x.dtype)
    values = scan(x, axis, _extreme(op, limit))._value()
    return values, _positions_of_records(x, axis, values)


def _positions_of_records(x: _T, axis: int, values: _T) -> _T:
    """Where each running extreme began: the last position before which it was another."""
    if not x.ndim:
        return x._iota(1).reshape(())
    along = resolve_axis(axis, x.ndim)
    size = x.shape[along]
    found = values.detach()
    around = [(0, 0)] * x.ndim
    around[along] = (1, -1) if size else (0, 0)
    before = found._pad_zeros(around)
    position = x._iota(size).reshape((-1,) + (1,) * (x.ndim - along - 1))
    changed = found.ne(before)
    if x.is_floating_point():
        changed = changed & ~(found.isnan() & before.isnan())
    return scan((changed & position.ne(0)).where(position, 0), axis, _extreme(Ops.MAX, 0))


def scan(x: _T, axis: int, combination: Combination) -> _T:
    """Every prefix of an axis combined."""
    along = resolve_axis(axis, x.ndim)
    if not x.ndim:
        return x
    return _scan_last(x._axis_last(along), combination)._axis_from_last(along)


def _scan_last(x: _T, combination: Combination) -> _T:
    size = x.shape[-1]
    if x.numel() == 0:
        return x
    if at_least(BLOCK, size):
        return _prefixes(x, combination)
    count = normal_size((size + BLOCK - 1) // BLOCK)
    outer = [(0, 0)] * (x.ndim - 1)
    padded = x._pad_value([*outer, (0, count * BLOCK - size)], combination.identity)
    blocks = _prefixes(padded.reshape((*x.shape[:-1], count, BLOCK)), combination)
    ends = blocks._cut(blocks.ndim - 1, BLOCK - 1, BLOCK).reshape((*x.shape[:-1], count))
    scanned = _scan_last(ends, combination)
    shifted = scanned._pad_value([*outer, (1, -1)], combination.identity)
    result: _T = combination.of_two(shifted.unsqueeze(-1), blocks)
    return result.reshape((*x.shape[:-1], count * BLOCK))._cut(x.ndim - 1, 0, size)


def _prefixes(x: _T, combination: Combination) -> _T:
    """Element i combined from those of the last axis up to i, one by one."""
    size = x.shape[-1]
    line = x._iota(size)
    upto = line.reshape((1, size)) <= line.reshape((size, 1))
    result: _T = combination.of_last_axis(upto.where(x.unsqueeze(-2), combination.identity))
    return result


def _extreme(op: Ops, limit: Scalar) -> Combination:
    def of_two(a: Any, b: Any) -> Any:
        return a.maximum(b) if op is Ops.MAX else a.minimum(b)

    return Combination(of_two, lambda x: x._reduce(op, -1, False), limit)
