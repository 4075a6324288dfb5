"""The workloads in PyTorch, as its users write them; or as torch.compile makes them."""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch
import torch.nn.functional as F
from peer_workloads import Workload, arrays
from side_by_side import Run
from torch import nn

HEADS = 12


def compiled_run_of(workload: Workload) -> Run:
    """The same call, compiled. Raises: NotImplementedError for training, and where no C++ compiler is installed."""
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        raise NotImplementedError("torch.compile needs a C++ compiler")
    if workload.kind.startswith("train") or workload.kind in ("embedding_gradient", "eager"):
        raise NotImplementedError(f"{workload.name} is asked of torch without a compiler alone")
    compiled: Run = torch.compile(run_of(workload), dynamic=False)
    return compiled


def run_of(workload: Workload) -> Run:
    """A call on the arrays of the workload, without gradients where none are asked."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.set_grad_enabled(workload.kind.startswith("train") or workload.kind.endswith("gradient"))
    given = [torch.from_numpy(array) for array in arrays(workload)]
    one, other = (*given, None)[:2]
    match workload.kind:
        case "product" | "batch":
            return lambda: one @ other
        case "turned_a":
            return lambda: one.T @ other
        case "turned_b":
            return lambda: one @ other.T
        case "elementwise":
            return lambda: (one * 2 + 1).relu() * one - 3
        case "gelu":
            return lambda: F.gelu(one, approximate="tanh")
        case "softmax":
            return lambda: one.softmax(-1)
        case "layernorm":
            return lambda: F.layer_norm(one, one.shape[-1:])
        case "transpose":
            return lambda: one.T.contiguous()
        case "sum":
            return lambda: one.sum()
        case "sum_axis0":
            return lambda: one.sum(0)
        case "embedding":
            positions = other.long()
            return lambda: one[positions]
        case "embedding_gradient":
            positions = other.long()
            one.requires_grad_()
            return lambda: torch.autograd.grad(F.embedding(positions, one), one, given[2])
        case "convolution":
            *_, window, stride = workload.sizes
            return lambda: F.conv2d(one, other, stride=stride, padding=window // 2)
        case "attention" | "causal" as kind:
            return lambda: F.scaled_dot_product_attention(*given, is_causal=kind == "causal")
        case "train_mlp":
            return _trainer(_mlp(), one, other)
        case "train_cnn":
            return _trainer(_cnn(), one, other)
        case "block":
            block = Block()
            return lambda: block(one)
        case "eager":
            return lambda: one + 1
        case "jitted":
            return lambda: ((one + 1) * 2).relu()
        case "ten":
            return lambda: _ten(one)
    raise NotImplementedError(f"{workload.name} is not written for torch")


def _mlp() -> nn.Module:
    first, second, third = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)


def _cnn() -> nn.Module:
    half = [nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32)]
    rest = [nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64)]
    end = [nn.Flatten(1), nn.Linear(576, 10)]
    return nn.Sequential(*half, nn.MaxPool2d(2), *rest, nn.MaxPool2d(2), *end)


def _trainer(model: nn.Module, x: Any, labels: Any) -> Run:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    labels = labels.long()

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()

    return step


class Block(nn.Module):
    """A block of GPT-2: attention and two layers, each after a norm."""

    def __init__(self, width: int = 768) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = [p.reshape(batch, tokens, HEADS, -1).permute(0, 2, 1, 3) for p in parts]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.permute(0, 2, 1, 3).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


def _ten(x: Any) -> Any:
    for _ in range(10):
        x = x @ x
    return x
