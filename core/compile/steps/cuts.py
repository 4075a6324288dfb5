"""Nests that one nest became: which they are, and whether they are all there, in order.

    nest  =  fill; read          read  =  fill'; read'          so  nest  =  fill; fill'; read'

Owns: where a nest stands among those of one fission, and what is asked of several together. Does not own: the fissions (loop_nest.py,
stage.py, ...).

A nest of a fission means what it does only beside the others: the one that reads a table, behind the one that fills it. A
tactic that holds several gives them back all, once, in their order; and no two of its tables are one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proofgrad.core.ir.op_names import PARAM
from proofgrad.core.ir.uop import UOp, toposort


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """One use of a fission: how many nests it made, the memory between them, and by which step."""

    parts: int
    tables: frozenset[int]
    step: str = ""


# The number of a nest within each cut that led to it, the first one first.
Position = tuple[tuple[Cut, int], ...]


def cut_of(before: UOp, made: Iterable[UOp], step: str) -> Cut:
    """That a graph became these, by a step."""
    graphs = tuple(made)
    return Cut(len(graphs), frozenset(_slots(*graphs) - _slots(before)), step)


def largest_slot(graphs: Iterable[UOp]) -> int:
    """The largest number of a parameter of the graphs; that of the results is 0."""
    return max(_slots(*graphs), default=0)


def _slots(*graphs: UOp) -> set[int]:
    return {n.arg[0] for n in toposort(graphs) if n.op is PARAM}


def what_is_missing(start: Position, positions: Iterable[Position]) -> str | None:
    """Why nests at these positions, run in order, are not what became of the one at `start`; None if they are."""
    expected: Position | None = start
    cuts: dict[Cut, None] = {}
    for position in positions:
        if expected is None:
            return "a nest too many"
        is_next = position[: len(expected)] == expected
        if not is_next or any([number for _, number in position[len(expected) :]]):
            return "nests of one fission are left out, or not in their order"
        cuts.update(dict.fromkeys([cut for cut, _ in position[len(start) :]]))
        while len(position) > len(start) and position[-1][1] + 1 == position[-1][0].parts:
            position = position[:-1]
        cut, number = position[-1] if len(position) > len(start) else (None, 0)
        expected = None if cut is None else (*position[:-1], (cut, number + 1))
    if expected is not None:
        return "nests of one fission are left out"
    tables = [slot for cut in cuts for slot in cut.tables]
    return None if len(set(tables)) == len(tables) else "two tables are one"
