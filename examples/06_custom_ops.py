"""Operations of one's own, made of primitives: values, derivatives, kernels, operations counted.

Run: python examples/06_custom_ops.py             (DEBUG=3 shows the source of each kernel)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from proofgrad import GlobalCounters, Tensor, gradcheck
from proofgrad.testing import assert_close

SIZE = 1 << 18


def gelu(x: Tensor) -> Tensor:
    """x times the chance that a normal number is below x (Hendrycks and Gimpel, 2016)."""
    return x * 0.5 * (1 + (x / math.sqrt(2)).erf())


def gelu_in_steps(x: Tensor) -> Tensor:
    """The same, each step computed before the next."""
    scaled = (x / math.sqrt(2)).realize()
    share = scaled.erf().realize()
    return (x * 0.5 * (1 + share).realize()).realize()


def rms_norm(x: Tensor) -> Tensor:
    """Divided by the root of the mean square (Zhang and Sennrich, 2019)."""
    return x / ((x * x).mean(-1, keepdim=True) + 1e-6).sqrt()


def swiglu(x: Tensor, gate: Tensor) -> Tensor:
    """x let through by a gate (Shazeer, 2020); the gate is a sigmoid, as in the seed."""
    return x * gate.sigmoid()


def against_formulas() -> None:
    """The values, in Python's float64."""
    x, gate = [-2.0, -0.3, 0.0, 0.7, 3.0], [1.0, -1.0, 0.5, 4.0, -2.0]
    root = math.sqrt(sum(v * v for v in x) / len(x) + 1e-6)
    assert_close(gelu(Tensor(x)), [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])
    assert_close(rms_norm(Tensor(x)), [v / root for v in x])
    expected = [v / (1 + math.exp(-g)) for v, g in zip(x, gate, strict=True)]
    assert_close(swiglu(Tensor(x), Tensor(gate)), expected)
    print("values are those of the formulas")


def against_torch() -> None:
    """Values and derivatives of torch, where it is installed."""
    try:
        import torch
    except ImportError:
        print("torch is not installed: not compared with it")
        return
    x = Tensor.randn(4, 64, requires_grad=True)
    twin = torch.tensor(x.numpy(), requires_grad=True)
    cases: list[tuple[Callable[[Tensor], Tensor], Callable[..., object]]] = [
        (gelu, torch.nn.functional.gelu),
        (rms_norm, lambda t: torch.nn.functional.rms_norm(t, (64,), eps=1e-6)),
        (lambda t: swiglu(t, t), torch.nn.functional.silu),
    ]
    for ours, theirs in cases:
        value, expected = ours(x), theirs(twin)
        (slope,) = torch.autograd.grad(expected.square().sum(), twin)  # type: ignore[attr-defined]
        assert_close(value, expected.detach().numpy(), atol=1e-5)  # type: ignore[attr-defined]
        assert_close(value.square().sum().gradient(x)[0], slope.numpy(), rtol=1e-4, atol=1e-4)
    print("values and derivatives are those of torch")


def measure(run: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Kernels, operations an element, and time of one run."""
    run(x).realize()  # compiles
    kernels, operations = GlobalCounters.kernel_count, GlobalCounters.global_ops
    start = time.perf_counter()
    run(x).realize()
    milliseconds = (time.perf_counter() - start) * 1e3
    kernels = GlobalCounters.kernel_count - kernels
    operations = (GlobalCounters.global_ops - operations) // x.numel()
    name = getattr(run, "__name__", "run")
    print(f"{name:<14} {kernels} kernels  {operations:3} operations  {milliseconds:6.2f} ms")


def main() -> None:
    """Check, then measure."""
    Tensor.manual_seed(0)
    against_formulas()
    against_torch()
    points = Tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
    print("derivatives are those of differences:", gradcheck(rms_norm, points))
    x = Tensor.randn(SIZE // 64, 64).realize()
    for run in (gelu, gelu_in_steps, rms_norm, self_gated):
        measure(run, x)


def self_gated(x: Tensor) -> Tensor:
    """swiglu whose gate is its input."""
    return swiglu(x, x)


if __name__ == "__main__":
    main()
