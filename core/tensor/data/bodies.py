"""Bodies: graphs over parameters, whose value at some arguments is one node, APPLY.

Owns: what such a node stands for. Does not own: who makes bodies (methods/made_once.py).

A compiler, and who asks for derivatives, is shown the graph; all who walk from a Tensor to what it reads see one node and its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from proofgrad.core.ir.op_names import APPLY, DETACH, PARAM, RESHAPE
from proofgrad.core.ir.ops import MOVEMENT
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.nodes import reshape_node


def parameter(slot: int, like: UOp) -> UOp:
    """What stands in a body for an argument like this node."""
    return reshape_node(UOp(PARAM, like.dtype, (), (slot, elements(like.shape))), like.shape)


def parameter_below(node: UOp) -> UOp | None:
    """The PARAM that this node of a body is, in some shape; None: it is none. In the shape of its argument it is that argument."""
    below = node.src[0] if node.op is RESHAPE else node
    return below if below.op is PARAM else None


def shows_argument(node: UOp) -> bool:
    """Whether this node of a body is a view of an argument, and so of its memory."""
    while node.op in MOVEMENT or node.op is DETACH:
        node = node.src[0]
    return node.op is PARAM


def value_of_body(applied: UOp) -> UOp:
    """The graph that an APPLY stands for, over its sources."""
    return value_over(applied.arg, applied.src)


def without_bodies(root: UOp) -> UOp:
    """A graph with what they stand for in place of all APPLYs. Its own parameters stay, as those of a function that a user writes."""
    return each_without_bodies(root.toposort())[root]


def each_without_bodies(
    order: Sequence[UOp], above: AbstractSet[UOp] | None = None
) -> dict[UOp, UOp]:
    """As without_bodies of each node of a graph, given sources first; of APPLYs only those that have a source in `above`, if it is given."""
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[source] for source in node.src])
        is_shown = node.op is APPLY and (above is None or not above.isdisjoint(node.src))
        done[node] = value_over(node.arg, src) if is_shown else node.with_src(src)
    return done


def arguments_read(body: UOp) -> tuple[int, ...]:
    """The slots of the arguments that a body reads, in order."""
    return tuple(sorted({node.arg[0] for node in body.toposort() if node.op is PARAM}))


def value_over(body: UOp, arguments: Sequence[UOp] | Mapping[int, UOp]) -> UOp:
    """The graph of a body over these arguments, by their slots."""
    done: dict[UOp, UOp] = {}
    for node in body.toposort():
        param = parameter_below(node)
        if param is not None:
            done[node] = reshape_node(arguments[param.arg[0]], node.shape)
            continue
        src = tuple([done[source] for source in node.src])
        done[node] = value_over(node.arg, src) if node.op is APPLY else node.with_src(src)
    return done[body]
