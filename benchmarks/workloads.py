"""Programs that benchmarks time: a product, a block of GPT-2, training steps of an MLP and of a CNN.

Each is a function without arguments that makes its data and parameters and returns another one, the
call that is timed. Does not own: timing.
"""

from __future__ import annotations

from collections.abc import Callable

from proofgrad import Tensor, nn
from proofgrad.nn import optim, state

Call = Callable[[], object]
Model = Callable[[Tensor], Tensor]


def product() -> Call:
    """512x512 @ 512x512."""
    a, b = Tensor.randn(512, 512).realize(), Tensor.randn(512, 512).realize()
    return lambda: (a @ b).realize()


class Block:
    """A transformer block of the sizes of GPT-2 small, before its activations' dropout."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        parts = self.inputs(self.first_norm(x)).chunk(3, dim=-1)
        query, key, value = [part.reshape(*split).permute(0, 2, 1, 3) for part in parts]
        seen = query.scaled_dot_product_attention(key, value, is_causal=True)
        x = x + self.output(seen.permute(0, 2, 1, 3).reshape(batch, length, width))
        return x + self.down(self.up(self.second_norm(x)).gelu())


def gpt_block() -> Call:
    """One block over 256 tokens."""
    block, x = Block(), Tensor.randn(1, 256, 768).realize()
    Tensor.realize(*state.get_parameters(block))
    return lambda: block(x).realize()


def _trainer(layers: list[Model], x: Tensor) -> Call:
    """A step of Adam on random labels of ten classes."""
    labels = Tensor.randint(x.shape[0], low=0, high=10).realize()
    parameters = state.get_parameters(layers)
    Tensor.realize(x, *parameters)
    optimizer = optim.Adam(parameters, lr=1e-3)

    def step() -> object:
        with Tensor.train():
            optimizer.zero_grad()
            loss = x.sequential(layers).sparse_categorical_crossentropy(labels).backward()
            return loss.realize(*optimizer.schedule_step())

    return step


def mlp_step() -> Call:
    """784 -> 512 -> 512 -> 10, 128 rows."""
    layers = [
        nn.Linear(784, 512),
        Tensor.relu,
        nn.Linear(512, 512),
        Tensor.relu,
        nn.Linear(512, 10),
    ]
    return _trainer(layers, Tensor.randn(128, 784))


def cnn_step() -> Call:
    """Four convolutions on 64 images of 28x28, as for MNIST."""
    layers = [
        nn.Conv2d(1, 32, 5), Tensor.relu, nn.Conv2d(32, 32, 5), Tensor.relu, nn.BatchNorm(32), Tensor.max_pool2d,
        nn.Conv2d(32, 64, 3), Tensor.relu, nn.Conv2d(64, 64, 3), Tensor.relu, nn.BatchNorm(64), Tensor.max_pool2d,
        lambda x: x.flatten(1), nn.Linear(576, 10),
    ]  # fmt: skip
    return _trainer(layers, Tensor.randn(64, 1, 28, 28))
