"""Functions as layers, losses and RMSprop, beside torch; types by numpy's names."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, nn

torch = pytest.importorskip("torch")
X = np.random.default_rng(0).standard_normal((2, 3, 7, 5)).astype(np.float32)
EDGES = np.array([[-math.inf, -30.0, -1.5, -0.0], [0.0, 1e-3, 2.0, 30.0]], np.float32)
LAYERS: dict[str, tuple[Any, ...]] = {
    "ReLU": (), "LeakyReLU": (0.2,), "ELU": (0.7,), "GELU": (), "SiLU": (), "Sigmoid": (), "Tanh": (),
    "Softplus": (2.0,), "Softmax": (1,), "LogSoftmax": (-1,), "Identity": (), "Flatten": (1, 2),
    "MaxPool2d": (2,), "AvgPool2d": ((3, 2), 1, 1), "ReLU6": (), "SELU": (), "CELU": (0.7,), "Mish": (), "Softsign": (),
    "LogSigmoid": (), "Hardsigmoid": (), "Hardswish": (), "Hardtanh": (-0.5, 1.5), "PReLU": (3, 0.1), "Unflatten": (1, (3, 1)),
    "AdaptiveAvgPool2d": ((3, None),), "AdaptiveMaxPool2d": (2,),
}  # fmt: skip
ROUNDED = {
    "PReLU",
    "CELU",
    "Hardsigmoid",
}  # of a weight in float32, or slopes that torch has in float32


@pytest.mark.parametrize("name", LAYERS)
def test_layers_give_what_torch_s_give(name: str) -> None:
    layer, other = getattr(nn, name)(*LAYERS[name]), getattr(torch.nn, name)(*LAYERS[name])
    assert_same(layer, other, X)
    if name not in ROUNDED:
        assert_same(layer, other, X.astype(np.float64), rtol=1e-12)
    assert repr(layer).startswith(f"{name}(")


def assert_same(layer: Any, other: Any, values: np.ndarray, rtol: float = 2e-5) -> None:
    """Values and gradients of a layer beside torch's."""
    x, y = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    found, wanted = layer(x), other(y)
    assert found.shape == tuple(wanted.shape)
    np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol, rtol / 20)
    weight = np.cos(np.arange(wanted.numel(), dtype=np.float32)).reshape(wanted.shape)
    (found * Tensor(weight)).sum().backward()
    (wanted * torch.tensor(weight)).sum().backward()
    assert x.grad is not None and y.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 5 * rtol, rtol / 2)


POOLS: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("MaxPool1d", {"kernel_size": 3}, (2, 3, 11)),
    ("MaxPool1d", {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "ceil_mode": True}, (3, 11)),
    ("MaxPool2d", {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0)}, (3, 7, 9)),
    ("MaxPool3d", {"kernel_size": 2}, (2, 2, 4, 3, 5)),
    ("AvgPool1d", {"kernel_size": 4, "stride": 3, "padding": 1}, (2, 3, 11)),
    ("AvgPool1d", {"kernel_size": 4, "padding": 2, "count_include_pad": False}, (2, 3, 11)),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False}, (1, 2, 6, 7)),
    ("AvgPool3d", {"kernel_size": (2, 1, 3)}, (2, 4, 3, 5)),
    *[("AdaptiveAvgPool1d", {"output_size": m}, (2, 3, 11)) for m in (1, 3, 11, 13)],
    *[("AdaptiveMaxPool1d", {"output_size": m}, (3, 7)) for m in (1, 4, 7)],
    ("AdaptiveAvgPool2d", {"output_size": (2, 5)}, (3, 4, 7)),
    ("AdaptiveAvgPool2d", {"output_size": 1}, (2, 3, 1, 7)),
    ("AdaptiveMaxPool2d", {"output_size": (None, 3)}, (2, 3, 4, 7)),
    ("Upsample", {"scale_factor": 2}, (2, 3, 4, 3)),
    ("Upsample", {"size": (5, 7), "mode": "bilinear"}, (2, 1, 4, 3)),
    ("Upsample", {"size": 9, "mode": "linear", "align_corners": True}, (1, 2, 4)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(POOLS)))
def test_windows_give_what_torch_s_give(case: int) -> None:
    name, options, shape = POOLS[case]
    values = np.random.default_rng(case).standard_normal(shape).astype(np.float32)
    assert_same(getattr(nn, name)(**options), getattr(torch.nn, name)(**options), values)


def test_windows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="windows of 2 axes"):
        nn.MaxPool2d((2, 2, 2))
    with pytest.raises(ValueError, match="takes 2 sizes of 1 or more"):
        nn.AdaptiveAvgPool2d((0, 2))
    with pytest.raises(ValueError, match="channels, sizes"):
        nn.AdaptiveAvgPool2d(1)(Tensor.ones(3, 4))
    with pytest.raises(ValueError, match="size or scale_factor"):
        nn.Upsample()


INSTEAD: dict[str, Any] = {
    "ZeroPad2d": ((1, 2, 0, 3),), "ReflectionPad2d": ((1, 2, 0, 3),), "ReplicationPad2d": ((1, 2, 0, 3),),
    "CircularPad2d": ((1, 2, 0, 3),), "ConstantPad2d": ((1, 2, 0, 3), 1.5), "Softmin": (-1,),
}  # fmt: skip


@pytest.mark.parametrize("name", [*INSTEAD, "PixelShuffle", "CosineSimilarity", "PairwiseDistance"])
def test_what_is_told_instead_of_a_layer_of_torch_gives_the_same(name: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(nn, name)
    code = str(error.value).partition(": ")[2]
    values = np.random.default_rng(0).standard_normal((2, 8, 5, 4)).astype(np.float32)
    other = np.random.default_rng(1).standard_normal((2, 8, 5, 4)).astype(np.float32)
    known = {"left": 1, "right": 2, "top": 0, "bottom": 3, "v": 1.5}
    found = eval(code, {"x": Tensor(values), "y": Tensor(other), **known})
    is_pair = name in ("CosineSimilarity", "PairwiseDistance")
    given = INSTEAD.get(name, (2,) if name == "PixelShuffle" else ())
    layer = getattr(torch.nn, name)(*given)
    wanted = layer(*map(torch.tensor, (values, other) if is_pair else (values,)))
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_prelu_learns_its_weight() -> None:
    layer, other = nn.PReLU(3), torch.nn.PReLU(3)
    layer.weight.requires_grad_()
    assert_same(layer, other, X)
    np.testing.assert_allclose(layer.weight.grad.numpy(), other.weight.grad.numpy(), rtol=1e-4)
    assert list(nn.state.get_state_dict(layer)) == ["weight"]
    assert nn.PReLU()(Tensor([-2.0, 4.0])).tolist() == [-0.5, 4.0]


@pytest.mark.parametrize("name", ("ReLU", "Sigmoid", "Tanh", "Softplus", "ELU", "GELU"))
def test_layers_at_the_ends_of_floats(name: str) -> None:
    if name == "GELU":  # -inf * 0 is NaN in torch's formula and in this one
        return
    layer, other = getattr(nn, name)(), getattr(torch.nn, name)()
    np.testing.assert_allclose(
        layer(Tensor(EDGES)).numpy(), other(torch.tensor(EDGES)).numpy(), rtol=1e-5, atol=1e-6
    )


def test_gelu_by_its_formula() -> None:
    wanted = torch.nn.GELU("tanh")(torch.tensor(X)).numpy()
    np.testing.assert_allclose(nn.GELU("tanh")(Tensor(X)).numpy(), wanted, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="approximate is"):
        nn.GELU("fast")


def test_layers_stand_in_a_row_and_are_shown() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(105, 4), nn.ReLU(), nn.Softmax())
    np.testing.assert_allclose(model(Tensor(X)).sum(-1).numpy(), np.ones(2), rtol=1e-5)
    assert repr(nn.Flatten()) == "Flatten(start_dim=1, end_dim=-1)" and repr(nn.Tanh()) == "Tanh()"


LOSSES: dict[str, list[dict[str, Any]]] = {
    "l1_loss": [{}], "huber_loss": [{}, {"delta": 0.3}], "smooth_l1_loss": [{}, {"beta": 0.2}, {"beta": 0.0}],
    "kl_div": [{}, {"log_target": True}],
}  # fmt: skip


@pytest.mark.parametrize("reduction", ("mean", "sum", "none", "batchmean"))
@pytest.mark.parametrize("name", LOSSES)
def test_losses_give_what_torch_s_give(name: str, reduction: str) -> None:
    if reduction == "batchmean" and name != "kl_div":
        return
    draw = np.random.default_rng(1)
    a = draw.standard_normal((5, 3)).astype(np.float32)
    b = draw.random((5, 3)).astype(np.float32)
    b[0, 0] = 0.0
    for options in LOSSES[name]:
        x, y = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
        found = getattr(x, name)(Tensor(b), reduction=reduction, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function = getattr(torch.nn.functional, name)
            wanted = function(y, torch.tensor(b), reduction=reduction, **options)
        np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
        found.sum().backward(), wanted.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_losses_warn_of_shapes_that_are_broadcast() -> None:
    with pytest.warns(UserWarning, match=r"l1_loss of \(8, 1\) and \(8,\)"):
        Tensor.ones(8, 1).l1_loss(Tensor.ones(8))
    with pytest.raises(ValueError, match="delta of huber_loss"):
        Tensor.ones(8).huber_loss(Tensor.ones(8), delta=0)
    with pytest.raises(ValueError, match="beta of smooth_l1_loss"):
        Tensor.ones(8).smooth_l1_loss(Tensor.ones(8), beta=-1)


@pytest.mark.parametrize(
    "options",
    ({}, {"momentum": 0.9}, {"centered": True}, {"alpha": 0.8, "weight_decay": 0.1, "momentum": 0.5, "centered": True}),
)  # fmt: skip
def test_rmsprop_takes_the_steps_of_torch_s(options: dict[str, Any]) -> None:
    start = np.random.default_rng(2).standard_normal((3, 5)).astype(np.float32)
    w, v = Tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)
    ours, theirs = (
        nn.optim.RMSprop([w], lr=0.05, **options),
        torch.optim.RMSprop([v], lr=0.05, **options),
    )
    for _ in range(6):
        with Tensor.train():
            ours.zero_grad(), theirs.zero_grad()
            (w.square() * w).sum().backward(), (v.square() * v).sum().backward()
            ours.step(), theirs.step()
    np.testing.assert_allclose(w.numpy(), v.detach().numpy(), rtol=2e-4, atol=1e-5)
    with pytest.raises(ValueError, match="alpha must be in"):
        nn.optim.RMSprop([w], alpha=1.0)


@pytest.mark.parametrize("given", (np.float16, np.dtype("int8"), np.int64, np.bool_, np.uint32))
def test_types_of_numpy_name_types(given: Any) -> None:
    assert Tensor([1, 0], dtype=given).numpy().dtype == np.dtype(given)
    with pytest.raises(TypeError):
        Tensor([1], dtype=np.complex64)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [None, 0, 2])
def test_nll_loss_of_one_example_is_torchs(reduction: str, ignored: int | None) -> None:
    torch = pytest.importorskip("torch")
    scores, weight = [-0.5, -1.25, -2.0], [0.5, 2.0, 3.0]
    x = Tensor(scores, requires_grad=True)
    y = torch.tensor(scores, requires_grad=True)
    options = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    found = x.nll_loss(Tensor(2), weight=Tensor(weight), **options)
    want = torch.nn.functional.nll_loss(y, torch.tensor(2), weight=torch.tensor(weight), **options)
    assert found.shape == () and np.array_equal(
        found.numpy(), want.detach().numpy(), equal_nan=True
    )
    found.backward()
    want.backward()
    assert x.grad is not None
    assert np.array_equal(x.grad.numpy(), y.grad.numpy(), equal_nan=True)
