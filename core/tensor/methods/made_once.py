"""Methods of many nodes, whose graph is made once for all Tensors of a type and a shape.

Owns: which graphs are kept. Does not own: what APPLY stands for (data/bodies.py), how a plan is found (runtime/canonical.py).

A formula, or a network that sorts, is the same graph at each call, over other Tensors. Its value is one node: the graph, over parameters,
and its arguments. To make each node of exp takes twenty times as long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.bodies import parameter
from proofgrad.core.tensor.methods.base import GRADIENTS, TensorBase
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.tracing import TRACING

_Function = TypeVar("_Function", bound=Callable[..., Any])
MOST_BODIES = 512
_PLAIN = frozenset({bool, int, str, DType, type(None)})
BODIES: Newest[tuple[Any, ...], UOp] = Newest(MOST_BODIES)


def made_once(function: _Function) -> _Function:
    """A function of Tensors, and of numbers, names or types behind them, whose graph depends on nothing else but what they are like.

    It reads no value, no other Tensor and no setting, and gives no view. Where two operands meet they have one type. Of Tensors whose sizes
    are variables the graph is made at each call, and so for other arguments, and where somebody wants to know of which method each node is.
    """

    @functools.wraps(function)
    def method(x: TensorBase, /, *args: Any, **kwargs: Any) -> Any:
        device, nodes = x.device, [x._uop]
        for other in args:
            if not isinstance(other, TensorBase) or other.device != device:
                break
            nodes.append(other._uop)
        options = args[len(nodes) - 1 :]
        like = [(node.dtype, node.shape) for node in nodes]
        if TRACING.on or not all([is_plain(shape) for _, shape in like]):
            return function(x, *args, **kwargs)
        try:
            given = [*map(_exactly, options), *map(_exactly, kwargs.items())]
        except TypeError:
            return function(x, *args, **kwargs)
        around = type(x), device, Device[device], GRADIENTS.are_off
        key = function, *around, dtypes.default_float, dtypes.default_int, *like, *given
        body = BODIES.get(key)
        if body is None:
            places = [
                type(x)._new(parameter(slot, node), device) for slot, node in enumerate(nodes)
            ]
            body = BODIES[key] = function(*places, *options, **kwargs)._uop
        return x._with(UOp(Ops.APPLY, body.dtype, tuple(nodes), body))

    return method  # type: ignore[return-value]


def _exactly(value: Any) -> Any:
    """As a key: 0, False, 0.0 and -0.0 are four. Raises: TypeError for what may change, or is no number, name or type."""
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    if kind is tuple:
        return kind, *map(_exactly, value)
    if kind in _PLAIN:
        return kind, value
    raise TypeError(f"a graph is made once for numbers, names and types, not for {value!r}")
