"""Writes to parts of memory that are like one before: done in place, at other positions, with other numbers."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, dtypes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import realize
from proofgrad.core.tensor.runtime.known_writes import KnownWrite
from proofgrad.core.tensor.runtime.memory import buffer_below, memory_of


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each known write that was found: whether it might be done in place."""
    monkeypatch.setenv("CHECK", "0")  # checked runs are no known ones
    gc.collect()  # beside graphs that were shown as kernels no run is known
    found: list[bool] = []
    run = KnownWrite.run

    def noted(self: KnownWrite, *given: Any) -> UOp | None:
        node = run(self, *given)
        found.append(node is not None)  # who held the node would have the memory
        return node

    monkeypatch.setattr(KnownWrite, "run", noted)
    return found


WRITES: dict[str, Callable[[Any, Any, int], None]] = {
    "a number": lambda x, v, k: x.__setitem__((k % 5, k % 3), float(k)),
    "a signed zero": lambda x, v, k: x.__setitem__(k % 5, [0.0, -0.0][k % 2]),
    "a column": lambda x, v, k: x.__setitem__((slice(None), k % 4), v[:5, 0]),
    "a row": lambda x, v, k: x.__setitem__(k % 5, v[k % 3 : k % 3 + 1, :4][0]),
    "several": lambda x, v, k: x.__setitem__(slice(1, 3), v[:2, :4] + k % 2),
    "of itself": lambda x, v, k: x.__setitem__(k % 5, x[(k + 1) % 5]),
    "more": lambda x, v, k: x.__setitem__((k % 5, 2), x[k % 5, 2] * 2 + 1),
    "twice": lambda x, v, k: [x.__setitem__(0, float(k)), x.__setitem__(k % 3 + 1, -7.0)],
    "strided": lambda x, v, k: x.__setitem__(slice(None, None, 2), float(k)),
}


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("keeps", ["nothing", "a view", "a result"])
def test_a_known_write_gives_what_numpy_does(again: list[bool], kind: str, keeps: str) -> None:
    wanted = np.arange(20, dtype=np.float32).reshape(5, 4)
    other = np.arange(100, 130, dtype=np.float32).reshape(5, 6)
    x, v = Tensor(wanted.copy()).realize(), Tensor(other).realize()
    held: list[tuple[Tensor, Any]] = []
    for k in range(9):
        if keeps == "a view" and k % 3:
            held.append((x[1:3, 2:], wanted[1:3, 2:].copy()))
        if keeps == "a result" and k % 3:
            held.append((x + 1, wanted + 1))
        WRITES[kind](x, v, k)
        WRITES[kind](wanted, other, k)
        x.realize()
        assert x.numpy().tobytes() == wanted.tobytes(), k
    for one, before in held:
        assert np.array_equal(one.numpy(), before)
    assert np.array_equal(v.numpy(), other)
    if keeps == "nothing" and kind not in ("of itself", "more"):  # which read what they change
        assert len(again) >= 4 and all(again[-3:])


def test_a_known_write_stays_in_its_memory_and_reads_no_other(again: list[bool]) -> None:
    x, y = [Tensor([1.0] * 6).contiguous().realize() for _ in range(2)]
    memory = [memory_of(buffer_below(one._uop)).address for one in (x, y)]
    for k in range(6):
        x[k], y[k] = float(k), float(-k)
        x.realize()
        y.realize()
    assert (x.tolist(), y.tolist()) == ([0, 1, 2, 3, 4, 5], [0, -1, -2, -3, -4, -5])
    assert [memory_of(buffer_below(one._uop)).address for one in (x, y)] == memory
    assert again.count(True) >= 8


@pytest.mark.parametrize("share", ["numpy", "twin", "graph", "name"])
def test_a_write_to_what_others_hold_leaves_theirs(again: list[bool], share: str) -> None:
    x = Tensor([1.0, 2.0, 3.0]).contiguous().realize()
    for k in range(3):
        x[k] = float(k)
        x.realize()
    other: Any = {
        "numpy": lambda: np.from_dlpack(x),
        "twin": lambda: Tensor([0.0] * 3).assign(x),
        "graph": lambda: x * 1,
        "name": lambda: x.detach(),
    }[share]()
    for k in range(3):
        x[k] = 9.0
        x.realize()
    assert x.tolist() == [9.0] * 3
    assert share == "numpy" or other.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("dtype", [dtypes.bool, dtypes.int8, dtypes.uint64, dtypes.half, dtypes.bfloat16, dtypes.float64])  # fmt: skip
def test_numbers_written_are_of_their_type(again: list[bool], dtype: Any) -> None:
    x = Tensor([0] * 5, dtype=dtype).contiguous().realize()
    for k in range(5):
        x[k] = k % 3
        x.realize()
    assert x.tolist() == [bool(k % 3) if dtype is dtypes.bool else k % 3 for k in range(5)]


def test_each_number_that_is_written_is_no_kernel_of_its_own() -> None:
    x = Tensor([0.0] * 8).contiguous().realize()
    plans = set()
    for k in range(8):
        x[k] = k + 0.25
        graph, _ = realize.numbered([x._uop], "CPU", {}, with_parts=True)
        plans.add(graph)
        x.realize()
    assert len(plans) == 1
