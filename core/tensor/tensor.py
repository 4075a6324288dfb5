"""Tensor: what users hold. Lazy: it says how to compute values, and computes when asked for them.

Owns: realising, what a Tensor is as a Python object. Does not own: the operations and their gradients, which its base classes add
one subject at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from proofgrad.core import settings
from proofgrad.core.compile.passes.memory import changed_in_part
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import BUFFER, DETACH
from proofgrad.core.ir.shapes import Shape, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.autograd import leads_to
from proofgrad.core.tensor.data.arguments import Flag
from proofgrad.core.tensor.gradients import Gradients
from proofgrad.core.tensor.lost_ways import LOST, Origins, note_end, note_origins, origins_of_result
from proofgrad.core.tensor.methods.base import TensorBase, describe, is_of_parameter, own_copy
from proofgrad.core.tensor.methods.calls import Calls
from proofgrad.core.tensor.methods.creation.random import Creation
from proofgrad.core.tensor.methods.elementwise.functions import Elementwise
from proofgrad.core.tensor.methods.hints import no_such_attribute
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.interop import Interop
from proofgrad.core.tensor.methods.linalg.matrices import LinearAlgebra
from proofgrad.core.tensor.methods.method_names import name_methods_of
from proofgrad.core.tensor.methods.movement.joining import Movement
from proofgrad.core.tensor.methods.nn import NeuralNetwork
from proofgrad.core.tensor.methods.reduction.reduce import Reduction
from proofgrad.core.tensor.methods.training import ShowsTraining
from proofgrad.core.tensor.methods.view import ViewInfo, view_info
from proofgrad.core.tensor.runtime import reading
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.core.tensor.runtime.device import is_on_disk
from proofgrad.core.tensor.runtime.interrupts import Interrupts
from proofgrad.core.tensor.runtime.owners import owners_of_attribute
from proofgrad.core.tensor.runtime.recording import recorder
from proofgrad.core.tensor.runtime.scheduling import ScheduleItem, kernelize, schedule_items
from proofgrad.core.tensor.runtime.tracing import TRACING


class _TellsNames(ShowsTraining):
    """The type of `Tensor`: names that the class does not have, as `Tensor.vstack`."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            """Asked for what is not there. Raises: AttributeError, with what does the same."""
            no_such_attribute(name, cls, "type object 'Tensor'")


class Tensor(
    NeuralNetwork,
    LinearAlgebra,
    Interop,
    Gradients,
    Creation,
    Indexing,
    Reduction,
    Movement,
    Elementwise,
    Calls,
    metaclass=_TellsNames,
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
        for tensor in (self, *others):
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    f"realize takes Tensors, not {describe(tensor)}; of a list: realize(*list)"
                )
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
        data = bytes(self._bytes_seen())
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


name_methods_of(Tensor)


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


def _restored(
    data: bytes, dtype: DType, shape: Shape, device: str | None, requires_grad: Flag | None
) -> Tensor:
    """The Tensor of `Tensor.__reduce__`."""
    return Tensor(data, device, dtype).reshape(shape).requires_grad_(requires_grad)


def _summary(tensor: Tensor) -> str:
    node = tensor.uop
    kind = str(node.dtype).removeprefix("dtypes.")
    return f"<UOp {tensor.device} {show(node.shape)} {kind} ({node.op!r}, {node.arg!r})>"
