"""Instructions of x86 give what others give: extremes in vectors of any width, powers of two."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from test_cpu_target import cpu

from proofgrad import Context, Tensor
from proofgrad.backends.cpu.absent import AbsentCpu


@pytest.mark.parametrize("name", ["", "haswell", "x86-64-v2"])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_the_extreme_of_a_row_is_nan_if_one_is_and_orders_zeros(kind: str, name: str) -> None:
    """Lanes are compared half by half, in vectors of every width."""
    with cpu(name) if name else Context() as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        for size in (1, 2, 7, 33):
            extremes_of_rows(kind, size)


def extremes_of_rows(kind: str, size: int) -> None:
    rng = np.random.default_rng(size)
    for values in ([0.0, -0.0], [-1.0, -0.0], [0.0, 2.0, math.inf], [1.0, math.nan, -math.inf]):
        x = rng.choice(np.array(values, kind), (8, size))
        for name, zero in (("max", np.any), ("min", np.all)):
            got, want = getattr(Tensor(x), name)(1).numpy(), getattr(x, name)(1)
            np.testing.assert_array_equal(got, want)
            is_positive = zero(~np.signbit(np.where(x == 0, x, -0.0 if name == "max" else 0.0)), 1)
            np.testing.assert_array_equal(np.signbit(got)[want == 0], ~is_positive[want == 0])


@pytest.mark.parametrize("name", ["", "haswell"])
def test_the_larger_and_the_smaller_of_two_are_as_in_a_vector(name: str) -> None:
    with cpu(name) if name else Context() as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        compare_pairs()


def compare_pairs() -> None:
    values = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]
    x, y = np.array(list(itertools.product(values, values)), np.float32).T
    for count in (1, 2, 4, len(x)):
        for name in ("maximum", "minimum"):
            parts = range(0, len(x), count)
            got = [getattr(Tensor(x[k : k + count].copy()), name)(Tensor(y[k : k + count].copy())).numpy()
                   for k in parts]  # fmt: skip
            want = getattr(np, name)(x, y)
            np.testing.assert_array_equal(np.concatenate(got), want)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("lanes", [1, 16])
def test_powers_are_the_same_bits_on_every_processor(kind: str, lanes: int) -> None:
    """Where they overflow, are denormal or 0, and everywhere between."""
    reach = 160 if kind == "float32" else 1100
    x = np.random.default_rng(lanes).uniform(-reach, reach, 1 << 14 if lanes > 1 else 1 << 9)
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, -126.0, -149.5, -150.0, 128.0, 127.9999]
    x = np.concatenate([x, np.arange(-reach, reach), edges]).astype(kind)

    def powers() -> object:
        with Context(CHOICES=f"vectors=*x{lanes}x1" if lanes > 1 else "vectors=none"):
            return Tensor(x).realize().exp2().numpy().view(f"int{8 * x.itemsize}")

    with cpu("haswell") as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        want = powers()
    with cpu("skylake-avx512") as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        got = powers()
    is_number = ~np.isnan(x)
    np.testing.assert_array_equal(got[is_number], want[is_number])  # type: ignore[index]
