"""What movement operations make of memory: the strides, offset and mask of a view.

Owns: `ViewInfo` and how it is read off an index term. Does not own: index terms, which are those of
the compiler: the movement operations lowered, then simplified by the proven rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import realize as machine

Mask = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ViewInfo:
    """Element i, j, ... of a view is element `offset + i*strides[0] + j*strides[1] + ...` below it.

    Where the position is not of that kind, as after reshaping a transposed matrix, `strides` and `offset`
    are None and `index` says it. `mask`: (begin, end) on each axis; what lies outside is 0.
    None: there is nothing outside, or `condition` is no such box.
    """

    shape: Shape
    strides: tuple[int, ...] | None
    offset: int | None
    mask: Mask | None
    index: UOp = field(repr=False)
    condition: UOp | None = field(repr=False)


def view_info(node: UOp) -> ViewInfo:
    """The movement operations at the top of a graph, as one view of the node below them."""
    base = node
    while base.op in MOVEMENT or (base.op is Ops.DETACH and len(base.src) == 1):
        base = base.src[0]  # a DETACH of several carries a gradient: what it marks is computed
    memory = UOp(Ops.PARAM, base.dtype, (), (1, prod(base.shape)))
    shaped = UOp(Ops.RESHAPE, base.dtype, (memory,), base.shape)
    body = UOp.sink(node.substitute({base: shaped}))
    store = machine.compiler().index_terms(body).src[0]
    positions = [n for n in store.src[1].toposort() if n.op is Ops.INDEX]
    if not positions:
        return _nothing_but_padding(node.shape)
    index, condition = (
        positions[0].src[1],
        positions[0].src[2] if len(positions[0].src) == 3 else None,
    )
    return _info(node.shape, index, condition)


def _nothing_but_padding(shape: Shape) -> ViewInfo:
    no = UOp.const(dtypes.bool, False)
    return ViewInfo(shape, (0,) * len(shape), 0, ((0, 0),) * len(shape), UOp.index(0), no)


def _info(shape: Shape, index: UOp, condition: UOp | None) -> ViewInfo:
    axes = [axis for axis, size in enumerate(shape) if size != 1]  # only those have loops
    nodes = UOp.sink(index, *_present(condition)).toposort()
    loops = {axes[n.arg[0]]: n for n in nodes if n.op is Ops.RANGE}
    found = [coefficient(index, loops[k]) if k in loops else 0 for k in range(len(shape))]
    strides = tuple([stride for stride in found if stride is not None])
    mask = None if condition is None else _box(shape, condition, loops)
    if len(strides) < len(found):
        return ViewInfo(shape, None, None, mask, index, condition)
    return ViewInfo(shape, strides, _at_zero(index), mask, index, condition)


def _at_zero(index: UOp) -> int:
    """The value of an index term where all loops are at 0."""
    values: dict[UOp, int] = {}
    for node in index.toposort():
        parts = [values[source] for source in node.src]
        is_loop = node.op is Ops.RANGE
        values[node] = 0 if is_loop else evaluate(node.op, node.dtype, parts, arg=node.arg)
    return values[index]


def _present(condition: UOp | None) -> tuple[UOp, ...]:
    return () if condition is None else (condition,)


def _box(shape: Shape, condition: UOp, loops: dict[int, UOp]) -> Mask | None:
    """The condition as one interval for each axis; None if it is of another kind."""
    bounds = [[0, size] for size in shape]
    axis_of = {loop: axis for axis, loop in loops.items()}
    pending = [condition]
    while pending:
        part = pending.pop()
        if part.op is Ops.AND:
            pending += part.src
            continue
        left, right = part.src if part.op is Ops.CMPLT else (part, part)
        if left.op is Ops.CONST and right in axis_of:
            low = bounds[axis_of[right]]
            low[0] = max(low[0], left.arg + 1)
        elif right.op is Ops.CONST and left in axis_of:
            high = bounds[axis_of[left]]
            high[1] = min(high[1], right.arg)
        else:
            return None
    return tuple([(begin, end) for begin, end in bounds])
