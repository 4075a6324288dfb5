"""Layers that mix channels: products, convolutions, tables; and what puts layers in a row.

Owns: initial values of parameters. Does not own: the operations (core/tensor), normalisation
(normalization.py), recurrence (recurrent.py), attention (attention.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from proofgrad import DtypeError, ShapeError, Tensor
from proofgrad.core.ir.shapes import show
from proofgrad.core.tensor.data.arguments import takes_numbers
from proofgrad.nn.shown import Shown

Sizes = int | Sequence[int]


class Linear(Shown):
    """x @ weight.T + bias. Shapes: (.., in_features) to (.., out_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        if in_features < 1 or out_features < 0:
            raise ShapeError(f"Linear from {in_features} to {out_features} features")
        bound = in_features**-0.5
        self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[-1:] != self.weight.shape[-1:]:
            check_last_axis("Linear", x, self.weight.shape[-1])
        return x.linear(self.weight.transpose(), self.bias)


class Conv2d(Shown):
    """Cross-correlation. Shapes: (n, in_channels, h, w) to (n, out_channels, h', w').

    A `kernel_size` of another length gives that many axes. `padding` "same" keeps the size, at
    stride 1.

    Raises: ValueError for another word, ShapeError where groups do not divide the channels.
    """

    axes = 2

    @takes_numbers
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        if in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"{groups} groups must divide in_channels {in_channels} and out_channels"
                f" {out_channels}"
            )
        self.kernel_size = self._each(kernel_size)
        self.stride, self.groups, self.dilation = stride, groups, dilation
        self.padding = self._padding(padding)
        shape = self._weight_shape(in_channels, out_channels)
        bound = (in_channels // groups * prod(self.kernel_size)) ** -0.5
        self.weight = Tensor.uniform(*shape, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def _weight_shape(self, in_channels: int, out_channels: int) -> tuple[int, ...]:
        return (out_channels, in_channels // self.groups, *self.kernel_size)

    def _each(self, sizes: Sizes) -> tuple[int, ...]:
        return (sizes,) * self.axes if isinstance(sizes, int) else tuple(sizes)

    def _padding(self, padding: Sizes | str) -> Sizes:
        """ "same" in the amounts of conv2d: before and after, last axis first; "valid" is none."""
        if not isinstance(padding, str):
            return padding
        if padding.lower() == "valid":
            return 0
        if padding.lower() != "same":
            raise ValueError(f"padding is 'same', 'valid' or sizes, not {padding!r}")
        if any(step != 1 for step in self._each(self.stride)):
            raise ValueError(f"padding='same' needs stride 1, not {self.stride}")
        holes = (self.dilation,) if isinstance(self.dilation, int) else tuple(self.dilation)
        holes = holes * len(self.kernel_size) if len(holes) == 1 else holes
        totals = [hole * (k - 1) for hole, k in zip(holes, self.kernel_size, strict=True)][::-1]
        return [amount for total in totals for amount in (total // 2, total - total // 2)]

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv2d(
            self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding
        )


class Conv1d(Conv2d):
    """As Conv2d, over one axis."""

    axes = 1


class ConvTranspose2d(Conv2d):
    """The transpose of Conv2d, as its gradient: spreads each input over a window of the output.

    Shapes: (n, in_channels, h, w) to (n, out_channels, h', w') with h' = (h - 1) * stride
    - 2 * padding + dilation * (kernel - 1) + 1 + output_padding. Weight: (in_channels,
    out_channels / groups, *kernel_size).
    """

    @takes_numbers
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        if isinstance(padding, str):
            raise TypeError(f"the padding of a transposed convolution is sizes, not {padding!r}")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias
        )
        self.output_padding = output_padding

    def _weight_shape(self, in_channels: int, out_channels: int) -> tuple[int, ...]:
        return (in_channels, out_channels // self.groups, *self.kernel_size)

    def __call__(self, x: Tensor) -> Tensor:
        axes = len(self.kernel_size)
        if x.ndim != axes + 2 or x.shape[1] != self.weight.shape[0]:
            raise ShapeError(
                f"{type(self).__name__} takes (n, {self.weight.shape[0]}, + {axes} axes), not a"
                f" Tensor of {show(x.shape)}"
            )
        return x.conv_transpose2d(
            self.weight,
            self.bias,
            self.groups,
            self.stride,
            self.dilation,
            self.padding,
            self.output_padding,
        )


class ConvTranspose1d(ConvTranspose2d):
    """As ConvTranspose2d, over one axis."""

    axes = 1


class Embedding(Shown):
    """Row i of a table for each number i. Shapes: (..) integers to (.., embed_size)."""

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size)

    def __call__(self, idx: Tensor) -> Tensor:
        if not isinstance(idx, Tensor):
            raise TypeError(
                f"an Embedding is asked with a Tensor of integers, not {type(idx).__name__}"
            )
        if not idx.dtype.is_int:
            raise DtypeError(
                f"an Embedding is asked with integers, not {idx.dtype}: cast them to dtypes.int"
            )
        return self.weight[idx]


class Dropout(Shown):
    """While `Tensor.training`: each element 0 with probability p, the others over 1 - p; `inplace` changes no value."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"dropout needs a probability, not {p}")
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        return x.dropout(self.p)


class Sequential(Shown):
    """The layers one after the other; anything that takes a Tensor and returns one is a layer.

    Example:
        Sequential(Linear(784, 128), Tensor.relu, Linear(128, 10))
    """

    def __init__(self, *layers: Callable[[Tensor], Tensor]) -> None:
        for position, layer in enumerate(layers):
            if not callable(layer):
                raise TypeError(f"layer {position} of Sequential, {layer!r}, cannot be called")
        self.layers = list(layers)

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)

    def __getitem__(self, position: int) -> Callable[[Tensor], Tensor]:
        return self.layers[position]

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Callable[[Tensor], Tensor]]:
        return iter(self.layers)


def check_last_axis(layer: str, x: Tensor, expected: int) -> None:
    """Raises: ShapeError if the last axis of `x` is not as a layer was made for."""
    if not x.ndim or x.shape[-1] != expected:
        raise ShapeError(f"{layer} takes (.., {expected}), not a Tensor of {show(x.shape)}")


def parameter(value: float, *shape: int, **options: Any) -> Tensor:
    """Data of its own, unlike Tensor.full, whose equal constants are one value."""
    return Tensor([value] * prod(shape), **options).reshape(shape)
