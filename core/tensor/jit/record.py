"""The call of a function that is recorded: everything that it computes is computed here, as one plan.

Owns: what cannot be recorded, a node of its own for each result, what results are made of. Does not own: what a recording
is (jit.py), what becomes of the plan (replay.py).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.bodies import without_bodies
from proofgrad.core.tensor.data.errors import JitError
from proofgrad.core.tensor.jit.inputs import Inputs
from proofgrad.core.tensor.jit.replay import Replay
from proofgrad.core.tensor.jit.slots import Target
from proofgrad.core.tensor.lost_ways import floats_reached
from proofgrad.core.tensor.methods.base import own_copy
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.canonical import computed
from proofgrad.core.tensor.runtime.interrupts import Interrupts
from proofgrad.core.tensor.runtime.memory import is_view
from proofgrad.core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from proofgrad.core.tensor.jit.jit import _Recording


def record(recording: _Recording, targets: list[Target]) -> Replay | None:
    """Compute the targets, and keep how. Raises: JitError for what no replay could do.

    None if inputs had to be computed first, or a result turned out to be memory of an input: the next recording copies it.
    """
    tensors = [target.tensor for target in targets]
    _check_devices(recording, tensors)
    _check_kept(recording, tensors)
    if not targets:
        raise JitError(
            f"{recording.name} gives no Tensor and writes to none: return what it computes, or assign it to a Tensor that exists"
        )
    inputs = Inputs(recording, targets)
    _find_origins(recording, targets)
    roots = _roots(targets, recording.shown)
    check = machine.compiler().checks()
    named = [] if check is None else check.named(roots, recording.holders.entries.values())

    def release() -> None:
        for tensor in tensors:
            tensor._become(machine.PENDING)

    with Interrupts() as interrupts:
        try:
            nodes = machine.realize(roots, tensors[0].device, release, inputs, interrupts)
        except BaseException:
            for tensor, root in zip(tensors, roots):
                tensor._become(root)
            raise
        for target, node in zip(targets, nodes):
            target.tensor._become(node)
    if inputs.unsettled:
        found = [source.get(recording.arguments) for source in inputs.unsettled]
        _compute([tensor for tensor in found if tensor is not None])
        return None
    if shown := _memory_of_inputs(inputs):
        recording.shown |= shown
        for k in shown:
            targets[k].tensor._become(own_copy(nodes[k]))
        _compute([targets[k].tensor for k in shown])
        return None
    if check is not None:
        check.fixed(named, list(inputs.fixed.values()))
    return Replay(recording, targets, inputs)


def _check_devices(recording: _Recording, tensors: Sequence[Tensor]) -> None:
    devices = sorted({tensor.device for tensor in [*tensors, *recording.arguments]})
    if len(devices) > 1:
        raise JitError(
            f"{recording.name} has Tensors on {' and '.join(devices)}; a jitted function works on"
            f" one device"
        )


def _check_kept(recording: _Recording, tensors: Sequence[Tensor]) -> None:
    kept = recording.holders.kept([*tensors, *recording.arguments])
    if kept:
        listed = ", ".join([f"{show(t.shape)} {t.dtype!r}" for t in kept[:3]])
        raise JitError(
            f"{recording.name} makes Tensors that somebody holds after it ({listed}) and that a"
            f" replay would not change; return them, or write them with assign to Tensors that exist"
        )


def _find_origins(recording: _Recording, targets: Sequence[Target]) -> None:
    """Note of each result of which Tensors it is made that are there, and not written to."""
    holders = recording.holders
    written = {id(tensor) for tensor, _ in holders.noted()}
    for target in targets:
        root = target.tensor._uop
        if target.source is None and dtypes.is_float(root.dtype):
            read = holders.readers(set(floats_reached(without_bodies(root))))
            found = [source for source, _ in read if not source.gradient]
            found = [one for one in found if id(one.get(recording.arguments)) not in written]
            target.origins = frozenset([one.tensor for one in found if one.tensor is not None])
            target.passed = tuple([one.argument for one in found if one.argument is not None])


def _memory_of_inputs(inputs: Inputs) -> set[int]:
    """The numbers of results that rules have found to be all of an input, as `x.pad((0, 1))[:-1]`."""
    plan = inputs.plan
    assert plan is not None
    written = {step.slots[0] for step in plan.steps}
    return {k for k, s in enumerate(plan.results) if s < plan.inputs and s not in written}


def _roots(targets: Sequence[Target], shown: Container[int]) -> list[UOp]:
    """A node for each target, unlike all others: Tensors of one value get memory of their own. `shown`: those known to be memory of inputs."""
    roots: dict[UOp, None] = {}
    for k, target in enumerate(targets):
        root = target.tensor._uop
        is_view = k in shown or _shows_memory(root)  # replays would share it
        while is_view or root in roots:
            root, is_view = own_copy(root), False
        roots[root] = None
    return list(roots)


def _shows_memory(node: UOp) -> bool:
    """Is this memory seen through movement operations, once what was computed stands for its graph?"""
    node = computed(node)
    while node.op in MOVEMENT or node.op is Ops.DETACH:
        node = computed(node.src[0])
    return is_view(node)


def _compute(tensors: list[Tensor]) -> None:
    if tensors:
        tensors[0].realize(*tensors[1:])
