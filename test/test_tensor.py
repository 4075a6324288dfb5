"""Tensors as tutorials use them: `python -m pytest test/test_tensor.py -x -v` is a command they print.

The thorough tests are in tests/.
"""

from __future__ import annotations

import numpy as np

from proofgrad import Tensor, dtypes


class TestTensor:
    """What a Tensor is and gives."""

    def test_from_a_list(self) -> None:
        t = Tensor([[1, 2], [3, 4]])
        assert (t.shape, t.dtype) == ((2, 2), dtypes.int)
        assert t.tolist() == [[1, 2], [3, 4]]

    def test_from_an_array_and_back(self) -> None:
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert np.array_equal(Tensor(array).numpy(), array)

    def test_realize_returns_itself(self) -> None:
        t = Tensor([1.0]) + 1
        assert t.realize() is t

    def test_backward_fills_grad(self) -> None:
        x = Tensor([1.0, 2.0], requires_grad=True)
        (x * x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2.0, 4.0]
