"""Fifteen minutes with lazy Tensors: nothing runs until a value is asked for, and then in one go.

Run: python examples/00_intro.py
"""

from __future__ import annotations

from proofgrad import GlobalCounters, Tensor


def kernels_of(*tensors: Tensor) -> int:
    """How many kernels it takes to compute these Tensors."""
    before = GlobalCounters.kernel_count
    Tensor.realize(*tensors)
    return GlobalCounters.kernel_count - before


def main() -> None:
    """Laziness, fusion, views, gradients."""
    a, b = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[0.5, -1.0], [-4.0, 2.0]])
    c = (a + b).relu() * 2
    print("a graph, no values yet:", c)
    print("fused: one kernel for +, relu, *:", kernels_of(c), "->", c.tolist())

    total = (a * b).sum(axis=1).exp()
    print("with a sum in the middle:", kernels_of(total), "->", total.tolist())

    view = a.realize().permute((1, 0)).flip(0)
    print("movement of data that is there runs nothing:", kernels_of(view))
    print("it becomes index terms of the kernel that reads it:", view.tolist())

    x = Tensor([2.0], requires_grad=True)
    y = (x * x + 3 * x + 1).sum()
    y.backward()
    assert x.grad is not None
    print("d(x^2 + 3x + 1)/dx at 2 =", x.grad.item())


if __name__ == "__main__":
    main()
