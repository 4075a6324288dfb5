"""From graphs to buffers: memory behind BUFFER nodes, `realize`.

Owns: which memory belongs to which BUFFER, which inputs of a run nobody needs after it. Does not own:
graphs as keys and what they came to (runtime/canonical.py), who is told (recording.py), planning
(core/compile), running plans (execute.py), values as bytes (reading.py), Tensor objects (tensor.py).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from proofgrad.core import settings
from proofgrad.core.compile.machine.target import Borrowed
from proofgrad.core.compile.passes.memory import changed_in_part, first_element, memory_below
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import BUFFER, DETACH, DEVICE, RESHAPE, UNIQUE
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import Shape, elements, is_plain, sizes
from proofgrad.core.ir.uop import UOp, fresh_node, toposort
from proofgrad.core.tensor.runtime import first_rows
from proofgrad.core.tensor.runtime.canonical import (
    COMPUTED,
    SHOWN,
    as_compiled,
    buffers_of,
    computed,
    is_not_computed,
    numbered,
    with_buffers,
)
from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.core.tensor.runtime.device import HOST, Device, is_on_disk
from proofgrad.core.tensor.runtime.execute import LISTENER, execute
from proofgrad.core.tensor.runtime.interrupts import Interrupts
from proofgrad.core.tensor.runtime.known_runs import RUNS, SMALL_BYTES, Ran
from proofgrad.core.tensor.runtime.once import computes_for_others, copy_once, not_copied, not_drawn
from proofgrad.core.tensor.runtime.owners import owners_of_attribute, owners_of_item
from proofgrad.core.tensor.runtime.recording import Witness, recorder

if TYPE_CHECKING:
    from proofgrad.core.compile.compiler import Compiler
    from proofgrad.core.compile.plan.plan import BufferInfo, Plan


@dataclass(slots=True)
class _Machine:
    """The state of this module: one compiler, the memory of each buffer, what was computed."""

    make_compiler: Callable[[], Compiler] | None = None
    compiler: Compiler | None = None
    compile_only: bool = False


_MACHINE = _Machine()
_MEMORY: WeakKeyDictionary[UOp, Any] = WeakKeyDictionary()
# Buffers of numbered graphs, which plans keep, have small numbers: no real buffer is one of those.
_SERIAL = itertools.count(1_000_000)


def use_compiler(make: Callable[[], Compiler]) -> None:
    """Say how the compiler is made when it is first needed."""
    _MACHINE.make_compiler = make


def compiler() -> Compiler:
    """The compiler of this process."""
    if _MACHINE.compiler is None:
        if _MACHINE.make_compiler is None:
            raise RuntimeError("no compiler: import proofgrad, not proofgrad.core, to run tensors")
        _MACHINE.compiler = _MACHINE.make_compiler()
    return _MACHINE.compiler


@contextmanager
def compile_only() -> Iterator[None]:
    """Inside, realize compiles every kernel and runs none; its buffers have no memory to read.

    For looking at the kernels of a machine that is not here.
    """
    before, _MACHINE.compile_only = _MACHINE.compile_only, True
    try:
        yield
    finally:
        _MACHINE.compile_only = before


def gives_values() -> bool:
    """Does a run give values now? Not while one is recorded, nor within `compile_only`."""
    return recorder() is None and not _MACHINE.compile_only


# -- buffers ------------------------------------------------------------------------------------


def new_buffer(dtype: DType, size: int, device: str, memory: Any) -> UOp:
    """A BUFFER of `size` elements that owns `memory`, a handle of the device's backend."""
    unique = fresh_node(UNIQUE, dtypes.void, (), next(_SERIAL), ())
    where = UOp(DEVICE, dtypes.void, (), device)
    buffer = fresh_node(BUFFER, dtype, (unique, where), size, (size,))
    _MEMORY[buffer] = memory
    return buffer


def new_value(info: BufferInfo, shape: Shape, memory: Any) -> UOp:
    """A new BUFFER that owns `memory`, in this shape."""
    buffer = new_buffer(info.dtype, info.size, info.device, memory)
    if len(shape) == 1 or not is_plain(shape):
        return in_shape(buffer, shape)
    return fresh_node(RESHAPE, info.dtype, (buffer,), shape, shape)


def host_buffer(data: bytes, dtype: DType, device: str) -> UOp:
    """COPY to `device` of row-major bytes on the host: what Tensor(list) is. Shape (elements,).

    Large data is copied once; small data by each run that reads it, which is less than to look for who else does.
    """
    source = new_buffer(dtype, len(data) // dtype.itemsize, HOST, data)
    if device == HOST:
        return source
    copied = UOp(Ops.COPY, dtype, (source,), device)
    if len(data) > SMALL_BYTES:
        copy_once(copied)
    return copied


def buffer_of(uop: UOp) -> UOp | None:
    """The BUFFER that has exactly the elements of `uop` in order; None if there is none."""
    buffer = _below_shape(uop)
    return buffer if buffer.op is Ops.BUFFER else None


def _below_shape(uop: UOp) -> UOp:
    """What `uop` shows from its first element on: below RESHAPE, and below SHRINK to a size of variables."""
    node = uop.src[0] if uop.op is RESHAPE else uop
    is_whole = node.op is Ops.SHRINK and node.src[0].op is BUFFER and node.arg[0][0] == 0
    if is_whole and not is_plain(uop.shape) and node.src[0].arg == elements(uop.shape):
        return node.src[0]
    return node


def flat_buffer(uop: UOp, device: str) -> UOp:
    """`uop` as a BUFFER of its own layout on the device, through RESHAPE; computed if need be."""
    found = computed(uop)
    if is_flat(found):
        return found
    found = UOp(Ops.CONTIGUOUS, found.dtype, (found,)) if is_view(found) else found
    return realize([found], device)[0]


def flat_memory(uop: UOp, device: str) -> Any:
    """The memory that has exactly the elements of `uop` in order; computed if need be."""
    found = memory_at_hand(uop)
    return memory_of(buffer_of(flat_buffer(uop, device))) if found is None else found


def memory_at_hand(uop: UOp) -> Any:
    """The memory that has exactly the elements of `uop` in order; None: it is to be computed."""
    buffer = _below_shape(uop)
    return _MEMORY.get(buffer) if buffer.op is BUFFER and buffer.src[1].arg != HOST else None


def memory_if_known(node: UOp) -> Any:
    """The memory behind a BUFFER, bytes of the host as well; None: it is another node, or has none."""
    return _MEMORY.get(node) if node.op is BUFFER else None


def has_memory(uop: UOp, handle: Any) -> bool:
    """Whether this memory is that of `uop`, a BUFFER through RESHAPE or not, for as long as it is there."""
    return _MEMORY.get(_below_shape(uop)) is handle


def memory_of(buffer: UOp | None) -> Any:
    """The memory behind a BUFFER, or a part of one, a handle of the backend of its device."""
    assert buffer is not None
    if buffer.op is BUFFER:
        return _MEMORY.data[ref(buffer)]  # type: ignore[attr-defined]
    if buffer.op is Ops.SHRINK:
        begin = first_element(buffer) * buffer.dtype.itemsize
        whole = _MEMORY[buffer.src[0]]
        return Device[buffer.src[0].src[1].arg].part(whole, begin) if begin else whole
    return _MEMORY[buffer]


def twin(uop: UOp) -> UOp:
    """Another BUFFER with the memory of this one, in the same shape."""
    buffer = buffer_of(uop)
    assert buffer is not None
    other = new_buffer(buffer.dtype, buffer.arg, buffer.src[1].arg, _MEMORY[buffer])
    return in_shape(other, uop.shape)


def memory_to_write(holder: Any, device: str, table: Sequence[Any], slot: int) -> tuple[Any, bool]:
    """The memory of `holder._uop`, and whether it is ours and nobody else has it, but for `table[slot]`."""
    if buffer_of(holder._uop) is None:
        holder._uop = flat_buffer(holder._uop, device)
    handle = memory_of(buffer_of(holder._uop))
    known = 2 + (table[slot] is handle)  # the table of all memory, and this function
    is_unshared = owners_of_item(_MEMORY, buffer_of(holder._uop)) == known
    return handle, is_unshared and _is_sole_holder(holder) and not isinstance(handle, Borrowed)


def is_as_written(holder: Any, table: Sequence[Any], slot: int) -> bool:
    """Whether nobody but `holder._uop` and this table has `table[slot]`, known to be its memory, and ours."""
    known = 2  # the table of all memory, and this one
    return owners_of_item(table, slot) == known and _is_sole_holder(holder)


def _is_sole_holder(holder: Any) -> bool:
    """Whether the BUFFER that `holder._uop` is, through RESHAPE or not, is held by this object alone."""
    if owners_of_attribute(holder, "_uop") != 1:
        return False
    return holder._uop.op is BUFFER or owners_of_item(holder._uop.src, 0) == 1


def is_view(uop: UOp) -> bool:
    """Whether `uop` is memory seen through movement operations only."""
    return buffer_below(uop) is not None


def buffer_below(uop: UOp) -> UOp | None:
    """The BUFFER of a device that `uop` shows through movement operations only; None: it is more."""
    while uop.op in MOVEMENT or uop.op is DETACH:
        uop = uop.src[0]
    return uop if uop.op is BUFFER and uop.src[1].arg != HOST else None


def is_flat(uop: UOp) -> bool:
    """Whether `uop` is the memory of a BUFFER of a device in its own layout."""
    buffer = _below_shape(uop)
    return buffer.op is Ops.BUFFER and buffer.src[1].arg != HOST


# -- realize ------------------------------------------------------------------------------------


def realize(
    roots: list[UOp],
    device: str,
    release: Callable[[], None] | None = None,
    witness: Witness | None = None,
    interrupts: Interrupts | None = None,
) -> list[UOp]:
    """Each root as a buffer (through RESHAPE); views of buffers stay views and run nothing.

    `device` is for values that read no buffer. Results are remembered: `computed(root)`.
    `release` lets go of all nodes that the caller holds, `roots` included, so that the memory of
    inputs which nobody else holds can be written over. If the run fails, `roots` is filled again
    with nodes of the same values. `interrupts` are let through while it can be
    undone. `witness` is told how it is done.
    """
    by = recorder()
    if by is not None:
        return by.defer(roots)
    cuts = [first_rows.cut_of(root) for root in roots]
    if not any(cuts):
        return _realize(roots, device, release, witness, interrupts)
    roots[:] = map(first_rows.below, roots, cuts)
    try:
        found = _realize(roots, device, release, witness, interrupts)
    except BaseException:
        roots[:] = map(first_rows.shown, roots, cuts)
        raise
    return list(map(first_rows.shown, found, cuts))


def _realize(
    roots: list[UOp],
    device: str,
    release: Callable[[], None] | None,
    witness: Witness | None,
    interrupts: Interrupts | None,
) -> list[UOp]:
    """As `realize`: each root as a buffer of its own."""
    wanted = _to_compute(roots, device)
    if not wanted:
        return [computed(computed(root)) for root in roots]
    positions = {root: k for k, root in enumerate(wanted)}
    position_of = [positions.get(computed(root)) for root in roots]
    views = [root if position is None else None for root, position in zip(roots, position_of)]
    let_go = None if release is None else _letting_go(release, roots, positions)
    found: list[UOp] | _Failure | None = None
    if witness is None:
        found = _run_together_again(wanted, device, let_go)
    if found is None:
        held = Interrupts() if interrupts is None else interrupts
        found = _run(wanted, device, let_go, witness, held)
    if isinstance(found, _Failure):
        roots[:] = [
            found.roots[position] if position is not None else view  # type: ignore[misc]
            for position, view in zip(position_of, views)
        ]
        try:
            raise found.error
        finally:
            del (
                found
            )  # else its traceback and this frame hold each other, and all memory of the run
    return [
        found[position] if position is not None else computed(computed(view))  # type: ignore[arg-type]
        for position, view in zip(position_of, views)
    ]


def run_again(root: UOp, device: str, is_alone: bool) -> UOp | None:
    """The value of a graph like one that was run before; None: it has to be run as ever.

    `is_alone`: nobody but the caller holds the root, so that what it came to need not be remembered.
    """
    if recorder() is not None:
        return None
    if (cut := first_rows.cut_of(root)) is not None:
        whole = run_again(root.src[0], device, is_alone=False)
        return None if whole is None else first_rows.shown(whole, cut)
    found = _known((root,), device)
    if found is None:
        return None
    (node,), (numbered_root,) = found
    if not is_alone and numbered_root is not root:
        COMPUTED[root] = node
    return node


def _known(roots: Sequence[UOp], device: str) -> tuple[list[UOp], tuple[UOp, ...]] | None:
    """The values of graphs like those of a run before, and those graphs; None: there was none."""
    is_plain_run = LISTENER.add is None and not _MACHINE.compile_only
    if not is_plain_run or SHOWN.data or _MACHINE.compiler is None:  # type: ignore[attr-defined]
        return None
    draws = functools.partial(computes_for_others, is_memory=is_view)
    return RUNS.again(roots, device, _MACHINE.compiler, memory_of, COMPUTED.data, draws)  # type: ignore[attr-defined]


def _run_together_again(
    wanted: list[UOp], device: str, release: Callable[[], None] | None
) -> list[UOp] | None:
    """The values of several graphs like those of a run before; None: they have to be run as ever. `wanted` is emptied then alone."""
    found = _known(wanted, device) if len(wanted) > 1 else None
    if found is None:
        return None
    nodes, numbered_roots = found
    kept = [ref(root) for root in wanted]
    if release is not None:
        release()
    wanted.clear()
    for reference, node, numbered_root in zip(kept, nodes, numbered_roots):
        root = reference()
        if root is not None and root is not numbered_root:
            COMPUTED[root] = node
    return nodes


def _letting_go(
    release: Callable[[], None], roots: list[UOp], positions: dict[UOp, int]
) -> Callable[[], None]:
    def let_go() -> None:
        release()
        roots.clear()
        positions.clear()

    return let_go


def graph_to_run(roots: Sequence[UOp], device: str) -> UOp:
    """What `realize` would have compiled: a SINK, of no roots if nothing is left to run."""
    return graph_and_inputs(roots, device)[0]


def graph_and_inputs(roots: Sequence[UOp], device: str) -> tuple[UOp, list[UOp]]:
    """`graph_to_run` and the buffers that its numbers stand for."""
    graph, inputs = numbered(_to_compute(roots, device), device)
    return as_compiled(graph), inputs


def _to_compute(roots: Sequence[UOp], device: str) -> list[UOp]:
    """The roots without memory; then what they read that is drawn or copied once, and was not yet."""
    wanted = [root for root in dict.fromkeys(map(computed, roots)) if not is_view(root)]
    waiting, copies = (not_drawn(is_view), not_copied()) if wanted else ([], set())
    nodes = dict.fromkeys(toposort(wanted, is_not_computed)) if waiting or copies else {}
    once = [value for holder, value in waiting if value in nodes and holder.device == device]
    once += [node for node in nodes if node in copies and node.arg == device]
    return list(dict.fromkeys([*wanted, *once]))


@dataclass(slots=True)
class _Failure:
    """A run that did not succeed, and what it was asked for."""

    error: BaseException
    roots: list[UOp]


def _run(
    wanted: list[UOp],
    device: str,
    release: Callable[[], None] | None,
    witness: Witness | None,
    interrupts: Interrupts,
) -> list[UOp] | _Failure:
    """The buffer of each root, through RESHAPE. `wanted` is emptied."""
    values: dict[str, int] = {}
    asked, inputs = numbered(wanted, device, values, with_parts=witness is None)
    graph = as_compiled(asked)
    parts = frozenset([k for k, buffer in enumerate(inputs) if buffer.op is not BUFFER])
    shapes = [root.shape for root in wanted]
    devices = [memory_below(buffer).src[1].arg for buffer in inputs]
    given = [_MEMORY[b] if b.op is BUFFER else memory_of(b) for b in inputs]
    # A root without buffers is its own numbered graph, which the plan keeps: if it were remembered,
    # its memory would never be free again.
    roots = [_gone if node is root else ref(root) for node, root in zip(asked.src, wanted)]
    kept = [ref(buffer) for buffer in inputs]
    is_kept = witness is None and not values and _is_to_be_kept(asked)
    if witness is not None:
        witness.before(set(toposort(wanted, is_not_computed)), inputs, values)
    try:
        try:
            if (check := compiler().checks()) is not None:
                check.numbers(wanted, graph, inputs, given, values)
            if release is not None:
                release()
            wanted.clear()
            inputs.clear()
            unneeded = frozenset() if is_kept else _unneeded(given, kept, devices)
            interrupts.let_through()
            plan = compiler().plan(graph, unneeded)
            while witness is not None and (kept_apart := witness.refused(plan) & unneeded):
                unneeded -= kept_apart
                plan = compiler().plan(graph, unneeded)
            if _MACHINE.compile_only:
                memory = [None] * len(shapes)
            else:
                with nullcontext() if check is None else check.launches(plan, given) as followed:
                    memory = execute(plan, given, devices, values, interrupts)
                    if followed is not None:
                        followed.end(memory)
        finally:
            interrupts.hold()
    except BaseException as error:  # noqa: BLE001  (raised again by who called)
        return _failure(error, graph, kept, given, values)
    if witness is not None:
        witness.after(plan, given)
    results = _results(plan, shapes, memory, roots, kept)
    is_plain_run = not unneeded and witness is None and not values and not _MACHINE.compile_only
    if is_plain_run:
        RUNS.keep(Ran(asked, graph, parts, plan, compiler().epoch, new_value))
    if check is not None:
        try:
            check.results(plan, shapes, memory, results)
        except BaseException as error:  # noqa: BLE001  (raised again by who called)
            return _failure(error, graph, kept, given, values)
    return results


def _is_to_be_kept(asked: UOp) -> bool:
    """Whether a run shall be known, and so writes over no input: not where a part of memory changes, which is better done in place."""
    is_small = RUNS.may_be_kept(asked)
    return is_small and all([changed_in_part(root) is None for root in asked.src])


def _failure(
    error: BaseException, graph: UOp, kept: list[ref[UOp]], given: list[Any], values: dict[str, int]
) -> _Failure:
    """What was asked for, over the buffers that it was given."""
    buffers = [_again(kept[k](), node, given[k]) for k, node in enumerate(buffers_of(graph))]
    return _Failure(error, with_buffers(graph, buffers, values))


def _unneeded(given: list[Any], kept: list[ref[UOp]], devices: Sequence[str]) -> frozenset[int]:
    """The inputs whose memory nobody else holds, and the plan may write results to."""
    if settings.stops_at_nans():  # then a run may fail when it has written to them
        return frozenset()
    numbers = [k for k, device in enumerate(devices) if device != HOST]
    return frozenset([k for k in numbers if kept[k]() is None and _is_unshared(given, k)])


def _gone() -> None:
    """As a reference to a node that is no more."""


def in_shape(buffer: UOp, shape: Shape) -> UOp:
    """The first elements of a buffer, all of them if no size is a variable, in this shape."""
    if not is_plain(shape):
        count = _count(shape)
        buffer = fresh_node(Ops.SHRINK, buffer.dtype, (buffer,), ((0, count),), (count,))
    if shape == buffer.shape:
        return buffer
    return fresh_node(RESHAPE, buffer.dtype, (buffer,), shape, shape)


@functools.lru_cache(maxsize=256)
def _count(shape: Shape) -> Any:
    return sizes().product(shape)


def _is_unshared(given: list[Any], k: int) -> bool:
    """Is memory `k` ours, and held by this list alone? An array may share it."""
    return not isinstance(given[k], Borrowed) and owners_of_item(given, k) == 1


def _results(
    plan: Plan, shapes: list[Shape], memory: list[Any], roots: list[Any], kept: list[Any]
) -> list[UOp]:
    """The node of each result: a buffer, made or an input, in the shape of the root."""
    buffers: dict[int, UOp] = {}
    found: list[UOp] = []
    for slot, shape, handle, root in zip(plan.results, shapes, memory, roots):
        buffer = buffers.get(slot) or (kept[slot]() if slot < plan.inputs else None)
        if buffer is None:
            made = slot >= plan.inputs
            info = plan.made[slot - plan.inputs] if made else plan.reused[slot]
            result = new_value(info, shape, handle)
            buffer = _buffer_below(result)
        else:
            result = in_shape(buffer, shape)
        buffers[slot] = buffer
        node = root()
        if node is not None and node is not result:
            COMPUTED[node] = result
        found.append(result)
    return found


def _buffer_below(node: UOp) -> UOp:
    while node.op is not BUFFER:
        node = node.src[0]
    return node


def _again(buffer: UOp | None, numbered: UOp, memory: Any) -> UOp:
    """A buffer that still is, or a new one for its memory."""
    if buffer is not None:
        return buffer
    return new_buffer(numbered.dtype, numbered.arg, numbered.src[1].arg, memory)


def buffers() -> list[UOp]:
    """All buffers there are, in one step: other threads may make some meanwhile."""
    found = [reference() for reference in _MEMORY.keyrefs()]
    return [buffer for buffer in found if buffer is not None]


def _bytes_held() -> int:
    unused = RUNS.unused_bytes()  # before this function holds them
    devices = [(b, b.src[1].arg) for b in buffers()]
    held = [b for b, device in devices if device != HOST and not is_on_disk(device)]
    every: int = sum([b.arg * b.dtype.itemsize for b in held])
    return every - unused


GlobalCounters.measure_memory = _bytes_held
PENDING = UOp(Ops.CONST, dtypes.void, (), 0)  # the node of a Tensor that is just being computed
