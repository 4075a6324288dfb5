"""The points at which both sides of an instance are evaluated: values of what its graph reads.

Owns: the choice of values. Does not own: the graphs (instances.py), their values (interpreter.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from random import Random
from typing import Any

from proofgrad.core.ir.dtypes import DType, Kind, dtypes, round_float
from proofgrad.core.ir.evaluate import from_bits
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.agreement.interpreter import COUNTERS, Values

SMALL_INTS = (0, 1, 2, 3, -1, -2, 4, 5, 6, 7, 8, -3, -4, -5, -6, -7, -8)
_EDGES = {
    "float16": (2.0**-24, 65504.0, 2.0**-14, 1.0 + 2.0**-10),
    "bfloat16": (2.0**-133, 2.0**128 - 2.0**120, 2.0**-126, 1.0 + 2.0**-7),
    "float32": (2.0**-149, 2.0**128 - 2.0**104, 2.0**-126, 1.0 + 2.0**-23),
    "float64": (5e-324, 1.7976931348623157e308, 2.0**-1022, 1.0 + 2.0**-52),
}
SUMMED = (
    0.0,
    1.0,
    -0.0,
    2.0,
    -1.0,
    0.5,
    math.inf,
    -math.inf,
    math.nan,
)  # in any order, but for NaN


@cache
def corners(dtype: DType) -> tuple[Any, ...]:
    """Values of a type at which rules fail, those near zero first."""
    match dtype.kind:
        case Kind.BOOL:
            return (False, True)
        case Kind.FLOAT:
            smallest, largest, normal, above_one = _EDGES[dtype.name]
            near = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0, 0.5, -3.0)
            others = (largest, -largest, smallest, -smallest, normal, above_one, 0.1, 300.0, 1e10)
            return tuple(dict.fromkeys([*near, *[round_float(v, dtype) for v in others]])) + (-0.0,)
        case Kind.CODE:
            return tuple([from_bits(code, dtype) for code in range(256)])
        case Kind.INDEX:
            return (*SMALL_INTS, 9, 10, -9, 12, 15, 16, 17, 31, -16, 100, -100)
        case _:
            assert dtype.lo is not None and dtype.hi is not None
            half = 1 << (dtype.bits // 2)
            edges = [
                dtype.lo,
                dtype.hi,
                dtype.lo + 1,
                dtype.hi - 1,
                dtype.hi // 2,
                dtype.hi // 2 + 1,
            ]
            edges += [
                half,
                half - 1,
                -half,
                dtype.bits - 1,
                dtype.bits,
                100,
                200,
                255,
                256,
                -128,
                -129,
            ]
            values = [v for v in (*SMALL_INTS, *edges) if dtype.lo <= v <= dtype.hi]
            return tuple(dict.fromkeys(values))


def points_of(roots: Iterable[UOp], random: Random, most: int, is_summed: bool) -> Values | None:
    """At most `most` points for what the graphs read; all of them, if they are no more.

    None if there is none: a free loop runs over nothing.
    """
    nodes = toposort(roots)
    bound = {loop for node in nodes if node.op is Ops.REDUCE for loop in node.src[1:]}
    free = [n for n in nodes if n.op in COUNTERS and n not in bound]
    buffers = [n for n in nodes if n.op is Ops.PARAM]
    values = [n.arg for n in nodes if n.op is Ops.CONST and type(n.arg) in (int, float)]
    numbers = tuple(dict.fromkeys([value for value in values if value == value]))
    domains = [_counts(counter, numbers) for counter in free]
    domains += [_contents(buffer, random, numbers, is_summed) for buffer in buffers]
    if not all(domains):
        return None
    rows = _rows(domains, random, most)
    columns = [list(column) for column in zip(*rows)] if domains else []
    counters = dict(zip(free, columns))
    memory = dict(zip(buffers, columns[len(free) :]))
    return Values(len(rows), counters, memory)


def _rows(domains: Sequence[Sequence[Any]], random: Random, most: int) -> list[tuple[Any, ...]]:
    if math.prod([len(domain) for domain in domains]) <= most:
        return list(product(*domains))
    rows = [tuple([domain[0] for domain in domains])]
    for _ in range(most - 1):
        if random.random() < 0.2:  # equal, or at the same position of their corners
            position = random.randrange(64)
            rows.append(tuple([domain[position % len(domain)] for domain in domains]))
        else:
            rows.append(tuple([domain[int(random.random() * len(domain))] for domain in domains]))
    return rows


def _counts(counter: UOp, numbers: Sequence[Any]) -> Sequence[int]:
    if counter.op is Ops.RANGE:
        return range(counter.src[0].arg)
    _, low, high = counter.arg
    if high - low < 40:
        return range(low, high + 1)
    near = [v for n in numbers if type(n) is int for v in (n - 1, n, n + 1)]
    inside = [v for v in (*corners(dtypes.index), *near, low, high) if low <= v <= high]
    return list(dict.fromkeys(inside))


def _contents(buffer: UOp, random: Random, numbers: Sequence[Any], is_summed: bool) -> list[Any]:
    dtype, size = buffer.dtype, buffer.arg[1]
    values = list(SUMMED if is_summed and dtype.is_float else corners(dtype))
    if not is_summed:
        values += near_numbers(dtype, numbers)
    if size == 1:
        return [(value,) for value in values]
    held = [tuple([values[(k + first) % len(values)] for k in range(size)]) for first in range(4)]
    held += [tuple([random.choice(values) for _ in range(size)]) for _ in range(12)]
    return held


def near_numbers(dtype: DType, numbers: Sequence[Any]) -> list[Any]:
    """Values of the type at and next to numbers."""
    if dtype.is_float:
        return [n for n in numbers if type(n) is float and round_float(n, dtype) == n]
    if not dtype.is_int:
        return []
    near = [v for n in numbers if type(n) is int for v in (n - 1, n, n + 1)]
    return [v for v in near if dtype.lo is None or dtype.lo <= v <= dtype.hi]  # type: ignore[operator]
