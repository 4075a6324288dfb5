"""Convolutions that a core multiplies by vectors of words, read from a copy of the image that has each pixel once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_tile_units import EMITTED, SMALL, Absent, Tiles, multiplies_matrices, numbers, of_bfloat16
from test_warp_tiles import kernel_of

from proofgrad import Context, Device, Tensor, dtypes, schedule
from proofgrad.core.compile.nests.kernel_schedule import Matrices, Schedule
from proofgrad.core.compile.schedule.matrices import choose_matrices, ways_of_matrices
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.tensor.runtime.realize import compile_only, compiler


class Words(Tiles):
    """Units of one group: a column of a matrix is a word of some channels."""

    name = "WORDS"
    target = replace(Tiles.target, matrix_units=tuple([replace(x, groups=1) for x in SMALL]))


Device.register("WORDS", Words)
Device.register("ZEN4", lambda: Absent("znver4"))
# A window and whether it is one: of 4 channels, whose taps read again what others read, in lines side by side.
SHAPES = [
    ((2, 8, 11, 9), 5, (3, 3), {}),
    ((1, 12, 4, 16), 4, (3, 3), {}),
    ((3, 8, 6, 21), 9, (2, 5), {}),
    ((2, 8, 12, 13), 6, (3, 2), {"dilation": (2, 3)}),
    ((2, 8, 11, 8), 6, (3, 3), {"stride": (2, 1)}),
    ((1, 16, 1, 23), 3, (1, 4), {}),
    ((2, 16, 8, 9), 8, (3, 3), {"groups": 2}),
]
OTHERS = [
    ((2, 6, 9, 7), 5, (3, 3), {}),  # channels that are no whole words
    ((2, 4, 9, 7), 5, (3, 3), {}),  # one word
    ((2, 8, 9, 8), 5, (3, 3), {"stride": 2}),  # pixels that lie apart
    ((2, 8, 9, 7), 5, (1, 1), {}),  # each pixel is read once
]


@pytest.fixture(autouse=True)
def nothing_emitted() -> None:
    compiler().forget()
    EMITTED.clear()


def given(
    shape: tuple[tuple[int, ...], int, tuple[int, int], dict[str, int]], kind: DType
) -> list[np.ndarray]:
    images, filters, size, options = shape
    channels = images[1] // options.get("groups", 1)
    return [numbers(kind, *images), numbers(dtypes.int8, filters, channels, *size)]


def convolved(arrays: list[np.ndarray], device: str, options: dict[str, int]) -> Tensor:
    x, w = [Tensor(one, device=device).realize() for one in arrays]
    return x.conv2d(w, dtype=dtypes.int32, **options)


def reads_a_copy(elements: int) -> bool:
    """Whether the kernel that multiplies matrices reads a table of so many elements."""
    (made,) = [x for x in EMITTED if any(n.op is Ops.MMA for n in x.toposort())]
    return elements in [n.arg[1] for n in made.toposort() if n.op is Ops.PARAM]


@pytest.mark.parametrize("wanted", ["1x1", "1x2", "4x1", "2x2"])
@pytest.mark.parametrize("kind", [dtypes.uint8, dtypes.int8], ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_convolution_read_in_windows_is_exact(
    shape: tuple[tuple[int, ...], int, tuple[int, int], dict[str, int]], kind: DType, wanted: str
) -> None:
    arrays, options = given(shape, kind), shape[3]
    with Context(CHOICES=f"matrices={wanted}/windows", PLANS=0):
        made = convolved(arrays, "WORDS", options)
        found = [(made + k).realize().numpy() - k for k in (0, 1)]  # a second call
    assert multiplies_matrices()
    expected = convolved(arrays, "REFERENCE", options).numpy()
    for one in found:
        np.testing.assert_array_equal(one, expected)


def test_each_pixel_is_copied_once() -> None:
    """Of 2 images of 8 channels and 9 lines of 10 pixels, and behind each plane as many as matrices of 4 go beyond a line of 8."""
    with Context(CHOICES="matrices=1x1/windows", PLANS=0):
        convolved(given(((2, 8, 9, 9), 5, (3, 2), {}), dtypes.uint8), "WORDS", {}).realize()
    assert reads_a_copy(2 * 8 * 81)
    EMITTED.clear()
    with Context(CHOICES="matrices=1x1/windows", PLANS=0):
        convolved(given(((2, 8, 9, 9), 5, (3, 3), {}), dtypes.uint8), "WORDS", {}).realize()
    assert reads_a_copy(2 * 8 * (81 + 1))  # 7 pixels of 8


@pytest.mark.parametrize("shape", OTHERS, ids=str)
def test_other_convolutions_have_no_windows(
    shape: tuple[tuple[int, ...], int, tuple[int, int], dict[str, int]],
) -> None:
    arrays, options = given(shape, dtypes.uint8), shape[3]
    kernel = kernel_of(lambda: convolved(arrays, "WORDS", options))
    ways = ways_of_matrices(kernel, Words.target)
    assert ways and not [way for way in ways if way.windows]
    with Context(CHOICES="matrices=1x1/windows", PLANS=0):
        np.testing.assert_array_equal(
            convolved(arrays, "WORDS", options).numpy(),
            convolved(arrays, "REFERENCE", options).numpy(),
        )


def test_units_whose_columns_are_several_words_have_no_windows() -> None:
    kernel = kernel_of(lambda: convolved(given(SHAPES[0], dtypes.uint8), "TILES", {}))
    assert not [x for x in ways_of_matrices(kernel, Tiles.target) if x.windows]


def test_windows_are_chosen_where_a_line_is_not_much_shorter_than_its_matrices() -> None:
    target = Device["ZEN4"].target.for_normals()

    def chosen(*images: int) -> Matrices:
        x, w = (
            of_bfloat16(np.ones(images), "ZEN4"),
            of_bfloat16(np.ones((64, images[1], 3, 3)), "ZEN4"),
        )
        way = choose_matrices(kernel_of(lambda: x.conv2d(w)), target, Schedule())
        assert way is not None and way.matrices is not None
        return way.matrices

    assert chosen(8, 64, 58, 58).windows
    assert chosen(8, 64, 30, 30).windows
    assert not chosen(64, 64, 4, 4).windows  # 2 of 16 pixels


def test_a_kernel_that_reads_windows_is_proved() -> None:
    with schedule("matrices=1x2/windows"), Context(PROVE=1, PLANS=0), compile_only():
        convolved(given(SHAPES[0], dtypes.uint8), "WORDS", {}).realize()
    assert multiplies_matrices()
