"""The three kinds of operations: elementwise, reduction, movement; and a product made of them.

Run: python examples/02_op_types.py               (DEBUG=3 shows the source of each kernel)
"""

from __future__ import annotations

from proofgrad import GlobalCounters, Tensor


def kernels_of(tensor: Tensor) -> int:
    """How many kernels it takes to compute this Tensor."""
    before = GlobalCounters.kernel_count
    tensor.realize()
    return GlobalCounters.kernel_count - before


def product_by_hand(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product as movement, multiplication and sum, which is what `@` is too."""
    n, k = a.shape
    m = b.shape[1]
    left = a.reshape((n, 1, k)).expand((n, m, k))
    right = b.transpose(0, 1).reshape((1, m, k)).expand((n, m, k))
    return (left * right).sum(axis=2)


def main() -> None:
    """Kernels of each kind, and of all together."""
    Tensor.manual_seed(0)
    x, y = Tensor.randn(4, 4).realize(), Tensor.randn(16).realize()
    print("elementwise:", {name: kernels_of(getattr(x, name)()) for name in ("relu", "exp", "neg")})
    print("reductions: ", {"sum": kernels_of(x.sum()), "max": kernels_of(x.max(axis=0))})
    moved = {
        "reshape": x.reshape((2, 8)),
        "permute": x.permute((1, 0)),
        "expand": x.reshape((4, 1, 4)).expand((4, 3, 4)),
        "flip": x.flip(0),
    }
    print("movement:   ", {name: kernels_of(tensor) for name, tensor in moved.items()})
    mixed = (x.permute((1, 0)) @ y.reshape((4, 4))).sum(axis=1)
    print("mixed:       a sum of sums:", kernels_of(mixed))
    a, b = Tensor.randn(8, 5), Tensor.randn(5, 7)
    difference = (product_by_hand(a, b) - a @ b).abs().max().item()
    print("a product by hand differs from @ by", difference)


if __name__ == "__main__":
    main()
