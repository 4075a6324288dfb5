"""Functions of Tensors whose gradient the user says.

Owns: `custom_vjp`, the mark that such a function leaves in the graph. Does not own: the walk that
finds the mark (autograd.py). What is said here is not proven; gradcheck can test it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Any

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import GradientError
from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.data.promotion import computed_dtype, promote
from proofgrad.core.tensor.methods.base import TensorBase, check_same_device, describe, name_of

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
        return part._uop.cast(computed_dtype(source.dtype))


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
        for part in result if isinstance(result, tuple) else (result,):
            if not isinstance(part, TensorBase):
                raise TypeError(
                    f"{self.__name__} has a custom gradient and must give a Tensor or a tuple of them, not"
                    f" {describe(part)}"
                )
        return with_gradient(result, inputs, self._pull, self.__name__)


def with_gradient(result: Any, inputs: Sequence[TensorBase], backward: Backward, name: str) -> Any:
    """The result, a Tensor or a tuple of them, whose cotangent goes to `backward(gradient, *inputs)` and on to the inputs.

    Of a tuple, `gradient` is one, with None for what has no floats.
    """
    if isinstance(result, tuple):
        return _with_one_gradient(result, inputs, backward, name)
    mark = CustomGradient(backward, name, type(result), result.device, True)
    return _marked(result, [value._uop for value in inputs], mark)


def _marked(result: TensorBase, sources: Sequence[UOp], mark: CustomGradient) -> TensorBase:
    """The value of `result`, whose cotangent goes to `sources`."""
    node = UOp(Ops.DETACH, result.dtype, (result._uop, *sources), mark)
    return type(result)._new(node, result.device)


def _with_one_gradient(
    results: tuple[TensorBase, ...], inputs: Sequence[TensorBase], backward: Backward, name: str
) -> tuple[TensorBase, ...]:
    """Several results, of which `backward` is given the cotangents together.

    Between them and the inputs stands a line of as many elements as all of them have. Nobody reads its value; its cotangent is
    theirs, one after the other.
    """
    for result in results:
        check_same_device(name, results[0], result)
    floats = [k for k, result in enumerate(results) if result.dtype.is_float]
    if not floats:
        return results
    kind, device = type(results[0]), results[0].device
    dtype = functools.reduce(promote, [results[k].dtype for k in floats])
    kinds = {k: (results[k].dtype, results[k].shape) for k in floats}
    sizes = [prod(shape) for _, shape in kinds.values()]
    ends = list(accumulate(sizes))
    places = {k: (end - size, end) for k, size, end in zip(floats, sizes, ends)}
    count, total = len(results), ends[-1]

    def apart(gradient: Any, *inputs: Any) -> Any:
        parts: list[Any] = [None] * count
        for k, place in places.items():
            part_dtype, shape = kinds[k]
            parts[k] = gradient.shrink((place,)).reshape(shape).cast(part_dtype)
        return backward(tuple(parts), *inputs)

    def to_place(k: int) -> Backward:
        begin, end = places[k]
        return lambda part, _: part.cast(dtype).reshape(-1).pad(((begin, total - end),))

    mark = CustomGradient(apart, name, kind, device, True)
    nothing = constant_node(0.0, dtype, (total,))
    line = UOp(Ops.DETACH, dtype, (nothing, *[value._uop for value in inputs]), mark)
    return tuple(
        [
            _marked(result, [line], CustomGradient(to_place(k), name, kind, device, True))
            if k in places
            else result
            for k, result in enumerate(results)
        ]
    )


def custom_vjp(
    function: Callable[..., Any] | None = None, *, backward: Backward | None = None
) -> Any:
    """A decorator: the gradient of the function is `backward(gradient, *inputs)`.

    The function takes Tensors and gives one Tensor, or a tuple of them. `backward` gets the cotangent of the result (of a tuple
    a tuple, with None for integers and bools) and the same Tensors, and gives the cotangent of each (None: no gradient); it can also be
    given later, with `@function.backward`. What it computes with Tensors can be derived again.
    Raises: GradientError where the gradients do not fit the inputs, or there is no backward.

    Example:
        @custom_vjp(backward=lambda gradient, x: gradient * 2)
        def twice_as_steep(x):
            return x
    """
    if function is None:
        return functools.partial(custom_vjp, backward=backward)
    return CustomFunction(function, backward)
