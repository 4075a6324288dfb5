"""Lanes that lie apart in memory: gathered and scattered by one instruction where that is no slower."""

from __future__ import annotations

import numpy as np
import pytest
from test_cpu_target import cpu

from proofgrad import Context, Tensor, dtypes
from proofgrad.backends.cpu.absent import AbsentCpu
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler

FAST, SLOW = "sapphirerapids", "skylake-avx512"
STEPS = [2, 7, 2000]  # elements from lane to lane; 16 of the last go beyond a page


def text_of(value: Tensor) -> str:
    """What LLVM is given for a value."""
    graph = compiler().kernel_graph(UOp.sink(value.uop).replace(arg="CPU"))
    bodies = [call.src[0] for call in graph.src if call.src[0].src[0].op is not Ops.COPY]
    return "\n".join([s.text for body in bodies for s in compiler().sources(body, "CPU")])


def column(kind: str) -> Tensor:
    return Tensor(np.ones((64, 40), kind))[:, 1] * 3


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
def test_lanes_apart_are_read_by_one_instruction(kind: str) -> None:
    for name, is_gathered in ((FAST, True), (SLOW, False)):
        with cpu(name):
            assert ("@llvm.masked.gather" in text_of(column(kind))) is is_gathered, name


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_types_that_no_instruction_gathers_are_read_one_by_one(kind: str) -> None:
    with cpu(FAST):
        assert "gather" not in text_of(column(kind))


def test_lanes_are_written_by_one_instruction_within_a_page() -> None:
    with cpu(FAST) as machine:
        dialect, lanes = machine.dialect, machine.target.lanes(dtypes.float32)
        whole = dtypes.float32.vec(lanes)
        within = [k * (machine.target.page_bytes // 4 // lanes) for k in range(lanes)]
        assert dialect.is_scattered(whole, within)
        assert not dialect.is_scattered(whole, [2 * offset for offset in within])
        assert not dialect.is_scattered(dtypes.float32.vec(lanes // 2), within[: lanes // 2])
        assert not dialect.is_scattered(whole, None)  # what is not known may be far


def written_apart(kind: str, rows: int, step: int) -> Tensor:
    """Rows whose elements are written as columns."""
    target = Tensor(np.zeros((rows, step), kind)).realize()
    target[:, 1] = Tensor(np.arange(rows).astype(kind)).realize() + 1
    return target


@pytest.mark.parametrize("rows", [1, 16, 67])
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int8"])
def test_values_are_those_of_single_accesses(kind: str, rows: int) -> None:
    for step in STEPS:
        wanted = np.arange(rows * step).reshape(rows, step).astype(kind)
        read = Tensor(wanted).realize()[:, 1]
        np.testing.assert_array_equal((read * 1).numpy(), wanted[:, 1])
        zeros = np.zeros((rows, step), kind)
        zeros[:, 1] = np.arange(rows).astype(kind) + np.ones(rows, kind)
        np.testing.assert_array_equal(written_apart(kind, rows, step).numpy(), zeros)


def test_rows_that_are_gathered_are_not_written_out() -> None:
    """Whether each of them is there is known when it runs: of 33 rows there would be 33 streams of loads and stores."""
    rows = Tensor(np.arange(33, dtype=np.int32) % 5).realize()
    with cpu(FAST):
        text = text_of(Tensor(np.ones((5, 64), np.float32)).realize()[rows])
    assert text.count("store <16 x") <= 4


@pytest.mark.parametrize("width", [2, 3])
def test_rows_shorter_than_a_vector_are_lanes(width: int) -> None:
    numbers = np.arange(37 * width, dtype=np.float32).reshape(37, width) % 11
    x, column = Tensor(numbers).realize(), Tensor(numbers[:, :1]).realize()
    rows = Tensor(np.arange(-37, 37, dtype=np.int32)).realize()
    programs = [x * column, x[rows], x - x.max(1, keepdim=True), x.cumsum(1), x.flip(1) + column]
    wanted = [
        numbers * numbers[:, :1],
        numbers[np.arange(-37, 37)],
        numbers - numbers.max(1, keepdims=True),
        numbers.cumsum(1),
        numbers[:, ::-1] + numbers[:, :1],
    ]
    for program, values in zip(programs, wanted):
        with cpu(FAST):
            assert "<16 x float>" in text_of(program)
        np.testing.assert_array_equal(program.numpy(), values)


@pytest.mark.parametrize("name, lanes", [("haswell", 4), ("znver2", 4), (SLOW, 16)])
def test_gathered_rows_of_three_are_vectors_of_four_where_few_rows_fill_one(
    name: str, lanes: int
) -> None:
    rows, index = Tensor(np.ones((9, 3), np.float32)), Tensor(np.zeros(999, np.int32))
    with cpu(name):
        text = text_of(rows.realize()[index.realize()])
    assert f"<{lanes} x float>" in text and (f"<{20 - lanes} x float>" in text) is False


@pytest.mark.parametrize("name", ["", "haswell", "x86-64-v2"])
@pytest.mark.parametrize("kind", ["bool", "uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize("of", ["int32", "int64", "uint8"])
def test_short_rows_are_gathered_whatever_the_types(of: str, kind: str, name: str) -> None:
    rng = np.random.default_rng(3)
    with cpu(name) if name else Context() as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        for width in (1, 2, 3, 5, 11, 13):
            x = rng.integers(0, 2 if kind == "bool" else 99, (7, width)).astype(kind)
            index = rng.integers(0 if of == "uint8" else -7, 7, 31).astype(of)
            taken = Tensor(x).realize()[Tensor(index).realize()]
            np.testing.assert_array_equal(taken.numpy(), x[index])
