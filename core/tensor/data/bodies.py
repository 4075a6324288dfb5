"""Bodies: graphs over parameters, whose value at some arguments is one node, APPLY.

Owns: what such a node stands for. Does not own: who makes bodies (methods/made_once.py).

A compiler, and who asks for derivatives, is shown the graph; all who walk from a Tensor to what it reads see one node and its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from proofgrad.core.ir.op_names import APPLY, DETACH, PARAM, RESHAPE
from proofgrad.core.ir.ops import MOVEMENT
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp, toposort
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
    return BodyValues().over(applied.arg, applied.src)


def without_bodies(root: UOp) -> UOp:
    """A graph with what they stand for in place of all APPLYs. Its own parameters stay, as those of a function that a user writes."""
    return each_without_bodies(root.toposort())[root]


def each_without_bodies(
    order: Sequence[UOp], above: AbstractSet[UOp] | None = None
) -> dict[UOp, UOp]:
    """As without_bodies of each node of a graph, given sources first; of APPLYs only those that have a source in `above`, if it is given."""
    done: dict[UOp, UOp] = {}
    values = BodyValues()
    for node in order:
        src = tuple([done[source] for source in node.src])
        is_shown = node.op is APPLY and (above is None or not above.isdisjoint(node.src))
        done[node] = values.over(node.arg, src) if is_shown else node.with_src(src)
    return done


def arguments_read(bodies: Sequence[UOp]) -> list[tuple[int, ...]]:
    """The slots of the arguments that each body reads, in order."""
    read: dict[UOp, frozenset[int]] = {}
    for node in toposort(bodies):
        below = [read[source] for source in node.src]
        slots = max(below, key=len, default=frozenset())  # most often of one source those of all
        more = [other for other in below if not other <= slots]
        read[node] = frozenset([node.arg[0]]) if node.op is PARAM else slots.union(*more)
    return [tuple(sorted(read[body])) for body in bodies]


class BodyValues:
    """The graphs of bodies over arguments. What bodies over the same ones have in common, as gradients of one result, is made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[UOp, ...], dict[UOp, UOp]] = {}

    def over(self, body: UOp, arguments: tuple[UOp, ...]) -> UOp:
        """The graph of a body over these arguments, by their slots."""
        done = self._made.setdefault(arguments, {})
        for node in toposort((body,), lambda node: node not in done):
            if node in done:
                continue
            param = parameter_below(node)
            if param is not None:
                done[node] = reshape_node(arguments[param.arg[0]], node.shape)
                continue
            src = tuple([done[source] for source in node.src])
            done[node] = self.over(node.arg, src) if node.op is APPLY else node.with_src(src)
        return done[body]
