"""Vectors whose lanes lie a few elements apart are picked out of whole ones."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_cpu_target import cpu
from test_gathers import text_of

from proofgrad import Tensor, dtypes
from proofgrad.backends.cpu.absent import AbsentCpu
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.memory import Position, write_load
from proofgrad.backends.llvm.strided import is_read_whole, load_whole
from proofgrad.backends.llvm.text import literal
from proofgrad.backends.llvm.writer import Writer

MACHINES = ["sapphirerapids", "haswell", "x86-64-v2", "cortex-a72"]
KINDS = ["float32", "float64", "float16", "bfloat16", "int8", "uint16", "int64", "bool"]


def table(kind: str, columns: int) -> tuple[Tensor, np.ndarray]:
    """Numbers that each type has, and the same in numpy."""
    numbers = np.arange(3 * columns).reshape(3, columns) * 37 % 101
    wanted = numbers % 2 if kind == "bool" else numbers
    return Tensor(wanted.astype(np.int32)).cast(kind).realize(), wanted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [1, 7, 64, 131])
def test_values_are_those_of_single_elements(kind: str, columns: int) -> None:
    x, wanted = table(kind, columns)
    for step in (-1, 2, -2, 3, -5):
        read = x[:, ::step].contiguous().cast(dtypes.int32).numpy()
        np.testing.assert_array_equal(read, wanted[:, ::step])
    padded = x.flip(-1).pad(((0, 0), (1, 2))).contiguous().cast(dtypes.int32).numpy()
    np.testing.assert_array_equal(padded, np.pad(wanted[:, ::-1], ((0, 0), (1, 2))))


@pytest.mark.parametrize("name", MACHINES)
def test_backwards_and_small_steps_are_no_gathers(name: str) -> None:
    with cpu(name):
        for step in (-1, 2):
            for kind in ("float32", "bfloat16", "bool"):
                text = text_of(table(kind, 256)[0][:, ::step].contiguous())
                one_by_one = re.search(r"gather|insertelement .*, i64 [1-9]", text)
                assert one_by_one is None, (step, kind)


@pytest.mark.parametrize("columns", [27, 28])
def test_phases_of_rows_of_any_length_are_no_gathers(columns: int) -> None:
    """Of rows of 55 elements, one phase of 28 and one of 27, all lanes of one were read one by one."""
    with cpu("haswell"):
        x, w = Tensor.ones(4, 8, 28, columns).realize(), Tensor.ones(8, 1, 3, 3).realize()
        text = text_of(x.conv_transpose2d(w, stride=2, padding=1, groups=8))
        assert re.search(r"gather|insertelement <8 x float>.*, i64 [1-9]", text) is None


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_read_backwards_more_often_than_in_order_runs_as_vectors(name: str) -> None:
    with cpu(name):
        x, y = table("float32", 256)[0], table("float32", 256)[0] * 2
        assert "fadd <" in text_of(x.flip(-1) + y.realize().flip(-1))
        assert "fmul <" in text_of((x[:, ::2] * x[:, 1::2]).sum(1))


@pytest.mark.parametrize("kind", ["float32", "int8", "bool"])
def test_a_store_backwards_is_one_of_the_vector_reversed(kind: str) -> None:
    x, wanted = table(kind, 131)
    target = Tensor(np.zeros((3, 131), np.int32)).cast(kind).realize()
    target[:, ::-1] = x
    np.testing.assert_array_equal(target.cast(dtypes.int32).numpy(), wanted[:, ::-1])


def written(step: int, lanes: int, known: tuple[bool, ...] | None) -> tuple[list[str], range]:
    """The lines of a load, and the numbers of the elements from the first to the last that it wants."""
    offsets = tuple([step * lane for lane in range(lanes)])
    place = Position(
        "%memory", dtypes.float32, "", dtypes.int64.vec(lanes), "%first", offsets=offsets
    )
    if known is not None:
        mask = literal(known, dtypes.bool.vec(lanes))
        place = place._replace(mask=mask, mask_lanes=lanes, known=known)
    writer, dtype = Writer(Dialect()), dtypes.float32.vec(lanes)
    assert is_read_whole(writer.dialect, place, dtype)
    load_whole(writer, place, dtype)
    return writer.lines, range(min(offsets), max(offsets) + 1)


def starts(lines: list[str]) -> dict[str, int]:
    """Each pointer, and how many elements it is behind the first one."""
    found = {"%first": 0}
    for line in lines:
        made = re.search(r"(%at\d+) = getelementptr float, ptr (%\w+), i64 (-?\d+)", line)
        if made is not None:
            found[made[1]] = found[made[2]] + int(made[3])
    return found


@pytest.mark.parametrize("step", [-1, 2, -2, 3, 4, -4, 7])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_nothing_is_read_outside_of_the_elements_that_are_wanted(step: int, lanes: int) -> None:
    if abs(step) * 2.5 > 1.5 * lanes:
        return  # which is gathered
    lines, inside = written(step, lanes, None)
    where, read = starts(lines), set[int]()
    for pointer in [m[1] for line in lines if (m := re.search(r"load <.*ptr (%\w+),", line))]:
        own = range(where[pointer], where[pointer] + lanes)
        assert own.start in inside and own[-1] in inside
        read.update(own)
    assert read.issuperset(range(inside.start, inside.stop, abs(step)))


@pytest.mark.parametrize("step", [-1, 2, -3])
def test_elements_whose_lanes_are_off_are_not_asked_for(step: int) -> None:
    lanes, on = 8, 3
    lines, _ = written(step, lanes, tuple([lane < on for lane in range(lanes)]))
    where, read = starts(lines), set[int]()
    for line in lines:
        if plain := re.search(r"= load (?:<(\d+) x float>|float), ptr (%\w+),", line):
            start = where[plain[2]]
            read |= set(range(start, start + int(plain[1] or 1)))
        if (
            made := re.search(r"masked.load.*ptr align 4 (%\w+), <8 x i1> <([^>]*)>", line)
        ) is None:
            continue
        truths = [lane.split()[1] == "true" for lane in made[2].split(", ")]
        read |= {where[made[1]] + lane for lane, is_on in enumerate(truths) if is_on}
    assert read == {step * lane for lane in range(on)}


@pytest.mark.parametrize("kind", ["float32", "float16", "int64", "bool"])
@pytest.mark.parametrize("name", MACHINES)
def test_lanes_asked_by_data_are_read_without_branches(name: str, kind: str) -> None:
    """LLVM has a branch a lane for a gather that is no instruction, and nobody foresees what data decides."""
    asked = Tensor(np.arange(96).reshape(3, 32) % 3 == 0).realize()
    with cpu(name) as machine:
        x, wanted = table(kind, 64)
        found = asked.where(x[:, ::2], x[:, ::2].const_like(0)).contiguous()
        assert "masked.gather" not in text_of(found) or name == MACHINES[0]
        if not isinstance(machine, AbsentCpu):
            values = found.cast(dtypes.int32).numpy()
            np.testing.assert_array_equal(values, np.where(asked.numpy(), wanted[:, ::2], 0))


@pytest.mark.parametrize("of_item", [False, True])
def test_a_lane_of_own_memory_that_is_not_asked_is_0(of_item: bool) -> None:
    """A lane may read where it lies in memory that a kernel fills itself, and elsewhere a block of zeros."""
    place = Position(
        "%memory", dtypes.float16, "", dtypes.int64.vec(4), "%first",
        mask="%asked", mask_lanes=4, offsets=(0, 2, 5, 6), of_item=of_item,
    )  # fmt: skip
    writer = Writer(Dialect())
    write_load(writer, place, dtypes.float16.vec(4))
    text = "\n".join(writer.lines)
    assert "gather" not in text and text.count("extractelement <4 x i1> %asked") == 4
    zeroed = len(re.findall(r"select i1 .*, half %load\d+, half zeroinitializer", text))
    assert (zeroed, text.count("ptr @zeros")) == ((4, 0) if of_item else (0, 4))
