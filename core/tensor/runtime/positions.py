"""Positions as variables: what reads or writes `x[:, i]` for one `i` after the other is one graph, and so one kernel.

Owns: which numbers of a graph are positions, the variables in their place. Does not own: the numbered graph (canonical.py).

A position is where a cut of one element begins, in memory that is read or written to, and where a cut of several begins that was at
other places before (changing.py). For the part of a memory whose elements follow each other there is less to do: it is an input of its
own (canonical.py). So is a number that is written to a part of memory, or `x[i] = i` would be a kernel for each `i`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import BUFFER, CONST, DETACH, SHRINK
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import is_plain, names_variables, sizes
from proofgrad.core.ir.uop import UOp

# Of one graph. Where there are more it is no step of a loop but a whole one, and knows its numbers.
MOST_POSITIONS = 4
_ALL_MEMORY = frozenset({Ops.SHRINK, Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, DETACH})


class _Position(NamedTuple):
    """Where a part of so many elements of an axis of this size begins."""

    axis: int
    size: int
    part: int
    begin: int


def cuts_and_places(
    nodes: Iterable[UOp], roots: Sequence[UOp], computed: Mapping[UOp, UOp]
) -> dict[UOp, list[_Position]]:
    """The cuts among nodes, and the PADs of what roots write to a part of memory, with the positions that each has."""
    placed = [node for root in roots for node in _places_written_to(root, computed)]
    cuts = [node for node in nodes if node.op is SHRINK and node not in computed]
    return {node: _positions_of(node) for node in dict.fromkeys([*placed, *cuts])}


def positions_as_variables(
    positions: Mapping[UOp, Sequence[_Position]],
    changing: Set[tuple[UOp, int]],
    computed: Mapping[UOp, UOp],
    values: dict[str, int],
) -> dict[UOp, Any]:
    """The nodes of `positions` with arguments that name variables, whose values go into `values`: of those that are `changing`, and of one element."""
    wanted = {
        node: [p for p in found if (node, p.axis) in changing] for node, found in positions.items()
    }
    single = {
        node: [p for p in found if p.part == 1]
        for node, found in positions.items()
        if node.op is Ops.PAD or is_of_memory(node, computed)
    }
    if len({p for found in single.values() for p in found}) <= MOST_POSITIONS:
        wanted = {
            node: [*dict.fromkeys([*found, *single.get(node, ())])]
            for node, found in wanted.items()
        }
    numbers: dict[_Position, int] = {}
    changed: dict[UOp, Any] = {}
    for node, found in wanted.items():
        argument = list(node.arg)
        for position in found:
            names = _names(numbers.setdefault(position, len(numbers)), position.size, position.part)
            argument[position.axis] = names.cut if node.op is Ops.SHRINK else names.around
            values[names.variable.arg[0]] = position.begin
            changed[node] = argument
    return {node: tuple(argument) for node, argument in changed.items()}


def are_positions(values: Iterable[str]) -> bool:
    """Whether these names of variables are all of positions."""
    return all([name[0] == "[" and name[1:-1].isdigit() for name in values])


def numbers_written(
    roots: Sequence[UOp], nodes: Sequence[UOp], computed: Mapping[UOp, UOp]
) -> list[UOp]:
    """The constants among these nodes that roots put in place in memory. Bools are what says where that is."""
    found: dict[UOp, None] = {}
    for write in [node for root in roots for node in _writes(root, computed)]:
        if pads := _pads_above(write.src[1]):
            value = pads[-1].src[0]
            while value.op in MOVEMENT:
                value = value.src[0]
            if value.op is CONST and not value.dtype.is_bool:
                found[value] = None
    there = set(nodes) if found else ()  # others are below what was computed
    return [number for number in found if number in there]


class _Names(NamedTuple):
    """The variable of a position, the cut there, and what lies around it."""

    variable: UOp
    cut: tuple[Any, Any]
    around: tuple[Any, Any]


@functools.lru_cache(maxsize=1024)
def _names(number: int, size: int, part: int) -> _Names:
    name = f"[{number}]"  # no user's, which are identifiers
    begin = UOp(Ops.VARIABLE, dtypes.index, (), (name, 0, size - part))
    return _Names(
        begin, (begin, sizes().total(begin, part)), (begin, sizes().difference(size - part, begin))
    )


def _positions_of(node: UOp) -> list[_Position]:
    """Of a cut or of a value put in place: where it is a part of an axis."""
    whole = node.src[0].shape if node.op is Ops.SHRINK else node.shape
    part = node.shape if node.op is Ops.SHRINK else node.src[0].shape
    if not is_plain(whole) or not is_plain(part) or names_variables(node.arg):
        return []
    axes = enumerate(zip(whole, part, node.arg))
    return [_Position(k, n, size, begin) for k, (n, size, (begin, _)) in axes if 0 < size < n]


def _places_written_to(root: UOp, computed: Mapping[UOp, UOp]) -> list[UOp]:
    """The PADs that put what is written into its place, and those of the mask that says where that is."""
    found: list[UOp] = []
    for write in _writes(root, computed):
        mask = _pads_above(write.src[0])
        places = {pad.arg for pad in mask}
        found += [*mask, *[pad for pad in _pads_above(write.src[1]) if pad.arg in places]]
    return found


def _writes(root: UOp, computed: Mapping[UOp, UOp]) -> list[UOp]:
    """The WHEREs that change a memory in part, as `changed_in_part`, of what is still to compute; none if a root is another value."""
    found: list[UOp] = []
    while root.op is Ops.WHERE or root.op is Ops.RESHAPE:
        if root.op is Ops.WHERE:
            found.append(root)
        root = computed.get(root.src[-1], root.src[-1])
    return found if root.op is BUFFER else []


def _pads_above(node: UOp) -> list[UOp]:
    found: list[UOp] = []
    while node.op in MOVEMENT or node.op is DETACH or node.op is Ops.BITCAST:
        if node.op is Ops.PAD:
            found.append(node)
        node = node.src[0]
    return found


def is_of_memory(cut: UOp, computed: Mapping[UOp, UOp]) -> bool:
    """Whether it shows an element of memory, and not of what is around or repeats it: for some numbers that is nothing to read."""
    node = cut
    while node.op in _ALL_MEMORY:
        node = computed.get(node.src[0], node.src[0])
    return node.op is BUFFER


def with_values(arg: Any, values: dict[str, int]) -> Any:
    """The argument of a numbered node as it was: variables bound again, numbers in place of those that stand for positions."""
    if type(arg) is tuple:
        return tuple([with_values(part, values) for part in arg])
    if not isinstance(arg, UOp):
        return arg
    named = [node for node in arg.toposort() if node.op is Ops.VARIABLE and node.arg[0] in values]
    return sizes().normal(arg.substitute({node: _with_value(node, values) for node in named}))


def _with_value(variable: UOp, values: dict[str, int]) -> UOp:
    name, least, most = variable.arg
    if name.startswith("["):
        return UOp.index(values[name])
    own = UOp(Ops.VARIABLE, dtypes.index, (), (name.split("@")[0], least, most))
    bound: UOp = sizes().bind(own, values[name])
    return bound
