"""Optimisers, learning-rate schedules and clipping: what happens to parameters between steps.

Owns: the names under `proofgrad.nn.optim`.
"""

from __future__ import annotations

from proofgrad.nn.optim.adagrad import Adagrad
from proofgrad.nn.optim.adam import LAMB, Adam, AdamW
from proofgrad.nn.optim.clipping import clip_grad_norm_, clip_grad_value_
from proofgrad.nn.optim.optimizer import Optimizer, OptimizerGroup
from proofgrad.nn.optim.rmsprop import RMSprop
from proofgrad.nn.optim.schedules import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearWarmup,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)
from proofgrad.nn.optim.sgd import LARS, SGD, Muon

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearWarmup",
    "MultiStepLR",
    "Muon",
    "OneCycleLR",
    "Optimizer",
    "OptimizerGroup",
    "RMSprop",
    "ReduceLROnPlateau",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
]
