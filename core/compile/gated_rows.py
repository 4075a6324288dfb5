"""Kernel -> Kernel: rows of a tile that a gate turns off read the nearest place inside, without asking.

Owns: that change of what a gated sum of products loads. Does not own: which tile (tiles.py), registers that skip
what a gate leaves out (accumulate.py).

    where((-1 < i - k) & (i - k < n), x[i - k] * y, 0) = where(..., x[max(0, min(i - k, n - 1))] * y, 0)

Where the gate holds both read the same; elsewhere the product is not used. The place on the right is inside of its buffer
anyway, and is known before the loops that it does not depend on: a gate would be asked for each load in each step.
"""

from __future__ import annotations

from proofgrad.core.compile.linear_terms import coefficient, loops_of
from proofgrad.core.compile.sums_of_products import is_gated
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import CONST
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.gates import conjuncts, parts_of


def read_inside(kernel: UOp, reduction: UOp, bounds: Facts) -> UOp:
    """Loads of a gated sum of products without gates, where their places can be brought inside."""
    if not is_gated(reduction.src[0]):
        return kernel
    gate, product, _ = reduction.src[0].src
    inside, changes = _brought_inside(gate), {}
    for load in [n for n in toposort((product,)) if n.op is Ops.LOAD and len(n.src[0].src) > 2]:
        memory, index, own = load.src[0].src
        form = bounds.forms.read(index.substitute(inside))
        if form is None or not conjuncts(own) <= conjuncts(gate):
            continue
        place = bounds.forms.written(form)
        low, high = bounds.lo(place), bounds.hi(place)
        if low is not None and high is not None and 0 <= low and high < memory.arg[1]:
            changes[load] = load.with_src((load.src[0].with_src((memory, place)),))
    return kernel.substitute(changes)


def _brought_inside(gate: UOp) -> dict[UOp, UOp]:
    """For loops that a gate bounds, in terms with others: what they are where it holds, and elsewhere the nearest."""
    found: dict[UOp, UOp] = {}
    for term, (low, high) in _bounded(gate).items():
        nearest = term
        if high is not None:
            nearest = UOp(Ops.MIN, dtypes.index, (nearest, UOp.index(high)))
        if low is not None:
            nearest = UOp(Ops.MAX, dtypes.index, (nearest, UOp.index(low)))
        for loop in sorted(loops_of(term), key=lambda loop: loop.arg[0]):
            if loop not in found and coefficient(term, loop) == 1:
                found[loop] = nearest + (loop - term)
                break
    return found


def _bounded(gate: UOp) -> dict[UOp, tuple[int | None, int | None]]:
    """The terms that a gate compares with numbers, and their least and largest values where it holds."""
    found: dict[UOp, tuple[int | None, int | None]] = {}
    for part in parts_of(gate):
        if part.op is not Ops.CMPLT:
            continue
        first, second = part.src
        if first.op is CONST:
            found[second] = (first.arg + 1, found.get(second, (None, None))[1])
        elif second.op is CONST:
            found[first] = (found.get(first, (None, None))[0], second.arg - 1)
    return found
