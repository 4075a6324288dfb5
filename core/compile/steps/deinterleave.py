"""Memory that is read in steps of a few elements is copied so that neighbours are read.

    x[r + s * c]   =   T[(r % s) * m + r // s + c],   T[p * m + q] = x[q * s + p] for p < s, q < m = ceil(n / s)

    x: 0 1 2 3 4 5 6         s = 2         T: 0 2 4 6 1 3 5 -

Element i of x goes to the position (i % s, i // s). Where i is r + s * c, the first is r % s, the second r // s + c.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.steps.loop_nest import LoopNest, fission, require, require_fixed
from proofgrad.core.compile.steps.tables import loaded, new_table, stored
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def phase_and_position(rest: Any, count: Any, step: Any) -> tuple[Any, Any]:
    """The remainder and quotient by `step` of rest + step * count."""
    return rest % step, rest // step + count


def length_of(elements: Any, step: Any) -> Any:
    """How many elements have the same remainder by `step`, at most."""
    return -(-elements // step)


def element_at(phase: Any, position: Any, step: Any) -> Any:
    """The element whose remainder and quotient by `step` these are."""
    return position * step + phase


def slot_of(phase: Any, position: Any, length: Any) -> Any:
    """Where the copy has the element."""
    return phase * length + position


@fission("x[r + s * c] = T[(r % s) * m + r // s + c] where T[p * m + q] = x[q * s + p]")
def deinterleave(nest: LoopNest, load: UOp, loop: UOp) -> tuple[UOp, UOp]:
    """The graph that copies the memory that `load` reads in steps along `loop`, and the graph that reads the copy."""
    require(load in toposort((nest.graph,)) and load.op is Ops.LOAD, "no load of the nest", load)
    require_fixed([loop])
    memory, index, *mask = load.src[0].src
    require(memory.op is Ops.PARAM, "memory that is not a parameter", memory)
    step = coefficient(index, loop)
    require(step is not None and step > 1, "steps of no known length", step or 0)
    assert step is not None
    elements = memory.arg[1]
    length = length_of(elements, step)
    table = new_table(nest, memory.dtype, step * length)
    phase, position = UOp.range(step, 0), UOp.range(length, 1)
    source = element_at(phase, position, step)
    inside = (source < elements,) if elements % step else ()
    copied = stored(table, slot_of(phase, position, length), loaded(memory, source, *inside))
    rest = index.substitute({loop: UOp.index(0)})
    first, second = phase_and_position(rest, loop, step)
    there = loaded(table, slot_of(first, second, length), *mask)
    return copied, nest.graph.substitute({load: there})
