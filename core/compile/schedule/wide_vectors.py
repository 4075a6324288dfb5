"""Vectors of several registers, where the computation of each element is long.

Owns: how many registers one vector of a loop takes. Does not own: which loops run as vectors (vector_loops.py), how many vectors at once (vectors.py).

Each operation on such a vector is one instruction for each of its registers, and none of these waits for another: a core that looks ahead over some
tens of instructions has work while the one before is on its way. They share constants, branches and masks, which copies of a vector have each.
"""

from __future__ import annotations

from math import ceil, prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.schedule.contraction import LARGEST_STEP
from proofgrad.core.compile.schedule.copies import Nest
from proofgrad.core.compile.schedule.operation_cycles import SHORT_CYCLES
from proofgrad.core.compile.schedule.vector_loops import Candidate, cycles_along, is_work_along
from proofgrad.core.ir.op_names import LOAD, REDUCE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

# Cycles of a computation in vectors of so many registers, for each register (measured, functions of 24 cycles and more: 0.6 to 0.9 of four). They say how many lanes
# of the last vector of a short row may be empty: from 0.95 and 0.9 to 0.8 and 0.6 a few rows have other vectors, which take as long (of 275 cases 21, 0.995 to 1.005 times).
CYCLES_OF_REGISTERS = {1: 1.0, 2: 0.87, 4: 0.75}
# A computation that takes so much of what a core looks ahead over leaves little room for those behind it, which all run at their own ends then (measured in
# four registers: the sum of an exponential, of a fifth, takes 0.76 times as long, softmax 0.9, the sum of gelu, of three fifths, 0.56).
SHARE_OF_FORESEEN = 1 / 6
# Loads of the terms of sums that are written out, which wait for nothing anyway: with more of them the next vector has registers of its own (measured: means of
# 16 terms that lie 4 apart, 64 loads a register, take the same time in one register as in two, and 0.85 to 1 times that in four; LLVM looks at all loads of a
# block at each of them, and takes 0.02 s for 64, 0.25 for 256, 1 for 512).
MOST_LOADS_OF_TERMS = 64
# Operations that go on until their last lane is through.
STEPWISE = frozenset({Ops.FMOD, Ops.FLOORDIV, Ops.MOD})


def registers_of_vector(one: Candidate, nest: Nest) -> int:
    """How many times as many lanes as a register one vector of a loop has."""
    target, vectors = nest.target, -(-nest.size(one.loop) // one.lanes)
    if target.work_items or one.at_once is not None or not is_fixed(one.loop):
        return 1
    if not all([_lies_near(n, one.loop) for n in (*nest.loads, *nest.stores)]):
        return 1
    work = [n for n in nest.free if is_work_along(n, one.loop, nest.free)]
    cycles = cycles_along(one.loop, nest.free)
    if any([n.op in STEPWISE for n in work]) or not _is_long(cycles, target):
        return 1
    most = min(_room(one, nest), MOST_LOADS_OF_TERMS // max(1, _loads_of_terms(one.loop, nest)))
    costs = {n: _vectors_of(n, vectors) for n in CYCLES_OF_REGISTERS if n <= most}
    return min(costs, key=lambda n: costs[n], default=1)


def cycles_of_row(cycles: float, vectors: float, target: Target) -> float:
    """What work of so many cycles takes on a row of so many vectors, if these may be of as many registers as takes least."""
    if target.work_items or not _is_long(cycles, target):
        return cycles * vectors
    return cycles * min([_vectors_of(n, vectors) for n in CYCLES_OF_REGISTERS])


def _is_long(cycles: float, target: Target) -> bool:
    """Whether work on one vector leaves little room for the next in what a core looks ahead over."""
    return cycles >= SHARE_OF_FORESEEN * target.core.foreseen_instructions * SHORT_CYCLES


def _vectors_of(registers: int, vectors: float) -> float:
    """Vectors of one register that take as long as a row in vectors of so many."""
    return ceil(vectors / registers) * registers * CYCLES_OF_REGISTERS[registers]


def _lies_near(access: UOp, loop: UOp) -> bool:
    """Whether lanes lie side by side, or are picked out of whole vectors that are loaded in order (measured: gelu of each second element takes 0.6 times as long)."""
    step = coefficient(access.src[0].src[1], loop)
    return step in (0, 1) or (access.op is Ops.LOAD and step in range(LARGEST_STEP + 1))


def _room(one: Candidate, nest: Nest) -> int:
    """How many times as many lanes the most registers of a vector, and its type, have room for."""
    target = nest.target
    types = [n.dtype for n in nest.free if is_work_along(n, one.loop, nest.free)]
    types += [n.dtype for n in nest.loads]
    nbytes = one.lanes * max([dtype.itemsize for dtype in types], default=1)
    registers = -(-nbytes // target.vector_bytes)
    return min(max(CYCLES_OF_REGISTERS) // registers, target.most_lanes // one.lanes)


def _loads_of_terms(loop: UOp, nest: Nest) -> int:
    """How many registers one vector of a loop loads for the terms of sums that are written out; lanes that lie apart are picked out of several."""
    looped = {own for node in nest.looped for own in node.src[1:]}
    summed = {own for node in nest.free if node.op is REDUCE for own in node.src[1:]} - looped
    found = 0
    for load in [n for n in nest.free if n.op is LOAD and not summed.isdisjoint(nest.free[n])]:
        terms = prod([size_of(own) for own in summed & nest.free[load]])
        found += terms * max(1, coefficient(load.src[0].src[1], loop) or 0)
    return found
