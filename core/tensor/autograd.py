"""Reverse-mode derivatives: a walk from the result to its sources, by the rules for cotangents.

Owns: which nodes need a cotangent, the order of the walk, sums where a value is used twice, the way
back between devices. Does not own: any derivative; those are lines of rules/cotangent.rules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from proofgrad.core.compile.nests.sums_of_products import is_product
from proofgrad.core.compile.nests.terms_by_position import is_long_by_position
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import BUFFER, CONTIGUOUS, COPY, DETACH, EXPAND, PAD
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.engine import cotangents
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.tensor.data.bodies import each_without_bodies
from proofgrad.core.tensor.data.promotion import computed_dtype
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient
from proofgrad.core.tensor.methods.movement.joining import GROUP
from proofgrad.core.tensor.runtime.canonical import COMPUTED, note_computed
from proofgrad.core.tensor.runtime.realize import compiler

if TYPE_CHECKING:
    from proofgrad.core.compile.passes.stages import Library

_NO_BOUNDS = RuleSet("bounds", ())  # one, for it compiles functions when first asked


def nodes_reached(order: Sequence[UOp]) -> set[UOp]:
    """Those of a graph, given sources first, to which a gradient can come from the last."""
    reached = {order[-1]}
    for node in reversed(order):
        if node in reached:
            reached.update(passed_to(node))
    return reached


def leads_to(
    root: UOp, marked: WeakKeyDictionary[UOp, Any], is_wanted: Callable[[UOp], bool]
) -> bool:
    """Whether a gradient can come from `root` to a node that is wanted, or to what was computed to one. All of those are `marked`."""
    marks, known = marked.data, COMPUTED.data  # type: ignore[attr-defined]
    seen, stack = {root}, [root]
    while stack:
        node = stack.pop()
        key = ref(node)
        if key in marks and is_wanted(node):
            return True
        if known and (value := known.get(key)) is not None and is_wanted(value):
            return True
        if node.op is BUFFER:
            continue
        for source in node.src if node.op is not DETACH else passed_to(node):
            if source.src and source not in seen:  # a constant is nobody's
                seen.add(source)
                stack.append(source)
    return False


def passed_to(node: UOp) -> tuple[UOp, ...]:
    """The sources that a gradient may pass to; of a custom gradient, the inputs of its function."""
    if node.op is not DETACH:
        return node.src
    return () if node.arg is None else node.src[1:]


def node_gradients(order: Sequence[UOp], seed: UOp, targets: Sequence[UOp]) -> dict[UOp, UOp]:
    """The cotangent of each target, given `seed`, that of the last node of a graph.

    `order` has the nodes of the graph, sources first. A target that is not in it has none.
    """
    shown = _shown(order, _on_a_path(order, set(targets)))
    order, wanted = shown[order[-1]].toposort(), [shown.get(target, target) for target in targets]
    found = _passed_on(order, {order[-1]: seed}, wanted)
    return {target: found[node] for target, node in zip(targets, wanted) if node in found}


def gradients_from_parts(parts: Mapping[UOp, UOp], targets: Sequence[UOp]) -> dict[UOp, UOp]:
    """What the cotangents of parts of targets, which movement operations cut out of them, are to the targets, and to parts of parts."""
    order = toposort(tuple(parts), lambda node: node.op in MOVEMENT)
    return _passed_on(order, parts, [*targets, *parts])


def _passed_on(
    order: Sequence[UOp], seeds: Mapping[UOp, UOp], targets: Sequence[UOp]
) -> dict[UOp, UOp]:
    """The cotangent of each target, given some of a graph, which has no APPLY on the way."""
    library, facts = compiler().library, Facts(_NO_BOUNDS)
    needed = _on_a_path(order, set(targets))
    found = {node: [seed] for node, seed in seeds.items()}
    for node in reversed(order):
        for cotangent in [] if needed.isdisjoint(passed_to(node)) else _sums(found, node):
            for source, part in zip(node.src, _parts(library, facts, node, cotangent), strict=True):
                if part is not None and source in needed:
                    found.setdefault(source, []).append(part)
    return {
        target: functools.reduce(UOp.__add__, _sums(found, target))
        for target in targets
        if target in found
    }


def _shown(order: Sequence[UOp], needed: set[UOp]) -> dict[UOp, UOp]:
    """What each node of a graph is a derivative of: the graph that an APPLY stands for, which has been computed where that has been.

    An APPLY of nothing that is derived stays: it may be a leaf, of which there is to be a derivative of the derivative.
    """
    shown = each_without_bodies(order, needed)
    for node in order if len(COMPUTED) else ():
        known = COMPUTED.get(node)
        if known is not None and shown[node] is not node:
            note_computed(shown[node], known)
    return shown


def _sums(found: Mapping[UOp, Sequence[UOp]], node: UOp) -> list[UOp]:
    """What was found of the cotangent of a node, added up."""
    added: list[UOp] = []
    for part in _places_in_groups(found.get(node, ())):
        _add(added, part, node.op is EXPAND)
    return added


def _places_in_groups(parts: Sequence[UOp]) -> Sequence[UOp]:
    """Where parts are many slices of a value, those beside each other are added up in the place of all of them, which is then put into its own.

    pad(x, a + c) + pad(y, b + c)   =   pad(pad(x, a) + pad(y, b), c)
    """
    placed = [part for part in parts if part.op is PAD and is_plain(sum(part.arg, ()))]
    if len(placed) <= GROUP:
        return parts
    grouped = set(placed)
    others = [part for part in parts if part not in grouped]
    while len(placed) > GROUP:
        placed = sorted(placed, key=lambda part: part.arg)
        placed = [_as_one(placed[k : k + GROUP]) for k in range(0, len(placed), GROUP)]
    return [*others, *placed]


def _as_one(placed: Sequence[UOp]) -> UOp:
    """The sum of padded values, padded as much as all of them are."""
    ends = [sum(part.arg, ()) for part in placed]
    around = tuple([min(amounts) for amounts in zip(*ends)])
    pairs = list(zip(around[::2], around[1::2]))
    inside = [
        part.replace(arg=tuple([(a - c, b - d) for (a, b), (c, d) in zip(part.arg, pairs)]))
        for part in placed
    ]
    total = functools.reduce(UOp.__add__, inside)
    return UOp(Ops.PAD, total.dtype, (total,), tuple(pairs)) if any(around) else total


def _add(parts: list[UOp], part: UOp, is_expanded: bool) -> None:
    """One more cotangent of a value. Its parts are added up to one.

    But of a value that is expanded, the terms of products of matrices, and those that are chosen by position, as the elements of `x[i]` are,
    stay apart, and each is summed alone: a sum of their sums is tiles, or a scatter, for each of them, a sum of both terms is none.
    """
    added = [] if is_expanded and _is_summed_alone(part) else parts
    position = next(
        (k for k, p in enumerate(added) if not (is_expanded and _is_summed_alone(p))), None
    )
    before = [] if position is None else [parts.pop(position)]
    parts.append(functools.reduce(UOp.__add__, [*before, part]))


def _is_summed_alone(term: UOp) -> bool:
    return is_product(term) or is_long_by_position(term)


def _parts(library: Library, facts: Facts, node: UOp, cotangent: UOp) -> tuple[UOp | None, ...]:
    """The cotangents of the sources of `node`. That of a copied value is copied back."""
    if isinstance(node.arg, CustomGradient):
        return node.arg.parts(node, cotangent)
    if node.op is CONTIGUOUS:  # whose number only tells it apart
        node = UOp(CONTIGUOUS, node.dtype, node.src)
    if node.op is not COPY:
        rules = library.sets[library.cotangents]
        return cotangents(rules, _of_numbers(node), cotangent, facts, library.journal)
    below = reversed(node.src[0].toposort())
    home = next((part.arg for part in below if part.op in (Ops.COPY, Ops.DEVICE)), None)
    return (cotangent if home is None else UOp(Ops.COPY, cotangent.dtype, (cotangent,), home),)


def _of_numbers(node: UOp) -> UOp:
    """The operation on float32 where it moves, chooses or casts 8-bit floats: their cotangents are float32, as what is computed of them is."""
    if not (node.dtype.is_code or any([source.dtype.is_code for source in node.src])):
        return node
    sources = tuple([source.cast(computed_dtype(source.dtype)) for source in node.src])
    return UOp(node.op, computed_dtype(node.dtype), sources, node.arg)


def _on_a_path(order: Sequence[UOp], targets: set[UOp]) -> set[UOp]:
    """The float nodes through which a target reaches the root."""
    needed: set[UOp] = set()
    for node in order:
        if node in targets or (
            dtypes.is_float(node.dtype) and not needed.isdisjoint(passed_to(node))
        ):
            needed.add(node)
    return needed
