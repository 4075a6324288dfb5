"""Reductions with few results, in so many parts that every unit of a machine of groups has some; right whatever their sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from proofgrad import Device, Tensor
from proofgrad.backends.ptx.driver import Driver
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.compile.fusion.parts_for_units import parts_for_units, parts_of_products
from proofgrad.core.compile.fusion.split_reductions import _order_in_memory
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.machine.target import Source, Target
from proofgrad.core.compile.steps.reduce_in_parts import Blocks, Ends, Parts
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compile_only

NAME = "UNITS"
UNITS, ITEMS = 100, 256
GPU = Target("GPU", vector_bytes=16, work_items=True, group_items=ITEMS, lockstep=32, units=UNITS)


class Listing(PTXBackend):
    """An emulated GPU of many units that keeps what it printed."""

    def __init__(self) -> None:
        super().__init__(Driver(EmulatedDriver(devices=1)))
        self.name = NAME
        self.printed: list[Source] = []

    def emit(self, linear: UOp, name: str) -> Source:
        self.printed.append(super().emit(linear, name))
        return self.printed[-1]


Device.register(NAME, Listing)


def parts(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    order: tuple[int, ...] | None = None,
    target: Target = GPU,
) -> Parts | None:
    """The parts of a maximum over memory in row-major order, or of axes in another one."""
    memory = UOp(Ops.PARAM, dtypes.float32, (), (1, prod(shape)))
    value = UOp(Ops.RESHAPE, dtypes.float32, (memory,), shape)
    node = UOp(Ops.REDUCE_AXIS, dtypes.float32, (value,), (Ops.MAX, axes))
    return parts_for_units(node, order or range(len(shape)), target)


def first_results(shape: tuple[int, ...], made: Parts | None, axes: tuple[int, ...]) -> int:
    """How many values the first of the kernels computes."""
    match made:
        case None:
            return prod([n for a, n in enumerate(shape) if a not in axes])
        case Ends():
            head = (*shape[: made.axis], made.length, *shape[made.axis + 1 :])
            return first_results(head, made.head, axes)
        case Blocks():
            inside = prod([shape[a] for a in made.within]) * made.size
            return prod(shape) // inside


@pytest.mark.parametrize("length", [1 << 20, 1 << 24, 1_000_003, 16_777_259])
def test_everything_is_taken_in_by_groups_on_all_units(length: int) -> None:
    groups = first_results((length,), parts((length,), (0,)), (0,))
    assert UNITS <= groups
    assert length // groups >= 8 * ITEMS  # each item of them has something to do


@pytest.mark.parametrize("count, is_whole", [(2, False), (24, False), (25, True), (4096, True)])
def test_rows_are_taken_in_parts_where_they_are_few(count: int, is_whole: bool) -> None:
    assert (parts((count, 1 << 18), (1,)) is None) == is_whole


def test_rows_that_lie_apart_give_every_item_of_every_unit_some() -> None:
    shape = (1 << 20, 16)
    made = parts(shape, (0,))
    assert first_results(shape, made, (0,)) // 4 >= UNITS * ITEMS / 2
    assert isinstance(made, Blocks)
    assert isinstance(made.across, Blocks)  # and so are their results, which are many


@pytest.mark.parametrize("rows", [1 << 16, 70_000, 1 << 17])
def test_what_parts_gave_is_taken_in_parts_where_launches_cost_less(rows: int) -> None:
    """Few results of many rows are two kernels; three, where starting one takes hardly any time."""
    slow, quick = [
        parts((rows, 64), (0,), target=replace(GPU, core=Core(launch_cycles=cycles)))
        for cycles in (2048, 16)
    ]
    assert all([isinstance(made, Blocks | Ends) for made in (slow, quick)])
    assert (depth(slow), depth(quick)) == (1, 2)


def depth(made: Parts | None) -> int:
    """How often what parts gave is taken in parts again, itself counted."""
    match made:
        case None:
            return 0
        case Ends():
            return depth(made.head)
        case Blocks():
            return 1 + depth(made.across)


def test_many_results_stay_whole() -> None:
    assert parts((64, 1 << 20), (0,)) is None


def test_of_a_sum_over_images_and_pixels_the_pixels_are_a_group_s() -> None:
    assert parts((16, 64, 3136), (0, 2)) == Blocks(0, 1, (2,))


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(),
    "max": lambda x: x.max(),
    "argmax": lambda x: x.argmax(),
    "rows": lambda x: x.max(-1),
    "columns": lambda x: x.max(0),
}
EXPECTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sum": lambda x: x.sum(dtype=np.int32),
    "max": lambda x: x.max(),
    "argmax": lambda x: x.argmax(),
    "rows": lambda x: x.max(-1),
    "columns": lambda x: x.max(0),
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("shape", [(3, 65537), (70001, 2), (1, 131072)])
def test_parts_of_any_size_give_the_same(name: str, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(shape[0]).permutation(prod(shape)).reshape(shape).astype(np.int32)
    got = PROGRAMS[name](Tensor(x, device=NAME)).numpy()
    np.testing.assert_array_equal(got, EXPECTED[name](x))


def scaled(x: Tensor) -> Tensor:
    """Of 8 channels of 4 images: what images gave is taken together."""
    images = x.reshape(4, 8, -1)
    mean = images.mean((0, 2), keepdim=True)
    return (images - mean) / (images.var((0, 2), keepdim=True) + 1e-5).sqrt()


WORK: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "softmax": (lambda x: x.softmax(), 3),
    "layernorm": (lambda x: x.layernorm(), 3),
    "maximum": (lambda x: x - x.max(-1, keepdim=True), 2),
    "batchnorm": (scaled, 3),
}


@pytest.mark.parametrize("name", WORK)
def test_what_a_few_parts_gave_is_taken_together_by_all_that_read_it(name: str) -> None:
    """No kernel of a few results stands between them."""
    work, kernels = WORK[name]
    x = np.random.default_rng(5).standard_normal((32, 6144)).astype(np.float32)
    got = work(Tensor(x, device=NAME).realize())
    assert len(got.schedule()) == kernels
    np.testing.assert_allclose(got.numpy(), work(Tensor(x)).numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(3, 98304), (1, 1 << 18), (2, 2, 81920)])
def test_what_many_parts_gave_is_taken_together_by_groups_that_share_results(
    shape: tuple[int, ...],
) -> None:
    """Each of them takes in what parts of its row gave."""
    x = np.random.default_rng(5).permutation(prod(shape)).reshape(shape).astype(np.int32)
    result = Tensor(x, device=NAME).realize()
    result = result - result.max(-1, keepdim=True)
    assert len(result.schedule()) == 2
    np.testing.assert_array_equal(result.numpy(), x - x.max(-1, keepdims=True))


def test_what_parts_gave_keeps_its_kernel_where_each_result_has_its_own() -> None:
    """Each would be added up for as many results as it has parts."""
    x = Tensor.ones(16, 8192, device=NAME).contiguous()
    assert len((x - x.max(0)).schedule()) > 1


def test_no_kernel_of_a_few_long_rows_is_a_few_groups_alone() -> None:
    machine = Device[NAME]
    assert isinstance(machine, Listing)
    given = Tensor.ones(4, 1 << 20, device=NAME).contiguous()
    with compile_only():
        given.realize()
        machine.printed.clear()
        given.softmax().realize()
    for source in machine.printed:
        assert source.program is not None
        memory = sum([n.arg[1] for n in source.program.src if n.op is Ops.PARAM])
        items = source.global_size or 1
        assert memory / items < 300, source.entry


def test_an_axis_of_a_product_alone_is_none_of_the_softmax_of_it() -> None:
    """Rows of scores lie side by side: they are no rows apart, as an axis taken twice would say."""
    memory = UOp(Ops.PARAM, dtypes.float32, (), (1, 120))
    terms = UOp(Ops.RESHAPE, dtypes.float32, (memory,), (2, 3, 4, 5))
    sums = UOp(Ops.REDUCE_AXIS, dtypes.float32, (terms,), (Ops.ADD, (3,)))
    scores = UOp(Ops.RESHAPE, dtypes.float32, (sums,), (2, 3, 4))
    assert _order_in_memory(scores, (0, 1, 2)) == (0, 1, 2)


@pytest.mark.parametrize("shape", [(65536, 64), (70001, 33), (4096, 2050)])
def test_items_that_share_a_maximum_are_no_fewer_than_units_have_room_for(
    shape: tuple[int, int],
) -> None:
    """The sum of powers over columns: parts of one column share its maximum, and no item takes several of them for that."""
    machine = Device[NAME]
    assert isinstance(machine, Listing)
    given = Tensor.ones(*shape, device=NAME).contiguous()
    with compile_only():
        given.realize()
        machine.printed.clear()
        given.max(0).realize()
        first = max([source.global_size or 1 for source in machine.printed])
        machine.printed.clear()
        (given - given.max(0)).exp().sum(0).realize()
    read = [  # the kernels that take in all of the memory
        source.global_size or 1 for source in machine.printed if _largest(source) == prod(shape)
    ]
    assert max(read) >= first  # others take in its end


def _largest(source: Source) -> int:
    """Elements of the largest memory of a kernel."""
    assert source.program is not None
    return max([int(n.arg[1]) for n in source.program.src if n.op is Ops.PARAM])


def test_values_of_sums_over_columns_are_those_of_a_processor() -> None:
    x = np.random.default_rng(7).standard_normal((5003, 66)).astype(np.float32)
    got = Tensor(x, device=NAME).softmax(0).numpy()
    np.testing.assert_allclose(got, Tensor(x).softmax(0).numpy(), rtol=2e-5)


def kernels_of(result: Tensor) -> list[Source]:
    machine = Device[NAME]
    assert isinstance(machine, Listing)
    machine.printed.clear()
    with compile_only():
        result.realize()
    return list(machine.printed)


@pytest.mark.parametrize("sizes", [(512, 4096, 512), (512, 4099, 500), (1000, 50177, 10)])
def test_a_product_of_few_results_and_many_steps_has_groups_for_all_units(
    sizes: tuple[int, int, int],
) -> None:
    """Two kernels: parts of the sum in tiles of groups, and their sum, with the steps that no part has."""
    rows, steps, columns = sizes
    one, other = Tensor.ones(rows, steps, device=NAME), Tensor.ones(steps, columns, device=NAME)
    given = [x.contiguous() for x in (one, other)]
    kernels_of(Tensor.cat(*[x.reshape(-1) for x in given]))
    product, total = kernels_of(given[0] @ given[1])
    assert product.group_size is not None and ".shared" in product.text
    assert (product.global_size or 1) // product.group_size >= 132
    assert "mma" not in total.text


@pytest.mark.parametrize("sizes", [(1024, 1024, 1024), (64, 128, 64), (2048, 512, 2048)])
def test_a_product_of_enough_results_or_of_few_steps_stays_whole(
    sizes: tuple[int, int, int],
) -> None:
    rows, steps, columns = sizes
    one, other = [Tensor.ones(*x, device=NAME).contiguous() for x in ((rows, steps), (steps, columns))]  # fmt: skip
    kernels_of(one)
    kernels_of(other)
    assert len(kernels_of(one @ other + 1)) == 1


def test_weights_of_rows_are_summed_in_one_kernel() -> None:
    """Attention of few queries to many keys: a sum of what was reduced before is part of a kernel that stores no scores."""
    memory = UOp(Ops.PARAM, dtypes.float32, (), (1, 16 * 8192))
    scores = UOp(Ops.RESHAPE, dtypes.float32, (memory,), (16, 8192))
    most = UOp(Ops.REDUCE_AXIS, dtypes.float32, (scores,), (Ops.MAX, (1,)))
    less = UOp(Ops.ADD, dtypes.float32, (scores, UOp(Ops.EXPAND, dtypes.float32, (most,), (16, 8192))))  # fmt: skip
    for factor, is_split in ((scores, True), (less, False)):
        wide = UOp(Ops.RESHAPE, dtypes.float32, (factor,), (16, 1, 8192))
        values = UOp(Ops.RESHAPE, dtypes.float32, (memory,), (1, 16, 8192))
        factors = [UOp(Ops.EXPAND, dtypes.float32, (x,), (16, 16, 8192)) for x in (wide, values)]
        term = UOp(Ops.MUL, dtypes.float32, tuple(factors))
        node = UOp(Ops.REDUCE_AXIS, dtypes.float32, (term,), (Ops.ADD, (2,)))
        assert (parts_of_products(node, GPU) is not None) == is_split


@pytest.mark.parametrize("sizes", [(10, 5000, 33), (7, 4099, 5), (3, 2048, 64), (1, 3001, 40)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_products_in_parts_are_what_numpy_says(sizes: tuple[int, int, int], dtype: str) -> None:
    rows, steps, columns = sizes
    draw = np.random.default_rng(rows)
    x, y = [draw.integers(-2, 3, shape).astype(dtype) for shape in ((rows, steps), (steps, columns))]  # fmt: skip
    got = (Tensor(x, device=NAME) @ Tensor(y, device=NAME) * 2).numpy()
    expected = x.astype(np.int64) @ y.astype(np.int64) * 2
    np.testing.assert_array_equal(got.astype(np.int64), expected)


def test_gradients_of_weights_in_parts_are_those_of_a_processor() -> None:
    """Sums over images and both axes of each, of which none is a multiple of a part."""
    draw = np.random.default_rng(3)
    images, weights = draw.standard_normal((3, 2, 37, 31)), draw.standard_normal((4, 2, 3, 3))
    found = []
    for device in (NAME, "CPU"):
        x, w = [Tensor(a.astype(np.float32), device=device) for a in (images, weights)]
        w.requires_grad_()
        (x.conv2d(w) ** 2).mean().backward()
        assert w.grad is not None
        found.append(w.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads, kernels", [(8, 2 + 1), (32, 4 + 1), (1, 1), (500, 4 + 1)])
def test_causal_attention_has_parts_of_rows_that_are_groups_for_all_units(
    heads: int, kernels: int
) -> None:
    """One after the other, each on all units; and their results are put together."""
    q, k, v = [
        Tensor.ones(heads, 4096, 64, dtype="bfloat16", device=NAME).contiguous() for _ in range(3)
    ]
    with compile_only():
        for given in (q, k, v):
            given.realize()
    result = q.scaled_dot_product_attention(k, v, is_causal=True)
    assert len(result.schedule()) == kernels
