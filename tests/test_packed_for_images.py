"""The weights of a convolution are packed by an item once, for all images and lines that it goes through: the same values, proven."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_kernel_proof import prove
from test_tile_costs import ONE_THREAD, simplified_body

from proofgrad import Tensor
from proofgrad.core.compile.nests.kernel_schedule import Tile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.schedule.contraction import contractions
from proofgrad.core.compile.schedule.items import others_of_an_item
from proofgrad.core.compile.schedule.operands import packs_columns
from proofgrad.core.compile.schedule.tiles import choose_blocks, find_contraction
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler


def body(image: tuple[int, ...], weight: tuple[int, ...], **options: int) -> UOp:
    """The kernel of a convolution before its axes are chosen."""
    x, w = Tensor.empty(*image).realize(), Tensor.empty(*weight).realize()
    graph = compiler().kernel_graph(UOp.sink(x.conv2d(w, **options).uop).replace(arg="CPU"))
    return graph.src[-1].src[0]


@pytest.mark.heuristics
def test_an_item_goes_through_all_images_with_weights_that_it_has_packed() -> None:
    kernel = simplified_body(body((4, 64, 16, 16), (256, 64, 3, 3)))
    way, tile = find_contraction(kernel, ONE_THREAD) or (None, None)
    assert way is not None and tile is not None and packs_columns(way, tile, ONE_THREAD)
    assert [size_of(x) for x in others_of_an_item(way, tile, ONE_THREAD)] == [4, 14]
    blocks = choose_blocks(way, tile, ONE_THREAD)
    packed = blocks.column_tiles * tile.columns * way.depth * way.itemsize
    assert 1 < blocks.column_tiles and packed <= ONE_THREAD.scratch_bytes


def test_many_threads_share_out_the_images() -> None:
    kernel = simplified_body(body((4, 64, 16, 16), (256, 64, 3, 3)))
    (way,) = [c for c in contractions(kernel) if size_of(c.rows) == 14 and size_of(c.columns) == 256 and size_of(c.others[-1]) == 14][:1]  # fmt: skip
    tile = Tile(14, 1, 16)
    for threads, inside in ((2, [4, 14]), (4, [14]), (64, [])):
        target = replace(ONE_THREAD, threads=threads)
        assert [size_of(x) for x in others_of_an_item(way, tile, target)] == inside


@pytest.mark.parametrize("image, weight, options", [
    ((2, 8, 7, 7), (24, 8, 3, 3), {"padding": 1}),
    ((3, 4, 9, 11), (17, 4, 2, 2), {"stride": 2}),
    ((1, 12, 5, 5), (33, 12, 1, 1), {}),
    ((2, 8, 6, 8), (36, 4, 3, 3), {"groups": 2, "padding": 1}),
    ((2, 3, 8, 8), (20, 3, 3, 3), {}),  # 27 products: nothing is packed for several tiles
    ((1, 4, 8, 1), (20, 4, 4, 1), {"dilation": 2}),
])  # fmt: skip
def test_values(
    image: tuple[int, ...], weight: tuple[int, ...], options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    rng = np.random.default_rng(0)
    a, b = [rng.integers(-9, 9, shape).astype(np.float32) for shape in (image, weight)]
    plain = Tensor(a).conv2d(Tensor(b), **options).numpy()
    for choice in ("tile=3x1x8", "tile=4x2x4 blocks=2x3", "tile=2x2x16"):
        monkeypatch.setenv("CHOICES", f"tiled=on packed=on staged=none {choice}")
        assert np.array_equal(Tensor(a).conv2d(Tensor(b), **options).numpy(), plain), choice


@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_proven(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHOICES", "tiled=on packed=on staged=none tile=3x1x16")
    count = prove(body((2, 4, 4, 5), (20, 4, 2, 2)), replace(ONE_THREAD, threads=threads)).count
    assert count.unknown == 0 and count.by_solver + count.by_enumeration >= 10
