"""Functions of Tensors as layers, by torch's names: for models that list what they do.

Owns: arguments that stay the same from call to call. Does not own: the functions, which are methods of Tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad import Tensor
from proofgrad.nn.shown import Shown

Sizes = int | Sequence[int]


class Function(Shown):
    """A layer without parameters. It is shown with its arguments."""

    def __repr__(self) -> str:
        arguments = ", ".join([f"{name}={value!r}" for name, value in vars(self).items()])
        return f"{type(self).__name__}({arguments})"

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not say what it does with a Tensor")


class ReLU(Function):
    """max(x, 0)."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.relu()


class Sigmoid(Function):
    """1 / (1 + exp(-x))."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.sigmoid()


class Tanh(Function):
    """The hyperbolic tangent."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.tanh()


class SiLU(Function):
    """x * sigmoid(x)."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.silu()


class Identity(Function):
    """x itself."""

    def __call__(self, x: Tensor) -> Tensor:
        return x


class LeakyReLU(Function):
    """x above 0, negative_slope * x below."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def __call__(self, x: Tensor) -> Tensor:
        return x.leaky_relu(self.negative_slope)


class ELU(Function):
    """x above 0, alpha * (exp(x) - 1) below."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def __call__(self, x: Tensor) -> Tensor:
        return x.elu(self.alpha)


class Softplus(Function):
    """log(1 + exp(beta * x)) / beta."""

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = beta

    def __call__(self, x: Tensor) -> Tensor:
        return x.softplus(self.beta)


class GELU(Function):
    """x times the normal distribution's share below x; `approximate` "tanh" for Hendrycks and Gimpel's formula."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(f"approximate is 'none' or 'tanh', not {approximate!r}")
        self.approximate = approximate

    def __call__(self, x: Tensor) -> Tensor:
        if self.approximate == "tanh":
            return x.gelu()
        result: Tensor = x * 0.5 * (1 + (x * 0.5**0.5).erf())
        return result


class Softmax(Function):
    """exp(x) over its sum along `dim`."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def __call__(self, x: Tensor) -> Tensor:
        return x.softmax(self.dim)


class LogSoftmax(Function):
    """The logarithm of Softmax."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def __call__(self, x: Tensor) -> Tensor:
        return x.log_softmax(self.dim)


class Flatten(Function):
    """The axes start_dim .. end_dim as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)


class MaxPool2d(Function):
    """The largest of each window of the last two axes. Shapes: (.., h, w) to (.., h', w').

    `stride` None is the window's size.
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
    ) -> None:
        both = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
        self.kernel_size, self.stride = both, stride
        self.padding, self.ceil_mode = padding, ceil_mode

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = x.max_pool2d(
            self.kernel_size, self.stride, padding=self.padding, ceil_mode=self.ceil_mode
        )
        return result


class AvgPool2d(Function):
    """The mean of each window of the last two axes, padding counted. Shapes: (.., h, w) to (.., h', w').

    `stride` None is the window's size.
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
    ) -> None:
        both = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
        self.kernel_size, self.stride = both, stride
        self.padding, self.ceil_mode = padding, ceil_mode

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = x.avg_pool2d(
            self.kernel_size, self.stride, padding=self.padding, ceil_mode=self.ceil_mode
        )
        return result
