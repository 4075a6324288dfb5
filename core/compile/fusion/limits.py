"""Limits on fusion: values that get a buffer because fusing them further would cost too much.

Owns: four limits on what one kernel computes, and the order of all. Does not own: the rest of the choice of buffers
(fusion/kernels.py). As every choice of buffers it moves work between kernels and changes no value.

Without limits a chain of programs that are each small becomes one kernel that is not: a value that is
read through two views is computed twice, and what is built on it the same way four times; the state
of a recurrent network is computed again from its beginning in the kernels of every later step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proofgrad.core.compile.fusion.carried_values import (
    FEW_CYCLES,
    carried_by_loops,
    least_cycles,
    parts_of_long_sums,
)
from proofgrad.core.compile.fusion.joined_values import joined_for_several, takes_a_part
from proofgrad.core.compile.fusion.meeting_points import MeetingPoints
from proofgrad.core.compile.fusion.views import computed_again, joined_again
from proofgrad.core.compile.fusion.work import cycles_of_work, pays_a_buffer
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.schedule.operation_cycles import OPERATION_CYCLES, SHORT_CYCLES
from proofgrad.core.ir.op_names import BUFFER, REDUCE_AXIS
from proofgrad.core.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements, is_plain, names_variables
from proofgrad.core.ir.uop import UOp

# Reductions that one kernel runs.
MOST_REDUCTIONS = 16
# Buffers that one kernel reads, where the machine takes as many: parts of one memory are a pointer each.
MOST_BUFFERS = 96
# Elementwise operations one after the other: the time to compile a block grows faster than its length.
LONGEST_CHAIN = 2048
# Operations that kernels beyond the first spend on computing a value again; costly ones are as many as they take cycles.
MOST_REPEATED = 512
# Cycles of a vector after which it takes little more to store it and to load it again.
LONG_CHAIN_CYCLES = 256
# An element that is stored costs at least as much as one of so many bytes.
WORD_BYTES = 4
# Kernels that use a value are counted up to here.
MANY_KERNELS = 32

_NONE: frozenset[UOp] = frozenset()


def beyond_limits(
    nodes: Sequence[UOp],
    consumers: Mapping[UOp, list[UOp]],
    meets: MeetingPoints,
    stored: set[UOp],
    choosing: set[UOp],
    target: Target,
) -> set[UOp]:
    """The values that need a buffer beside `stored`, so that each kernel stays within the limits.

    `nodes`: all of the graph, sources first. `meets`: where all uses of each meet. `choosing`: masks by which sums select one term,
    which are computed again however many kernels do so: a sum that reads its mask is a loop.
    """
    added = joined_again(nodes, stored)
    added |= computed_again(nodes, consumers, stored | added, target) - choosing
    repetitions = _repetitions(nodes, consumers, stored | added)
    if joined := joined_for_several(nodes, consumers, repetitions, stored | added, target):
        added |= joined
        repetitions = _repetitions(nodes, consumers, stored | added)
    for mask in choosing:
        repetitions.pop(mask, None)
    added |= _ends_of_long_chains(nodes, meets, stored | added)
    choices = [added | _of_kernels(nodes, stored | added, repetitions, consumers, target)]
    if carried := carried_by_loops(nodes, consumers, stored | added):
        added |= carried
        steps = added | _of_kernels(nodes, stored | added, repetitions, consumers, target)
        choices.append(steps)
    if sums := parts_of_long_sums(nodes, stored | choices[-1]):
        sums |= choices[-1]
        parts = sums | _of_kernels(nodes, stored | sums, repetitions, consumers, target)
        choices.append(parts)
    if len(choices) == 1:
        return choices[0]
    return least_cycles(nodes, stored, choices)


def _of_kernels(
    nodes: Sequence[UOp],
    stored: set[UOp],
    repetitions: Mapping[UOp, int],
    consumers: Mapping[UOp, list[UOp]],
    target: Target,
) -> set[UOp]:
    """Values that end a kernel which would be too large."""
    added = _of_large_kernels(nodes, stored, repetitions, consumers, target)
    most = _most_read(target)
    while more := _of_kernels_that_read_more(most, nodes, stored | added):
        added |= more
    return added


def _most_read(target: Target) -> int:
    """Buffers that a kernel may read beside its result."""
    return min(MOST_BUFFERS, target.most_buffers - 1)


def _of_kernels_that_read_more(most: int, nodes: Sequence[UOp], stored: set[UOp]) -> set[UOp]:
    """Values that end a kernel, for what reads them would read too many buffers. What read one of them before may read more now."""
    ends = set(stored)
    buffers: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        read = _read(node, most, buffers, ends)
        if node.op is BUFFER or node in ends:
            read = frozenset({node})
        variables = _variables(node)
        buffers[node] = read | variables if variables else read
    return ends - stored


def _variables(node: UOp) -> frozenset[UOp]:
    """Those of the sizes of a node and of the ends of what it keeps: a kernel is given them as it is given buffers."""
    ends: list[Any] = [*node.shape]
    if node.op in MOVEMENT and names_variables(node.arg):
        ends += [end for part in node.arg for end in (part if type(part) is tuple else (part,))]
    elif is_plain(node.shape):
        return _NONE
    named = [end for end in ends if isinstance(end, UOp)]
    return frozenset([n for end in named for n in end.toposort() if n.op is Ops.VARIABLE])


def _ends_of_long_chains(nodes: Sequence[UOp], meets: MeetingPoints, stored: set[UOp]) -> set[UOp]:
    """Where a chain has become long and nothing before is used behind, as between two steps of a loop: kernels of as many steps are one."""
    added: set[UOp] = set()
    cycles: dict[UOp, float] = {}
    ends: dict[UOp, UOp | None] = {}  # where all uses of all that a node is computed from meet
    for node in nodes:
        taken = 0.0
        end: UOp | None = node
        for source in node.src:
            taken = max(taken, cycles[source])
            if cycles[source] > FEW_CYCLES:
                end = meets.common(end, meets.common(ends[source], meets.nearest[source]))
        if node.op in ELEMENTWISE:
            taken += OPERATION_CYCLES.get(node.op, SHORT_CYCLES)
            if taken > LONG_CHAIN_CYCLES and end is node and node not in stored:
                added.add(node)
        is_read = node in stored or node in added
        cycles[node], ends[node] = (0.0, node) if is_read else (taken, end)
    return added


def _repetitions(
    nodes: Sequence[UOp], consumers: Mapping[UOp, list[UOp]], stored: set[UOp]
) -> dict[UOp, int]:
    """How many kernels beyond the first compute a value, where their ways to it part.

    Only there is a buffer worth while: what one user of a value does for all of these kernels can be
    done before the value is stored. Kernels are counted up to MANY_KERNELS.
    """
    kernels: dict[UOp, set[UOp]] = {}
    found: dict[UOp, int] = {}
    for node in reversed(nodes):
        parts = [{user} if user in stored else kernels[user] for user in consumers[node]]
        every: set[UOp] = set()
        for part in parts:
            every = every | part if len(every) < MANY_KERNELS else every
        kernels[node] = every
        if len(parts) > 1 and (len(every) >= MANY_KERNELS or len(every) > max(map(len, parts))):
            found[node] = min(len(every), MANY_KERNELS) - 1
    return found


def _of_large_kernels(
    nodes: Sequence[UOp],
    stored: set[UOp],
    repetitions: Mapping[UOp, int],
    consumers: Mapping[UOp, list[UOp]],
    target: Target,
) -> set[UOp]:
    """Values that end a kernel, for computing them takes as much as one kernel may do, or repeats it."""
    ends = set(stored)
    reductions: dict[UOp, frozenset[UOp]] = {}
    buffers: dict[UOp, frozenset[UOp]] = {}
    chain: dict[UOp, int] = {}
    most = _most_read(target)
    for node in nodes:
        src, op = node.src, node.op
        if op in MOVEMENT and node not in ends and len(buffers[src[0]]) <= most:
            below = src[0]  # as at most nodes, all is as it was
            reductions[node], buffers[node] = reductions[below], buffers[below]
            chain[node] = chain[below]
            continue
        run, read = _together(src, reductions), _read(node, most, buffers, ends)
        length = max([chain[source] for source in src], default=0)
        if op is REDUCE_AXIS:
            run |= {node}
        elif op in ELEMENTWISE:
            length += 1
            times = repetitions.get(node, 0)
            is_large = len(run) > MOST_REDUCTIONS or length > LONGEST_CHAIN
            if is_large or (times and _pays_to_store(node, ends, read, times, consumers, target)):
                ends.add(node)
        is_read = op is BUFFER or node in ends
        reductions[node] = _NONE if is_read else run
        buffers[node] = frozenset({node}) if is_read else read
        chain[node] = 0 if is_read else length
    return ends - stored


def _read(
    node: UOp, most: int, buffers: dict[UOp, frozenset[UOp]], ends: set[UOp]
) -> frozenset[UOp]:
    """The buffers that a node reads. If they are more than `most`, sources of it end kernels, that which reads most first."""
    read = _together(node.src, buffers)
    if len(read) <= most or node.op is Ops.SINK:
        return read
    for source in sorted(dict.fromkeys(node.src), key=lambda s: len(buffers[s]), reverse=True):
        end = source
        while end.op in MOVEMENT or end.op is Ops.DETACH:
            end = end.src[0]
        if end.op in ELEMENTWISE or end.op is Ops.REDUCE_AXIS:
            ends.add(end)
            buffers[source] = buffers[end] = frozenset({end})
            read = _together(node.src, buffers)
        if len(read) <= most:
            break
    return read


def _together(sources: Sequence[UOp], sets: Mapping[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """What is found of any of the sources: mostly the same of all, or of one."""
    found = _NONE
    for source in sources:
        more = sets[source]
        if more is not found and not more <= found:
            found = found | more if found else more
    return found


def _pays_to_store(
    node: UOp,
    ends: set[UOp],
    read: frozenset[UOp],
    times: int,
    consumers: Mapping[UOp, list[UOp]],
    target: Target,
) -> bool:
    """Whether computing `node` again so many times takes too many operations, moves more bytes, or takes longer than to keep it.

    Where a kernel takes a slice it computes that alone: nothing is known of what it moves and how long it takes.
    """
    if _is_repeated(node, ends, times):
        return True
    if any([takes_a_part(user) for user in consumers[node]]):
        return False
    return _reads_more(node, read, times) or _takes_longer(node, ends, times, target)


def _is_repeated(node: UOp, ends: set[UOp], times: int) -> bool:
    """Whether computing `node` again so many times takes more operations than are allowed."""
    seen, stack, left = {node}, [node], float(MOST_REPEATED // times)
    while stack and left >= 0:
        top = stack.pop()
        left -= max(1, OPERATION_CYCLES.get(top.op, 1)) if top.op in ELEMENTWISE else 0
        for source in top.src:
            if source not in seen and source not in ends:
                seen.add(source)
                stack.append(source)
    return left < 0


def _reads_more(node: UOp, read: frozenset[UOp], times: int) -> bool:
    """Whether computing `node` again so many times moves more bytes than to store it once and read it each time.

    A narrow element, as of a mask, counts as a whole word: what reads it widens it.
    """
    own = elements(node.shape) * max(node.dtype.itemsize, WORD_BYTES)
    again = sum([elements(source.shape) * source.dtype.itemsize for source in read])
    return times * again > (times + 2) * own


def _takes_longer(node: UOp, ends: set[UOp], times: int, target: Target) -> bool:
    """Whether the operations of computing `node` again so many times take longer than to keep it in memory."""
    lanes = 0 if target.work_items else target.lanes(node.dtype)
    if lanes == 0:
        return False
    again = times * cycles_of_work(node, ends) * elements(node.shape) / lanes
    return pays_a_buffer(node, again, times, target)
