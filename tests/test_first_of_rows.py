"""The first so many of a row, by networks of comparators: blocks of few rows, pairs that are compared as float64."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from test_cpu_target import cpu

from proofgrad import Context, Tensor
from proofgrad.backends.cpu.absent import AbsentCpu
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.tensor.methods.indexing import networks
from proofgrad.core.tensor.methods.made_once import BODIES

TARGETS = {
    "AVX2": Target("cpu", vector_bytes=32),
    "AVX512": Target("cpu", vector_bytes=64),
    "a GPU": Target("gpu", vector_bytes=16, work_items=True),
}


@pytest.fixture(autouse=True)
def networks_made_anew() -> None:
    """Tests change the machine that networks are made for."""
    BODIES.clear()


def in_order(x: np.ndarray, descending: bool) -> np.ndarray:
    """Stable, NaN as the largest."""
    keys = np.where(np.isnan(x), np.inf, x)
    last = np.isnan(x)
    order = np.argsort(-keys if descending else keys, -1, kind="stable")
    ends = np.argsort(
        np.take_along_axis(~last if descending else last, order, -1), -1, kind="stable"
    )
    return np.take_along_axis(order, ends, -1)


@pytest.mark.parametrize("target", ["", "haswell", "x86-64-v2"])
@pytest.mark.parametrize(
    ("shape", "count"),
    [((1, 5003), 701), ((9, 774), 157), ((15, 331), 60), ((16, 331), 61), ((3, 400), 1)],
    ids=str,
)
def test_many_of_few_rows_are_found_in_blocks(
    shape: tuple[int, int], count: int, target: str
) -> None:
    """Infinities, NaN, zeros of both signs and equal elements come as in a sort."""
    x = np.random.default_rng(0).integers(-40, 40, shape).astype(np.float32)
    x[0, :8] = [np.inf, -np.inf, np.nan, -0.0, 0.0, np.nan, 3e38, 1e-45]
    with cpu(target) if target else Context() as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        for largest in (True, False):
            found = Tensor(x).topk(count, largest=largest)[1].numpy()
            np.testing.assert_array_equal(found, in_order(x, largest)[:, :count])
        np.testing.assert_array_equal(Tensor(x).argsort().numpy(), in_order(x, False))


@pytest.mark.parametrize("kind", ["int32", "uint32", "float16"])
def test_keys_of_every_type_have_their_order_beside_a_position(kind: str) -> None:
    """The least and the largest key, of which a pair is neither NaN nor near zero."""
    ends = [-np.inf, np.inf, np.nan] if kind == "float16" else np.iinfo(kind)
    ends = ends if isinstance(ends, list) else [ends.min, ends.max, ends.max // 2]
    x = np.random.default_rng(0).choice(np.array([*ends, 0, 1, 7], kind), (17, 301))
    want = in_order(x.astype(np.float64), False)
    np.testing.assert_array_equal(Tensor(x).argsort().numpy(), want)


@pytest.mark.parametrize("name", TARGETS)
def test_pairs_are_floats_where_vectors_compare_these_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = {name: SimpleNamespace(target=target) for name, target in TARGETS.items()}
    monkeypatch.setattr(networks, "Device", machines)
    assert networks.has_least_of_doubles_alone(name) is (name == "AVX2")


@pytest.mark.parametrize(
    ("shape", "count"), [((2, 2835), 4), ((1, 300), 1), ((4, 100), 5)], ids=str
)
@pytest.mark.parametrize("kind", ["float32", "int8", "int64", "float64"])
def test_a_few_of_few_rows_are_found_one_by_one(
    shape: tuple[int, int], count: int, kind: str
) -> None:
    """Each is the least of what lies beyond the one before, of equal ones that of the next position."""
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(kind)
    if x.dtype.kind == "f":
        x[0, :7] = [np.inf, -np.inf, np.nan, -0.0, 0.0, np.nan, 3e38]
    for largest in (True, False):
        values, found = Tensor(x).topk(count, largest=largest)
        want = in_order(x.astype(np.float64), largest)[:, :count]
        np.testing.assert_array_equal(found.numpy(), want)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, want, 1))


def test_ranks_and_networks_take_fewer_cycles_where_rows_or_what_is_found_are_many() -> None:
    one_by_one = networks._is_found_one_by_one
    pairs = {n: Tensor.empty(*n, dtype="float64") for n in [(2, 178), (200, 125), (1, 1600)]}
    assert one_by_one(pairs[2, 178], 7) and one_by_one(pairs[1, 1600], 10)
    assert not one_by_one(pairs[200, 125], 7) and not one_by_one(pairs[1, 1600], 300)


def test_machines_with_work_items_rank_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = Tensor.empty(2, 178, dtype="int64")
    machines = {pairs.device: SimpleNamespace(target=TARGETS["a GPU"])}
    monkeypatch.setattr(networks, "Device", machines)
    assert not networks._is_found_one_by_one(pairs, 7)
