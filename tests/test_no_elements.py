"""Tensors with axes of no elements: what is made of them is what numpy makes, on any processor and under CHECK=1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_cpu_target import cpu

from proofgrad import Context, ShapeError, Tensor

NOTHING = np.ones((0,), "int32")
PROGRAMS: list[tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = [
    ((129, 3, 0), lambda x, y: (x.prod(1) > 3).any(0) * y),
    ((7, 13, 0), lambda x, y: (x.argmax(1) > 3).any(0) * y),
    ((129, 3, 1), lambda x, y: x[:, ::2, 1:].sum(2)),
    ((129, 0, 100), lambda x, y: (x * 2)[:, :, ::-1].sum(2)),
    ((8, 0), lambda x, y: (x * 2).reshape(0).sum(0)),
    ((6, 0), lambda x, y: x.reshape(0, 1).max(1).sum(0) + x.reshape(3, 2, 0).sum(2)),
    ((0, 5), lambda x, y: x.reshape(5, 0).sum(1) * 2 + x.sum(0)),
]


@pytest.mark.parametrize("name", ["", "haswell"])
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_no_elements_gives_what_numpy_gives(number: int, name: str) -> None:
    shape, program = PROGRAMS[number]
    values = np.ones(shape, "int32")
    with cpu(name) as machine, Context(CHECK=1):
        if not machine.target.runs:
            pytest.skip("this machine is none")
        found = program(Tensor(values).realize(), Tensor(NOTHING).realize()).realize().numpy()
    np.testing.assert_array_equal(found, program(values, NOTHING))


@pytest.mark.parametrize("size", [0, 1, 3])
def test_parts_of_no_elements_are_one_part_of_none(size: int) -> None:
    assert [part.shape for part in Tensor.ones(2, 0).split(size, 1)] == [(2, 0)]


def test_parts_of_no_elements_of_an_axis_with_elements_are_refused() -> None:
    with pytest.raises(ShapeError, match="parts of size 0"):
        Tensor.ones(2).split(0)
