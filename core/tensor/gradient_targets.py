"""Which Tensors take a gradient: the leaves below a value, the targets to which a way leads.

Owns: the nodes that stand for targets, the leaves that `backward` finds. Does not own: derivatives (autograd.py), results that keep no way
(lost_ways.py), the methods (gradients.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import BUFFER
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.autograd import nodes_reached
from proofgrad.core.tensor.methods.base import TensorBase, alive, owns_value
from proofgrad.core.tensor.methods.live import live_tensors
from proofgrad.core.tensor.runtime.canonical import COMPUTED, computed
from proofgrad.core.tensor.runtime.memory import is_view

_T = TypeVar("_T", bound=TensorBase)


def positions_of(order: Sequence[UOp], targets: Sequence[UOp]) -> list[UOp]:
    """The nodes of a graph that stand for the targets, some of which were realised since."""
    present = set(order)
    if present.issuperset(targets):
        return list(targets)
    now = {computed(node): node for node in order}
    return [
        target if target in present else now.get(computed(target), target) for target in targets
    ]


def other_names(order: Sequence[UOp], targets: Sequence[UOp]) -> list[tuple[UOp, UOp]]:
    """Targets of a graph, and other nodes of it that were computed to them: what was made before a Tensor was realised names it so.

    A target that is a former name of lent memory has others: see runtime/lent_memory.py.
    """
    if not len(COMPUTED):
        return []
    by_value = {target: target for target in targets}
    by_value.update({computed(target): target for target in targets if is_view(target)})
    found = [(COMPUTED[node], node) for node in order if node in COMPUTED]
    known = set(targets)
    return [(by_value[v], node) for v, node in found if v in by_value and node not in known]


def with_former_names(reached: set[UOp], nodes: Iterable[UOp]) -> frozenset[UOp]:
    """Nodes, and those among the reached that were computed to them."""
    wanted = frozenset(nodes)
    return wanted.union([node for node in reached if computed(node) in wanted])


def with_names_of_now(reached: set[UOp]) -> set[UOp]:
    """Nodes, and what those among them that are former names of lent memory are called now."""
    return reached.union([computed(node) for node in reached if is_view(node)])


def unreached(order: Sequence[UOp], targets: Sequence[_T], nodes: Sequence[UOp]) -> list[_T]:
    """The targets to which no gradient passes from the last node of a graph that may depend on them.

    It does if they are in its graph, and it may if its graph has memory that is no data: what was computed to that is not known.
    """
    reached = nodes_reached(order)
    missing = [k for k, node in enumerate(nodes) if node not in reached]
    if not missing:
        return []
    present = set(order)
    data = [t for t in live_tensors() if id(t) in TensorBase._leaves or t._requires_grad is False]
    given = {_first_leaf(node) for one in data for node in (one._uop, computed(one._uop))}
    is_known = given.issuperset([n for n in order if n.op is BUFFER and dtypes.is_float(n.dtype)])
    return [targets[k] for k in missing if nodes[k] in present or not is_known]


def _first_leaf(node: UOp) -> UOp:
    """The memory below a Tensor of data."""
    while node.src and node.op is not BUFFER:
        node = node.src[0]
    return node


def leaf_tensors(reached: set[UOp], root: _T) -> list[_T]:
    """The leaves among nodes that a gradient of `root` can reach: see `backward`.

    Where none was asked to take one, Tensors that were computed to a buffer before are leaves too, but for a result that is `root`.
    """
    present = reached | {computed(node) for node in reached}
    found = [
        leaf for leaf in alive(TensorBase._leaves) if leaf._uop in present and leaf.dtype.is_float
    ]
    asked = [leaf for leaf in found if leaf._requires_grad]
    if asked:
        return asked
    results = [
        tensor
        for tensor in live_tensors()
        if tensor._uop in reached and owns_value(tensor._uop) and may_take_gradient(tensor)
        if tensor._uop is not root._uop
    ]
    return [leaf for leaf in found if has_data(leaf._uop)] + results


def may_take_gradient(tensor: TensorBase) -> bool:
    """Is it a result of operations to which nobody refused a gradient?"""
    is_result = id(tensor) not in TensorBase._leaves and tensor._requires_grad is not False
    return is_result and tensor.dtype.is_float


def has_data(node: UOp) -> bool:
    """Does the value rest on a buffer, so that it is not just a constant?"""
    if owns_value(node):
        return True
    return any(part.op is BUFFER or owns_value(part) for part in node.toposort())
