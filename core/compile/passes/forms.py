"""The seven forms of a program, and for each graph form a checker that says which graphs are legal.

TensorGraph -> KernelGraph -> Kernel -> Program -> Linear -> Source -> Binary. The first five are
UOp graphs; Source and Binary are dataclasses of core/compile/machine/target.py with checks of their own.
Does not own: how a form is made from the one before (stages.py lists that).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from proofgrad.core.compile.lowering.linearize import sources_before
from proofgrad.core.compile.lowering.program_facts import group_size
from proofgrad.core.compile.machine.target import Binary, Source
from proofgrad.core.compile.nests.loops import is_fixed, runs_alike, size_of
from proofgrad.core.compile.passes.memory import memory_below
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.fragments import square_of
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group, toposort


class Form(enum.Enum):
    """What a program looks like between two stages."""

    TENSOR_GRAPH = "TensorGraph"
    KERNEL_GRAPH = "KernelGraph"
    KERNEL = "Kernel"
    PROGRAM = "Program"
    LINEAR = "Linear"
    SOURCE = "Source"
    BINARY = "Binary"


class FormError(RuntimeError):
    """A stage made a graph that its form forbids: a bug of the compiler, never of its user."""

    def __init__(self, form: Form, node: UOp | None, reason: str) -> None:
        where = "" if node is None else f" at {node.op!r} of {node.dtype!r}"
        super().__init__(f"not a legal {form.value}{where}: {reason}")
        self.form, self.node, self.reason = form, node, reason


_LEAVES = {Ops.CONST, Ops.UNIQUE, Ops.DEVICE, Ops.BUFFER, Ops.IOTA}
_TENSOR = _LEAVES | ELEMENTWISE | MOVEMENT | {Ops.REDUCE_AXIS, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY}
_LOOP_NODES = {
    Ops.CONST,
    Ops.PARAM,
    Ops.RANGE,
    Ops.INDEX,
    Ops.LOAD,
    Ops.STORE,
    Ops.MMA,
} | ELEMENTWISE
_REGISTERS = {Ops.ACCUMULATOR, Ops.UPDATE, Ops.RESULT, Ops.BROADCAST, Ops.HREDUCE}
_KEPT = {Ops.SCRATCH, Ops.FILLED}

ALLOWED: dict[Form, frozenset[Ops]] = {
    Form.TENSOR_GRAPH: frozenset(_TENSOR | {Ops.SINK}),
    Form.KERNEL_GRAPH: frozenset(_TENSOR | {Ops.SINK, Ops.CALL, Ops.PARAM}),
    Form.KERNEL: frozenset(_LOOP_NODES | {Ops.REDUCE, Ops.LOCAL_BUFFER, Ops.VARIABLE, Ops.SINK}),
    Form.PROGRAM: frozenset(_LOOP_NODES | _REGISTERS | _KEPT | {Ops.SINK}),
    Form.LINEAR: frozenset(_LOOP_NODES | _REGISTERS | _KEPT | {Ops.LINEAR, Ops.END}),
}


def check_form(form: Form, program: UOp | Source | Binary) -> None:
    """Raises: FormError if `program` is not a legal `form`."""
    if isinstance(program, (Source, Binary)):
        _check_text(form, program)
        return
    allowed = ALLOWED[form]
    for node in toposort((program,)):
        if node.op not in allowed:
            raise FormError(form, node, "this operation does not belong here")
        _check_types(form, node)
    _CHECKS[form](program)


def _check_text(form: Form, program: Source | Binary) -> None:
    if isinstance(program, Source):
        if program.entry not in program.text:
            raise FormError(form, None, f"the text does not define {program.entry}")
    elif not program.data:
        raise FormError(form, None, f"{program.entry} is empty")


def _check_types(form: Form, node: UOp) -> None:
    """Operand types of the elementwise operations agree."""
    op, src = node.op, node.src
    if op not in ELEMENTWISE or op in (Ops.CAST, Ops.BITCAST):
        return
    values = src[1:] if op is Ops.WHERE else src
    if any(s.dtype is not values[0].dtype for s in values):
        raise FormError(form, node, f"operands of types {[s.dtype for s in values]}")
    if op is not Ops.WHERE and values[0].dtype.is_code:
        raise FormError(form, node, f"{values[0].dtype} is only stored; it must be cast first")
    if op is Ops.WHERE and src[0].dtype.scalar is not dtypes.bool:
        raise FormError(form, node, f"condition of type {src[0].dtype}")
    expected = dtypes.bool.vec(values[0].dtype.lanes) if op in COMPARE else values[0].dtype
    if node.dtype is not expected:
        raise FormError(form, node, f"result of type {node.dtype}, expected {expected}")


def _check_sink(form: Form, root: UOp, member: Ops | None) -> None:
    if root.op is not Ops.SINK:
        raise FormError(form, root, "the root must be a SINK")
    for source in root.src:
        if member is not None and source.op is not member:
            raise FormError(form, source, f"the SINK must hold {member.name} nodes")


def _check_tensor_graph(root: UOp) -> None:
    _check_sink(Form.TENSOR_GRAPH, root, None)


def _check_kernel_graph(root: UOp) -> None:
    _check_sink(Form.KERNEL_GRAPH, root, Ops.CALL)
    written: set[UOp] = set()
    produced = {call.src[1] for call in root.src}
    for call in root.src:
        for buffer in map(memory_below, call.src[2:]):
            if buffer in produced and buffer not in written:
                raise FormError(Form.KERNEL_GRAPH, call, "reads a buffer before it is written")
        if call.src[1] in written:
            raise FormError(Form.KERNEL_GRAPH, call, "writes a buffer a second time")
        written.add(call.src[1])


def _check_kernel(root: UOp) -> None:
    _check_sink(Form.KERNEL, root, Ops.STORE)
    _check_loops_of_stores(Form.KERNEL, root.src)


def _check_loops_of_stores(form: Form, nodes: tuple[UOp, ...]) -> None:
    """Loops of a STORE run in order; what it combines with is combined here, or loaded there."""
    for store in [node for node in nodes if node.op is Ops.STORE]:
        position, value, *loops = store.src
        if any(loop.op is not Ops.RANGE or loop.arg[1] is not AxisRole.REDUCE for loop in loops):
            raise FormError(form, store, "the loops of a STORE must be RANGEs that run in order")
        if store.arg is not None and (form is not Form.KERNEL or not loops):
            raise FormError(form, store, "only a STORE of a Kernel, with loops, combines")
        for load in [n for n in toposort((value,)) if n.op is Ops.LOAD]:
            if (load.src[0] is position and load.src[1:] == store.src[2:]) or not loops:
                continue
            if len(load.src) > 1 or load.src[0].src[0] is position.src[0]:
                raise FormError(form, load, "reads elsewhere what a STORE with loops writes")


def _check_program(root: UOp) -> None:
    _check_sink(Form.PROGRAM, root, Ops.STORE)
    _check_loops_of_stores(Form.PROGRAM, root.src)
    for node in toposort((root,)):
        if node.op is Ops.RANGE and node.arg[1] is AxisRole.UPCAST:
            raise FormError(Form.PROGRAM, node, "upcast axes must be unrolled")
        if node.dtype.scalar is dtypes.index:
            raise FormError(Form.PROGRAM, node, "index terms must have a machine width")
        if node.op is Ops.UPDATE and any(s.dtype is not node.dtype for s in node.src[:2]):
            raise FormError(Form.PROGRAM, node, "a register and what it becomes are of one type")
    _check_registers(Form.PROGRAM, toposort((root,)))
    _check_scratch(Form.PROGRAM, toposort((root,)))


def _check_registers(form: Form, nodes: Sequence[UOp]) -> None:
    """A register is updated by one node: with two, as where a step changed one use of a sum alone, both are added."""
    seen: set[UOp] = set()
    for update in [n for n in nodes if n.op is Ops.UPDATE]:
        if update.src[0] in seen:
            raise FormError(form, update, "another UPDATE changes the same register")
        seen.add(update.src[0])


def _check_scratch(form: Form, nodes: Sequence[UOp]) -> None:
    """Scratch memory is filled by one STORE, and read as what it is filled with."""
    users: dict[UOp, list[UOp]] = {
        n: [] for n in nodes if n.op is Ops.INDEX and n.src[0].op is Ops.SCRATCH
    }
    for node in nodes if users else ():
        for position in users.keys() & set(node.src):
            users[position].append(node)
    for position, found in users.items():
        if [user.op for user in found] != [Ops.STORE]:
            raise FormError(form, position, "scratch memory is written here; FILLED is read")
    filled = [n.src[0].src[0].src[0] for n in nodes if n.op is Ops.FILLED]
    if len(set(filled)) < len(filled):
        raise FormError(form, filled[0], "scratch memory is filled twice")


def _check_linear(root: UOp) -> None:
    if root.op is not Ops.LINEAR:
        raise FormError(Form.LINEAR, root, "the root must be LINEAR")
    _check_loops_of_stores(Form.LINEAR, root.src)
    seen: set[UOp] = set()
    open_loops: list[UOp] = []
    items = group_size(root)
    for node in root.src:
        missing = [s for s in sources_before(node) if s not in seen]
        if missing:
            raise FormError(Form.LINEAR, node, f"runs before its source {missing[0].op!r}")
        seen.add(node)
        if node.op is Ops.RANGE:
            if node.arg[1] in (AxisRole.VECTOR, AxisRole.UPCAST):
                raise FormError(Form.LINEAR, node, "vector and upcast axes must be gone")
            open_loops.append(node)
        elif _is_of_all(node):
            if not all([_all_come(loop, items) for loop in open_loops]):
                raise FormError(Form.LINEAR, node, "items of a group wait where not all may come")
        elif node.op is Ops.END:
            if not open_loops or open_loops.pop() is not node.src[0]:
                raise FormError(Form.LINEAR, node, "closes a loop that is not the innermost")
    if open_loops:
        raise FormError(Form.LINEAR, open_loops[-1], "the loop is never closed")
    _check_registers(Form.LINEAR, root.src)
    _check_scratch(Form.LINEAR, root.src)


def _is_of_all(node: UOp) -> bool:
    """Whether the items of a group must come to a node together."""
    if node.op is Ops.MMA:
        return square_of(node) is None
    return node.op is Ops.FILLED and is_of_group(node.src[1:])


def _all_come(loop: UOp, items: int | None) -> bool:
    """Whether all items of a group run a loop equally often."""
    if loop.arg[1] is AxisRole.LANE:
        return is_fixed(loop) and size_of(loop) == items
    return loop.arg[1] is AxisRole.BLOCK or runs_alike(loop)


_CHECKS: dict[Form, Callable[[UOp], None]] = {
    Form.TENSOR_GRAPH: _check_tensor_graph,
    Form.KERNEL_GRAPH: _check_kernel_graph,
    Form.KERNEL: _check_kernel,
    Form.PROGRAM: _check_program,
    Form.LINEAR: _check_linear,
}
