"""Gradients of graphs like one that was derived before: a walk finds which it is like, and no rule runs.

Owns: what such graphs have in common, the gradients of each as bodies. Does not own: deriving (autograd.py), what a body stands for
(data/bodies.py).

A training loop derives the same graph over other memory in each of its steps. Only what lies between a target and the result is
looked at: all else, as the images of a step, is an argument of the gradients, however it was made. So is what a target shows of itself, and
a value that was computed, and a number that was others before.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from operator import itemgetter
from typing import Any

from proofgrad.core import settings
from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import APPLY, BUFFER, CONTIGUOUS, DETACH, PARAM
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp, fresh_node, toposort
from proofgrad.core.tensor.autograd import gradients_from_parts, node_gradients, passed_to
from proofgrad.core.tensor.data.bodies import BodyValues, arguments_read, parameter, shows_argument
from proofgrad.core.tensor.methods.base import GRADIENTS, TensorBase
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient
from proofgrad.core.tensor.methods.made_once import ASKED
from proofgrad.core.tensor.runtime.canonical import computed
from proofgrad.core.tensor.runtime.changing import changing_places, constants
from proofgrad.core.tensor.runtime.device import HOST
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.core.tensor.runtime.recording import recorder
from proofgrad.core.tensor.runtime.tracing import TRACING

MOST_GRAPHS = 128
# Between targets and a result, as of a loop over a thousand steps.
MOST_NODES = 1 << 16
# The gradient of a target: a body, and which of the leaves are its arguments. None: there is no gradient.
_Gradient = tuple[UOp, tuple[int, ...]] | None

# By what is around a graph, and its form.
_GRADIENTS: Newest[tuple[Any, ...], list[_Gradient]] = Newest(
    MOST_GRAPHS, lambda key, _: len(key[1])
)

# A value that was computed, and the graph of it, to which its gradient goes.
_COMPUTED = CustomGradient(lambda gradient, _: gradient, "a value in memory", TensorBase, HOST)


class _Between:
    """The nodes between targets and the result, sources first; what else they read, the leaves; the form of all that."""

    __slots__ = ("_form", "_numbers", "_views", "at_hand", "leaves", "nodes", "parts", "varying")

    def __init__(self) -> None:
        self._form: list[Any] = []
        self._numbers: dict[UOp, int] = {}
        self._views: set[UOp] = set()  # of leaves
        self.leaves: list[UOp] = []
        self.nodes: list[UOp] = []
        self.parts: list[UOp] = []  # of targets: leaves whose gradients go on to those
        self.at_hand: dict[UOp, UOp] = {}  # nodes that were computed, and leaves: their values
        self.varying: set[UOp] = set()  # what reads memory, or a target: the others are constants

    def add_leaf(self, leaf: UOp) -> None:
        """One that is an argument of the gradients, or a constant of them."""
        if leaf in self._numbers:
            return
        self._numbers[leaf] = len(self._form)
        if leaf not in self.varying:
            self._form.append(leaf)
            return
        self._form.append((leaf.dtype, leaf.shape))
        self._views.add(leaf)
        self.leaves.append(leaf)

    def add(self, node: UOp) -> bool:
        """One whose sources are nodes or leaves. False: it is unlike all others.

        So is what a user says the gradient of, which may depend on anything; a copy from elsewhere. A part of a target is a leaf, for it is
        one kernel for all positions only as long as it is seen (positions.py).
        """
        shows_leaf = node.op in MOVEMENT and node.src[0] in self._views
        if node.op is Ops.COPY or not is_plain(node.shape):
            return False
        if isinstance(node.arg, CustomGradient) and node.arg.is_of_user:
            return False
        if shows_leaf and node.op is Ops.SHRINK:
            self.add_leaf(node)
            self.parts.append(node)
            return True
        if shows_leaf:
            self._views.add(node)
        numbers, sources = self._numbers, node.src
        value = computed(node)
        if value is not node:
            self.at_hand[node] = value
            self.varying.add(value)
            sources += (value,)
        for source in sources:
            self.add_leaf(source)
        numbers[node] = len(self._form)
        arg = None if node.op is CONTIGUOUS else node.arg  # its number only tells it apart
        self._form.append((node.op, node.dtype, arg, *[numbers[s] for s in sources]))
        self.nodes.append(node)
        return True

    def form(self, seed: UOp, targets: Sequence[UOp]) -> tuple[Any, ...]:
        """What graphs have in common whose gradients are alike."""
        if any(map(_is_memory, seed.toposort())):
            self.varying.add(seed)
        self.add_leaf(seed)
        return (*self._form, self._numbers[seed], *map(self._numbers.get, targets))


def known_gradients(order: Sequence[UOp], seed: UOp, targets: Sequence[UOp]) -> dict[UOp, UOp]:
    """As `node_gradients`, by what was derived of a graph like this one where there is such."""
    is_followed = TRACING.on or recorder() is not None  # by who looks for nodes in between
    between = None if is_followed else _between(order, targets)
    if between is None:
        return node_gradients(order, seed, targets)
    library = compiler().library
    rules = library.sets[library.cotangents]
    around = rules, settings.stored(ASKED), dtypes.default_float, GRADIENTS.are_off
    wanted = [*targets, *between.parts]
    key = around, between.form(seed, wanted)
    known = _GRADIENTS.get(key)
    if known is None and (changing := changing_places(order, constants(order, ()))):
        between = _between(order, targets, {node for node, _ in changing}) or between
        wanted = [*targets, *between.parts]
        key = around, between.form(seed, wanted)
        known = _GRADIENTS.get(key)
    if known is None:
        known = _GRADIENTS[key] = _derived(between, order[-1], seed, wanted)
    if not known:
        return node_gradients(order, seed, targets)
    found = {
        node: _at(*gradient, between.leaves)
        for node, gradient in zip(wanted, known)
        if gradient is not None
    }
    return _with_parts(found, between.parts, targets) if between.parts else found


def _with_parts(
    found: dict[UOp, UOp], parts: Sequence[UOp], targets: Sequence[UOp]
) -> dict[UOp, UOp]:
    """The gradients of targets, with what comes to them from their parts."""
    own = {part: found.pop(part) for part in parts if part in found}
    for target, gradient in gradients_from_parts(own, targets).items():
        before = found.get(target)
        found[target] = gradient if before is None else before + gradient
    return found


def _at(body: UOp, slots: tuple[int, ...], leaves: Sequence[UOp]) -> UOp:
    sources = (
        tuple([leaves[slot] for slot in slots]) if len(slots) < 2 else itemgetter(*slots)(leaves)
    )
    if not sources or shows_argument(body):
        return BodyValues().over(body, sources)
    return fresh_node(APPLY, body.dtype, sources, body, body.shape)


def _between(
    order: Sequence[UOp], targets: Sequence[UOp], changing: Set[UOp] = frozenset()
) -> _Between | None:
    """None where a graph has to be derived itself. Constants that are `changing` are arguments."""
    wanted, between, reading = set(targets), _Between(), set[UOp]()
    varying = between.varying
    for node in order:
        reads_target = not reading.isdisjoint(passed_to(node))
        if reads_target or node in wanted:
            reading.add(node)
        if (
            node in reading
            or node in changing
            or _is_memory(node)
            or not varying.isdisjoint(node.src)
        ):
            varying.add(node)
        if reads_target and not between.add(node):
            return None
        if node in wanted and not reads_target:
            between.add_leaf(node)
    is_known = order[-1] in reading and len(between.nodes) <= MOST_NODES
    return between if is_known and all([is_plain(leaf.shape) for leaf in between.leaves]) else None


def _is_memory(node: UOp) -> bool:
    """Is it memory, or what is to get memory of its own? Such are no constants: each is unlike all others."""
    op = node.op
    return op is BUFFER or op is PARAM or (op is CONTIGUOUS and node.arg is not None)


def _derived(between: _Between, root: UOp, seed: UOp, targets: Sequence[UOp]) -> list[_Gradient]:
    """The gradients of a graph over parameters in place of its leaves. None at all, if there is memory in them: tables of numbers, as those of a
    Fourier transform, which no body has.
    """
    done = {leaf: parameter(slot, leaf) for slot, leaf in enumerate(between.leaves)}
    for node in between.nodes:
        graph = node.with_src(tuple([done.get(source, source) for source in node.src]))
        value = done.get(between.at_hand.get(node, node))
        done[node] = graph if value is None else UOp(DETACH, node.dtype, (value, graph), _COMPUTED)
    over = [done.get(target, target) for target in targets]
    found = node_gradients(done[root].toposort(), done.get(seed, seed), over)
    if any([node.op is BUFFER for node in toposort(tuple(found.values()))]):
        return []
    bodies = _as_bodies(list(found.values()), between.leaves)
    gradients = dict(zip(found, bodies))
    return [gradients.get(target) for target in over]


def _as_bodies(
    gradients: Sequence[UOp], leaves: Sequence[UOp]
) -> list[tuple[UOp, tuple[int, ...]]]:
    """Each gradient over those leaves alone that it reads: who holds it holds no other."""
    values, made = BodyValues(), []
    for gradient, slots in zip(gradients, arguments_read(gradients)):
        places = [*leaves]
        for number, slot in enumerate(slots):
            places[slot] = parameter(number, leaves[slot])
        made.append((values.over(gradient, tuple(places)), slots))
    return made
