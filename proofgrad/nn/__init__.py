"""Layers, optimisers, the state of models, data sets.

Owns: the names under `proofgrad.nn`. A model is any object with Tensors and layers as attributes;
there is no base class.
"""

from __future__ import annotations

from proofgrad.nn import datasets, optim, state
from proofgrad.nn.attention import MultiheadAttention
from proofgrad.nn.functions import (
    ELU,
    GELU,
    AvgPool2d,
    Flatten,
    Identity,
    LeakyReLU,
    LogSoftmax,
    MaxPool2d,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from proofgrad.nn.layers import (
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
    Dropout,
    Embedding,
    Linear,
    Sequential,
)
from proofgrad.nn.normalization import (
    BatchNorm,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
)
from proofgrad.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell

__all__ = [
    "AvgPool2d",
    "ELU",
    "Flatten",
    "GELU",
    "Identity",
    "LeakyReLU",
    "LogSoftmax",
    "MaxPool2d",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "BatchNorm",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Dropout",
    "Embedding",
    "GRU",
    "GRUCell",
    "GroupNorm",
    "InstanceNorm",
    "LSTM",
    "LSTMCell",
    "LayerNorm",
    "LayerNorm2d",
    "Linear",
    "MultiheadAttention",
    "RMSNorm",
    "RNN",
    "RNNCell",
    "Sequential",
    "datasets",
    "optim",
    "state",
]
