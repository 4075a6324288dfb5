"""Convolutions that a core multiplies by a matrix unit: matrices whose columns are pixels of a line, and images that are padded as they are."""

from __future__ import annotations

import numpy as np
import pytest
from test_tile_units import BYTES, EMITTED, Tiles, multiplies_matrices, needs_unit, numbers
from test_warp_tiles import kernel_of

from proofgrad import Context, Tensor, dtypes, schedule
from proofgrad.backends.llvm.tiles import units_of_bytes
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Matrices, Schedule
from proofgrad.core.compile.schedule.matrices import choose_matrices, ways_of_matrices
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.tensor.runtime.realize import compile_only, compiler

DEVICES = ["TILES", pytest.param("CPU", marks=needs_unit)]


@pytest.fixture(autouse=True)
def nothing_emitted() -> None:
    compiler().forget()
    EMITTED.clear()


def windows_of(x: np.ndarray, size: int, padding: int, stride: int) -> np.ndarray:
    """Images (n, c, h, w) as (n, c, h', w', size, size)."""
    edge = (padding, padding)
    padded = np.pad(x.astype("int32"), ((0, 0), (0, 0), edge, edge))
    found = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    return found[:, :, ::stride, ::stride]


# Images, filters, size, padding and stride: lines shorter, longer and as long as matrices, a sum that no matrix divides, one result.
SHAPES = [
    ((2, 3, 9, 7), 5, 3, 1, 1),
    ((1, 8, 4, 16), 4, 3, 1, 1),
    ((3, 5, 6, 17), 9, 3, 0, 1),
    ((2, 4, 8, 9), 6, 2, 0, 2),
    ((1, 2, 5, 5), 3, 5, 2, 1),
    ((2, 7, 3, 3), 2, 3, 0, 1),
]


@pytest.mark.parametrize("wanted", ["1x1/lines", "1x2/lines", "4x1/lines", "2x2/lines", "2x1"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_a_convolution_of_bytes_is_exact(
    shape: tuple[tuple[int, ...], int, int, int, int], wanted: str, device: str
) -> None:
    images, filters, size, padding, stride = shape
    x, w = numbers(dtypes.uint8, *images), numbers(dtypes.int8, filters, images[1], size, size)
    given, weights = [Tensor(one, device=device).realize() for one in (x, w)]
    result = given.conv2d(weights, padding=padding, stride=stride, dtype=dtypes.int32)
    with Context(CHOICES=f"matrices={wanted}", PLANS=0):
        found = [(result + k).realize().numpy() - k for k in (0, 1)]  # a second call
    expected = np.einsum(
        "nchwij,ocij->nohw", windows_of(x, size, padding, stride), w.astype("int32")
    )
    for one in found:
        np.testing.assert_array_equal(one, expected)


@pytest.mark.parametrize("wanted", ["1x2/lines", "2x1"])
@pytest.mark.parametrize("kind", BYTES, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_images_and_filters_of_one_kind_are_exact_where_the_unit_takes_one_of_each(
    shape: tuple[tuple[int, ...], int, int, int, int], kind: DType, wanted: str
) -> None:
    """What is padded is 0 before 128 is added, and the sum of the filter takes all of that off."""
    images, filters, size, padding, stride = shape
    x, w = numbers(kind, *images), numbers(kind, filters, images[1], size, size)
    given, weights = [Tensor(one, device="MIXED").realize() for one in (x, w)]
    result = given.conv2d(weights, padding=padding, stride=stride, dtype=dtypes.int32)
    with Context(CHOICES=f"matrices={wanted}", PLANS=0):
        found = result.realize().numpy()
    assert multiplies_matrices()
    windows = windows_of(x, size, padding, stride)
    np.testing.assert_array_equal(found, np.einsum("nchwij,ocij->nohw", windows, w.astype("int32")))


@pytest.mark.parametrize("wanted", ["1x2/lines", "2x2"])
def test_dilated_and_grouped_convolutions_are_exact(wanted: str) -> None:
    x, w = numbers(dtypes.uint8, 2, 6, 9, 11), numbers(dtypes.int8, 8, 3, 3, 3)
    made = []
    for device in ("TILES", "REFERENCE"):
        given, weights = [Tensor(one, device=device).realize() for one in (x, w)]
        with Context(CHOICES=f"matrices={wanted}", PLANS=0) if device == "TILES" else Context():
            result = given.conv2d(weights, groups=2, dilation=2, padding=2, dtype=dtypes.int32)
            made.append(result.realize().numpy())
    np.testing.assert_array_equal(*made)


def convolution(images: tuple[int, ...], filters: int) -> Tensor:
    """Of 3 x 3, by as many channels."""
    x = Tensor(numbers(dtypes.uint8, *images), device="TILES").realize()
    w = Tensor(numbers(dtypes.int8, filters, images[1], 3, 3), device="TILES").realize()
    return x.conv2d(w, dtype=dtypes.int32)


@pytest.mark.parametrize(
    ("images", "is_in_lines"),
    [((4, 64, 58, 58), True), ((4, 64, 50, 50), True), ((64, 256, 4, 4), False)],
)
def test_matrices_are_lines_where_those_fill_them(
    images: tuple[int, ...], is_in_lines: bool
) -> None:
    """Lines of 48 and 56 pixels take three and four matrices of 16; those of 2 would leave most of each empty."""
    target = Target(
        "AMX", vector_bytes=64, vector_registers=32, matrix_units=tuple(units_of_bytes())
    )
    kernel = kernel_of(lambda: convolution(images, images[1]))
    chosen = choose_matrices(kernel, target, Schedule())
    assert chosen is not None and chosen.matrices is not None
    assert chosen.matrices.lines is is_in_lines
    assert {way.lines for way in ways_of_matrices(kernel, target)} == {False, True}


def test_a_matrix_has_no_lines_of_columns() -> None:
    x = Tensor(numbers(dtypes.int8, 64, 64), device="TILES").realize()
    kernel = kernel_of(lambda: x.matmul(x, dtype=dtypes.int32))
    assert not any([way.lines for way in ways_of_matrices(kernel, Tiles.target)])


@pytest.mark.parametrize("device", DEVICES)
def test_lines_may_be_asked_of_a_matrix(device: str) -> None:
    """Its one loop of columns is the line."""
    a, b = numbers(dtypes.int8, 9, 17), numbers(dtypes.int8, 17, 21)
    x, y = Tensor(a, device=device).realize(), Tensor(b, device=device).realize()
    with schedule("matrices=2x2/lines"):
        found = x.matmul(y, dtype=dtypes.int32).realize().numpy()
    np.testing.assert_array_equal(found, a.astype("int32") @ b.astype("int32"))


def test_the_text_of_matrices_in_lines_is_read_again() -> None:
    one = Schedule(matrices=Matrices(4, 1, lines=True))
    with schedule(str(one)):
        assert "matrices=4x1/lines" in str(one)
    with pytest.raises(ValueError, match="ROWSxCOLUMNS/lines"), schedule("matrices=4x1/columns"):
        pass


def stored_by_the_first_kernel(result: Tensor) -> str:
    with compile_only():
        result.realize()
    (store, *_) = [n for n in EMITTED[0].src if n.op is Ops.STORE]
    return repr(store.src[1].dtype).removesuffix(".vec(8)")


@pytest.mark.parametrize("flush", [0, 1])
def test_padded_images_are_stored_as_the_unit_takes_them(flush: int) -> None:
    x = Tensor(np.ones((1, 8, 12, 12), "float32"), device="TILES").cast(dtypes.bfloat16).realize()
    w = Tensor(np.ones((40, 8, 3, 3), "float32"), device="TILES").cast(dtypes.bfloat16).realize()
    EMITTED.clear()
    with Context(FLUSH=flush, PLANS=0):
        stored = stored_by_the_first_kernel(x.conv2d(w, padding=1))
    assert stored == "dtypes.bfloat16"


def test_sampled_elements_of_a_convolution_in_lines_are_as_expected(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with schedule("matrices=1x2/lines"), Context(CHECK=1, PLANS=0, DEBUG=2), compile_only():
        convolution((1, 8, 6, 9), 8).realize()
    assert "not checked" not in capfd.readouterr().err
    assert multiplies_matrices()


# Lines of one matrix and of several, cut in one or two; several images; an odd number of lines, of which matrices of columns take two or three.
PROVEN = [
    ("1x2", (1, 8, 6, 9), 8),
    ("2x2", (2, 4, 7, 21), 20),
    ("2x2", (2, 4, 8, 9), 6),
    ("1x2", (5, 3, 7, 9), 17),
    ("1x2", (5, 3, 13, 37), 17),
    ("1x3", (3, 3, 7, 17), 33),
]


@pytest.mark.parametrize(("wanted", "images", "filters"), PROVEN, ids=str)
def test_the_solver_shows_all_of_a_convolution_in_lines(
    wanted: str, images: tuple[int, ...], filters: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with schedule(f"matrices={wanted}/lines"), Context(PROVE=1, PLANS=0), compile_only():
        convolution(images, filters).realize()
    told = capfd.readouterr().err
    assert "none unknown" in told and "NOT COVERED" not in told, told
    assert multiplies_matrices()
