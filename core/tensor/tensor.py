"""Tensor: what users hold. Lazy: it says how to compute values, and computes when asked for them.

Owns: realising, reading values out, gradients of Tensors, assignment, text. Does not own: the
operations, which its base classes add one subject at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from proofgrad.core import settings
from proofgrad.core.compile.passes.memory import changed_in_part
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import BUFFER, DETACH
from proofgrad.core.ir.shapes import Shape, ShapeError, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.autograd import leads_to, nodes_reached
from proofgrad.core.tensor.data.arguments import Flag
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
from proofgrad.core.tensor.lost_ways import (
    LOST,
    Origins,
    note_end,
    note_origins,
    origins_below,
    origins_of_result,
)
from proofgrad.core.tensor.methods.base import (
    GRADIENTS,
    Awaited,
    LostWay,
    TensorBase,
    alive,
    describe,
    is_of_parameter,
    own_copy,
)
from proofgrad.core.tensor.methods.calls import Calls
from proofgrad.core.tensor.methods.creation.random import Creation
from proofgrad.core.tensor.methods.custom_vjp import custom_vjp
from proofgrad.core.tensor.methods.elementwise.functions import Elementwise
from proofgrad.core.tensor.methods.hints import no_such_attribute
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.interop import Interop
from proofgrad.core.tensor.methods.linalg.matrices import LinearAlgebra
from proofgrad.core.tensor.methods.live import live_tensors
from proofgrad.core.tensor.methods.movement.joining import Movement
from proofgrad.core.tensor.methods.nn import NeuralNetwork
from proofgrad.core.tensor.methods.reduction.reduce import Reduction
from proofgrad.core.tensor.methods.training import training_within
from proofgrad.core.tensor.methods.view import ViewInfo, view_info
from proofgrad.core.tensor.runtime import reading
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.core.tensor.runtime.device import is_on_disk
from proofgrad.core.tensor.runtime.interrupts import Interrupts
from proofgrad.core.tensor.runtime.memory import buffer_below
from proofgrad.core.tensor.runtime.owners import owners_of_attribute
from proofgrad.core.tensor.runtime.recording import before_accumulate, recorder
from proofgrad.core.tensor.runtime.scheduling import ScheduleItem, kernelize, schedule_items
from proofgrad.core.tensor.runtime.tracing import TRACING
from proofgrad.core.within import Block, block


class Tensor(
    NeuralNetwork,
    LinearAlgebra,
    Interop,
    Creation,
    Indexing,
    Reduction,
    Movement,
    Elementwise,
    Calls,
):
    """An array of numbers on a device.

    Example:
        (Tensor([1, 2, 3]) + 1).tolist()  # [2, 3, 4]
    """

    __slots__ = ()

    # -- computing ------------------------------------------------------------------------------

    def realize(self, *others: Tensor, do_update_stats: bool = True) -> Self:
        """Compute this Tensor (and the others, in one go) into buffers now.

        Of a view that was written to, what it is a view of is computed: the write is done. Without `do_update_stats`,
        `GlobalCounters` count nothing of it.
        """
        if not do_update_stats:
            with GlobalCounters.unchanged():
                return self.realize(*others)
        if not others and (self._base is None or self._owner_to_compute() is None):
            if not self._realize_again():
                _realize_together([self], self.device)
            return self
        by_device: dict[str, list[Tensor]] = {}
        every: dict[Tensor, None] = dict.fromkeys((self, *others))
        shown = {id(tensor): tensor for tensor in every if tensor._is_what_was_written()}
        for tensor in list(every):
            owner = tensor._owner_to_compute()
            if owner is not None:
                every[owner] = None
        for tensor in every:
            if id(tensor) not in shown:
                by_device.setdefault(tensor.device, []).append(tensor)
        for device, tensors in by_device.items():
            _realize_together(tensors, device)
        for tensor in shown.values():
            tensor._refresh()
        return self

    def _realize_again(self) -> Flag:
        """Compute it as one like it was before; False if there was none."""
        if TRACING.on:
            return False
        keeps_graph = self._leads_to_a_parameter()
        is_alone = not keeps_graph and owners_of_attribute(self, "_uop") == 1
        if not is_alone or changed_in_part(self._uop) is None:
            return self._take_again(is_alone, keeps_graph)
        # A part of memory may be written to in place: no graph may be left then that says to do it again.
        with Interrupts():
            return self._take_again(is_alone, keeps_graph)

    def _take_again(self, is_alone: Flag, keeps_graph: Flag) -> Flag:
        origins = _origins(self) if LOST.data else None  # type: ignore[attr-defined]
        node = machine.run_again(self._uop, self.device, is_alone)
        if node is None:
            return False
        if origins is not None:
            note_origins(node, origins)
        if not keeps_graph:
            self._become(node)
        return True

    def schedule(self, *others: Tensor) -> list[ScheduleItem]:
        """The kernels and copies that `realize` would run now, in order. Runs nothing.

        Example:
            [item.ast for item in (Tensor([1, 2]) + 1).schedule()]
        """
        every: tuple[Tensor, ...] = (self, *others)
        return schedule_items([t._uop for t in every], self.device)

    def kernelize(self, *others: Tensor) -> Self:
        """Decide on the kernels now and show them as `uop`: ASSIGN(BUFFER, CALL). Runs nothing."""
        every: tuple[Tensor, ...] = (self, *others)
        for tensor in every:
            kernelize(tensor._uop, tensor.device)
        return self

    def callify(self, *lst: Tensor) -> Self:
        """What tinygrad calls `kernelize` since it makes one call of all kernels."""
        return self.kernelize(*lst)

    def _leads_to_a_parameter(self) -> Flag:
        """Does a gradient pass from here to another Tensor with requires_grad=True, or to one that is the same leaf?

        Then the graph is kept, so that `backward` works after `realize`. All other graphs are
        dropped, so that a loop of realised steps does not grow without end.
        """
        if TensorBase._twins.data and self._twins_now():  # type: ignore[attr-defined]
            return True
        if not TensorBase._parameters.data or self._uop.op is BUFFER:  # type: ignore[attr-defined]
            return False
        if self._uop.op is DETACH and self._uop.arg is None:  # with one it is a custom gradient
            return False
        if id(self) in TensorBase._leaves:
            return False
        return leads_to(self._uop, TensorBase._named, is_of_parameter)

    def _note_end(self, end: UOp, given: UOp) -> None:
        """This Tensor became `end`, which has not the way of a gradient that `given` has."""
        is_any = TensorBase._parameters.data  # type: ignore[attr-defined]
        if is_any and self._requires_grad is None and recorder() is None:
            note_end(end, given)

    def contiguous_backward(self) -> Self:
        """The same values; the gradient that comes back through here gets a buffer of its own."""
        same: Self = _WITH_CONTIGUOUS_GRADIENT(self)
        return same

    def clone(self, device: str | None = None) -> Self:
        """A copy with a buffer of its own, on another device if one is named.

        It has a gradient of its own: no other Tensor is this copy, not even of constants. It refuses one if this Tensor does.
        """
        there = self if device is None else self.to(device)
        return there._with(own_copy(there._uop))._refuses_as(there)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Asked for what is not there. Raises: AttributeError, with what does the same."""
            no_such_attribute(name, type(self))

    # -- as a Python object -----------------------------------------------------------------------

    def __format__(self, spec: str) -> str:
        return format(self.item() if spec else str(self), spec)

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise TypeError("cannot iterate over a 0-d Tensor")
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        """Shape, type, device, op: what there is to compute. It computes nothing."""
        grad = None if self._grad is None else _summary(self._grad)
        return f"<Tensor {_summary(self)} on {self.device} with grad {grad}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and deep copies hold the values, the device and requires_grad; from disk the values alone."""
        data = bytes(self._bytes())
        device = None if is_on_disk(self.device) else self.device
        shape = reading.value_of_shape(self.shape)
        return (_restored, (data, self.dtype, shape, device, self._requires_grad))

    def view_info(self) -> ViewInfo:
        """How the movement operations at the top of this graph see the memory below them.

        Example:
            Tensor([[1, 2, 3], [4, 5, 6]]).T.view_info().strides  # (1, 3)
        """
        return view_info(self.uop)

    @property
    def st(self) -> ViewInfo:
        """`view_info()` under the name that tutorials use."""
        return self.view_info()

    # -- gradients --------------------------------------------------------------------------------

    def gradient(
        self, *targets: Tensor, gradient: Tensor | None = None, materialize_grads: Flag = False
    ) -> list[Tensor]:
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
        targets: Sequence[Tensor],
        nodes: Sequence[UOp],
        gradient: Tensor | None,
    ) -> list[Tensor]:
        found = _gradients_of(order, self._seed_node(gradient), nodes)
        return [
            target._with(found[node]) if node in found else target.zeros_like()
            for target, node in zip(targets, nodes, strict=True)
        ]

    def _check_differentiable(self, targets: Sequence[Tensor], gradient: Tensor | None) -> None:
        if not self.dtype.is_float:
            raise DtypeError(f"only floats have gradients, and this is {self.dtype}")
        for target in targets:
            if not isinstance(target, Tensor):
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

    def _seed_node(self, gradient: Tensor | None) -> UOp:
        if gradient is None:
            return constant_node(1.0, self.dtype, self.shape)
        return broadcast_node(gradient._uop.cast(self.dtype), self.shape)

    @property
    def grad(self) -> Tensor | None:
        """The sum of what `backward` has added; None before. It has the shape and the type of this Tensor.

        Of a result of operations it is derived when it is asked for, which costs nothing where nobody asks.
        """
        self._add_awaited()
        found: Tensor | None = self._grad
        return found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._grad, self._awaited = value, ()

    def _accumulate(self, part: Tensor) -> None:
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

    def _derived(self, part: Awaited) -> Tensor | None:
        """The gradient that was awaited; None for what rests on no leaf, as a result of constants."""
        if part.leaves.isdisjoint(nodes_reached(part.node.toposort())):
            return None
        order = part.root.toposort()
        (position,) = positions_of(order, [part.node])
        found = _gradients_of(order, part.seed, [position])
        return self._with(found[position])._value() if position in found else self.zeros_like()

    def backward(self, gradient: Tensor | None = None) -> Self:
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

    def _leave_lost_ways(self, leaves: Sequence[Tensor]) -> None:
        """Say so to Tensors whose gradient lacks a part, for who asks for it; nobody may."""
        lost = _lost(self._uop)
        is_asked = any([one._requires_grad for one in (*leaves, *lost)])
        for one in lost:
            if one._requires_grad or (one._requires_grad is None and not is_asked):
                one._awaited += (LostWay(),)

    def _leave_to_derive(
        self, present: set[UOp], leaves: Sequence[Tensor], gradient: Tensor | None
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

    # -- modes ------------------------------------------------------------------------------------

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


def _realize_together(tensors: list[Tensor], device: str) -> None:
    """Tensors of one device, computed; they let go of their graphs, whose memory may be reused."""
    TRACING.on = settings.traces_methods()
    free = [(k, one) for k, one in enumerate(tensors) if not one._leads_to_a_parameter()]
    origins = [_origins(tensor) if LOST.data else None for tensor in tensors]  # type: ignore[attr-defined]
    alone = {k for k, tensor in free if owners_of_attribute(tensor, "_uop") == 1}
    roots = [tensor._uop for tensor in tensors]
    results = None if TRACING.on else machine.run_together_again(roots, device, alone)
    if results is None:
        results = _realize_anew(roots, device, free)
    else:
        for k, tensor in free:
            tensor._become(results[k])
    for result, known in zip(results, origins):
        if known is not None:
            note_origins(result, known)


def _realize_anew(roots: list[UOp], device: str, free: Sequence[tuple[int, Tensor]]) -> list[UOp]:
    """The values of Tensors that have these nodes, by a run that may write over what nobody else holds; the `free` ones let go of their graphs."""

    def release() -> None:
        for _, tensor in free:
            tensor._become(machine.PENDING)

    with Interrupts() as interrupts:
        try:
            results = machine.realize(roots, device, release, None, interrupts)
        except BaseException:
            for k, tensor in free:
                tensor._become(roots[k])
            raise
        for k, tensor in free:
            tensor._become(results[k])
    return results


def _origins(tensor: Tensor) -> Origins | None:
    """What `note_origins` is to be told of the value of a Tensor; None: nothing. A gradient passes no leaf."""
    origins = origins_of_result(tensor._uop)
    is_leaf = id(tensor) in TensorBase._leaves or tensor._requires_grad is False
    return frozenset() if is_leaf and origins else origins


def _lost(root: UOp) -> list[Tensor]:
    """The Tensors to which a gradient of `root` lacks a part."""
    if not LOST.data:  # type: ignore[attr-defined]
        return []
    leaves = {buffer_below(leaf._uop) for leaf in alive(TensorBase._leaves)}
    found = [origin() for origin in origins_below(root, leaves, ends=True)]
    return [one for one in found if one is not None]


def _restored(
    data: bytes, dtype: DType, shape: Shape, device: str | None, requires_grad: Flag | None
) -> Tensor:
    """The Tensor of `Tensor.__reduce__`."""
    return Tensor(data, device, dtype).reshape(shape).requires_grad_(requires_grad)


def _broadcasts(shape: Shape, wanted: Shape) -> bool:
    return len(shape) <= len(wanted) and all(
        [a in (1, b) for a, b in zip(shape[::-1], wanted[::-1], strict=False)]
    )


def _summary(tensor: Tensor) -> str:
    node = tensor.uop
    kind = str(node.dtype).removeprefix("dtypes.")
    return f"<UOp {tensor.device} {show(node.shape)} {kind} ({node.op!r}, {node.arg!r})>"
