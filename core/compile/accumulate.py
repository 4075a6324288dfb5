"""Kernel -> Program: a reduction becomes a register that its loops update.

Does not own: the order of the loops (linearize.py) and how registers are kept (backends).
"""

from __future__ import annotations

from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

_PRODUCTS = frozenset({Ops.MUL, Ops.ADD})


def reductions_to_accumulators(kernel: UOp) -> UOp:
    """Each reduction becomes a register that its loops update."""
    done: dict[UOp, UOp] = {}
    number = 0
    for node in toposort((kernel,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        if node.op is Ops.REDUCE:
            new = _accumulate(new, number)
            number += 1
        done[node] = new
    return done[kernel]


def _accumulate(reduction: UOp, number: int) -> UOp:
    value, loops, dtype = reduction.src[0], reduction.src[1:], reduction.dtype
    start = UOp.const(dtype, identity(reduction.arg, dtype))
    register = UOp(Ops.ACCUMULATOR, dtype, (start, *loops), number)
    combined = _combined(reduction.arg, register, value)
    return UOp(Ops.RESULT, dtype, (UOp(Ops.UPDATE, dtype, (register, combined)),))


def _combined(op: Ops, register: UOp, value: UOp) -> UOp:
    """The register after one iteration; products that are added go into it one by one."""
    if op is Ops.ADD and value.op is Ops.MUL:
        return UOp(Ops.MULACC, register.dtype, (*value.src, register))
    if op is Ops.ADD and value.op is Ops.ADD and all(s.op in _PRODUCTS for s in value.src):
        return _combined(op, _combined(op, register, value.src[0]), value.src[1])
    return UOp(op, register.dtype, (register, value))
