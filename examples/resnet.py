"""ResNet-18 (He et al., 2015), forward: layers, blocks and shortcuts in one screen.

Run: python examples/resnet.py

`nn` is a parameter, so that any module with Conv2d, BatchNorm and Linear can stand behind the model.
"""

from __future__ import annotations

from math import prod
from typing import Any

import proofgrad.nn
from proofgrad import Tensor
from proofgrad.nn.state import get_state_dict

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block
BLOCKS = 2


class Block:
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, nn: Any, before: int, channels: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm(channels)
        self.shortcut: list[Any] = []
        if stride != 1 or before != channels:
            narrow = nn.Conv2d(before, channels, 1, stride=stride, bias=False)
            self.shortcut = [narrow, nn.BatchNorm(channels)]

    def __call__(self, x: Any) -> Any:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y))
        for layer in self.shortcut:
            x = layer(x)
        return (y + x).relu()


class ResNet18:
    """Images (n, 3, h, w) to scores (n, classes)."""

    def __init__(self, nn: Any = proofgrad.nn, classes: int = 1000) -> None:
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm(64)
        self.blocks: list[Block] = []
        before = 64
        for channels, stride in STAGES:
            for block in range(BLOCKS):
                self.blocks.append(Block(nn, before, channels, 1 if block else stride))
                before = channels
        self.fc = nn.Linear(before, classes)

    def __call__(self, x: Any) -> Any:
        x = self.bn1(self.conv1(x)).relu().pad((1, 1, 1, 1)).max_pool2d((3, 3), stride=2)
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))


def main() -> None:
    """Scores of one small random image, by weights that have seen nothing."""
    Tensor.manual_seed(0)
    model = ResNet18(classes=10)
    trained = [w for name, w in get_state_dict(model).items() if name.endswith(("weight", "bias"))]
    scores = model(Tensor.randn(1, 3, 32, 32))
    print(f"{sum(prod(w.shape) for w in trained)} weights, scores {scores.shape}")
    print("finite" if all(abs(score) < 1e6 for score in scores[0].tolist()) else "not finite")


if __name__ == "__main__":
    main()
