"""Random numbers: known answers, distributions, repeatability."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tensors import machine

from proofgrad import DtypeError, GlobalCounters, ShapeError, Tensor, nn
from proofgrad.core.tensor.methods.creation import random
from proofgrad.core.tensor.methods.creation.random import threefry
from proofgrad.core.tensor.methods.made_once import BODIES

__all__ = ["machine"]
DRAWS = 4000


# Known answers of Random123 1.14 (kat_vectors), threefry2x32 with 20 rounds.
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_answers(machine, counter, key, expected) -> None:
    words = [Tensor([value], dtype="uint32").uop for value in (*counter, *key)]
    first, second = threefry(*words)
    assert (Tensor(first).item(), Tensor(second).item()) == expected


def test_seed_decides_every_call(machine: str) -> None:
    Tensor.manual_seed(7)
    first, second = Tensor.rand(5).tolist(), Tensor.rand(5).tolist()
    Tensor.manual_seed(7)
    assert Tensor.rand(5).tolist() == first
    assert Tensor.rand(5).tolist() == second
    assert first != second


def test_order_of_reading_does_not_change_the_numbers(machine: str) -> None:
    Tensor.manual_seed(7)
    a, b = Tensor.rand(4), Tensor.rand(4)
    late = b.tolist()
    assert a.tolist() != late
    Tensor.manual_seed(7)
    assert (Tensor.rand(4).tolist(), Tensor.rand(4).tolist()) == (a.tolist(), late)


def test_bits_do_not_depend_on_the_machine(machine: str) -> None:
    Tensor.manual_seed(1)
    bits = (Tensor.rand(3) * 2**24).cast("uint32").tolist()
    assert bits == [11810215, 968296, 169705]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rand_is_uniform_below_one(machine: str, dtype: str) -> None:
    Tensor.manual_seed(0)
    x = Tensor.rand(DRAWS, dtype=dtype)
    values = x.numpy().astype(np.float64)
    assert x.dtype.name == dtype
    assert 0 <= values.min() and values.max() < 1
    assert abs(values.mean() - 0.5) < 4 / math.sqrt(12 * DRAWS)
    assert abs(values.var() - 1 / 12) < 0.005


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 11), (random.DRAWN_ONCE,)])
def test_randn_is_made_of_the_next_two_uniform_draws(dtype: str, shape: tuple[int, ...]) -> None:
    Tensor.manual_seed(5)
    wide = "float64" if dtype == "float64" else "float32"
    turn, chance = Tensor.rand(*shape, dtype=wide), Tensor.rand(*shape, dtype=wide)
    expected = (turn * (2 * math.pi)).cos() * ((1 - chance).log() * -2).sqrt()
    Tensor.manual_seed(5)
    drawn = Tensor.randn(*shape, dtype=dtype)
    assert drawn.tolist() == expected.cast(dtype).tolist()
    assert Tensor.get_rng_state().tolist() == [5, 2]


def test_randn_is_drawn_once_for_all_who_read_it(machine: str) -> None:
    x = Tensor.randn(random.DRAWN_ONCE + 3)
    more = (x + 1).numpy()
    assert np.array_equal(x.numpy() + np.float32(1), more)


def test_randn_has_mean_zero_and_deviation_one(machine: str) -> None:
    Tensor.manual_seed(0)
    values = Tensor.randn(DRAWS).numpy()
    assert abs(values.mean()) < 4 / math.sqrt(DRAWS)
    assert abs(values.std() - 1) < 0.05
    assert abs((values**4).mean() - 3) < 0.5


def test_randint_covers_its_range_evenly(machine: str) -> None:
    Tensor.manual_seed(0)
    values = Tensor.randint(DRAWS, low=-2, high=3).numpy()
    counts = {k: int((values == k).sum()) for k in range(-2, 3)}
    assert sum(counts.values()) == DRAWS
    assert all(abs(count - DRAWS / 5) < 120 for count in counts.values())
    with pytest.raises(ValueError, match="low < high"):
        Tensor.randint(3, low=5, high=5)


def test_scaled_distributions_keep_their_bounds(machine: str) -> None:
    Tensor.manual_seed(0)
    glorot = Tensor.glorot_uniform(20, 30).numpy()
    assert np.abs(glorot).max() <= math.sqrt(6 / 50)
    kaiming = Tensor.kaiming_uniform(20, 30, a=0.0).numpy()
    assert np.abs(kaiming).max() <= math.sqrt(6 / 30)
    uniform = Tensor.uniform(500, low=2.0, high=3.0).numpy()
    assert 2 <= uniform.min() and uniform.max() <= 3
    normal = Tensor.normal(DRAWS, mean=5.0, std=0.5).numpy()
    assert abs(normal.mean() - 5) < 0.05 and abs(normal.std() - 0.5) < 0.05


def test_dropout_scales_what_it_keeps_and_only_in_training(machine: str) -> None:
    Tensor.manual_seed(0)
    x = Tensor.ones(DRAWS)
    assert x.dropout(0.25).uop is x.uop
    with Tensor.train():
        values = x.dropout(0.25).numpy()
    assert set(np.unique(values)) == {np.float32(0), np.float32(1) / np.float32(0.75)}
    assert abs((values == 0).mean() - 0.25) < 0.03
    with pytest.raises(ValueError, match="probability"):
        x.dropout(1.5)


def test_rand_of_integers_is_refused() -> None:
    with pytest.raises(DtypeError, match="see randint"):
        Tensor.rand(3, dtype="int32")


def test_a_held_tensor_is_drawn_in_the_first_run_that_reads_it_only() -> None:
    x = Tensor.rand(16, 16)
    doubled, more = x * 2, x + 1
    values = doubled.numpy() / 2
    GlobalCounters.reset()
    np.testing.assert_array_equal(more.numpy(), values + 1)
    np.testing.assert_array_equal(x.numpy(), values)
    assert GlobalCounters.kernel_count == 1  # of `more`: x has memory


def test_a_layer_draws_its_weights_once() -> None:
    layer, x = nn.Linear(8, 8), Tensor.ones(2, 8).contiguous().realize()
    first = layer(x).numpy()
    again = layer(
        x
    ).numpy()  # what is made of the numbers is kept now, and its sums may run in another order
    np.testing.assert_allclose(again, first, rtol=1e-5, atol=1e-6)
    GlobalCounters.reset()
    np.testing.assert_array_equal(layer(x).numpy(), again)
    assert GlobalCounters.kernel_count == 1
    layer(x).sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.shape == (8, 8)


def test_a_loss_built_before_the_run_finds_its_weights_after_it() -> None:
    weights = Tensor.uniform(100, requires_grad=True)
    loss = (weights * 2).sum()
    loss.realize()
    loss.backward()
    assert weights.grad is not None and weights.grad.tolist() == [2.0] * 100


def test_what_is_written_before_a_run_is_what_is_read() -> None:
    x = Tensor.rand(100)
    before = x + 0
    x += 1
    np.testing.assert_allclose(x.numpy() - before.numpy(), 1, rtol=1e-6)
    x.assign(Tensor.zeros(100))
    assert x.tolist() == [0] * 100


@pytest.mark.parametrize(
    "name", ["scaled_uniform", "glorot_uniform", "kaiming_uniform", "kaiming_normal", "rand"]
)
def test_factories_of_weights_take_empty_shapes_and_refuse_wrong_ones(name: str) -> None:
    make = getattr(Tensor, name)
    for shape in [(-3, 2), (2, -3, 0), (2, 1.5), (-1,)]:
        with pytest.raises(ShapeError, match="sizes of a shape are ints of 0 or more"):
            make(*shape)
        with pytest.raises(ShapeError, match="sizes of a shape are ints of 0 or more"):
            make(shape)
    for shape in [(), (0,), (2, 0), (0, 3), (1, 1)]:
        assert make(*shape).shape == shape and len(make(*shape).flatten().tolist()) == math.prod(
            shape
        )


@pytest.mark.parametrize("shape", [(700,), (3, 129), (2, 1)])
def test_positions_drawn_by_weights_are_searched_as_they_are_looked_for(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).integers(0, 9, shape).astype(np.float32)  # some are 0
    x[..., -1] = 1
    found = []
    for most in (1 << 22, 0):
        monkeypatch.setattr(random, "LOOKED_AT", most)
        BODIES.clear()
        Tensor.manual_seed(3)
        weights = Tensor(x).realize()
        GlobalCounters.reset()
        drawn = weights.multinomial(300, replacement=True).realize()
        found.append((drawn.tolist(), GlobalCounters.global_ops))
    assert found[0][0] == found[1][0]
    assert np.take_along_axis(x, np.array(found[0][0]), -1).all()
    if shape == (700,):
        assert found[1][1] < found[0][1] / 3
