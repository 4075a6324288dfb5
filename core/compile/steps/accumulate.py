"""A reduction becomes a register that its loops update, what is kept memory that they fill.

    sum[i < n](f(i))   =   r = 0; for i < n: r = r + f(i); r

    i:     0   1     2
    r: 0   f0  f0+f1 f0+f1+f2

One order of a reduction, whose order is not specified, from its identity on. Products of floats are multiplied and added at once:
a sum may round so. A masked product leaves the register as it is where its mask is off: a sum that starts from 0.0 is
never -0.0, so adding 0.0 would change nothing. An MMA that starts from 0 starts from the register instead. A store that combines reads first what is there.
"""

from __future__ import annotations

from proofgrad.core.compile.nests.strides import at_start
from proofgrad.core.compile.nests.sums_of_products import Product, added, products_added
from proofgrad.core.compile.steps.loop_nest import LoopNest, step
from proofgrad.core.compile.steps.narrow import require_widths
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.op_names import ADD, CONST, LOAD, LOCAL_BUFFER, MMA, REDUCE, STORE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


@step("sum[i < n](f(i)) is r = 0; for i < n: r = r + f(i); r", makes_loops=False)
def accumulate(nest: LoopNest) -> UOp:
    """Each reduction becomes a register that its loops update, what is kept a store to scratch memory."""
    kernel = nest.graph
    require_widths(kernel)
    done: dict[UOp, UOp] = {}
    number, positions = 0, _Positions()
    for node in toposort((kernel,)):
        op, new = node.op, node.with_src(tuple([done[s] for s in node.src]))
        if op is REDUCE or op is LOCAL_BUFFER:
            new = _accumulate(new, number, positions) if op is REDUCE else _fill(new, number)
            number += 1
        elif op is STORE and node.arg is not None:
            new = _read_first(new)
        done[node] = new
    return done[kernel]


def _fill(keep: UOp, number: int) -> UOp:
    """The scratch memory of LOCAL_BUFFER, each value stored at the position that its loops count."""
    value, *loops = keep.src
    position, size = UOp.const(loops[0].dtype, 0), 1
    for loop in loops:
        position = position * loop.src[0].arg + loop
        size *= loop.src[0].arg
    memory = UOp(Ops.SCRATCH, keep.dtype, (), (number, size))
    store = UOp(Ops.STORE, dtypes.void, (UOp(Ops.INDEX, keep.dtype, (memory, position)), value))
    return UOp(Ops.FILLED, keep.dtype, (store, *loops))


def _accumulate(reduction: UOp, number: int, positions: _Positions) -> UOp:
    value, loops, dtype = reduction.src[0], reduction.src[1:], reduction.dtype
    start = UOp.const(dtype, identity(reduction.arg, dtype))
    register = UOp(Ops.ACCUMULATOR, dtype, (start, *loops), number)
    combined = _combined(reduction.arg, register, value, positions)
    return UOp(Ops.RESULT, dtype, (UOp(Ops.UPDATE, dtype, (register, combined)),))


def _read_first(store: UOp) -> UOp:
    """What is there is loaded, combined with the value and stored, in each iteration of the loops."""
    position, value, *loops = store.src
    there = UOp(Ops.LOAD, value.dtype, (position, *loops))
    return store.replace(
        src=(position, UOp(store.arg, value.dtype, (there, value)), *loops), arg=None
    )


def _combined(op: Ops, register: UOp, value: UOp, positions: _Positions) -> UOp:
    """The register after one iteration; products that are added go into it one by one.

    Each register takes them in the order in which they lie in memory, so that one operand serves
    several registers at a time.
    """
    if value.op is MMA and op is ADD:
        chain = [value]
        while chain[-1].src[1].op is MMA:
            chain.append(chain[-1].src[1])
        before = chain[-1].src[1]
        if before.op is CONST and before.arg == 0:
            total = register
            for matrices in reversed(chain):
                item, _, *factors = matrices.src
                total = matrices.with_src((item, total, *factors))
            return total
    products = products_added(value) if op is ADD else None
    if products is None:
        return UOp(op, register.dtype, (register, value))
    for product in sorted(products, key=positions.of) if len(products) > 1 else products:
        register = added(register, product)
    return register


class _Positions:
    """Where operands begin in memory. Many products of a kernel share them."""

    def __init__(self) -> None:
        self._loads: dict[UOp, frozenset[UOp]] = {}  # below a factor
        self._of_load: dict[UOp, int] = {}
        self._starts: dict[UOp, int] = {}

    def of(self, product: Product) -> int:
        """The sum of the positions of all that a product loads."""
        loads = frozenset().union(*map(self._loads_of, product.factors))
        return sum(map(self._start_of, loads))

    def _loads_of(self, factor: UOp) -> frozenset[UOp]:
        found = self._loads.get(factor)
        if found is None:
            found = frozenset([n for n in toposort((factor,)) if n.op is LOAD])
            self._loads[factor] = found
        return found

    def _start_of(self, load: UOp) -> int:
        found = self._of_load.get(load)
        if found is None:
            found = self._of_load[load] = at_start(load.src[0].src[1], self._starts)
        return found
