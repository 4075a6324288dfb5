"""What people build models from, beside PyTorch: each layer or function alone, and with its gradients.

Usage: python benchmarks/layers.py [--only TEXT ...] [--rounds 1] [--slow 0.7]

A ratio above 1 means that ours is faster. Nobody tuned for these lines: they are there to find the pattern
of a program that becomes a bad kernel. Each framework is a process of its own; lines below `--slow` are
marked. First call: ours, compiling included unless the kernels are in the cache.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from side_by_side import Run, Worker, in_turn, serve

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """A function of arrays of these shapes: `ours` of Tensors, `theirs` also gets torch.nn.functional.

    `scale` of the second array and the rest, so that what comes out is neither flat nor peaked. `classes`: the last
    array has integers below it.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Function
    theirs: Function
    has_gradient: bool = True
    scale: float = 1.0
    classes: int = 0

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        generator = np.random.default_rng(0)
        found = [generator.standard_normal(shape, np.float32) for shape in self.shapes]
        scaled = [found[0], *[array * np.float32(self.scale) for array in found[1:]]]
        if self.classes:
            scaled[-1] = generator.integers(0, self.classes, self.shapes[-1])
        return scaled


def convolution(
    name: str, image: tuple[int, ...], weight: tuple[int, ...], **options: Any
) -> Layer:
    """A convolution, with PyTorch's names of options."""
    kind = f"conv{len(image) - 2}d"
    return Layer(
        name,
        (image, weight),
        lambda x, w: x.conv2d(w, **options),
        lambda F, x, w: getattr(F, kind)(x, w, **options),
        scale=0.1,
    )


def method(name: str, shape: tuple[int, ...], call: Function, has_gradient: bool = True) -> Layer:
    """Methods that have one name in both."""
    return Layer(name, (shape,), call, lambda F, x: call(x), has_gradient)


def cell(x: Any, h: Any, w: Any, u: Any) -> Any:
    """A step of an LSTM, where `h` stands for both states."""
    i, f, g, o = (x @ w + h @ u).chunk(4, dim=1)
    return (g.tanh() * i.sigmoid() + h * f.sigmoid()).tanh() * o.sigmoid()


IMAGE = (8, 64, 56, 56)
SQUARE = (2048, 2048)
ROWS = (1024, 4096)
LAYERS = (
    convolution("conv 3x3, 64 x 56", IMAGE, (64, 64, 3, 3), padding=1),
    convolution("conv 3x3, 128 x 28", (8, 128, 28, 28), (128, 128, 3, 3), padding=1),
    convolution("conv 3x3, 256 x 14", (8, 256, 14, 14), (256, 256, 3, 3), padding=1),
    convolution("conv 3x3, 512 x 7", (8, 512, 7, 7), (512, 512, 3, 3), padding=1),
    convolution("conv 3x3, stride 2", IMAGE, (128, 64, 3, 3), padding=1, stride=2),
    convolution("conv 1x1, stride 2", IMAGE, (128, 64, 1, 1), stride=2),
    convolution("conv 5x5", (4, 32, 64, 64), (32, 32, 5, 5), padding=2),
    convolution("conv 3x3, dilated", (4, 32, 56, 56), (32, 32, 3, 3), padding=2, dilation=2),
    convolution("conv, depthwise", IMAGE, (64, 1, 3, 3), padding=1, groups=64),
    convolution("conv, 4 groups", (8, 64, 28, 28), (64, 16, 3, 3), padding=1, groups=4),
    convolution("conv 1d", (8, 64, 1024), (64, 64, 5), padding=2),
    convolution("conv 3d", (2, 16, 16, 32, 32), (16, 16, 3, 3, 3), padding=1),
    Layer(
        "two convs and a sum",
        ((4, 64, 56, 56), (64, 64, 3, 3), (64, 64, 3, 3)),
        lambda x, w, v: (x.conv2d(w, padding=1).relu().conv2d(v, padding=1) + x).relu(),
        lambda F, x, w, v: (F.conv2d(F.conv2d(x, w, padding=1).relu(), v, padding=1) + x).relu(),
        scale=0.05,
    ),
    Layer(
        "transposed conv",
        ((4, 64, 28, 28), (64, 32, 4, 4)),
        lambda x, w: x.conv_transpose2d(w, stride=2, padding=1),
        lambda F, x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
    ),
    Layer("max pool", (IMAGE,), lambda x: x.max_pool2d(2), lambda F, x: F.max_pool2d(x, 2)),
    Layer(
        "max pool 3, stride 2",
        ((8, 64, 112, 112),),
        lambda x: x.max_pool2d(3, stride=2, padding=1),
        lambda F, x: F.max_pool2d(x, 3, stride=2, padding=1),
    ),
    Layer("mean pool", (IMAGE,), lambda x: x.avg_pool2d(2), lambda F, x: F.avg_pool2d(x, 2)),
    Layer(
        "batch norm, training",
        (IMAGE,),
        lambda x: x.batchnorm(
            None,
            None,
            x.mean((0, 2, 3)),
            (x.var((0, 2, 3), correction=0) + 1e-5).rsqrt(),
        ),
        lambda F, x: F.batch_norm(x, None, None, training=True),
    ),
    Layer(
        "layer norm", ((512, 768),), lambda x: x.layernorm(), lambda F, x: F.layer_norm(x, (768,))
    ),
    Layer(
        "linear and gelu",
        ((197, 768), (768, 3072)),
        lambda x, w: (x @ w).gelu(),
        lambda F, x, w: F.gelu(x @ w, approximate="tanh"),
        scale=0.03,
    ),
    Layer(
        "three projections",
        ((256, 512), (512, 512), (512, 512), (512, 512)),
        lambda x, q, k, v: (x @ q) * (x @ k) + x @ v,
        lambda F, x, q, k, v: (x @ q) * (x @ k) + x @ v,
        scale=0.05,
    ),
    Layer(
        "gated linear",
        ((256, 512), (512, 2048)),
        lambda x, w: (lambda a, b: a.sigmoid() * a * b)(*(x @ w).chunk(2, dim=1)),
        lambda F, x, w: (lambda a, b: F.silu(a) * b)(*(x @ w).chunk(2, dim=1)),
        scale=0.05,
    ),
    Layer(
        "two products joined",
        ((512, 512), (512, 512), (512, 512)),
        lambda x, y, z: (x @ y).cat(x @ z, dim=1),
        lambda F, x, y, z: F.pad(x @ y, (0, 512)) + F.pad(x @ z, (512, 0)),
    ),
    Layer(
        "attention, 197 tokens",
        ((4, 12, 197, 64),) * 3,
        lambda q, k, v: q.scaled_dot_product_attention(k, v),
        lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v),
    ),
    Layer(
        "causal attention",
        ((1, 12, 1024, 64),) * 3,
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    Layer("LSTM cell", ((64, 256), (64, 256), (256, 1024), (256, 1024)), cell, lambda F, *x: cell(*x), scale=0.05),
    Layer(
        "cross entropy",
        ((512, 50257), (512,)),
        lambda x, y: x.sparse_categorical_crossentropy(y),
        lambda F, x, y: F.cross_entropy(x, y),
        classes=50257,
    ),
    Layer("product, short sums", ((2048, 8), (8, 2048)), lambda x, y: x @ y, lambda F, x, y: x @ y),
    Layer("product, long sums", ((64, 100_000), (100_000, 64)), lambda x, y: x @ y, lambda F, x, y: x @ y),
    Layer("product, many rows", ((100_000, 64), (64, 64)), lambda x, y: x @ y, lambda F, x, y: x @ y),
    Layer("product 300", ((300, 300), (300, 300)), lambda x, y: x @ y, lambda F, x, y: x @ y),
    Layer("many small products", ((256, 64, 64), (256, 64, 64)), lambda x, y: x @ y, lambda F, x, y: x @ y),
    Layer("vector times matrix", ((4096,), (4096, 4096)), lambda x, y: x @ y, lambda F, x, y: x @ y, False),
    Layer("outer product", ((4096, 1), (1, 4096)), lambda x, y: x * y, lambda F, x, y: x * y),
    Layer(
        "rows by number",
        ((10_000, 64), (5_000,)),
        lambda x, i: x[i],
        lambda F, x, i: x[i],
        classes=10_000,
    ),
    Layer(
        "distances",
        ((512, 64), (512, 64)),
        lambda x, y: (x.unsqueeze(1) - y).square().sum(-1).sqrt(),
        lambda F, x, y: (x.unsqueeze(1) - y).square().sum(-1).sqrt(),
    ),
    method("softmax, axis 1", (64, 512, 64), lambda x: x.softmax(1)),
    method("log softmax", (512, 50257), lambda x: x.log_softmax(-1)),
    method("running sum, rows", ROWS, lambda x: x.cumsum(1)),
    method("running sum, columns", ROWS, lambda x: x.cumsum(0)),
    method("sort", (256, 1024), lambda x: x.sort(-1)[0], False),
    method("ten largest", (256, 4096), lambda x: x.topk(10)[0], False),
    method("argmax", ROWS, lambda x: x.argmax(-1), False),
    method("deviation", ROWS, lambda x: x.std(-1)),
    method("sum, channels", (32, 64, 56, 56), lambda x: x.sum((0, 2, 3))),
    method("sum, middle axis", (64, 512, 256), lambda x: x.sum(1)),
    method("channels first", (16, 56, 56, 64), lambda x: x.permute(0, 3, 1, 2).contiguous()),
    method("flip", SQUARE, lambda x: x.flip(1).contiguous()),
    method("upper triangle", SQUARE, lambda x: x.triu()),
    method("exp, log, sin, tanh", SQUARE, lambda x: (x.exp() + 1).log() * x.sin().tanh()),
    method("erf", SQUARE, lambda x: x.erf()),
    method("pow", SQUARE, lambda x: x.abs().pow(1.7)),
)  # fmt: skip


def run_of(framework: str, request: dict[str, Any]) -> Run:
    """A call of a layer, or of its gradients."""
    layer = next(layer for layer in LAYERS if layer.name == request["name"])
    make = _ours if framework == "proofgrad" else _theirs
    return make(layer, request["gradients"])


def _ours(layer: Layer, gradients: bool) -> Run:
    from proofgrad import Tensor, TinyJit

    given = [Tensor(array).realize() for array in layer.arrays()]
    floats = [k for k, tensor in enumerate(given) if tensor.dtype.is_float]
    if not gradients:
        step = TinyJit(lambda *x: layer.ours(*x).realize())
        return lambda: step(*given)
    slope = Tensor.randn(*layer.ours(*given).shape).realize()

    @TinyJit
    def slopes(slope: Any, *x: Any) -> Any:
        found = (layer.ours(*x) * slope).sum().gradient(*[x[k] for k in floats])
        Tensor.realize(*found)
        return found

    return lambda: slopes(slope, *given)


def _theirs(layer: Layer, gradients: bool) -> Run:
    import torch
    import torch.nn.functional as F

    torch.set_grad_enabled(gradients)
    given = [torch.from_numpy(array) for array in layer.arrays()]
    if not gradients:
        return lambda: layer.theirs(F, *given)
    floats = [tensor.requires_grad_() for tensor in given if tensor.is_floating_point()]
    slope = torch.randn(layer.theirs(F, *given).shape)
    return lambda: torch.autograd.grad(layer.theirs(F, *given), floats, slope)


def report(layers: Sequence[Layer], rounds: int, slow: float) -> None:
    """Time the layers, and print a line for each."""
    workers = {name: Worker([__file__, "--worker", name]) for name in ("proofgrad", "torch")}
    print(f"{'':<24}{'':<11}{'ours, ms':>10}{'torch, ms':>11}{'ratio':>7}{'first call, s':>15}")
    for layer in layers:
        for gradients in (False, True) if layer.has_gradient else (False,):
            found = in_turn(workers, {"name": layer.name, "gradients": gradients}, rounds)
            ours, kind = found["proofgrad"], "gradients" if gradients else "value"
            theirs = found["torch"].least if "torch" in found else math.nan  # not installed
            ratio = theirs / ours.least
            times = f"{ours.least * 1e3:>10.3f}{theirs * 1e3:>11.3f}{ratio:>7.2f}"
            mark = "  slow" if ratio < slow else ""
            print(f"{layer.name:<24}{kind:<11}{times}{ours.first:>15.2f}{mark}", flush=True)
    for process in workers.values():
        process.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--slow", type=float, default=0.7, help="mark ratios below")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        framework = options.worker
        return serve(lambda request: run_of(framework, request))
    layers = [layer for layer in LAYERS if any(text in layer.name for text in options.only)]
    if not layers:
        parser.error(f"no layer has {' or '.join(options.only)} in its name")
    return report(layers, options.rounds, options.slow)


if __name__ == "__main__":
    sys.exit(main())
