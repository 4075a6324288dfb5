"""Which loads ask the cache ahead: those of tiles whose columns a cache does not hold, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from test_tiles import AVX512, matmul, moved

from proofgrad import Tensor
from proofgrad.backends.llvm import prefetch
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.nontemporal import nontemporal_stores
from proofgrad.backends.llvm.prefetch import columns_of_tiles, prefetched
from proofgrad.backends.llvm.prefetch_tiles import Hint, loops_around
from proofgrad.backends.ptx.dialect import PTXDialect
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.strides import at_start, coefficient
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES


def linears(*sizes: int, target: Target = AVX512) -> tuple[UOp, ...]:
    body = matmul(*sizes, dtype=dtypes.float32)
    return parts_of(run_stages(KERNEL_STAGES, body, compiler().library, target))


@pytest.mark.parametrize("sizes", [(256, 512, 512), (48, 1024, 1024)], ids=["table", "block"])
def test_the_columns_of_a_long_tile_are_asked_for_ahead(sizes: tuple[int, int, int]) -> None:
    *filling, tile = linears(*sizes)
    assert not any(prefetched(part, AVX512) for part in filling)
    ahead = prefetched(tile, AVX512)
    assert any(load.dtype.lanes > 1 for load in ahead)
    hints = emit(tile, "kernel", Dialect()).text.count("call void @llvm.prefetch.p0(")
    assert hints == sum(map(len, ahead.values()))
    assert "prefetch" not in emit(tile, "kernel", PTXDialect(copies_ahead=True)).text


@pytest.mark.parametrize("depth", [1, 4, 16])
def test_each_row_that_a_tile_takes_element_by_element_is_asked_for_once_a_line(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHOICES", f"tile=6x4x16 depth={depth}")
    *_, tile = linears(258, 512, 512)
    starts = [
        at_start(load.src[0].src[1]) for load in prefetched(tile, AVX512) if load.dtype.lanes == 1
    ]
    # Of one element in an iteration a line would be asked for sixteen times.
    lines = range(0, depth, 16) if depth > 1 else ()
    assert sorted(starts) == [512 * row + line for row in range(6) for line in lines]
    *_, short = linears(258, 128, 512)
    assert all(load.dtype.lanes > 1 for load in prefetched(short, AVX512))


def windows_asked_for(image: tuple[int, ...], weights: tuple[int, ...]) -> list[tuple[int, int]]:
    """How far ahead the tile of a convolution asks where it reads its image, and how far a channel is from the next."""
    x, w = Tensor.empty(*image).realize(), Tensor.empty(*weights).realize()
    target, known = replace(AVX512, threads=1, cache_bytes=1 << 21), compiler().library
    root = UOp.sink(x.conv2d(w).uop).replace(arg="CPU")
    graph = run_stages(compiler().graph_stages, root, known, target)
    *_, tile = parts_of(run_stages(KERNEL_STAGES, graph.src[-1].src[0], known, target))
    long = image[0] * image[1] * image[2] * image[3]
    found = []
    for load, hints in prefetched(tile, target).items():
        buffer, index = load.src[0].src[:2]
        if buffer.op is Ops.PARAM and buffer.arg[1] == long:
            moves = [coefficient(index, loop) or 0 for loop in loops_of_tile(tile)]
            found += [(hint.elements, max(moves)) for hint in hints if hint.cache == 1]
    return found


def test_windows_are_asked_for_two_channels_ahead() -> None:
    """A line of an image, the next ones, then another channel: a processor does not foresee that."""
    (hint,) = windows_asked_for((8, 256, 16, 16), (256, 256, 3, 3))
    assert hint == (2 * 256, 256)


@pytest.mark.parametrize(
    ("image", "weights"),
    [
        ((8, 16, 16, 16), (64, 16, 3, 3)),  # what a tile reads stays in the first cache
        ((8, 4, 99, 99), (64, 4, 7, 7)),  # two of four channels ahead is behind the last one
        ((11, 90, 10, 10), (74, 90, 7, 7)),  # most lines of an image, or rows of other images
    ],
    ids=["stays", "few channels", "in order"],
)
def test_windows_that_stay_or_come_in_order_are_not_asked_for(
    image: tuple[int, ...], weights: tuple[int, ...]
) -> None:
    assert not windows_asked_for(image, weights)


def test_windows_whose_positions_lie_in_lanes_are_not_asked_for() -> None:
    """A gather has as many positions as lanes: no one of them says where the tile begins."""
    x, w = Tensor.randn(5, 3, 7, 28), Tensor.randn(3, 64, 3, 3, requires_grad=True)
    y = x.conv_transpose2d(w, stride=2, padding=3, groups=3)
    (found,) = y.square().sum().gradient(w)
    # of a sum of squares: the filters by the slope are twice the sum
    assert (found * w).sum().item() == pytest.approx(2 * y.square().sum().item(), rel=1e-3)


def pieces_of(linear: UOp, number: int) -> list[tuple[UOp, Hint]]:
    """What is asked of the second cache of a parameter."""
    return [
        (load, hint)
        for load, hints in prefetched(linear, AVX512).items()
        for hint in hints
        if hint.cache == 2 and (hint.buffer or load.src[0].src[0]).arg[0] == number
    ]


def loops_of_tile(linear: UOp) -> tuple[UOp, ...]:
    return next(loops for _, loops in columns_of_tiles(loops_around(linear)))


def lines_asked_for(hints: Sequence[tuple[UOp, Hint]], loops: Sequence[UOp]) -> set[int]:
    """Which lines of 16 elements iterations of some loops ask for, in the first iteration of all others."""
    asked: set[int] = set()
    for values in product(*(range(loop.src[0].arg) for loop in loops)):
        at = dict(zip(loops, values, strict=True))
        for load, hint in hints:
            parts = [load.src[0].src[1]] if hint.buffer is None else hint.parts
            position = hint.elements + sum(at_start(part, dict(at)) for part in parts)
            for term in hint.along:
                number = at.get(term.loop, 0) // term.divisor
                position += term.elements * (number % term.modulus if term.modulus else number)
            asked.add(position // 16)
    return asked


@pytest.mark.parametrize(("columns", "lines"), [(390, (0, 1)), (392, (0, 1)), (384, ())])
def test_tiles_whose_results_share_lines_ask_for_those_of_the_next(
    columns: int, lines: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a tile are 4 vectors of 8 columns, two lines long: two elements of each."""
    monkeypatch.setenv("CHOICES", "tile=6x4x8 staged=none depth=5")
    *_, tile = linears(240, 5, columns)
    asked = {store: hint for store, (hint,) in prefetched(tile, AVX512).items()}
    ends = [at_start(store.src[0].src[1]) + hint.elements for store, hint in asked.items()]
    assert all([hint.is_written and hint.cache == 1 for hint in asked.values()])
    # The next tile begins 32 columns on.
    assert sorted(ends) == [columns * row + 16 * k + 47 for row in range(6) for k in lines]


@pytest.mark.parametrize("choices", ["", "tile=8x3x16 blocks=4x11 depth=2", "tile=4x2x8 depth=1"])
def test_tiles_that_share_columns_ask_for_all_of_the_next_ones(
    choices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies in the table behind the piece that they read, line by line, and little more."""
    monkeypatch.setenv("CHOICES", choices)
    *_, tile = linears(256, 384, 1024)
    columns, *inner = loops_of_tile(tile)[-3:]
    load, _ = next(columns_of_tiles(loops_around(tile)))
    hints = pieces_of(tile, load.src[0].src[0].arg[0])
    assert 1 <= len(hints) <= 4
    asked = lines_asked_for(hints, inner)
    size = coefficient(load.src[0].src[1], columns) // 16
    assert asked >= set(range(size, 2 * size))
    assert min(asked) == size and max(asked) < 2 * size + size // 8
    assert not pieces_of(tile, 0)  # rows of the result lie apart


@pytest.mark.parametrize("depth", [1844, 3001])
def test_columns_of_a_long_sum_where_they_lie_are_asked_for_however_long_it_is(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the next 16 columns, a row of which is in one or two lines."""
    monkeypatch.setenv("CHOICES", "tile=9x1x16 staged=none packed=off blocks=2x8 reduction_block=0")
    *_, tile = linears(18, depth, 1898)
    *_, columns, rows, _ = loops_of_tile(tile)
    load, _ = next(columns_of_tiles(loops_around(tile)))
    hints = pieces_of(tile, load.src[0].src[0].arg[0])
    assert hints and coefficient(load.src[0].src[1], columns) == 16
    asked = lines_asked_for(hints, loops_of_tile(tile)[-2:])
    wanted = {(row * 1898 + column) // 16 for row in range(depth) for column in range(16, 32)}
    assert asked >= wanted and len(asked) <= 3 * depth + 3


def test_the_next_rows_of_a_batch_are_asked_for() -> None:
    """A result that leaves the second cache is written from end to end: the rows behind those of a tile come next, 13 of 8 lines."""
    one, other = (Tensor.empty(32, 128, 128).realize() for _ in range(2))
    graph = compiler().kernel_graph(UOp.sink((one @ other).uop).replace(arg="CPU"))
    body = graph.src[0].src[0]
    (linear,) = parts_of(run_stages(KERNEL_STAGES, body, compiler().library, AVX512))
    for number in range(2):
        hints = pieces_of(linear, number)
        assert {hint.is_written for _, hint in hints} == {number == 0}
        asked = lines_asked_for(hints, loops_of_tile(linear)[1:])
        assert asked >= set(range(104, 208)) and min(asked) == 104
    past = [node for node in linear.src if node.op is Ops.STORE]
    found = [hint for hints in prefetched(linear, AVX512, past).values() for hint in hints]
    assert found and not any([hint.is_written for hint in found])  # nothing is read for these


@pytest.mark.parametrize("depth", [64, 83])
def test_the_next_matrix_is_asked_for_that_few_rows_read_once_in_strips(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 128 columns in 4 strips, of which no step reads a line that another one reads; of 64 steps 2 are written out."""
    monkeypatch.setenv("CHOICES", "tile=7x2x16")
    one, other = (Tensor.empty(190, *shape).realize() for shape in ((7, depth), (depth, 128)))
    graph = compiler().kernel_graph(UOp.sink((one @ other).uop).replace(arg="CPU"))
    body = graph.src[0].src[0]
    (linear,) = parts_of(run_stages(KERNEL_STAGES, body, compiler().library, AVX512))
    load, _ = next(columns_of_tiles(loops_around(linear)))
    hints = pieces_of(linear, load.src[0].src[0].arg[0])
    assert len(hints) == (2 if depth == 83 else 4)
    asked = lines_asked_for(hints, loops_of_tile(linear)[1:])
    assert asked == set(range(8 * depth, 16 * depth))


@pytest.mark.parametrize("columns", [2304, 2320], ids=["whole tiles", "a rest"])
def test_columns_that_come_to_be_packed_are_asked_for_where_they_lie(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rows of a matrix, of which an item takes a few columns; those of the last tile are kept inside of the matrix."""
    monkeypatch.setenv("CHOICES", "tile=8x3x16 packed=on blocks=32x4")
    (linear,) = linears(256, 768, columns, target=replace(AVX512, scratch_bytes=1 << 20))
    hints = pieces_of(linear, 2)
    asked = lines_asked_for(hints, loops_of_tile(linear)[-2:])
    next_ones = {row * columns // 16 + line for row in range(768) for line in (3, 4, 5)}
    assert asked >= next_ones
    # Steps of a row are counted in a power of 2, and so are its lines: the fourth is of the tile behind the next.
    lines = {row * columns // 16 + line for row in range(768) for line in (3, 4, 5, 6)}
    assert len(asked - lines) <= len(next_ones) // 8
    whole = [term for _, hint in hints for term in hint.along if term.divisor > 1 or term.modulus]
    assert whole
    assert all([n & (n - 1) == 0 for term in whole for n in (term.divisor, term.modulus)])


@pytest.mark.parametrize(
    ("choices", "width"),
    [
        ("packed=on tile=4x3x8", 24),  # 171 tiles in parts of 86: the last is kept inside
        ("packed=off tile=6x2x8", 16),  # two tiles of 8 iterations: two of the 32 rows in each
        ("packed=off tile=12x2x16", 32),  # one tile: four rows, of two lines
    ],
    ids=["kept inside", "several rows an iteration", "read once"],
)
def test_the_next_columns_of_a_block_are_asked_for_in_rows_that_lie_apart(
    choices: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2 matrices whose 256 rows of 4096 are summed in blocks of 32: all lines of the next columns, and few of rows behind the block."""
    monkeypatch.setenv("CHOICES", choices + " reduction_block=32")
    one, other = Tensor.empty(2, 12, 256).realize(), Tensor.empty(2, 256, 4096).realize()
    graph = compiler().kernel_graph(UOp.sink((one @ other).uop).replace(arg="CPU"))
    target = replace(AVX512, scratch_bytes=1 << 20, threads=1)
    body = graph.src[0].src[0]
    *_, tile = parts_of(run_stages(KERNEL_STAGES, body, compiler().library, target))
    loops = loops_of_tile(tile)
    asked = lines_asked_for(pieces_of(tile, 1), loops[3:])
    lines = {(4096 * row + column) // 16 for row in range(32) for column in range(width, 2 * width)}
    assert asked >= lines
    assert {16 * line // 4096 for line in asked} <= set(range(38))
    assert {16 * line % 4096 for line in asked} <= set(range(width - 15, 2 * width + 16))


@pytest.mark.parametrize("rows", [8002, 3])
def test_a_scan_of_several_rows_at_once_asks_for_what_it_reads_and_writes_of_the_next(
    rows: int,
) -> None:
    """Eight rows of 289: 144.5 lines, one for every step, of which two ask for the same."""
    x = Tensor.empty(rows, 289).realize()
    graph = compiler().kernel_graph(UOp.sink(x.cumsum(1).uop).replace(arg="CPU"))
    target = replace(AVX512, threads=1)
    body = graph.src[0].src[0]
    (linear,) = parts_of(run_stages(KERNEL_STAGES, body, compiler().library, target))
    loops = next((loops for node, loops in loops_around(linear).items() if len(loops) == 2), ())
    for number in range(2):
        hints = pieces_of(linear, number)
        assert len(hints) == (rows > 8)
        if hints:
            assert hints[0][1].is_written == (number == 0)
            asked = lines_asked_for(hints, loops[1:])
            assert asked == set(range(8 * 289 // 16, 16 * 289 // 16))


def test_what_stays_in_the_cache_is_not_asked_for() -> None:
    for sizes in ((256, 64, 64), (256, 96, 512), (512, 512, 512)):
        for part in linears(*sizes):
            assert all(
                hint.cache == 1 for hints in prefetched(part, AVX512).values() for hint in hints
            )


@pytest.mark.parametrize("sizes", [(2048, 8, 2048), (4096, 3, 1024), (1024, 64, 2048)])
def test_a_tile_that_reads_less_from_the_second_cache_than_it_stores_stores_past_it(
    sizes: tuple[int, int, int],
) -> None:
    """Of 4096 x 3 by 3 x 1024 the first cache has the columns; of the others each tile takes them from the second one."""
    *_, tile = linears(*sizes)
    past = nontemporal_stores(tile, replace(AVX512, past_caches_bytes=1), frozenset())
    assert bool(past) == (sizes[1] == 3)


@pytest.mark.parametrize("sizes", [(256, 512, 512), (192, 1024, 1024), (67, 1031, 1019)])
def test_terms_that_loads_and_stores_share_are_looked_at_once(
    sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, tile = linears(*sizes)
    expected, seen, made_again = prefetched(tile, AVX512), Counter[UOp](), UOp.with_src

    def counted(node: UOp, sources: tuple[UOp, ...]) -> UOp:
        seen[node] += 1
        return made_again(node, sources)

    monkeypatch.setattr(UOp, "with_src", counted)
    assert prefetched(tile, AVX512) == expected
    buffers = len([node for node in tile.src if node.op is Ops.PARAM])
    assert max(seen.values(), default=0) <= buffers


def test_short_loops_and_other_kernels_have_no_hints() -> None:
    for part in (*linears(16, 16, 64), *linears(256, 8, 2048)):
        assert not prefetched(part, AVX512)
    graph = compiler().kernel_graph(UOp.sink((Tensor.ones(1 << 20) * 2).uop).replace(arg="CPU"))
    for call in graph.src:
        assert not any(
            [prefetched(part, AVX512) for part in compiler().linears(call.src[0], "CPU")]
        )


def softmax_hints(*shape: int) -> list[int]:
    """How far ahead the kernels of a softmax ask, in elements."""
    x = Tensor.empty(*shape).realize()
    graph = compiler().kernel_graph(UOp.sink(x.softmax(-1).uop).replace(arg="CPU"))
    parts = [part for call in graph.src for part in compiler().linears(call.src[0], "CPU")]
    hints = [
        hint for part in parts for found in prefetched(part, AVX512).values() for hint in found
    ]
    assert all(hint.cache == 1 and not hint.along for hint in hints)
    return [hint.elements for hint in hints]


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_tiles_of_few_rows_ask_for_what_many_of_them_multiply(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed columns of 57 rows by 3712 x 997: tiles of 2 rows took twice as long as of 4."""
    monkeypatch.setenv("CHOICES", f"tile={rows}x3x8 packed=on reduction_block=64")
    *_, tile = linears(57, 3712, 997, target=replace(AVX512, threads=1))
    assert any(pieces_of(tile, number) for number in (1, 2))


def test_a_block_that_is_written_out_asks_for_no_rows_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 3678 steps a block of at most 64 has 6: no loop of the sum is left in a tile. That was a ValueError."""
    monkeypatch.setenv("CHOICES", "tile=4x3x8 packed=on reduction_block=64")
    *_, tile = linears(57, 3678, 997, target=replace(AVX512, threads=1))
    assert prefetched(tile, AVX512)


@pytest.mark.parametrize("rows", [2, 3])
def test_columns_that_one_tile_reads_are_a_stream(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHOICES", f"tile={rows}x3x16 staged=none packed=off reduction_block=0")
    *_, tile = linears(rows, 512, 4096, target=replace(AVX512, threads=1))
    assert not list(columns_of_tiles(loops_around(tile)))


def test_the_second_loop_over_a_long_row_asks_for_the_next_row() -> None:
    assert set(softmax_hints(512, 4096)) == {4096}


@pytest.mark.parametrize("shape", [(64, 4096), (8, 1 << 17)], ids=["few rows", "rows too long"])
def test_rows_that_stay_in_the_cache_or_do_not_fit_have_no_hints(shape: tuple[int, ...]) -> None:
    assert softmax_hints(*shape) == []


def test_hints_change_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may name positions behind the end of a buffer."""
    rng = np.random.default_rng(0)
    one, other = rng.random((40, 2000), np.float32), rng.random((2000, 700), np.float32)
    found = []
    for ahead in (prefetch.AHEAD, 1 << 40):
        monkeypatch.setattr(prefetch, "AHEAD", ahead)
        compiler().forget()
        found.append((Tensor(one) @ Tensor(other)).numpy())
    assert np.array_equal(*found)
    compiler().forget()


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "sizes", [(512, 32, 1000), (1024, 128, 1024), (1000, 100, 1000), (784, 64, 512)]
)
def test_hints_name_only_what_is_known_where_they_stand(
    sizes: tuple[int, int, int], threads: int
) -> None:
    """As in a step of gradient descent: what is updated is read after the sum, its position made late."""
    rows, _, columns = sizes
    product_ = matmul(*sizes, turned=(True, False), dtype=dtypes.float32).src[0]
    weights = UOp(Ops.PARAM, dtypes.float32, (), (3, rows * columns))
    before = UOp(Ops.RESHAPE, dtypes.float32, (weights,), product_.shape)
    rate = moved(Ops.RESHAPE, UOp.const(dtypes.float32, 0.01), (1,) * len(product_.shape))
    body = UOp.sink(before + product_ * moved(Ops.EXPAND, rate, product_.shape))
    target = replace(AVX512, threads=threads)
    *_, tile = parts_of(run_stages(KERNEL_STAGES, body, compiler().library, target))
    assert emit(tile, "kernel", Dialect()).text.endswith("}\n")  # no CompileError
