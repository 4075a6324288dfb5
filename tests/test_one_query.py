"""Attention of one query: keys and values by wide loads, in parts for all units; few results of rows that lie across memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from test_parts_for_units import NAME, Listing, parts
from test_row_products import attention
from test_warp_rows import given
from test_warp_tiles import values

from proofgrad import Device, Tensor, Variable
from proofgrad.core.compile.steps.reduce_in_parts import Blocks
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.tensor.runtime.realize import compile_only, compiler


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every kernel is printed again."""
    monkeypatch.setenv("PLANS", "0")
    compiler().forget()
    yield
    compiler().forget()


SIZES = [(2, 2, 700, 16), (3, 3, 1030, 24), (4, 2, 515, 16), (2, 2, 300, 17)]
CLOSE = {dtypes.float16: 2e-3, dtypes.bfloat16: 2e-2, dtypes.float32: 1e-5}
TYPES = [dtypes.float16, dtypes.bfloat16, dtypes.float32]


@pytest.mark.parametrize(("heads", "shared", "keys", "depth"), SIZES)
@pytest.mark.parametrize("dtype", TYPES)
def test_one_query_of_any_size_is_as_numpy_says(
    heads: int, shared: int, keys: int, depth: int, dtype: DType
) -> None:
    given_to = [(heads, 1, depth), (shared, keys, depth), (shared, keys, depth)]
    q, k, v = given(NAME, dtype, *given_to)
    result = q.scaled_dot_product_attention(k, v, enable_gqa=heads > shared).realize()
    every = [np.repeat(values(x), heads // shared, 0) for x in (k, v)]
    assert_close(result, attention(values(q), *every))


def test_keys_whose_number_is_a_variable_are_read_by_wide_loads() -> None:
    q, k, v = given(NAME, dtypes.bfloat16, (2, 1, 16), (2, 700, 16), (2, 700, 16))
    machine = listing()
    count = Variable("T", 1, 700).bind(695)
    result = q.scaled_dot_product_attention(k[:, :count], v[:, :count]).realize()
    longest = [s for s in machine.printed if reads(s.program, k.numel())]  # of keys, of values
    assert_close(result, attention(values(q), values(k)[:, :695], values(v)[:, :695]))
    assert len(longest) == 2
    assert all([len(re.findall(r"ld\.global\S*\.v4\.b32", s.text)) for s in longest])


@pytest.mark.parametrize("dtype", TYPES)
def test_a_cached_token_is_four_kernels_with_wide_loads(dtype: DType) -> None:
    """Scores, a softmax of the few rows, parts of the sum, and their sum."""
    q, k, v = [in_memory(8, n, 64, dtype=dtype) for n in (1, 4096, 4096)]
    result = q.scaled_dot_product_attention(k, v)
    assert len(result.schedule()) == 4
    machine = listing()
    with compile_only():
        result.realize()
    for source in [s for s in machine.printed if reads(s.program, k.numel())]:
        wide = re.findall(r"ld\.global\S*\.v4\.b32", source.text)
        assert wide, source.entry


@pytest.mark.parametrize("fastmath", ["", "real"])
def test_parts_of_the_weighted_sum_of_few_queries_are_a_product_stored_as_it_is_read(
    fastmath: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the weights are made of: no kernel turns around what parts gave."""
    monkeypatch.setenv("FASTMATH", fastmath)
    q, k, v = [in_memory(8, n, 64, dtype=dtypes.bfloat16) for n in (64, 8192, 8192)]
    assert len(q.scaled_dot_product_attention(k, v).schedule()) == 4


def test_what_parts_of_rows_gave_lies_row_by_row() -> None:
    """Whatever the order of the axes: neighbours store side by side."""
    made = parts((8, 32, 4096), (2,), order=(0, 2, 1))
    assert isinstance(made, Blocks)
    assert made.blocks_first


def test_rows_of_results_for_groups_of_all_units_have_no_parts() -> None:
    """Each group sums 8 columns of float32, 16 of bfloat16: a softmax over columns is three kernels, and its largest element one."""
    assert parts((4096, 4096), (0,), order=(0, 1)) is None
    assert parts((4096, 1024), (0,), order=(0, 1)) is not None
    x = in_memory(4096, 4096, dtype=dtypes.float32)
    assert (len(x.softmax(0).schedule()), len(x.max(0).schedule())) == (3, 1)


def test_keys_that_heads_share_make_longer_parts() -> None:
    """A part of 16 keys would store half as much as it reads, four times for each value."""
    q, k, v = [in_memory(1, *n, 64, dtype=dtypes.float32) for n in ((32, 1), (8, 4096), (8, 4096))]
    machine = listing()
    with compile_only():
        q.scaled_dot_product_attention(k, v, enable_gqa=True).realize()
    *_, partial = [s for s in machine.printed if reads(s.program, v.numel())]
    assert partial.program is not None
    (stored,) = [n.arg[1] for n in partial.program.src if n.op is Ops.PARAM and n.arg[0] == 0]
    assert 8 * stored <= v.numel()


@pytest.mark.parametrize("shape", [(260, 24), (200, 3), (1000, 16), (33, 129)])
@pytest.mark.parametrize("dtype", ["int32", "int16", "float64"])
def test_few_results_of_rows_that_lie_apart_are_a_group_s(
    shape: tuple[int, int], dtype: str
) -> None:
    x = np.random.default_rng(shape[0]).integers(-99, 99, shape).astype(dtype)
    got = Tensor(x, device=NAME)
    np.testing.assert_array_equal(got.max(0).numpy(), x.max(0))
    np.testing.assert_array_equal(got.sum(0, dtype="int32").numpy(), x.sum(0).astype(np.int32))


def test_waits_and_accesses_of_such_a_group_are_proved(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    x = np.arange(260 * 8, dtype=np.float32).reshape(260, 8)
    given_to = Tensor(x, device=NAME).realize()
    monkeypatch.setenv("PROVE", "1")
    np.testing.assert_array_equal(given_to.max(0).numpy(), x.max(0))
    assert "2 waits of groups" in capfd.readouterr().err


def assert_close(got: Tensor, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(values(got), wanted, atol=CLOSE[got.dtype], rtol=0)


def in_memory(*shape: int, dtype: DType) -> Tensor:
    """Memory of the machine, in which nothing is written."""
    with compile_only():
        return Tensor.ones(*shape, dtype=dtype, device=NAME).contiguous().realize()


def reads(program: object, length: int) -> bool:
    """Whether a kernel has memory of so many elements."""
    nodes = getattr(program, "src", ())
    return any([n.op is Ops.PARAM and n.arg[1] == length for n in nodes])


def listing() -> Listing:
    """The machine, which has printed nothing yet."""
    machine = Device[NAME]
    assert isinstance(machine, Listing)
    machine.printed.clear()
    return machine
