"""An activation of one's own, its derivative, and a check of it by differences.

Run: python examples/custom_activation.py
"""

from __future__ import annotations

from proofgrad import Tensor, gradcheck


def cube_where_positive(x: Tensor) -> Tensor:
    """x**3 where x > 0, else x."""
    return (x > 0).where(x**3, x)


def main() -> None:
    """Values and derivatives at four points."""
    x = Tensor([-2.0, -0.5, 0.5, 2.0], requires_grad=True)
    y = cube_where_positive(x)
    (gradient,) = y.sum().gradient(x)
    print("values     ", y.tolist())
    print("derivatives", gradient.tolist())
    print("checked    ", gradcheck(cube_where_positive, x))


if __name__ == "__main__":
    main()
