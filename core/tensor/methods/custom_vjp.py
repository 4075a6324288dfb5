"""Functions of Tensors whose gradient the user says.

Owns: `custom_vjp`, the mark that such a function leaves in the graph. Does not own: the walk that
finds the mark (autograd.py). What is said here is not proven; gradcheck can test it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import GradientError
from proofgrad.core.tensor.methods.base import TensorBase, name_of

Backward = Callable[..., Any]


class CustomGradient:
    """What the DETACH of a custom function carries: how cotangents pass it.

    That node has the result and then the inputs as its sources. What a user says (`is_of_user`) may depend on more than its arguments.
    """

    __slots__ = ("backward", "device", "is_of_user", "kind", "name")

    def __init__(
        self,
        backward: Backward,
        name: str,
        kind: type[TensorBase],
        device: str,
        is_of_user: bool = False,
    ) -> None:
        self.backward, self.name = backward, name
        self.kind, self.device = kind, device
        self.is_of_user = is_of_user

    def __repr__(self) -> str:
        return f"gradient of {self.name}"

    def parts(self, node: UOp, cotangent: UOp) -> tuple[UOp | None, ...]:
        """The cotangents of the sources of `node`. Raises: GradientError for ones that do not fit."""
        inputs = node.src[1:]
        make = self.kind._new
        given = self.backward(
            make(cotangent, self.device), *[make(source, self.device) for source in inputs]
        )
        found: Sequence[Any] = given if isinstance(given, (tuple, list)) else (given,)
        if len(found) != len(inputs):
            raise GradientError(
                f"the backward of {self.name} must give one gradient for each of"
                f" {len(inputs)} inputs (None for no gradient), not {len(found)}"
            )
        return (None, *[self._checked(part, source) for part, source in zip(found, inputs)])

    def _checked(self, part: Any, source: UOp) -> UOp | None:
        if part is None:
            return None
        if not isinstance(part, TensorBase):
            raise GradientError(
                f"the backward of {self.name} must give Tensors or None, not {type(part).__name__}"
            )
        if part.shape != source.shape:
            raise GradientError(
                f"the backward of {self.name} gave a gradient of shape {show(part.shape)} for an"
                f" input of shape {show(source.shape)}"
            )
        return part._uop.cast(source.dtype)


class CustomFunction:
    """A function of Tensors with a gradient of its own: what `custom_vjp` makes."""

    __name__: str

    def __init__(self, function: Callable[..., Any], backward: Backward | None = None) -> None:
        functools.update_wrapper(self, function)
        self.__name__ = name_of(function)
        self._function, self._backward = function, backward

    def backward(self, function: Backward) -> Backward:
        """Say the gradient: `function(gradient, *inputs)` gives the cotangent of each input."""
        self._backward = function
        return function

    def _pull(self, gradient: Any, *inputs: Any) -> Any:
        if self._backward is None:
            raise GradientError(
                f"{self.__name__} has no backward yet; give one with @{self.__name__}.backward"
            )
        return self._backward(gradient, *inputs)

    def __call__(self, *inputs: Any) -> Any:
        for value in inputs:
            if not isinstance(value, TensorBase):
                raise TypeError(
                    f"{self.__name__} has a custom gradient and takes Tensors only, not"
                    f" {type(value).__name__}; bind other arguments with functools.partial"
                )
        result = self._function(*inputs)
        if not isinstance(result, TensorBase):
            raise TypeError(
                f"{self.__name__} has a custom gradient and must give one Tensor, not"
                f" {type(result).__name__}"
            )
        mark = CustomGradient(self._pull, self.__name__, type(result), result.device, True)
        sources = (result._uop, *[value._uop for value in inputs])
        return type(result)._new(UOp(Ops.DETACH, result.dtype, sources, mark), result.device)


def custom_vjp(
    function: Callable[..., Any] | None = None, *, backward: Backward | None = None
) -> Any:
    """A decorator: the gradient of the function is `backward(gradient, *inputs)`.

    The function takes Tensors and gives one Tensor. `backward` gets the cotangent of the result and
    the same Tensors, and gives the cotangent of each (None: no gradient); it can also be given later,
    with `@function.backward`. What it computes with Tensors can be derived again.
    Raises: GradientError where the gradients do not fit the inputs, or there is no backward.

    Example:
        @custom_vjp(backward=lambda gradient, x: gradient * 2)
        def twice_as_steep(x):
            return x
    """
    if function is None:
        return functools.partial(custom_vjp, backward=backward)
    return CustomFunction(function, backward)
