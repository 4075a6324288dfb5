"""Tiles and vectors of WebGPU, whose lanes are written out: the text, values, mistakes in the printer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from devices import opened
from proven import fully_proved

from proofgrad import Context, Device, Tensor, schedule
from proofgrad.backends.webgpu.runtime import WebGPUBackend
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> WebGPUBackend:
    found = Device[opened("WEBGPU")]
    assert isinstance(found, WebGPUBackend)
    monkeypatch.setenv("PLANS", "0")
    compiler().forget()
    return found


def given(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (Tensor(x, device="WEBGPU") @ Tensor(y, device="WEBGPU")).numpy()


def printed(machine: WebGPUBackend, monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    """What is printed from now on."""
    made: list[Source] = []
    usual = machine.emit

    def emit(linear: UOp, name: str) -> Source:
        made.append(usual(linear, name))
        return made[-1]

    monkeypatch.setattr(machine, "emit", emit)
    return made


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("shape", [(33, 17, 70), (5, 130, 3)])
@pytest.mark.usefixtures("machine")
def test_product_of_any_size_is_as_numpy_says(shape: tuple[int, int, int], dtype: str) -> None:
    x, y = given(*shape[:2], dtype=dtype), given(*shape[1:], dtype=dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(product(x, y), x @ y)


def test_exponentials_of_a_tile_are_products_and_sums(
    machine: WebGPUBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product and a sum that are rounded once are 60 lines, in each place, for a driver: 20 exponentials took 9 s to compile."""
    made = printed(machine, monkeypatch)
    q, k, v = [
        np.random.default_rng(n).standard_normal((1, 66, 20)).astype("float32") for n in range(3)
    ]
    scores = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(20))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    on = [Tensor(x, device="WEBGPU") for x in (q, k, v)]
    np.testing.assert_allclose(
        on[0].scaled_dot_product_attention(*on[1:]).numpy(), wanted, rtol=2e-5, atol=1e-6
    )
    assert made and all(["fused(" not in source.text for source in made])


@pytest.mark.usefixtures("machine")
def test_lanes_of_loads_masks_and_stores_are_each_where_they_belong() -> None:
    x = given(9, 37, dtype="int16")
    got = Tensor(x, device="WEBGPU").realize()
    np.testing.assert_array_equal((got.T + 1).contiguous().numpy(), x.T + 1)
    np.testing.assert_array_equal(got.flip(1).pad(((0, 0), (1, 3))).numpy()[:, 1:38], x[:, ::-1])
    np.testing.assert_array_equal((got[:, ::3] > 0).numpy(), x[:, ::3] > 0)
    np.testing.assert_array_equal(got.max(1).numpy(), x.max(1))


def test_items_of_a_gpu_multiply_from_memory_of_their_group(
    machine: WebGPUBackend, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "target", replace(machine.target, lockstep=32))
    made, x, y = printed(machine, monkeypatch), given(32, 32), given(32, 32)
    with schedule("shared=8x8x16 tile=4x1x4"), fully_proved(capfd, "waits of groups"):
        np.testing.assert_array_equal(product(x, y), x @ y)
    assert made[-1].text.count("var<workgroup>") == made[-1].text.count("workgroupBarrier();") == 2


@pytest.mark.parametrize("ahead", [1, 2])
def test_blocks_that_are_copied_ahead_give_the_same_sums(
    ahead: int, machine: WebGPUBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "target", replace(machine.target, lockstep=32))
    made, x, y = printed(machine, monkeypatch), given(33, 70), given(70, 65)
    with schedule(f"shared=8x8x16 tile=4x1x4 ahead={ahead}"):
        np.testing.assert_array_equal(product(x, y), x @ y)
    assert f"= select(i32({ahead}), i32(0), " in made[-1].text


FAULTS = {"all lanes are the first": (" + 1u]", "]"), "lanes lie one further on": (" + 1u]", " + 2u]")}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_mistake_in_the_printer_gives_other_values(
    fault: str, machine: WebGPUBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = FAULTS[fault]
    usual = machine.emit

    def emit_wrong(linear: UOp, name: str) -> Source:
        source = usual(linear, name)
        return replace(source, text=source.text.replace(before, after))

    monkeypatch.setattr(machine, "emit", emit_wrong)
    x, y = given(16, 16), given(16, 16)
    with Context(PLANS=0):
        assert not (product(x, y) == x @ y).all()
    compiler().forget()
