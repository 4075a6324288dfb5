"""Products of bfloat16, float16 and small integers: values, and what becomes of them on processors with and without an instruction."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from test_cpu_target import cpu, texts

from proofgrad import Context, Tensor, dtypes
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler

SMALL = ("int8", "uint8", "int16")
# Even and odd sums, sizes one beside vectors and tiles, prime ones; of one, two and three products.
SHAPES = (
    *((65, 77, 67), (130, 257, 129), (97, 3, 1001), (131, 2, 1003), (16, 301, 131)),
    *((1, 300, 300), (5, 7, 3), (40, 1, 70), (3, 0, 2)),
)  # fmt: skip


def extremes(dtype: str, *shape: int) -> Any:
    """Drawn from all values of a type, the least and the largest more often."""
    ends = np.iinfo(dtype)
    rng = np.random.default_rng(sum(shape))
    drawn = rng.integers(ends.min, ends.max + 1, shape)
    chosen = rng.integers(0, 4, shape)
    return np.select([chosen == 0, chosen == 1], [ends.min, ends.max], drawn).astype(dtype)


def exact(a: Any, b: Any) -> Any:
    return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)


def check_products(shapes: Any = SHAPES) -> None:
    for k, (rows, depth, columns) in enumerate(shapes):
        one, other = SMALL[k % 3], ("int8", "int8", "uint8", "int16")[k % 4]
        a, b = extremes(one, rows, depth), extremes(other, depth, columns)
        across = Tensor(np.ascontiguousarray(b.T)).T
        for w in (Tensor(b), across):
            got = Tensor(a).matmul(w, dtype=dtypes.int32).numpy()
            np.testing.assert_array_equal(
                got, exact(a, b), f"{rows}x{depth}x{columns} {one} {other}"
            )


def test_sums_of_small_integers_are_exact() -> None:
    check_products()


@pytest.mark.parametrize(
    ("one", "other"), [("int8", "int8"), ("uint8", "int8"), ("int16", "int16")]
)
@pytest.mark.parametrize("end", ["min", "max"])
def test_every_product_may_be_the_largest(one: str, other: str, end: str) -> None:
    """The sums wrap as those of int32 do: -32768 * -32768, twice, is 2**31."""
    a = np.full((96, 70), getattr(np.iinfo(one), end), one)
    b = np.full((70, 97), np.iinfo(other).min, other)
    np.testing.assert_array_equal(
        Tensor(a).matmul(Tensor(b), dtype=dtypes.int32).numpy(), exact(a, b)
    )


def convolved(x: Any, w: Any, padding: int, stride: int) -> Any:
    pairs = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(np.int64), pairs), w.shape[2:], (2, 3)
    )
    return np.einsum(
        "bchwij,ocij->bohw", windows[:, :, ::stride, ::stride], w.astype(np.int64)
    ).astype(np.int32)


@pytest.mark.parametrize(
    ("channels", "kernel", "padding", "stride"),
    [(16, 3, 1, 1), (5, 3, 1, 2), (16, 1, 0, 1), (3, 5, 2, 1)],
)
def test_convolutions_of_small_integers_are_exact(
    channels: int, kernel: int, padding: int, stride: int
) -> None:
    x, w = extremes("int8", 2, channels, 13, 15), extremes("int8", 70, channels, kernel, kernel)
    y = Tensor(x).conv2d(Tensor(w), padding=padding, stride=stride, dtype=dtypes.int32)
    np.testing.assert_array_equal(y.numpy(), convolved(x, w, padding, stride))


def test_a_quantized_layer_scales_exact_sums() -> None:
    x, w = extremes("uint8", 32, 95), extremes("int8", 130, 95)
    scale, line = np.float32(2.0**-9), np.arange(130, dtype=np.float32)
    sums = Tensor(x).matmul(Tensor(w).T, dtype=dtypes.int32)
    y = (sums.float() * float(scale) + Tensor(line)).relu()
    wanted = np.maximum(exact(x, w.T).astype(np.float32) * scale + line, 0)
    np.testing.assert_array_equal(y.numpy(), wanted)


def test_kernels_of_pairs_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = extremes("int8", 96, 37), extremes("int8", 37, 97)
    with Context(CHECK=1, PROVE=1, PLANS=0):
        got = Tensor(a).matmul(Tensor(b), dtype=dtypes.int32).numpy()
    np.testing.assert_array_equal(got, exact(a, b))


# -- on other processors --------------------------------------------------------------------------


def assembly(machine: Any, value: Tensor) -> str:
    return "\n".join(texts(value, machine))


@pytest.mark.parametrize(
    ("name", "dot"),
    [
        ("x86-64-v2", r"\tpmaddwd\t"),
        ("haswell", r"\tvpmaddwd\t.*%ymm"),
        ("skylake-avx512", r"\tvpmaddwd\t.*%zmm"),
        ("sapphirerapids", r"\tvpdpwssd\t.*%zmm"),
        ("apple-m1", None),
    ],
)
def test_pairs_are_multiplied_by_the_instruction_of_each_processor(
    name: str, dot: str | None
) -> None:
    a, b = extremes("int8", 65, 77), extremes("uint8", 77, 131)
    with Context(CHOICES="matrices=none"), cpu(name) as machine:
        made = assembly(machine, Tensor(a).matmul(Tensor(b), dtype=dtypes.int32))
        assert bool(re.search(dot or "pmaddwd|vpdpwssd", made)) is (dot is not None)
        assert machine.target.has_dot is (dot is not None)
        assert dot is None or not re.search(r"\tv?pmulld\t", made)
        if machine.target.runs:
            got = Tensor(a).matmul(Tensor(b), dtype=dtypes.int32).numpy()
            np.testing.assert_array_equal(got, exact(a, b))


@pytest.mark.parametrize("name", ["x86-64-v2", "haswell"])
def test_sums_of_small_integers_are_exact_on_older_processors(name: str) -> None:
    with cpu(name) as machine:
        if machine.target.runs:
            check_products(SHAPES[:3])


# -- floats of 16 bits ----------------------------------------------------------------------------

HALVES = (dtypes.float16, dtypes.bfloat16)


def rounded(values: Any, dtype: DType) -> Any:
    """The float32 values of floats of 16 bits, and these."""
    made = Tensor(np.asarray(values, np.float32)).cast(dtype).realize()
    return made, made.float().numpy().astype(np.float64)


@pytest.mark.parametrize("dtype", HALVES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    "shape", [(70, 129, 131), (16, 257, 514), (3, 64, 1030), (97, 1, 5), (1, 513, 300)]
)
def test_a_product_is_rounded_once(dtype: DType, shape: tuple[int, int, int]) -> None:
    """Whole numbers whose sums float32 has: every order of the sum gives one result, which is rounded."""
    rows, depth, columns = shape
    rng = np.random.default_rng(depth)
    (a, x), (b, y) = [
        rounded(rng.integers(-100, 101, s), dtype) for s in ((rows, depth), (depth, columns))
    ]
    _, wanted = rounded(x @ y, dtype)
    np.testing.assert_array_equal((a @ b).float().numpy(), wanted)
    across = b.transpose().contiguous().transpose()
    np.testing.assert_array_equal((a @ across).float().numpy(), wanted)


@pytest.mark.parametrize("dtype", HALVES, ids=lambda dtype: dtype.name)
def test_denormal_numbers_infinities_and_nan_go_through_a_product(dtype: DType) -> None:
    tiny = 2.0**-24 if dtype is dtypes.float16 else 2.0**-133
    a, b = np.zeros((70, 66)), np.zeros((66, 70))
    a[0, 0], b[0, 0] = tiny, 1.0
    a[1, 1], b[1, 1] = np.inf, 2.0
    a[2, 2], b[2, 2] = np.nan, 1.0
    a[3, 3], b[3, 3] = tiny, 4.0
    a[4, 4], b[4, 4] = 60000.0, -2.0
    (x, _), (y, _) = rounded(a, dtype), rounded(b, dtype)
    got = (x @ y).float().numpy()
    assert (got[0, 0], got[3, 3]) == (tiny, 4 * tiny)
    assert got[1, 1] == np.inf and np.isnan(got[1, 0]) and np.isnan(got[2]).all()
    assert got[4, 4] == (-np.inf if dtype is dtypes.float16 else -119808.0)
    assert not got[5:].any()


@pytest.mark.parametrize("dtype", HALVES, ids=lambda dtype: dtype.name)
def test_rows_that_many_tiles_read_are_converted_once(dtype: DType) -> None:
    """By a kernel that fills a table: what multiplies reads float32 alone."""
    a = Tensor.zeros(512, 512, dtype=dtype).contiguous().realize()
    b = Tensor.zeros(512, 512).contiguous().realize()
    graph = compiler().kernel_graph(UOp.sink((a @ b).uop).replace(arg="CPU"))
    (call,) = graph.src
    *filling, product = compiler().sources(call.src[0], "CPU")
    assert [source.params.count(dtype) for source in filling].count(1) == 1
    assert set(product.params) == {dtypes.float32}
