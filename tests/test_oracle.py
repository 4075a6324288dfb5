"""The numpy oracle against the plain Python meaning of each op: two texts, one semantics."""

from __future__ import annotations

import itertools
import math

import numpy as np
import oracle
import pytest

from proofgrad.core.ir.dtypes import DType, as_constant, dtypes
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import APPROXIMATED, BINARY, COMPARE, ELEMENTS, UNARY, Ops
from proofgrad.core.ir.uop import UOp

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-8, 6e-8, 3.0, 65504.0, 1e10, 3e38,
         -7.25, 127.5, 128.0, 255.5, 32768.0, 2147483648.0, 9.3e18, 1.9e19, 1e300, math.inf,
         -math.inf, math.nan]  # fmt: skip
INT_EDGES = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127, 128, 255, -1, -2, -3, -7, -8,
             -100, -128, 2**31 - 1, 2**31, 2**63 - 1, -(2**31), -(2**63), 2**64 - 1]  # fmt: skip


def values_of(dtype: DType) -> list[object]:
    if dtype.is_bool:
        return [False, True]
    if dtype.is_float:
        return [as_constant(value, dtype) for value in EDGES]
    lo, hi = dtype.lo, dtype.hi
    assert lo is not None and hi is not None
    return [value for value in INT_EDGES if lo <= value <= hi]


def applies(op: Ops, dtype: DType) -> bool:
    return dtype.kind in ELEMENTS[op].kinds


def node_of(op: Ops, dtype: DType, *sources: UOp) -> UOp:
    return UOp(op, dtype, sources)


def array_of(values: list[object], dtype: DType) -> np.ndarray:
    return np.array(values, oracle.numpy_dtype(dtype))


def same(found: object, expected: object, op: Ops, dtype: DType) -> bool:
    if isinstance(expected, float):
        a, b = float(found), expected
        if math.isnan(b):
            return math.isnan(a)
        if op in APPROXIMATED:  # by another library: not to the last bit
            return a == b or abs(a - b) <= 1e-2 * abs(b) + 1e-6
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return found == expected


SHOWN = sorted(UNARY | BINARY | {Ops.FMA})
CASES = [(op, dtype) for op in SHOWN for dtype in dtypes.all if applies(op, dtype)]


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_elementwise_on_edge_values_agrees_with_evaluate(op: Ops, dtype: DType) -> None:
    values = values_of(dtype)
    count = 1 if op in UNARY else 2 if op in BINARY else 3
    grid = list(itertools.product(values, repeat=count))
    leaf = UOp.const(dtype, 1)
    result = dtypes.bool if op in COMPARE else dtype
    columns = [array_of([row[k] for row in grid], dtype) for k in range(count)]
    with np.errstate(all="ignore"):
        found = oracle.elementwise(node_of(op, result, *[leaf] * count), columns)
    for row, value in zip(grid, found.tolist()):
        expected = evaluate(op, result, row, (dtype,) * count)
        assert same(value, expected, op, dtype), (op, dtype, row, value, expected)


@pytest.mark.parametrize("source", dtypes.all)
@pytest.mark.parametrize("target", dtypes.all)
def test_cast_of_edge_values_agrees_with_evaluate(source: DType, target: DType) -> None:
    values = values_of(source)
    with np.errstate(all="ignore"):
        found = oracle.cast(array_of(values, source), source, target)
    for value, result in zip(values, found.tolist()):
        expected = evaluate(Ops.CAST, target, (value,), (source,))
        assert same(result, expected, Ops.CAST, target), (value, result, expected)


def test_skew_reads_along_a_slanted_line() -> None:
    buffer = UOp(Ops.BUFFER, dtypes.int32, (UOp(Ops.UNIQUE, arg=0),), 6)
    grid = UOp(Ops.RESHAPE, dtypes.int32, (buffer,), (3, 2))
    skewed = UOp(Ops.SKEW, dtypes.int32, (grid,), (0, 1, 1, 3))
    found = oracle.evaluate_tensor(skewed, {buffer: np.arange(6, dtype=np.int32)})
    assert found.tolist() == [[0, 3], [2, 5], [4, 0]]
