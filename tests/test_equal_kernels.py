"""Kernels that the first rules make equal are compiled once; what a value would run is found as by walking to it."""

from __future__ import annotations

import numpy as np
import pytest

from proofgrad import Context, Device, Tensor
from proofgrad.backends.cpu.generator import unnamed
from proofgrad.core.compile.compiler import Compiler
from proofgrad.core.compile.fusion.kernels import _Work
from proofgrad.core.compile.fusion.rows import _longest_reductions
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import changing
from proofgrad.core.tensor.runtime.realize import compiler


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of kernels that are printed."""
    names: list[str] = []
    emit = Compiler._emit

    def noted(self: Compiler, linear: UOp, device: str) -> object:
        source = emit(self, linear, device)
        names.append(source.entry)
        return source

    monkeypatch.setattr(Compiler, "_emit", noted)
    monkeypatch.setattr(changing, "MOST_OWN", 99)  # each keeps its numbers
    monkeypatch.setenv("PLANS", "0")
    return names


def test_kernels_that_differ_by_what_is_masked_away_are_one(emitted: list[str]) -> None:
    g, h = (
        Tensor(np.ones((1, 37), np.float32)).realize(),
        Tensor(np.full((1, 37), 2, np.float32)).realize(),
    )
    padded = g.pad(((0, 5), (0, 0))).flip(0)
    for k in range(5):
        assert (padded[k : k + 1] + h * 3.25).tolist() == [[6.5] * 37]
    assert len(emitted) == 1
    assert (padded[5:6] + h * 3.25).tolist() == [[7.5] * 37]
    assert len(emitted) == 2


def test_kernels_whose_merged_loops_are_the_same_are_one(emitted: list[str]) -> None:
    """As the updates of weights of 7 x 9 and of 9 x 7."""
    for rows, columns in ((7, 9), (9, 7)):
        x = Tensor(np.ones((rows, columns), np.float32)).realize()
        g = Tensor(np.arange(63, dtype=np.float32).reshape(columns, rows)).realize()
        x.assign(x * 0.75 + g.reshape(rows, columns) * 4.0).realize()
        expected = np.arange(63, dtype=np.float32).reshape(rows, columns) * 4 + 0.75
        np.testing.assert_array_equal(x.numpy(), expected)
    assert len(emitted) == 1


def test_a_kernel_is_made_again_for_who_looks_at_it(
    emitted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    g, h = Tensor([[1.0] * 41]).realize(), Tensor([[2.0] * 41]).realize()
    padded = g.pad(((0, 5), (0, 0))).flip(0)
    (padded[0:1] + h * 3.75).realize()
    with Context(DEBUG=3):
        (padded[1:2] + h * 3.75).realize()
    assert len(emitted) == 2 and "define" in capsys.readouterr().err


def buffer(number: int, size: int = 4) -> UOp:
    return Tensor([float(number)] * size).realize().uop


def test_what_a_value_would_run_is_found_anew_when_one_below_it_is_stored() -> None:
    a = buffer(1)
    low = a.alu(Ops.EXP2)
    middle = low.alu(Ops.ADD, a)
    top = middle.alu(Ops.MUL, middle)
    consumers = {a: [low, middle], low: [middle], middle: [top], top: []}
    work = _Work(set(), consumers)
    assert work.of(top) == (True, True, True, True, False)
    work.store(low)
    assert work.of(top) == (True, True, False, False, False)
    work.store(middle)
    assert work.of(top) == (True, True, False, False, False) and work.of(low).is_costly


def test_a_cast_of_memory_is_no_work_and_a_constant_reads_nothing() -> None:
    a = buffer(2)
    cast, one = a.cast(dtypes.float16), UOp.const(dtypes.float32, 1.0)
    work = _Work(set(), {a: [cast], cast: [], one: []})
    assert work.of(cast) == (True, False, False, False, False)
    assert work.of(one) == (False, False, False, False, False)


def test_the_longest_reduction_ends_where_a_buffer_is() -> None:
    a = Tensor(np.ones((3, 5), np.float32)).realize().uop
    rows = UOp(Ops.REDUCE_AXIS, dtypes.float32, (a,), (Ops.ADD, (1,)))
    twice = rows.alu(Ops.ADD, rows)
    whole = UOp(Ops.REDUCE_AXIS, dtypes.float32, (twice,), (Ops.ADD, (0,)))
    nodes = [*whole.toposort()]
    found = _longest_reductions(nodes, set())
    assert [found[n] for n in (rows, twice, whole)] == [5, 5, 5]
    found = _longest_reductions(nodes, {rows})
    assert [found[n] for n in (rows, twice, whole)] == [5, 0, 3]


def test_kernels_that_differ_by_their_names_alone_are_one_text() -> None:
    """As updates of parameters of other sizes do: how many iterations there are is said to each call."""
    bodies = [compiler().kernel_graph(UOp.sink((Tensor(np.ones(n, np.float32)).realize() * 0.875).uop).replace(arg="CPU"))
              for n in (1 << 15, 1 << 16)]  # fmt: skip
    sources = [compiler().sources(graph.src[-1].src[0], "CPU")[-1] for graph in bodies]
    assert sources[0].entry != sources[1].entry and sources[0].text != sources[1].text
    assert unnamed(sources[0]) == unnamed(sources[1])
    compiled = [Device["CPU"].compile(source).data for source in sources]
    assert compiled[0] == compiled[1]
