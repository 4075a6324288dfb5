"""Angles and quotients that are small are computed before a branch, and the others behind it; values where the ways meet."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from test_cpu_target import running
from test_gathers import text_of

from proofgrad import Tensor

FLOATS = ["float32", "float64"]
NEAR = {"sin": (2.0**16, 2.0**20), "cos": (2.0**16, 2.0**20), "tan": (2.0**11, 2.0**20)}
STEPS = {"float32": 2.0**22, "float64": 2.0**52}


def parts(value: Tensor) -> tuple[str, str]:
    """The text before the first branch, and that of the longer way behind it."""
    near, far = text_of(value).split("\nway0:\n")
    return near, far.split("way0.end:")[0]


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", NEAR)
def test_far_angles_are_behind_a_branch(name: str, kind: str) -> None:
    x = Tensor(np.ones(64, kind)).realize()
    near, far = parts(getattr(x, name)())
    mark = "llvm.trunc" if kind == "float32" else "lshr"
    assert mark not in near and mark in far


@pytest.mark.parametrize("kind", FLOATS)
def test_more_than_one_step_of_a_division_is_behind_a_branch(kind: str) -> None:
    x = Tensor(np.ones(2, kind)).realize()  # one vector, on every processor
    near, far = parts(x.fmod(Tensor(np.full(2, 3, kind)).realize()))
    assert near.count("fdiv") == 1 and far.count("fdiv") > 4


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", NEAR)
@pytest.mark.parametrize("processor", ["native", "haswell", "x86-64-v2"])
def test_angles_where_the_ways_meet_and_beside_quarter_turns(
    name: str, kind: str, processor: str
) -> None:
    with running(processor):
        end = np.array(NEAR[name][FLOATS.index(kind)], kind)
        around = [
            end,
            np.nextafter(end, np.array(0, kind)),
            np.nextafter(end, np.array(np.inf, kind)),
        ]
        quarters = (np.arange(2000) * (np.pi / 2)).astype(kind)
        edges = np.array([0.0, -0.0, np.finfo(kind).smallest_subnormal, np.finfo(kind).max], kind)
        x = np.concatenate([around, quarters, edges]).astype(kind)
        x = np.concatenate([x, -x])
        wide: Callable[[np.ndarray], np.ndarray] = getattr(np, name)
        exact = wide(x.astype(np.longdouble)).astype(kind)
        found = getattr(Tensor(x), name)().numpy()
        np.testing.assert_array_max_ulp(found, exact, 3)
        assert (np.signbit(found) == np.signbit(exact)).all()
        nothing = np.array([np.inf, -np.inf, np.nan, 1.0], kind)
        found = getattr(Tensor(nothing), name)().numpy()
        assert np.isnan(found).tolist() == [True, True, True, False]


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("processor", ["native", "haswell", "x86-64-v2"])
def test_remainders_where_the_ways_meet(kind: str, processor: str) -> None:
    with running(processor):
        rng, end = np.random.default_rng(0), STEPS[kind]
        divisors = np.concatenate([rng.random(50) + 0.5, [1.0, 3.0, 1e-300, np.inf, 0.0, np.nan]])
        y = np.concatenate([divisors, -divisors]).astype(kind)
        factors = np.array(
            [0.25, 0.75, 1, 1.5, 2.5, end / 2, end - 1, end, end + 2, end * 8, np.inf]
        )
        with np.errstate(all="ignore"):
            x = (factors.astype(kind)[:, None] * y).ravel()
            y = np.tile(y, len(factors))
            wanted = np.fmod(x, y)
        found = Tensor(x).fmod(Tensor(y)).numpy()
        np.testing.assert_array_equal(found, wanted)
        given = ~np.isnan(wanted)
        assert (np.signbit(found) == np.signbit(wanted))[given].all()


def test_gelu_keeps_its_ends() -> None:
    x = Tensor(np.array([-np.inf, -1e30, -6.0, -0.0, 0.0, 6.0, 1e30, np.inf, np.nan], np.float32))
    np.testing.assert_allclose(
        x.gelu("none").numpy(),
        np.array([0, 0, 0, 0, 0, 6, 1e30, np.inf, np.nan], np.float32),
        rtol=1e-7,
        atol=1e-8,
    )
