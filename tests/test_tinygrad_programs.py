"""Small programs in the idioms of tinygrad's own examples: only the import differs. Results are numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proofgrad import Context, Tensor, TinyJit, UOp, Variable, dtypes, nn
from proofgrad.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save

RNG = np.random.default_rng(7)
CONTEXT, WIDTH, HEADS = 12, 8, 2


class Attention:
    """gpt2.py: a cache that a prompt fills with ints and the tokens after it with a Variable."""

    def __init__(self) -> None:
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.cache_kv: Tensor

    def __call__(self, x: Tensor, start_pos: Any, mask: Tensor | None) -> Tensor:
        if mask is not None or start_pos.val == 0:
            start_pos = start_pos.val  # no variable sizes where a prompt is read
        xqkv = self.c_attn(x).reshape(None, None, 3, HEADS, WIDTH // HEADS)
        xq, xk, xv = [xqkv[:, :, i, :, :] for i in range(3)]
        bsz, seqlen, _, _ = xq.shape
        if not hasattr(self, "cache_kv"):
            self.cache_kv = (
                Tensor.zeros(2, bsz, CONTEXT, HEADS, WIDTH // HEADS, dtype=x.dtype)
                .contiguous()
                .realize()
            )
        position = (None, None, (start_pos, start_pos + seqlen), None, None)
        self.cache_kv.shrink(position).assign(Tensor.stack(xk, xv)).realize()
        if start_pos > 0:
            keys = self.cache_kv[0].shrink((None, (0, start_pos + seqlen), None, None))
            values = self.cache_kv[1].shrink((None, (0, start_pos + seqlen), None, None))
        else:
            keys, values = xk, xv
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        found = xq.scaled_dot_product_attention(keys, values, mask).transpose(1, 2)
        return self.c_proj(found.reshape(bsz, seqlen, WIDTH))


def _attention(layer: Attention, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """All positions at once, each looking at those before it."""
    qkv = x @ layer.c_attn.weight.numpy().T + layer.c_attn.bias.numpy()  # type: ignore[union-attr]
    q, k, v = qkv.reshape(len(x), 3, HEADS, WIDTH // HEADS).transpose(1, 2, 0, 3)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(WIDTH // HEADS)
    scores = np.where(np.tri(len(x)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found = (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(x), WIDTH)
    bias = layer.c_proj.bias.numpy()  # type: ignore[union-attr]
    return found @ layer.c_proj.weight.numpy().T + bias  # type: ignore[no-any-return]


@pytest.mark.parametrize("jit", (False, True))
def test_a_prompt_and_the_tokens_after_it_share_a_cache(jit: bool) -> None:
    layer, x = Attention(), RNG.standard_normal((CONTEXT, WIDTH)).astype(np.float32)
    wanted = _attention(layer, x)
    start = Variable("start_pos", 0, CONTEXT - 1).bind(0)
    mask = Tensor.full((1, 1, 4, 4), float("-inf")).triu(1)
    prompt = layer(Tensor(x[None, :4]), start, mask).realize()
    np.testing.assert_allclose(prompt.numpy()[0], wanted[:4], rtol=1e-4, atol=1e-5)
    token = TinyJit(lambda t, pos: layer(t, pos, None).realize())
    step = token if jit else lambda t, pos: layer(t, pos, None)
    for k in range(4, CONTEXT):
        position = Variable("start_pos", 1, CONTEXT - 1).bind(k)
        found = step(Tensor(x[None, k : k + 1]).realize(), position).numpy()
        np.testing.assert_allclose(found[0, 0], wanted[k], rtol=1e-4, atol=1e-5)


def test_gradients_of_small_batches_add_up_to_that_of_the_whole() -> None:
    """gradaccum_mnist.py: parameters by is_param, gradients that wait."""
    net = [nn.Linear(3, 4), Tensor.relu, nn.BatchNorm(4, affine=True), nn.Linear(4, 2)]
    params = [x for x in get_parameters(net) if x.is_param]
    assert len(params) == 6 and len(get_parameters(net)) == 9
    x = Tensor(RNG.standard_normal((8, 3)).astype(np.float32))
    plain = [net[0], net[1], net[3]]
    for part in x.split(2):
        (part.sequential(plain).square().sum() / 8).backward()
    added = [p.grad.numpy() for p in (net[0].weight, net[3].weight)]  # type: ignore[union-attr]
    for p in params:
        p.grad = None
    (x.sequential(plain).square().sum() / 8).backward()
    whole = [p.grad.numpy() for p in (net[0].weight, net[3].weight)]  # type: ignore[union-attr]
    for a, b in zip(added, whole):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_training_within_a_context_uses_dropout() -> None:
    """Scripts of tinygrad say Context(TRAINING=1)."""
    x = Tensor.ones(64, 64)
    with Context(TRAINING=1):
        assert 0.3 < x.dropout(0.5).eq(0).mean().item() < 0.7
    assert x.dropout(0.5).eq(0).sum().item() == 0


def test_a_jitted_step_trains_and_its_state_is_loaded_again(tmp_path: Any) -> None:
    """beautiful_mnist.py, with a checkpoint."""
    Tensor.manual_seed(1)
    net = nn.Linear(4, 3)
    opt = nn.optim.Adam(get_parameters(net), lr=0.05)
    x, y = Tensor(RNG.standard_normal((32, 4)).astype(np.float32)), Tensor([0, 1, 2, 1] * 8)

    @TinyJit
    def train_step() -> Tensor:
        with Tensor.train():
            opt.zero_grad()
            samples = Tensor.randint(16, high=32)
            loss = net(x[samples]).sparse_categorical_crossentropy(y[samples]).backward()
            return loss.realize(*opt.schedule_step())

    losses = [train_step().item() for _ in range(30)]
    assert losses[-1] < losses[0]
    safe_save(get_state_dict(net), str(tmp_path / "net.safetensors"))
    other = nn.Linear(4, 3)
    load_state_dict(other, safe_load(str(tmp_path / "net.safetensors")), verbose=False)
    np.testing.assert_array_equal(other(x).numpy(), net(x).numpy())


def test_gradients_by_name_are_asked_for_without_a_leaf() -> None:
    """The docstring of Tensor.gradient."""
    x, y = Tensor.eye(3), Tensor([[2.0, 0, -2.0]])
    z = y.matmul(x).sum()
    dx, dy = z.gradient(x, y)
    assert dx.tolist() == [[2.0, 2.0, 2.0], [0.0, 0.0, 0.0], [-2.0, -2.0, -2.0]]
    assert dy.tolist() == [[1.0, 1.0, 1.0]]
    assert (x * 2).gradient(x, gradient=Tensor(3.0))[0].tolist() == [[6.0] * 3] * 3


def test_results_on_the_way_keep_their_gradients() -> None:
    x = Tensor([1.0, -2.0, 3.0], requires_grad=True)
    hidden = x.relu()
    copy, done = hidden.clone(), (hidden * 3).realize()
    (copy * done).sum().backward()
    assert hidden.grad.tolist() == [6.0, 0.0, 18.0]  # type: ignore[union-attr]
    assert copy.grad.tolist() == [3.0, 0.0, 9.0]  # type: ignore[union-attr]
    assert done.grad.tolist() == [1.0, 0.0, 3.0]  # type: ignore[union-attr]
    assert x.grad.tolist() == [6.0, 0.0, 18.0]  # type: ignore[union-attr]


def test_a_loop_over_sizes_compiles_once_and_prints_its_shape() -> None:
    v = Variable("v", 1, 10)
    x = Tensor(np.arange(30, dtype=np.float32).reshape(10, 3)).realize()
    for n in (3, 7, 10):
        part = x[: v.bind(n)]
        assert str(part.shape) == f"(v={n}, 3)"
        rolled = np.roll(np.arange(30, dtype=np.float32).reshape(10, 3)[:n], 1, 0)
        np.testing.assert_array_equal(part.roll(1, 0).numpy(), rolled)
        assert part.sum(0).tolist() == rolled.sum(0).tolist()
        assert (
            Tensor([0, n - 1]).one_hot(v.bind(n)).numpy().tolist() == np.eye(n)[[0, n - 1]].tolist()
        )


def test_weights_are_packed_in_bytes_and_read_back() -> None:
    """Quantised models: bits of another width, 8-bit floats that are multiplied."""
    raw = Tensor([0, 0, 128, 63, 0, 0, 0, 64], dtype=dtypes.uint8)
    assert raw.bitcast(dtypes.float32).tolist() == [1.0, 2.0]
    assert Tensor([1.0]).bitcast(dtypes.uint8).tolist() == [0, 0, 128, 63]
    w = Tensor([[0.5, 1.5], [-2.0, 3.0]]).cast(dtypes.fp8e4m3)
    found = w @ Tensor([1.0, 3.0]).cast(dtypes.fp8e4m3)
    assert found.dtype is dtypes.fp8e4m3 and found.tolist() == [5.0, 7.0]
    halves = (raw[:4] & 15).cat(raw[:4] >> 4)
    assert halves.tolist() == [0, 0, 0, 15, 0, 0, 8, 3]


def test_what_scripts_catch_is_raised() -> None:
    for wrong, caught in (
        (lambda: Tensor.ones(2, 3).reshape(5), ValueError),
        (lambda: Tensor.ones(2, 3) @ Tensor.ones(2, 3), RuntimeError),
        (lambda: Tensor.ones(2)[3], IndexError),
        (lambda: Tensor.ones(2).sum(4), IndexError),
        (lambda: Tensor.ones(2, 3) + Tensor.ones(4), IndexError),
        (lambda: Tensor.ones(2) & Tensor.ones(2), RuntimeError),
        (lambda: bool(Tensor.ones(2)), TypeError),
    ):
        with pytest.raises(caught):
            wrong()


def test_sizes_of_a_model_are_arithmetic_of_variables() -> None:
    start = Variable("start_pos", 1, 6).bind(3)
    assert isinstance(start, UOp) and start.val == 3 and (start + 1).val == 4
    mask = Tensor.full((1, 1, 2, start + 2), float("-inf")).triu(start + 1)
    wanted = np.triu(np.full((2, 5), -np.inf), 4)
    np.testing.assert_array_equal(mask.numpy()[0, 0], np.where(np.isnan(wanted), 0, wanted))
    freqs = (Tensor.arange(8).float().unsqueeze(1) * Tensor([1.0, 0.5])).realize()
    np.testing.assert_array_equal(freqs[start : start + 2].numpy(), [[3, 1.5], [4, 2]])
