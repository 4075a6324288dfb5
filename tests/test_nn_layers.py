"""Every layer against the one of torch: values, and gradients of the input and all weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensors import numbers

from proofgrad import DtypeError, ShapeError, Tensor, dtypes, nn
from proofgrad.nn.state import get_state_dict

# float32 sums of up to some hundred terms in another order
RTOL, ATOL = 2e-4, 2e-5

Case = tuple[Callable[[], Any], Callable[[Any], Any], tuple[int, ...]]
CASES: dict[str, Case] = {
    "Linear": (lambda: nn.Linear(5, 3), lambda t: t.Linear(5, 3), (4, 2, 5)),
    "Linear without bias": (
        lambda: nn.Linear(5, 3, bias=False),
        lambda t: t.Linear(5, 3, bias=False),
        (4, 5),
    ),
    "Conv1d": (
        lambda: nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2),
        lambda t: t.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2),
        (2, 4, 9),
    ),
    "Conv2d": (
        lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), groups=2),
        lambda t: t.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), groups=2),
        (2, 4, 6, 5),
    ),
    "Conv2d same": (
        lambda: nn.Conv2d(2, 3, (3, 4), padding="same", dilation=(2, 1), bias=False),
        lambda t: t.Conv2d(2, 3, (3, 4), padding="same", dilation=(2, 1), bias=False),
        (2, 2, 6, 5),
    ),
    "Conv1d valid": (
        lambda: nn.Conv1d(2, 3, 3, stride=2, padding="valid"),
        lambda t: t.Conv1d(2, 3, 3, stride=2, padding="valid"),
        (2, 2, 6),
    ),
    "ConvTranspose1d": (
        lambda: nn.ConvTranspose1d(4, 6, 3, 3, 1, output_padding=2, groups=2),
        lambda t: t.ConvTranspose1d(4, 6, 3, 3, 1, output_padding=2, groups=2),
        (2, 4, 5),
    ),
    "ConvTranspose2d": (
        lambda: nn.ConvTranspose2d(2, 3, (3, 2), (2, 1), (0, 3), dilation=(2, 1)),
        lambda t: t.ConvTranspose2d(2, 3, (3, 2), (2, 1), (0, 3), dilation=(2, 1)),
        (2, 2, 4, 7),
    ),
    "BatchNorm": (lambda: nn.BatchNorm(3), lambda t: t.BatchNorm1d(3), (6, 3)),
    "BatchNorm of no samples": (lambda: nn.BatchNorm(3), lambda t: t.BatchNorm2d(3), (0, 3, 4, 2)),
    "BatchNorm2d": (
        lambda: nn.BatchNorm2d(3, eps=1e-3, momentum=0.3),
        lambda t: t.BatchNorm2d(3, eps=1e-3, momentum=0.3),
        (4, 3, 2, 3),
    ),
    "BatchNorm3d without memory": (
        lambda: nn.BatchNorm3d(2, affine=False, track_running_stats=False),
        lambda t: t.BatchNorm3d(2, affine=False, track_running_stats=False),
        (3, 2, 2, 2, 2),
    ),
    "GroupNorm": (lambda: nn.GroupNorm(2, 6), lambda t: t.GroupNorm(2, 6), (2, 6, 3, 2)),
    "InstanceNorm": (
        lambda: nn.InstanceNorm(3),
        lambda t: t.InstanceNorm2d(3, affine=True),
        (2, 3, 4, 3),
    ),
    "LayerNorm": (lambda: nn.LayerNorm((3, 4)), lambda t: t.LayerNorm((3, 4)), (2, 3, 4)),
    "LayerNorm plain": (
        lambda: nn.LayerNorm(4, eps=1e-3, elementwise_affine=False),
        lambda t: t.LayerNorm(4, eps=1e-3, elementwise_affine=False),
        (2, 3, 4),
    ),
    "RMSNorm": (lambda: nn.RMSNorm(6), lambda t: t.RMSNorm(6, eps=1e-6), (3, 6)),
    "GRUCell": (lambda: nn.GRUCell(4, 3), lambda t: t.GRUCell(4, 3), (5, 4)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 3), lambda t: t.LSTMCell(4, 3), (5, 4)),
    "MultiheadAttention": (
        lambda: nn.MultiheadAttention(8, 2),
        lambda t: t.MultiheadAttention(8, 2, batch_first=True),
        (2, 5, 8),
    ),
}


def _first(result: Any) -> Any:
    """The output proper of cells and attention, which return more."""
    return result[0] if isinstance(result, tuple) else result


def _twin(torch: Any, layer: Any, twin: Any) -> None:
    """Weights that are random in both, so that ones and zeros hide nothing."""
    twin.double()
    for position, (name, tensor) in enumerate(get_state_dict(layer).items()):
        if name.endswith("num_batches_tracked"):
            continue
        positive = name == "running_var"
        values = numbers(*tensor.shape, low=0.5 if positive else -1.0, high=1.5, seed=position)
        tensor.assign(Tensor(values)).realize()
        if name in dict(twin.named_parameters()) | dict(twin.named_buffers()):
            with torch.no_grad():
                twin.state_dict()[name].copy_(torch.tensor(values))


@pytest.mark.parametrize("name", CASES)
def test_layer_has_the_values_and_gradients_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    make, make_twin, shape = CASES[name]
    layer, twin = make(), make_twin(torch.nn)
    assert set(twin.state_dict()) <= set(get_state_dict(layer))
    _twin(torch, layer, twin)
    x, cotangent = numbers(*shape, seed=7), None
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, dtype=torch.float64)
    theirs.requires_grad_()
    weights = {n: w for n, w in get_state_dict(layer).items() if n in dict(twin.named_parameters())}
    for weight in weights.values():
        weight.requires_grad = True
    attends = name == "MultiheadAttention"
    with Tensor.train():
        expected = _first(twin(*[theirs] * 3) if attends else twin(theirs))
        found = _first(layer(ours))
        cotangent = numbers(*found.shape, seed=8)
        (expected * torch.tensor(cotangent)).sum().backward()
        (found * Tensor(cotangent, requires_grad=False)).sum().backward()
        grads = [ours.grad, *[weight.grad for weight in weights.values()]]
        Tensor.realize(found, *grads)
    close(found, expected.detach().numpy())
    close(ours.grad, theirs.grad.numpy())
    named = dict(twin.named_parameters())
    for weight_name, weight in weights.items():
        close(weight.grad, named[weight_name].grad.numpy())
    if "running_mean" in twin.state_dict():
        close(layer.running_mean, twin.running_mean.numpy())
        close(layer.running_var, twin.running_var.numpy())
        twin.eval()
        close(layer(ours), twin(theirs).detach().numpy())


@pytest.mark.parametrize("name", CASES)
def test_layer_of_no_samples_gives_none_and_gradients_of_0(name: str) -> None:
    torch = pytest.importorskip("torch")
    make, make_twin, shape = CASES[name]
    layer, none = make(), (0, *shape[1:])
    attends = name == "MultiheadAttention"
    expected = _first(make_twin(torch.nn).eval()(*[torch.zeros(shape)] * (3 if attends else 1)))
    x = Tensor.zeros(none, requires_grad=True)
    found = _first(layer(x))
    assert found.numpy().shape == (0, *expected.shape[1:])
    weights = [w for w in get_state_dict(layer).values() if w.is_floating_point()]
    for gradient in found.sum().gradient(x, *weights):
        assert not gradient.numpy().any()


def close(tensor: Any, expected: Any) -> None:
    assert tensor.shape == expected.shape
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=RTOL, atol=ATOL)


def test_initial_weights_lie_within_the_bounds_of_torch() -> None:
    layers = {
        0.5: [nn.Linear(4, 30), nn.LSTMCell(7, 4), nn.GRUCell(7, 4)],
        6**-0.5: [nn.Conv1d(4, 30, 3, groups=2)],
    }
    for bound, made in layers.items():
        for layer in made:
            for name in ("weight", "bias", "weight_ih", "weight_hh"):
                tensor = getattr(layer, name, None)
                if tensor is not None:
                    largest = float(np.abs(tensor.numpy()).max())
                    assert 0.8 * bound < largest <= bound, (layer, name)


def test_states_of_cells_are_zero_unless_given() -> None:
    x = Tensor(numbers(2, 4))
    lstm, gru = nn.LSTMCell(4, 3), nn.GRUCell(4, 3, bias=False)
    zeros = Tensor.zeros(2, 3)
    hidden, cell = lstm(x)
    again, _ = lstm(x, (zeros, zeros))
    assert hidden.tolist() == again.tolist()
    further, _ = lstm(x, (hidden, cell))
    assert further.tolist() != hidden.tolist()
    assert gru(x).tolist() == gru(x, zeros).tolist()


def test_transposed_convolution_is_the_adjoint_of_the_convolution() -> None:
    """<conv(x), y> = <x, transposed(y)> for one weight in both."""
    options: dict[str, Any] = {"stride": 2, "padding": 1, "groups": 2, "bias": False}
    conv = nn.Conv2d(4, 6, 3, **options)
    transposed = nn.ConvTranspose2d(6, 4, 3, output_padding=1, **options)
    transposed.weight = conv.weight
    x, y = Tensor(numbers(2, 4, 6, 6)), Tensor(numbers(2, 6, 3, 3, seed=1))
    assert transposed(y).shape == x.shape
    terms = conv(x) * y
    left, right = terms.sum().item(), (x * transposed(y)).sum().item()
    # The terms may cancel, so what counts is their size, not the sum's.
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-6 * terms.abs().sum().item())


def test_groups_and_cells_follow_their_formulas() -> None:
    x = numbers(2, 4, 3)
    parts = x.astype(np.float64).reshape(2, 2, -1)
    spread = np.sqrt(parts.var(-1, keepdims=True) + 1e-5)
    expected = ((parts - parts.mean(-1, keepdims=True)) / spread).reshape(x.shape)
    close(nn.GroupNorm(2, 4)(Tensor(x)), expected)
    cell, row = nn.LSTMCell(4, 2), x[:, :, 0]
    gates = row.astype(np.float64) @ cell.weight_ih.numpy().T
    enter, _, new, leave = np.split(gates, 4, axis=1)
    state = 1 / (1 + np.exp(-enter)) * np.tanh(new)
    hidden, memory = cell(Tensor(row))
    close(memory, state)
    close(hidden, 1 / (1 + np.exp(-leave)) * np.tanh(state))


def test_layer_norm_2d_is_layer_norm_of_the_channels() -> None:
    x = numbers(2, 3, 4, 5)
    found = nn.LayerNorm2d(3)(Tensor(x))
    wide = x.astype(np.float64)
    mean, var = wide.mean(1, keepdims=True), wide.var(1, keepdims=True)
    close(found, (wide - mean) / np.sqrt(var + 1e-5))


def test_causal_and_masked_attention_do_not_look_ahead() -> None:
    layer = nn.MultiheadAttention(8, 2, bias=False)
    x, changed = numbers(1, 5, 8), numbers(1, 5, 8)
    changed[0, 3:] += 1
    mask = Tensor(np.tril(np.ones((5, 5), bool)))
    first = [layer(Tensor(x), is_causal=True), layer(Tensor(x), attn_mask=mask)]
    second = [layer(Tensor(changed), is_causal=True), layer(Tensor(changed), attn_mask=mask)]
    for before, after in zip(first, second, strict=True):
        np.testing.assert_array_equal(before.numpy()[:, :3], after.numpy()[:, :3])
        assert np.abs(before.numpy()[:, 3:] - after.numpy()[:, 3:]).max() > 1e-3
    close(first[0], first[1].numpy())
    layer.dropout = 1.0
    assert layer(Tensor(x)).abs().max().item() > 0
    with Tensor.train():
        assert layer(Tensor(x)).abs().max().item() == 0


def test_rms_norm_of_half_floats_is_computed_wide() -> None:
    x = Tensor(np.full((1, 4), 300.0, np.float16))  # 300 ** 2 is more than float16 holds
    layer = nn.RMSNorm(4, elementwise_affine=False)
    assert layer(x).dtype is dtypes.float16
    assert layer(x).tolist() == [[1.0] * 4]


def test_dropout_and_sequential_do_as_their_parts() -> None:
    double = nn.Sequential(lambda x: x + 1, nn.Dropout(1.0))
    assert double(Tensor([1.0, 2.0])).tolist() == [2.0, 3.0]
    with Tensor.train():
        assert double(Tensor([1.0, 2.0])).tolist() == [0.0, 0.0]
    assert len(double) == 2 and double[1] is list(double)[1]
    names = list(get_state_dict(nn.Sequential(nn.Linear(2, 2), Tensor.relu)))
    assert names == ["layers.0.weight", "layers.0.bias"]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), ShapeError, "2 groups must divide in_channels 3"),
        (lambda: nn.Conv2d(3, 4, 3, padding="full"), ValueError, "'valid' or sizes, not 'full'"),
        (lambda: nn.Conv2d(3, 4, 3, 2, "same"), ValueError, "needs stride 1, not 2"),
        (lambda: nn.ConvTranspose2d(2, 2, 3, 1, "same"), TypeError, "sizes, not 'same'"),
        (lambda: nn.ConvTranspose2d(2, 2, 3)(Tensor.ones(2, 5, 5)), ShapeError, r"\(n, 2, \+ 2"),
        (lambda: nn.GroupNorm(4, 6), ShapeError, "6 channels do not split into 4 groups"),
        (lambda: nn.GroupNorm(2, 6)(Tensor.ones(1, 5)), ShapeError, r"GroupNorm takes \(n, 6"),
        (lambda: nn.BatchNorm(3)(Tensor.ones(3)), ShapeError, r"BatchNorm\(3\) takes \(n, 3"),
        (lambda: nn.RMSNorm(3)(Tensor.ones(2)), ShapeError, r"RMSNorm takes \(.., 3\)"),
        (lambda: nn.LSTMCell(3, 2)(Tensor.ones(1, 2)), ShapeError, "LSTMCell takes"),
        (lambda: nn.Embedding(3, 2)(Tensor([1.0])), DtypeError, "asked with integers"),
        (lambda: nn.MultiheadAttention(6, 4), ShapeError, "4 heads do not divide embed_dim 6"),
        (lambda: nn.Dropout(1.5), ValueError, "a probability, not 1.5"),
        (lambda: nn.Sequential(3), TypeError, "layer 0 of Sequential, 3"),
    ],
)
def test_misuse_of_a_layer_says_what_is_wrong(
    call: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_a_shared_window_has_what_lies_in_it_alone() -> None:
    """Windows 0 to 1, 1 to 3 and 3 to 4 of five: an infinity is in one of them, and counts are integers' too."""
    x = np.array([[[1.0, 2.0, math.inf, 4.0, 6.0]]], np.float32)
    assert nn.AdaptiveAvgPool1d(3)(Tensor(x)).tolist() == [[[1.5, math.inf, 5.0]]]
    assert nn.AdaptiveMaxPool1d(3)(Tensor(-x)).tolist() == [[[-1.0, -2.0, -4.0]]]
    counts = nn.AdaptiveAvgPool1d(3)(Tensor([[[1, 2, 6, 4, 7]]]))
    assert counts.tolist() == [[[1.5, 4.0, 5.5]]]
