"""Program and Linear read back as Kernel: registers as reductions, scratch as LOCAL_BUFFER, lanes as one more loop.

Owns: what vectors, registers and the nesting of Linear mean, said a second time and apart from the
procedures that make them. Does not own: comparing the result with the kernel before (kernels/match.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import prod

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.verify.kernels.linear_sums import linear_form
from proofgrad.verify.kernels.loops import row_major
from proofgrad.verify.kernels.matrices import is_nothing, sum_in_item, sum_of_products
from proofgrad.verify.kernels.terms import BOUND_LANE, DIGITS, LANE, is_of_lanes, loop_size
from proofgrad.verify.sampled.linear import CARRIED
from proofgrad.verify.sampled.nesting import Nesting, NotCovered, NotReadable
from proofgrad.verify.sampled.taken import ordered_loads, writes_over


@dataclass(frozen=True, slots=True)
class Written:
    """A STORE of scalars and the loops that it runs in, each value once.

    One that combines with what is there names the operation as its `arg`, as in a Kernel.
    """

    store: UOp
    loops: tuple[UOp, ...]

    @property
    def own_loops(self) -> tuple[UOp, ...]:
        """Those whose order counts."""
        return self.store.src[2:]

    @property
    def changes_address(self) -> bool:
        """Whether an iteration of its own loops may write another element than the one before."""
        return not free_loops(self.store.src[0]).isdisjoint(self.own_loops)

    def once(self) -> Written:
        """The store in one iteration of its own loops."""
        return Written(self.store, tuple([x for x in self.loops if x not in self.own_loops]))


def free_loops(node: UOp) -> frozenset[UOp]:
    """The loops whose value a scalar term depends on; a reduction hides its own."""
    return free_loops_below(node)[node]


def free_loops_below(node: UOp) -> dict[UOp, frozenset[UOp]]:
    """The free loops of a scalar term and of everything in it."""
    found: dict[UOp, frozenset[UOp]] = {}
    for n in toposort((node,)):
        below = frozenset().union(*[found[s] for s in n.src]) if n.src else frozenset()
        if n.op in (Ops.REDUCE, Ops.LOCAL_BUFFER):
            below = found[n.src[0]] - set(n.src[1:])
        found[n] = frozenset((n,)) if n.op is Ops.RANGE else below
    return found


def stores_of(graph: UOp) -> list[Written]:
    """The scalar stores of a Kernel, Program or Linear. Raises: NotReadable."""
    if graph.op is not Ops.LINEAR:
        reader = _Reader(graph.src)
        stores = [reader.store(store) for store in graph.src]
        return [Written(s, _sorted(free_loops(s))) for s in stores]
    nests = Nesting(graph).of_stores()
    reader = _Reader(nests)
    written = []
    for store, nest in nests.items():
        scalar = reader.store(store)
        lanes = [loop for loop in free_loops(scalar) if LANE <= loop.arg[0] < DIGITS]
        own = scalar.src[2:]
        if tuple([loop for loop in nest if loop in own]) != own:
            raise NotReadable("the loops of a STORE do not run in its order")
        written.append(Written(scalar, (*nest, *lanes)))
    return written


def _sorted(loops: frozenset[UOp]) -> tuple[UOp, ...]:
    return tuple(sorted(loops, key=lambda loop: loop.arg[0]))


# -- registers and lanes ------------------------------------------------------------------------


_PARTS = frozenset(
    {Ops.INDEX, Ops.ACCUMULATOR, Ops.UPDATE, Ops.STORE, Ops.SCRATCH, Ops.LOCAL_BUFFER, Ops.FILLED}
)


class _Reader:
    """Scalar terms of vector terms. All vectors of one length have the lanes of one loop."""

    def __init__(self, stores: Iterable[UOp]) -> None:
        self._scalar: dict[UOp, UOp] = {}

    def _lane(self, lanes: int) -> UOp:
        """The loop over the lanes of vectors of this length: of several in one program each has its own."""
        return UOp.range(lanes, LANE + lanes, AxisRole.VECTOR)

    def store(self, store: UOp) -> UOp:
        address, value, *loops = store.src
        lanes = max(value.dtype.lanes, *[s.dtype.lanes for s in address.src])
        op = store.arg
        if loops and op is None and not writes_over(store):
            op, scalar = self._added(self._read_there(store), value)
        else:
            scalar = self._carried(value) if value.op is Ops.UPDATE else self.scalar(value)
        return UOp(Ops.STORE, dtypes.void, (self._address(address, lanes), scalar, *loops), op)

    def _read_there(self, store: UOp) -> UOp:
        """The one LOAD of what a STORE with loops combines with."""
        address, _, *loops = store.src
        again = ordered_loads(store)
        if [load.src for load in again] != [(address, *loops)]:
            raise NotReadable("a STORE with loops does not read the element that it writes")
        return again[0]

    def scalar(self, node: UOp) -> UOp:
        """The value of `node` in the lane that the lane loop counts."""
        for n in toposort((node,), lambda n: n not in self._scalar):
            if n not in self._scalar:
                self._scalar[n] = self._scalar_of(n)
        return self._scalar[node]

    def _scalar_of(self, node: UOp) -> UOp:
        if node.op in _PARTS:
            return node  # read by LOAD, STORE, RESULT
        read = self._scalar.__getitem__ if node.op is Ops.RESULT else self._read
        src = tuple(map(read, node.src))
        match node.op:
            case Ops.CONST if node.dtype.lanes > 1:
                return self._steps(node)
            case Ops.BROADCAST:
                return src[0]
            case Ops.LOAD:
                address = self._address(node.src[0], node.dtype.lanes)
                return UOp(Ops.LOAD, node.dtype.scalar, (address,))
            case Ops.RESULT:
                return self._reduction(node)
            case Ops.HREDUCE:
                return self._over_lanes(node, src[0])
            case Ops.MMA:
                total = self._product(node)
                return total if is_nothing(src[1]) else UOp(Ops.ADD, total.dtype, (src[1], total))
            case _:
                return UOp(node.op, node.dtype.scalar, src, node.arg)

    def _read(self, node: UOp) -> UOp:
        return self._carried(node) if node.op is Ops.UPDATE else self._scalar[node]

    def _steps(self, node: UOp) -> UOp:
        """A constant whose lanes are equally far apart, or a choice for each lane."""
        values: tuple[int, ...] = node.arg
        lane = self._lane(node.dtype.lanes)
        if not node.dtype.is_float and not node.dtype.is_bool:
            step = values[1] - values[0]
            if all(value == values[0] + k * step for k, value in enumerate(values)):
                return lane * step + values[0]
        constants = [UOp(Ops.CONST, node.dtype.scalar, (), value) for value in values]
        chosen = constants[-1]
        for k, constant in enumerate(constants[:-1]):
            chosen = lane.eq(k).where(constant, chosen)
        return chosen

    def _address(self, address: UOp, lanes: int) -> UOp:
        """A scalar index of a vector access is that of its first lane; the others follow."""
        buffer, index, *mask = address.src
        position = self.scalar(index)
        if lanes > 1 and index.dtype.lanes == 1:
            position = UOp(Ops.ADD, position.dtype, (position, self._lane(lanes)))
        memory = self._memory(buffer)
        return UOp(Ops.INDEX, address.dtype, (memory, position, *[self.scalar(g) for g in mask]))

    def _memory(self, buffer: UOp) -> UOp:
        """Scratch memory that was filled is LOCAL_BUFFER of what the STORE puts at each address, in order."""
        match buffer.op:
            case Ops.LOCAL_BUFFER:
                return buffer.with_src((self.scalar(buffer.src[0]), *buffer.src[1:]))
            case Ops.FILLED:
                pass
            case _:
                return buffer
        store, *loops = buffer.src
        address, value = self.store(store).src
        lane, orders = self._lane(store.src[1].dtype.lanes), [loops]
        if lane in free_loops(UOp.sink(address, value)):  # it may stand anywhere among the loops
            orders = [[*loops[:k], lane, *loops[k:]] for k in reversed(range(len(loops) + 1))]
        position, size = linear_form(address.src[1]), prod(map(loop_size, orders[0]))
        found = next((order for order in orders if position == row_major(order)), None)
        if len(address.src) > 2 or found is None or address.src[0].arg[1] != size:
            raise NotReadable("scratch memory is not filled in the order of its loops")
        return UOp(Ops.LOCAL_BUFFER, buffer.dtype, (value, *found))

    def _product(self, node: UOp) -> UOp:
        """What an MMA adds to what was there before."""
        if len(node.arg) == 3:
            return self._product_in_item(node)
        halves, steps = node.arg
        item, _, column, *rest = node.src
        loops = rest[halves:]
        register = loops[0] if node.dtype.lanes == 1 else self._lane(node.dtype.lanes)
        held = loops[-1] if column.dtype.lanes == 1 else self._lane(steps)
        rows = tuple([self.scalar(row) for row in rest[:halves]])
        return sum_of_products(item, register, held, self.scalar(column), rows, node.dtype.scalar)

    def _product_in_item(self, node: UOp) -> UOp:
        """The same of one whose elements one item holds."""
        _, _, column, row, *loops = node.src
        register = loops[0] if node.dtype.lanes == 1 else self._lane(node.dtype.lanes)
        held = loops[-1] if column.dtype.lanes == 1 else self._lane(column.dtype.lanes)
        factors = self.scalar(column), self.scalar(row)
        return sum_in_item(node.arg, register, held, *factors, node.dtype.scalar)

    def _over_lanes(self, node: UOp, value: UOp) -> UOp:
        """A reduction over a loop of its own: what it combines may hold another one over lanes."""
        lane = self._lane(node.src[0].dtype.lanes)
        number, role = lane.arg
        own = lane.replace(arg=(number + BOUND_LANE * (1 + _reductions_of_lanes(value)), role))
        value = value.substitute({lane: own})
        loops: tuple[UOp, ...] = (own,)
        if value.op is Ops.REDUCE and value.arg is node.arg:
            value, loops = value.src[0], (*value.src[1:], own)
        return UOp(Ops.REDUCE, node.dtype.scalar, (value, *loops), node.arg)

    def _reduction(self, result: UOp) -> UOp:
        register, combined = result.src[0].src
        op, value = self._added(register, combined)
        start, loops = self.scalar(register.src[0]), register.src[1:]
        neutral = UOp.const(result.dtype.scalar, identity(op, result.dtype.scalar))
        if start is not neutral:
            raise NotReadable(f"a register for {op.name} starts at {start!r}")
        return UOp(Ops.REDUCE, result.dtype.scalar, (value, *loops), op)

    def _carried(self, update: UOp) -> UOp:
        """What a register of an output loop is set to: a reduction over its iterations so far."""
        register, combined, *read_before = update.src
        if read_before:
            raise NotCovered("registers that are scaled as a maximum grows")
        if len(register.src) != 2:
            raise NotReadable("a register that several output loops carry")
        loop, dtype = register.src[1], register.dtype.scalar
        op, value = self._added(register, combined)
        start, neutral = self.scalar(register.src[0]), UOp.const(dtype, identity(op, dtype))
        own = loop.replace(arg=(CARRIED + loop.arg[0], AxisRole.REDUCE))
        masked = (~(loop < own)).where(value.substitute({loop: own}), neutral)
        taken = UOp(Ops.REDUCE, dtype, (masked, own), op)
        return taken if start is neutral else UOp(op, dtype, (start, taken))

    def _added(self, register: UOp, combined: UOp) -> tuple[Ops, UOp]:
        """The operation of a register, and what it takes in; conversions around both are kept out."""
        outer = combined
        while outer.op is Ops.CAST:
            outer = outer.src[0]
        products: list[UOp] = []
        while (found := _product(outer)) is not None:
            op, factors, masks, outer = found
            value = UOp(op, outer.dtype.scalar, tuple([self.scalar(s) for s in factors]))
            for mask in masks:
                value = self.scalar(mask).where(value, UOp.const(value.dtype, 0))
            products.append(value)
            if outer is register:
                return Ops.ADD, reduce(UOp.__add__, products)
        matrices: list[UOp] = []
        inside = outer
        while inside.op is Ops.MMA:
            matrices.append(self._product(inside))
            inside = inside.src[1]
            if inside is register:
                return Ops.ADD, reduce(UOp.__add__, reversed(matrices))
        operands = [s for s in outer.src if _converted(s) is not register]
        is_one = not products and len(operands) == 1
        if outer.op not in (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN) or not is_one:
            raise NotReadable(f"a register is not combined with one value: {combined!r}")
        return outer.op, self.scalar(operands[0])


def _reductions_of_lanes(value: UOp) -> int:
    """How many reductions over lanes a value has in one another."""
    deepest: dict[UOp, int] = {}
    for node in toposort((value,)):
        below = max([deepest[source] for source in node.src], default=0)
        is_one = node.op is Ops.REDUCE and any(map(is_of_lanes, node.src[1:]))
        deepest[node] = below + is_one
    return deepest[value]


def _product(register: UOp) -> tuple[Ops, tuple[UOp, ...], list[UOp], UOp] | None:
    """(operation, factors, masks, the register before) of a register that took in a product, or that of words, where masks hold."""
    masks: list[UOp] = []
    inside = register
    while inside.op is Ops.WHERE:
        masks.append(inside.src[0])
        inside = inside.src[1]
    dots = [x for x in inside.src if x.op is Ops.DOT] if inside.op is Ops.ADD else []
    if inside.op is not Ops.MULACC and len(dots) != 1:
        return None
    op, factors, before = Ops.MUL, inside.src[:2], inside.src[-1]
    if dots:
        op, factors = Ops.DOT, dots[0].src
        (before,) = [x for x in inside.src if x is not dots[0]]
    while register is not inside:
        if register.src[2] is not before:
            return None
        register = register.src[1]
    return op, factors, masks, before


def _converted(node: UOp) -> UOp:
    while node.op is Ops.CAST:
        node = node.src[0]
    return node
