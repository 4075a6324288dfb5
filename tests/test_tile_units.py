"""Products that a core multiplies by a matrix unit: exact for any size and type, chosen by what the machine has, proved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_cpu_target import cpu
from test_kernel_proof import Recorder, compile_with, planted
from test_warp_tiles import in_order, kernel_of

from proofgrad import Context, Device, ScheduleError, Tensor, dtypes, explain, schedule
from proofgrad.backends.cpu import generator
from proofgrad.backends.cpu.absent import AbsentCpu
from proofgrad.backends.cpu.backend import CpuBackend
from proofgrad.backends.cpu.codegen import Host
from proofgrad.backends.cpu.processors import processor_named
from proofgrad.backends.llvm.tiles import units_of_bfloat16, units_of_bytes
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.compiler import Compiler
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.machine.target import CompileError, Source, Target, TileUnit
from proofgrad.core.compile.nests.kernel_schedule import NO_MATRICES, Schedule
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.plan.plan import Kernel
from proofgrad.core.compile.schedule.matrices import choose_matrices, way_of
from proofgrad.core.compile.schedule.shared_tiles import find_product
from proofgrad.core.compile.steps.mma_in_item import tile_units
from proofgrad.core.compile.tune.search_space import neighbours
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compile_only, compiler
from proofgrad.verify.sampled.kernels import CheckError

EMITTED: list[UOp] = []
BYTES = (dtypes.int8, dtypes.uint8)
# As AMX has them, but of 4 x 8 and 8 x 4 elements, so that the reference multiplies them in no time.
SMALL = tuple(
    [TileUnit(a, b, dtypes.int32, 4, 2, 4, cycles=1, sums=4) for a in BYTES for b in BYTES]
)

SMALL += (
    TileUnit(*(dtypes.bfloat16,) * 2, dtypes.float32, 4, 2, 2, cycles=1, sums=4, flushes=True),
)


class Tiles(ReferenceBackend):
    """Runs what is compiled for a core with small matrix units, with every access checked."""

    name = "TILES"
    target = Target(
        "TILES", vector_bytes=16, vector_registers=24, scratch_bytes=1 << 14, matrix_units=SMALL
    )

    def emit(self, linear: UOp, name: str) -> Source:
        EMITTED.append(linear)
        return super().emit(linear, name)


class Tight(Tiles):
    """A table of columns does not stay in the second cache."""

    name = "TIGHT"
    target = replace(Tiles.target, cache_bytes=1 << 9)


class Mixed(Tiles):
    """The unit takes one factor with a sign and one without."""

    name = "MIXED"
    target = replace(
        Tiles.target, matrix_units=tuple([x for x in SMALL if x.rows is not x.columns])
    )


# Tables cost so little that a small product is multiplied by the unit.
EAGER = replace(Tiles.target, core=Core(launch_cycles=0))


class Absent(AbsentCpu):
    """A processor by name, whether or not this is one: what is printed for it."""

    def __init__(self, name: str) -> None:
        processor = processor_named(name)
        super().__init__(Host(processor=processor), name, "it is not run here")


def _here_or_absent(name: str) -> CpuBackend | AbsentCpu:
    """A processor by name, which runs where this one has its instructions."""
    processor = processor_named(name)
    return Absent(name) if processor.missing else CpuBackend(Host(processor=processor))


Device.register("TILES", Tiles)
Device.register("TIGHT", Tight)
Device.register("MIXED", Mixed)
Device.register("AMX", lambda: Absent("sapphirerapids"))
Device.register("VNNI", lambda: _here_or_absent("icelake-server"))

HERE = {*units_of_bytes(), *units_of_bfloat16()}.intersection(Device["CPU"].target.matrix_units)
needs_unit = pytest.mark.skipif(
    HERE.isdisjoint(units_of_bytes()),
    reason="this processor, or the one that is asked for, has no AMX, or Linux permits none",
)


def skip_without_vnni() -> None:
    if missing := processor_named("icelake-server").missing:
        pytest.skip(missing)


@pytest.fixture(autouse=True)
def nothing_emitted() -> Iterator[None]:
    compiler().forget()
    EMITTED.clear()
    yield


def numbers(dtype: DType, *shape: int) -> np.ndarray:
    """The least and the largest among them."""
    low, high = (-128, 128) if dtype is dtypes.int8 else (0, 256)
    found = np.random.default_rng(sum(shape)).integers(low, high, shape)
    found.flat[:: max(1, found.size // 5)] = low
    found.flat[1 :: max(1, found.size // 5)] = high - 1
    return found.astype("int8" if dtype is dtypes.int8 else "uint8")


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype("int32") @ b.astype("int32")


def product(device: str, a: np.ndarray, b: np.ndarray) -> Tensor:
    x, y = Tensor(a, device=device).realize(), Tensor(b, device=device).realize()
    return x.matmul(y, dtype=dtypes.int32)


def multiplies_matrices() -> bool:
    return any([n.op is Ops.MMA for linear in EMITTED for n in linear.src])


# -- values ---------------------------------------------------------------------------------------

SIZES = [(8, 16, 8), (9, 17, 7), (1, 8, 5), (5, 3, 1), (2, 1, 3), (13, 29, 11)]


@pytest.mark.parametrize("wanted", ["1x1", "2x2", "1x3", "4x1"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_any_size_is_exact_on_the_reference_machine(
    sizes: tuple[int, int, int], wanted: str
) -> None:
    rows, steps, columns = sizes
    a, b = numbers(dtypes.int8, rows, steps), numbers(dtypes.uint8, steps, columns)
    if min(sizes) == 1:  # a product by a vector, or without a sum, is none of matrices
        result = product("TILES", a, b)
    else:
        with schedule(f"matrices={wanted}"):
            result = product("TILES", a, b).realize()
        assert multiplies_matrices()
    np.testing.assert_array_equal(result.numpy(), exact(a, b))


@pytest.mark.parametrize("wanted", ["1x1", "2x2", "1x4"])
def test_columns_that_leave_the_cache_go_by_in_blocks(wanted: str) -> None:
    a, b = numbers(dtypes.int8, 9, 17), numbers(dtypes.int8, 17, 41)
    with schedule(f"matrices={wanted}"):
        result = product("TIGHT", a, b).realize()
    np.testing.assert_array_equal(result.numpy(), exact(a, b))


@pytest.mark.parametrize("first", BYTES, ids=repr)
@pytest.mark.parametrize("second", BYTES, ids=repr)
@pytest.mark.parametrize("device", ["TILES", pytest.param("CPU", marks=needs_unit)])
def test_signs_are_those_of_the_types(first: DType, second: DType, device: str) -> None:
    a, b = numbers(first, 35, 70), numbers(second, 70, 37)
    np.testing.assert_array_equal(product(device, a, b).numpy(), exact(a, b))


@pytest.mark.parametrize("device", ["TILES", pytest.param("CPU", marks=needs_unit)])
@pytest.mark.parametrize("turned", [(True, False), (False, True), (True, True)], ids=str)
def test_transposed_operands_are_exact(turned: tuple[bool, bool], device: str) -> None:
    a, b = numbers(dtypes.int8, 34, 67), numbers(dtypes.int8, 67, 33)
    given = [x.T.copy() if is_turned else x for x, is_turned in zip((a, b), turned)]
    x, y = [Tensor(one, device=device).realize() for one in given]
    x, y = x.T if turned[0] else x, y.T if turned[1] else y
    with schedule("matrices=2x2"):
        result = x.matmul(y, dtype=dtypes.int32).realize()
    np.testing.assert_array_equal(result.numpy(), exact(a, b))


@needs_unit
@pytest.mark.parametrize(
    "sizes", [(257, 643, 129), (16, 64, 16), (17, 65, 33), (64, 5, 64), (300, 1000, 40)], ids=str
)
def test_any_size_is_exact_by_amx(sizes: tuple[int, int, int]) -> None:
    rows, steps, columns = sizes
    a, b = numbers(dtypes.int8, rows, steps), numbers(dtypes.int8, steps, columns)
    with schedule("matrices=2x2"):
        result = product("CPU", a, b).realize()
    np.testing.assert_array_equal(result.numpy(), exact(a, b))


@needs_unit
def test_sums_wrap_as_those_of_int32_do() -> None:
    a, b = np.full((48, 1 << 17), 255, "uint8"), np.full((1 << 17, 48), 255, "uint8")
    wanted = np.int64(255 * 255) * (1 << 17)
    assert wanted > 2**32
    assert (product("CPU", a, b).numpy() == wanted.astype("int32")).all()


@pytest.mark.parametrize("device", ["TILES", pytest.param("CPU", marks=needs_unit)])
def test_batches_and_what_is_done_to_results_stay_in_one_kernel(device: str) -> None:
    a, b = numbers(dtypes.int8, 3, 2, 19, 34), numbers(dtypes.uint8, 2, 34, 21)
    x, y = Tensor(a, device=device).realize(), Tensor(b, device=device).realize()
    with schedule("matrices=2x1"):
        result = (x.matmul(y, dtype=dtypes.int32).float() * 0.5 + 1).relu().realize()
    np.testing.assert_array_equal(result.numpy(), np.maximum(exact(a, b) * 0.5 + 1, 0))


@pytest.mark.parametrize("padding", [0, 1])
def test_a_convolution_gathers_its_operand(padding: int) -> None:
    x, w = numbers(dtypes.uint8, 2, 3, 9, 7), numbers(dtypes.int8, 5, 3, 3, 3)
    made = []
    for device in ("TILES", "CPU"):
        given, weights = [Tensor(one, device=device).realize() for one in (x, w)]
        with schedule("matrices=1x2") if device == "TILES" else Context():
            result = given.conv2d(weights, padding=padding, dtype=dtypes.int32).realize()
        made.append(result.numpy())
    assert multiplies_matrices()
    np.testing.assert_array_equal(*made)


def test_a_second_call_is_the_same() -> None:
    a, b = numbers(dtypes.int8, 20, 30), numbers(dtypes.int8, 30, 20)
    for _ in range(2):
        np.testing.assert_array_equal(product("TILES", a, b).numpy(), exact(a, b))


# -- processors without tiles --------------------------------------------------------------------


@pytest.mark.parametrize("types", [(0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("sizes", [(17, 70, 19), (64, 64, 64), (33, 5, 50)], ids=str)
def test_vectors_of_words_multiply_bytes_with_and_without_a_sign(
    sizes: tuple[int, int, int], types: tuple[int, int]
) -> None:
    """VPDPBUSD of the processors that have it."""
    skip_without_vnni()
    rows, steps, columns = sizes
    a, b = numbers(BYTES[types[0]], rows, steps), numbers(BYTES[types[1]], steps, columns)
    with schedule("matrices=1x1"):
        result = product("VNNI", a, b).realize()
    np.testing.assert_array_equal(result.numpy(), exact(a, b))


@pytest.mark.parametrize(
    ("name", "types", "instruction", "count"),
    [
        ("icelake-server", (1, 0), r"vpdpbusd\s.*zmm", 16),
        ("icelake-server", (0, 1), r"vpdpbusd\s.*zmm", 16),
        ("alderlake", (1, 0), r"vpdpbusd\s.*ymm", 8),
        ("sierraforest", (0, 0), r"vpdpbssd\s.*ymm", 8),
        ("sierraforest", (1, 1), r"vpdpbuud\s.*ymm", 8),
    ],
)
def test_a_vector_of_words_takes_a_row(
    name: str,
    types: tuple[int, int],
    instruction: str,
    count: int,
    capfd: pytest.CaptureFixture[str],
) -> None:
    device = f"OF{name.replace('-', '')}".upper()
    Device.register(device, lambda: Absent(name))
    x, y = [Tensor(numbers(BYTES[k], 64, 64), device=device).realize() for k in types]
    capfd.readouterr()
    with Context(DEBUG=6, PLANS=0), schedule("matrices=1x1"), compile_only():
        x.matmul(y, dtype=dtypes.int32).realize()
    told = capfd.readouterr()
    assert len(re.findall(instruction, told.out + told.err)) == count


def test_an_instruction_of_vnni_takes_one_factor_with_a_sign_and_one_without() -> None:
    units = Absent("icelake-server").target.matrix_units
    assert {(unit.rows, unit.columns) for unit in units if isinstance(unit, TileUnit)} == {
        BYTES,
        BYTES[::-1],
    }


@pytest.mark.parametrize("kind", BYTES, ids=repr)
@pytest.mark.parametrize("sizes", [*SIZES, (12, 257, 9), (9, 6, 31)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_two_factors_of_one_kind_are_exact_where_the_unit_takes_one_of_each(
    sizes: tuple[int, int, int], kind: DType, turned: bool
) -> None:
    rows, steps, columns = sizes
    a, b = numbers(kind, rows, steps), numbers(kind, steps, columns)
    given = Tensor(b.T.copy() if turned else b, device="MIXED").realize()
    x = Tensor(a, device="MIXED").realize()
    with Context(CHOICES="matrices=1x1"):
        result = x.matmul(given.T if turned else given, dtype=dtypes.int32).realize()
    np.testing.assert_array_equal(result.numpy(), exact(a, b))
    assert multiplies_matrices() or min(sizes) == 1


@pytest.mark.parametrize("kind", BYTES, ids=repr)
@pytest.mark.parametrize("sizes", [(17, 70, 19), (64, 64, 64), (3, 2, 33, 5, 50)], ids=str)
def test_vectors_of_words_multiply_bytes_of_one_kind(sizes: tuple[int, ...], kind: DType) -> None:
    """VPDPBUSD takes the second factor with 128 added, or taken off, and the product of a batch, too."""
    skip_without_vnni()
    *batch, rows, steps, columns = sizes
    a, b = numbers(kind, *batch, rows, steps), numbers(kind, *batch, steps, columns)
    with Context(CHOICES="matrices=1x1"):
        results = [product("VNNI", a, b).realize() for _ in range(2)]
    for result in results:
        np.testing.assert_array_equal(result.numpy(), exact(a, b))


# rows, steps, columns: whole words and turns of four, ends of each
OF_WORDS = [(17, 64, 19), (33, 128, 48), (16, 72, 16), (5, 48, 130), (40, 77, 33), (16, 1008, 97)]


@pytest.mark.parametrize("types", [(0, 1), (1, 0), (0, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("sizes", OF_WORDS, ids=str)
def test_columns_that_lie_along_the_sum_are_turned_around_in_words(
    sizes: tuple[int, int, int], types: tuple[int, int]
) -> None:
    skip_without_vnni()
    rows, steps, columns = sizes
    a, b = numbers(BYTES[types[0]], rows, steps), numbers(BYTES[types[1]], columns, steps)
    x, y = [Tensor(one, device="VNNI").realize() for one in (a, b)]
    with Context(CHOICES="matrices=1x1"):
        results = [x.matmul(y.T, dtype=dtypes.int32).realize() for _ in range(2)]
    for result in results:
        np.testing.assert_array_equal(result.numpy(), exact(a, b.T))


@pytest.mark.heuristics
def test_four_words_of_a_row_are_one_load_for_a_table_of_vnni(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Device.register("ROWS OF WORDS", lambda: Absent("icelake-server"))
    x, y = [Tensor(numbers(kind, 64, 64), device="ROWS OF WORDS").realize() for kind in BYTES[::-1]]
    capfd.readouterr()
    with Context(DEBUG=3, PLANS=0), schedule("matrices=1x1"), compile_only():
        x.matmul(y.T, dtype=dtypes.int32).realize()
    told = capfd.readouterr()
    assert (told.out + told.err).count("load <4 x i32>") == 16


def test_the_factor_beside_which_less_is_to_be_summed_gets_the_other_type() -> None:
    for rows, columns in ((64, 256), (256, 64)):
        x, y = [
            Tensor(numbers(dtypes.int8, *shape), device="MIXED").realize()
            for shape in ((rows, 64), (64, columns))
        ]
        kernel = kernel_of(lambda x=x, y=y: x.matmul(y, dtype=dtypes.int32))
        found = find_product(kernel)
        assert found is not None
        way = way_of(found, Mixed.target)
        assert way is not None
        beside = found.row_factor if way.offset is found.column_factor else found.column_factor
        assert way.offset is not None and way.offset is not beside
        assert {size_of(x) for x in loops_of(beside)} == {min(rows, columns), 64}


def test_a_core_that_turns_words_around_slowly_leaves_products_of_turned_bytes_to_vectors() -> None:
    x, y = [Tensor(numbers(dtypes.int8, 64, 256), device="TILES").realize() for _ in range(2)]
    kernel = kernel_of(lambda: x.matmul(y.T, dtype=dtypes.int32))
    chosen = [
        choose_matrices(kernel, replace(EAGER, core=replace(EAGER.core, **slow)), Schedule())
        for slow in ({}, {"transposed_cycles": 40.0}, {"copy_apart_cycles": 400.0})
    ]
    assert [made is not None for made in chosen] == [True, False, False]


# -- bfloat16 -------------------------------------------------------------------------------------


def of_bfloat16(array: np.ndarray, device: str = "CPU") -> Tensor:
    return Tensor(array.astype("float32"), device=device).cast(dtypes.bfloat16).realize()


def kernels_emitted(make: Callable[[], Tensor]) -> int:
    EMITTED.clear()
    with compile_only():
        make().realize()
    return len(EMITTED)


def test_a_unit_that_flushes_is_used_where_no_number_is_too_small_or_that_is_asked_for() -> None:
    x, y = [of_bfloat16(np.ones((256, 256)), "TILES") for _ in range(2)]
    assert kernels_emitted(lambda: x @ y) == 6  # two tables, two looks at numbers, two products
    assert multiplies_matrices()
    with Context(FLUSH=1):
        assert kernels_emitted(lambda: x @ y) == 3
        assert multiplies_matrices()


def test_numbers_that_are_computed_by_the_kernel_are_looked_at_by_none() -> None:
    x, y = of_bfloat16(np.ones((256, 256)), "TILES"), of_bfloat16(np.ones((1, 256)), "TILES")
    made = [x @ (x.T * 0.5), x @ x.relu(), (x + y) @ x]
    for one in made:
        EMITTED.clear()
        with compile_only():
            one.realize()
        products = [linear for linear in EMITTED if any([n.op is Ops.MMA for n in linear.src])]
        for linear in products:  # what it multiplies was stored, so that it could be looked at
            assert any([n.dtype is dtypes.uint16 for n in linear.src])


@pytest.mark.parametrize("flush", [0, 1])
def test_sapphire_rapids_multiplies_bfloat16_by_tiles(
    flush: int, capfd: pytest.CaptureFixture[str]
) -> None:
    x = of_bfloat16(np.ones((256, 256)), "AMX")
    capfd.readouterr()
    with Context(DEBUG=6, PLANS=0, FLUSH=flush), compile_only():
        (x @ x).realize()
    told = capfd.readouterr()
    assert len(re.findall(r"^\s+tdpbf16ps\s", told.out + told.err, re.MULTILINE)) == 4


@pytest.mark.parametrize(("name", "flush"), [("znver4", 1), ("znver4", 0), ("cooperlake", 1)])
def test_a_vector_of_words_takes_a_row_of_bfloat16_where_that_is_faster(
    name: str, flush: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """On Intel's cores two multiply-adds of float32 take as long as one of these instructions."""
    device = f"OF{name}".upper()
    Device.register(device, lambda: Absent(name))
    x = of_bfloat16(np.ones((256, 256)), device)
    capfd.readouterr()
    with Context(DEBUG=6, PLANS=0, FLUSH=flush), compile_only():
        (x @ x).realize()
    told = capfd.readouterr()
    found = re.findall(r"^\s+vdpbf16ps\s.*%zmm", told.out + told.err, re.MULTILINE)
    assert len(found) == (16 if name == "znver4" else 0)


@pytest.mark.parametrize("sizes", [(8, 16, 8), (9, 17, 7)], ids=str)
def test_products_of_bfloat16_are_exact_where_their_sums_are(sizes: tuple[int, int, int]) -> None:
    rows, steps, columns = sizes
    a, b = numbers(dtypes.int8, rows, steps) // 16, numbers(dtypes.int8, steps, columns) // 16
    x, y = of_bfloat16(a, "TILES"), of_bfloat16(b, "TILES")
    with Context(FLUSH=1), schedule("matrices=2x1"):
        result = x.matmul(y, dtype=dtypes.float32).realize()
    np.testing.assert_array_equal(result.numpy(), exact(a, b))


needs_bfloat16 = pytest.mark.skipif(
    not any([unit.flushes for unit in tile_units(Device["CPU"].target.matrix_units)]),
    reason="this processor, or the one that is asked for, has neither AMX nor AVX-512 for bfloat16",
)


def of_exponent(exponent: int, draw: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of bfloat16 whose stored exponent this is, some of them 0."""
    digits = draw.integers(0, 128, shape) + 128 * (exponent > 0)
    signs = draw.choice([-1, 1, 0], shape, p=[0.4, 0.4, 0.2])
    return signs * digits * 2.0 ** (max(exponent, 1) - 134)


# Together 142, and one less and more; denormal numbers; all digits of a sum are kept, so that it is exact in any order.
EXPONENTS = [
    (71, 71),
    (70, 71),
    (72, 71),
    (1, 141),
    (0, 142),
    (141, 1),
    (0, 150),
    (100, 120),
    (2, 120),
]


@pytest.mark.parametrize("exponents", EXPONENTS, ids=str)
@pytest.mark.parametrize("device", ["TILES", pytest.param("CPU", marks=needs_bfloat16)])
@pytest.mark.parametrize("wanted", ["matrices=1x1", "matrices=none"])
def test_no_product_or_sum_is_flushed_where_nothing_is_asked_for(
    exponents: tuple[int, int], wanted: str, device: str
) -> None:
    draw = np.random.default_rng(sum(exponents))
    for rows, steps, columns in ((9, 31, 7), (40, 33, 35), (1, 5, 3)):
        a = of_exponent(exponents[0], draw, rows, steps)
        b = of_exponent(exponents[1], draw, steps, columns)
        x, y = of_bfloat16(a, device), of_bfloat16(b, device)
        with Context(CHOICES=wanted):
            result = x.matmul(y, dtype=dtypes.float32).realize()
        np.testing.assert_array_equal(result.numpy(), (a @ b).astype("float32"))


@needs_bfloat16
@pytest.mark.parametrize("sizes", [(17, 64, 19), (33, 72, 48), (16, 77, 33)], ids=str)
@pytest.mark.parametrize("scale", [1.0, 2.0**-120])
def test_turned_columns_of_bfloat16_are_exact_both_ways(
    sizes: tuple[int, int, int], scale: float
) -> None:
    """Of small whole numbers, and of those times so small a number that vectors multiply."""
    rows, steps, columns = sizes
    a, b = numbers(dtypes.int8, rows, steps) // 16, numbers(dtypes.int8, columns, steps) // 16
    x, y = of_bfloat16(a * scale), of_bfloat16(b.astype("float32"))
    with Context(CHOICES="matrices=1x1"):
        result = x.matmul(y.T, dtype=dtypes.float32).realize()
    np.testing.assert_array_equal(result.numpy(), (exact(a, b.T) * scale).astype("float32"))


@pytest.mark.parametrize("rows", [16, 17, 32])
def test_the_way_without_the_unit_packs_turned_columns_as_it_may_have_no_table(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a processor whose unit pays for so few rows: where vectors of 64 bytes run whole it does not."""
    monkeypatch.setenv("NUM_THREADS", "2")
    with cpu("znver4"):
        x, w = [Tensor.empty(n, 3072, dtype=dtypes.bfloat16).realize() for n in (rows, 768)]
        (by_vectors,) = re.findall("tiled=on.*matrices=none.*", explain(x @ w.T))
    assert "packed=on" in by_vectors


@needs_bfloat16
def test_one_small_number_anywhere_in_memory_takes_the_other_way() -> None:
    a, b = np.ones((64, 64)), np.ones((64, 64))
    for k in (0, 64 * 64 - 1, 1234):
        small = a.copy()
        small[k // 64] = 0  # a row of it alone, so that it is seen
        small.flat[k] = 2.0**-130
        x, y = of_bfloat16(small), of_bfloat16(b * 2.0**-10)
        with Context(CHOICES="matrices=1x1"):
            result = x.matmul(y, dtype=dtypes.float32).realize().numpy()
        np.testing.assert_array_equal(result, (small @ (b * 2.0**-10)).astype("float32"))


@needs_bfloat16
def test_infinities_and_nan_are_not_too_small() -> None:
    a = np.ones((32, 32))
    a[0, 0], a[1, 1], a[2, :2] = np.inf, np.nan, (np.inf, -np.inf)
    x = of_bfloat16(a)
    with Context(CHOICES="matrices=1x1"):
        result = x.matmul(x, dtype=dtypes.float32).realize().numpy()
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(result, (a @ a).astype("float32"))


@needs_bfloat16
@pytest.mark.parametrize("sizes", [(64, 64, 64), (257, 643, 129), (33, 5, 40)], ids=str)
def test_products_of_bfloat16_are_summed_in_float32(sizes: tuple[int, int, int]) -> None:
    rows, steps, columns = sizes
    draw = np.random.default_rng(0)
    x = of_bfloat16(draw.standard_normal((rows, steps)))
    y = of_bfloat16(draw.standard_normal((steps, columns)))
    with Context(FLUSH=1), schedule("matrices=1x1"):
        result = x.matmul(y, dtype=dtypes.float32).realize().numpy()
    a, b = x.float().numpy().astype("float64"), y.float().numpy().astype("float64")
    bound = steps * 2.0**-23 * (abs(a) @ abs(b))
    assert (abs(result - a @ b) <= bound).all()


@needs_bfloat16
def test_denormal_numbers_count_where_nothing_else_is_asked_for() -> None:
    small = np.full((64, 64), 2.0**-130)
    x, y = of_bfloat16(small), of_bfloat16(np.ones((64, 64)))
    assert (x.matmul(y, dtype=dtypes.float32).numpy() == 2.0**-124).all()
    with Context(FLUSH=1), schedule("matrices=1x1"):
        flushed = x.matmul(y, dtype=dtypes.float32).realize()
    assert (flushed.numpy() == 0).all()
    assert (x.matmul(y, dtype=dtypes.float32).numpy() == 2.0**-124).all()


# -- what is chosen -------------------------------------------------------------------------------


def square(size: int = 64, first: DType = dtypes.int8, second: DType = dtypes.int8) -> Tensor:
    return product("TILES", numbers(first, size, size), numbers(second, size, size))


def is_by_unit(make: Callable[[], Tensor]) -> bool:
    EMITTED.clear()
    with compile_only():
        make().realize()
    return multiplies_matrices()


def test_a_large_product_is_multiplied_by_a_unit_and_a_small_one_is_not() -> None:
    assert is_by_unit(lambda: square(256))
    assert not is_by_unit(lambda: square(8))


def test_few_rows_and_a_long_matrix_stay_with_vectors() -> None:
    a, b = numbers(dtypes.int8, 2, 1024), numbers(dtypes.int8, 1024, 1024)
    assert not is_by_unit(lambda: product("TILES", a, b))


def test_no_unit_is_used_where_none_is_asked_for() -> None:
    result = square(256)
    with schedule("matrices=none"):
        assert not is_by_unit(lambda: result)


def test_types_that_no_unit_takes_stay_with_vectors() -> None:
    x = Tensor(np.ones((256, 256), "int16"), device="TILES").realize()
    assert not is_by_unit(lambda: x.matmul(x, dtype=dtypes.int32))


@pytest.mark.parametrize("text", ["matrices=2", "matrices=5x5", "matrices=0x1"])
def test_matrices_that_are_none_are_refused_with_what_may_stand_there(text: str) -> None:
    with pytest.raises(ValueError, match="ROWSxCOLUMNS"), schedule(text):
        pass


def test_more_matrices_than_a_unit_keeps_are_refused() -> None:
    result = square(64)
    with pytest.raises(ScheduleError, match="matrices=3x3"), schedule("matrices=3x3"):
        result.realize()


def test_a_search_tries_other_numbers_of_matrices_and_none() -> None:
    result = square(256)
    kernel = kernel_of(lambda: result)
    found = neighbours(kernel, Tiles.target, Schedule(), Schedule())
    made = {one.matrices for one in found if one.matrices is not None}
    assert NO_MATRICES in made and len(made) > 3
    assert all([one.rows * one.columns <= 4 for one in made])


def test_a_machine_where_linux_permits_no_tiles_has_no_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generator, "may_use_tiles", lambda: False)
    assert HERE.isdisjoint(CpuBackend().target.matrix_units)


# -- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        (dtypes.int8, dtypes.int8, "tdpbssd"),
        (dtypes.int8, dtypes.uint8, "tdpbsud"),
        (dtypes.uint8, dtypes.int8, "tdpbusd"),
        (dtypes.uint8, dtypes.uint8, "tdpbuud"),
    ],
)
def test_sapphire_rapids_has_an_instruction_for_each_pair_of_types(
    first: DType, second: DType, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    x = Tensor(numbers(first, 128, 128), device="AMX").realize()
    y = Tensor(numbers(second, 128, 128), device="AMX").realize()
    with Context(DEBUG=6, PLANS=0), schedule("matrices=2x2"), compile_only():
        x.matmul(y, dtype=dtypes.int32).realize()
    told = capfd.readouterr()
    text = told.out + told.err
    instructions = re.findall(rf"^\s+{name}\s+%tmm", text, re.MULTILINE)
    assert len(instructions) == 4 == len(re.findall(r"^\s+tdp\w+\s+%tmm", text, re.MULTILINE))
    assert len(re.findall(r"^\s+tileloadd\s", text, re.MULTILINE)) == 4  # none goes through memory
    assert len(re.findall(r"^\s+tilestored\s", text, re.MULTILINE)) == 4


def test_other_machines_say_that_they_multiply_no_matrices() -> None:
    with schedule("matrices=1x1"), compile_only():
        square(8).realize()
    (linear,) = [one for one in EMITTED if any([n.op is Ops.MMA for n in one.src])]
    haswell = processor_named("haswell")
    with pytest.raises(CompileError, match="multiplies matrices"):
        AbsentCpu(Host(processor=haswell), haswell.name, "").emit(linear, "product")


def test_each_unit_of_bytes_is_a_tile() -> None:
    assert {(unit.rows, unit.columns) for unit in units_of_bytes()} == {
        (a, b) for a in BYTES for b in BYTES
    }
    for unit in units_of_bytes():
        assert unit.side * 4 == unit.groups * unit.group == 64


# -- proofs and checks ----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(8, 16, 8), (9, 17, 7)], ids=str)
@pytest.mark.parametrize("device", ["TILES", "MIXED"])
def test_the_solver_shows_all_of_a_product(
    sizes: tuple[int, int, int], device: str, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, steps, columns = sizes
    result = product(
        device, numbers(dtypes.int8, rows, steps), numbers(dtypes.int8, steps, columns)
    )
    capfd.readouterr()
    with Context(PROVE=1, PLANS=0, CHOICES="matrices=2x1"), compile_only():
        result.realize()
    told = capfd.readouterr().err
    assert "none unknown" in told and "NOT COVERED" not in told, told
    assert multiplies_matrices()


@pytest.mark.parametrize("wanted", ["matrices=1x1", "matrices=2x1"])
def test_the_solver_shows_that_one_of_two_ways_writes_each_result_of_a_product(
    wanted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    x, y = of_bfloat16(np.ones((9, 17)), "TILES"), of_bfloat16(np.ones((17, 5)), "TILES")
    capfd.readouterr()
    with Context(PROVE=1, PLANS=0, CHOICES=wanted), compile_only():
        x.matmul(y, dtype=dtypes.float32).realize()
    told = capfd.readouterr().err
    assert "none unknown" in told and "NOT COVERED" not in told, told
    assert multiplies_matrices()


@pytest.fixture(scope="module")
def bodies() -> list[UOp]:
    """A product as a kernel before all stages."""
    recorder = Recorder()
    result = product("CPU", numbers(dtypes.int8, 32, 64), numbers(dtypes.int8, 64, 32))
    with pytest.MonkeyPatch.context() as patch:
        compile_with(recorder, result, patch)
    return recorder.bodies


def _turned(mma: UOp) -> UOp:
    """The factors are exchanged: each is read in the other's order."""
    item, before, column, row = mma.src
    return mma.with_src((item, before, row, column))


def _rows_of_columns(mma: UOp) -> UOp:
    """The second factor is taken as one that lies row by row."""
    side, groups, group = mma.arg
    return mma.replace(arg=(side, groups * group, 1))


def _other_group(mma: UOp) -> UOp:
    """Two rows of the second factor side by side, not four."""
    side, groups, group = mma.arg
    return mma.replace(arg=(side, groups * 2, group // 2))


FAULTS = [_turned, _rows_of_columns, _other_group]


def _broken(fault: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    def wrong(program: UOp) -> UOp:
        linear = linearize(program)
        return in_order(linear, {n: fault(n) for n in linear.src if n.op is Ops.MMA})

    return wrong


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_layout_is_found_by_the_proof(
    fault: Callable[[UOp], UOp], bodies: list[UOp]
) -> None:
    assert re.search(
        "differs at|not made as before", planted(bodies, EAGER, "linearize", _broken(fault))
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_layout_is_found_at_sampled_elements(
    fault: Callable[[UOp], UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Compiler._compiled

    def compiled(self: Compiler, linear: UOp, device: str, background: Any = None) -> Kernel:
        products = {n: fault(n) for n in linear.src if n.op is Ops.MMA}
        return right(self, in_order(linear, products), device, background)

    result = product("TILES", numbers(dtypes.int8, 9, 17), numbers(dtypes.int8, 17, 8))
    monkeypatch.setattr(Compiler, "_compiled", compiled)
    checks, wrong = Context(CHECK=1, PLANS=0), pytest.raises(CheckError, match="expected")
    with schedule("matrices=1x1"), checks, compile_only(), wrong:
        result.realize()


def test_sampled_elements_of_what_is_right_are_as_expected(
    capfd: pytest.CaptureFixture[str],
) -> None:
    result = product("TILES", numbers(dtypes.int8, 9, 17), numbers(dtypes.uint8, 17, 8))
    with schedule("matrices=2x1"), Context(CHECK=1, PLANS=0, DEBUG=2), compile_only():
        result.realize()
    assert "not checked" not in capfd.readouterr().err
    assert multiplies_matrices()
