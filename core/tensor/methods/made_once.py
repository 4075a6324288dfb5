"""Methods of hundreds of nodes, whose graph is made once for all Tensors of a type and a shape.

Owns: which graphs are kept. Does not own: what APPLY stands for (data/bodies.py), how a plan is found (runtime/canonical.py).

A network that sorts is the same graph at each call, over another Tensor. Its value is one node: the graph, over a parameter, and its argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.bodies import parameter
from proofgrad.core.tensor.methods.base import TensorBase
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.tracing import TRACING

_P = ParamSpec("_P")
_T = TypeVar("_T", bound=TensorBase)
MOST_BODIES = 256
BODIES: Newest[tuple[Any, ...], UOp] = Newest(MOST_BODIES)


def made_once(function: Callable[Concatenate[_T, _P], _T]) -> Callable[Concatenate[_T, _P], _T]:
    """A function of a Tensor and of numbers or names, whose graph depends on nothing else but what the Tensor is like.

    It reads no value and no other Tensor. Of a Tensor whose sizes are variables the graph is made at each call.
    """

    @functools.wraps(function)
    def applied(x: _T, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        node = x._uop
        if not is_plain(node.shape):
            return function(x, *args, **kwargs)
        like = type(x), node.dtype, node.shape, Device[x.device], TensorBase._grad_off, TRACING.on
        key = function, like, *map(_exactly, args), *map(_exactly, kwargs.items())
        body = BODIES.get(key)
        if body is None:
            place = type(x)._new(parameter(0, node), x.device)
            body = BODIES[key] = function(place, *args, **kwargs)._uop
        return x._with(UOp(Ops.APPLY, body.dtype, (node,), body))

    return applied


def _exactly(value: Any) -> Any:
    """As a key: 0, False, 0.0 and -0.0 are four."""
    if isinstance(value, tuple):
        return tuple(map(_exactly, value))
    return type(value), value.hex() if isinstance(value, float) else value
