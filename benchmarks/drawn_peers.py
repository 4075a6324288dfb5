"""The drawn workloads in torch, numpy and jax, as their users write them.

Owns: a function of each framework for each workload that it has. Does not own: arrays (drawn_ours.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from drawn_cases import Case
from drawn_ours import arrays
from side_by_side import Run

PEERS = ("torch", "numpy", "jax")
Function = Callable[..., Any]


def run_of(case: Case, framework: str) -> Run:
    """A call that waits for its result. Raises: NotImplementedError for what the framework has no call for, ImportError."""
    function, given = function_of(case, framework), arrays(case)
    match framework:
        case "torch":
            torch = import_module("torch")
            torch.set_num_threads(len(os.sched_getaffinity(0)))
            torch.set_grad_enabled(False)
            given = [_for_torch(array) for array in given]
            return lambda: function(*given)
        case "jax":
            jax = import_module("jax")
            compiled, given = jax.jit(function), [jax.numpy.asarray(array) for array in given]
            return lambda: jax.block_until_ready(compiled(*given))
    return lambda: function(*given)


def function_of(case: Case, framework: str) -> Function:
    """Of arrays of the framework. Raises: NotImplementedError, ImportError."""
    if framework == "jax":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    made = {"torch": _torch, "numpy": _numpy, "jax": _jax}[framework]()
    if case.what not in made:
        raise NotImplementedError(f"{framework} has no one call for {case.what}")
    function = made[case.what]
    return lambda *given: function(case.options, *given)


def _for_torch(array: Any) -> Any:
    tensor = import_module("torch").from_numpy(array)
    return tensor.long() if array.dtype.kind == "i" else tensor


def _turned(o: dict[str, Any], a: Any, b: Any) -> Any:
    one, other = o["turned"]
    return (a.swapaxes(-1, -2) if one else a) @ (b.swapaxes(-1, -2) if other else b)


def _torch() -> dict[str, Function]:
    torch = import_module("torch")
    F = torch.nn.functional

    def conv(o: dict[str, Any], x: Any, w: Any) -> Any:
        call = (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
        return call(x, w, None, o["stride"], o["padding"], o["dilation"], o["groups"])

    def attention(o: dict[str, Any], q: Any, k: Any, v: Any, *mask: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, *mask, is_causal=o["mask"] == "causal")

    return {
        "matmul": _turned,
        "conv": conv,
        "sum": lambda o, x: x.sum(o["axes"]),
        "mean": lambda o, x: x.mean(o["axes"]),
        "max": lambda o, x: x.amax(o["axes"]),
        "std": lambda o, x: x.std(o["axes"], correction=0),
        "argmax": lambda o, x: x.argmax(o["axis"]),
        "affine": lambda o, x, y, z: (x * y + z).relu(),
        "gelu": lambda o, x, y, z: F.gelu(x + y, approximate="tanh") * z,
        "ratio": lambda o, x, y, z: x / (y.abs() + 1) - z,
        "exp_log": lambda o, x, y, z: (-x.abs()).exp() + (y.abs() + 1).log() * z,
        "where": lambda o, x, y, z: torch.where(x > y, x, y * z),
        "gate": lambda o, x, y, z: (x + y).sigmoid() * z.tanh(),
        "softmax": lambda o, x: x.softmax(o["axis"]),
        "log_softmax": lambda o, x: x.log_softmax(o["axis"]),
        "layer_norm": lambda o, x: F.layer_norm(x, x.shape[-1:]),
        "rms_norm": lambda o, x: F.rms_norm(x, x.shape[-1:], eps=1e-5),
        "group_norm": lambda o, x: F.group_norm(x, o["groups"]),
        "batch_norm": lambda o, x: F.batch_norm(x, None, None, training=True),
        "rows": lambda o, x, at: F.embedding(at, x),
        "gather": lambda o, x, at: x.gather(o["axis"], at),
        "cumsum": lambda o, x: x.cumsum(o["axis"]),
        "cumprod": lambda o, x: x.cumprod(o["axis"]),
        "cummax": lambda o, x: x.cummax(o["axis"])[0],
        "sort": lambda o, x: x.sort()[0],
        "argsort": lambda o, x: x.argsort(),
        "topk": lambda o, x: x.topk(o["count"])[0],
        "max_pool": lambda o, x: F.max_pool2d(x, o["window"], o["stride"], o["padding"]),
        "avg_pool": lambda o, x: F.avg_pool2d(x, o["window"], o["stride"], o["padding"]),
        "attention": attention,
        "cross_entropy": lambda o, x, y: F.cross_entropy(x, y),
        "mse": lambda o, x, y: F.mse_loss(x, y),
        "bce": lambda o, x, y: F.binary_cross_entropy_with_logits(x, y),
    }


def _of_arrays(np: Any) -> dict[str, Function]:
    """What numpy and jax.numpy have one name for."""
    return {
        "matmul": _turned,
        "sum": lambda o, x: x.sum(tuple(o["axes"])),
        "mean": lambda o, x: x.mean(tuple(o["axes"])),
        "max": lambda o, x: x.max(tuple(o["axes"])),
        "std": lambda o, x: x.std(tuple(o["axes"])),
        "argmax": lambda o, x: x.argmax(o["axis"]),
        "affine": lambda o, x, y, z: np.maximum(x * y + z, 0),
        "ratio": lambda o, x, y, z: x / (abs(y) + 1) - z,
        "exp_log": lambda o, x, y, z: np.exp(-abs(x)) + np.log(abs(y) + 1) * z,
        "where": lambda o, x, y, z: np.where(x > y, x, y * z),
        "rows": lambda o, x, at: x[at],
        "cumsum": lambda o, x: x.cumsum(o["axis"]),
        "cumprod": lambda o, x: x.cumprod(o["axis"]),
        "sort": lambda o, x: np.sort(x, -1),
        "argsort": lambda o, x: np.argsort(x, -1),
        "mse": lambda o, x, y: np.mean((x - y) ** 2),
    }


def _numpy() -> dict[str, Function]:
    np = import_module("numpy")
    return {**_of_arrays(np), "cummax": lambda o, x: np.maximum.accumulate(x, o["axis"])}


def _jax() -> dict[str, Function]:
    jax, np = import_module("jax"), import_module("jax.numpy")

    def conv(o: dict[str, Any], x: Any, w: Any) -> Any:
        axes = x.ndim - 2
        padding = [(p, p) for p in o["padding"]]
        return jax.lax.conv_general_dilated(
            x, w, (o["stride"],) * axes, padding, rhs_dilation=(o["dilation"],) * axes,
            feature_group_count=o["groups"],
        )  # fmt: skip

    def normed(x: Any, axes: Any) -> Any:
        mean = x.mean(axes, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(x.var(axes, keepdims=True) + 1e-5)

    def group_norm(o: dict[str, Any], x: Any) -> Any:
        return normed(x.reshape(x.shape[0], o["groups"], -1), -1).reshape(x.shape)

    def pooled(o: dict[str, Any], x: Any, start: float, step: Any) -> Any:
        sides = [(0, 0), (0, 0), *[(o["padding"],) * 2] * 2]
        window, strides = (1, 1, *o["window"]), (1, 1, *[o["stride"]] * 2)
        return jax.lax.reduce_window(x, start, step, window, strides, sides)

    def avg_pool(o: dict[str, Any], x: Any) -> Any:
        return pooled(o, x, 0.0, jax.lax.add) / (o["window"][0] * o["window"][1])

    def attention(o: dict[str, Any], q: Any, k: Any, v: Any, *mask: Any) -> Any:
        q, k, v = [x.swapaxes(1, 2) for x in (q, k, v)]
        options = {"mask": mask[0]} if mask else {"is_causal": o["mask"] == "causal"}
        return jax.nn.dot_product_attention(q, k, v, **options).swapaxes(1, 2)

    def cross_entropy(o: dict[str, Any], x: Any, y: Any) -> Any:
        return -np.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    return {
        **_of_arrays(np),
        "conv": conv,
        "gelu": lambda o, x, y, z: jax.nn.gelu(x + y) * z,
        "gate": lambda o, x, y, z: jax.nn.sigmoid(x + y) * np.tanh(z),
        "softmax": lambda o, x: jax.nn.softmax(x, o["axis"]),
        "log_softmax": lambda o, x: jax.nn.log_softmax(x, o["axis"]),
        "layer_norm": lambda o, x: normed(x, -1),
        "rms_norm": lambda o, x: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5),
        "group_norm": group_norm,
        "batch_norm": lambda o, x: normed(x, (0, 2, 3)),
        "cummax": lambda o, x: jax.lax.cummax(x, o["axis"]),
        "topk": lambda o, x: jax.lax.top_k(x, o["count"])[0],
        "max_pool": lambda o, x: pooled(o, x, -np.inf, jax.lax.max),
        "avg_pool": avg_pool,
        "attention": attention,
        "cross_entropy": cross_entropy,
        "bce": lambda o, x, y: (jax.nn.softplus(x) - x * y).mean(),
    }
