"""A slice of what was written in part is read from what was written, or from what was there before.

    w(i) = where a <= i < a + n: v(i - a), else m(i)       w[b : e]   =   v[b - a : e - a]      if a <= b, e <= a + n
                                                           w[b : e]   =   m[b : e]              if e <= a or a + n <= b

    m:       0  1  2  3  4  5            a = 2, n = 2
    w:       0  1  v0 v1 4  5            w[2:3] = v[0:1]        w[4:6] = m[4:6]        w[1:3] is neither

    where(i < c, x(i), y(i))[b : e]   =   x[b : e] if e <= c, y[b : e] if c <= b
    f(x, y)[b : e]   =   f(x[b : e], y[b : e])             for every operation on elements, and for x repeated

Of several axes the place is inside if it is on all, and apart if it is on one. Where nothing was, padding is 0, and a sum to which
0 was added stays as it is when 0 is added again. So y[k] = f(y[k - 1]), y[k] += v, a stack of steps, and their gradients read
the steps that they are made of, and each step is the same kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from typing import Any, NamedTuple

from proofgrad.core.compile.steps.loop_nest import require
from proofgrad.core.compile.steps.tensor_program import TensorProgram, graph_step
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import Shape, is_plain
from proofgrad.core.ir.uop import UOp, toposort

Ends = tuple[tuple[int, int], ...]
Place = tuple[tuple[int, int], ...]  # of each axis the first element, and how many

# -- the functions of the law ---------------------------------------------------------------------


def is_apart(begin: Any, end: Any, first: Any, count: Any) -> Any:
    """Whether no element of a slice is among `count` elements, on one axis."""
    return end <= first or first + count <= begin


def is_inside(begin: Any, end: Any, first: Any, count: Any) -> Any:
    """Whether every element of a slice is among them."""
    return first <= begin and end <= first + count


def is_before(end: Any, border: Any) -> Any:
    """Whether every element of a slice comes before a border."""
    return end <= border


def is_behind(begin: Any, border: Any) -> Any:
    """Whether none does."""
    return border <= begin


def counted_from(begin: Any, end: Any, first: Any) -> tuple[Any, Any]:
    """The slice, counted from the first of them."""
    return begin - first, end - first


def of_slice(begin: Any, first: Any, last: Any) -> tuple[Any, Any]:
    """A slice of a slice, as one."""
    return begin + first, begin + last


def of_repeated(begin: Any, end: Any, size: Any) -> tuple[Any, Any]:
    """The slice of an axis of which a slice is taken after it was repeated, if it has one element, or left as it is."""
    return (0, 1) if size == 1 else (begin, end)


def summed(add: Any, values: Iterable[Any], zero: Any) -> Any:
    """The values added one after the other, but no 0 to what 0 was just added to."""
    total, *others = values
    was_zero = False
    for value in others:
        is_zero = value is zero
        total = total if is_zero and was_zero else add(total, value)
        was_zero = is_zero
    return total


# -- the step -------------------------------------------------------------------------------------


@graph_step(
    "w[b : e] = v[b - a : e - a], or m[b : e], where w(i) = v(i - a) if a <= i < a + n else m(i)"
)
def read_through(program: TensorProgram, wanted: Collection[UOp]) -> UOp:
    """Each of the slices reads what it shows of what is below, past writes to other places, and past the operations that are wanted."""
    done: dict[UOp, UOp] = {}
    passed: set[UOp] = set()
    for node in toposort((program.graph,)):
        new = node.with_src(tuple([done[source] for source in node.src]))
        if node in wanted and node.op is Ops.SHRINK:
            require(_is_plain(node), "a slice of unknown size", node)
            new = _of_operands(new.src[0], new.arg, passed)
        elif node in wanted:
            require(node.op in ELEMENTWISE, "no slice, and no operation on elements", node)
            passed.add(new)
        done[node] = new
    missing = [node for node in wanted if node not in done]
    require(not missing, "not in the graph", *missing)
    return done[program.graph]


def reads_what_is_written(node: UOp) -> bool:
    """Whether it is a slice of known size that shows what is below what it is of."""
    return node.op is Ops.SHRINK and _is_plain(node) and _below(node.src[0], node.arg) is not None


def is_put_together(value: UOp) -> bool:
    """Whether it is of several values, each in a place, or on one side of a border."""
    if value.op is Ops.WHERE:
        return _is_placed(value.src[0]) or _border(value.src[0]) is not None
    return _is_placed(value) or (value.op is Ops.ADD and any(map(_is_placed, value.src)))


def _is_plain(node: UOp) -> bool:
    return is_plain(node.src[0].shape) and is_plain(node.shape) and is_plain(sum(node.arg, ()))


def _of_operands(value: UOp, ends: Ends, passed: Set[UOp]) -> UOp:
    """The slice of a value, or what operations make of the slices of their operands."""
    made: dict[UOp, UOp] = {}
    for node in toposort((value,), lambda node: node in passed):
        if node in passed:
            made[node] = node.with_src(tuple([made[source] for source in node.src]))
        else:
            made[node] = _read(node, ends)
    return made[value]


class _Found(NamedTuple):
    """The value of which a slice is taken, the slice, and what is added to that."""

    value: UOp
    ends: Ends
    added: UOp | None = None


def _read(value: UOp, ends: Ends) -> UOp:
    """The slice, of what is furthest below."""
    zero = _zero(value.dtype, _sizes(ends))
    added: list[UOp] = []
    while (found := _below(value, ends)) is not None:
        value, ends = found.value, found.ends
        added += [] if found.added is None else [found.added]
    values = [_slice(value, ends), *added[::-1]]
    total: UOp = summed(lambda a, b: a.alu(Ops.ADD, b), values, zero)
    return total


def _below(value: UOp, ends: Ends) -> _Found | None:
    """What a slice of a value is a slice of; None: of nothing else."""
    match value.op:
        case Ops.WHERE:
            below = _chosen(value, ends)
            return None if below is None else _Found(below, ends)
        case Ops.PAD if _is_placed(value):
            below = _in_padding(value, ends)
            return None if below is None else _Found(below, _whole(below.shape))
        case Ops.ADD:
            for padded, other in (value.src[::-1], value.src):
                if _is_placed(padded) and (below := _in_padding(padded, ends)) is not None:
                    return _Found(other, ends, below)
            return None
        case Ops.SHRINK if _is_plain(value):
            inner = [of_slice(begin, *own) for own, (begin, _) in zip(ends, value.arg)]
            return _Found(value.src[0], tuple(inner))
        case Ops.DETACH:
            return _Found(value.src[0], ends)
        case _:
            return None


def _chosen(value: UOp, ends: Ends) -> UOp | None:
    """The one of two values that a slice of both, by a place or a border, is of; None: it is of both."""
    mask, one, other = value.src
    if _is_placed(mask):
        place = _place(mask)
        if _apart(ends, place):
            return other
        return one if _inside(ends, place) and _is_true(mask.src[0]) else None
    if (found := _border(mask)) is not None:
        axis, border = found
        begin, end = ends[axis]
        return one if is_before(end, border) else other if is_behind(begin, border) else None
    return None


def _border(mask: UOp) -> tuple[int, int] | None:
    """The axis, and the number, below which the positions are for which a mask is true."""
    if mask.op is Ops.EXPAND:
        mask = mask.src[0]
    if mask.op is not Ops.CMPLT or not is_plain(mask.shape):
        return None
    counter, border = _below_shape(mask.src[0]), _constant(mask.src[1])
    axes = [axis for axis, size in enumerate(mask.shape) if size > 1]
    if counter.op is not Ops.IOTA or border is None or len(axes) != 1:
        return None
    if counter.arg > counter.dtype.hi:  # it counts modulo
        return None
    return (axes[0], border) if mask.src[0].shape == mask.shape else None


def _below_shape(node: UOp) -> UOp:
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node


def _constant(node: UOp) -> int | None:
    """The number that all elements are, whatever memory holds."""
    while node.op is Ops.RESHAPE or node.op is Ops.EXPAND:
        node = node.src[0]
    return int(node.arg) if node.op is Ops.CONST and not node.dtype.is_float else None


def _in_padding(padded: UOp, ends: Ends) -> UOp | None:
    """A slice of a padded value that is one of the value, or 0; None: it is of both."""
    place = _place(padded)
    if _apart(ends, place):
        return _zero(padded.dtype, _sizes(ends))
    if not _inside(ends, place):
        return None
    inner = [counted_from(*own, first) for own, (first, _) in zip(ends, place)]
    return _slice(padded.src[0], tuple(inner))


def _is_placed(node: UOp) -> bool:
    """Whether it is padded, by known sizes."""
    return node.op is Ops.PAD and is_plain(node.src[0].shape) and is_plain(sum(node.arg, ()))


def _place(padded: UOp) -> Place:
    return tuple([(before, n) for (before, _), n in zip(padded.arg, padded.src[0].shape)])


def _apart(ends: Ends, place: Place) -> bool:
    return any([is_apart(*own, *other) for own, other in zip(ends, place)])


def _inside(ends: Ends, place: Place) -> bool:
    return all([is_inside(*own, *other) for own, other in zip(ends, place)])


def _is_true(mask: UOp) -> bool:
    return bool(_constant(mask))


def _slice(value: UOp, ends: Ends) -> UOp:
    """The slice, repeated after it was taken."""
    if ends == _whole(value.shape):
        return value
    if value.op is Ops.EXPAND and is_plain(value.shape):
        (source,) = value.src
        inner = [of_repeated(*own, size) for own, size in zip(ends, source.shape)]
        return UOp(Ops.EXPAND, value.dtype, (_slice(source, tuple(inner)),), _sizes(ends))
    return UOp(Ops.SHRINK, value.dtype, (value,), ends)


def _whole(shape: Shape) -> Ends:
    return tuple([(0, size) for size in shape])


def _sizes(ends: Ends) -> Shape:
    return tuple([end - begin for begin, end in ends])


def _zero(dtype: DType, shape: Shape) -> UOp:
    one = UOp(Ops.RESHAPE, dtype, (UOp.const(dtype, 0),), (1,) * len(shape))
    return UOp(Ops.EXPAND, dtype, (one,), shape)
