"""What a plan that is recorded reads: arguments, other Tensors, random keys, constants.

Owns: by what a replay finds each input again. Does not own: the replay, which looks them up (replay.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import ref

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.jit.live_tensors import Source
from proofgrad.core.tensor.jit.nested import check_values
from proofgrad.core.tensor.jit.slots import Read, Target
from proofgrad.core.tensor.runtime.canonical import computed
from proofgrad.core.tensor.runtime.device import HOST
from proofgrad.core.tensor.runtime.memory import buffer_below, buffer_of, is_flat

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import Plan
    from proofgrad.core.tensor.jit.jit import _Recording


@dataclass(slots=True)
class Inputs:
    """What the inputs of the plan are: found before the run lets go of them."""

    recording: _Recording
    targets: list[Target]
    argument: dict[int, int] = field(default_factory=dict)
    random: dict[int, Callable[[], bytes]] = field(default_factory=dict)
    fixed: dict[int, UOp] = field(default_factory=dict)
    reads: list[tuple[int, Source, Shape, DType, ref[UOp], bool]] = field(default_factory=list)
    constant: list[tuple[Source, UOp]] = field(default_factory=list)
    unsettled: list[Source] = field(default_factory=list)
    plan: Plan | None = None
    given: list[Any] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)

    def before(self, nodes: set[UOp], inputs: list[UOp], values: dict[str, int]) -> None:
        """Sort the inputs by where a replay finds them. Raises: JitError for a variable of two values."""
        check_values(self.recording.name, values)
        self.values = values
        recording, holders = self.recording, self.recording.holders
        positions = {buffer_of(position): k for k, position in recording.positions.items()}
        numbers = {buffer: k for k, buffer in enumerate(inputs)}
        read: set[int] = set()
        for source, node in holders.readers(nodes):
            buffer = buffer_below(computed(node))
            if buffer is None:
                if any(part in numbers for part in node.toposort()):
                    self.unsettled.append(source)
                else:
                    self.constant.append((source, node))
            elif buffer in numbers and buffer not in positions:
                k, is_whole = numbers[buffer], is_flat(node)
                self.reads.append((k, source, node.shape, node.dtype, ref(node), is_whole))
                read.add(k)
        self.constant += holders.readers(_below_computed(nodes))
        for buffer, k in numbers.items():
            if buffer in positions:
                self.argument[k] = positions[buffer]
            elif buffer in recording.random:
                self.random[k] = recording.random[buffer]
            elif k not in read:
                self.fixed[k] = buffer

    def refused(self, plan: Plan) -> frozenset[int]:
        """Inputs of which another Tensor, or one of several, would get the memory."""
        arguments, found = self.recording.arguments, set()
        for target, slot in zip(self.targets, plan.results):
            if slot < plan.inputs and slot not in self.argument:
                readers = [source.get(arguments) for k, source, *_ in self.reads if k == slot]
                if len(readers) != 1 or readers[0] is not target.tensor:
                    found.add(slot)
        return frozenset(found)

    def after(self, plan: Plan, given: list[Any]) -> None:
        """Keep the plan, and the buffers that the recorded run gave it."""
        self.plan, self.given = plan, given


def _below_computed(nodes: set[UOp]) -> set[UOp]:
    """What values were made of that were there before, and that an earlier result may hold.

    The function may make such a value each time, of Tensors that are as they were: only while they are, it is the value.
    """
    made = [node for node in nodes if computed(node) is not node]
    return set(toposort([source for node in made for source in node.src]))


def one_for_each_input(reads: Sequence[Read]) -> tuple[list[Read], list[list[Read]]]:
    """A Tensor to look up for each input, and the Tensors that must agree on what an input is.

    Where several Tensors had the value that the function reads, each may be the one that it has read.
    """
    of_slot: dict[int, list[Read]] = {}
    for read in sorted(reads, key=lambda read: not read.is_whole):
        of_slot.setdefault(read.slot, []).append(read)
    several = [found for found in of_slot.values() if len(found) > 1 or not found[0].is_whole]
    return [found[0] for found in of_slot.values()], several


def inputs_device(plan: Plan, k: int, device: str, inputs: Inputs) -> str:
    """Where input `k` is: constants and random keys may be on the host."""
    buffer = inputs.fixed.get(k)
    if buffer is not None:
        found: str = buffer.src[1].arg
        return found
    return HOST if k in inputs.random else device
