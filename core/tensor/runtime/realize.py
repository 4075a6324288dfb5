"""From graphs to buffers: `realize`.

Owns: the compiler of the process, the steps of a run, which inputs nobody needs after it. Does not own: memory
behind buffers (runtime/memory.py), graphs as keys and what they came to (runtime/canonical.py), who is told (recording.py), planning
(core/compile), running plans (execute.py), values as bytes (reading.py), Tensor objects (tensor.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

from proofgrad.core import settings
from proofgrad.core.compile.passes.memory import changed_in_part, memory_below
from proofgrad.core.compile.plan.collector import rare_collection
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import BUFFER, DETACH
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp, toposort
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
from proofgrad.core.tensor.runtime.computed_again import keep_again, note_run, values_to_keep
from proofgrad.core.tensor.runtime.counts import counts_as_variables
from proofgrad.core.tensor.runtime.device import HOST
from proofgrad.core.tensor.runtime.execute import LISTENER, execute
from proofgrad.core.tensor.runtime.interrupts import Interrupts
from proofgrad.core.tensor.runtime.kept_run import Ran
from proofgrad.core.tensor.runtime.known_runs import RUNS
from proofgrad.core.tensor.runtime.lent_memory import keep_value
from proofgrad.core.tensor.runtime.memory import (
    buffer_of,
    in_shape,
    is_flat,
    is_unshared,
    is_view,
    memory_at_hand,
    memory_of,
    new_value,
)
from proofgrad.core.tensor.runtime.once import computes_for_others, not_copied, not_drawn
from proofgrad.core.tensor.runtime.positions import are_positions
from proofgrad.core.tensor.runtime.recording import Witness, recorder
from proofgrad.core.tensor.runtime.table import NUMBERS, new_buffer

if TYPE_CHECKING:
    from proofgrad.core.compile.compiler import Compiler
    from proofgrad.core.compile.plan.plan import Plan


@dataclass(slots=True)
class _Machine:
    """The state of this module: one compiler."""

    make_compiler: Callable[[], Compiler] | None = None
    compiler: Compiler | None = None
    compile_only: bool = False


_MACHINE = _Machine()
_SHOWS = MOVEMENT | {BUFFER, DETACH}


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
        with rare_collection():  # graphs of thousands of nodes are made, before a plan is
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
    if root.op in _SHOWS:
        if is_view(root):
            return computed(computed(root))
        if (cut := first_rows.cut_of(root)) is not None:
            whole = run_again(root.src[0], device, is_alone=False)
            return None if whole is None else first_rows.shown(whole, cut)
    found = _known((root,), device, is_alone)
    if found is None:
        return None
    values, numbered_roots = found
    node = values[0]
    if not is_alone and numbered_roots[0] is not root:
        keep_value(root, node)
    return node


def run_together_again(roots: Sequence[UOp], device: str, alone: Set[int]) -> list[UOp] | None:
    """As `run_again`, of several graphs in one run. `alone`: the numbers of roots that nobody but the caller holds."""
    is_plain = recorder() is None and 1 < len(roots) == len(set(roots))
    if not is_plain or any([root.op in _SHOWS and _shows_memory(root) for root in roots]):
        return None
    found = _known(roots, device)
    if found is None:
        return None
    for k, (root, node, numbered_root) in enumerate(zip(roots, *found)):
        if k not in alone and numbered_root is not root:
            keep_value(root, node)
    return found[0][: len(roots)]


def _shows_memory(root: UOp) -> bool:
    """Whether a root is memory, or is to be the first rows of some."""
    return is_view(root) or first_rows.cut_of(root) is not None


def _known(
    roots: Sequence[UOp], device: str, is_alone: bool = False
) -> tuple[list[UOp], tuple[UOp, ...]] | None:
    """The values of graphs like those of a run before, and of more, and those graphs; None: there was none."""
    is_plain_run = LISTENER.add is None and not _MACHINE.compile_only
    if not is_plain_run or SHOWN.data or _MACHINE.compiler is None:  # type: ignore[attr-defined]
        return None
    known: Any = COMPUTED.data  # type: ignore[attr-defined]
    found = RUNS.again(roots, device, _MACHINE.compiler, memory_of, known, _draws, is_alone)
    if found is None:
        return None
    values, numbered_roots, others = found
    if others:
        keep_again(others, values[len(roots) :])
    return values, numbered_roots


_draws = functools.partial(computes_for_others, is_memory=is_view)


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
            keep_value(root, node)
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
    """The buffer of each root, through RESHAPE, and of what is kept from now on. `wanted` is emptied."""
    values: dict[str, int] = {}
    asked_for = len(wanted)
    if witness is None and not _MACHINE.compile_only:
        wanted += values_to_keep(wanted)
    asked, inputs = numbered(wanted, device, values, with_parts=witness is None)
    graph = as_compiled(asked)
    if witness is None and not values:
        graph, counts = counts_as_variables(graph)
        values.update(counts)
    is_like_others = witness is None and are_positions(values)
    parts = frozenset([k for k, buffer in enumerate(inputs) if buffer.op is not BUFFER])
    numbers = frozenset([k for k, buffer in enumerate(inputs) if buffer in NUMBERS])
    shapes = [root.shape for root in wanted]
    devices = [memory_below(buffer).src[1].arg for buffer in inputs]
    given = list(map(memory_of, inputs))
    # A root without buffers is its own numbered graph, which the plan keeps: if it were remembered,
    # its memory would never be free again.
    roots = [_gone if node is root else ref(root) for node, root in zip(asked.src, wanted)]
    kept = [ref(buffer) for buffer in inputs]
    is_kept = is_like_others and _is_to_be_kept(asked)
    computing = set(toposort(wanted, is_not_computed))
    if witness is not None:
        witness.before(computing, inputs, values)
    elif not _MACHINE.compile_only:
        note_run(computing)
    del computing
    try:
        try:
            if (check := compiler().checks()) is not None:
                check.numbers(wanted, graph, inputs, given, values)
            if release is not None:
                release()
            wanted.clear()
            inputs.clear()
            if witness is not None:
                RUNS.let_go_held()
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
        return _failure(_with_variables(error, values), graph, kept, given, values)
    if witness is not None:
        witness.after(plan, given)
    results = _results(plan, asked, shapes, memory, roots, kept)
    if is_like_others and not _MACHINE.compile_only:
        epoch, names = compiler().epoch, values.keys()
        ran = Ran(asked, graph, parts, numbers, names, plan, epoch, new_value, asked_for)
        RUNS.keep(ran)
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


def _with_variables(error: BaseException, values: dict[str, int]) -> BaseException:
    """Of memory that there is not: the variables of the program, for whose largest values it is made."""
    names = ", ".join(filter(str.isidentifier, values))
    if not isinstance(error, MemoryError) or not names:
        return error
    return MemoryError(
        f"{error}; memory is made for the largest value of each variable ({names}): give narrower bounds"
    )


def _unneeded(given: list[Any], kept: list[ref[UOp]], devices: Sequence[str]) -> frozenset[int]:
    """The inputs whose memory nobody else holds, and the plan may write results to."""
    if settings.stops_at_nans():  # then a run may fail when it has written to them
        return frozenset()
    numbers = [k for k, device in enumerate(devices) if device != HOST]
    return frozenset([k for k in numbers if kept[k]() is None and is_unshared(given, k)])


def _gone() -> None:
    """As a reference to a node that is no more."""


def _results(
    plan: Plan,
    asked: UOp,
    shapes: list[Shape],
    memory: list[Any],
    roots: list[Any],
    kept: list[Any],
) -> list[UOp]:
    """The node of each result: a buffer, made or an input, in the shape of the root.

    Where roots differ in marks for gradients alone, so that what was asked for is one node, each has a BUFFER of its own for the memory.
    """
    buffers: dict[int, UOp] = {}
    found: list[UOp] = []
    seen: set[UOp] = set()
    for slot, wanted, shape, handle, root in zip(plan.results, asked.src, shapes, memory, roots):
        buffer = buffers.get(slot) or (kept[slot]() if slot < plan.inputs else None)
        if buffer is None:
            made = slot >= plan.inputs
            info = plan.made[slot - plan.inputs] if made else plan.reused[slot]
            result = new_value(info, shape, handle)
            buffer = _buffer_below(result)
        else:
            result = in_shape(_again(None, buffer, handle) if wanted in seen else buffer, shape)
        buffers[slot] = buffer
        seen.add(wanted)
        node = root()
        if node is not None and node is not result:
            keep_value(node, result)
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


PENDING = UOp(Ops.CONST, dtypes.void, (), 0)  # the node of a Tensor that is just being computed
