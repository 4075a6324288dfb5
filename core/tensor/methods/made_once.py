"""Methods of many nodes, whose graph is made once for all Tensors of a type and a shape.

Owns: which graphs are kept. Does not own: what APPLY stands for (data/bodies.py), how a plan is found (runtime/canonical.py).

A formula, or a network that sorts, is the same graph at each call, over other Tensors. Its value is one node: the graph, over parameters,
and its arguments. To make each node of exp takes twenty times as long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from proofgrad.core import settings
from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import APPLY
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp, fresh_node
from proofgrad.core.tensor.data.bodies import parameter, shows_argument
from proofgrad.core.tensor.methods.base import GRADIENTS, TensorBase
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.tracing import TRACING

_Function = TypeVar("_Function", bound=Callable[..., Any])
MOST_BODIES = 1024
_PLAIN = frozenset({bool, int, str, DType, type(None)})
# One graph; or, of a function that gives several Tensors, those of all; none if one of them is a view.
BODIES: Newest[tuple[Any, ...], UOp | tuple[UOp, ...]] = Newest(MOST_BODIES)
# What methods ask for while they make a graph.
ASKED = settings.encoded("ALLOW_TF32", "WINO")


def made_once(function: _Function) -> _Function:
    """A function of Tensors, and of numbers, names or types beside them, whose graph depends on nothing else but what they are like.

    It gives a Tensor, or several; it reads no value, no other Tensor and no mode. Of Tensors whose sizes are variables
    the graph is made at each call, and so for other arguments, where a result is a view of an argument, as of a roll of one element, and
    where somebody wants to know of which method each node is.
    """

    @functools.wraps(function)
    def method(x: TensorBase, /, *args: Any, **kwargs: Any) -> Any:
        node, device = x._uop, x.device
        if TRACING.on or (not node.shape and id(x) in TensorBase._numbers):
            return function(x, *args, **kwargs)
        nodes, like = [node], [node.dtype, node.shape]
        if args or kwargs:
            try:
                for value in args:
                    like.append(_like(value, device, nodes))
                for name, value in kwargs.items():
                    like.append((name, _like(value, device, nodes)))
            except TypeError:
                return function(x, *args, **kwargs)
        around = type(x), device, Device[device], GRADIENTS.are_off, settings.stored(ASKED)
        key = function, dtypes.default_float, dtypes.default_int, around, *like
        body = BODIES.get(key)
        if body is None:
            if not all([is_plain(node.shape) for node in nodes]):
                return function(x, *args, **kwargs)  # of such nothing is kept
            body = BODIES[key] = _body(function, x, nodes, args, kwargs)
        sources = tuple(nodes)
        if not isinstance(body, tuple):
            return x._with(fresh_node(APPLY, body.dtype, sources, body, body.shape))
        if not body:
            return function(x, *args, **kwargs)
        return tuple(
            [x._with(fresh_node(APPLY, one.dtype, sources, one, one.shape)) for one in body]
        )

    return method  # type: ignore[return-value]


def _like(value: Any, device: str, nodes: list[UOp]) -> Any:
    """What a graph depends on of an argument; the node of a Tensor is added to `nodes`. Raises: TypeError for what a graph is not made once for."""
    if not isinstance(value, TensorBase):
        return _exactly(value)
    node = value._uop
    shape = node.shape
    if value.device != device:
        raise TypeError("a Tensor elsewhere")
    if not shape and id(value) in TensorBase._numbers:
        raise TypeError("a Tensor that was made of a number has no say in the type of a result")
    nodes.append(node)
    return node.dtype, shape


def _body(
    function: Callable[..., Any],
    x: TensorBase,
    nodes: list[UOp],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> UOp | tuple[UOp, ...]:
    """The graph, or the graphs, that a function makes of parameters in place of its Tensors; none if one is a view: memory is its argument's."""
    places = iter(
        [type(x)._new(parameter(slot, node), x.device) for slot, node in enumerate(nodes)]
    )
    first = next(places)
    given = [next(places) if isinstance(value, TensorBase) else value for value in args]
    named = {
        name: next(places) if isinstance(value, TensorBase) else value
        for name, value in kwargs.items()
    }
    found = function(first, *given, **named)
    results = tuple([one._uop for one in found]) if type(found) is tuple else (found._uop,)
    if any(map(shows_argument, results)):
        return ()
    return results if type(found) is tuple else results[0]


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
