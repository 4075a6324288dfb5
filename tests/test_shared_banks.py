"""What a kernel asks of the banks of shared memory, as benchmarks/ptx_kernels.py counts it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import ptx_kernels
import pytest

from proofgrad import Tensor, schedule
from proofgrad.core.tensor.runtime.realize import compile_only


@pytest.fixture(scope="module")
def machine() -> Iterator[ptx_kernels.Printer]:
    with ptx_kernels.printer() as made:
        yield made


def matrix(dtype: str, is_transposed: bool) -> Tensor:
    made = ptx_kernels.ones(128, 128, dtype)
    return made.T if is_transposed else made


@pytest.mark.parametrize("dtype, tile", [("float32", (8, 8, 4)), ("float64", (4, 4, 2))])
@pytest.mark.parametrize("items", ["16x16", "8x4", "4x8"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_items_read_shared_tiles_without_conflicts(
    machine: ptx_kernels.Printer,
    dtype: str,
    tile: tuple[int, int, int],
    items: str,
    first: bool,
    second: bool,
) -> None:
    """And the text has the loads that were counted."""
    rows, columns, at_once = tile
    vectors = f"{columns}x1" if second else f"{columns // at_once}x{at_once}"
    steps = (3 if second else 4) * at_once
    wanted = f"shared={items}x{steps} tile={rows}x{vectors}"
    result = matrix(dtype, first) @ matrix(dtype, second)
    machine.printed.clear()
    with schedule(wanted), compile_only():
        result.realize()
    (source,) = machine.printed
    work = ptx_kernels.work_of(source)
    assert work.turns > 0
    assert work.conflicts == 0
    assert work.shared == len(re.findall(r"\b(?:ld|st)\.shared|\bcp\.async\.c[ag]", source.text))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("wanted", ["warps=1x2x2x4", "warps=2x1x4x8", "warps=2x2x2x2"])
def test_warps_read_operands_of_units_without_conflicts(
    machine: ptx_kernels.Printer, wanted: str, first: bool, second: bool
) -> None:
    """Of rows of 32 elements and more: 8 rows of 16 bytes fill the banks."""
    result = matrix("bfloat16", first) @ matrix("bfloat16", second)
    machine.printed.clear()
    with schedule(wanted), compile_only():
        result.realize()
    (source,) = machine.printed
    work = ptx_kernels.work_of(source)
    assert work.turns > 0
    assert work.conflicts == 0
    text = r"\b(?:ld|st)\.shared|\bcp\.async\.c[ag]|\bldmatrix"
    assert work.shared == len(re.findall(text, source.text))


@pytest.mark.parametrize("shape", [(4096, 4096), (1000, 640), (700, 24)])
def test_columns_are_summed_without_conflicts(
    machine: ptx_kernels.Printer, shape: tuple[int, int]
) -> None:
    """Neighbouring columns are neighbouring items' where they are read and where the parts of each are added up."""
    result = ptx_kernels.ones(*shape).sum(0)
    machine.printed.clear()
    with compile_only():
        result.realize()
    works = list(map(ptx_kernels.work_of, machine.printed))
    assert any([work.turns for work in works])
    assert [work.conflicts for work in works] == [0] * len(works)
