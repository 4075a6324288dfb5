"""How many cycles an operation takes, and which are costly.

Owns: the table, of vectors on a CPU. Does not own: what a kernel computes along a loop (vector_loops.py), in a graph (fusion/work.py).
"""

from __future__ import annotations

from proofgrad.core.ir.ops import Ops

# Cycles of an operation on a vector of float32 of 64 bytes; of all others at most one. Division and roots: A. Fog,
# Instruction tables, Ice Lake; integers are divided one by one. The others are as many instructions as
# transcendental.py makes of them, two in a cycle, and twice as many where they are of float64.
OPERATION_CYCLES: dict[Ops, float] = {
    Ops.FDIV: 16, Ops.SQRT: 19, Ops.EXP2: 10, Ops.EXP: 9, Ops.LOG2: 20, Ops.SIN: 54, Ops.COS: 53, Ops.POW: 106, Ops.FMOD: 55,
    Ops.FLOORDIV: 96, Ops.MOD: 96,
}  # fmt: skip
# Of one element such an operation takes so much of them (Fog, Instruction tables).
OF_ONE_ELEMENT = {Ops.FDIV: 1 / 4, Ops.SQRT: 1 / 4}
# Of one that is not in the table: two run in a cycle.
SHORT_CYCLES = 0.5
# Of one element in place of a vector: there are twice as many units for them.
SHORT_OF_ONE_ELEMENT = 1 / 2
# A quotient by a constant and what is left, of one element: two multiplications, shifts and a difference, for each of two positions.
DIVISION_CYCLES = 8 * SHORT_CYCLES
# To store a vector, and to load it again later: one store and one of two loads in a cycle.
MEMORY_CYCLES = 1.5
# Operations that take longer than to keep their results in memory.
COSTLY = frozenset([op for op, cycles in OPERATION_CYCLES.items() if cycles > MEMORY_CYCLES])


def share_of_one_element(op: Ops) -> float:
    """Of the cycles of a vector: a function of the table is as many instructions for one element as for all of them."""
    return OF_ONE_ELEMENT.get(op, 1 if op in OPERATION_CYCLES else SHORT_OF_ONE_ELEMENT)
