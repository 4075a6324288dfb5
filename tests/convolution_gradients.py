"""Kernels of the gradients of a convolution, for tests of what tiles and tables make of them."""

from __future__ import annotations

from proofgrad import Tensor
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler


def gradient_kernel(
    channels: int, filters: int, window: tuple[int, int], *, of_weights: bool
) -> UOp:
    """That for the weights, or for 2 images of 9 x 9 pixels, before its tables and axes are chosen."""
    x = Tensor.empty(2, channels, 9, 9).realize()
    weights = Tensor.empty(filters, channels, *window).realize()
    above = Tensor.empty(2, filters, 10 - window[0], 10 - window[1]).realize()
    (gradient,) = x.conv2d(weights).gradient(weights if of_weights else x, gradient=above)
    graph = compiler().kernel_graph(UOp.sink(gradient.uop).replace(arg="CPU"))
    return graph.src[-1].src[0]
