"""Every way to make a Tensor, and what fusion saves: one kernel where steps take three.

Run: python examples/01_tensor_basics.py          (DEBUG=2 shows each kernel, DEBUG=3 its source)
"""

from __future__ import annotations

import time

from proofgrad import GlobalCounters, Tensor, dtypes

SIZE = 128


def factories() -> dict[str, Tensor]:
    """One Tensor of each factory."""
    Tensor.manual_seed(0)
    return {
        "Tensor(list)": Tensor([[1, 2], [3, 4]]),
        "zeros": Tensor.zeros(2, 3),
        "ones": Tensor.ones(2, 3, dtype=dtypes.int32),
        "full": Tensor.full((2, 2), 7),
        "arange": Tensor.arange(5),
        "linspace": Tensor.linspace(0, 1, 5),
        "eye": Tensor.eye(3),
        "rand": Tensor.rand(2, 2),
        "randn": Tensor.randn(2, 2),
        "randint": Tensor.randint(4, low=0, high=10),
        "uniform": Tensor.uniform(4, low=-1.0, high=1.0),
        "glorot_uniform": Tensor.glorot_uniform(4, 4),
        "kaiming_uniform": Tensor.kaiming_uniform(4, 4),
        "full_like": Tensor.eye(2).full_like(3.0),
    }


def at_once(a: Tensor, b: Tensor) -> Tensor:
    """The whole expression in one graph."""
    return (a + b).relu().sum().realize()


def in_steps(a: Tensor, b: Tensor) -> Tensor:
    """The same, each step computed before the next."""
    total = (a + b).realize()
    positive = total.relu().realize()
    return positive.sum().realize()


def main() -> None:
    """Shapes and dtypes; kernels and time with and without fusion."""
    for name, tensor in factories().items():
        print(f"{name:<16} {tensor.shape!s:<8} {tensor.dtype}")
    a = Tensor.randn(SIZE, SIZE).realize()
    b = Tensor.randn(SIZE, SIZE).realize()
    for run in (at_once, in_steps):
        run(a, b)  # compiles
        kernels, start = GlobalCounters.kernel_count, time.perf_counter()
        result = run(a, b).item()
        milliseconds = (time.perf_counter() - start) * 1e3
        kernels = GlobalCounters.kernel_count - kernels
        print(f"{run.__name__:<9} {kernels} kernels  {milliseconds:6.2f} ms  {result:.1f}")
    total = (a + b).relu().sum()
    before = len(total.schedule())
    print(f"to run before realize: {before}, after: {len(total.realize().schedule())}")


if __name__ == "__main__":
    main()
