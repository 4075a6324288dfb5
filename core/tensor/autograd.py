"""Reverse-mode derivatives: a walk from the result to its sources, by the rules for cotangents.

Owns: which nodes need a cotangent, the order of the walk, sums where a value is used twice, the way
back between devices. Does not own: any derivative; those are lines of rules/cotangent.rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import cotangents
from proofgrad.core.rewrite.match import RuleSet


@dataclass(slots=True)
class _Rules:
    """Where the rules come from; they are read when the first derivative is taken."""

    load: Callable[[], RuleSet] | None = None
    loaded: RuleSet | None = None


_RULES = _Rules()


def use_cotangent_rules(load: Callable[[], RuleSet]) -> None:
    """Say how the rules are loaded when they are first needed."""
    _RULES.load = load
    _RULES.loaded = None


def cotangent_rules() -> RuleSet:
    """The rules of this process."""
    if _RULES.loaded is None:
        if _RULES.load is None:
            raise RuntimeError("no cotangent rules: import proofgrad, not proofgrad.core")
        _RULES.loaded = _RULES.load()
    return _RULES.loaded


def nodes_reached(order: Sequence[UOp]) -> set[UOp]:
    """Those of a graph, given sources first, to which a gradient can come from the last."""
    reached = {order[-1]}
    for node in reversed(order):
        if node.op is not Ops.DETACH and node in reached:
            reached.update(node.src)
    return reached


def node_gradients(order: Sequence[UOp], seed: UOp, targets: Sequence[UOp]) -> dict[UOp, UOp]:
    """The cotangent of each target, given `seed`, that of the last node of a graph.

    `order` has the nodes of the graph, sources first. A target that is not in it has none.
    """
    rules = cotangent_rules()
    needed = _on_a_path(order, set(targets))
    found: dict[UOp, UOp] = {order[-1]: seed}
    for node in reversed(order):
        cotangent = found.get(node)
        if cotangent is None or not any(source in needed for source in node.src):
            continue
        for source, part in zip(node.src, _parts(rules, node, cotangent), strict=True):
            if part is None or source not in needed:
                continue
            before = found.get(source)
            found[source] = part if before is None else before.alu(Ops.ADD, part)
    return {target: found[target] for target in targets if target in found}


def _parts(rules: RuleSet, node: UOp, cotangent: UOp) -> tuple[UOp | None, ...]:
    """The cotangents of the sources of `node`. That of a copied value is copied back."""
    if node.op is not Ops.COPY:
        return cotangents(rules, node, cotangent)
    below = reversed(node.src[0].toposort())
    home = next((part.arg for part in below if part.op in (Ops.COPY, Ops.DEVICE)), None)
    return (cotangent if home is None else UOp(Ops.COPY, node.dtype, (cotangent,), home),)


def _on_a_path(order: Sequence[UOp], targets: set[UOp]) -> set[UOp]:
    """The float nodes through which a target reaches the root."""
    needed: set[UOp] = set()
    for node in order:
        if node in targets or (
            node.dtype.is_float and node.op is not Ops.DETACH and not needed.isdisjoint(node.src)
        ):
            needed.add(node)
    return needed
