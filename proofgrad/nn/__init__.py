"""Layers, optimisers, and the state of models.

Owns: the names under `proofgrad.nn`. A model is any object with Tensors and layers as attributes;
there is no base class.
"""

from __future__ import annotations

from proofgrad.nn import optim, state
from proofgrad.nn.layers import (
    BatchNorm,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    Embedding,
    LayerNorm,
    Linear,
    RMSNorm,
)

__all__ = [
    "BatchNorm",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "Embedding",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "optim",
    "state",
]
