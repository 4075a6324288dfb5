"""A recorded plan, run again on other memory with little Python.

Owns: where each input of the plan comes from at a replay, memory for what lies between, what becomes
of results. Does not own: what is recorded (jit.py), launching (launches.py).

Memory between is the replay's own, shared by what does not live at the same time. Results get memory
at every replay that nobody else holds. A Tensor that the plan writes over in place keeps its buffer, unless somebody
else holds that buffer: then that one keeps the old memory and the plan works on a copy.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from proofgrad.core import settings
from proofgrad.core.ir.shapes import show, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import JitError
from proofgrad.core.tensor.data.variables import are_as_before
from proofgrad.core.tensor.jit.aliasing import (
    Aliases,
    OtherGradients,
    Outdated,
    base_again,
    steps_of_view,
)
from proofgrad.core.tensor.jit.alone import alone
from proofgrad.core.tensor.jit.inputs import Inputs, inputs_device, one_for_each_input
from proofgrad.core.tensor.jit.live_tensors import Source
from proofgrad.core.tensor.jit.slots import Made, Read, Target, from_arguments, no_node
from proofgrad.core.tensor.methods.base import GRADIENTS
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.arena import Arena, make_arena
from proofgrad.core.tensor.runtime.canonical import computed
from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.core.tensor.runtime.device import HOST, Device
from proofgrad.core.tensor.runtime.execute import (
    allocate,
    claim,
    execute,
    is_watched,
    memory_of_variables,
    run_step,
)
from proofgrad.core.tensor.runtime.launches import Launches
from proofgrad.core.tensor.runtime.memory import (
    buffer_below,
    buffer_of,
    has_memory,
    is_as_written,
    is_flat,
    memory_of,
    memory_to_write,
)
from proofgrad.core.tensor.runtime.result_pool import SPARE_BYTES
from proofgrad.core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.checks import ValueCheck
    from proofgrad.core.compile.plan.plan import Step
    from proofgrad.core.tensor.jit.jit import _Recording

_NOT_EXACT = settings.encoded(*settings.NOT_EXACT)


class Replay:
    """See the head of this file. Made by `record` (record.py)."""

    def __init__(self, recording: _Recording, targets: list[Target], inputs: Inputs) -> None:
        plan = inputs.plan
        assert plan is not None
        self.name, self.plan = recording.name, plan
        self.result: Any = None  # what the function gives, with holes for Tensors
        self.device = targets[0].tensor.device
        self.backend = Device[self.device]
        self.where = [
            *[inputs_device(plan, k, self.device, inputs) for k in range(plan.inputs)],
            *[made.device for made in plan.made],
            *[device for _, device in plan.variables],
        ]
        self.memory: list[Any] = [
            *inputs.given[: plan.inputs],
            *[None] * len(plan.made),
            *memory_of_variables(plan, inputs.values),
        ]
        self.values = inputs.values
        self._choices = recording.choices
        self._fixed = list(inputs.fixed.values())  # their memory has to stay
        self.arguments = [(k, a) for k, a in inputs.argument.items() if k < plan.inputs]
        self.random = {k: fresh for k, fresh in inputs.random.items() if k < plan.inputs}
        written = set(plan.reused)
        self.reads, self._agreeing = one_for_each_input(
            [
                Read(k, s, shape, dtype, None if k in written else node(), whole, k in written)
                for k, s, shape, dtype, node, whole in inputs.reads
                if k < plan.inputs
            ]
        )
        self._constant = inputs.constant
        self.accumulated = recording.holders.accumulated()
        sources = [source for _, source, *_ in inputs.reads] if recording.derives else []
        read = [(source, source.get(recording.arguments)) for source in sources]
        self._asked = [(source, one._requires_grad) for source, one in read if one is not None]
        self.aliases = _aliases(recording, targets, inputs, self.accumulated)
        self.made = self._results(targets, recording.arguments)
        self._check_in_place()
        steps = self._without_constant_copies(plan.steps)
        self._steps = steps
        self.value_check = (
            machine.compiler().checks()
        )  # asked here, for a replay takes microseconds
        self.arena = self._between(steps)
        self.program = Launches(steps, self.memory, self.where, self.backend)
        self.kernel_count = sum(step.kernel is not None for step in steps)
        self.flops = sum([s.kernel.source.cost_flops for s in steps if s.kernel is not None])
        self.nbytes = sum([s.nbytes for s in steps if s.kernel is not None])
        # Whether only the native program asks where arguments are: it goes on with what it was told.
        self._keeps_addresses = self.program.native is not None and not written
        made_anew = [made.slot for made in self.made if made.read is None]
        self._passing = [*[slot for slot, _ in self.arguments], *made_anew]
        for slot in [*self._passing, *[read.slot for read in self.reads]]:
            self.memory[slot] = None
        self.nodes: list[Callable[[], UOp | None]] = [no_node] * len(recording.arguments)
        self.objects: list[Callable[[], Tensor | None]] = [no_node] * len(recording.arguments)
        self.lock = threading.Lock()  # the tables of memory are for one run at a time
        _REPLAYS.add(self)
        self.exactness = settings.stored(_NOT_EXACT)
        self.gradients_are_off = GRADIENTS.are_off
        self.training = Tensor.training if recording.asks_for_training else None
        self.only_launch = self.program.native if self._changes_nothing() else None
        self.same_call: Callable[[Sequence[Any]], Any] | None = None  # see same_call.py

    def _results(self, targets: list[Target], arguments: Sequence[Tensor]) -> list[Made]:
        reads = {read.slot: read for read in self.reads if read.in_place}
        given = [target.tensor if target.source is None else None for target in targets]
        found: list[Made] = []
        for target, slot in zip(targets, self.plan.results):
            in_plan = slot >= self.plan.inputs
            info = self.plan.made[slot - self.plan.inputs] if in_plan else self.plan.reused[slot]
            found.append(
                Made(
                    slot, target.tensor.shape, info, target.is_result, target.source,
                    target.gradient_of, reads.get(slot),
                    steps_of_view(target.tensor, arguments, given) if target.is_result else (),
                    target.origins, target.passed,
                )
            )  # fmt: skip
        uses = Counter([made.slot for made in found])
        is_small = sum([made.info.nbytes for made in found]) <= SPARE_BYTES
        for made in found:
            if uses[made.slot] > 1 or not is_small:  # Tensors that share memory
                made.may_spare = False
        return found

    def _check_in_place(self) -> None:
        """What is written in place has to belong to a Tensor that is written to."""
        for made in self.made:
            if made.slot < self.plan.inputs and made.read is None:
                raise AssertionError(f"{self.name}: result {made.slot} is written over an input")

    def _without_constant_copies(self, steps: Sequence[Step]) -> list[Step]:
        """Copies of the host's constants are made here, once."""
        left: list[Step] = []
        results = {made.slot for made in self.made}
        for step in steps:
            source = step.slots[1] if step.kernel is None else -1
            is_constant = step.kernel is None and self.where[source] == HOST
            if is_constant and source not in self.random and step.slots[0] not in results:
                made = self.plan.made[step.slots[0] - self.plan.inputs]
                self.memory[step.slots[0]] = allocate(made)
                run_step(step, self.memory, self.where)
            else:
                left.append(step)
        return left

    def _between(self, steps: Sequence[Step]) -> Arena:
        """Memory for what lies between, which stays with this replay."""
        first = self.plan.inputs
        constant = [
            slot for slot, handle in enumerate(self.memory[first:], first) if handle is not None
        ]
        left_out = {*constant, *[made.slot for made in self.made]}
        arena = make_arena(steps, self.plan.made, first, left_out)
        if (check := machine.compiler().checks()) is not None:
            made = dict(enumerate(self.plan.made, first))
            check.arena({k: info for k, info in made.items() if k not in left_out}, steps, arena)
        for slot, handle in arena.memory.items():
            self.memory[slot] = handle
        return arena

    def _changes_nothing(self) -> bool:
        """Does it give small results and have no other effect, and look at nothing but where its inputs are?"""
        asks = self._constant or self._agreeing or self.accumulated or self._asked or self.random
        is_simple = all(
            [made.may_spare and made.is_result and not made.steps for made in self.made]
        )
        return is_simple and self._keeps_addresses and not asks and not self.plan.variables

    # -- a replay -----------------------------------------------------------------------------------

    def knows(self, arguments: Sequence[Tensor]) -> bool:
        """Whether each argument is the Tensor of the last run, of the same value in the same memory."""
        known = zip(arguments, self.objects, self.nodes)
        is_same = [
            one is last() and one is not None and one._uop is node() for one, last, node in known
        ]
        return self.is_as_exact() and len(arguments) == len(self.nodes) and all(is_same)

    def is_as_exact(self) -> bool:
        """Whether the modes, and the settings that let values be inexact, are those under which this was recorded."""
        return self.is_in_mode() and self.exactness == settings.stored(_NOT_EXACT)

    def is_in_mode(self) -> bool:
        """Whether gradients are on or off, and layers train or not if that matters, as when this was recorded."""
        if GRADIENTS.are_off is not self.gradients_are_off:
            return False
        return self.training is None or self.training == Tensor.training

    def fits(self, arguments: Sequence[Tensor], values: dict[str, int]) -> bool:
        """Whether a replay for these arguments and values of variables gives what the function would."""
        is_alike = self.is_as_exact() and self.aliases.allow(arguments)
        return is_alike and (
            not self._choices or are_as_before(self._choices, self.values | values)
        )

    def run(self, arguments: Sequence[Tensor], values: dict[str, int]) -> list[Any]:
        """The results of the function for these arguments, None in place of what is no result.

        `values` are those of the variables among the arguments. Raises: Outdated, before anything is
        changed, if what the function reads is not what it was. An interrupt leaves each Tensor
        with its value before or after the replay.
        """
        results: list[Any] = alone(self.lock, self._run, arguments, values)
        return results

    def _run(self, arguments: Sequence[Tensor], values: dict[str, int]) -> list[Any]:
        if self._constant or self._agreeing:
            self._check_known(arguments)
        if self._asked:
            self._check_asked(arguments)
        if self.accumulated:
            self._check_gradients(arguments)
        watched = is_watched()
        self._find_inputs(arguments, not watched and self._keeps_addresses)
        for made in self.made:
            if made.read is None:
                made.pointed = None
                self._use(made.slot, made.make_room())
                made.pointed = made.again
        if self.plan.variables:
            self._set_variables(values)
        if self.value_check is not None and not watched:
            self.check(self.value_check, arguments)
        self._launch(watched)
        results = [self._give(made, arguments) for made in self.made]
        for made, result in zip(self.made, results):
            if made.steps and result is not None:
                result._base = base_again(made.steps, arguments, results)
        for slot in self._passing:
            self.memory[slot] = None
        return results

    def check(self, check: ValueCheck, arguments: Sequence[Tensor]) -> None:
        """Say what the memory of each slot has to be, by the Tensors that there are now."""
        memory = list(self.memory)
        for slot, k in self.arguments:
            if is_flat(arguments[k]._uop):  # else it was copied for this run
                memory[slot] = machine.flat_memory(arguments[k]._uop, self.device)
        for read in self.reads:
            if read.is_whole and not read.is_copied:
                memory[read.slot] = read.handle(arguments)
        anew = {made.slot: made.again for made in self.made if made.read is None}
        held = {slot: None if spare is None else spare.buffer for slot, spare in anew.items()}
        check.replay(self._steps, self.program, memory, held)

    def _find_inputs(self, arguments: Sequence[Tensor], keeps_addresses: bool) -> None:
        memory, changed, nodes = self.memory, self.program.changed, self.nodes
        taken: set[int] = set()
        for slot, k in self.arguments:
            node = arguments[k]._uop
            if keeps_addresses and node is nodes[k]():
                self.objects[k] = ref(arguments[k])
                continue
            nodes[k] = no_node  # until the program has been told
            handle = machine.flat_memory(node, self.device)
            memory[slot] = handle
            taken.add(id(handle))
            changed(slot, handle)
            if has_memory(node, handle):
                self.objects[k], nodes[k] = ref(arguments[k]), ref(node)
        for read in self.reads:
            self._look_up(read, arguments, taken)
        for slot, fresh in self.random.items():
            memory[slot] = fresh()

    def _check_known(self, arguments: Sequence[Tensor]) -> None:
        """Raises: Outdated if Tensors that had one value, or a constant one, do not have it now."""
        for source, node in self._constant:
            tensor = source.get(arguments)
            if tensor is None or tensor._uop is not node:
                raise Outdated
        for reads in self._agreeing:
            handles = [read.handle(arguments) for read in reads]
            if any(handle is None or handle is not handles[0] for handle in handles):
                raise Outdated

    def _set_variables(self, values: dict[str, int]) -> None:
        self.values = self.values | values
        handles = memory_of_variables(self.plan, self.values)
        for slot, handle in enumerate(handles, self.plan.inputs + len(self.plan.made)):
            self._use(slot, handle)

    def _check_asked(self, arguments: Sequence[Tensor]) -> None:
        """Raises: OtherGradients if `backward` would give gradients to other Tensors."""
        for source, asks in self._asked:
            tensor = source.get(arguments)
            if tensor is not None and tensor._requires_grad is not asks:
                raise OtherGradients

    def _check_gradients(self, arguments: Sequence[Tensor]) -> None:
        for source, had_one in self.accumulated:
            tensor = source.get(arguments)
            if tensor is not None and (tensor._grad is not None) != had_one:
                before, now = ("a", "none") if had_one else ("no", "one")
                raise JitError(
                    f"{self.name} was recorded adding to a Tensor with {before} gradient, which now"
                    f" has {now}; set .grad to None inside of the function, or always before it"
                )

    def _look_up(self, read: Read, arguments: Sequence[Tensor], taken: set[int]) -> None:
        """The memory of a Tensor that the function reads, as that is now."""
        tensor = read.source.get(arguments)
        if tensor is None:  # the function, which has read it, has to read another one now
            raise Outdated
        if read.in_place:
            if self._is_in_place(read, tensor, taken):
                return
        elif tensor._uop is read.node:
            if self.memory[read.slot] is None:
                self._use(read.slot, memory_of(buffer_below(computed(read.node))))
            return
        if not read.is_whole:
            raise Outdated
        if tensor.shape != read.shape or tensor.dtype is not read.dtype:
            raise JitError(
                f"{self.name} was recorded reading a Tensor of shape {show(read.shape)},"
                f" {read.dtype!r}, which now has {show(tensor.shape)}, {tensor.dtype!r}; call reset()"
            )
        if not read.in_place:
            read.node = machine.flat_buffer(tensor._uop, self.device)
            self._use(read.slot, memory_of(buffer_of(read.node)))
            return
        if buffer_of(tensor._uop) is None:
            tensor._become(machine.flat_buffer(tensor._uop, self.device))
        handle, is_alone = memory_to_write(tensor, self.memory, read.slot)
        read.is_copied = not is_alone or id(handle) in taken
        if read.is_copied:  # who else holds the buffer keeps it
            handle = self._copied(handle, tensor)
        read.written = no_node if read.is_copied else ref(tensor._uop)
        taken.add(id(handle))
        self._use(read.slot, handle)

    def _is_in_place(self, read: Read, tensor: Tensor, taken: set[int]) -> bool:
        """Whether the program writes to the memory of a Tensor already, which nobody else has: as `memory_to_write` finds it."""
        if tensor._uop is not read.written() or self.memory[read.slot] is None:
            return False
        name = id(self.memory[read.slot])
        if name in taken or not is_as_written(tensor, self.memory, read.slot):
            return False
        taken.add(name)
        return True

    def _use(self, slot: int, handle: Any) -> None:
        if self.memory[slot] is not handle:
            self.memory[slot] = None  # until the program has been told
            self.program.changed(slot, handle)
            self.memory[slot] = handle

    def _copied(self, handle: Any, tensor: Tensor) -> Any:
        data = bytearray(tensor.nbytes())
        self.backend.copyout(memoryview(data), handle)
        fresh = claim(self.device, max(1, len(data)))
        self.backend.copyin(fresh, memoryview(data))
        return fresh

    def _launch(self, watched: bool) -> None:
        if watched:
            count = self.plan.inputs
            found = execute(self.plan, self.memory[:count], self.where[:count], self.values)
            for made, handle in zip(self.made, found):
                self.memory[made.slot], made.again = handle, None
            return
        self.program.run()
        GlobalCounters.kernel_count += self.kernel_count
        GlobalCounters.global_ops += self.flops
        GlobalCounters.global_mem += self.nbytes

    def _give(self, made: Made, arguments: Sequence[Tensor]) -> Tensor | None:
        """What becomes of one result."""
        if made.read is not None and not made.read.is_copied:
            return None  # written in place: its buffer is the same
        target = None if made.source is None else made.source.get(arguments)
        shape = made.shape if made.is_plain else sizes().bound(made.shape, self.values)
        if made.passed:
            made.given = from_arguments(made.passed, arguments, made.origins)
        node = made.node(shape, self.memory[made.slot])
        if made.source is not None:
            if target is not None:
                target._become(node)
            return None
        result = Tensor._new(node, self.device)
        if made.gradient_of is not None:
            owner = made.gradient_of.get(arguments)
            if owner is not None:
                owner.grad = result
        return result


def _aliases(
    recording: _Recording,
    targets: Sequence[Target],
    inputs: Inputs,
    accumulated: Sequence[tuple[Source, bool]],
) -> Aliases:
    """What other calls must have in common with the one that was recorded."""
    written = list(recording.holders.noted())
    owners = [target.gradient_of for target in targets if target.gradient_of is not None]
    added = [source for source, _ in accumulated]
    read = [*[source for _, source, *_ in inputs.reads], *[s for s, _ in inputs.constant]]
    effects = [*[source for _, source in written], *owners, *added]
    known = [*read, *effects, *recording.returned]
    return Aliases(recording.arguments, known, written, bool(effects))


def _after_fork() -> None:
    """A thread that is no more in a child may have been in the middle of a run."""
    for replay in list(_REPLAYS):
        replay.lock = threading.Lock()


_REPLAYS: WeakSet[Replay] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
