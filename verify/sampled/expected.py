"""What elements of a kernel's result should be, and the error where they are not.

Owns: the elements of a body by its graph, in memory that is drawn; the comparison; its error. Does not own: which elements are compared
(sampled/kernels.py, sampled/as_run.py), what memory holds (sampled/inputs.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.sampled.arithmetic import Values
from proofgrad.verify.sampled.freedom import Estimate
from proofgrad.verify.sampled.inputs import element
from proofgrad.verify.sampled.tensor import Budget, TensorElements, flat_elements


class CheckError(RuntimeError):
    """A kernel that computes another value than its tensor graph: a bug of the compiler, never of its user."""

    def __init__(self, kernel: str, stage: str, reason: str) -> None:
        super().__init__(f"kernel {kernel}, {stage}: {reason} (CHECK=1)")
        self.kernel, self.stage, self.reason = kernel, stage, reason


def expected_elements(
    body: UOp, where: Values, kind: Values, budget: Budget, seed: int = 0
) -> Estimate:
    """The elements of a body at row-major positions, each with the memory of its kind."""
    value = body.src[0]

    def read(node: UOp, index: Values) -> Estimate:
        index = numpy.asarray(index)
        seen = numpy.broadcast_to(kind, numpy.broadcast_shapes(index.shape, kind.shape))
        return Estimate(drawn(node.arg[0], node.dtype, index, seen, seed))

    return TensorElements(read, budget).at(value, flat_elements(value.shape, where))


def drawn(number: int, dtype: DType, index: Values, kind: Values, seed: int = 0) -> Values:
    """The elements of a memory of the body, each of its kind."""
    return element(number, dtype, index, kind, seed)


def compare(
    name: str,
    stage: str,
    dtype: DType,
    shape: Sequence[int],
    where: Values,
    expected: Estimate,
    values: Values,
) -> None:
    """Raises: CheckError for the first element that is another one than it may be."""
    agrees = numpy.broadcast_to(expected.agrees(values, dtype), where.shape)
    if agrees.all():
        return
    first = int(agrees.argmin())
    index = tuple([int(i) for i in numpy.unravel_index(int(where[first]), tuple(shape) or (1,))])
    right = numpy.broadcast_to(expected.values, where.shape)[first]
    off = (
        ""
        if expected.error is None
        else f" (off by {numpy.broadcast_to(expected.error, where.shape)[first]:.3g} at most)"
    )
    raise CheckError(
        name,
        stage,
        f"element {index if shape else ()} of shape {tuple(shape)} is {values[first]!r}, expected {right!r}{off};"
        f" {int((~agrees).sum())} of {len(where)} sampled elements differ",
    )
