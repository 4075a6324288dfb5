"""A value is written into a table by a nest of its own, and read from there.

    f(v(x, y))   =   for all a, b: T[g(a, b)] = v(a, b); f(T[g(x, y)])

if g is one to one. Here g is row-major over digits of the loops, in any order: a loop x of n iterations is the digits x // s and
x % s, or more, or x itself. Digits may reach beyond the end of their loop: the table has positions there that nobody
reads but where it does not matter, and what is loaded to fill them is masked.

    x: 0 1 2 3 4         y: 0 1          digits (x // 2, y, x % 2):

    T: (0,0) (1,0) (0,1) (1,1) (2,0) (3,0) (2,1) (3,1) (4,0)  -  (4,1)  -
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from proofgrad.core.compile.nests.loops import BINDERS, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.steps.bijection import NewLoop, masked
from proofgrad.core.compile.steps.collapse import MOST_LOOPS, collapse_law
from proofgrad.core.compile.steps.loop_nest import LoopNest, fission, require, require_fixed
from proofgrad.core.compile.steps.split import MOST_PARTS, split_law
from proofgrad.core.compile.steps.tables import loaded, new_table, require_value, stored
from proofgrad.core.compile.text.show import brief
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

LARGEST_TABLE = 1 << 31  # elements
MOST_DIGITS = 12  # for so many the law is proved


@dataclass(frozen=True, slots=True)
class Digit:
    """`loop // stride % size`; `made` is the loop over it that fills the table."""

    loop: UOp
    size: int
    made: NewLoop
    stride: int = 1

    def __str__(self) -> str:
        shift = f" // {self.stride}" if self.stride != 1 else ""
        return f"{self.made} = {brief(self.loop)}{shift} % {self.size}"


@fission("f(v(x)) = for all a: T[g(a)] = v(a); f(T[g(x)]), g one to one")
def stage(nest: LoopNest, value: UOp, digits: tuple[Digit, ...]) -> tuple[UOp, UOp]:
    """The graph that fills a table with `value`, laid out row-major by `digits`, and the graph that reads it."""
    free = loops_below(nest.graph)
    require(value in free, "a value that is not in the nest", value)
    require_value(value)
    loops = dict.fromkeys([digit.loop for digit in digits])
    require(free[value] == loops.keys(), "not the loops that the value changes with", *loops)
    require_fixed(loops)
    bound = {x for n in toposort((value,)) if n.op in BINDERS for x in n.src[1:]}
    require(bound.isdisjoint(loops), "a loop that the value runs itself, too", *loops)
    numbers = [digit.made.number for digit in digits]
    require(len(set(numbers)) == len(numbers), "numbers of loops", *numbers)
    own = {n.arg[0] for n in toposort((value,)) if n.op is Ops.RANGE and n not in loops}
    require(own.isdisjoint(numbers), "numbers that loops of the value have", *numbers)
    length = prod([digit.size for digit in digits])
    require(length <= LARGEST_TABLE, "a table of more elements", length, LARGEST_TABLE)
    memory = new_table(nest, value.dtype, length)
    require(len(digits) <= MOST_DIGITS, "more digits than", MOST_DIGITS)
    all_sizes = [digit.size for digit in digits]
    counters = [UOp.range(d.size, d.made.number, d.made.role) if d.size != 1 else UOp.index(0)
                for d in digits]  # fmt: skip
    changes: dict[UOp, UOp] = {}
    loaded_inside, read = value, dict[Digit, UOp]()
    for loop in loops:
        parts = _parts_of(loop, digits)
        sizes = tuple([part.size for part in parts[1:]])
        here = tuple([counters[digits.index(part)] for part in parts])
        terms = (loop,)
        changes[loop] = here[0]
        if sizes:
            law = split_law(len(sizes))
            terms, (changes[loop],) = law.new(loop, None, *sizes), law.old(*here, None, *sizes)
        read |= dict(zip(parts, terms))
        if prod([part.size for part in parts]) != size_of(loop):
            loaded_inside = _masked(loaded_inside, loop)
    filled = loaded_inside.substitute(changes)
    read_at = position_of([read[digit] for digit in digits], all_sizes, UOp.index(0))
    filled_at = position_of(counters, all_sizes, UOp.index(0))
    read_there = nest.graph.substitute({value: loaded(memory, read_at)})
    return stored(memory, filled_at, filled), read_there


def _parts_of(loop: UOp, digits: Sequence[Digit]) -> list[Digit]:
    """The digits of a loop, the most significant first; all of the loop and nothing twice."""
    parts = sorted([d for d in digits if d.loop is loop], key=lambda d: -d.stride)
    strides = [prod([part.size for part in parts[k + 1 :]]) for k in range(len(parts))]
    require([part.stride for part in parts] == strides, "digits with gaps between", *strides)
    require(
        prod([d.size for d in parts]) >= size_of(loop), "digits that end before their loop", loop
    )
    require(len(parts) <= 1 + MOST_PARTS, "more digits of a loop than", 1 + MOST_PARTS)
    return parts


def position_of(digits: Sequence[Any], sizes: Sequence[Any], start: Any) -> Any:
    """The row-major position of digits, as many at once as there is a law of; `start`: that of no digits, 0."""
    position = start
    for k in range(0, len(digits), MOST_LOOPS - 1):
        some = sizes[k : k + MOST_LOOPS - 1]
        values = digits[k : k + MOST_LOOPS - 1]
        (position,) = collapse_law(1 + len(some)).new(position, *values, None, *some)
    return position


def _masked(value: UOp, loop: UOp) -> UOp:
    """The value, of which nothing is loaded beyond the end of a loop."""
    free, inside = loops_below(value), loop < size_of(loop)
    done: dict[UOp, UOp] = {}
    for node in toposort((value,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        done[node] = masked(new, inside) if node.op is Ops.INDEX and loop in free[node] else new
    return done[value]
