"""PROVE=1 on whole training steps: every kernel of a CNN, an MLP and a block of attention, none unknown."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from proofgrad import Context, Tensor, nn
from proofgrad.core.compile.plan.known_kernels import KnownKernels
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.nn import optim, state
from proofgrad.verify.kernels.proof import KernelProver

Model = Callable[[Tensor], Tensor]

# Tiles that reach over the edges of a small image, their operands in tables.
ASKED = "tiled=on tile=3x3x2 blocks=2x3 staged=rows+columns depth=4"


@pytest.fixture
def prover(monkeypatch: pytest.MonkeyPatch) -> KernelProver:
    """Sees every kernel that is compiled from here on."""
    made = KernelProver()
    monkeypatch.setattr(compiler(), "kernel_check", made)
    monkeypatch.setattr(compiler(), "_kernels", KnownKernels(999))
    monkeypatch.setattr(compiler(), "_plans", {})
    return made


def step(layers: list[Model], x: Tensor, labels: Tensor) -> None:
    """One step of Adam, weights drawn in it."""
    parameters = state.get_parameters(layers)
    optimizer = optim.Adam(parameters, lr=1e-3)
    with Tensor.train():
        loss = x.sequential(layers).sparse_categorical_crossentropy(labels).backward()
        Tensor.realize(loss, *optimizer.schedule_step())


def attention(width: int = 32, heads: int = 2) -> Model:
    """A layer norm, causal attention and a product after it, with a residual."""
    norm, inputs, output = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def block(x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = inputs(norm(x)).chunk(3, dim=-1)
        query, key, value = [p.reshape(batch, length, heads, -1).transpose(1, 2) for p in parts]
        seen = query.scaled_dot_product_attention(key, value, is_causal=True)
        return x + output(seen.transpose(1, 2).reshape(batch, length, width)).gelu()

    return block


def values(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


@pytest.mark.long
def test_step_of_a_small_cnn_is_proven(prover: KernelProver) -> None:
    layers = [
        nn.Conv2d(1, 4, 5), Tensor.relu, nn.Conv2d(4, 4, 3), Tensor.relu, nn.BatchNorm(4), Tensor.max_pool2d,
        lambda x: x.flatten(1), nn.Linear(100, 10),
    ]  # fmt: skip
    with Context(PROVE=1):
        step(layers, values(8, 1, 16, 16), Tensor([1, 2, 3, 4, 5, 6, 7, 8]))
    assert prover.total.kernels > 20
    assert "none unknown" in prover.summary()


@pytest.mark.long
def test_step_of_a_small_mlp_is_proven(prover: KernelProver) -> None:
    layers = [nn.Linear(20, 32), Tensor.relu, nn.Linear(32, 10)]
    with Context(PROVE=1):
        step(layers, values(8, 20), Tensor([1, 2, 3, 4, 5, 6, 7, 8]))
    assert prover.total.kernels > 10
    assert "none unknown" in prover.summary()


@pytest.mark.long
def test_gradient_of_a_small_attention_block_is_proven(prover: KernelProver) -> None:
    with Context(PROVE=1):
        x = values(2, 12, 32)
        attention()(x).square().sum().gradient(x)[0].realize()
    assert prover.total.kernels > 5
    assert "none unknown" in prover.summary()


def test_gradient_of_a_convolution_in_tiles_over_the_edge_is_proven(prover: KernelProver) -> None:
    """Its stored position holds a remainder of a quotient, beside rows that a mask turns off."""
    image, weight, g = values(2, 8, 10, 10), values(8, 8, 5, 5), values(2, 8, 6, 6)
    with Context(PROVE=1, CHOICES=ASKED):
        (image.conv2d(weight) * g).sum().gradient(image)[0].realize()
    assert "none unknown" in prover.summary()


def test_convolution_in_steps_with_its_image_in_a_table_is_proven(prover: KernelProver) -> None:
    """Every other column is read from a table, under a mask outside of which the position is none of its own."""
    image, weight = values(2, 8, 7, 7), values(4, 8, 1, 1)
    with Context(PROVE=1, CHOICES="tiled=on tile=4x3x1 blocks=1x1 staged=rows+columns depth=2"):
        image.conv2d(weight, stride=2).realize()
    assert "none unknown" in prover.summary()
