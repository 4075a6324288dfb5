"""Mistakes that would pass in silence, or with words that help nobody: each gives an error or a warning that says what is meant."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, DtypeError, Tensor, nn
from proofgrad.core.tensor.methods.nn import modes
from proofgrad.nn.optim import SGD, Adam
from proofgrad.nn.state import get_parameters, safe_save

X = Tensor([1.0, 2.0, 3.0])
SCORES = Tensor.ones(2, 3)
LAYER = nn.Linear(2, 3)
ONE_BY_EIGHT, EIGHT = Tensor.ones(8, 1), Tensor.ones(8)


def _int_written(index: Any, value: Any) -> None:
    x = Tensor([1, 2])
    x[index] = value


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "an index beyond the end": (lambda: X[[5]], IndexError, r"index 5 .* axis 0 of \(3,\)"),
    "an array beyond the end": (lambda: X[np.array([5])], IndexError, r"index 5 .* axis 0 of \(3,\)"),
    "a Tensor beyond the end": (lambda: X[Tensor([5])], IndexError, r"index 5 .* \(1,\) in a Tensor"),
    "a label that is no class": (
        lambda: SCORES.sparse_categorical_crossentropy(Tensor([7, 1])),
        IndexError,
        "label 7 of 3 classes: labels are 0 to 2",
    ),
    "a label that is no class of cross_entropy": (
        lambda: SCORES.cross_entropy(Tensor([0, 3])),
        IndexError,
        "label 3 of 3 classes",
    ),
    "a setting that there is not": (
        lambda: Context(DEBGU=2).__enter__(),
        KeyError,
        "DEBGU is no setting; is DEBUG meant",
    ),
    "a float for an int": (lambda: _int_written(0, 1.5), DtypeError, "cannot assign 1.5 to dtypes.int"),
    "floats for ints": (
        lambda: _int_written(slice(None), [1.0, 2.5]),
        DtypeError,
        "cannot assign 2.5 to dtypes.int, which would cut it; cast the Tensor",
    ),
    "floats assigned to ints": (
        lambda: Tensor([1, 2]).assign([1.5, 2.0]),
        DtypeError,
        "cannot assign 1.5 to dtypes.int",
    ),
    "NaN for an int": (lambda: _int_written(1, float("nan")), DtypeError, "cannot assign nan"),
    "a Tensor of floats for ints": (
        lambda: Tensor([1, 2]).assign(Tensor([1.0, 2.0])),
        DtypeError,
        "cannot assign dtypes.float to dtypes.int; cast it first",
    ),
    "a model for an optimizer": (lambda: SGD(LAYER), TypeError, "takes a list of Tensors, not Linear"),  # type: ignore[arg-type]
    "layers for an optimizer": (
        lambda: SGD([LAYER.weight, LAYER]),  # type: ignore[list-item]
        TypeError,
        r"number 1 of it is Linear\(.*see nn.state.get_parameters",
    ),
    "a model that is saved": (
        lambda: safe_save(LAYER, "never.safetensors"),  # type: ignore[arg-type]
        TypeError,
        "takes Tensors by name, not Linear; see get_state_dict",
    ),
    "dim of a sum": (lambda: X.sum(dim=0), TypeError, r"sum\(\) takes axis=, not dim="),  # type: ignore[call-arg]
    "dim of a running sum": (lambda: X.cumsum(dim=0), TypeError, r"cumsum\(\) takes axis=, not dim="),  # type: ignore[call-arg]
    "axis of cat": (lambda: X.cat(X, axis=0), TypeError, r"cat\(\) takes dim=, not axis="),  # type: ignore[call-arg]
    "axis of sort": (lambda: X.sort(axis=0), TypeError, r"sort\(\) takes dim=, not axis="),  # type: ignore[call-arg]
    "keepdims": (lambda: X.sum(0, keepdims=True), TypeError, "takes keepdim=, not keepdims="),  # type: ignore[call-arg]
    ".cuda()": (lambda: X.cuda(), AttributeError, r"use x.to\('CUDA'\)"),  # type: ignore[attr-defined]
    ".parameters()": (lambda: LAYER.parameters(), AttributeError, "nn.state.get_parameters"),  # type: ignore[attr-defined]
    "nn.Module": (lambda: nn.Module, AttributeError, "there is no base class"),
    "nn.CrossEntropyLoss": (lambda: nn.CrossEntropyLoss, AttributeError, r"scores.cross_entropy\(labels\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_a_mistake_raises_and_says_what_is_meant(name: str) -> None:
    mistake, kind, words = ERRORS[name]
    with pytest.raises(kind, match=words):
        mistake()


LOSSES: dict[str, Callable[[], Any]] = {
    "mse_loss": lambda: ONE_BY_EIGHT.mse_loss(EIGHT),
    "l1_loss": lambda: ONE_BY_EIGHT.l1_loss(EIGHT),
    "huber_loss": lambda: ONE_BY_EIGHT.huber_loss(EIGHT),
    "smooth_l1_loss": lambda: ONE_BY_EIGHT.smooth_l1_loss(EIGHT),
    "kl_div": lambda: ONE_BY_EIGHT.kl_div(EIGHT),
    "binary_crossentropy": lambda: ONE_BY_EIGHT.binary_crossentropy(EIGHT),
    "binary_crossentropy_logits": lambda: ONE_BY_EIGHT.binary_crossentropy_logits(EIGHT),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_two_shapes_warns(name: str) -> None:
    with pytest.warns(UserWarning, match=rf"{name} of \(8, 1\) and \(8,\): they are broadcast"):
        LOSSES[name]()


def test_a_step_without_gradients_warns() -> None:
    with pytest.warns(
        UserWarning, match=r"SGD.step\(\) changes nothing: no parameter has a gradient"
    ):
        SGD([Tensor([1.0])]).step()


UNTRAINED: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "the method": ("Dropout", lambda x: x.dropout(0.5)),
    "the layer": ("Dropout", nn.Dropout(0.5)),
    "batch norm": ("BatchNorm", nn.BatchNorm(3)),
}


@pytest.mark.parametrize("name", UNTRAINED)
def test_training_that_was_not_said_warns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "_SEEN", modes._Seen())
    said, layer = UNTRAINED[name]
    optimizer = SGD(get_parameters(LAYER), lr=0.0)
    layer(LAYER(Tensor.ones(4, 2))).sum().backward()
    with pytest.warns(UserWarning, match=f"SGD takes a step, and {said} ran as in evaluation"):
        optimizer.step()


def test_a_step_after_training_and_evaluation_warns_of_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(modes, "_SEEN", modes._Seen())
    optimizer = SGD(get_parameters(LAYER), lr=0.0)
    LAYER(Tensor.ones(4, 2)).dropout(0.5).realize()
    with Tensor.train():
        LAYER(Tensor.ones(4, 2)).dropout(0.5).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


def test_whole_numbers_and_true_are_written_to_ints() -> None:
    x = Tensor([1, 2, 3])
    x[0], x[1:] = 4.0, [5.0, True]
    assert x.tolist() == [4, 5, 1]
    flags = Tensor([False, False])
    flags[0] = 0.5
    assert flags.tolist() == [True, False]


def test_types_of_numpy_and_betas_of_torch_are_taken(tmp_path: Path) -> None:
    assert Tensor([1, 2], dtype=np.float32).dtype.is_float  # type: ignore[arg-type]
    assert repr(Adam([Tensor([1.0])], betas=(0.8, 0.9))).startswith("Adam(lr=0.001, b1=0.8, b2=0.9")
    safe_save(nn.state.get_state_dict(LAYER), tmp_path / "x.safetensors")
