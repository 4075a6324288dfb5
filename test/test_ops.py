"""Operations by name, where users of tinygrad look for them: each against numpy on the default
device.

`python -m pytest test/test_ops.py::TestOps::test_relu` is a command that tutorials print. The thorough
tests are in tests/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from proofgrad import Tensor

Array = np.ndarray[Any, Any]


def check(
    ours: Callable[..., Tensor], theirs: Callable[..., Any], *shapes: tuple[int, ...]
) -> None:
    """Values of both functions on the same numbers."""
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-2, 2, shape).astype(np.float32) for shape in shapes]
    found = ours(*map(Tensor, arrays)).numpy()
    np.testing.assert_allclose(found, theirs(*arrays), rtol=2e-5, atol=2e-6)


class TestOps:
    """One test an operation."""

    def test_add(self) -> None:
        check(lambda x, y: x + y, np.add, (4, 5), (5,))

    def test_mul(self) -> None:
        check(lambda x, y: x * y, np.multiply, (4, 5), (4, 1))

    def test_relu(self) -> None:
        check(Tensor.relu, lambda x: np.maximum(x, 0), (4, 5))

    def test_exp(self) -> None:
        check(Tensor.exp, np.exp, (4, 5))

    def test_sum(self) -> None:
        check(lambda x: x.sum(axis=1), lambda x: x.sum(1), (4, 5))

    def test_max(self) -> None:
        check(lambda x: x.max(axis=0), lambda x: x.max(0), (4, 5))

    def test_matmul(self) -> None:
        check(lambda x, y: x @ y, np.matmul, (4, 5), (5, 3))

    def test_permute(self) -> None:
        check(lambda x: x.permute(1, 0), np.transpose, (4, 5))

    def test_where(self) -> None:
        check(lambda x: (x > 0).where(x, -x), np.abs, (4, 5))
