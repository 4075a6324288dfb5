"""What a load reads of memory is copied with other axes, each place once, and read there at any of these places.

    f(m[s(i)])   =   for all a: T[a] = m[sum(a * d)]; f(T[p(i)])        where s(i) = sum(p(i) * d), 0 <= p(i) < n

    m: c0 c1 c2 c3 d0 d1 d2 d3    a = (x, channel), d = (1, 4):    T: c0 d0 c1 d1 c2 d2 c3 d3

Where stage keeps a value for each iteration, a place that many iterations read, as a pixel for each tap of a filter, is there once. An axis may be longer
than what is read of it, so that positions behind the end of a line are those of the copy. What lies beyond the memory is 0 in it, and is read by nobody.

The law and what decides it are those of keep_window, of a window that is all of the memory.
"""

from __future__ import annotations

from proofgrad.core.compile.steps.collapse import collapse_law
from proofgrad.core.compile.steps.keep_window import Axis, filled_from, require_places
from proofgrad.core.compile.steps.loop_nest import LoopNest, fission, require
from proofgrad.core.compile.steps.tables import loaded, new_table, stored
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


@fission("f(m[s(i)]) = for all a: T[a] = m[sum(a * d)]; f(T[p(i)]), s(i) = sum(p(i) * d)")
def stage_window(nest: LoopNest, load: UOp, axes: tuple[Axis, ...]) -> tuple[UOp, UOp]:
    """The graph that copies the memory of `load` along `axes`, outermost first, and the graph that reads the copy."""
    require(load in toposort((nest.graph,)) and load.op is Ops.LOAD, "no load of the nest", load)
    memory, position, *masks = load.src[0].src
    require(memory.op is Ops.PARAM and not masks, "no memory that is read without a mask", memory)
    first = UOp.index(0)
    require_places(nest, position, first, axes, ())
    own = tuple([UOp.range(axis.size, axis.made.number, axis.made.role) for axis in axes])
    numbers = [axis.made.number for axis in axes]
    require(len(set(numbers)) == len(numbers), "numbers of loops", *numbers)
    sizes = [axis.size for axis in axes]
    length = 1
    for size in sizes:
        length *= size
    table = new_table(nest, memory.dtype, length)
    (filled_at,) = collapse_law(len(axes)).new(*own, *sizes)
    (read_at,) = collapse_law(len(axes)).new(*[axis.place for axis in axes], *sizes)
    copied = stored(table, filled_at, filled_from(memory, first, own, axes, nest))
    return copied, nest.graph.substitute({load: loaded(table, read_at)})
