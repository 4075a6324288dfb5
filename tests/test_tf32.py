"""ALLOW_TF32=1: factors of products of float32 are rounded to 11 digits, and matrix units multiply them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from linear_kernels import edge_values, same
from planted.gpu_faults import DEVICE
from test_warp_tiles import ALONG, EMITTED, Warps, in_order, whole

from proofgrad import Context, Device, Tensor, dtypes, schedule
from proofgrad.backends.ptx.emit import emit as emit_ptx
from proofgrad.core.compile.compiler import Compiler
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compile_only, compiler
from proofgrad.verify.sampled.kernels import CheckError

HALF = np.float32(1 + 2**-11)  # times a whole number: half a unit too many, or more


class Rounds(Warps):
    """A machine with matrix units whose printer sees what is rounded for them."""

    name = "ROUNDS"
    target = replace(Warps.target, native=frozenset({Ops.TF32}))


Device.register("ROUNDS", Rounds)


@pytest.fixture(autouse=True)
def nothing_emitted() -> Iterator[None]:
    compiler().forget()
    EMITTED.clear()
    yield


def rounded(x: np.ndarray) -> np.ndarray:
    """By the bits, of finite numbers."""
    bits = (np.ascontiguousarray(x, np.float32).view(np.uint32) + 0x1000) & 0xFFFFE000
    return bits.view(np.float32)


def on(device: str, array: np.ndarray) -> Tensor:
    return Tensor(array, device=device).realize()


def uses_units(make: Callable[[], Tensor]) -> list[bool]:
    """Of each kernel of a program, whether it has an MMA."""
    EMITTED.clear()
    with Context(ALLOW_TF32=1), compile_only():
        make().realize()
    return [any([n.op is Ops.MMA for n in linear.src]) for linear in EMITTED]


# -- rounding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "value", "wanted"),
    [
        (dtypes.float32, 1 + 2.0**-11, 1 + 2.0**-10),
        (dtypes.float32, -1 - 2.0**-11, -1 - 2.0**-10),
        (dtypes.float32, 1 + 2.0**-11 - 2.0**-23, 1.0),
        (dtypes.float32, float(np.finfo(np.float32).max), math.inf),
        (dtypes.float32, 2.0**-137, 2.0**-136),  # the half of the least
        (dtypes.float32, -(2.0**-138), -0.0),
        (dtypes.float64, 1 + 2.0**-11, 1 + 2.0**-10),
        (dtypes.float64, 1.7976931348623157e308, math.inf),
        (dtypes.float16, 1 + 2.0**-10, 1 + 2.0**-10),
        (dtypes.bfloat16, 1 + 2.0**-7, 1 + 2.0**-7),
    ],
)
def test_a_number_is_rounded_as_words_say(dtype: DType, value: float, wanted: float) -> None:
    assert same(evaluate(Ops.TF32, dtype, (value,)), wanted)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("device", ["CPU", DEVICE])
def test_machines_round_as_the_reference_does(device: str, dtype: DType, gpu: None) -> None:
    """By a rule, or as PTX prints it; alone and in vectors."""
    given = edge_values(dtype)
    wanted = [evaluate(Ops.TF32, dtype, (value,)) for value in given]
    got = Tensor(given, dtype=dtype, device=device)._unary(Ops.TF32).cast(dtypes.float64).tolist()
    assert [(x, y, z) for x, y, z in zip(given, got, wanted) if not same(y, z)] == []


def test_a_nan_of_any_bits_stays_one(gpu: None) -> None:
    bits = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F800001] * 2, np.uint32)
    for device in ("CPU", DEVICE):
        x = Tensor(bits, device=device).bitcast(dtypes.float32).contiguous().realize()
        assert np.isnan(x._unary(Ops.TF32).numpy()).all()


# -- products -------------------------------------------------------------------------------------


def product(x: Any, y: Any) -> Any:
    return x @ y


def convolution(x: Any, y: Any) -> Any:
    return x.reshape(2, 4, 6, 6).conv2d(y.reshape(6, 4, 3, 3), padding=1)


def with_strides(x: Any, y: Any) -> Any:
    return x.reshape(2, 4, 6, 6).conv2d(y.reshape(6, 4, 3, 3), stride=2)


def transposed(x: Any, y: Any) -> Any:
    return x.reshape(2, 4, 6, 6).conv_transpose2d(y.reshape(4, 6, 3, 3), stride=2)


def by_letters(x: Any, y: Any) -> Any:
    return Tensor.einsum("abi,aci->abc", x.reshape(2, 12, 12), y.reshape(2, 9, 12))


PROGRAMS = [convolution, with_strides, transposed, by_letters]


@pytest.mark.parametrize("program", PROGRAMS)
def test_factors_of_a_product_are_rounded_and_those_of_its_gradients(
    program: Callable[[Any, Any], Any],
) -> None:
    """Without, and with rounded numbers, results are the same; numbers that are not rounded are off by a hundred times as much."""
    a, b = whole(288) * HALF, whole(216) * HALF
    found = []
    for asked, one, other in ((1, a, b), (0, rounded(a), rounded(b))):
        x, y = [on("CPU", z).requires_grad_() for z in (one, other)]
        with Context(ALLOW_TF32=asked):
            z = program(x, y)
            weights = whole(*z.shape) * HALF
            weights = weights if asked else rounded(weights)
            (z * Tensor(weights)).sum().backward()
            found.append([z.numpy(), x.grad.numpy(), y.grad.numpy()])
    for asked_for, wanted in zip(*found):
        np.testing.assert_allclose(asked_for, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("sizes", [(32, 64, 48), (33, 47, 29), (5, 7, 9), (17, 1, 65), (0, 4, 4)])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_a_product_of_any_size_is_that_of_rounded_factors_on_an_emulated_gpu(
    sizes: tuple[int, int, int], first: bool, second: bool, gpu: None
) -> None:
    rows, steps, columns = sizes
    a, b = whole(rows, steps) * HALF, whole(steps, columns)
    x = on(DEVICE, np.ascontiguousarray(a.T)).T if first else on(DEVICE, a)
    y = on(DEVICE, np.ascontiguousarray(b.T)).T if second else on(DEVICE, b)
    with Context(ALLOW_TF32=1):
        np.testing.assert_array_equal((x @ y).numpy(), rounded(a) @ b)


def test_infinities_and_nans_go_through_a_unit(gpu: None) -> None:
    a = np.eye(16, dtype=np.float32)
    a[0, 0], a[1, 1], a[2, 2] = np.inf, np.nan, np.finfo(np.float32).max
    with Context(ALLOW_TF32=1), schedule("warps=1x1x1x1"):
        got = (on(DEVICE, a) @ on(DEVICE, np.ones((16, 16), np.float32))).numpy()
    assert np.isinf(got[0]).all() and np.isnan(got[1]).all() and np.isinf(got[2]).all()


def test_products_of_a_step_of_training_all_go_by_units() -> None:
    x, w = on("ROUNDS", whole(32, 64)), on("ROUNDS", whole(64, 48))

    def gradient(of: Tensor) -> Tensor:
        (found,) = (x @ w).square().sum().gradient(of)
        return found

    assert uses_units(lambda: gradient(x)) == [True, True]
    assert uses_units(lambda: gradient(w)) == [True]  # the result is the same kernel


@pytest.mark.parametrize(
    "make",
    [
        lambda: on("ROUNDS", whole(64)) @ on("ROUNDS", whole(64)),
        lambda: (on("ROUNDS", whole(64, 64)) * on("ROUNDS", whole(64, 64))).sum(1),
        lambda: on("ROUNDS", whole(64, 64)).cast(dtypes.int32) @ on("ROUNDS", whole(64, 64)).int(),
    ],
)
def test_what_is_no_product_of_matrices_of_float32_is_not_rounded(
    make: Callable[[], Tensor],
) -> None:
    with Context(ALLOW_TF32=1):
        assert Ops.TF32 not in {n.op for n in make()._uop.toposort()}


def test_small_floats_go_by_their_own_unit() -> None:
    half = [on("ROUNDS", whole(64, 64)).half().realize() for _ in range(2)]
    with Context(ALLOW_TF32=1):
        made = half[0].matmul(half[1], dtype=dtypes.float32)
    assert Ops.TF32 not in {n.op for n in made._uop.toposort()}


def test_nothing_is_rounded_unless_that_is_asked_for() -> None:
    made = on("CPU", whole(8, 8)) @ on("CPU", whole(8, 8))
    assert Ops.TF32 not in {n.op for n in made._uop.toposort()}


# -- text and proofs ------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [False, True])
def test_ptx_rounds_what_an_item_holds_and_multiplies_it(second: bool) -> None:
    """2 x 2 tiles, 16 steps: 8 products; 2 x 2 x 4 elements of rows, 2 x 4 of columns. Operands lie side by side in registers."""
    x, y = [on("ROUNDS", whole(64, 64)) for _ in range(2)]
    with schedule("warps=1x2x2x2"), Context(ALLOW_TF32=1), compile_only():
        (x @ (y.T if second else y)).realize()
    text = emit_ptx(EMITTED[-1], "product", 90).text
    assert text.count("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32") == 8
    assert text.count("mma.sync") == 8 and text.count("cvt.rna.tf32.f32") == 24
    assert text.count(ALONG) == 2 * 2 + (2 if second else 0)
    assert len(re.findall(r"ld\.shared\.b32", text)) == (0 if second else 2 * 4)
    assert not re.search(r"\band\.b32\s+%r\d+, %r\d+, -8192", text)


def test_the_solver_shows_all_of_a_product_of_rounded_factors(
    capfd: pytest.CaptureFixture[str],
) -> None:
    x, y = on("ROUNDS", whole(19, 37)), on("ROUNDS", whole(37, 21))
    capfd.readouterr()
    with schedule("warps=1x1x1x1"), Context(PROVE=1, PLANS=0, ALLOW_TF32=1), compile_only():
        (x @ y).realize()
    told = capfd.readouterr().err
    assert re.search(r"none unknown; \d waits of groups;", told), told
    assert "NOT COVERED" not in told


def _not_rounded(mma: UOp) -> UOp:
    item, before, column, *rows = mma.src
    return mma.with_src((item, before, column, *[row.src[0] for row in rows]))


def test_a_factor_that_is_not_rounded_is_found_at_sampled_elements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = Compiler._compiled

    def compiled(self: Compiler, linear: UOp, device: str, background: Any = None) -> Any:
        products = {n: _not_rounded(n) for n in linear.src if n.op is Ops.MMA}
        return right(self, in_order(linear, products), device, background)

    x, y = on("ROUNDS", whole(16, 16)), on("ROUNDS", whole(16, 16))
    checks, wrong = Context(CHECK=1, PLANS=0, ALLOW_TF32=1), pytest.raises(CheckError)
    monkeypatch.setattr(Compiler, "_compiled", compiled)
    with schedule("warps=1x1x1x1"), checks, compile_only(), wrong:
        (x @ y).realize()
