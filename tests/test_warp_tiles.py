"""Products that warps multiply by matrix units: right for any size and type, chosen by what the machine has, proved."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from planted.gpu_faults import DEVICE
from test_kernel_proof import Recorder, compile_with, planted
from test_ptx_backend import PTXAS, assemble

from proofgrad import Context, Device, ScheduleError, Tensor, dtypes, schedule
from proofgrad.backends.opencl.emit import emit as emit_opencl
from proofgrad.backends.ptx.emit import emit as emit_ptx
from proofgrad.backends.ptx.matrix_units import matrix_units
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.machine.target import CompileError, MatrixUnit, Source, Target
from proofgrad.core.compile.nests.kernel_schedule import NO_WARP_TILE, Schedule
from proofgrad.core.compile.schedule.warp_tiles import choose_warps
from proofgrad.core.compile.text.reader import read_nest
from proofgrad.core.compile.tune.search_space import neighbours
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.core.tensor.runtime.realize import compile_only, compiler
from proofgrad.verify.kernels.waiting import what_races

EMITTED: list[UOp] = []


class Warps(ReferenceBackend):
    """Runs what is compiled for a GPU with matrix units, for each item of a group, with every access checked."""

    name = "WARPS"
    target = Target(
        "WARPS",
        vector_bytes=16,
        vector_registers=24,
        work_items=True,
        group_items=64,
        local_bytes=1 << 14,
        lockstep=32,
        index_dtype=dtypes.int32,
        matrix_units=(*matrix_units(90), MatrixUnit(dtypes.int32, dtypes.int32, 1, 1)),
    )

    def emit(self, linear: UOp, name: str) -> Source:
        EMITTED.append(linear)
        return super().emit(linear, name)


Device.register("WARPS", Warps)


@pytest.fixture(autouse=True)
def nothing_emitted() -> Iterator[None]:
    compiler().forget()
    EMITTED.clear()
    yield


def whole(*shape: int) -> np.ndarray:
    """Whole numbers, whose products and sums are exact in every type."""
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype("float32")


def on(device: str, array: np.ndarray, dtype: DType) -> Tensor:
    return Tensor(array, device=device).cast(dtype).realize()


def values(tensor: Tensor) -> np.ndarray:
    return tensor.cast(dtypes.float32).numpy()


def uses_unit(make: Callable[[], Tensor]) -> bool:
    """Whether a kernel of a program has an MMA."""
    EMITTED.clear()
    with compile_only():
        make().realize()
    return any([n.op is Ops.MMA for linear in EMITTED for n in linear.src])


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64])
@pytest.mark.parametrize(
    "sizes", [(32, 64, 48), (33, 47, 29), (33, 40, 30), (5, 7, 9), (1, 64, 40), (17, 3, 65)]
)
def test_a_product_of_any_size_is_exact_on_an_emulated_gpu(
    sizes: tuple[int, int, int], dtype: DType, gpu: None
) -> None:
    rows, steps, columns = sizes
    a, b = whole(rows, steps), whole(steps, columns)
    np.testing.assert_array_equal(values(on(DEVICE, a, dtype) @ on(DEVICE, b, dtype)), a @ b)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("sizes", [(33, 147, 29), (16, 64, 40)])
@pytest.mark.parametrize("second", [False, True])
def test_products_of_bytes_are_exact_and_wrap_as_int32(
    sizes: tuple[int, int, int], second: bool, dtype: str, gpu: None
) -> None:
    rows, steps, columns = sizes
    a, b = [
        np.random.default_rng(7).integers(0, 256, s).astype(dtype)
        for s in ((rows, steps), (steps, columns))
    ]
    a[:2], b[:, :2] = np.iinfo(dtype).min, np.iinfo(dtype).min  # the largest products of int8
    x, y = [Tensor(array, device=DEVICE).realize() for array in (a, b.T.copy() if second else b)]
    y = y.T if second else y
    before = Tensor(np.full((rows, columns), 2**31 - 9, "int32"), device=DEVICE).realize()
    got = (x.matmul(y, dtype=dtypes.int32) + before).numpy()
    with np.errstate(over="ignore"):
        wanted = (a.astype("int64") @ b.astype("int64") + (2**31 - 9)).astype("int32")
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("sizes", [(24, 64, 40), (23, 33, 41)])
def test_transposed_operands_are_exact(
    sizes: tuple[int, int, int], first: bool, second: bool, gpu: None
) -> None:
    rows, steps, columns = sizes
    a, b, half = whole(rows, steps), whole(steps, columns), dtypes.float16
    x = on(DEVICE, a.T.copy(), half).T if first else on(DEVICE, a, half)
    y = on(DEVICE, b.T.copy(), half).T if second else on(DEVICE, b, half)
    np.testing.assert_array_equal(values(x @ y), a @ b)


def test_batches_of_products_are_exact(gpu: None) -> None:
    a, b = whole(3, 2, 19, 34), whole(2, 34, 21)
    x, y = on(DEVICE, a, dtypes.bfloat16), on(DEVICE, b, dtypes.bfloat16)
    np.testing.assert_array_equal(values(x @ y), a @ b)


@pytest.mark.parametrize("padding", [0, 1])
def test_a_convolution_gathers_its_operand(padding: int, gpu: None) -> None:
    x, w, half = whole(2, 4, 9, 7), whole(16, 4, 3, 3), dtypes.float16
    got = values(on(DEVICE, x, half).conv2d(on(DEVICE, w, half), padding=padding))
    wanted = Tensor(x, device="CPU").conv2d(Tensor(w, device="CPU"), padding=padding).numpy()
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("filters", [(16, 4, 3, 3), (16, 33, 1, 1), (16, 3, 5, 5)])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_a_padded_convolution_is_multiplied_by_the_unit(
    dtype: DType, filters: tuple[int, int, int, int], padding: int
) -> None:
    """Zeros are put around the image as it is, or loads are masked: both are of the type that a unit takes."""
    x, w = on("WARPS", whole(2, filters[1], 9, 7), dtype), on("WARPS", whole(*filters), dtype)
    assert uses_unit(lambda: x.conv2d(w, padding=padding))


def test_what_is_done_to_results_stays_in_the_kernel(gpu: None) -> None:
    a, b = whole(20, 35), whole(35, 24)
    x, y = on(DEVICE, a, dtypes.float16), on(DEVICE, b, dtypes.float16)
    result = (x @ y * 2 + 1).relu()
    assert len(result.schedule()) == 1
    np.testing.assert_array_equal(values(result), np.maximum(2 * (a @ b) + 1, 0))


def test_memory_beyond_the_edge_of_a_sum_is_not_read(gpu: None) -> None:
    """The last steps of a tile reach into the next row, which is infinite."""
    a, b = np.ones((16, 40), "float32"), np.ones((40, 16), "float32")
    a[:, 35:], b[35:] = np.inf, np.nan
    x, y = on(DEVICE, a, dtypes.float16), on(DEVICE, b, dtypes.float16)
    np.testing.assert_array_equal(values(x[:, :35] @ y[:35]), np.full((16, 16), 35.0))


@pytest.mark.parametrize(
    ("dtype", "sizes", "wanted"),
    [
        (dtypes.float16, (9, 11, 10), "warps=1x1x1x1"),
        (dtypes.float16, (9, 11, 10), "warps=2x1x1x2"),
        (dtypes.float16, (16, 32, 16), "warps=1x2x1x1"),
        (dtypes.int32, (9, 11, 10), "warps=1x1x2x1"),
    ],
)
def test_tiles_of_warps_are_exact_on_the_reference_machine(
    dtype: DType, sizes: tuple[int, int, int], wanted: str
) -> None:
    rows, steps, columns = sizes
    a, b = whole(rows, steps), whole(steps, columns)
    x, y = on("WARPS", a, dtype), on("WARPS", b, dtype)
    with schedule(wanted):
        product = (x @ y).realize()
    got = values(product)
    np.testing.assert_array_equal(got, a @ b)
    assert any([n.op is Ops.MMA for linear in EMITTED for n in linear.src])


# -- what is chosen -------------------------------------------------------------------------------


def square(dtype: DType) -> Tensor:
    return multiplied(*[on("WARPS", whole(64, 64), dtype) for _ in range(2)])


def multiplied(x: Tensor, y: Tensor) -> Tensor:
    """The product as units add it: of bytes in int32."""
    return x.matmul(y, dtype=dtypes.int32 if x.dtype.itemsize == 1 else None)


@pytest.mark.parametrize(
    "dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int8, dtypes.uint8]
)
def test_a_product_of_a_type_that_a_unit_takes_is_multiplied_by_it(dtype: DType) -> None:
    assert uses_unit(lambda: square(dtype))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int16])
def test_no_value_is_rounded_for_a_unit(dtype: DType) -> None:
    """float32 and int16 have more digits than any unit takes."""
    assert not uses_unit(lambda: square(dtype))


def test_a_product_by_a_vector_is_none_of_matrices() -> None:
    half = dtypes.float16
    x, y = on("WARPS", whole(64, 64), half), on("WARPS", whole(64, 1), half)
    assert not uses_unit(lambda: x @ y)


def test_no_unit_is_used_where_none_is_asked_for() -> None:
    product = square(dtypes.float16)
    with schedule("warps=none"):
        assert not uses_unit(lambda: product)


def test_an_old_gpu_has_no_units() -> None:
    assert matrix_units(75) == ()
    assert {unit.factor for unit in matrix_units(80)} == {
        dtypes.float16,
        dtypes.bfloat16,
        dtypes.float32,
        dtypes.float64,
        dtypes.int8,
        dtypes.uint8,
    }


def test_a_tile_of_more_warps_than_a_group_has_is_refused() -> None:
    product = square(dtypes.float16)
    with pytest.raises(ScheduleError, match="warps=2x4x1x1"), schedule("warps=2x4x1x1"):
        product.realize()


@pytest.mark.parametrize("text", ["warps=2x2", "warps=8x8x1x1", "warps=1x1x16x16", "warps=0x1x1x1"])
def test_a_tile_of_warps_that_is_none_is_refused_with_what_may_stand_there(text: str) -> None:
    with pytest.raises(ValueError, match="ROWWARPSxCOLUMNWARPS"), schedule(text):
        pass


def kernel_of(make: Callable[[], Tensor]) -> UOp:
    """The kernel of a product before its schedule is chosen."""
    found: list[UOp] = []

    def told(kernel: UOp, target: Target, override: Schedule) -> object:
        found.append(kernel)
        return choose_warps(kernel, target, override)

    with pytest.MonkeyPatch.context() as patch, compile_only():
        patch.setattr("proofgrad.core.compile.schedule.choose_schedule.choose_warps", told)
        make().realize()
    # The first one that reduces: casts come before it, and what reads tables is asked for again.
    return next(one for one in found if any([n.op is Ops.REDUCE for n in toposort((one,))]))


def test_a_search_tries_other_tiles_of_warps_and_none() -> None:
    kernel = kernel_of(lambda: square(dtypes.float16))
    found = neighbours(kernel, Warps.target, Schedule(), Schedule())
    tiles = {one.warps for one in found if one.warps is not None}
    assert NO_WARP_TILE in tiles
    assert len(tiles) > 3
    assert all([one.warps * 32 <= Warps.target.group_items for one in tiles])


# -- text -----------------------------------------------------------------------------------------


def linear_of(dtype: DType, wanted: str) -> UOp:
    product = square(dtype)
    with schedule(wanted), compile_only():
        product.realize()
    return EMITTED[-1]


@pytest.mark.parametrize(
    ("dtype", "name", "count"),
    [
        (dtypes.float16, "m16n8k16.row.col.f32.f16.f16.f32", 2 * 2 * 2),
        (dtypes.bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32", 2 * 2 * 2),
        (dtypes.float64, "m8n8k4.row.col.f64.f64.f64.f64", 2 * 2 * 2),
        (dtypes.int8, "m16n8k32.row.col.s32.s8.s8.s32", 2 * 2 * 2),
        (dtypes.uint8, "m16n8k32.row.col.s32.u8.u8.s32", 2 * 2 * 2),
    ],
)
def test_ptx_has_an_instruction_for_each_tile_and_reads_in_wide_pieces(
    dtype: DType, name: str, count: int
) -> None:
    """Two tiles along both sides, and two instructions for the steps that an item holds."""
    text = emit_ptx(linear_of(dtype, "warps=1x2x2x2"), "product", 90).text
    assert text.count(f"mma.sync.aligned.{name}") == text.count("mma.sync") == count
    assert text.count("bar.sync") == (1 if dtype.itemsize == 1 else 2)  # of bytes all 64 steps
    assert re.search(r"ld\.shared\.v2\.b64" if dtype is dtypes.float64 else ALONG, text)
    assert not re.search(r"ld\.shared\.b(8|16|32)", text)


ACROSS = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
ALONG = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_warps_read_operands_together_whichever_way_they_lie(
    dtype: DType, first: bool, second: bool
) -> None:
    """Two tiles of 16 rows, and two of 8 columns: one instruction for 8 of a side and the 32 steps that are kept."""
    x, y = [on("WARPS", whole(64, 64), dtype) for _ in range(2)]
    with schedule("warps=1x2x2x2"), compile_only():
        ((x.T if first else x) @ (y.T if second else y)).realize()
    text = emit_ptx(EMITTED[-1], "product", 90).text
    assert text.count(ACROSS) == (2 * 2 if first else 0) + (0 if second else 2)
    assert text.count(ALONG) == (0 if first else 2 * 2) + (2 if second else 0)
    assert not re.search(r"ld\.shared|st\.shared\.b16", text)


def _list(operand: str) -> list[str]:
    return re.findall(r"%r\d+", operand)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.int8])
def test_a_product_takes_registers_as_a_load_has_filled_them(
    dtype: DType, first: bool, second: bool
) -> None:
    """Side by side: else each multiplication needs moves."""
    x, y = [on("WARPS", whole(64, 64), dtype) for _ in range(2)]
    with schedule("warps=1x2x2x2"), compile_only():
        multiplied(x.T if first else x, y.T if second else y).realize()
    text = emit_ptx(EMITTED[-1], "product", 90).text
    filled = [_list(found) for found in re.findall(r"ldmatrix\S+\s+\{([^}]*)\}", text)]
    products = re.findall(r"mma\.sync\S+((?:\s+\{[^}]*\},?){3})", text)
    assert len(products) == 8
    for operands in products:
        _, rows, columns = [_list(found) for found in re.findall(r"\{([^}]*)\}", operands)]
        assert rows in filled
        assert columns in [half for four in filled for half in (four[:2], four[2:])]


@pytest.mark.parametrize(
    ("dtype", "columns", "stores"),
    [
        (dtypes.bfloat16, 64, {"b32": 4 * 4}),
        (dtypes.float16, 62, {"b32": 4 * 4}),  # both of a pair are inside, or none
        (dtypes.float64, 64, {"v2.b64": 4 * 4}),
        (dtypes.int8, 64, {"v2.b32": 4 * 4}),
    ],
)
def test_neighbours_of_a_result_are_stored_together(
    dtype: DType, columns: int, stores: dict[str, int]
) -> None:
    x, y = on("WARPS", whole(64, 64), dtype), on("WARPS", whole(columns, 64), dtype).T
    rows = 4 if dtype is dtypes.float64 else 2  # tiles of 8 or 16 rows
    with schedule(f"warps=1x1x{rows}x4"), compile_only():
        multiplied(x, y).realize()
    text = emit_ptx(EMITTED[-1], "product", 90).text
    assert Counter(re.findall(r"st\.global\.((?:v2\.)?b\d+)", text)) == stores


def test_rows_that_begin_at_odd_positions_are_stored_one_by_one() -> None:
    half = dtypes.float16
    x, y = on("WARPS", whole(64, 64), half), on("WARPS", whole(63, 64), half).T
    with schedule("warps=1x1x2x4"), compile_only():
        (x @ y).realize()
    assert "st.global.b32" not in emit_ptx(EMITTED[-1], "product", 90).text


def test_a_residue_is_loaded_as_the_result_is_stored() -> None:
    x, y, half = whole(64, 64), whole(64, 64), dtypes.bfloat16
    a, b, c = on("WARPS", x, half), on("WARPS", y, half), on("WARPS", x + y, half)
    with schedule("warps=1x1x2x4"), compile_only():
        (a @ b + c).realize()
    text = emit_ptx(EMITTED[-1], "product", 90).text
    assert text.count("ld.global.nc.v2.b16") == text.count("st.global.b32") == 4 * 4
    assert not re.search(r"(ld|st)\.global(\.nc)?\.b16", text)


def _positions(linear: UOp, change: Callable[[UOp], UOp]) -> UOp:
    """The program with other positions of what lies across the steps."""
    (column,) = {n.src[2] for n in linear.src if n.op is Ops.MMA}
    index = column.src[0]
    return in_order(linear, {index: index.with_src((index.src[0], change(index.src[1])))})


@pytest.mark.parametrize(
    ("change", "is_read_together"),
    [
        (lambda at: at, True),
        (lambda at: at + at.const_like(8), True),  # the next rows
        (lambda at: at + at.const_like(4), False),  # a row begins in the middle
        (lambda at: at * at.const_like(2), False),  # columns lie apart
        (lambda at: at ^ at.const_like(1), False),  # columns are exchanged
        (lambda at: at.const_like(0), False),  # all items read one element
    ],
)
def test_positions_of_another_form_are_read_one_by_one(
    change: Callable[[UOp], UOp], is_read_together: bool
) -> None:
    linear = _positions(linear_of(dtypes.float16, "warps=1x1x1x1"), change)
    text = emit_ptx(linear, "product", 90).text
    assert (ACROSS in text) is is_read_together


@pytest.mark.skipif(PTXAS is None, reason="ptxas, of the CUDA toolkit, is not on the PATH")
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int8])
def test_ptxas_takes_products_by_units(dtype: DType, tmp_path: Path) -> None:
    assert assemble(emit_ptx(linear_of(dtype, "warps=1x2x1x2"), "product", 80).text, tmp_path) == ""


def test_a_machine_without_units_says_so() -> None:
    with pytest.raises(CompileError, match="MMA"):
        emit_opencl(linear_of(dtypes.float16, "warps=1x2x1x1"), "product")


# -- proofs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "sizes", "wanted"),
    [
        (dtypes.float64, (32, 64, 16), "warps=1x2x1x1"),
        (dtypes.float16, (19, 37, 21), "warps=1x2x1x1"),
        (dtypes.int8, (19, 70, 21), "warps=1x2x1x1"),
        (dtypes.float16, (16, 33, 32), "warps=1x1x1x2"),  # columns are read in vectors
        (dtypes.float16, (16, 64, 64), "warps=1x2x1x4"),  # and lie in rows of 8 vectors
    ],
)
def test_the_solver_shows_all_of_a_product_by_units(
    dtype: DType, sizes: tuple[int, int, int], wanted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, steps, columns = sizes
    x, y = on("WARPS", whole(rows, steps), dtype), on("WARPS", whole(steps, columns), dtype)
    capfd.readouterr()
    with schedule(wanted), Context(PROVE=1, PLANS=0), compile_only():
        multiplied(x, y).realize()
    told = capfd.readouterr().err
    assert re.search(r"none unknown; \d waits of groups;", told), told
    assert "NOT COVERED" not in told


@pytest.mark.parametrize("wanted", ["warps=1x1x1x1", "warps=1x2x1x1", "warps=1x1x2x2"])
def test_the_solver_shows_operands_that_both_lie_across_the_steps(
    wanted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    x, y = [on("WARPS", whole(*sizes), dtypes.float16) for sizes in ((64, 40), (64, 48))]
    capfd.readouterr()
    with schedule(wanted), Context(PROVE=1, PLANS=0), compile_only():
        (x.T @ y).realize()
    told = capfd.readouterr().err
    assert re.search(r"none unknown; .*\d waits of groups;", told), told
    assert "NOT COVERED" not in told


@pytest.fixture(scope="module")
def bodies() -> list[UOp]:
    """A product as a kernel before all stages."""
    recorder, half = Recorder(), dtypes.float16
    x, y = [Tensor(whole(*s), device="CPU").cast(half).realize() for s in ((32, 64), (64, 16))]
    with pytest.MonkeyPatch.context() as patch:
        compile_with(recorder, x @ y, patch)
    return recorder.bodies


def in_order(linear: UOp, changes: dict[UOp, UOp]) -> UOp:
    made = linear.substitute(changes)
    nodes: list[UOp] = []
    for node in made.src:
        nodes += [n for n in toposort((node,)) if n not in made.src and n not in nodes] + [node]
    return UOp(Ops.LINEAR, dtypes.void, tuple(nodes))


def _halves_exchanged(mma: UOp) -> UOp:
    item, before, column, *rows = mma.src
    return mma.with_src((item, before, column, *rows[::-1]))


def _other_item(mma: UOp) -> UOp:
    """The column of the item whose number differs in its last bit."""
    item, before, column, *rows = mma.src
    one = UOp.const(item.dtype, 1)
    return mma.with_src((item, before, column.substitute({item: item ^ one}), *rows))


def _other_row(mma: UOp) -> UOp:
    """Both halves are of the first 8 rows."""
    item, before, column, first, _ = mma.src
    return mma.with_src((item, before, column, first, first))


@pytest.mark.parametrize("fault", [_halves_exchanged, _other_item, _other_row])
def test_a_wrong_fragment_is_found_by_the_proof(
    fault: Callable[[UOp], UOp], bodies: list[UOp]
) -> None:
    def wrong(program: UOp) -> UOp:
        linear = linearize(program)
        products = [n for n in linear.src if n.op is Ops.MMA]
        assert products
        return in_order(linear, {n: fault(n) for n in products})

    assert "differs at" in planted(bodies, Warps.target, "linearize", wrong)


WITHOUT_MEMORY_OF_A_GROUP = """program, indices i32
  out: f64[192] = param 0
  a: f64[64] = param 1
  for r1 < 3 as block
    for r5 < 32 as lane
      let t0 = a[r5 * 2]:f64x2
      out[r1 * 64 + r5 * 2] = mma:f64x2{(1, 2)}(r5, f64x2(0.0), t0, t0)
"""


def test_items_that_do_not_all_come_to_a_product_are_found() -> None:
    linear = linearize(read_nest(WITHOUT_MEMORY_OF_A_GROUP))
    assert what_races(linear, {}) is None
    (loop,) = [n for n in linear.src if n.op is Ops.RANGE and n.arg[1] is AxisRole.BLOCK]
    uneven = linear.substitute({loop: loop.replace(arg=(loop.arg[0], AxisRole.GLOBAL))})
    assert "multiply matrices together inside of loop r1" in (what_races(uneven, {}) or "")
