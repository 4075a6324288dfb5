"""The state of a Tensor and the steps that every operation takes.

Owns: the fields, wrapping of graph nodes, the check that devices agree. Does not own: operations, which
classes by subject add; __init__.py says which.
"""

from __future__ import annotations

import functools
import itertools
import threading
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from proofgrad.core import settings
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import BITCAST, BUFFER, CONST, CONTIGUOUS, DETACH, RESHAPE
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.origin import note_origin
from proofgrad.core.ir.shapes import Shape, elements, is_plain, show, sizes
from proofgrad.core.ir.uop import UOp, fresh_node
from proofgrad.core.tensor.data.bodies import without_bodies
from proofgrad.core.tensor.data.errors import DeviceError, GradientError
from proofgrad.core.tensor.data.nodes import reshape_node
from proofgrad.core.tensor.data.widths import reinterpreted_node
from proofgrad.core.tensor.methods.live import live_tensors, register
from proofgrad.core.tensor.methods.training import ShowsTraining
from proofgrad.core.tensor.runtime.device import IN_FILE, Device, is_on_disk
from proofgrad.core.tensor.runtime.lent_memory import use_holders
from proofgrad.core.tensor.runtime.scheduling import shown
from proofgrad.core.tensor.runtime.tracing import TRACING

_SERIAL = itertools.count()
use_holders(live_tensors)
ALIASES = MOVEMENT | {DETACH, BITCAST}  # what shows elements of another Tensor


class _Gradients(threading.local):
    """Whether this thread is within `no_grad`: others go on deriving."""

    are_off: bool = False


GRADIENTS = _Gradients()


class Awaited(NamedTuple):
    """A gradient that `backward` left to be derived: of `root`, times `seed`, with respect to `node`, if it rests on a leaf."""

    root: UOp
    seed: UOp
    node: UOp
    leaves: frozenset[UOp]


class LostWay(NamedTuple):
    """What `backward` could not add: a way to the Tensor led through the result of a recorded function."""


class Link(NamedTuple):
    """One step of a view: the Tensor below it, which may be gone, and the operation."""

    tensor: ref[TensorBase]
    op: Ops
    arg: Any  # of BITCAST: the type after it, and the type before
    shape: Shape  # of what the operation takes

    def of(self, node: UOp) -> UOp:
        """The step, taken from `node`."""
        if self.op is BITCAST:
            return reinterpreted_node(node, self.arg[0])
        if self.op is RESHAPE:  # to the shape that there is: of a view that is the whole
            return reshape_node(node, self.arg)
        return UOp(self.op, node.dtype, (node,), self.arg)


def _links_of_view(view: UOp, whole: TensorBase) -> tuple[Link, ...] | None:
    """Movement operations from `view` down to a Tensor, and on to what that shows; None: it is no view of that."""
    links: list[Link] = []
    node, last = view, whole._uop
    while node is not last:
        if node.op not in ALIASES or len(node.src) > 1:
            return None
        below = node.src[0]
        arg = (node.dtype, below.dtype) if node.op is BITCAST else node.arg
        links.append(Link(ref(whole) if below is last else NOBODY, node.op, arg, below.shape))
        node = below
    found = tuple(links) if links else (Link(ref(whole), RESHAPE, view.shape, view.shape),)
    return found if whole._base is None else found + whole._base


def _without_gradient(node: UOp) -> UOp:
    """The same value, from which no gradient passes."""
    is_so = node.op is DETACH and node.arg is None  # with one it is a custom gradient
    return node if is_so else UOp(DETACH, node.dtype, (node,))


class TensorBase(metaclass=ShowsTraining):
    """A graph node, the device it is for, and its gradient.

    `_uop` is the node as it was built, which gradients need; `uop` may be its buffer.
    """

    __slots__ = ("__weakref__", "_awaited", "_base", "_grad", "_requires_grad", "_uop", "device")
    _uop: UOp
    device: str
    _grad: Any  # a Tensor, or None
    _awaited: tuple[
        Awaited | LostWay, ...
    ]  # parts of the gradient that are derived when somebody asks
    _requires_grad: bool | None
    # Of a view: the Tensors that it shows elements of, nearest first, and how.
    _base: tuple[Link, ...] | None
    _leaves: ClassVar[WeakValueDictionary[int, TensorBase]] = WeakValueDictionary()
    _parameters: ClassVar[WeakValueDictionary[int, TensorBase]] = WeakValueDictionary()
    # Nodes that a parameter names, or has named, and the one that did last.
    _named: ClassVar[WeakKeyDictionary[UOp, ref[TensorBase]]] = WeakKeyDictionary()
    # Leaves that were made of a leaf by an operation that does nothing: Tensors of one node.
    _twins: ClassVar[WeakKeyDictionary[UOp, list[ref[TensorBase]]]] = WeakKeyDictionary()
    _numbers: ClassVar[WeakValueDictionary[int, TensorBase]] = (
        WeakValueDictionary()
    )  # Tensor(2), without a type

    if TYPE_CHECKING:  # every class may make Tensors of data; creation/factories.py says how

        def __init__(
            self,
            data: Any,
            device: str | None = None,
            dtype: DType | str | None = None,
            requires_grad: bool | None = None,
        ) -> None: ...

    @classmethod
    def _new(cls, uop: UOp, device: str, links: tuple[Link, ...] | None = None) -> Self:
        """A Tensor for the node, made by an operation; it is no leaf. `links`: of a view."""
        self = object.__new__(cls)
        self._uop = uop
        self.device = device
        self._grad = self._requires_grad = None
        self._awaited = ()
        self._base = links
        register(self)
        return self

    @classmethod
    def _leaf(cls, uop: UOp, device: str, requires_grad: bool | None, own: bool = True) -> Self:
        """A Tensor for data; `backward` gives it a gradient. `own`: see own_value."""
        self = cls._new(uop, device)
        self._become_leaf(requires_grad, own)
        return self

    def _become(self, node: UOp) -> None:
        """From now on this Tensor is what `node` says."""
        self._uop = node
        if self._requires_grad:
            TensorBase._named[node] = ref(self)

    def _become_leaf(self, requires_grad: bool | None, own: bool = True) -> None:
        TRACING.on = settings.traces_methods()
        if requires_grad and not self.dtype.is_float:
            instead = 'write 1.0 for 1, or name dtype="float32"'
            if self.dtype.is_code:
                instead = (
                    "8-bit floats are only stored; keep it in float32, and cast it where it is used"
                )
            raise GradientError(
                f"requires_grad=True is for floats, and this is {self.dtype}: {instead}"
            )
        self._requires_grad = requires_grad
        if requires_grad and is_on_disk(self.device):
            raise GradientError(
                f"{self.device} takes no gradient, as nothing is computed there; move it first"
            )
        if requires_grad:
            self._become(own_value(self._uop) if own else self._uop)
            TensorBase._parameters[id(self)] = self
        elif TensorBase._parameters.data:  # type: ignore[attr-defined]
            TensorBase._parameters.pop(id(self), None)
        if requires_grad is not False:
            TensorBase._leaves[id(self)] = self

    def _leaf_twin(self) -> Self:
        """The same leaf as another Tensor: a gradient of one is that of both, as long as both name this node."""
        same = self._value()
        if id(self) in TensorBase._leaves and same._uop is self._uop:
            same._become_leaf(self._requires_grad, own=False)
            if not is_in_memory(self._uop):
                together: list[TensorBase] = [*self._twins_now(), self, same]
                TensorBase._twins[self._uop] = [ref(one) for one in together]
        return same

    def _twins_now(self) -> list[TensorBase]:
        """Other leaves that name this node."""
        there = [one() for one in TensorBase._twins.get(self._uop, ())]
        return [
            one for one in there if one is not None and one is not self and one._uop is self._uop
        ]

    def _with(self, uop: UOp) -> Self:
        """The result of an operation on this Tensor; a view of it, if the operation is an alias."""
        op, device = uop.op, self.device
        links = _links_of_view(uop, self) if op in ALIASES or uop is self._uop else None
        if links is None and IN_FILE in device:
            Device[device]  # raises: nothing is computed there
        if GRADIENTS.are_off and dtypes.is_float(uop.dtype):
            uop = _without_gradient(uop)
        if TRACING.on:
            note_origin(uop)
        return type(self)._new(uop, device, links)

    def _value(self) -> Self:
        """The same value in a Tensor that is no view: a write to it changes no other."""
        return self._apart(self._uop)

    def _apart(self, alias: UOp) -> Self:
        """As `_with`, of what shows elements of this Tensor, in a Tensor that is no view."""
        if GRADIENTS.are_off and dtypes.is_float(alias.dtype):
            alias = _without_gradient(alias)
        if TRACING.on:
            note_origin(alias)
        return type(self)._new(alias, self.device)

    @property
    def uop(self) -> UOp:
        """The graph node that says how to compute this Tensor, or its buffer once that is done.

        After `kernelize` it is ASSIGN(BUFFER, CALL): the kernels that will compute it. It takes time in proportion to the graph.
        """
        return without_bodies(shown(self._uop))

    @property
    def lazydata(self) -> UOp:
        """The former name of `uop`."""
        return self.uop

    @property
    def shape(self) -> Shape:
        """The sizes of its axes: ints, or variables where a size is symbolic."""
        return self._uop.shape

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self._uop.dtype

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self._uop.shape)

    @property
    def requires_grad(self) -> bool | None:
        """True and False as asked; None: has a gradient if it is a leaf and none says True."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool | None) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, value: bool | None = True) -> Self:
        """Say whether `backward` gives this Tensor a gradient; it becomes a leaf of the graph."""
        self._become_leaf(value)
        if value is False:
            TensorBase._leaves.pop(id(self), None)
        return self

    def numel(self) -> int:
        """The number of elements."""
        if not is_plain(self._uop.shape):
            count: int = sizes().product(self._uop.shape)
            return count
        return prod(self._uop.shape)

    @property
    def max_shape(self) -> Shape:
        """The shape, with the largest value of each size that varies."""
        return tuple([elements((size,)) for size in self.shape])

    def max_numel(self) -> int:
        """The number of elements in `max_shape`."""
        return prod(self.max_shape)

    if not TYPE_CHECKING:  # of a class it is what its type says

        @property
        def training(self) -> bool:
            """`Tensor.training`."""
            return type(self).training

    @property
    def is_param(self) -> bool:
        """Is a gradient of this Tensor not refused? So of all Tensors, but those that `is_param_(False)` has marked."""
        return self._requires_grad is not False

    @is_param.setter
    def is_param(self, value: bool) -> None:
        self.is_param_(value)

    def is_param_(self, is_param: bool = True) -> Self:
        """As requires_grad_."""
        return self.requires_grad_(is_param)

    def size(self, dim: int | None = None) -> Shape | int:
        """The shape, or the size of one axis."""
        if dim is None:
            return self.shape
        if not -self.ndim <= dim < self.ndim:
            raise IndexError(
                f"there is no axis {dim} in the {self.ndim} axes of {show(self.shape)}"
            )
        return self.shape[dim]

    def element_size(self) -> int:
        """Bytes an element."""
        return self.dtype.itemsize

    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Is the type a float?"""
        return bool(dtypes.is_float(self.dtype))

    def __hash__(self) -> int:
        return id(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d Tensor: it has one element and no axes")
        if not is_plain(self.shape[:1]):
            raise TypeError(
                f"the first axis of {show(self.shape)} is of variable size; x.shape[0].val is its size now"
            )
        return self.shape[0]


def alive(table: WeakValueDictionary[int, TensorBase]) -> list[Any]:
    """The Tensors of a table, in one step: other threads may add some meanwhile."""
    found = [reference() for reference in table.valuerefs()]
    return [tensor for tensor in found if tensor is not None]


NOBODY: ref[TensorBase] = ref(object.__new__(TensorBase))  # gone already


def is_of_parameter(node: UOp) -> bool:
    """Whether a Tensor with requires_grad=True names this node now."""
    last = TensorBase._named.get(node)
    one = None if last is None else last()
    if one is not None and one._uop is node and one._requires_grad:
        return True
    return last is not None and any([p._uop is node for p in alive(TensorBase._parameters)])


def check_same_device(operation: str, a: TensorBase, b: TensorBase) -> None:
    """Raises: DeviceError if the two are for different devices."""
    if a.device != b.device:
        target = b.device if is_on_disk(a.device) else a.device
        raise DeviceError(
            f"{operation} of Tensors on {a.device} and {b.device};"
            f" move one of them with .to({target!r})"
        )


def is_in_memory(uop: UOp) -> bool:
    """Is this a buffer of its device, in some shape?"""
    while uop.op is RESHAPE:
        uop = uop.src[0]
    return uop.op is BUFFER


def own_value(uop: UOp) -> UOp:
    """The same value as a node unlike every other, so that a gradient is its alone.

    Equal specifications are one node: two unrealised zeros would share their gradients.
    """
    return uop if owns_value(uop) else own_copy(uop)


def own_copy(uop: UOp) -> UOp:
    """The same value in a buffer of its own, as a node unlike every other."""
    return fresh_node(CONTIGUOUS, uop.dtype, (uop,), next(_SERIAL), uop.shape)


def is_constant(uop: UOp) -> bool:
    """Is this one number, repeated or among zeros?"""
    while uop.op in MOVEMENT:
        uop = uop.src[0]
    return uop.op is CONST


def own_end(uop: UOp) -> UOp:
    """The same value, from which no gradient passes, as a node unlike every other."""
    return fresh_node(DETACH, uop.dtype, (uop,), next(_SERIAL), uop.shape)


def owns_value(uop: UOp) -> bool:
    """Is this the data of one buffer, or marked by `own_value`?"""
    while uop.op in (RESHAPE, Ops.COPY, DETACH):
        uop = uop.src[0]
    return uop.op is BUFFER or (uop.op is CONTIGUOUS and uop.arg is not None)


def name_of(function: Any) -> str:
    """A function's name for messages: of the one in a partial, of the class of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def describe(value: Any) -> str:
    """A short name of a value for error messages."""
    if isinstance(value, TensorBase):
        return f"a Tensor of shape {value.shape} and type {value.dtype}"
    return f"{value!r} ({type(value).__name__})"


def alive_links(tensor: TensorBase) -> tuple[Link, ...]:
    """The steps of a view down to the last Tensor that there still is."""
    links = tensor._base or ()
    count = len(links)
    while count and links[count - 1].tensor() is None:
        count -= 1
    return links[:count]
