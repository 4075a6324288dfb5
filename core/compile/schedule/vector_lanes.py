"""How many elements along a loop of a group's kernel an item reads and writes at once.

Owns: this number. Does not own: the vectors (steps/split.py, steps/lanes.py).
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def lanes_along(kernel: UOp, loop: UOp, target: Target) -> int:
    """How many elements along a loop are read and written at once, as many as all accesses take that move along it; 1: one."""
    accesses = [n for n in toposort((kernel,)) if n.op in (Ops.LOAD, Ops.STORE)]
    positions = [(n.src[0].src[1], n.src[0].dtype) for n in accesses]
    steps = [coefficient(index, loop) for index, _ in positions]
    if 1 not in steps or not all([step in (0, 1) for step in steps]):
        return 1
    moving = [dtype for (_, dtype), step in zip(positions, steps) if step]
    lanes = min([target.lanes(dtype) for dtype in moving])
    return lanes if size_of(loop) % lanes == 0 else 1
