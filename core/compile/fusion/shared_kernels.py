"""Tactics: what makes one kernel of several that do the same, so that it is compiled once.

Owns: which kernels read slices as parts of memory, which have their operands in order. Does not own: the steps
(steps/read_parts.py, steps/exchange.py), where a part begins when a kernel runs (plan/plan.py).

A loop over batches, X[i : i + 64], or over time, x[t], would otherwise compile its kernels for each i and t; and equal layers
have operands in an order that depends on what is below them.
"""

from __future__ import annotations

from collections import Counter

from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.passes.memory import changed_in_part, memory_below
from proofgrad.core.compile.steps.exchange import exchange
from proofgrad.core.compile.steps.read_parts import parts_of, read_parts
from proofgrad.core.compile.steps.tensor_program import TensorProgram
from proofgrad.core.ir.ops import Ops

# Of one memory in one kernel: each is a pointer more, where one with several positions may be read by wider loads.
MOST_PARTS = 4


def read_slices(program: TensorProgram, context: Context) -> TensorProgram:
    """Kernels read slices of memory whose elements follow each other as memory of their own."""
    if not context.target.has_parts:
        return program
    calls = []
    for call in program.graph.src:
        memories = Counter([memory_below(part) for part in set(parts_of(call).values())])
        changed = changed_in_part(call.src[0].src[0])  # perhaps in place: then it is one memory
        if changed is not None and call.src[1 + changed.arg[0]] in memories:
            continue
        if memories and max(memories.values()) <= MOST_PARTS:
            calls.append(call)
    return read_parts(program, calls) if calls else program


def order_operands(program: TensorProgram, context: Context) -> TensorProgram:
    """Operands of commutative operations stand in one order, whatever memory they read."""
    calls = [call for call in program.graph.src if call.src[0].src[0].op is not Ops.COPY]
    return exchange(program, calls) if calls else program
