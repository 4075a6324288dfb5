"""`//`, `%` and fmod of floats are numpy's, bit for bit, for every pair of operands.

bfloat16, which numpy does not have, is float32 rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_numerics import ULP_CHECK, leaf, value_of

from proofgrad import Tensor, dtypes
from proofgrad.core.compile.math.transcendental import expand_transcendentals
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

Array = np.ndarray[Any, Any]
KINDS = {np.float16: np.uint16, np.float32: np.uint32, np.float64: np.uint64}
FORMS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Array, Array], Array]]] = {
    "//": (lambda x, y: x // y, np.floor_divide),
    "%": (lambda x, y: x % y, np.remainder),
    "fmod": (lambda x, y: x.fmod(y), np.fmod),
}


def special(kind: Any) -> Array:
    ends = np.finfo(kind)
    sizes = [
        0.0,
        1.0,
        3.0,
        7.0,
        0.1,
        2.5,
        1e4,
        np.inf,
        ends.max,
        ends.tiny,
        ends.smallest_subnormal,
        ends.eps,
    ]
    return np.array([s * size for size in sizes for s in (1, -1)] + [np.nan], kind)


def pairs(kind: Any, count: int = 20_000) -> tuple[Array, Array]:
    """Any bits with any, numbers of like size, whole numbers (whose remainders are 0), all special values."""
    random = np.random.default_rng(5)

    def any_bits() -> Array:
        bits = KINDS[kind]
        return random.integers(0, np.iinfo(bits).max, count, bits, endpoint=True).view(kind)

    def near() -> Array:
        return (np.exp(random.uniform(-7, 7, count)) * random.choice([-1, 1], count)).astype(kind)

    ends, whole = special(kind), random.integers(-40, 41, count).astype(kind)
    x = [
        any_bits(),
        near(),
        random.integers(-2000, 2000, count).astype(kind),
        any_bits(),
        whole * 100,
    ]
    y = [any_bits(), near(), whole, near(), whole]
    return (
        np.concatenate([*x, np.repeat(ends, len(ends))]),
        np.concatenate([*y, np.tile(ends, len(ends))]),
    )


def differences(found: Array, wanted: Array) -> Array:
    same = (found == wanted) & (np.signbit(found) == np.signbit(wanted))
    return np.nonzero(~(same | np.isnan(found) & np.isnan(wanted)))[0]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", FORMS)
def test_division_of_floats_is_numpys(name: str, kind: Any) -> None:
    x, y = pairs(kind)
    ours, theirs = FORMS[name]
    with np.errstate(all="ignore"):
        wanted = theirs(x, y)
    found = ours(Tensor(x), Tensor(y))
    assert found.dtype.name == wanted.dtype.name and differences(found.numpy(), wanted).size == 0


@pytest.mark.parametrize("name", FORMS)
def test_division_of_bfloat16_is_that_of_float32_rounded_once(name: str) -> None:
    x, y = [ULP_CHECK.round_to(part, dtypes.bfloat16) for part in pairs(np.float32, 5_000)]
    ours, theirs = FORMS[name]
    with np.errstate(all="ignore"):
        wanted = ULP_CHECK.round_to(theirs(x, y), dtypes.bfloat16)
    found = ours(Tensor(x).bfloat16(), Tensor(y).bfloat16())
    assert found.dtype is dtypes.bfloat16 and differences(found.float().numpy(), wanted).size == 0


@pytest.mark.parametrize("name", ["//", "%"])
def test_division_with_numbers_on_either_side(name: str) -> None:
    x = np.array([5.0, -5.0, 1e30, -0.0, 0.3], np.float32)
    with np.errstate(all="ignore"):
        wanted = [x // 7, 7 // x] if name == "//" else [x % 7, 7 % x]
    found = [Tensor(x) // 7, 7 // Tensor(x)] if name == "//" else [Tensor(x) % 7, 7 % Tensor(x)]
    for mine, theirs in zip(found, wanted):
        assert differences(mine.numpy(), theirs).size == 0


def test_division_agrees_in_python_and_with_a_rounding_mode() -> None:
    x, y = [7.5, -7.5, 7.5, -7.5, 6.0, -6.0], [2.0, 2.0, -2.0, -2.0, -3.0, 3.0]
    a, b = Tensor(x, dtype="float64"), Tensor(y, dtype="float64")
    assert (a // b).tolist() == [p // q for p, q in zip(x, y)]
    assert (a % b).tolist() == [p % q for p, q in zip(x, y)]
    assert a.div(b, rounding_mode="floor").tolist() == (a // b).tolist()


@pytest.mark.parametrize("name", ["%", "fmod"])
def test_derivative_of_a_remainder_is_torchs(name: str) -> None:
    """By the divisor minus the quotient, rounded down or towards 0; also where the remainder is 0."""
    torch = pytest.importorskip("torch")
    x = np.array([7.5, -7.5, 7.5, -7.5, 6.0, -6.0, 0.5, 0.0])
    y = np.array([2.0, 2.0, -2.0, -2.0, -3.0, 3.0, 9.0, 4.0])
    a, b = Tensor(x), Tensor(y)
    p, q = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
    found = FORMS[name][0](a, b).sum().gradient(a, b)
    (p % q if name == "%" else torch.fmod(p, q)).sum().backward()
    for mine, theirs in zip(found, (p.grad, q.grad)):
        assert mine.tolist() == theirs.tolist()
    (nothing,) = (a // b).sum().gradient(a)
    assert nothing.tolist() == [0.0] * len(x)


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_expanded_remainder_is_exact_in_lanes_and_in_scalars(dtype: DType) -> None:
    """By the reference meaning of each operation of the expansion."""
    random = np.random.default_rng(2)
    bits = random.integers(0, 1 << dtype.bits, (2, 4 * 60), np.uint64, endpoint=False)
    kind = {16: np.uint16, 32: np.uint32, 64: np.uint64}[dtype.bits]
    x, y = [ULP_CHECK.from_bits(row.astype(kind), dtype).astype(float).tolist() for row in bits]
    vector = dtype.vec(4)
    root = expand_transcendentals(UOp(Ops.FMOD, vector, (leaf(vector), leaf(vector, 1))))
    for k in range(0, len(x), 4):
        lanes = {leaf(vector): tuple(x[k : k + 4]), leaf(vector, 1): tuple(y[k : k + 4])}
        wanted = [evaluate(Ops.FMOD, dtype, pair) for pair in zip(x[k : k + 4], y[k : k + 4])]
        assert differences(np.array(value_of(root, lanes)), np.array(wanted)).size == 0
