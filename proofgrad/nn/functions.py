"""Functions of Tensors as layers, by torch's names: for models that list what they do.

Owns: arguments that stay the same from call to call. Does not own: the functions, which are methods of Tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad import Tensor
from proofgrad.core.tensor.data.arguments import takes_numbers
from proofgrad.nn.shown import Shown

Sizes = int | Sequence[int]


class Function(Shown):
    """A layer without parameters. It is shown with its arguments."""

    def __repr__(self) -> str:
        arguments = ", ".join([f"{name}={value!r}" for name, value in vars(self).items()])
        return f"{type(self).__name__}({arguments})"

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not say what it does with a Tensor")


class _Activation(Function):
    """A function of each element. torch's `inplace` is taken and changes no value: what is not used again takes no memory."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class ReLU(_Activation):
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


class SiLU(_Activation):
    """x * sigmoid(x)."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.silu()


class Identity(Function):
    """x itself."""

    def __call__(self, x: Tensor) -> Tensor:
        return x


class ReLU6(_Activation):
    """x, not below 0, not above 6."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.relu6()


class SELU(_Activation):
    """The scaled exponential linear unit of Klambauer and others (2017), with all digits of its constants, as torch has it."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.selu(1.6732632423543772, 1.0507009873554805)


class Mish(_Activation):
    """x * tanh(softplus(x))."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.mish()


class Softsign(Function):
    """x / (1 + |x|)."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.softsign()


class LogSigmoid(Function):
    """The logarithm of Sigmoid."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.logsigmoid()


class Hardsigmoid(_Activation):
    """x / 6 + 1 / 2, not below 0, not above 1."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.hardsigmoid()


class Hardswish(_Activation):
    """x * Hardsigmoid(x)."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.hardswish()


class Hardtanh(Function):
    """x, not below min_val, not above max_val."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        self.min_val, self.max_val = min_val, max_val

    def __call__(self, x: Tensor) -> Tensor:
        return x.hardtanh(self.min_val, self.max_val)


class PReLU(Shown):
    """x above 0, weight * x below; one learnt weight, or one for each of the second axis. Shapes: (n, num_parameters, ..)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.weight = Tensor.full((num_parameters,), init).contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        shape = (1, -1, *(1,) * (x.ndim - 2)) if x.ndim > 1 else (-1,)
        return (x > 0).where(x, x * self.weight.reshape(shape))


class LeakyReLU(Function):
    """x above 0, negative_slope * x below."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = negative_slope

    def __call__(self, x: Tensor) -> Tensor:
        return x.leaky_relu(self.negative_slope)


class ELU(Function):
    """x above 0, alpha * (exp(x) - 1) below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = alpha

    def __call__(self, x: Tensor) -> Tensor:
        return x.elu(self.alpha)


class CELU(Function):
    """x above 0, alpha * (exp(x / alpha) - 1) below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = alpha

    def __call__(self, x: Tensor) -> Tensor:
        return x.celu(self.alpha)


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
        return x.gelu(self.approximate)


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


class Unflatten(Function):
    """The axis `dim` as several of the sizes `unflattened_size`."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def __call__(self, x: Tensor) -> Tensor:
        return x.unflatten(self.dim, self.unflattened_size)


class Upsample(Function):
    """The axes after the first two stretched to `size`, or by `scale_factor`; `mode` as `Tensor.interpolate` takes it, torch's names too."""

    @takes_numbers
    def __init__(
        self,
        size: Sizes | None = None,
        scale_factor: int | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        if (size is None) == (scale_factor is None):
            raise ValueError(
                f"Upsample takes size or scale_factor, one of them, not {size} and {scale_factor}"
            )
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners = mode, align_corners

    def __call__(self, x: Tensor) -> Tensor:
        spatial = x.shape[2:]
        if self.scale_factor is not None:
            sizes = tuple([size * self.scale_factor for size in spatial])
        elif isinstance(self.size, int):
            sizes = (self.size,) * len(spatial)
        else:
            sizes = tuple(self.size or ())
        mode = "linear" if self.mode in ("bilinear", "trilinear") else self.mode
        return x.interpolate(sizes, mode, self.align_corners)
