"""Reductions of axes that join rows which lie apart in memory are split into whole rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tactics import split_long_reductions

from proofgrad import Tensor
from proofgrad.core.compile.fusion.joined_rows import length_of_joined_rows
from proofgrad.core.compile.fusion.split_reductions import MANY_ELEMENTS
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

LONGEST = 1 << 13


def rows(value: Tensor, longest: int = LONGEST) -> int:
    return length_of_joined_rows(value.uop, value.ndim - 1, longest)


@pytest.mark.parametrize(
    ("joined", "length"),
    [
        (lambda x: x[:, :73].reshape(-1), 73),
        (lambda x: x.pad(((0, 0), (0, 3))).reshape(-1), 90),
        (lambda x: x.permute(1, 0).reshape(-1), 1111),
        (lambda x: x.flip(1).reshape(-1), 87),
        (lambda x: (x * x[:1]).reshape(-1), 87),
        (lambda x: Tensor.cat(x, -x, dim=1).reshape(-1).exp() * 2, 174),
        (lambda x: x[:, :73].reshape(1, -1).permute(1, 0).reshape(1, -1), 73),
        (lambda x: x[:, :73].reshape(11, 101, 73).reshape(11, -1), 73),
        (lambda x: x[:1100, :73].reshape(11, -1), 73),
        (lambda x: x.permute(1, 0).reshape(-1)[2222:-7], 1111),  # the last one is not whole
        (lambda x: x.permute(1, 0).reshape(-1).pad((1111, 3)), 1111),
    ],
)
def test_rows_that_lie_apart_are_found(joined: Callable[[Tensor], Tensor], length: int) -> None:
    assert rows(joined(Tensor.empty(1111, 87))) == length


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.reshape(-1),
        lambda x: (x * 2 + x.exp()).reshape(-1),  # constants lie nowhere
        lambda x: x[:, :73].contiguous().reshape(-1),
        lambda x: x[:, :73],
        lambda x: x[:, :73].reshape(-1)[5:],  # no row begins where this does
        lambda x: x[:, :73].reshape(-1).pad((5, 0)),
    ],
)
def test_what_lies_in_one_piece_or_joins_nothing_has_none(
    other: Callable[[Tensor], Tensor],
) -> None:
    assert rows(other(Tensor.empty(1111, 87))) == 1


def test_as_many_axes_are_a_row_as_have_room_or_a_part_of_the_last() -> None:
    value = Tensor.empty(50, 40, 50)[:, :33, :42].reshape(-1)
    assert rows(value) == 33 * 42
    assert rows(value, 1000) == 42
    assert rows(value, 30) == 21


@pytest.mark.parametrize("how", ["sum", "max"])
def test_a_long_reduction_is_split_between_rows(how: str) -> None:
    """Each element was divided into its row and its column: it took 10 to 20 times as long."""
    whole = Tensor.empty(889, 97)[:, :77].reshape(-1)
    assert whole.shape[0] >= MANY_ELEMENTS
    graph = UOp.sink(getattr(whole, how)().uop)
    split = split_long_reductions(graph, Target("test-cpu", vector_bytes=32, vector_registers=16))
    blocks = [
        n.src[0].shape[-1]
        for n in split.toposort()
        if n.op is Ops.REDUCE_AXIS and n.src[0].op is Ops.RESHAPE and len(n.src[0].shape) == 2
    ]
    assert blocks and all(size % 77 == 0 for size in blocks)


@pytest.mark.parametrize("shape", [(889, 97), (7, 9500), (5, 41, 331)])
def test_sums_and_extremes_over_joined_rows_are_right(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x, y = Tensor(data)[..., 3:].reshape(-1), data[..., 3:].reshape(-1)
    moved = Tensor(data).transpose(0, -1).reshape(-1)
    np.testing.assert_allclose(x.sum().numpy(), y.astype(np.float64).sum(), rtol=1e-4, atol=1e-2)
    assert x.max().item() == y.max() and moved.min().item() == data.min()
    np.testing.assert_allclose(
        moved.abs().sum().numpy(), np.abs(data, dtype=np.float64).sum(), 1e-5
    )
