"""Options that torch has and layers, optimizers and methods here have not: the error says what does the same."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, Tensor, dtypes, nn
from proofgrad.nn.options import INSTEAD

X, Y = Tensor([[1.0, 3.0, 2.0], [0.5, 0.0, -1.0]]), Tensor([2, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nn.Linear(2, 3, dtype="half"),
            "in_features, out_features, bias, and not dtype=; make",
        ),
        (lambda: nn.Conv2d(2, 3, 3, padding_mode="reflect"), r"not padding_mode=; call x\.pad"),
        (
            lambda: nn.LayerNorm(3, bias=False),
            "LayerNorm takes .* not bias=; set layer.bias = None",
        ),
        (lambda: nn.Embedding(5, 2, padding_idx=0), r"not padding_idx=; write ids\.ne\(i\)"),
        (
            lambda: nn.MaxPool2d(2, foo=1),
            "MaxPool2d takes kernel_size, .* ceil_mode, and not foo=$",
        ),
        (lambda: nn.ReLU(foo=1), "ReLU takes inplace, and not foo=$"),
        (lambda: nn.Sigmoid(foo=1), "Sigmoid takes no arguments"),  # type: ignore[call-arg]
        (lambda: nn.Sigmoid(1), "Sigmoid takes no arguments"),  # type: ignore[call-arg]
        (lambda: nn.LSTM(2, 3, device="CPU"), "not device=; set Device.DEFAULT"),
        (lambda: nn.optim.SGD([X], lr=0.1, maximize=True), r"SGD takes .* maximize=; call \(-loss"),
        (lambda: nn.optim.Adam([X], amsgrad=True), "Adam takes params, lr, b1, .* not amsgrad=$"),
        (
            lambda: nn.optim.AdamW([X], 0.1, (0.9, 0.99)),
            r"not \(0.9, 0.99\); .* betas=\(0.9, 0.99\)",
        ),
        (lambda: nn.optim.StepLR(nn.optim.SGD([X]), 2, last_epoch=1), "not last_epoch=; make"),
        (lambda: X.cross_entropy(Y, weight=X[0]), r"takes no weight=; write x\.log_softmax\(1\)"),
        (lambda: X.cross_entropy(Y, ignore_index=0), "takes no ignore_index=; write"),
        (lambda: X.scaled_dot_product_attention(X, X, scale=1.0), "takes no scale=; multiply"),
        (lambda: X[None].interpolate(scale_factor=2), "takes no scale_factor=; give the size"),
        (
            lambda: X.leaky_relu(negative_slope=0.2),
            "takes no negative_slope=; it is called neg_slope=",
        ),
        (lambda: X.softplus(threshold=20), "takes no threshold=; leave it out"),
        (lambda: X.sort(stable=True), "takes no stable=; leave it out"),
        (lambda: X.argsort(stable=True), "takes no stable=; leave it out"),
        (lambda: X.topk(1, sorted=True), "takes no sorted=; it is called sorted_="),
        (lambda: X.round(decimals=2), r"takes no decimals=; write \(x \* 10"),
        (lambda: Tensor.rand(2, generator=0), r"rand\(\) takes no generator=; there is one"),
        (lambda: Tensor.randn(2, generator=0), r"randn\(\) takes no generator=; there is one"),
        (lambda: Tensor.randperm(2, generator=0), r"randperm\(\) takes no generator=; there is"),
        (lambda: Y.multinomial(2, generator=0), r"multinomial\(\) takes no generator=; there is"),
        (lambda: X.sum().backward(retain_graph=True), "takes no retain_graph=; leave it out"),
    ],
)
def test_option_of_torch_that_is_not_here_says_what_does_the_same(
    call: Callable[[], Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_what_is_told_in_place_of_an_option_does_the_same() -> None:
    torch = pytest.importorskip("torch")
    assert all(INSTEAD.values())
    with Context(DEFAULT_FLOAT="half"):
        assert nn.Linear(2, 3).weight.dtype == dtypes.float16
    norm = nn.LayerNorm(3)
    norm.bias = None
    theirs = torch.nn.functional.layer_norm(torch.tensor(X.numpy()), (3,))
    assert np.allclose(norm(X).numpy(), theirs, atol=1e-6)
    layer, ids = nn.Embedding(5, 2), Tensor([0, 3, 0])
    row = ids.ne(0).unsqueeze(-1).where(layer(ids), 0)
    assert row.tolist() == [[0, 0], layer.weight[3].tolist(), [0, 0]]
    row.sum().backward()
    assert layer.weight.grad.tolist() == [[0, 0], [0, 0], [0, 0], [1, 1], [0, 0]]
    weight = np.array([0.5, 1.0, 2.0], np.float32)
    found = X.log_softmax(1).nll_loss(Y, weight=Tensor(weight), ignore_index=0)
    want = torch.nn.functional.cross_entropy(
        torch.tensor(X.numpy()),
        torch.tensor(Y.numpy()).long(),
        torch.tensor(weight),
        ignore_index=0,
    )
    assert found.item() == pytest.approx(want.item())


def test_options_of_a_class_made_elsewhere_are_its_own() -> None:
    class Halved(nn.Linear):
        def __init__(self, size: int, **options: Any) -> None:
            super().__init__(size, size // 2)
            self.options = options

    class Slow(nn.optim.SGD):
        def __init__(self, params: list[Tensor], dampening: float) -> None:
            super().__init__(params, lr=dampening)

    assert Halved(4, dtype="half").options == {"dtype": "half"}
    assert Slow([Tensor([1.0])], dampening=0.5).lr.item() == 0.5
    with pytest.raises(TypeError, match="unexpected keyword argument 'foreach'"):
        Slow([Tensor([1.0])], foreach=True)  # type: ignore[call-arg]


def test_layers_are_copied_and_pickled_as_before() -> None:
    layer = nn.Linear(3, 2, bias=False)
    for other in (copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other(X).tolist() == layer(X).tolist() and other.bias is None


@pytest.mark.parametrize("times", [1, 4])
def test_batch_norm_without_momentum_keeps_the_mean_of_all_batches(times: int) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = nn.BatchNorm(3, momentum=None), torch.nn.BatchNorm1d(3, momentum=None)
    with Tensor.train():
        for k in range(times):
            batch = X.numpy() * (k + 1) + k
            ours(Tensor(batch)).realize()
            theirs(torch.tensor(batch))
    assert np.allclose(ours.running_mean.numpy(), theirs.running_mean, atol=1e-6)
    assert np.allclose(ours.running_var.numpy(), theirs.running_var, atol=1e-5)
