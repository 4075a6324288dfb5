"""What would run: the kernels of Tensors as a list, and as a graph in place of the Tensor's own.

Owns: `ScheduleItem`, the graph ASSIGN(BUFFER, CALL) of `kernelize`. Does not own: the cut into
kernels (core/compile/fusion/kernels.py). Nothing here runs or compiles anything until it is asked to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary, ref

from proofgrad.core.compile.lowering.kernel_names import kernel_name
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.compile.passes.memory import memory_below
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.canonical import computed, remember_graph
from proofgrad.core.tensor.runtime.table import new_buffer

# Graphs that are shown as kernels: the device, and the ASSIGN while somebody has it. It leads to the graph, and would keep it for ever.
_KERNELIZED: WeakKeyDictionary[UOp, tuple[str, ref[UOp]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ScheduleItem:
    """One kernel, or one copy between devices, that is still to run.

    `ast` is its body: SINK of a value over PARAMs; `metadata` the methods of Tensor that it comes
    from, where they were traced (DEBUG=2).
    """

    ast: UOp
    device: str
    metadata: tuple[str, ...] = ()

    @property
    def is_copy(self) -> bool:
        """Whether it only moves data between devices."""
        return self.ast.src[0].op is Ops.COPY

    @property
    def shape(self) -> Shape:
        """The shape of what it computes."""
        return self.ast.src[0].shape

    @property
    def name(self) -> str:
        """The name of the kernel; "copy" of a copy."""
        if self.is_copy:
            return "copy"
        return kernel_name(machine.compiler().linears(self.ast, self.device)[-1])

    @property
    def source(self) -> Source | None:
        """The kernel's text for its device, without that which fills its tables; None of a copy."""
        return None if self.is_copy else machine.compiler().sources(self.ast, self.device)[-1]

    def __repr__(self) -> str:
        return f"ScheduleItem({self.name} on {self.device}, {self.shape})"


def schedule_items(roots: Sequence[UOp], device: str) -> list[ScheduleItem]:
    """What computing `roots` would run, in order; nothing if they are computed."""
    graph, _ = machine.graph_and_inputs(roots, device)
    if not graph.src:
        return []
    calls = machine.compiler().kernel_graph(graph).src
    return [ScheduleItem(call.src[0], call.arg.device, call.arg.origin) for call in calls]


def kernelize(root: UOp, device: str) -> None:
    """From now on, until it is computed, `shown(root)` says with which kernels."""
    found = _as_kernels(root, device)
    if found is not None:
        _KERNELIZED[root] = (device, ref(found))


def shown(root: UOp) -> UOp:
    """What stands for `root` in a Tensor's `uop`: its buffer, its kernels, or its own graph."""
    known = computed(root)
    kept = _KERNELIZED.get(root) if known is root else None
    if kept is None:
        return known
    device, assign = kept
    found = assign() or _as_kernels(root, device)
    if found is None:
        return root
    _KERNELIZED[root] = (device, ref(found))
    return found


def _as_kernels(root: UOp, device: str) -> UOp | None:
    """The ASSIGN of a graph's kernels, which stands for it in other graphs; None if there is nothing to run."""
    graph, inputs = machine.graph_and_inputs([root], device)
    if not graph.src:
        return None
    kernels = machine.compiler().kernel_graph(graph)
    made: dict[UOp, UOp] = {}
    for call in kernels.src:
        target, *sources = call.src[1:]
        read = []
        for source in sources:
            below = memory_below(source)
            held = made[below] if below in made else inputs[below.src[0].arg]
            read.append(held if below is source else source.with_src((held,)))
        buffer = new_buffer(target.dtype, target.arg, target.src[1].arg, None)
        info = replace(call.arg, ast=call.src[0])
        kernel = UOp(Ops.CALL, dtypes.void, (call.src[0], buffer, *read), info)
        made[target] = UOp(Ops.ASSIGN, target.dtype, (buffer, kernel))
    (result,) = kernels.arg
    found = made.get(result)
    if found is not None:
        if root.shape != found.shape:
            found = UOp(Ops.RESHAPE, root.dtype, (found,), root.shape)
        remember_graph(found, root)
    return found
