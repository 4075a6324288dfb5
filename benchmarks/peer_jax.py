"""The workloads in JAX, compiled by jax.jit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from peer_workloads import Workload, arrays
from side_by_side import Run

HEADS = 12


def run_of(workload: Workload) -> Run:
    """A call that waits for its result. Raises: NotImplementedError for training a CNN."""
    given = [jnp.asarray(array) for array in arrays(workload)]
    if workload.kind == "train_mlp":
        return _trainer(*given)
    if workload.kind == "eager":
        return lambda: jax.block_until_ready(given[0] + 1)
    compiled = jax.jit(_function(workload))
    return lambda: jax.block_until_ready(compiled(*given))


def _function(workload: Workload) -> Callable[..., Any]:
    match workload.kind:
        case "product" | "batch":
            return lambda a, b: a @ b
        case "turned_a":
            return lambda a, b: a.T @ b
        case "turned_b":
            return lambda a, b: a @ b.T
        case "elementwise":
            return lambda x: jax.nn.relu(x * 2 + 1) * x - 3
        case "gelu":
            return jax.nn.gelu
        case "softmax":
            return jax.nn.softmax
        case "layernorm":
            return _norm
        case "transpose":
            return lambda x: x.T + 0
        case "sum":
            return lambda x: x.sum()
        case "sum_axis0":
            return lambda x: x.sum(0)
        case "embedding":
            return lambda x, positions: x[positions]
        case "embedding_gradient":
            return lambda x, positions, slope: jax.vjp(lambda x: x[positions], x)[1](slope)[0]
        case "convolution":
            *_, window, stride = workload.sizes
            padding = [(window // 2, window // 2)] * 2
            return lambda x, w: jax.lax.conv(x, w, (stride, stride), padding)
        case "attention" | "causal" as kind:
            return lambda q, k, v: _attention(q, k, v, kind == "causal")
        case "block":
            return _block()
        case "jitted":
            return lambda x: jax.nn.relu((x + 1) * 2)
        case "ten":
            return _ten
    raise NotImplementedError(f"{workload.name} is not written for jax")


def _attention(q: Any, k: Any, v: Any, is_causal: bool) -> Any:
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    allowed = jnp.tril(jnp.ones(scores.shape[-2:], bool)) if is_causal else True
    return jax.nn.softmax(jnp.where(allowed, scores, -jnp.inf)) @ v


def _norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _ten(x: Any) -> Any:
    for _ in range(10):
        x = x @ x
    return x


def _layers(*sizes: int) -> list[tuple[Any, Any]]:
    """Weights and biases of layers from each size to the next."""
    keys = jax.random.split(jax.random.PRNGKey(0), len(sizes))
    shapes = zip(keys, sizes, sizes[1:])
    return [(jax.random.normal(key, (a, b)) / math.sqrt(a), jnp.zeros(b)) for key, a, b in shapes]


def _block(width: int = 768) -> Callable[[Any], Any]:
    """A block of GPT-2, whose weights are constants of the compiled function's arguments."""
    (qkv,), (out,), (up,), (down,) = [
        _layers(*sizes)
        for sizes in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
    ]
    weights = (qkv, out, up, down)

    @jax.jit
    def block(weights: Any, x: Any) -> Any:
        qkv, out, up, down = weights
        batch, tokens, _ = x.shape
        parts = jnp.split(_norm(x) @ qkv[0] + qkv[1], 3, axis=-1)
        q, k, v = [part.reshape(batch, tokens, HEADS, -1) for part in parts]
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.reshape(batch, tokens, width) @ out[0] + out[1]
        hidden = jax.nn.gelu(_norm(x) @ up[0] + up[1])
        return x + hidden @ down[0] + down[1]

    return lambda x: block(weights, x)


def _trainer(x: Any, labels: Any) -> Run:
    """A step of Adam on three layers."""

    def loss(layers: Any) -> Any:
        value = x
        for k, (weight, bias) in enumerate(layers):
            value = value @ weight + bias
            value = jax.nn.relu(value) if k + 1 < len(layers) else value
        return -jnp.take_along_axis(jax.nn.log_softmax(value), labels[:, None], 1).mean()

    @jax.jit
    def step(layers: Any, first: Any, second: Any, count: Any) -> Any:
        gradient = jax.grad(loss)(layers)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        change = jax.tree.map(lambda m, v: rate * m / (jnp.sqrt(v) + 1e-8), first, second)
        return jax.tree.map(jnp.subtract, layers, change), first, second, count + 1

    layers = _layers(784, 512, 512, 10)
    zeros = jax.tree.map(jnp.zeros_like, layers)
    state = [layers, zeros, zeros, jnp.float32(1)]

    def run() -> None:
        state[:] = jax.block_until_ready(step(*state))

    return run
