"""Programs that benchmarks time: a product, a block of GPT-2, training steps of an MLP, a CNN, a ResNet-50, a U-Net and an LSTM.

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


class Bottleneck:
    """A block of ResNet-50: convolutions of 1, 3 and 1, beside what it is given."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        self.layers = [
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm(width), Tensor.relu,
            nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False), nn.BatchNorm(width), Tensor.relu,
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm(4 * width),
        ]  # fmt: skip
        self.beside: list[Model] = []
        if channels != 4 * width:
            convolution = nn.Conv2d(channels, 4 * width, 1, stride=stride, bias=False)
            self.beside = [convolution, nn.BatchNorm(4 * width)]

    def __call__(self, x: Tensor) -> Tensor:
        return (x.sequential(self.layers) + x.sequential(self.beside)).relu()


def resnet_step() -> Call:
    """ResNet-50 on 4 images of 64x64."""
    layers: list[Model] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm(64), Tensor.relu,
        lambda x: x.max_pool2d((3, 3), stride=2, padding=1),
    ]  # fmt: skip
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(blocks):
            layers.append(Bottleneck(channels, width, stride if k == 0 else 1))
            channels = 4 * width
    layers += [lambda x: x.mean((2, 3)), nn.Linear(channels, 10)]
    return _trainer(layers, Tensor.randn(4, 3, 64, 64))


class UNet:
    """Two convolutions at each of four sizes on the way down, and again on the way up, beside what was there."""

    def __init__(self, width: int = 16, depth: int = 4) -> None:
        widths = [width << k for k in range(depth + 1)]
        self.down = [self._two(a, b) for a, b in zip([3, *widths[:-1]], widths)]
        self.larger = [nn.ConvTranspose2d(2 * n, n, 2, stride=2) for n in widths[-2::-1]]
        self.up = [self._two(2 * n, n) for n in widths[-2::-1]]

    def _two(self, channels: int, width: int) -> list[Model]:
        return [layer for n in (channels, width)
                for layer in (nn.Conv2d(n, width, 3, padding=1, bias=False), nn.BatchNorm(width), Tensor.relu)]  # fmt: skip

    def __call__(self, x: Tensor) -> Tensor:
        seen: list[Tensor] = []
        for k, layers in enumerate(self.down):
            x = (x.max_pool2d() if k else x).sequential(layers)
            seen.append(x)
        for larger, layers, beside in zip(self.larger, self.up, seen[-2::-1]):
            x = beside.cat(larger(x), dim=1).sequential(layers)
        return x


def unet_step() -> Call:
    """A U-Net on 2 images of 64x64."""
    layers: list[Model] = [UNet(), lambda x: x.mean((2, 3)), nn.Linear(16, 10)]
    return _trainer(layers, Tensor.randn(2, 3, 64, 64))


class Steps:
    """An LSTM cell, step by step; its last state."""

    def __init__(self, features: int, width: int) -> None:
        self.cell = nn.LSTMCell(features, width)

    def __call__(self, x: Tensor) -> Tensor:
        h = c = Tensor.zeros(x.shape[0], self.cell.hidden_size)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return h


def lstm_step(steps: int = 64) -> Call:
    """64 steps of 16 sequences."""
    return _trainer([Steps(32, 64), nn.Linear(64, 10)], Tensor.randn(16, steps, 32))
