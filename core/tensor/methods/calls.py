"""Functions as values: a graph over parameters, called with Tensors; functions with checked inputs.

Owns: `as_param`, `call`, `function`. Does not own: the gradients that a user says (custom_vjp.py). A call is
its body over the arguments: nothing is hidden from rules and gradients, and equal graphs are compiled
once, however often they are called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import show
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.data.arguments import Flag, Whole
from proofgrad.core.tensor.data.nodes import reshape_node
from proofgrad.core.tensor.methods.base import TensorBase, check_same_device, describe, name_of
from proofgrad.core.tensor.methods.custom_kernel import positions_of, written_nodes
from proofgrad.core.tensor.methods.custom_vjp import with_gradient
from proofgrad.core.tensor.runtime.device import HOST

GradientOfCall = Callable[..., Any]  # (gradient, call): the cotangent of each of call.src[1:]


@dataclass(frozen=True, slots=True)
class Call:
    """What a gradient function is told of a call: `src[0]` is its body, `src[1:]` its arguments."""

    src: tuple[Any, ...]


class Calls(TensorBase):
    """Bodies and calls."""

    __slots__ = ()

    def as_param(self, slot: Whole) -> Self:
        """Parameter number `slot` of a body, with the shape, type and device of this Tensor."""
        node = UOp(Ops.PARAM, self.dtype, (), (slot, prod(self.shape)))
        return type(self)._new(reshape_node(node, self.shape), self.device)

    def call(self, *lst: Self, fxn: Self | UOp, grad_fxn: GradientOfCall | None = None) -> Self:
        """The body `fxn` with this Tensor for its parameter 0, and the others for 1, 2, ....

        `grad_fxn(gradient, call)` gives the cotangent of each argument, `call.src[1:]`; without it
        the gradient is that of the body. Raises: ValueError for a parameter without an argument.

        Example:
            a, b = Tensor([1.0]), Tensor([2.0])
            a.call(b, fxn=a.as_param(0) + b.as_param(1))  # [3.0]
        """
        arguments = (self, *lst)
        for argument in lst:
            check_same_device("call", self, argument)
        body = fxn if isinstance(fxn, UOp) else fxn._uop
        params = {node: node.arg[0] for node in body.toposort() if node.op is Ops.PARAM}
        given = {node: _argument(node, slot, arguments) for node, slot in params.items()}
        result = self._with(body.substitute(given))
        called: Self = _with_gradient(result, arguments, body, grad_fxn, "call")
        return called

    def custom_kernel(
        self, *lst: Self, fxn: Callable[..., Any], grad_fxn: GradientOfCall | None = None
    ) -> list[Self]:
        """Each argument, this Tensor first, as a kernel leaves it that `fxn` writes.

        `fxn` gets a position for each argument and gives writes, `position[i, j].store(value)`, within loops, `UOp.range(size, number)`; see
        docs/custom-kernels.md. It is taken as the Tensor program that it means, compiled by proven steps, and has its gradient unless `grad_fxn`
        says another: `grad_fxn(gradient, call)` gives that of each of `call.src[1:]`, the arguments. Where several are written, `gradient`
        is a tuple, in their order.
        Raises: ValueError for a kernel that is more than that, ShapeError, DeviceError.

        Example:
            from proofgrad import UOp

            def double(out, x):
                i = UOp.range(x.shape[0], 0)
                return out[i].store(x[i] * 2).end(i).sink()

            Tensor.empty(3).custom_kernel(Tensor([1.0, 2.0, 3.0]), fxn=double)[0]
        """
        arguments = (self, *lst)
        for argument in lst:
            check_same_device("custom_kernel", self, argument)
        nodes = [argument._uop for argument in arguments]
        results = written_nodes(fxn(*positions_of(nodes)), nodes)
        name = name_of(fxn)
        written = [k for k, (node, result) in enumerate(zip(nodes, results)) if result is not node]
        made = tuple([self._with(results[k])._value() for k in written])
        if grad_fxn is not None and made:
            several = _with_gradient(
                made if len(made) > 1 else made[0], arguments, None, grad_fxn, name
            )
            made = several if len(made) > 1 else (several,)
        known = dict(zip(written, made))
        return [known[k] if k in known else a._value() for k, a in enumerate(arguments)]


def _argument(param: UOp, slot: int, arguments: Sequence[TensorBase]) -> UOp:
    if slot >= len(arguments):
        raise ValueError(
            f"the body has a parameter {slot}, and the call {len(arguments)} arguments"
        )
    node = arguments[slot]._uop
    size = param.arg[1]
    if node.dtype is not param.dtype or prod(node.shape) != size:
        raise ValueError(
            f"parameter {slot} of the body has {size} elements of {param.dtype}, and gets"
            f" {node.dtype} of shape {show(node.shape)}"
        )
    return reshape_node(node, (size,))


def _with_gradient(
    result: Any,
    arguments: Sequence[TensorBase],
    body: UOp | None,
    grad_fxn: GradientOfCall | None,
    name: str,
) -> Any:
    if grad_fxn is None:
        return result
    said = grad_fxn

    def backward(gradient: Any, *inputs: Any) -> Any:
        given = said(gradient, Call((body, *inputs)))
        parts = given if isinstance(given, (tuple, list)) else (given,)
        return [
            type(inputs[0])._new(part, inputs[0].device) if isinstance(part, UOp) else part
            for part in parts
        ]

    return with_gradient(result, arguments, backward, name)


def function(
    fxn: Callable[..., Any] | None = None,
    *,
    precompile: Flag = False,
    precompile_backward: Flag = False,
    allow_implicit: Flag = False,
    grad_fxn: GradientOfCall | None = None,
) -> Any:
    """A decorator for functions of Tensors: one Tensor or a tuple of them out, nothing else read.

    Tensors are found in the arguments, in lists, tuples, dicts and attributes of objects. Computed
    Tensors from elsewhere are refused unless `allow_implicit`. `grad_fxn(gradient, call)` gives the cotangents of the
    Tensors in the arguments, `call.src[1:]`; of a tuple `gradient` is one, with None for integers and bools. `precompile` and
    `precompile_backward` have no effect: graphs that are equal are compiled once in any case.
    Raises: TypeError for another result, ValueError for a Tensor from elsewhere.

    Example:
        @function
        def scaled(x, w):
            return x * w
    """
    if fxn is None:
        return functools.partial(
            function,
            precompile=precompile,
            precompile_backward=precompile_backward,
            allow_implicit=allow_implicit,
            grad_fxn=grad_fxn,
        )
    inner, name = fxn, name_of(fxn)

    @functools.wraps(fxn)
    def called(*args: Any, **kwargs: Any) -> Any:
        inputs = list(dict.fromkeys(_tensors((args, kwargs))))
        result = inner(*args, **kwargs)
        results = result if isinstance(result, tuple) else (result,)
        for part in results:
            if not isinstance(part, TensorBase):
                raise TypeError(
                    f"{name} must give a Tensor or a tuple of them, not {describe(part)}"
                )
        if not allow_implicit:
            _refuse_others(name, results, inputs)
        return _with_gradient(result, inputs, None, grad_fxn, name)

    return called


def _tensors(value: Any, around: tuple[Any, ...] = ()) -> Iterator[TensorBase]:
    """The Tensors in containers and objects; one that holds itself is not entered again."""
    if isinstance(value, TensorBase):
        yield value
    elif not any(value is outer for outer in around):
        parts: Any = ()
        if isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, (list, tuple)):
            parts = value
        elif not isinstance(value, type):
            parts = getattr(value, "__dict__", {}).values()
        for part in parts:
            yield from _tensors(part, (*around, value))


def _refuse_others(name: str, results: Sequence[Any], inputs: Sequence[TensorBase]) -> None:
    known = set(toposort([tensor._uop for tensor in inputs]))
    read = toposort([result._uop for result in results], lambda node: node not in known)
    others = [n for n in read if n.op is Ops.BUFFER and n not in known and n.src[1].arg != HOST]
    if others:
        told = ", ".join([f"one of {node.arg} elements, {node.dtype}" for node in others])
        raise ValueError(
            f"{name} reads Tensors that are not in its arguments ({told}); pass them, or say"
            f" @function(allow_implicit=True)"
        )
