"""Kernel -> Kernel: index terms, which are mathematical integers, get a machine width.

Sound because the bounds of every index term are shown to fit the width first. Does not own: the
bounds (core/rewrite/facts.py).
"""

from __future__ import annotations

from typing import Protocol

from proofgrad.core.compile.target import Target
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import CAST, VARIABLE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

FIRST_VARIABLE = 1 << 20  # the slot of the first variable: behind all buffers


class Bounds(Protocol):
    """What is known of the values of a node; None: nothing."""

    def lo(self, node: UOp) -> int | None: ...

    def hi(self, node: UOp) -> int | None: ...


def choose_index_width(kernel: UOp, target: Target, bounds: Bounds) -> UOp:
    """Every `index` becomes the type that the target prefers if all terms fit it, else int64.

    Raises: OverflowError, naming the term, if int64 is not enough.
    """
    nodes = toposort((kernel,))
    terms = [n for n in nodes if n.dtype is dtypes.index]
    if not _unfit(terms, target.index_dtype, bounds):
        return _with_width(nodes, target.index_dtype)
    for node in _unfit(terms, dtypes.int64, bounds):
        raise OverflowError(
            f"an index term runs from {bounds.lo(node)} to {bounds.hi(node)}, which int64 does"
            f" not hold: {node!r}"
        )
    return _with_width(nodes, dtypes.int64)


def _unfit(terms: list[UOp], dtype: DType, bounds: Bounds) -> list[UOp]:
    """The terms that may have values that `dtype` has not."""
    least, most = dtype.lo, dtype.hi
    assert least is not None and most is not None
    found: list[UOp] = []
    for term in terms:
        low, high = bounds.lo(term), bounds.hi(term)
        if low is None or high is None or low < least or high > most:
            found.append(term)
    return found


def _with_width(nodes: list[UOp], width: DType) -> UOp:
    """The last of `nodes`, which are in order, with machine integers for index terms."""
    index = dtypes.index
    done = _loads_of_variables(nodes, width)
    for node in nodes:
        if node in done:
            continue
        src, dtype = tuple([done[s] for s in node.src]), node.dtype
        if node.op is CAST and src[0].dtype is dtype:
            done[node] = src[0]
        elif dtype is index:
            done[node] = UOp(node.op, width, src, node.arg)
        else:
            done[node] = node.with_src(src)
    return done[nodes[-1]]


def _loads_of_variables(nodes: list[UOp], width: DType) -> dict[UOp, UOp]:
    """Each variable read from a parameter of one int64. Its bounds have been used by now."""
    variables = [n for n in nodes if n.op is VARIABLE]
    found: dict[UOp, UOp] = {}
    for k, node in enumerate(sorted(variables, key=lambda v: str(v.arg[0]))):
        memory = UOp(Ops.PARAM, dtypes.int64, (), (FIRST_VARIABLE + k, 1, node.arg[0]))
        place = UOp(Ops.INDEX, dtypes.int64, (memory, UOp.const(width, 0)))
        found[node] = UOp(Ops.LOAD, dtypes.int64, (place,)).cast(width)
    return found
