"""Rows of a tile that a mask turns off: they read a position inside, are multiplied with nothing, and steps without any are skipped."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_interpreter import run_kernel
from linear_kernels import linear
from tactics import join_sums, nest_of
from test_kernel_proof import prove
from test_nested_sums import QUICK, bounds, input_gradient, reductions
from test_tiles import AVX2, AVX512, matmul

from proofgrad import Tensor
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.skipping import growing_masks, skipped, unswitched
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.nests.kernel_schedule import Schedule, Staged, Tile
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.compile.schedule.contraction import Contraction, contractions, tiles_of
from proofgrad.core.compile.schedule.cost_model import cycles_of_tiles
from proofgrad.core.compile.schedule.masked_rows import masked_rows
from proofgrad.core.compile.schedule.tiles import find_contraction
from proofgrad.core.compile.steps import clamp
from proofgrad.core.compile.steps.clamp import read_inside
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES
from proofgrad.verify.kernels.proof import ProofError


def gradient_of_images() -> UOp:
    """The body of the gradient of a convolution for its images: pixels are rows, channels columns."""
    x, weights = Tensor.empty(4, 32, 24, 24).realize(), Tensor.empty(32, 32, 5, 5).realize()
    above = Tensor.empty(4, 32, 20, 20).realize()
    gradient = (x.conv2d(weights) * above).sum().gradient(x)[0]
    graph = compiler().kernel_graph(UOp.sink(gradient.uop).replace(arg="CPU"))
    return graph.src[-1].src[0]


def joined(body: UOp) -> UOp:
    return join_sums(compiler().index_terms(body), AVX512, bounds())


def masks(kernel: UOp) -> list[UOp]:
    """The loads that ask."""
    return [n for n in kernel.toposort() if n.op is Ops.LOAD and len(n.src[0].src) > 2]


@QUICK
@given(sizes=st.tuples(*[st.integers(1, 3)] * 3, st.integers(1, 6), st.integers(1, 4)))
def test_what_reads_inside_has_the_same_values(sizes: tuple[int, int, int, int, int]) -> None:
    batch, channels, filters, width, taps = sizes
    kernel = joined(input_gradient(*sizes))
    rng = np.random.default_rng(0)
    memory = {1: rng.integers(-9, 9, batch * filters * width).tolist(),
              2: rng.integers(-9, 9, channels * filters * taps).tolist()}  # fmt: skip
    inside = kernel
    for total in [r for r in reductions(kernel) if is_masked(r.src[0])]:
        inside = read_inside(nest_of(inside), total).graph
    assert run_kernel(inside, memory)[0] == run_kernel(kernel, memory)[0]


def test_loads_that_can_be_brought_inside_are_asked_for_no_mask() -> None:
    kernel = joined(gradient_of_images())
    assert masks(kernel)
    assert not masks(read_inside(nest_of(kernel), reductions(kernel)[0]).graph)


def test_a_tile_has_no_more_masked_rows_than_there_are_masks() -> None:
    found = find_contraction(joined(gradient_of_images()), AVX512)
    assert (
        found is not None
        and found[0].has_masked_rows
        and masked_rows(*found) <= AVX512.core.mask_registers
    )


def gradient_of_padded_images() -> UOp:
    """3 x 3 windows of 14 x 14 pixels, padded by one: the sums of the pixels at the edges are masked."""
    x = Tensor.empty(1, 64, 14, 14).realize()
    weights = Tensor.empty(64, 64, 3, 3).realize()
    above = Tensor.empty(1, 64, 14, 14).realize()
    gradient = x.conv2d(weights, padding=1).gradient(x, gradient=above)[0]
    graph = compiler().kernel_graph(UOp.sink(gradient.uop).replace(arg="CPU"))
    return joined(graph.src[-1].src[0])


@pytest.mark.heuristics
def test_masks_that_are_vectors_do_not_change_along_columns() -> None:
    kernel, tile = gradient_of_padded_images(), Tile(6, 2, 8)
    avx2 = replace(AVX512, vector_bytes=32, vector_registers=16, core=Core(mask_registers=16))
    found = find_contraction(kernel, avx2)
    assert found is not None and not found[0].has_masked_columns
    own = replace(avx2, core=Core(mask_registers=7))
    for way in [way for way in contractions(kernel) if way.has_masked_columns]:
        assert cycles_of_tiles(tile, 1, way, own) < cycles_of_tiles(tile, 1, way, avx2)


def rows_of_images(kernel: UOp) -> Contraction:
    """The way whose rows are the pixels of a line, which lie side by side in the results."""
    return next(way for way in contractions(kernel) if way.is_transposed and way.has_masked_rows)


def test_rows_at_the_edges_of_an_image_alone_have_a_mask() -> None:
    way = rows_of_images(gradient_of_padded_images())
    # Of 14 rows the first and the last; of two tiles of 7 the first of one and the last of the other; of 5, 5 and 4 rows, and one
    # beyond the end, the first, the fourth and the fifth. A tile of one row is at an edge.
    masked = {rows: masked_rows(way, Tile(rows, 1, 16)) for rows in (14, 7, 5, 1)}
    assert masked == {14: 2, 7: 2, 5: 3, 1: 1}
    windows_of_5 = rows_of_images(joined(gradient_of_images()))  # 4 rows at each end of 24
    assert [masked_rows(windows_of_5, Tile(rows, 1, 16)) for rows in (24, 12, 8, 4)] == [8, 8, 8, 4]
    product_of_matrices, *_ = contractions(joined(matmul(8, 8, 32)))
    assert masked_rows(product_of_matrices, Tile(4, 1, 16)) == 0


def test_rows_without_a_mask_take_no_longer_than_those_of_a_product() -> None:
    """A line of 14 pixels is one tile with AVX-512, though there are masks for 7 rows: 2 of them ask."""
    way, tile = find_contraction(gradient_of_padded_images(), AVX512) or (None, None)
    assert way is not None and tile is not None and way.has_masked_rows and tile.rows == 14


def test_all_rows_count_where_masks_are_vectors() -> None:
    """Measured with AVX2: where two of six rows ask, a tile of them takes as long as if all did."""
    kernel = gradient_of_padded_images()
    way, masked = rows_of_images(kernel), Tile(6, 2, 8)
    plain = replace(way, reduction=way.reduction.with_src((way.reduction.src[0].src[1], *way.reduction.src[1:])))  # fmt: skip
    avx2 = replace(AVX512, vector_bytes=32, vector_registers=16, core=Core(mask_registers=16))
    for target, least in ((avx2, 6 * 0.25), (AVX512, 0)):
        steps = tiles_of(way, masked) * way.depth
        more = cycles_of_tiles(masked, 1, way, target) - cycles_of_tiles(masked, 1, plain, target)
        assert more == pytest.approx(least * steps)


def test_such_a_tile_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHOICES", raising=False)
    assert prove(gradient_of_images(), AVX512).count.unknown == 0


@pytest.mark.parametrize("fault", [(1, 0), (0, -1)], ids=["first", "last"])
def test_a_position_that_is_moved_is_found(
    monkeypatch: pytest.MonkeyPatch, fault: tuple[int, int]
) -> None:
    def wrong(mask: UOp) -> dict[UOp, tuple[int | None, int | None]]:
        return {t: (low + fault[0], high + fault[1]) for t, (low, high) in bounded(mask).items()}

    bounded = clamp._bounded
    monkeypatch.setattr(clamp, "_bounded", wrong)
    with pytest.raises(ProofError) as raised:
        prove(gradient_of_images(), AVX512)
    assert raised.value.stage == "choose axes"


# -- loops that are skipped ---------------------------------------------------------------------


def linear_of(body: UOp) -> UOp:
    return parts_of(run_stages(KERNEL_STAGES, body, compiler().library, AVX512))[-1]


def test_the_loop_under_rows_outside_of_the_image_is_skipped() -> None:
    linear = linear_of(gradient_of_images())
    ((loop, truths),) = skipped(linear).items()
    assert loop.arg[1] is AxisRole.REDUCE and all(truth.dtype.lanes == 1 for truth in truths)
    text = emit(linear, "kernel", Dialect()).text
    (branch,) = re.findall(r"br i1 %v\d+, label %(loop\d+), label %\1.end\n\1:", text)
    assert f"\n{branch}.end:\n  %sum" in text  # registers are chosen after it, too


def test_rows_that_are_read_inside_have_no_masks() -> None:
    """Masks turn multiplications off; no load waits for one."""
    text = emit(linear_of(gradient_of_images()), "kernel", Dialect()).text
    assert "select <16 x i1>" in text and "@zeros" not in text and "masked.load" not in text


@pytest.mark.parametrize("is_data", [True, False])
def test_a_mask_by_data_is_asked_without_a_branch(is_data: bool) -> None:
    """LLVM makes a branch of a choice between addresses unless it is told that nobody can predict it."""
    size, five = [UOp(Ops.CONST, dtypes.int32, (), n) for n in (8, 5)]
    loop = UOp(Ops.RANGE, dtypes.int32, (size,), (0, AxisRole.LOOP))
    out, source = [UOp(Ops.PARAM, dtypes.float32, (), (slot, 8)) for slot in (0, 1)]
    truth = UOp(Ops.PARAM, dtypes.bool, (), (2, 8))
    asked = UOp(Ops.INDEX, dtypes.bool, (truth, loop))
    mask = UOp(Ops.LOAD, dtypes.bool, (asked,)) if is_data else loop < five
    read, position = [
        UOp(Ops.INDEX, dtypes.float32, src) for src in ((source, loop, mask), (out, loop))
    ]
    value = UOp(Ops.LOAD, dtypes.float32, (read,))
    nodes = [out, source, truth, size, five, loop, asked, mask, read, value, position]
    ends = [UOp(Ops.STORE, dtypes.void, (position, value)), UOp(Ops.END, dtypes.void, (loop,))]
    text = emit(linear([*nodes, *ends]), "kernel", Dialect()).text
    assert "ptr @zeros" in text
    assert ("!unpredictable" in text) == is_data == ("!1 = !{}" in text)


@pytest.mark.parametrize("op", [Ops.WHERE, Ops.MAX, Ops.MIN])
def test_a_position_by_data_is_chosen_without_a_branch(op: Ops) -> None:
    """What is stored there is no position: of it LLVM makes what it likes."""
    size, five = [UOp(Ops.CONST, dtypes.int32, (), n) for n in (8, 5)]
    loop = UOp(Ops.RANGE, dtypes.int32, (size,), (0, AxisRole.LOOP))
    numbers, out = [UOp(Ops.PARAM, dtypes.int32, (), (slot, 8)) for slot in (1, 0)]
    asked = UOp(Ops.INDEX, dtypes.int32, (numbers, loop))
    number = UOp(Ops.LOAD, dtypes.int32, (asked,))
    beyond = number < five
    choice = UOp(op, dtypes.int32, (beyond, number, five) if op is Ops.WHERE else (number, five))
    read = UOp(Ops.INDEX, dtypes.int32, (numbers, choice))
    value, position = (
        UOp(Ops.LOAD, dtypes.int32, (read,)),
        UOp(Ops.INDEX, dtypes.int32, (out, loop)),
    )
    for nodes, stored, count in (([choice, read, value], value, 1), ([choice], choice, 0)):
        before = [out, numbers, size, five, loop, asked, number, beyond, *nodes, position]
        ends = [UOp(Ops.STORE, dtypes.void, (position, stored)), UOp(Ops.END, dtypes.void, (loop,))]
        text = emit(linear([*before, *ends]), "kernel", Dialect()).text
        assert text.count(", !unpredictable !1") == text.count("!1 = !{}") == count


def test_a_loop_without_a_mask_is_not_skipped() -> None:
    assert not skipped(linear_of(matmul(64, 64, 64, dtype=dtypes.float32)))


# -- loops without masks, where all hold --------------------------------------------------------


def test_a_loop_whose_masks_hold_on_all_lanes_chooses_nothing() -> None:
    linear = linear_of(gradient_of_images())
    assert unswitched(linear, skipped(linear))
    text = emit(linear, "kernel", Dialect()).text
    whole, rest = text.split("\nunmasked0:\n")[1].split("\nunmasked0.else:\n")
    rest = rest.split("\nunmasked0.end:\n")[0]
    choices = r"select <\d+ x i1> %"
    assert not re.findall(choices, whole) and re.findall(choices, rest)
    assert whole.count("@llvm.fma") == rest.count("@llvm.fma") > 0


@pytest.mark.parametrize(("registers", "are_vectors"), [(7, False), (16, True)])
def test_a_row_of_a_tile_is_chosen_by_one_truth_where_masks_take_registers(
    registers: int, are_vectors: bool
) -> None:
    """A branch, which is foreseen, in place of two instructions for each product."""
    target, dialect = replace(AVX2, core=Core(mask_registers=registers)), Dialect()
    dialect.target = target
    body = gradient_of_images()
    linear = parts_of(run_stages(KERNEL_STAGES, body, compiler().library, target))[-1]
    rest = emit(linear, "kernel", dialect).text.split("\nunmasked0.else:\n")[1]
    assert ("select i1 %" in rest) == are_vectors != ("select <8 x i1> %" in rest)


@pytest.mark.parametrize(("registers", "are_vectors"), [(7, False), (16, True)])
def test_the_last_columns_of_a_tile_are_asked_once_where_masks_take_registers(
    registers: int, are_vectors: bool
) -> None:
    """3 vectors of columns for each of 4 rows fill the 16 registers, and the last of 107 columns has a mask, as the last of 63 rows has."""
    target, dialect = replace(AVX2, core=Core(mask_registers=registers)), Dialect()
    dialect.target = target
    override = Schedule(tiled=True, tile=Tile(4, 3, 8), staged=Staged(False, False), packed=False)
    body = matmul(63, 71, 107, dtype=dtypes.float32)
    linear = parts_of(
        run_stages(KERNEL_STAGES, body, compiler().library, target, override=override)
    )
    text = emit(linear[-1], "kernel", dialect).text
    assert ("unmasked0:" in text) is are_vectors
    if are_vectors:
        whole, rest = text.split("\nunmasked0:\n")[1].split("\nunmasked0.else:\n")
        rest = rest.split("\nunmasked0.end:\n")[0]
        assert "splat (i1 true)" in whole and "masked.load" in rest
        assert (
            whole.count("masked.store")
            == whole.count("splat (i1 true))")
            < rest.count("masked.store")
        )
        # LLVM would widen truths from another block in each step: their words are made once.
        steps = rest.split(".end:\n")[0]
        assert "icmp slt <8 x i32>" in steps and "sext" not in steps


@pytest.mark.heuristics
@pytest.mark.parametrize("depth", [1021, 1022])
def test_a_mask_that_grows_is_asked_once_before_its_loop(depth: int) -> None:
    """Whether a step of a sum in blocks of 32 is beyond the end: only of the last block some are."""
    linear = linear_of(matmul(9, depth, 1001, dtype=dtypes.float32))
    ((loop, masks),) = growing_masks(linear).items()
    assert loop.arg[1] is AxisRole.REDUCE and masks
    text = emit(linear, "kernel", Dialect()).text
    whole, rest = text.split("\nunmasked0:\n")[1].split("\nunmasked0.else:\n")
    rest = rest.split("\nunmasked0.end:\n")[0]
    assert whole.count("icmp slt") == 0 < rest.count("icmp slt")
    assert whole.count("@llvm.fma") == rest.count("@llvm.fma") > 0


@pytest.mark.parametrize(("step", "grows"), [(1 << 28, True), (1 << 29, False), (-1, False)])
def test_a_mask_of_numbers_that_wrap_does_not_grow(step: int, grows: bool) -> None:
    """7 * 2**29 is no int32: what the last iteration says of such a number, it says of no other."""

    def number(value: int) -> UOp:
        return UOp(Ops.CONST, dtypes.int32, (), value)

    outer, loop = [UOp(Ops.RANGE, dtypes.int32, (number(8),), (k, AxisRole.REDUCE)) for k in (0, 1)]
    start, total = number(0), UOp(Ops.ACCUMULATOR, dtypes.int32, (number(0),), (0,))
    scaled = loop * number(step)
    term = scaled + outer
    mask = term < number(50)
    value = mask.where(outer, start)
    update = UOp(Ops.UPDATE, dtypes.int32, (total, total + value))
    ends = [UOp(Ops.END, dtypes.void, (x,)) for x in (loop, outer)]
    made = linear([outer, total, loop, scaled, term, mask, value, update, *ends])
    assert bool(growing_masks(made)) == grows


def test_a_loop_without_a_mask_is_written_once() -> None:
    linear = linear_of(matmul(64, 64, 64, dtype=dtypes.float32))
    assert not unswitched(linear, skipped(linear))
    assert "unmasked" not in emit(linear, "kernel", Dialect()).text


@pytest.mark.parametrize("size", [7, 16, 17, 33])
@pytest.mark.parametrize(("window", "padding"), [(3, 1), (5, 2), (5, 1)])
def test_gradients_of_padded_images_have_no_products_with_padding(
    size: int, window: int, padding: int
) -> None:
    """A weight that is not finite reaches no element whose window does not have it inside."""
    rng = np.random.default_rng(size)
    w = rng.integers(-3, 4, (8, 8, window, window)).astype(np.float32)
    w[:, :, 0, 0] = inf
    w[3, 2, window - 1, 1] = nan
    reach = size + 2 * padding - window + 1
    g = rng.integers(1, 4, (2, 8, reach, reach)).astype(np.float32)
    want = np.zeros((2, 8, size + 2 * padding, size + 2 * padding), np.float32)
    for i, j in product(range(window), repeat=2):
        with np.errstate(invalid="ignore"):
            want[:, :, i : i + reach, j : j + reach] += np.einsum("noab,oc->ncab", g, w[:, :, i, j])
    x = Tensor.empty(2, 8, size, size, requires_grad=True).realize()
    (found,) = x.conv2d(Tensor(w), padding=padding).gradient(x, gradient=Tensor(g))
    inside = slice(padding, padding + size)
    np.testing.assert_array_equal(found.numpy(), want[:, :, inside, inside])


@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize(("pixels", "window"), [(24, 5), (9, 3), (40, 3)])
def test_gradients_of_images_are_those_of_windows_inside(
    batch: int, pixels: int, window: int
) -> None:
    """A weight that is infinite or NaN must not meet what lies outside of the image."""
    rng = np.random.default_rng(3)
    x = Tensor(rng.standard_normal((batch, 16, pixels, pixels)).astype(np.float32))
    weights = rng.standard_normal((4, 16, window, window)).astype(np.float32)
    weights[:, :, 0, 0], weights[:, :, -1, -1] = inf, nan
    got = x.conv2d(Tensor(weights)).sum().gradient(x)[0].numpy()
    want = np.zeros(got.shape, np.float32)
    results = pixels - window + 1
    for i, j in product(range(window), range(window)):
        want[:, :, i : i + results, j : j + results] += weights.sum(0)[:, i, j, None, None]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
