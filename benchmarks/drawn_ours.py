"""The drawn workloads on Tensors, and the arrays that all frameworks are given.

Owns: both. Does not own: what is drawn (drawn_cases.py), the same in peers (drawn_peers.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from drawn_cases import Case, Operand
from side_by_side import Run


def arrays(case: Case) -> list[Any]:
    """float32, int32 below a number, or truths, of which no row is all false."""
    import numpy

    rng = numpy.random.default_rng(0)

    def array(operand: Operand) -> Any:
        if operand.is_mask:
            found = rng.random(operand.shape) < 0.7
            found[..., 0] = True
            return found
        if operand.below:
            return rng.integers(0, operand.below, operand.shape, numpy.int32)
        found = rng.standard_normal(operand.shape, numpy.float32)
        return (
            abs(found) / (1 + abs(found)) + numpy.float32(0.5) if case.what == "cumprod" else found
        )

    found = [array(operand) for operand in case.operands]
    if case.what == "bce":
        found[1] = (found[1] > 0).astype(numpy.float32)
    return found


def run_of(case: Case) -> Run:
    """A recorded call, as a user runs it, that waits for its result."""
    from proofgrad import Tensor, TinyJit

    given = [Tensor(array).realize() for array in arrays(case)]
    function = FUNCTIONS[case.what]
    step = TinyJit(lambda *tensors: function(case.options, *tensors).realize())
    return lambda: step(*given)


def searched(case: Case) -> dict[str, Any]:
    """What BEAM finds for each kernel of a workload: the default, what it takes, how many times as fast that is."""
    from proofgrad import Context, Tensor
    from proofgrad.core.compile.tune.search import Found, Search

    found: list[Found] = []
    look = Search.found

    def noted(self: Search) -> tuple[Found, bool]:
        found.append((result := look(self))[0])
        return result

    given = [Tensor(array).realize() for array in arrays(case)]
    Search.found = noted  # type: ignore[method-assign]
    try:
        with Context(BEAM=int(os.environ["WIDTH"])):
            FUNCTIONS[case.what](case.options, *given).realize()
    finally:
        Search.found = look  # type: ignore[method-assign]
    return {"found": [[f.default, f.taken, f.gain, f.timings] for f in found]}


def _matmul(options: dict[str, Any], a: Any, b: Any) -> Any:
    one, other = options["turned"]
    return (a.transpose(-1, -2) if one else a) @ (b.transpose(-1, -2) if other else b)


def _attention(options: dict[str, Any], q: Any, k: Any, v: Any, *mask: Any) -> Any:
    return q.scaled_dot_product_attention(k, v, *mask, is_causal=options["mask"] == "causal")


def _group_norm(options: dict[str, Any], x: Any) -> Any:
    from proofgrad import nn

    return nn.GroupNorm(options["groups"], x.shape[1], affine=False)(x)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "conv": lambda o, x, w: x.conv2d(w, None, o["groups"], o["stride"], o["dilation"], tuple(o["padding"])),
    "sum": lambda o, x: x.sum(tuple(o["axes"])),
    "mean": lambda o, x: x.mean(tuple(o["axes"])),
    "max": lambda o, x: x.max(tuple(o["axes"])),
    "std": lambda o, x: x.std(tuple(o["axes"]), correction=0),
    "argmax": lambda o, x: x.argmax(o["axis"]),
    "affine": lambda o, x, y, z: (x * y + z).relu(),
    "gelu": lambda o, x, y, z: (x + y).gelu() * z,
    "ratio": lambda o, x, y, z: x / (y.abs() + 1) - z,
    "exp_log": lambda o, x, y, z: (-x.abs()).exp() + (y.abs() + 1).log() * z,
    "where": lambda o, x, y, z: (x > y).where(x, y * z),
    "gate": lambda o, x, y, z: (x + y).sigmoid() * z.tanh(),
    "softmax": lambda o, x: x.softmax(o["axis"]),
    "log_softmax": lambda o, x: x.log_softmax(o["axis"]),
    "layer_norm": lambda o, x: x.layernorm(),
    "rms_norm": lambda o, x: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt(),
    "group_norm": _group_norm,
    "batch_norm": lambda o, x: x.batchnorm(
        None, None, x.mean((0, 2, 3)), (x.var((0, 2, 3), correction=0) + 1e-5).rsqrt()
    ),
    "rows": lambda o, x, at: x[at],
    "gather": lambda o, x, at: x.gather(o["axis"], at),
    "cumsum": lambda o, x: x.cumsum(o["axis"]),
    "cumprod": lambda o, x: x.cumprod(o["axis"]),
    "cummax": lambda o, x: x.cummax(o["axis"])[0],
    "sort": lambda o, x: x.sort()[0],
    "argsort": lambda o, x: x.argsort(),
    "topk": lambda o, x: x.topk(o["count"])[0],
    "max_pool": lambda o, x: x.max_pool2d(tuple(o["window"]), o["stride"], 1, o["padding"]),
    "avg_pool": lambda o, x: x.avg_pool2d(tuple(o["window"]), o["stride"], 1, o["padding"]),
    "attention": _attention,
    "cross_entropy": lambda o, x, y: x.sparse_categorical_crossentropy(y),
    "mse": lambda o, x, y: (x - y).square().mean(),
    "bce": lambda o, x, y: x.binary_crossentropy_logits(y),
}  # fmt: skip
