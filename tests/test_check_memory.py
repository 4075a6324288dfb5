"""CHECK=1 asks what an array will hold before there is one: a sample of a large table costs no table."""

import tracemalloc

import numpy
import pytest

from proofgrad import Tensor
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.sampled.arithmetic import Values
from proofgrad.verify.sampled.freedom import Estimate
from proofgrad.verify.sampled.tensor import Budget, OverBudgetError, TensorElements

MOST = 200_000


def _less(rows: int, columns: int) -> UOp:
    """How often an element of a column is less than one of a row: what is read stands for any values."""
    column, row = [Tensor.zeros(*shape).clone().realize() for shape in ((rows, 1), (1, columns))]
    return (column < row).sum(1).sum(0).uop


def _read(node: object, position: Values) -> Estimate:
    return Estimate(numpy.asarray(position).astype(numpy.float32))


@pytest.mark.parametrize("rows, columns", [(4001, 3989), (30_000, 10_007)])
def test_a_table_of_two_reductions_is_refused_before_it_is_made(rows: int, columns: int) -> None:
    root = _less(rows, columns)
    elements = TensorElements(_read, Budget(MOST))
    tracemalloc.start()
    try:
        with pytest.raises(OverBudgetError):
            elements.at(root, ())
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * MOST < rows * columns


def test_what_the_budget_allows_is_computed() -> None:
    found = TensorElements(_read, Budget(MOST)).at(_less(31, 17), ())
    assert found.values.reshape(()) == sum(i < j for i in range(31) for j in range(17))
