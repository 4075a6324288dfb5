"""Kernels of variable size, shown at values of their variables: each value makes a kernel of numbers.

Owns: which values are taken, all of them where they are few, and the graphs of a kernel with these values in place of the
variables. Does not own: the proof of one such kernel (kernels/proof.py), samples of it (sampled/kernels.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from math import prod
from types import MappingProxyType
from typing import Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.uop import UOp, toposort

# Of more values these many are taken: the least, the greatest, and some between.
MOST_VALUES = 12


def variables_of(roots: Sequence[UOp]) -> dict[str, tuple[int, int]]:
    """The name of each variable, with its least and its greatest value."""
    found: dict[str, tuple[int, int]] = {}
    stack: list[Any] = list(toposort(tuple(roots)))
    while stack:
        part = stack.pop()
        if isinstance(part, tuple):
            stack += part
        elif isinstance(part, UOp):
            if part.op is Ops.VARIABLE:
                found[part.arg[0]] = part.arg[1:]
            elif isinstance(part.arg, UOp | tuple):
                stack.append(part.arg)
            stack += part.src if part.dtype is dtypes.index else ()
    return dict(sorted(found.items()))


def assignments(variables: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """Values for all variables: every choice, if there are few, else those at the ends and some others."""
    every = prod([high - low + 1 for low, high in variables.values()])
    spans = [_some(low, high, every <= MOST_VALUES) for low, high in variables.values()]
    chosen = islice(product(*spans), None if every <= MOST_VALUES else MOST_VALUES)
    return [dict(zip(variables, values)) for values in chosen]


def some_assignments(variables: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """A few of `assignments`: the first, the last and one between."""
    found = assignments(variables)
    return [found[k] for k in sorted({0, len(found) // 2, len(found) - 1})]


def _some(low: int, high: int, every: bool) -> list[int]:
    if every or high - low < 4:
        return list(range(low, high + 1))
    return sorted({low, low + 1, (low + high) // 2, high - 1, high}, key=lambda v: (v != high, v))


def shown_values(variables: Mapping[str, tuple[int, int]], tried: int) -> str:
    """For which values something was shown, for people."""
    spans = ", ".join([f"{name} from {low} to {high}" for name, (low, high) in variables.items()])
    every = prod([high - low + 1 for low, high in variables.values()])
    return f"{'all' if tried == every else tried} of {every:,} values of {spans}"


def at_values(
    root: UOp, values: Mapping[str, int], slots: Mapping[int, str] = MappingProxyType({})
) -> UOp:
    """A graph with numbers in place of the variables; terms of nothing but numbers are numbers.

    `slots`: parameters that are variables though they do not say so, and their names.
    """
    done: dict[UOp, UOp] = {}
    for node in toposort((root,)):
        done[node] = _at_values(node, tuple([done[s] for s in node.src]), values, slots)
    return done[root]


def _at_values(
    node: UOp, src: tuple[UOp, ...], values: Mapping[str, int], slots: Mapping[int, str]
) -> UOp:
    name = _name(node, slots)
    if name is not None:
        return UOp.const(node.dtype, values[name])
    if node.op in ELEMENTWISE and node.dtype.lanes == 1 and src and all(map(_is_whole, src)):
        args, types = tuple([s.arg for s in src]), tuple([s.dtype for s in src])
        return UOp.const(node.dtype, evaluate(node.op, node.dtype, args, types))
    arg = _argument(node.arg, values) if node.op in MOVEMENT or node.op is Ops.IOTA else node.arg
    return node if src == node.src and arg is node.arg else UOp(node.op, node.dtype, src, arg)


def _is_whole(node: UOp) -> bool:
    return node.op is Ops.CONST and isinstance(node.arg, int)


def _name(node: UOp, slots: Mapping[int, str]) -> str | None:
    """The name of the variable that a node is, or reads from memory where it has a width."""
    if node.op is Ops.VARIABLE:
        return str(node.arg[0])
    if node.op is Ops.LOAD and node.src[0].op is Ops.INDEX:
        whole = node.src[0].src[0]
        if whole.op is Ops.PARAM and len(whole.arg) == 3:
            return str(whole.arg[2])
        if whole.op is Ops.PARAM and whole.arg[0] in slots:
            return slots[whole.arg[0]]
    return None


def _argument(arg: Any, values: Mapping[str, int]) -> Any:
    if isinstance(arg, tuple):
        return tuple([_argument(part, values) for part in arg])
    if not isinstance(arg, UOp):
        return arg
    found = at_values(arg, values)
    return found.arg if found.op is Ops.CONST else found


def traces(
    body: UOp, trace: Sequence[tuple[Any, UOp]], chosen: Sequence[Mapping[str, int]]
) -> Iterator[tuple[UOp, list[tuple[Any, UOp]]]]:
    """The body of a kernel and its graph after each stage, with each of the chosen values."""
    for values in chosen:
        yield at_values(body, values), [(stage, at_values(root, values)) for stage, root in trace]
