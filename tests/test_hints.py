"""What says what to do: missing names, labels that are no class, steps that change nothing, layers that print themselves."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import numpy as np
import pytest

from proofgrad import DeviceError, Tensor, TinyJit, dtypes, nn
from proofgrad.core.tensor.data.errors import AxisError
from proofgrad.core.tensor.methods import hints
from proofgrad.core.tensor.methods.hints import INSTEAD
from proofgrad.core.tensor.methods.nn import modes


def test_a_missing_method_says_what_does_the_same() -> None:
    x = Tensor([1.0])
    for name in INSTEAD:
        with pytest.raises(AttributeError, match="; use "):
            getattr(x, name)
    with pytest.raises(AttributeError, match="did you mean reshape"):
        x.reshap  # noqa: B018
    with pytest.raises(AttributeError, match=r"use x\.assign\(x\.masked_fill\(\.\.\.\)\)"):
        x.masked_fill_(x > 0, 0)
    assert not hasattr(x, "nonsense_of_no_kind") and copy.deepcopy(x).tolist() == [1.0]


def test_names_that_are_near_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        hints.difflib, "get_close_matches", lambda name, *_, **__: asked.append(name) or []
    )
    x = Tensor([1.0])
    assert not any([hasattr(x, "asked_for_again_and_again") for _ in range(3)])
    assert asked == ["asked_for_again_and_again"]


@pytest.mark.parametrize("name", ["atan2", "hypot", "logit", "sinc", "erfc", "frac", "xlogy", "heaviside", "floor_divide", "remainder", "true_divide", "nanmean", "cov", "cdist"])  # fmt: skip
def test_what_to_use_gives_what_torch_gives(name: str) -> None:
    torch = pytest.importorskip("torch")
    values = {
        "x": [[0.3, 0.7, 0.0], [0.9, 0.25, 0.5]] if name == "logit" else [[-1.5, 0.0, 2.25], [3.5, -0.25, 1.0]],
        "y": [[2.0, 0.5, 1.5], [0.75, 3.0, 0.125]] if name == "xlogy" else [[2.0, -0.5, 1.5], [-0.75, 3.0, -4.0]],
    }  # fmt: skip
    x, y = [torch.tensor(part) for part in values.values()]
    method = getattr(x, name, None) or getattr(torch, name)
    takes_two = "y" in INSTEAD[name].replace("y()", "")
    args = [*([] if hasattr(x, name) else [x]), *([y] if takes_two else [])]
    names = {"pi": math.pi, **{key: Tensor(part) for key, part in values.items()}}
    found = eval(INSTEAD[name], names)  # noqa: S307
    np.testing.assert_allclose(found.numpy(), method(*args).numpy(), rtol=1e-5, atol=1e-6)


def test_a_name_that_the_class_lacks_says_what_does_the_same() -> None:
    with pytest.raises(AttributeError, match=r"type object 'Tensor' .* 'vstack'; use Tensor\.cat"):
        Tensor.vstack  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean zeros"):
        Tensor.zeross  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(Tensor, "__nonsense__")


def test_bounds_by_names_of_torch_are_told_the_names_here() -> None:
    for option in ("min", "max"):
        for method in (Tensor([1.0]).clamp, Tensor([1.0]).clip):
            with pytest.raises(TypeError, match=f"takes {option}_=, not {option}="):
                method(**{option: 0})  # type: ignore[arg-type]


def test_a_type_as_a_device_says_cast() -> None:
    with pytest.raises(DeviceError, match=r"is a type, not a device: x\.cast\(dtypes\.float16"):
        Tensor([1.0]).to(dtypes.float16)  # type: ignore[arg-type]


def test_a_missing_layer_says_what_there_is() -> None:
    for name, said in {"LSMT": "LSTM", "Adam": "nn.optim.Adam", "Module": "no base class", "MSELoss": "mse_loss"}.items():  # fmt: skip
        with pytest.raises(AttributeError, match=said):
            getattr(nn, name)


def test_axis_errors_are_those_of_indices_and_of_values() -> None:
    for error in (IndexError, ValueError, AxisError):
        with pytest.raises(error, match="no axis 5"):
            Tensor.ones(3).sum(5)


@pytest.mark.parametrize("labels", [[0, 7, 1], [0, -1, 2]])
def test_a_label_that_is_no_class_is_refused(labels: list[int]) -> None:
    scores = Tensor.rand(3, 3)
    for given in (Tensor(labels), Tensor(labels).realize(), Tensor([0, *labels]).realize()[1:]):
        with pytest.raises(IndexError, match=f"label {labels[1]} of 3 classes"):
            scores.cross_entropy(given)
    wrong = labels[1]
    ignored = scores.sparse_categorical_crossentropy(Tensor(labels), ignore_index=wrong)
    assert ignored.item() == ignored.item()
    some = scores.log_softmax().nll_loss(Tensor(labels), ignore_index=wrong)
    assert some.item() == pytest.approx(ignored.item())


def test_labels_of_a_recorded_function_are_not_looked_at() -> None:
    step = TinyJit(lambda x, y: x.cross_entropy(y).realize())
    for k in range(4):
        assert step(Tensor.rand(3, 4).realize(), Tensor([0, k, 3]).realize()).item() > 0


def test_a_step_without_gradients_warns() -> None:
    optimizer = nn.optim.SGD([Tensor([1.0])])
    with pytest.warns(UserWarning, match="no parameter has a gradient"):
        optimizer.step()


def test_training_that_was_not_said_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "_SEEN", modes._Seen())
    layer, drop = nn.Linear(3, 2), nn.Dropout(0.1)
    optimizer = nn.optim.SGD(nn.state.get_parameters(layer))

    def step() -> None:
        drop(layer(Tensor.ones(1, 3))).sum().backward()
        optimizer.step()

    with Tensor.train(), warnings.catch_warnings():
        warnings.simplefilter("error")
        step()
    with pytest.warns(UserWarning, match="Dropout ran as in evaluation"):
        step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step()


def test_layers_and_optimizers_print_themselves() -> None:
    assert repr(nn.Linear(3, 4)) == "Linear(weight=(4, 3), bias=(4,))"
    model = nn.Sequential(nn.Linear(3, 4, bias=False), Tensor.relu, nn.Sequential(nn.ReLU()))
    assert repr(model) == (
        "Sequential(\n  (0): Linear(weight=(4, 3))\n  (1): relu\n  (2): Sequential(\n    (0): ReLU()\n  )\n)"
    )
    adam = nn.optim.Adam(nn.state.get_parameters(model), lr=0.5, betas=(0.5, 0.75))
    assert repr(adam).startswith("Adam(lr=0.5, b1=0.5, b2=0.75, eps=1e-08,")
    assert repr(adam).endswith("; 1 parameters of 12 elements)")


def test_types_have_their_limits_and_an_order() -> None:
    assert (dtypes.int8.min, dtypes.int8.max, dtypes.bool.bitsize, dtypes.float16.fmt) == (-128, 127, 1, "e")  # fmt: skip
    assert sorted([dtypes.float64, dtypes.fp8e4m3, dtypes.uint8, dtypes.bool, dtypes.int64]) == [
        dtypes.bool, dtypes.uint8, dtypes.int64, dtypes.fp8e4m3, dtypes.float64,
    ]  # fmt: skip
    assert dtypes.int32 <= dtypes.int32 < dtypes.float16 and dtypes.float32 >= dtypes.half > dtypes.int64  # fmt: skip


def test_over_no_elements_softmax_gives_none() -> None:
    nothing = Tensor.ones(3, 0)
    assert nothing.softmax().shape == nothing.log_softmax(0).shape == (3, 0)
    assert nothing.logsumexp(1).tolist() == [float("-inf")] * 3


@pytest.mark.parametrize("options", [{}, {"lr_decay": 0.1}, {"weight_decay": 0.2, "initial_accumulator_value": 0.5}])  # fmt: skip
@pytest.mark.parametrize("fused", [False, True])
def test_adagrad_is_that_of_torch(options: dict[str, float], fused: bool) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = Tensor([1.0, -2.0]), torch.tensor([1.0, -2.0], requires_grad=True)
    mine = nn.optim.Adagrad([ours], lr=0.3, fused=fused, **options)
    other = torch.optim.Adagrad([theirs], lr=0.3, **options)
    for _ in range(4):
        mine.zero_grad()
        other.zero_grad()
        (ours * ours * ours).sum().backward()
        (theirs * theirs * theirs).sum().backward()
        mine.step()
        other.step()
    assert ours.tolist() == pytest.approx(theirs.tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    (
        (lambda x: x.sum(dim=0), TypeError, r"sum\(\) takes axis=, not dim="),
        (lambda x: x.max(dim=0), TypeError, "it gives the values alone, see argmax"),
        (lambda x: x.mean(axis=0, keepdims=True), TypeError, "takes keepdim=, not keepdims="),
        (lambda x: x.softmax(dim=-1), TypeError, r"softmax\(\) takes axis="),
        (lambda x: Tensor.randint(0, 10, (3,)), ValueError, "takes the sizes alone"),
        (lambda x: Tensor([-1.0, 2.0]).multinomial(), RuntimeError, "there are -1 to 2"),
        (lambda x: Tensor([0.0, 0.0]).multinomial(), ValueError, "not all of them 0"),
        (lambda x: nn.Embedding(3, 2)([1]), TypeError, "a Tensor of integers, not list"),
        (lambda x: nn.optim.SGD([x], lr="0.1"), TypeError, "the learning rate is a number"),
        (lambda x: nn.Linear(2, 2).parameters(), AttributeError, r"nn.state.get_parameters"),
        (lambda x: nn.Linear(2, 2).train(), AttributeError, "with Tensor.train"),
        (lambda x: nn.LSTMCell(2, 2).state_dict(), AttributeError, "get_state_dict"),
        (lambda x: nn.Linear(2, 2).forward(x), AttributeError, r"a call: layer\(x\)"),
    ),
)
def test_a_name_of_torch_says_the_name_here(wrong: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        wrong(Tensor([[1.0, 2.0]]))


@pytest.mark.parametrize(
    "loss", ("binary_crossentropy", "binary_crossentropy_logits", "mse_loss", "l1_loss")
)
def test_a_loss_of_shapes_that_differ_warns_from_where_it_is_asked_for(loss: str) -> None:
    with pytest.warns(UserWarning, match=rf"{loss} of \(8, 1\) and \(8,\)") as warned:
        getattr(Tensor.full((8, 1), 0.5), loss)(Tensor.ones(8))
    assert warned[0].filename == __file__
