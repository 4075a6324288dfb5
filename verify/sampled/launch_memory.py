"""The memory that launches get, beside what their graph and their plan say.

Owns: the proof that a numbered graph is the one that was asked for, its inputs the memory of that one's buffers; that each
launch of a run gets the memory that holds what its slots hold; that nobody can read what is written over; that the table of a replay
is its plan. Does not own: whether the plan is right (launch_plan.py), what a recorded function reads (core/tensor/jit/replay.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any
from weakref import ref

from proofgrad.core.compile.plan.plan import Kernel, Plan, Step
from proofgrad.core.ir.dtypes import as_constant
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import Shape, sizes
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.data.storage import pack
from proofgrad.core.tensor.jit.live_tensors import Entry
from proofgrad.core.tensor.methods.live import live_tensors
from proofgrad.core.tensor.runtime.canonical import COMPUTED, SHOWN
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.launches import Launches
from proofgrad.core.tensor.runtime.memory import buffer_below, buffer_of, buffers, memory_of
from proofgrad.core.tensor.runtime.positions import with_values
from proofgrad.verify.sampled.launch_plan import PlanError

_FIRST_ALONE = (Ops.CONTIGUOUS, Ops.DETACH)  # the other sources are looked at by gradients only


# -- what a run is given -------------------------------------------------------------------------------


def check_numbers(
    roots: Sequence[UOp],
    graph: UOp,
    inputs: Sequence[UOp],
    given: Sequence[Any],
    values: dict[str, int],
) -> None:
    """`graph` is that of `roots` with its buffers numbered and without the `values` of variables, `given` their memory.

    Raises: PlanError.
    """
    for number, (buffer, handle) in enumerate(zip(inputs, given)):
        if not _is_memory_of(buffer, handle):
            raise PlanError("launch", f"input {number} is not the memory of its buffer")
    if (len(roots), len(inputs)) != (len(graph.src), len(given)):
        raise PlanError("launch", f"{len(graph.src)} roots numbered of {len(roots)}")
    # Each node with the arguments of the body that it is part of, themselves nodes with such.
    stack: list[tuple[UOp, Any, UOp]] = [
        (root, None, numbered) for root, numbered in zip(roots, graph.src)
    ]
    seen: set[tuple[UOp, Any, UOp]] = set()
    while stack:
        pair = stack.pop()
        if pair in seen:
            continue
        seen.add(pair)
        real, arguments, numbered = pair
        if arguments is None:  # no node of a body
            real = SHOWN.get(real, real)
            real = COMPUTED.get(real, real)
        if real.op is Ops.APPLY:
            given = tuple([(source, arguments) for source in real.src])
            stack.append((real.arg, given, numbered))
            continue
        below = real.src[0] if real.op is Ops.RESHAPE else real
        if below.op is Ops.PARAM and arguments is not None:
            argument, around = arguments[below.arg[0]]
            stack.append((argument, around, _place_of(argument, real, numbered)))
            continue
        if real is numbered and real.op is not Ops.BUFFER:
            continue
        if arguments is None and _is_part(real, numbered, inputs):
            continue
        if real.op is Ops.CONST and numbered.op is not Ops.CONST:
            is_same = (real.arg, real.dtype) == (_number(numbered, values), numbered.dtype)
            if not is_same and not _is_in_memory(real, numbered, inputs):
                raise PlanError("launch", f"{real.arg} became another number of elements")
            continue
        if not _is_same(real, numbered, inputs, values):
            raise PlanError(
                "launch", f"{real.op.name} became {numbered.op.name} in the numbered graph"
            )
        if numbered.op is not Ops.BUFFER:
            count = 1 if numbered.op in _FIRST_ALONE else len(real.src)
            parts = zip(real.src[:count], numbered.src[:count])
            stack += [(source, arguments, found) for source, found in parts]


def _is_in_memory(constant: UOp, numbered: UOp, inputs: Sequence[UOp]) -> bool:
    """Whether a numbered node is a buffer of one element, in some shape, which holds this constant."""
    flat = numbered.src[0] if numbered.op is Ops.RESHAPE else numbered
    if flat.op is not Ops.BUFFER or (flat.arg, flat.dtype) != (1, constant.dtype):
        return False
    buffer, held = inputs[flat.src[0].arg], bytearray(constant.dtype.itemsize)
    if buffer.op is not Ops.BUFFER or (buffer.arg, buffer.dtype) != (1, constant.dtype):
        return False
    Device[buffer.src[1].arg].copyout(memoryview(held), memory_of(buffer))
    return held == pack([constant.arg], constant.dtype)


def _number(node: UOp, values: dict[str, int]) -> Any:
    """A number of elements, as sums of ones and what is computed of them; None: it is something else."""
    found = [_number(source, values) for source in node.src]
    if None in found:
        return None
    match node.op:
        case Ops.CONST:
            return node.arg
        case Ops.RESHAPE | Ops.EXPAND:
            return found[0]
        case Ops.CAST:
            return as_constant(found[0], node.dtype)
        case Ops.ADD:
            return found[0] + found[1]
        case Ops.MUL:
            return found[0] * found[1]
        case Ops.REDUCE_AXIS if node.arg[0] is Ops.ADD:
            shape = with_values(node.src[0].shape, values)
            return found[0] * prod([shape[axis] for axis in node.arg[1]])
    return None


def _place_of(argument: UOp, shown: UOp, numbered: UOp) -> UOp:
    """The node that has to be an argument of a body, of which `shown` are the elements in some shape. Raises: PlanError."""
    if argument.shape == shown.shape:
        return numbered
    if numbered.op is not Ops.RESHAPE or numbered.shape != shown.shape:
        raise PlanError("launch", f"an argument became {numbered.op.name} in the numbered graph")
    return numbered.src[0]


def _is_same(real: UOp, numbered: UOp, inputs: Sequence[UOp], values: dict[str, int]) -> bool:
    """Whether two nodes are alike but for their sources, the number of a buffer, the values of variables."""
    if numbered.op is Ops.BUFFER:
        number = numbered.src[0].arg
        is_known = 0 <= number < len(inputs) and inputs[number] is real
        return is_known and (real.dtype, real.arg, real.src[1]) == (
            numbered.dtype, numbered.arg, numbered.src[1]
        )  # fmt: skip
    if (real.op, real.dtype) != (numbered.op, numbered.dtype):
        return False
    if real.op in _FIRST_ALONE:
        return True
    is_equal = real.arg == numbered.arg or (
        (real.op in MOVEMENT or real.op is Ops.IOTA)
        and (
            sizes().are_bound_to(real.arg, numbered.arg, values)
            or real.arg == with_values(numbered.arg, values)
        )
    )
    return is_equal and len(real.src) == len(numbered.src)


def _is_memory_of(buffer: UOp, handle: Any) -> bool:
    """Whether a handle is the memory of a buffer; of a part, that of the whole, from where the part begins."""
    if buffer.op is not Ops.SHRINK:
        return memory_of(buffer) is handle
    whole, begin = memory_of(buffer.src[0]), buffer.arg[0][0] * buffer.dtype.itemsize
    if not begin:
        return handle is whole
    is_inside = handle.whole is whole and buffer.arg[0][1] <= buffer.src[0].arg
    runs = Device[buffer.src[0].src[1].arg].target.runs  # else nothing has an address
    return bool(is_inside and (not runs or handle.address == whole.address + begin))


def _is_part(real: UOp, numbered: UOp, inputs: Sequence[UOp]) -> bool:
    """Whether a numbered buffer, or a reshape of it, is a part of memory that has the elements of `real`, in order."""
    flat = numbered
    while flat.op is Ops.RESHAPE or flat.op is Ops.DETACH:
        flat = flat.src[0]
    if flat.op is not Ops.BUFFER or numbered.shape != real.shape:
        return False
    part = inputs[flat.src[0].arg]
    if part.op is not Ops.SHRINK or flat.arg != part.shape[0]:
        return False
    place = _place(real)
    if place is None:
        return False
    buffer, first = place
    return part.src[0] is buffer and part.arg == ((first, first + flat.arg),)


def _place(shown: UOp) -> tuple[UOp, int] | None:
    """The buffer that slices of slices show elements of, one after the other, and the number of the first one; None: others lie between."""
    node, first = shown, 0
    while node.op in (Ops.SHRINK, Ops.RESHAPE, Ops.DETACH):
        begin = _begin_in_a_row(node) if node.op is Ops.SHRINK else 0
        if begin is None:
            return None
        node, first = COMPUTED.get(node.src[0], node.src[0]), first + begin
    return (node, first) if node.op is Ops.BUFFER else None


def _begin_in_a_row(taken: UOp) -> int | None:
    """The number of the first element of a slice; None where the others do not follow it one after the other."""
    shape = taken.src[0].shape
    several = [axis for axis, (begin, end) in enumerate(taken.arg) if end - begin != 1]
    for axis in range(several[0] + 1 if several else len(shape), len(shape)):
        if taken.arg[axis] != (0, shape[axis]):
            return None
    return int(sum([begin * prod(shape[axis + 1 :]) for axis, (begin, _) in enumerate(taken.arg)]))


def check_written_over(plan: Plan, given: Sequence[Any]) -> None:
    """Nobody holds a buffer that a plan writes over, and no other input is its memory. Raises: PlanError."""
    written = {step.slots[0] for step in plan.steps if step.slots[0] < plan.inputs}
    if not written:
        return
    held = {id(memory_of(buffer)) for buffer in buffers()}
    for slot in sorted(written):
        if id(given[slot]) in held:
            raise PlanError(
                "launch", f"input {slot} is written over, and somebody holds its buffer"
            )
        if sum([handle is given[slot] for handle in given]) > 1:
            raise PlanError("launch", f"input {slot} is written over, and is another input too")


def check_unseen(node: UOp) -> None:
    """No Tensor shows the memory of a node. Raises: PlanError."""
    buffer = buffer_of(node)
    shown = [COMPUTED.get(one._uop, one._uop) for one in live_tensors()]
    if any(buffer_below(node) is buffer for node in shown):
        raise PlanError("launch", "the memory of a result that a Tensor has is written to again")


def check_results(
    plan: Plan, shapes: Sequence[Shape], memory: Sequence[Any], found: Sequence[UOp]
) -> None:
    """Each result is the memory of its slot, in the shape of its root. Raises: PlanError."""
    if not len(plan.results) == len(shapes) == len(memory) == len(found):
        raise PlanError("launch", f"{len(found)} results for {len(shapes)} roots")
    for number, (shape, handle, node) in enumerate(zip(shapes, memory, found)):
        buffer = node
        while buffer.op is not Ops.BUFFER:
            buffer = buffer.src[0]
        if node.shape != shape or memory_of(buffer) is not handle:
            raise PlanError("launch", f"result {number} is other memory, or of another shape")


# -- launches one by one -----------------------------------------------------------------------------------


def _whole(handle: Any) -> int:
    """Which memory a handle is of, or of a part of."""
    return id(getattr(handle, "whole", handle))


class Followed:
    """The launches of one run, each as it happens."""

    def __init__(self, plan: Plan, given: Sequence[Any]) -> None:
        self._plan, self._next = plan, 0
        self._holds: dict[int, Any] = {slot: _whole(given[slot]) for slot in range(plan.inputs)}

    def launch(self, kernel: Kernel, buffers: Sequence[Any]) -> None:
        """The next launch. Raises: PlanError if it is not that of the plan, on the memory of its slots."""
        self._copies()
        steps = self._plan.steps
        if self._next == len(steps) or steps[self._next].kernel is not kernel:
            raise PlanError(
                kernel.name, f"is launched where step {self._next} of the plan is another one"
            )
        step = steps[self._next]
        handles = list(map(_whole, buffers))
        if len(handles) != len(step.slots):
            raise PlanError(kernel.name, f"{len(handles)} buffers for slots {step.slots}")
        for slot, handle in zip(step.slots, handles):
            if self._holds.setdefault(slot, handle) != handle:
                raise PlanError(kernel.name, f"slot {slot} is other memory than before")
        others = {held for slot, held in self._holds.items() if slot != step.slots[0]}
        if handles[0] in others:
            raise PlanError(
                kernel.name, f"slot {step.slots[0]}, which it writes, is the memory of another"
            )
        self._done(step)

    def end(self, memory: Sequence[Any]) -> None:
        """Raises: PlanError if launches are left, or the results are other memory."""
        self._copies()
        if self._next < len(self._plan.steps):
            raise PlanError("launch", f"{self._next} of {len(self._plan.steps)} steps have run")
        for slot, handle in zip(self._plan.results, memory):
            if self._holds.get(slot, _whole(handle)) != _whole(handle):
                raise PlanError("launch", f"the result in slot {slot} is other memory")

    def _copies(self) -> None:
        """Copies before the next launch: what they fill is seen when it is read."""
        steps = self._plan.steps
        while self._next < len(steps) and steps[self._next].kernel is None:
            self._done(steps[self._next])

    def _done(self, step: Step) -> None:
        self._next += 1
        for slot in step.free_after:
            self._holds.pop(slot, None)


# -- replays -----------------------------------------------------------------------------------------------


def named_buffers(roots: Sequence[UOp], entries: Iterable[Entry]) -> list[ref[UOp]]:
    """The buffers below `roots` that Tensors named when a recording began, and that are there still."""
    nodes = set(toposort(roots, lambda node: node not in COMPUTED))
    found = []
    for entry in entries:
        node = entry.node()
        named_by = entry.tensor if entry.owner is None else entry.owner
        if node in nodes and named_by() is not None:
            buffer = buffer_below(COMPUTED.get(node, node))
            if buffer is not None:
                found.append(ref(buffer))
    return found


def check_fixed(named: Sequence[ref[UOp]], buffers: Sequence[UOp]) -> None:
    """Raises: PlanError if replays read a buffer as it is, though Tensors name it, which may name another one later."""
    for buffer in buffers:
        if any(one() is buffer for one in named):
            raise PlanError("replay", "what a Tensor names is read as it was when it was recorded")


def check_replay(
    steps: Sequence[Step],
    program: Launches,
    memory: Sequence[Any],
    results: Mapping[int, UOp | None],
) -> None:
    """A replay launches its steps, in order, on the memory of their slots. Raises: PlanError.

    `memory`: of every slot, as it has to be in this run. `results`: the slots of results that get memory of their own,
    with the node that is allowed to hold it.
    """
    listed = program.listed()
    if [step for step, _ in listed] != list(steps):
        raise PlanError("replay", "other steps than those that were recorded, or in another order")
    for step, addresses in zip(steps, [addresses for _, addresses in listed]):
        offsets = step.offsets or (0,) * len(step.slots)
        wanted = [_address(memory[slot], offset) for slot, offset in zip(step.slots, offsets)]
        if any(is_at is not at and is_at != at for is_at, at in zip(addresses, wanted)):
            name = "copy" if step.kernel is None else step.kernel.name
            raise PlanError(name, f"slots {step.slots} are other memory in the table of the replay")
    _check_apart(steps, memory, results)


def _address(handle: Any, offset: int) -> Any:
    return handle.address + offset if hasattr(handle, "address") else handle


def _check_apart(
    steps: Sequence[Step], memory: Sequence[Any], results: Mapping[int, UOp | None]
) -> None:
    """What a replay writes anew, nobody holds. Raises: PlanError."""
    written = {step.slots[0] for step in steps}
    owners: dict[int, list[int]] = {}
    for slot in {slot for step in steps for slot in step.slots}:
        owners.setdefault(id(memory[slot]), []).append(slot)
    held: dict[int, list[UOp]] = {}
    for buffer in buffers():
        held.setdefault(id(memory_of(buffer)), []).append(buffer)
    for slot, allowed in results.items():
        if slot in written and owners[id(memory[slot])] != [slot]:
            raise PlanError(
                "replay", f"slots {owners[id(memory[slot])]} are one memory, {slot} is a result"
            )
        if any(buffer is not allowed for buffer in held.get(id(memory[slot]), ())):
            raise PlanError("replay", f"result {slot} is written to memory that somebody holds")
