"""Layers, optimisers, the state of models, data sets.

Owns: the names under `proofgrad.nn`. A model is any object with Tensors and layers as attributes;
there is no base class.
"""

from __future__ import annotations

from typing import Any

from proofgrad.nn import datasets, optim, state
from proofgrad.nn.attention import MultiheadAttention
from proofgrad.nn.functions import (
    CELU,
    ELU,
    GELU,
    SELU,
    Flatten,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    Identity,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
    Unflatten,
    Upsample,
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
from proofgrad.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)
from proofgrad.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "CELU",
    "ELU",
    "Flatten",
    "GELU",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "Identity",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
    "Unflatten",
    "Upsample",
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

_BY_ANOTHER_NAME = {
    "Module": "there is no base class: any object with Tensors and layers as attributes is a model",
    "Parameter": "a Tensor that is an attribute of a model is a parameter",
    "ParameterList": "a list of Tensors is one",
    "ModuleList": "a list of layers is one",
    "ModuleDict": "a dict of layers is one",
    "functional": "these are methods of Tensor: x.relu(), x.softmax(-1), scores.cross_entropy(labels)",
    "init": "see Tensor.uniform, Tensor.kaiming_uniform, Tensor.glorot_uniform",
    "CrossEntropyLoss": "scores.cross_entropy(labels)",
    "NLLLoss": "scores.nll_loss(labels)",
    "MSELoss": "x.mse_loss(y)",
    "L1Loss": "x.l1_loss(y)",
    "HuberLoss": "x.huber_loss(y)",
    "SmoothL1Loss": "x.smooth_l1_loss(y)",
    "KLDivLoss": "x.kl_div(y)",
    "BCELoss": "p.binary_crossentropy(y)",
    "BCEWithLogitsLoss": "x.binary_crossentropy_logits(y)",
    "BatchNorm1d": "nn.BatchNorm, for any number of axes",
    "TransformerEncoderLayer": "nn.MultiheadAttention, nn.LayerNorm and nn.Linear, in a class of some lines",
    "DataLoader": "nn.datasets.Batches(x, y, size=64, workers=2)",
    "Conv3d": "nn.Conv2d with a kernel_size of three numbers",
    "ConvTranspose3d": "nn.ConvTranspose2d with a kernel_size of three numbers",
    "InstanceNorm1d": "nn.InstanceNorm, for any number of axes",
    "InstanceNorm2d": "nn.InstanceNorm, for any number of axes",
    "InstanceNorm3d": "nn.InstanceNorm, for any number of axes",
    "ZeroPad2d": "x.pad((left, right, top, bottom))",
    "ConstantPad2d": "x.pad((left, right, top, bottom), value=v)",
    "ReflectionPad2d": "x.pad((left, right, top, bottom), mode='reflect')",
    "ReplicationPad2d": "x.pad((left, right, top, bottom), mode='replicate')",
    "CircularPad2d": "x.pad((left, right, top, bottom), mode='circular')",
    "PixelShuffle": "x.rearrange('b (c p q) h w -> b c (h p) (w q)', p=2, q=2)",
    "CosineSimilarity": "(x.normalize(dim=1) * y.normalize(dim=1)).sum(1)",
    "PairwiseDistance": "(x - y).norm(dim=-1)",
    "ParameterDict": "a dict of Tensors is one",
    "Softmin": "x.softmin(-1)",
    "Unfold": "x.unfold(axis, size, step) for each axis",
    "GLU": "a, b = x.chunk(2, -1); a * b.sigmoid()",
    "Dropout2d": "nn.Dropout",
}


def __getattr__(name: str) -> Any:
    """What other packages have here under this name. Raises: AttributeError."""
    if name in optim.__all__:
        raise AttributeError(f"proofgrad.nn has no {name}; it is nn.optim.{name}")
    told = _BY_ANOTHER_NAME.get(name)
    if told is None:
        import difflib

        near = difflib.get_close_matches(name, __all__, n=2)
        told = f"did you mean {' or '.join(near)}?" if near else "see docs/nn.md for what there is"
    raise AttributeError(f"proofgrad.nn has no {name}: {told}")
