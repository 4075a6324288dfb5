"""What the slots of a recorded plan are: Tensors that it reads, and results.

Owns: where a replay finds the memory of one that is read, and memory for one that is made. Does not own: the replay (replay.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.shapes import Shape, is_plain
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.jit.aliasing import Step
from proofgrad.core.tensor.jit.live_tensors import Source
from proofgrad.core.tensor.lost_ways import LOST, MadeOf, Origins, origins_of_argument
from proofgrad.core.tensor.runtime.canonical import computed
from proofgrad.core.tensor.runtime.execute import allocate
from proofgrad.core.tensor.runtime.memory import buffer_below, is_flat, memory_of, new_value
from proofgrad.core.tensor.runtime.owners import is_result_free
from proofgrad.core.tensor.runtime.result_pool import SPARES, Spare
from proofgrad.core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import BufferInfo


def no_node() -> None:
    """Stands for a weak reference to the node of a Tensor, whose memory is not known."""


@dataclass(slots=True)
class Target:
    """A Tensor that every replay computes: given as a result, written to, or left in `.grad`."""

    tensor: Tensor
    is_result: bool = False
    source: Source | None = None  # of one that is written to
    gradient_of: Source | None = None
    # Of a result: Tensors that it is made of, in a way that a gradient could pass, and the numbers of arguments.
    origins: Origins = frozenset()
    passed: tuple[int, ...] = ()


def from_arguments(passed: Sequence[int], arguments: Sequence[Tensor], known: Origins) -> list[Any]:
    """The Tensors to which a gradient passes by these arguments of a call, but for `known` ones."""
    return [one for k in passed for one in origins_of_argument(arguments[k], known)]


@dataclass(slots=True)
class Read:
    """A Tensor that the function reads beside its arguments, and the input that it is."""

    slot: int
    source: Source
    shape: Shape
    dtype: DType
    node: UOp | None  # as it was last seen; None of one that is written in place
    is_whole: bool  # else the input is what it shows elements of, and it must stay as it was
    in_place: bool = False
    is_copied: bool = False  # in this replay: somebody else holds its buffer
    written: Callable[[], UOp | None] = (
        no_node  # of one that is written in place, as it was last seen
    )

    def handle(self, arguments: Sequence[Tensor]) -> Any:
        """The memory that it says the input is now; None if it says nothing."""
        tensor = self.source.get(arguments)
        if tensor is None or not (self.is_whole or tensor._uop is self.node):
            return None
        buffer = buffer_below(computed(tensor._uop))
        if buffer is None or (self.is_whole and not is_flat(computed(tensor._uop))):
            return None
        return memory_of(buffer)


@dataclass(slots=True)
class Made:
    """A result: the slot of its memory, and the Tensor it becomes."""

    slot: int
    shape: Shape
    info: BufferInfo
    is_result: bool
    source: Source | None
    gradient_of: Source | None
    read: Read | None = None  # of one that is written in place
    steps: Sequence[Step] = ()  # of a result that is a view
    origins: Origins = frozenset()  # to which a gradient would pass
    passed: tuple[int, ...] = ()  # arguments to which it would
    given: Sequence[Any] = ()  # what came from those of this replay, see `from_arguments`
    is_plain: bool = True
    may_spare: bool = False
    spares: list[Spare] = field(default_factory=list)
    again: Spare | None = None  # that this replay uses
    pointed: Spare | None = None  # whose memory the program writes to, if it is known

    def __post_init__(self) -> None:
        self.is_plain = is_plain(self.shape)
        self.may_spare = self.is_plain and (self.source or self.gradient_of or self.read) is None

    def make_room(self) -> Any:
        """Memory for this replay's result: fresh, or that of an earlier one that nobody holds."""
        self.again = spare = self.free_spare()
        return allocate(self.info) if spare is None else spare.handle

    def free_spare(self) -> Spare | None:
        """An earlier result that nobody holds."""
        for spare in self.spares:
            if is_result_free(spare):
                return spare
        return None

    def node(self, shape: Shape, handle: Any) -> UOp:
        """The node of this replay's result, over the memory that `make_room` gave."""
        if self.again is not None:
            if self.passed:
                self.again.made_of.given = self.given
            return self.again.node
        node = new_value(self.info, shape, handle)
        made_of, buffer = None, buffer_below(node)
        if buffer is not None and (self.origins or self.passed):
            made_of = LOST[buffer] = MadeOf(self.origins, self.given)
        if self.may_spare and len(self.spares) < SPARES:
            self.spares.append(Spare(node, handle, made_of))
        return node
