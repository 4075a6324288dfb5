"""Seed lines J01 to J17: layers, optimisers, state, data, TinyJit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from seed_lines import Count, later, run_snippet

from proofgrad import Tensor

LINEAR = """\
class Linear:
    def __init__(self, in_features, out_features):
        self.weight = Tensor.glorot_uniform(out_features, in_features)
        self.bias = Tensor.zeros(out_features)

    def __call__(self, x):
        # x: (batch, in_features)
        # weight: (out_features, in_features)
        # output: (batch, out_features)
        return x.dot(self.weight.T) + self.bias
"""
CONV = """\
class Conv2d:
    def __init__(self, in_channels, out_channels, kernel_size, stride=1):
        self.weight = Tensor.glorot_uniform(
            out_channels, in_channels, kernel_size, kernel_size
        )
        self.bias = Tensor.zeros(out_channels)
        self.stride = stride

    def __call__(self, x):
        # x: (batch, in_channels, h, w)
        # Uses im2col for efficient convolution
        return x.conv2d(self.weight, stride=self.stride) + self.bias
"""
SIMPLE_NET = """\
from tinygrad.nn import Linear, Conv2d

class SimpleNet:
    def __init__(self):
        self.l1 = Linear(784, 128)
        self.l2 = Linear(128, 10)

    def forward(self, x):
        x = self.l1(x).relu()
        return self.l2(x)

model = SimpleNet()
"""


def test_J01_linear_layer() -> None:
    """`nn.Linear(in, out, bias=True)`; as written out in the document"""
    ran = run_snippet(LINEAR, Tensor=Tensor)
    layer = ran["Linear"](3, 2)
    x = np.array([[1.0, 2.0, 3.0]], np.float32)
    assert layer(Tensor(x)).numpy() == pytest.approx(x @ layer.weight.numpy().T, rel=1e-6)
    ours = run_snippet("from tinygrad.nn import Linear\nlayer = Linear(128, 64, bias=True)")[
        "layer"
    ]
    assert (ours.weight.shape, ours.bias.shape) == ((64, 128), (64,))
    x = np.ones((2, 128), np.float32)
    expected = x @ ours.weight.numpy().T + ours.bias.numpy()
    np.testing.assert_allclose(ours(Tensor(x)).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_J02_convolution_layer() -> None:
    """`nn.Conv2d(in_channels=, out_channels=, kernel_size=, stride=, padding=)`"""
    ran = run_snippet("""\
from tinygrad.nn import Conv2d
# Conv2d
conv = Conv2d(in_channels=3, out_channels=64, kernel_size=3, stride=1, padding=1)
""")
    assert ran["conv"](Tensor.ones(1, 3, 5, 5)).shape == (1, 64, 5, 5)
    written = run_snippet(CONV, Tensor=Tensor)["Conv2d"](1, 1, 2)
    assert (written.weight.shape, written.stride) == ((1, 1, 2, 2), 1)
    assert written(Tensor.ones(1, 1, 3, 3)).shape == (1, 1, 2, 2)


def test_J03_batch_norm_looks_at_training() -> None:
    """`nn.BatchNorm`: batch statistics in training, running ones else; they are saved"""
    from proofgrad.nn import BatchNorm
    from proofgrad.nn.state import get_state_dict

    norm = BatchNorm(2)
    a = np.random.default_rng(0).normal(3, 2, (8, 2, 3)).astype("f")
    with Tensor.train():
        out = norm(Tensor(a)).numpy()
    mean, var = a.mean((0, 2)), a.var((0, 2))
    expected = (a - mean[:, None]) / np.sqrt(var[:, None] + 1e-5)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.1 * mean, rtol=1e-4, atol=1e-6)
    still = norm(Tensor(a)).numpy()
    assert not np.allclose(still, out)
    assert {"weight", "bias", "running_mean", "running_var"} <= get_state_dict(norm).keys()


def test_J04_optimizers_step() -> None:
    """`SGD(params, lr=0.001)`, Adam, AdamW: `zero_grad`, `step`; SGD as written out"""
    ran = run_snippet("""\
class SGD:
    def __init__(self, params, lr=0.001):
        self.params = params
        self.lr = lr

    def zero_grad(self):
        for param in self.params:
            param.grad = None

    def step(self):
        for param in self.params:
            param.assign(param - self.lr * param.grad)
""")
    from proofgrad.nn.optim import SGD, Adam, AdamW

    results = {}
    for make in (ran["SGD"], SGD, Adam, AdamW):
        p = Tensor([1.0, -2.0], requires_grad=True)
        optimizer = make([p], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()
        results[make.__module__ + make.__name__] = p.numpy()
    written, ours, adam, adamw = results.values()
    np.testing.assert_allclose(written, [0.8**3, -2 * 0.8**3], rtol=1e-5)
    np.testing.assert_allclose(ours, written, rtol=1e-6)
    assert (np.abs(adam) < [1.0, 2.0]).all() and (np.abs(adamw) < np.abs(adam)).all()


def test_J05_state_is_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """get_parameters, get_state_dict, load_state_dict, safe_save, safe_load"""
    monkeypatch.chdir(tmp_path)
    model = run_snippet(SIMPLE_NET)["model"]
    ran = run_snippet(
        """\
from tinygrad.nn import Linear, BatchNorm, Conv2d
from tinygrad.nn.optim import Adam, SGD, AdamW
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict, safe_save, safe_load

# Get all parameters of a model
params = get_parameters(model)

# Save/load weights
state = get_state_dict(model)
safe_save(state, "model.safetensors")
state = safe_load("model.safetensors")
load_state_dict(model, state)
""",
        model=model,
    )
    assert len(ran["params"]) == 4
    assert (tmp_path / "model.safetensors").stat().st_size > 4 * 784 * 128
    before = model.l2.bias.numpy()
    model.l2.bias.assign(model.l2.bias * 0)
    run_snippet("load_state_dict(model, safe_load('model.safetensors'))", model=model,
                load_state_dict=ran["load_state_dict"], safe_load=ran["safe_load"])  # fmt: skip
    assert np.array_equal(model.l2.bias.numpy(), before)


@later("ONNX")
def test_J06_onnx_models_load() -> None:
    """ONNX files load and run"""
    run_snippet("from tinygrad.nn.onnx import OnnxRunner")


def test_J07_mnist_is_found_or_clearly_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nn.datasets.mnist()`: checked, cached, mirrors; a clear error without a network"""
    ran = run_snippet("from tinygrad.nn.datasets import mnist")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path))
    monkeypatch.setenv("PROOFGRAD_DATA", str(tmp_path))
    with pytest.raises(Exception, match=r"(?i)mnist|network|download"):
        ran["mnist"]()


@pytest.fixture(scope="module")
def batches() -> list[tuple[Tensor, Tensor]]:
    """Two classes that a line parts, as pictures of 784 points."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(2):
        labels = rng.integers(0, 10, 16)
        pictures = rng.normal(size=(16, 784)).astype("f") * 0.1
        pictures[np.arange(16), labels * 50] += 3.0
        made.append((Tensor(pictures).realize(), Tensor(labels.astype(np.int32)).realize()))
    return made


def test_J08_both_kinds_of_models_train(batches: list[tuple[Tensor, Tensor]]) -> None:
    """models with `forward` or `__call__`; epochs and batches"""
    x_train, y_train = batches[0]
    model = run_snippet(SIMPLE_NET)["model"]
    ran = run_snippet(
        """\
from tinygrad.nn.optim import SGD

# Model and optimizer
optimizer = SGD([model.l1.weight, model.l1.bias,
                 model.l2.weight, model.l2.bias], lr=0.001)

# Training loop
for epoch in range(10):
    # Forward pass
    out = model.forward(x_train)
    loss = out.sparse_categorical_crossentropy(y_train)

    # Backward pass
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    print(f"Epoch {epoch}, Loss: {loss.numpy()}")
""",
        model=model,
        x_train=x_train,
        y_train=y_train,
    )
    losses = [float(line.rpartition(" ")[2]) for line in ran.printed]
    assert len(losses) == 10 and losses[-1] < losses[0]
    second = run_snippet(
        """\
from tinygrad.tensor import Tensor
from tinygrad.nn import Linear
from tinygrad.nn.optim import Adam

class MNISTNet:
    def __init__(self):
        self.l1 = Linear(784, 128)
        self.l2 = Linear(128, 10)

    def forward(self, x):
        return self.l2(self.l1(x).relu())

# Training code (simplified)
model = MNISTNet()
opt = Adam(get_parameters(model), lr=0.001)
losses = []

for epoch in range(10):
    for x, y in train_loader:
        out = model.forward(x)
        loss = out.sparse_categorical_crossentropy(y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    losses.append(loss.item())
""",
        train_loader=batches,
        get_parameters=run_snippet("from tinygrad.nn.state import get_parameters")[
            "get_parameters"
        ],
    )
    assert second["losses"][-1] < second["losses"][0]


def test_J09_mlp_of_plain_tensors_learns() -> None:
    """`x.linear(l1).relu().linear(l2)`, MSE as `.pow(2).mean()`: the loss goes down"""
    Tensor.manual_seed(0)
    ran = run_snippet("""\
from tinygrad import Tensor
from tinygrad.nn.optim import Adam, SGD

# Model (simple 2-layer MLP)
class MLP:
    def __init__(self):
        self.l1 = Tensor.randn(784, 128) * 0.01
        self.l2 = Tensor.randn(128, 10) * 0.01

    def __call__(self, x):
        return x.linear(self.l1).relu().linear(self.l2)

model = MLP()
optim = Adam([model.l1, model.l2], lr=0.001)

for step in range(51):
    x = Tensor.randn(32, 784)          # fake batch
    y_target = Tensor.zeros(32, 10)    # fake labels

    optim.zero_grad()
    y_pred = model(x)
    loss = (y_pred - y_target).pow(2).mean()   # MSE loss
    loss.backward()
    optim.step()

    if step % 50 == 0:
        print(f"step {step}, loss={loss.item():.4f}")
""")
    first, last = [float(line.rpartition("=")[2]) for line in ran.printed]
    assert last < first / 2


def test_J10_attention_from_scratch() -> None:
    """qkv reshaped to (B, T, 3, H, -1), parts 0, 1, 2"""
    ran = run_snippet(
        """\
from tinygrad.nn import Linear
class Attention:
    def __init__(self, dim, n_heads):
        self.n_heads = n_heads
        self.qkv = Linear(dim, 3*dim)
        self.out = Linear(dim, dim)

    def __call__(self, x):
        qkv = self.qkv(x).reshape(x.shape[0], x.shape[1], 3, self.n_heads, -1)
        q, k, v = qkv[:,:,0], qkv[:,:,1], qkv[:,:,2]
        # Attention computation...
        out = attention(q, k, v)
        return self.out(out)
""",
        attention=attention,
    )
    Tensor.manual_seed(3)
    layer = ran["Attention"](8, 2)
    x = Tensor.randn(2, 5, 8).realize()
    found = layer(x)
    assert found.shape == (2, 5, 8)
    qkv = layer.qkv(x).reshape(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
    built_in = qkv[0].scaled_dot_product_attention(qkv[1], qkv[2]).permute(0, 2, 1, 3)
    expected = layer.out(built_in.reshape(2, 5, 8))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Written out. Shapes: (batch, time, heads, size) each."""
    q, k, v = [part.transpose(1, 2) for part in (q, k, v)]
    weights = (q @ k.transpose(2, 3) * q.shape[-1] ** -0.5).softmax()
    mixed: Tensor = (weights @ v).transpose(1, 2)
    return mixed.reshape(mixed.shape[0], mixed.shape[1], -1)


def test_J11_jit_replays() -> None:
    """TinyJit: later calls replay, with the same results"""
    ran = run_snippet(
        """\
from tinygrad.jit import TinyJit

@TinyJit
def fast_forward(x):
    return (x * 2 + 1).relu()

# First call: traces and compiles
out = fast_forward(x)

# Subsequent calls: uses compiled version
out = fast_forward(x)  # Much faster!
""",
        x=Tensor([1.0, -3.0]).realize(),
    )
    fast = ran["fast_forward"]
    for k in range(10):
        x = Tensor([float(k), -k - 1.0]).realize()
        with Count() as kernels:
            found = fast(x).tolist()
        assert found == [2.0 * k + 1, 0.0] and kernels.count == 1


def test_J12_batches_of_a_data_set(batches: list[tuple[Tensor, Tensor]]) -> None:
    """`train_loader` of (x, y)"""
    ran = run_snippet("from tinygrad.nn.datasets import Batches")
    x, y = np.arange(20).reshape(10, 2), np.arange(10)
    seen = [(a.shape, b.tolist()) for a, b in ran["Batches"](Tensor(x), Tensor(y), size=4)]
    assert [shape for shape, _ in seen][:2] == [(4, 2), (4, 2)]
    assert len({value for _, values in seen for value in values}) >= 8


def test_J13_numpy_goes_in_and_out() -> None:
    """numpy as input and reference"""
    a = np.array([1.0, 2.0, 3.0], np.float32)
    t = Tensor(a)
    assert np.array_equal(np.asarray(t), a) and np.asarray(t).dtype == np.float32
    for found in (np.ones_like(a) * t, t * np.ones_like(a), t * np.float32(1)):
        assert isinstance(found, Tensor) and found.tolist() == a.tolist()


def test_J14_losses() -> None:
    """cross entropy, mean squares, Huber"""
    x, y = Tensor([0.5, -3.0, 2.0]), Tensor([0.0, 0.0, 2.5])
    d = np.array([0.5, -3.0, -0.5])
    assert (x - y).pow(2).mean().item() == pytest.approx((d * d).mean(), rel=1e-6)
    error = (x - y).abs()
    huber = (error < 1).where(error * error * 0.5, error - 0.5).mean().item()
    assert huber == pytest.approx(np.mean([0.125, 2.5, 0.125]), rel=1e-6)


def test_J15_operations_of_ones_own() -> None:
    """gelu, layer norm, rms norm, swiglu, attention from primitives, against torch"""
    torch = pytest.importorskip("torch")
    a = np.random.default_rng(0).normal(size=(4, 8)).astype("f")
    x, t = Tensor(a).realize(), torch.tensor(a)
    functional = torch.nn.functional
    mean = x.mean(-1, keepdim=True)
    pairs = [
        (x * 0.5 * (1 + (x / 2**0.5).erf()), functional.gelu(t)),
        ((x - mean) * ((x - mean).square().mean(-1, keepdim=True) + 1e-5).rsqrt(),
         functional.layer_norm(t, (8,))),
        (x / ((x * x).mean(-1, keepdim=True) + 1e-6).sqrt(),
         t / torch.sqrt((t * t).mean(-1, keepdim=True) + 1e-6)),
        (x * (x + 1).sigmoid(), t * torch.sigmoid(t + 1)),
    ]  # fmt: skip
    Tensor.realize(*[ours for ours, _ in pairs])
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-5)


def test_J16_bigger_models_are_examples() -> None:
    """a transformer from scratch, ResNet: examples that run"""
    from seed_lines import ROOT

    names = {path.name for path in (ROOT / "examples").rglob("*.py")}
    assert "resnet.py" in names and any("transformer" in name for name in names)


def test_J17_parameters_may_be_expressions() -> None:
    """an optimizer owns lazy parameters (`Tensor.randn(784, 128) * 0.01`) and updates them"""
    from proofgrad.nn.optim import Adam

    weight = Tensor.randn(3, 2) * 0.01
    optimizer = Adam([weight], lr=0.1)
    before = weight.numpy()
    (Tensor([[1.0, 2.0, 3.0]]).linear(weight) - 1).pow(2).mean().backward()
    optimizer.step()
    assert np.abs(weight.numpy() - before).min() > 0.05
