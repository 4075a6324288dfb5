"""Tactics: what makes one kernel of several that do the same, so that it is compiled once.

Owns: which kernels read slices as parts of memory, which have their operands in order. Does not own: the steps
(steps/read_parts.py, steps/exchange.py), where a part begins when a kernel runs (plan/plan.py).

A loop over batches, X[i : i + 64], or over time, x[t], would otherwise compile its kernels for each i and t; and equal layers
have operands in an order that depends on what is below them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.passes.memory import changed_in_part, memory_below
from proofgrad.core.compile.steps.exchange import exchange
from proofgrad.core.compile.steps.read_parts import parts_of, read_parts
from proofgrad.core.compile.steps.tensor_program import TensorProgram
from proofgrad.core.ir.op_names import COPY
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp, toposort

# Of one memory in one kernel: each is a pointer more, where one with several positions may be read by wider loads.
MOST_PARTS = 4
# Of kernels that do the same with blocks that begin in one place, on average, so that one kernel for all places is worth it: a launch takes about a microsecond
# more for a block (measured), compiling a kernel 20 ms: no number of a machine, and from 1 to 16 the same is chosen in 275 drawn cases. The gates of an LSTM are blocks in four places, each in every step.
MOST_LAUNCHES = 4


def read_slices(program: TensorProgram, context: Context) -> TensorProgram:
    """Kernels read slices of memory as memory of their own: those whose elements follow each other, and blocks that several kernels take."""
    if not context.target.has_parts:
        return program
    calls, parts = [], {call: parts_of(call) for call in program.graph.src}
    blocks = {
        call: found
        for call, found in parts.items()
        if not any(map(_is_row_or_step, found, found.values()))
    }
    shared = _begin_elsewhere(blocks)
    for call, found in parts.items():
        memories = Counter([memory_below(part) for part in set(found.values())])
        changed = changed_in_part(call.src[0].src[0])  # perhaps in place: then it is one memory
        if changed is not None and call.src[1 + changed.arg[0]] in memories:
            continue
        is_wanted = call in shared or call not in blocks
        if memories and max(memories.values()) <= MOST_PARTS and is_wanted:
            calls.append(call)
    return read_parts(program, calls) if calls else program


def _begin_elsewhere(blocks: Mapping[UOp, Mapping[UOp, UOp]]) -> set[UOp]:
    """The calls that do the same as others with blocks that begin elsewhere, few of them in one place: a part costs a little at each launch."""
    alike: dict[tuple[object, ...], list[UOp]] = {}
    for call, parts in blocks.items():
        slices = [(taken.shape, taken.src[0].shape, part.shape) for taken, part in parts.items()]
        operations = [node.op for node in toposort((call.src[0],))]
        alike.setdefault((*slices, *operations), []).append(call)
    found = set[UOp]()
    for calls in alike.values():
        begins = {tuple([part.arg for part in blocks[call].values()]) for call in calls}
        if len(begins) > 1 and MOST_LAUNCHES * len(begins) >= len(calls):
            found.update(calls)
    return found


def _is_row_or_step(taken: UOp, part: UOp) -> bool:
    """Whether a slice is all of a part, or one element of one axis, of which the next program may take the next one.

    Of a block its last row ends with the part, and vectors that reach over its end would find what is there in the whole.
    """
    sizes = taken.src[0].shape
    widths = [end - begin for (begin, end), n in zip(taken.arg, sizes) if (begin, end) != (0, n)]
    return part.shape == (elements(taken.shape),) or widths == [1]


def order_operands(program: TensorProgram, context: Context) -> TensorProgram:
    """Operands of commutative operations stand in one order, whatever memory they read."""
    calls = [call for call in program.graph.src if call.src[0].src[0].op is not COPY]
    return exchange(program, calls) if calls else program
