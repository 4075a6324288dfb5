"""Reverse-mode derivatives: a walk from the result to its sources, by the rules for cotangents.

Owns: which nodes need a cotangent, the order of the walk, sums where a value is used twice, the way
back between devices. Does not own: any derivative; those are lines of rules/cotangent.rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import cotangents
from proofgrad.core.tensor.custom_vjp import CustomGradient
from proofgrad.core.tensor.realize import compiler

if TYPE_CHECKING:
    from proofgrad.core.compile.stages import Library


def nodes_reached(order: Sequence[UOp]) -> set[UOp]:
    """Those of a graph, given sources first, to which a gradient can come from the last."""
    reached = {order[-1]}
    for node in reversed(order):
        if node in reached:
            reached.update(_passed_to(node))
    return reached


def _passed_to(node: UOp) -> tuple[UOp, ...]:
    """The sources that a gradient may pass to; of a custom gradient, the inputs of its function."""
    if node.op is not Ops.DETACH:
        return node.src
    return () if node.arg is None else node.src[1:]


def node_gradients(order: Sequence[UOp], seed: UOp, targets: Sequence[UOp]) -> dict[UOp, UOp]:
    """The cotangent of each target, given `seed`, that of the last node of a graph.

    `order` has the nodes of the graph, sources first. A target that is not in it has none.
    """
    library = compiler().library
    needed = _on_a_path(order, set(targets))
    found: dict[UOp, UOp] = {order[-1]: seed}
    for node in reversed(order):
        cotangent = found.get(node)
        if cotangent is None or needed.isdisjoint(_passed_to(node)):
            continue
        for source, part in zip(node.src, _parts(library, node, cotangent), strict=True):
            if part is None or source not in needed:
                continue
            before = found.get(source)
            found[source] = part if before is None else before.alu(Ops.ADD, part)
    return {target: found[target] for target in targets if target in found}


def _parts(library: Library, node: UOp, cotangent: UOp) -> tuple[UOp | None, ...]:
    """The cotangents of the sources of `node`. That of a copied value is copied back."""
    if isinstance(node.arg, CustomGradient):
        return node.arg.parts(node, cotangent)
    if node.op is not Ops.COPY:
        rules = library.sets[library.cotangents]
        return cotangents(rules, node, cotangent, journal=library.journal)
    below = reversed(node.src[0].toposort())
    home = next((part.arg for part in below if part.op in (Ops.COPY, Ops.DEVICE)), None)
    return (cotangent if home is None else UOp(Ops.COPY, node.dtype, (cotangent,), home),)


def _on_a_path(order: Sequence[UOp], targets: set[UOp]) -> set[UOp]:
    """The float nodes through which a target reaches the root."""
    needed: set[UOp] = set()
    for node in order:
        if node in targets or (node.dtype.is_float and not needed.isdisjoint(_passed_to(node))):
            needed.add(node)
    return needed
