"""The launches of a plan, shown to be those of its graph: by following which value each buffer holds.

Owns: the proof that a KernelGraph is the tensor graph that was cut, and that the steps of a plan run
its kernels on the memory that holds what each reads, in an order in which nothing is overwritten or freed before its
last use. No solver is needed: graphs are hash-consed, so equal values are one node, and a plan is finite.
Does not own: what a kernel computes (kernels/proof.py, sampled/kernels.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proofgrad.core.compile.plan.plan import BufferInfo, Kernel, Plan, Step
from proofgrad.core.ir.op_names import CONTIGUOUS, DETACH, PARAM, RESHAPE
from proofgrad.core.ir.ops import COMMUTATIVE, Ops
from proofgrad.core.ir.shapes import elements, has_variables
from proofgrad.core.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from proofgrad.core.tensor.runtime.arena import Arena

Compiled = Sequence[Sequence[Kernel]]  # the kernels of each call; none of a copy


class PlanError(RuntimeError):
    """Launches that do not compute their graph: a bug of the compiler."""

    def __init__(self, kernel: str, reason: str) -> None:
        super().__init__(f"{kernel}: {reason}")
        self.kernel, self.reason = kernel, reason


def check_plan(tensor_graph: UOp, kernel_graph: UOp, plan: Plan, compiled: Compiled) -> str:
    """Raises: PlanError. Gives the reason where nothing is shown, else "".

    `tensor_graph`: what was cut. `kernel_graph`: its calls, results over inputs already.
    """
    if has_variables(toposort((tensor_graph,))):
        return "sizes of a plan are variables"
    plain = _Plain()
    calls, results = _values_of_calls(kernel_graph, plain)
    _check_results(tensor_graph, results, plain)
    _Launches(plan, kernel_graph).check(calls, results, compiled)
    return ""


# -- tensor graph and calls -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Call:
    """What the buffers of a call hold before it, by parameter, and the one that is written after it."""

    node: UOp
    before: Mapping[int, UOp | None]
    after: UOp
    reads_result: bool  # in place: parameter 0 is read as well


class _Plain:
    """Values without what changes none: CONTIGUOUS, DETACH, all but the last of RESHAPEs, the order of what commutes."""

    def __init__(self) -> None:
        self._known: dict[UOp, UOp] = {}

    def of(self, root: UOp) -> UOp:
        """The plain value, which is its own plain value."""
        for node in toposort((root,), lambda n: n not in self._known):
            if node not in self._known:
                made = self._of(node, tuple([self._known[s] for s in node.src]))
                self._known[node] = self._known[made] = made
        return self._known[root]

    def of_body(self, nodes: Sequence[UOp], parameters: Mapping[UOp, UOp]) -> UOp:
        """The plain value of the last of nodes, of which all sources come first, where parameters are these."""
        made = dict(parameters)
        for node in nodes:
            if node not in made:
                made[node] = self._of(node, tuple([made[s] for s in node.src]))
        value = made[nodes[-1]]
        self._known[value] = value
        return value

    def _of(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        op = node.op
        if 0 in node.shape:
            return in_shape(UOp(Ops.IOTA, node.dtype, (), 0), node.shape)
        if op is CONTIGUOUS or op is DETACH:
            return src[0]
        if op is RESHAPE:
            return in_shape(src[0], node.arg)
        if op is Ops.SHRINK:
            return _in_memory(node, src[0])
        if op in COMMUTATIVE:
            return node.with_src(tuple(sorted(src, key=id)))  # any order, if it is the same for all
        return node.with_src(src)


def in_shape(node: UOp, shape: tuple[int, ...]) -> UOp:
    """The same elements in the same order."""
    while node.op is RESHAPE:
        node = node.src[0]
    return node if node.shape == shape else UOp(Ops.RESHAPE, node.dtype, (node,), shape)


def _values_of_calls(graph: UOp, plain: _Plain) -> tuple[list[_Call], list[UOp]]:
    """Each call with what its buffers hold; and what the buffers of the results hold at the end.

    An input holds itself at first. Raises: PlanError.
    """
    holds: dict[UOp, UOp] = {}

    def held(buffer: UOp) -> UOp | None:
        if buffer.op is Ops.SHRINK:
            whole = held(buffer.src[0])
            return None if whole is None else _part(whole, buffer)
        if buffer.arg == 0:
            return UOp(Ops.IOTA, buffer.dtype, (), 0)
        return holds.get(buffer, buffer if _number(buffer) >= 0 else None)

    calls: list[_Call] = []
    for number, call in enumerate(graph.src):
        name = f"call {number}"
        body, written = call.src[0], call.src[1]
        before = {k: held(buffer) for k, buffer in enumerate(call.src[1:])}
        nodes = toposort((body.src[0],))
        parameters = [n for n in nodes if n.op is PARAM]
        holds_now: dict[UOp, UOp] = {}
        for node in parameters:
            slot, size = node.arg
            if slot not in before:
                raise PlanError(name, f"parameter {slot} has no buffer")
            buffer, value = call.src[1 + slot], before[slot]
            if (buffer.dtype, _size(buffer)) != (node.dtype, size):
                raise PlanError(
                    name,
                    f"parameter {slot} is {size} of {node.dtype}, its buffer {_size(buffer)} of {buffer.dtype}",
                )
            if value is None:
                raise PlanError(name, f"reads buffer {_number(buffer)} before it is written")
            holds_now[node] = plain.of(in_shape(value, (size,)))
        value = plain.of_body(nodes, holds_now)
        if (elements(value.shape), value.dtype) != (written.arg, written.dtype):
            raise PlanError(
                name,
                f"{elements(value.shape)} of {value.dtype} for {written.arg} of {written.dtype}",
            )
        reads_result = any(node.arg[0] == 0 for node in parameters)
        calls.append(_Call(call, before, value, reads_result))
        holds[written] = value
    results = [held(buffer) for buffer in graph.arg]
    if None in results:
        raise PlanError("results", "a buffer of a result is never written")
    return calls, [plain.of(value) for value in results if value is not None]


def _check_results(tensor_graph: UOp, results: Sequence[UOp], plain: _Plain) -> None:
    """Each result is the value of its root. Raises: PlanError."""
    if len(results) != len(tensor_graph.src):
        raise PlanError("results", f"{len(results)} for {len(tensor_graph.src)} roots")
    for number, (root, value) in enumerate(zip(tensor_graph.src, results)):
        flat = (elements(root.shape),)
        if in_shape(plain.of(root), flat) is not in_shape(value, flat):
            raise PlanError(f"result {number}", "its buffer does not hold the value of its root")


def _number(buffer: UOp) -> int:
    """Of the buffer, or that which it is a part of."""
    number: int = (buffer.src[0] if buffer.op is Ops.SHRINK else buffer).src[0].arg
    return number


def _size(buffer: UOp) -> int:
    if buffer.op is Ops.SHRINK:
        begin, end = buffer.arg[0]
        return int(end - begin)
    return int(buffer.arg)


def _part(whole: UOp, part: UOp) -> UOp:
    """The elements of a part of the memory that holds `whole`."""
    flat = in_shape(whole, (part.src[0].arg,))
    return flat if part.arg == ((0, part.src[0].arg),) else UOp(Ops.SHRINK, flat.dtype, (flat,), part.arg)  # fmt: skip


def _in_memory(node: UOp, whole: UOp) -> UOp:
    """A slice of `whole` as one of its elements in a row, where they follow each other there.

    Else as what it reaches over, with nothing behind it, from which the first elements are taken on each axis.
    """
    shape, first, last = whole.shape, 0, 0
    for (begin, end), size in zip(node.arg, shape):
        first, last = first * size + begin, last * size + end - 1
    count = last - first + 1
    row = _row(in_shape(whole, (elements(shape),)), first, last + 1)
    if count == elements(node.shape):
        return in_shape(row, node.shape)
    padded = UOp(Ops.PAD, node.dtype, (row,), ((0, elements(shape) - count),))
    begins = tuple([(0, size) for size in node.shape])
    return UOp(Ops.SHRINK, node.dtype, (in_shape(padded, shape),), begins)


def _row(flat: UOp, first: int, end: int) -> UOp:
    """The elements of a row from `first` on, and before `end`: of what is padded behind, of what is there; of a part, of what that is of."""
    if flat.op is Ops.PAD and flat.arg[0][0] == 0 and end <= flat.src[0].shape[0]:
        flat = flat.src[0]
    if (first, end) == (0, flat.shape[0]):
        return flat
    if flat.op is Ops.SHRINK:
        begin = flat.arg[0][0]
        return _row(flat.src[0], begin + first, begin + end)
    return UOp(Ops.SHRINK, flat.dtype, (flat,), ((first, end),))


# -- memory that buffers share --------------------------------------------------------------------------


def check_arena(made: Mapping[int, BufferInfo], steps: Sequence[Step], arena: Arena) -> None:
    """Slots that have one memory are never in use at the same time, and it has room for each. Raises: PlanError.

    `made`: the slots that are laid out, which are in use from the first step with them to the last.
    """
    users: dict[int, list[int]] = {}
    for slot, info in made.items():
        if slot not in arena.memory:
            raise PlanError("arena", f"slot {slot} has no memory")
        nbytes, device = arena.room[slot]
        if nbytes < info.nbytes or device != info.device:
            raise PlanError(
                "arena",
                f"slot {slot} of {info.nbytes} bytes on {info.device} has {nbytes} on {device}",
            )
        users.setdefault(id(arena.memory[slot]), []).append(slot)
    used: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        for slot in step.slots:
            used.setdefault(slot, []).append(number)
    always = [0, len(steps)]  # what no step writes may be read at any time
    for slots in users.values():
        lives = sorted([(min(used.get(s, always)), max(used.get(s, always)), s) for s in slots])
        for (_, end, one), (begin, _, other) in zip(lives, lives[1:]):
            if begin <= end:
                raise PlanError("arena", f"slots {one} and {other} share memory in step {begin}")


# -- calls and launches -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Launches:
    """The steps of a plan beside the calls that they run. A slot holds a value, or a part of one."""

    plan: Plan
    graph: UOp
    memory: dict[int, object] = field(default_factory=dict)

    def check(self, calls: Sequence[_Call], results: Sequence[UOp], compiled: Compiled) -> None:
        """Raises: PlanError."""
        plan = self.plan
        buffers = [b for call in self.graph.src for b in call.src[1:]] + list(self.graph.arg)
        for buffer in buffers:
            if (number := _number(buffer)) >= 0:
                self.memory[number] = buffer.src[0] if buffer.op is Ops.SHRINK else buffer
        if any(slot >= plan.inputs for slot in self.memory):
            raise PlanError("plan", f"{plan.inputs} inputs, {max(self.memory) + 1} are read")
        first = plan.inputs + len(plan.made)
        for number, (variable, _) in enumerate(plan.variables):
            self.memory[first + number] = ("variable", variable)
        steps = list(plan.steps)
        asked = sum([len(kernels) or 1 for kernels in compiled])
        if len(compiled) != len(calls) or asked != len(steps):
            raise PlanError("plan", f"{len(steps)} steps for {asked} kernels of {len(calls)} calls")
        for call, kernels in zip(calls, compiled):
            count = len(kernels) or 1
            self._call(call, kernels, steps[:count])
            del steps[:count]
        if len(plan.results) != len(results):
            raise PlanError("plan", f"{len(plan.results)} results for {len(results)} roots")
        for number, (slot, buffer, value) in enumerate(zip(plan.results, self.graph.arg, results)):
            self._holds(f"result {number}", slot, buffer, value)

    def _call(self, call: _Call, kernels: Sequence[Kernel], steps: Sequence[Step]) -> None:
        """The steps of one call, one for each kernel."""
        buffers = dict(enumerate(call.node.src[1:]))
        tables: dict[int, int] = {}
        if call.reads_result:
            (slot,) = {s for step in steps for k, s in zip(_numbers(step), step.slots) if k == 0}
            self._holds("in place", slot, buffers[0], call.before[0])
        launched: Sequence[Kernel | None] = kernels or (None,)
        for step, kernel in zip(steps, launched):
            name = "copy" if kernel is None else kernel.name
            numbers = _numbers(step)
            if step.kernel is not kernel:
                raise PlanError(name, "another kernel is launched")
            offsets = step.offsets or (0,) * len(numbers)
            begins = {
                number: source.arg[0][0] * source.dtype.itemsize
                for number, source in buffers.items()
                if source.op is Ops.SHRINK
            }
            whole = [slot for slot, number in zip(step.slots, numbers) if number not in begins]
            is_apart = len(set(whole)) == len(whole) and step.slots.count(step.slots[0]) == 1
            if not len(step.slots) == len(numbers) == len(offsets) or not is_apart:
                raise PlanError(name, f"slots {step.slots} for parameters {numbers}")
            variables = {} if kernel is None else kernel.variables
            for parameter, offset in zip(numbers, offsets):
                if offset != begins.get(parameter, 0):
                    raise PlanError(name, f"parameter {parameter} begins at byte {offset}")
            for parameter, slot in list(zip(numbers, step.slots))[1:]:
                if parameter not in variables:
                    self._reads(name, call, buffers, tables, parameter, slot)
                elif self.memory.get(slot) != ("variable", variables[parameter]):
                    raise PlanError(name, f"variable {variables[parameter]} is not in slot {slot}")
            written, slot = numbers[0], step.slots[0]
            if written == 0:
                self._has_room(name, slot, buffers[0].arg, buffers[0])
                self.memory[slot] = call.after if step is steps[-1] else ("a part of", call.node)
            else:  # a table, which may have the number of a buffer that no kernel reads after it
                if kernel is None or slot < self.plan.inputs:
                    raise PlanError(name, f"writes parameter {written}, which its call only reads")
                if tables.setdefault(written, slot) != slot:
                    raise PlanError(
                        name, f"table {written} is written to slots {tables[written]} and {slot}"
                    )
                self._table(name, slot, kernel)
                self.memory[slot] = ("table", written, call.node)
            for free in step.free_after:
                if free < self.plan.inputs:
                    raise PlanError(name, f"input {free} is freed")
                self.memory.pop(free, None)
        if self.memory.get(steps[-1].slots[0]) is not call.after:
            freed = steps[-1].slots[0] in steps[-1].free_after
            if not freed:
                raise PlanError("call", "its last kernel does not write its result")

    def _reads(
        self,
        name: str,
        call: _Call,
        buffers: Mapping[int, UOp],
        tables: Mapping[int, int],
        parameter: int,
        slot: int,
    ) -> None:
        """Raises: PlanError if the slot does not hold what the parameter reads."""
        if parameter in tables:
            if tables[parameter] != slot or self.memory.get(slot) != (
                "table",
                parameter,
                call.node,
            ):
                raise PlanError(name, f"table {parameter} is not in slot {slot}")
        elif parameter == 0 and self.memory.get(slot) == ("a part of", call.node):
            return
        elif parameter in buffers:
            self._holds(name, slot, buffers[parameter], call.before[parameter])
        else:
            raise PlanError(name, f"parameter {parameter} is no buffer of its call, and no table")

    def _holds(self, name: str, slot: int, buffer: UOp, value: UOp | None) -> None:
        """Raises: PlanError if a slot does not hold a value."""
        memory = buffer.src[0] if buffer.op is Ops.SHRINK else buffer
        self._has_room(name, slot, memory.arg, memory)
        if memory.arg == 0:
            return
        found = self.memory.get(slot)
        if memory is not buffer and isinstance(found, UOp):
            found = _part(found, buffer)
        flat = (_size(buffer),)
        is_value = isinstance(found, UOp) and value is not None
        if not is_value or in_shape(found, flat) is not in_shape(value, flat):  # type: ignore[arg-type]
            raise PlanError(name, f"slot {slot} does not hold what is read there")

    def _has_room(self, name: str, slot: int, size: int, buffer: UOp) -> None:
        """Raises: PlanError unless a slot is memory for so many elements on the device of a buffer."""
        if 0 <= slot < self.plan.inputs:
            return
        info = self._info(name, slot)
        device = buffer.src[1].arg
        if (info.dtype, info.device) != (buffer.dtype, device) or info.size < size:
            raise PlanError(
                name,
                f"slot {slot} has {info.size} of {info.dtype} on {info.device}, where {size} of"
                f" {buffer.dtype} on {device} are",
            )

    def _table(self, name: str, slot: int, kernel: Kernel) -> None:
        info = self._info(name, slot)
        if info.size < kernel.size or info.dtype is not kernel.source.params[0]:
            raise PlanError(
                name, f"slot {slot} has {info.size} of {info.dtype}, {kernel.size} are written"
            )

    def _info(self, name: str, slot: int) -> BufferInfo:
        if not self.plan.inputs <= slot < self.plan.inputs + len(self.plan.made):
            raise PlanError(name, f"slot {slot} is none of the plan")
        return self.plan.made[slot - self.plan.inputs]


def _numbers(step: Step) -> tuple[int, ...]:
    """The parameters of the body that the slots of a step are for."""
    return (0, 1) if step.kernel is None else step.kernel.slots
