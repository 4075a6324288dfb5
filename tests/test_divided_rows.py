"""What lies apart in memory is stored before it is read as rows of another length, which no loop runs along."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tactics import cut_into_kernels

from proofgrad import Tensor
from proofgrad.core.compile.fusion.divided_rows import _mixed
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

CPU = Target("test-cpu", vector_bytes=32, vector_registers=16)
GPU = Target("test-gpu", work_items=True)

APART: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.permute(0, 2, 1).reshape(5, 37, 261) * 2,
    "computed": lambda x: (x.permute(0, 2, 1) * 2).reshape(5, 37, 261) - 1,
    "cut": lambda x: x[:, :, 3:].reshape(5, 12, 777) * 2,
    "padded": lambda x: x.pad((1, 0)).reshape(5, 74, 132) * 2,
    "turned": lambda x: x.flip(2).reshape(5, 29, 333) * 2,
}
IN_ONE_PIECE: dict[str, Callable[[Tensor], Tensor]] = {
    "memory": lambda x: x.reshape(5, 29, 333) * 2,
    "joined whole": lambda x: x.permute(0, 2, 1).reshape(5, -1) * 2,
    "split": lambda x: x.permute(0, 2, 1).reshape(5, 3, 29, 37, 3) * 2,
    "other axes": lambda x: x.flip(0)[1:].reshape(4, 29, 333) * 2,
    "moved together": lambda x: x.permute(1, 2, 0).reshape(29, 333, 5) * 2,
}


def kernels(value: Tensor, target: Target) -> int:
    cut = cut_into_kernels(UOp.sink(value.uop), target)
    return len([node for node in cut.toposort() if node.op is Ops.CALL])


@pytest.mark.parametrize("name", APART)
def test_what_lies_apart_within_mixed_rows_is_stored(name: str) -> None:
    """Row and column of each element were divided out: it took 3 to 10 times as long."""
    value = APART[name](Tensor.empty(5, 111, 87).contiguous())
    beside = kernels(IN_ONE_PIECE["memory"](Tensor.empty(5, 111, 87).contiguous()), CPU)
    assert kernels(value, CPU) == beside + 1
    assert kernels(value, GPU) == beside


@pytest.mark.parametrize("name", IN_ONE_PIECE)
def test_what_lies_in_one_piece_or_has_whole_rows_is_not(name: str) -> None:
    x = Tensor.empty(5, 111, 87).contiguous()
    assert kernels(IN_ONE_PIECE[name](x), CPU) == kernels(x * 2, CPU)


def test_few_elements_and_none_are_not_stored() -> None:
    none = Tensor.empty(4, 0, 3).permute(2, 1, 0).reshape(0, 7)
    assert (none * 2).numpy().shape == (0, 7)
    x = Tensor.empty(4, 6).contiguous()
    assert kernels(x.permute(1, 0).reshape(3, 8) * 2, CPU) == kernels(x * 2, CPU)


@pytest.mark.parametrize(
    ("before", "after", "mixed"),
    [
        ((87, 1111), (101, 957), [(0, 1)]),
        ((2, 64, 33, 31), (2, 64, 31, 33), [(2, 3)]),
        ((33, 31, 64), (31, 33, 64), [(0, 1)]),
        ((4, 6, 1, 10, 9), (6, 4, 9, 10), [(3, 4), (0, 1)]),
        ((1, 4, 6, 1), (24,), []),
        ((24,), (4, 6), []),
        ((4, 6), (2, 12), []),
    ],
)
def test_axes_whose_rows_mix(
    before: tuple[int, ...], after: tuple[int, ...], mixed: list[tuple[int, int]]
) -> None:
    assert _mixed(before, after) == mixed


WITHIN_ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.permute(1, 0).reshape(-1)[5:-7].sum(),
    "largest, computed": lambda x: (x * 2).flip(0).permute(1, 0).reshape(-1).exp()[5:-7].max(),
    "padded": lambda x: x.permute(1, 0).reshape(-1).pad((3, 4)).cumsum(0),
    "other rows": lambda x: (x[:, 1:80].reshape(-1)[5:-4].exp() + 1).reshape(20, -1) * 2,
}
WHOLE_ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.permute(1, 0).reshape(-1)[1111:-2222].sum(),
    "memory": lambda x: x.reshape(-1)[5:-7].sum(),
    "no other loop": lambda x: x.permute(1, 0).reshape(-1)[5:-7] * 2,
    "rows of pairs": lambda x: x[:, :2].reshape(-1)[3:-4].sum(),
}


@pytest.mark.parametrize("name", WITHIN_ROWS)
def test_rows_that_are_cut_within_one_are_stored_before_other_loops_read_them(name: str) -> None:
    """Row and column of each element were divided out: sums of 1111 x 87 elements took 10 times as long."""
    value = WITHIN_ROWS[name](Tensor.empty(1111, 87).contiguous())
    assert kernels(value, CPU) == kernels(value, GPU) + 1


@pytest.mark.parametrize("name", WHOLE_ROWS)
def test_what_is_cut_between_rows_or_has_no_rows_is_not(name: str) -> None:
    value = WHOLE_ROWS[name](Tensor.empty(1111, 87).contiguous())
    assert kernels(value, CPU) == kernels(value, GPU)


@pytest.mark.parametrize("name", WITHIN_ROWS)
def test_values_of_what_is_cut_within_rows_are_those_of_numpy(name: str) -> None:
    data = np.arange(1111 * 87, dtype=np.float32).reshape(1111, 87) % 7 / 4
    joined = data.T.reshape(-1)
    expected = {
        "sum": lambda: joined[5:-7].sum(),
        "largest, computed": lambda: np.exp(data * 2)[::-1].T.reshape(-1)[5:-7].max(),
        "padded": lambda: np.pad(joined, (3, 4)).cumsum(),
        "other rows": lambda: (np.exp(data[:, 1:80].reshape(-1)[5:-4]) + 1).reshape(20, -1) * 2,
    }[name]()
    np.testing.assert_allclose(WITHIN_ROWS[name](Tensor(data)).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("cut", [slice(5, -7), slice(1111, -5), slice(3, None)])
def test_rows_that_are_stored_from_within_one_are_those_of_numpy(cut: slice) -> None:
    """Before the first whole row, whole rows, and behind them, forward and turned around, run as loops of their own."""
    data = np.arange(1111 * 87, dtype=np.float32).reshape(1111, 87)
    joined = Tensor(data).permute(1, 0).reshape(-1)
    np.testing.assert_array_equal((joined[cut] * 2).numpy(), data.T.reshape(-1)[cut] * 2)
    turned = joined.flip(0)[cut] * 2
    np.testing.assert_array_equal(turned.numpy(), data.T.reshape(-1)[::-1][cut] * 2)


@pytest.mark.parametrize("name", APART)
def test_values_are_those_of_numpy(name: str) -> None:
    data = np.arange(5 * 111 * 87, dtype=np.float32).reshape(5, 111, 87) % 1013
    x = Tensor(data)
    expected = {
        "transposed": lambda: data.transpose(0, 2, 1).reshape(5, 37, 261) * 2,
        "computed": lambda: (data.transpose(0, 2, 1) * 2).reshape(5, 37, 261) - 1,
        "cut": lambda: data[:, :, 3:].reshape(5, 12, 777) * 2,
        "padded": lambda: np.pad(data, ((0, 0), (0, 0), (1, 0))).reshape(5, 74, 132) * 2,
        "turned": lambda: data[:, :, ::-1].reshape(5, 29, 333) * 2,
    }[name]()
    np.testing.assert_array_equal(APART[name](x).numpy(), expected)
