"""What only a store under a mask needs: it is computed behind the branch that the store is."""

from __future__ import annotations

import numpy as np
import pytest
from linear_kernels import linear
from test_assumed import simplified

from proofgrad import Context, Tensor
from proofgrad.backends.llvm.behind_masks import behind_masks
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.memory import masks_by_data
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

SIZE, FIVE = [UOp(Ops.CONST, dtypes.int32, (), n) for n in (8, 5)]
LOOP = UOp(Ops.RANGE, dtypes.int32, (SIZE,), (0, AxisRole.LOOP))
OUT, SOURCE, OTHER = [UOp(Ops.PARAM, dtypes.float32, (), (slot, 8)) for slot in (0, 1, 2)]
NUMBERS = UOp(Ops.PARAM, dtypes.int32, (), (3, 8))
ASKED = UOp(Ops.INDEX, dtypes.int32, (NUMBERS, LOOP))
NUMBER = UOp(Ops.LOAD, dtypes.int32, (ASKED,))
MASK = NUMBER < FIVE
CHOICE = UOp(Ops.MIN, dtypes.int32, (NUMBER, FIVE))
AT = UOp(Ops.INDEX, dtypes.float32, (OUT, CHOICE, MASK))
BEFORE = [OUT, SOURCE, OTHER, NUMBERS, SIZE, FIVE, LOOP, ASKED, NUMBER, MASK, CHOICE]
END = UOp(Ops.END, dtypes.void, (LOOP,))


def load(memory: UOp, *position: UOp) -> list[UOp]:
    """Where an access is, and what is loaded there."""
    at = UOp(Ops.INDEX, dtypes.float32, (memory, *position))
    return [at, UOp(Ops.LOAD, dtypes.float32, (at,))]


def behind(program: UOp) -> list[tuple[UOp, ...]]:
    return list(behind_masks(program, masks_by_data(program), ()).values())


def text_of(program: UOp) -> str:
    return emit(program, "kernel", Dialect()).text


def test_what_is_added_to_memory_under_a_mask_by_data_is_loaded_behind_its_branch() -> None:
    own, added = UOp(Ops.LOAD, dtypes.float32, (AT,)), load(SOURCE, LOOP, MASK)
    total = own + added[1]
    store = UOp(Ops.STORE, dtypes.void, (AT, total))
    program = linear([*BEFORE, AT, own, *added, total, store, END])
    assert behind(program) == [(CHOICE, AT, own, *added, total)]
    before, inside = text_of(program).split("\nstore0:\n")
    assert "float" not in before.split("loop0:")[1] and "@zeros" not in before + inside
    assert inside.split("store0.end:")[0].count("load float") == 2


@pytest.mark.parametrize("mask", [LOOP < FIVE, NUMBER < LOOP])
def test_what_another_mask_leaves_out_is_asked_for_before(mask: UOp) -> None:
    added = load(SOURCE, LOOP, mask)
    store = UOp(Ops.STORE, dtypes.void, (AT, added[1]))
    program = linear([*BEFORE, mask, AT, *added, store, END])
    assert behind(program) == [] and "@zeros" in text_of(program)


def test_what_something_else_needs_is_computed_before() -> None:
    added, place = load(SOURCE, LOOP), UOp(Ops.INDEX, dtypes.float32, (OTHER, LOOP))
    stores = [UOp(Ops.STORE, dtypes.void, (at, added[1])) for at in (AT, place)]
    program = linear([*BEFORE, *added, AT, stores[0], place, stores[1], END])
    assert behind(program) == []


def test_a_load_stays_before_the_store_that_it_stood_before() -> None:
    added, place = load(OTHER, LOOP), UOp(Ops.INDEX, dtypes.float32, (OTHER, LOOP))
    other = UOp(Ops.STORE, dtypes.void, (place, UOp(Ops.CONST, dtypes.float32, (), 1.0)))
    store = UOp(Ops.STORE, dtypes.void, (AT, added[1]))
    one = UOp(Ops.CONST, dtypes.float32, (), 1.0)
    program = linear([*BEFORE, one, *added, place, other, AT, store, END])
    assert behind(program) == []


def test_a_mask_of_counters_is_left_to_llvm() -> None:
    mask = LOOP < FIVE
    at, added = UOp(Ops.INDEX, dtypes.float32, (OUT, LOOP, mask)), load(SOURCE, LOOP, mask)
    store = UOp(Ops.STORE, dtypes.void, (at, added[1]))
    assert behind(linear([*BEFORE, mask, at, *added, store, END])) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int64", "bool"])
@pytest.mark.parametrize("shape", [(3, 1031), (700, 65), (1, 2049)])
def test_rows_that_are_scattered_are_those_of_numpy(dtype: str, shape: tuple[int, int]) -> None:
    """An index that is computed may lie outside: it writes nothing."""
    generator = np.random.default_rng(shape[0])
    own, source = [generator.integers(0, 2, shape) for _ in range(2)]
    index = generator.integers(-3, shape[1] + 3, shape)
    expected = own.copy()
    for row, column in np.ndindex(*shape):
        if 0 <= index[row, column] < shape[1]:
            expected[row, index[row, column]] = source[row, column]
    at = Tensor(index - 1).realize() + 1
    with Context(CHECK=0):
        found = Tensor(own).cast(dtype).scatter(1, at, Tensor(source).cast(dtype)).realize()
    np.testing.assert_array_equal(found.cast("int32").numpy(), expected)


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.int32, dtypes.int8, dtypes.uint16])
def test_an_index_that_is_brought_inside_twice_is_clamped_once(dtype: DType) -> None:
    memory = UOp(Ops.PARAM, dtype, (), (1, 1))
    number = UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, UOp.index(0))),))
    near = number.minimum(number.const_like(101)).maximum(number.const_like(2))
    here = near.cast(dtypes.index).minimum(UOp.index(100)).maximum(UOp.index(3))
    once = number.minimum(number.const_like(100)).maximum(number.const_like(3))
    assert simplified(here) is simplified(once.cast(dtypes.index))
    wider = near.cast(dtypes.index).minimum(UOp.index(102)).maximum(UOp.index(0))
    assert simplified(wider) is simplified(near.cast(dtypes.index))
