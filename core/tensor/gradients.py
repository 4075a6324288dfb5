"""Gradients as methods of Tensors: `gradient`, `backward`, `grad`, and the modes in which none is noted.

Owns: what a Tensor adds to its gradient and when, what it refuses. Does not own: derivatives (autograd.py), which Tensors take one
(gradient_targets.py), results that keep no way to their leaves (lost_ways.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from proofgrad.core.ir.shapes import Shape, ShapeError, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.autograd import nodes_reached
from proofgrad.core.tensor.data.arguments import Flag, refuses
from proofgrad.core.tensor.data.errors import DtypeError, GradientError
from proofgrad.core.tensor.data.nodes import broadcast_node, constant_node
from proofgrad.core.tensor.gradient_targets import (
    has_data,
    leaf_tensors,
    may_take_gradient,
    other_names,
    positions_of,
    unreached,
    with_former_names,
    with_names_of_now,
)
from proofgrad.core.tensor.known_gradients import known_gradients
from proofgrad.core.tensor.lost_ways import LOST, origins_below
from proofgrad.core.tensor.methods.base import (
    GRADIENTS,
    Awaited,
    LostWay,
    TensorBase,
    alive,
    describe,
)
from proofgrad.core.tensor.methods.creation.factories import Factories
from proofgrad.core.tensor.methods.custom_vjp import custom_vjp
from proofgrad.core.tensor.methods.live import live_tensors
from proofgrad.core.tensor.methods.training import training_within
from proofgrad.core.tensor.runtime.memory import buffer_below
from proofgrad.core.tensor.runtime.recording import before_accumulate
from proofgrad.core.within import Block, block


class Gradients(Factories):
    """Gradients, and the modes in which none is noted."""

    __slots__ = ()

    def gradient(
        self, *targets: Self, gradient: Self | None = None, materialize_grads: Flag = False
    ) -> list[Self]:
        """The derivative of this one element with respect to each target.

        With `gradient`, of this Tensor's shape or one that broadcasts to it: the product with that cotangent.
        Gradients are Tensors like all others and can be derived again.
        That of a target on which this does not depend is zeros.
        Raises: GradientError where it may depend on one to which no gradient can pass; with `materialize_grads` that is zeros, too.

        Example:
            x = Tensor([2.0], requires_grad=True)
            (grad,) = (x * x).gradient(x)  # [4.0]
        """
        gradient = None if gradient is None else self._given("gradient", gradient)
        self._check_differentiable(targets, gradient)
        order = self._uop.toposort()
        nodes = positions_of(order, [target._uop for target in targets])
        missed = [] if materialize_grads else unreached(order, targets, nodes)
        if missed:
            raise GradientError(
                f"no gradient passes from this value to {describe(missed[0])}, on which it may depend: what lies"
                " between was realised (make the target with requires_grad=True, which keeps the way to it), was detached,"
                " was made within no_grad or by a TinyJit, or the target was written to since; materialize_grads=True"
                " gives zeros"
            )
        lost = set() if materialize_grads else {id(one) for one in _lost(self._uop)}
        partial = [target for target in targets if id(target) in lost]
        if partial:
            raise GradientError(
                f"the gradient to {describe(partial[0])} would be a part of it: this value is also made of one that was made of that"
                " Tensor and keeps no way to it, the result of a function that TinyJit recorded, or what was assigned and not realised. Take the gradient"
                " within the function, write b = v for b.assign(v), or detach() the value; materialize_grads=True gives the part"
            )
        return self._gradients(order, targets, nodes, gradient)

    def _gradients(
        self,
        order: Sequence[UOp],
        targets: Sequence[Self],
        nodes: Sequence[UOp],
        gradient: Self | None,
    ) -> list[Self]:
        found = _gradients_of(order, self._seed_node(gradient), nodes)
        return [
            target._with(found[node]) if node in found else target.zeros_like()
            for target, node in zip(targets, nodes, strict=True)
        ]

    def _check_differentiable(self, targets: Sequence[Self], gradient: Self | None) -> None:
        if not self.dtype.is_float:
            raise DtypeError(f"only floats have gradients, and this is {self.dtype}")
        for target in targets:
            if not isinstance(target, TensorBase):
                raise DtypeError(
                    f"gradients are taken with respect to Tensors, not {describe(target)}"
                )
            if not target.dtype.is_float:
                raise DtypeError(f"no gradient with respect to {target.dtype}; only to floats")
            if not has_data(target._uop):
                raise GradientError(
                    "a Tensor made of constants is equal to every other such Tensor, so it has no"
                    " gradient of its own; make it with requires_grad=True"
                )
        if gradient is not None:
            if not _broadcasts(gradient.shape, self.shape):
                raise ShapeError(
                    f"the gradient {show(gradient.shape)} of a Tensor of {show(self.shape)}"
                )
        elif self.numel() != 1:
            raise ShapeError(
                f"backward and gradient start from one element, not {show(self.shape)};"
                f" take .sum() or .mean() first, or give gradient="
            )

    def _seed_node(self, gradient: Self | None) -> UOp:
        if gradient is None:
            return constant_node(1.0, self.dtype, self.shape)
        return broadcast_node(gradient._uop.cast(self.dtype), self.shape)

    @property
    def grad(self) -> Self | None:
        """The sum of what `backward` has added; None before. It has the shape and the type of this Tensor.

        Of a result of operations it is derived when it is asked for, which costs nothing where nobody asks.
        """
        self._add_awaited()
        found: Self | None = self._grad
        return found

    @grad.setter
    def grad(self, value: Self | None) -> None:
        self._grad, self._awaited = value, ()

    def _accumulate(self, part: Self) -> None:
        """Add to the gradient, which stays the same Tensor: who holds it sees the sum."""
        if self._grad is None:
            self._grad = part
        else:
            self._grad._write((self._grad + part)._uop)

    def _add_awaited(self) -> None:
        """Derive what was left to be derived."""
        while self._awaited:
            part, *rest = self._awaited
            if isinstance(part, LostWay):
                raise GradientError(
                    f"the gradient of {describe(self)} is not known: `backward` came to a value that was made of this Tensor and keeps no"
                    " way to it, the result of a function that TinyJit recorded, or what was assigned and not realised. Call backward within the function,"
                    " write b = v for b.assign(v), or detach() the value; zero_grad() forgets it"
                )
            self._awaited = tuple(rest)
            more = self._derived(part)
            if more is not None:
                self._accumulate(more)

    def _derived(self, part: Awaited) -> Self | None:
        """The gradient that was awaited; None for what rests on no leaf, as a result of constants."""
        if part.leaves.isdisjoint(nodes_reached(part.node.toposort())):
            return None
        order = part.root.toposort()
        (position,) = positions_of(order, [part.node])
        found = _gradients_of(order, part.seed, [position])
        return self._with(found[position])._value() if position in found else self.zeros_like()

    @refuses(
        retain_graph="leave it out: graphs stay",
        create_graph="leave it out: a gradient has a graph of its own",
    )
    def backward(self, gradient: Self | None = None) -> Self:
        """Add the derivative of this one element to `.grad` of every leaf, and of every result on the way.

        Leaves are the Tensors with requires_grad=True in this graph; if there are none, all
        Tensors of float data in it whose requires_grad is not False. `gradient`: see `gradient()`.
        """
        gradient = None if gradient is None else self._given("gradient", gradient)
        self._check_differentiable((), gradient)
        order = self._uop.toposort()
        present = nodes_reached(order)
        leaves = leaf_tensors(present, self)
        if not leaves:
            raise GradientError(
                "backward found no Tensor that needs a gradient: this value was realised before"
                " (call backward first, or make the inputs with requires_grad=True), detached, made within"
                " no_grad, or depends on no float data"
            )
        nodes = positions_of(order, [leaf._uop for leaf in leaves])
        for leaf, part in zip(leaves, self._gradients(order, leaves, nodes, gradient), strict=True):
            before_accumulate(leaf)
            leaf._accumulate(part)
        self._leave_lost_ways(leaves)
        self._leave_to_derive(present, leaves, gradient)
        return self

    def _leave_lost_ways(self, leaves: Sequence[TensorBase]) -> None:
        """Say so to Tensors whose gradient lacks a part, for who asks for it; nobody may."""
        lost = _lost(self._uop)
        is_asked = any([one._requires_grad for one in (*leaves, *lost)])
        for one in lost:
            if one._requires_grad or (one._requires_grad is None and not is_asked):
                one._awaited += (LostWay(),)

    def _leave_to_derive(
        self, present: set[UOp], leaves: Sequence[Self], gradient: Self | None
    ) -> None:
        """Say to the results of operations in this graph where their gradients come from."""
        root, seed = self._uop, self._seed_node(gradient)
        nodes = with_former_names(present, [leaf._uop for leaf in leaves])
        known = {id(leaf) for leaf in leaves}
        named = with_names_of_now(present)
        for tensor in live_tensors():
            if tensor._uop in named and id(tensor) not in known and may_take_gradient(tensor):
                tensor._awaited += (Awaited(root, seed, tensor._uop, nodes),)
                if tensor._grad is not None and LostWay() not in tensor._awaited:
                    tensor._add_awaited()  # somebody may hold it

    def zero_grad(self) -> None:
        """Forget the gradient."""
        self.grad = None

    def contiguous_backward(self) -> Self:
        """The same values; the gradient that comes back through here gets a buffer of its own."""
        same: Self = _WITH_CONTIGUOUS_GRADIENT(self)
        return same

    @classmethod
    def train(cls, mode: Flag = True) -> Block:
        """Within: `Tensor.training` is `mode`, which dropout and batch norm look at.

        In this thread alone, as `no_grad`: others may evaluate meanwhile. `Tensor.training = mode` is for all threads, but for
        those within `train` or `test`. Also a decorator, as are `test` and `no_grad`.
        """
        return training_within(mode)

    @classmethod
    def test(cls) -> Block:
        """Within: `Tensor.training` is False."""
        return training_within(False)

    @classmethod
    def no_grad(cls) -> Block:
        """Within: results of operations pass no gradient, and parameters may be written to.

        As in torch it is so in this thread alone.
        """
        return _gradients_off(True)

    @classmethod
    def inference_mode(cls, mode: Flag = True) -> Block:
        """The same as `no_grad`, by another name; with `mode` False gradients are on again."""
        return _gradients_off(mode)


def _gradients_of(order: Sequence[UOp], seed: UOp, targets: Sequence[UOp]) -> dict[UOp, UOp]:
    """The gradient of each target, by all names that it has in a graph."""
    others = other_names(order, targets)
    found = known_gradients(order, seed, [*targets, *[node for _, node in others]])
    for target, node in others:
        if node in found:
            found[target] = found[target] + found[node] if target in found else found[node]
    return found


_WITH_CONTIGUOUS_GRADIENT = custom_vjp(
    lambda x: x, backward=lambda gradient, x: gradient.contiguous()
)


@block
def _gradients_off(are_off: bool) -> Iterator[None]:
    before = GRADIENTS.are_off
    GRADIENTS.are_off = are_off
    try:
        yield
    finally:
        GRADIENTS.are_off = before


def _lost(root: UOp) -> list[TensorBase]:
    """The Tensors to which a gradient of `root` lacks a part."""
    if not LOST.data:  # type: ignore[attr-defined]
        return []
    leaves = {buffer_below(leaf._uop) for leaf in alive(TensorBase._leaves)}
    found = [origin() for origin in origins_below(root, leaves, ends=True)]
    return [one for one in found if one is not None]


def _broadcasts(shape: Shape, wanted: Shape) -> bool:
    return len(shape) <= len(wanted) and all(
        [a in (1, b) for a, b in zip(shape[::-1], wanted[::-1], strict=False)]
    )
